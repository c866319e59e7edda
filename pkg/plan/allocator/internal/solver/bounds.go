package solver

// bounds tells early that a state has no solution. Each check leaves something out of
// what a solution must keep, so it can only say that there is none.
//
// A request is open if it still needs devices. One that can choose among at least as
// many untied components as all open requests need devices always finds some, whatever
// the others take: it is left out. The others are scarce:
//
//   - each must have enough devices left by itself,
//   - together they must find enough (see matching.go): without that, 16 requests of 15
//     devices with different selectors visit 359,688 search nodes instead of 16,
//   - together they must leave enough of each counter and capacity (see volume.go):
//     without that, partitions of three sizes that need 57 of 56 units visit 3,836
//     instead of 28.
//
// Devices whose values of an attribute must agree or differ are not counted: without
// that check no input that must stay fast visits many more search nodes.
type bounds struct {
	scarce []demand
	// marks by number of component, of device and of counter: equal to the stamp if
	// seen since the stamp was drawn.
	components, devices, counters []int32
	stamp                         int32
	// firstCounter are numbers of the pools' first counters.
	firstCounter []int32

	matching matching
	volume   volume
}

// demand is an open request that is scarce.
type demand struct {
	*alternative
	need int
	// open are the candidates that could be taken now.
	open []*candidate
}

func (s *search) prepareBounds() {
	b := &s.plan.bounds
	b.stamp = 0
	b.components = cleared(b.components, len(s.plan.symmetry.components))
	b.devices = cleared(b.devices, int(s.offsets[len(s.pools)]))
	b.firstCounter = b.firstCounter[:0]
	total := 0
	for _, p := range s.pools {
		b.firstCounter = append(b.firstCounter, int32(total))
		total += len(p.counters)
	}
	b.counters = cleared(b.counters, total)
	s.prepareVolume()
}

func (b *bounds) draw() int32 {
	b.stamp++
	return b.stamp
}

// possible is false if an alternative that has some devices, and can take more from a
// candidate on, cannot lead to a solution. It only looks at requests before the next
// that may end in an error.
func (s *search) possible(a *alternative, candidates []candidate, has, from int) bool {
	if s.plan.mayFail[a.number] {
		return true
	}
	b := &s.plan.bounds
	b.scarce = b.scarce[:0]
	need := s.count(a) - has
	open := s.openAfter(a)
	total := need
	for _, r := range open {
		most := 0
		for _, other := range r.alternatives {
			most = max(most, s.count(other))
		}
		total += most
	}
	if s.examine(a, candidates[from:], need, total, a) == impossible {
		return false
	}
	for _, r := range open {
		if s.examineRequest(r, total, a) == impossible {
			return false
		}
	}
	return len(b.scarce) == 0 || s.matchable(total) && s.voluminous()
}

// openAfter are the requests after that of an alternative, up to the next that may end
// in an error.
func (s *search) openAfter(a *alternative) []*request {
	return s.claims.requests[a.position+1 : s.plan.nextError[a.position+1]]
}

// supply is how many devices there are for a demand.
type supply uint8

const (
	plentiful supply = iota
	scarce
	impossible
)

// examineRequest notes the demand of a request if it is scarce. That of a request with
// several alternatives is one only if just one of them is possible.
func (s *search) examineRequest(r *request, total int, now *alternative) supply {
	b := &s.plan.bounds
	before := len(b.scarce)
	best, possibilities := impossible, 0
	for _, a := range r.alternatives {
		got := s.examine(a, s.plan.candidates[a.number], s.count(a), total, now)
		if got == impossible || a.all && s.count(a) == 0 {
			continue
		}
		best = min(best, got)
		possibilities++
	}
	if possibilities > 1 || best == plentiful {
		b.scarce = b.scarce[:before]
	}
	return best
}

// examine counts the devices that could be taken for an alternative, and notes it as
// scarce if these are few.
func (s *search) examine(a *alternative, candidates []candidate, need, total int, now *alternative) supply {
	switch {
	case s.plan.hopeless[a.number]:
		return impossible
	case need <= 0:
		return plentiful
	}
	b := &s.plan.bounds
	stamp := b.draw()
	d := s.addDemand(a, need)
	untied := 0
	for i := range candidates {
		c := &candidates[i]
		if !s.available(a, c, now) {
			if a.all {
				return s.dropDemand(impossible)
			}
			continue
		}
		d.open = append(d.open, c)
		if at := &b.components[s.plan.symmetry.component[c.number]]; *at != stamp {
			*at = stamp
			untied++
		}
		if untied >= total && !a.all {
			return s.dropDemand(plentiful)
		}
	}
	switch {
	case len(d.open) < need:
		return s.dropDemand(impossible)
	case a.admin:
		// It can watch devices that other claims take.
		return s.dropDemand(plentiful)
	}
	return scarce
}

// addDemand adds a demand, and uses the memory of a former one.
func (s *search) addDemand(a *alternative, need int) *demand {
	b := &s.plan.bounds
	if len(b.scarce) < cap(b.scarce) {
		b.scarce = b.scarce[:len(b.scarce)+1]
	} else {
		b.scarce = append(b.scarce, demand{})
	}
	d := &b.scarce[len(b.scarce)-1]
	d.alternative, d.need, d.open = a, need, d.open[:0]
	return d
}

func (s *search) dropDemand(because supply) supply {
	b := &s.plan.bounds
	b.scarce = b.scarce[:len(b.scarce)-1]
	return because
}

// available says whether a candidate could be taken now. Constraints count for the
// claim that the search is at.
func (s *search) available(a *alternative, c *candidate, now *alternative) bool {
	if c.outcome != accepted || !s.free(a, c.number) {
		return false
	}
	d := s.device(c.ref)
	if d.consumes && !s.paid(d, c.number) && !s.affords(c.ref, d) || !s.fits(c.ref, c.consumed) {
		return false
	}
	if a.request.claim != now.request.claim {
		return true
	}
	for _, constraint := range a.constraints {
		if !s.allows(constraint, c.ref) {
			return false
		}
	}
	return true
}
