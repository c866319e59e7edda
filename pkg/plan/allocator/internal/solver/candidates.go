package solver

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
)

// candidate is a device that an alternative may take, or at which it fails.
type candidate struct {
	ref
	number  int32 // of the device
	outcome outcome
	*verdict
}

// plan is what is worked out before a search that may have to go back.
type plan struct {
	// candidates are those of each alternative, by its number, in publishing order; of
	// a request for all devices all that it wants. Left out are devices that the
	// alternative can never take, whatever else is taken.
	candidates [][]candidate
	// fails says that there is one at which the alternative fails, by number.
	fails []bool
	// mayFail says that an alternative may end in an error, by number, and nextError is
	// the first request from a position on of which some alternative may, the number of
	// requests if there is none. The search must not leave out what may lead there.
	mayFail   []bool
	nextError []int
	// hopeless says that not even by itself a request for all devices gets them, by
	// number.
	hopeless []bool
	// limited says that some choice of alternatives exceeds what a claim can hold.
	limited bool
	// exact says that both may happen. Then nothing is left out.
	exact bool
	// pinned are the devices of requests for all devices that may end in an error: it
	// depends on the order of these devices, so none is like another.
	pinned map[int32]bool
	// last are the positions of the last requests that each constraint applies to.
	last []int

	finished bool
	symmetry symmetry
	bounds   bounds
	failures memory
}

// prepare works out the plan. Nothing of ours may be taken. It is false if some request
// finds too few devices even by itself, and the search would end there in any case; the
// plan is then left unfinished.
func (s *search) prepare() bool {
	p := &s.plan
	*p = plan{bounds: p.bounds}
	for i := range s.pools {
		s.load(int32(i))
	}
	for _, r := range s.claims.requests {
		for _, a := range r.alternatives {
			candidates, fails := s.candidatesOf(a)
			p.candidates = append(p.candidates, candidates)
			p.fails = append(p.fails, fails)
		}
	}
	p.last = make([]int, len(s.claims.constraints))
	for _, r := range s.claims.requests {
		for _, a := range r.alternatives {
			for _, c := range a.constraints {
				p.last[c] = r.alternatives[0].position
			}
		}
	}
	s.findErrors()
	s.findLimit()
	p.exact = p.limited && p.hasErrors()
	for _, r := range s.claims.requests[:p.nextError[0]] {
		if !slices.ContainsFunc(r.alternatives, s.enough) {
			return false
		}
	}
	s.finishPlan()
	return true
}

// enough says that an alternative finds the devices it needs if the others need none.
func (s *search) enough(a *alternative) bool {
	if a.all {
		return !s.plan.hopeless[a.number] && s.count(a) > 0
	}
	return len(s.plan.candidates[a.number]) >= a.count
}

func (s *search) finishPlan() {
	s.plan.finished = true
	s.findSymmetry()
	s.prepareBounds()
}

func (s *search) candidatesOf(a *alternative) (result []candidate, fails bool) {
	if a.all {
		for _, r := range s.wanted[a.number] {
			result = append(result, s.candidate(s.pools[r.pool].match(a.filter), r))
		}
		return result, false
	}
	for i, pool := range s.pools {
		m := pool.match(a.filter)
		for _, d := range m.exact {
			c := s.candidate(m, ref{int32(i), d})
			switch {
			case !s.free(a, c.number):
			case c.outcome.fails():
				fails = true
				result = append(result, c)
			case s.takable(a, &c):
				result = append(result, c)
			}
		}
	}
	return result, fails
}

func (s *search) candidate(m *matches, r ref) candidate {
	return candidate{ref: r, number: s.number(r), outcome: m.outcomes[r.device], verdict: m.verdicts[r.device]}
}

// takable says whether a candidate could be taken now if no other constraint than those
// on its own attributes had to be kept. What cannot be taken now can never be, since
// only more is taken.
func (s *search) takable(a *alternative, c *candidate) bool {
	d := s.device(c.ref)
	if c.outcome != accepted || d.consumes && !s.paid(d, c.number) && !s.affords(c.ref, d) {
		return false
	}
	for _, index := range a.constraints {
		constraint := &s.claims.constraints[index]
		v := s.valuesOf(c.pool, constraint.attribute)[c.device]
		if v == noValue || constraint.distinct && v < noValue {
			return false
		}
	}
	return s.fits(c.ref, c.consumed)
}

// findErrors finds the alternatives that may end in an error, and what then must not be
// taken for alike.
func (s *search) findErrors() {
	p := &s.plan
	requests := s.claims.requests
	p.mayFail = make([]bool, len(p.candidates))
	p.hopeless = make([]bool, len(p.candidates))
	p.nextError = make([]int, len(requests)+1)
	p.nextError[len(requests)] = len(requests)
	for position := len(requests) - 1; position >= 0; position-- {
		p.nextError[position] = p.nextError[position+1]
		for _, a := range requests[position].alternatives {
			looked := 0
			if a.all {
				p.hopeless[a.number], looked = s.tryWanted(a)
			}
			if !p.fails[a.number] && (!a.all || s.neverConstrained(a, looked)) {
				continue
			}
			p.mayFail[a.number] = true
			p.nextError[position] = position
			if a.all {
				s.pin(p.candidates[a.number])
			}
		}
	}
}

func (p *plan) hasErrors() bool { return p.nextError[0] < len(p.nextError)-1 }

func (s *search) pin(wanted []candidate) {
	if s.plan.pinned == nil {
		s.plan.pinned = make(map[int32]bool)
	}
	for i := range wanted {
		s.plan.pinned[wanted[i].number] = true
	}
}

// tryWanted finds out whether a request for all devices is hopeless, for it does not
// even get them if nothing else is taken and no constraint stops it. Constraints are
// looked at for the first devices only, looked of them.
func (s *search) tryWanted(a *alternative) (hopeless bool, looked int) {
	unconstrained := *a
	unconstrained.constraints = nil
	wanted := s.plan.candidates[a.number]
	taken, refused := 0, takenNow
	for taken < len(wanted) {
		c := &wanted[taken]
		if refused = s.take(&unconstrained, c.ref, c.outcome, c.verdict); refused != takenNow {
			break
		}
		taken++
	}
	for range taken {
		s.giveBack()
	}
	if refused == noCapacity {
		return true, taken + 1 // Capacities are looked at after constraints.
	}
	return refused != takenNow, taken
}

// neverConstrained says that no constraint can ever keep a request for all devices from
// one of those it looks at.
func (s *search) neverConstrained(a *alternative, looked int) bool {
	if looked == 0 {
		return true
	}
	for _, index := range a.constraints {
		if !s.neverViolated(a, index, s.plan.candidates[a.number][:looked]) {
			return false
		}
	}
	return true
}

// neverViolated says that, whatever the other requests choose, a constraint allows all
// of some devices: for matchAttribute if there is only one value, for distinctAttribute
// if these have different ones and no other request has a say.
func (s *search) neverViolated(a *alternative, index int, wanted []candidate) bool {
	constraint := &s.claims.constraints[index]
	seen := make(map[int32]bool, len(wanted))
	for i := range wanted {
		v := s.valuesOf(wanted[i].pool, constraint.attribute)[wanted[i].device]
		if v == noValue || v == unknownValue || constraint.distinct && (v < noValue || seen[v]) {
			return false
		}
		seen[v] = true
	}
	for _, r := range s.claims.requests {
		for _, other := range r.alternatives {
			if r == a.request || !slices.Contains(other.constraints, index) {
				continue
			}
			if constraint.distinct {
				return false
			}
			for _, c := range s.plan.candidates[other.number] {
				seen[s.valuesOf(c.pool, constraint.attribute)[c.device]] = true
			}
		}
	}
	return constraint.distinct || len(seen) == 1
}

// findLimit finds out whether a claim can come to hold too many devices.
func (s *search) findLimit() {
	sum := 0
	for _, r := range s.claims.requests {
		if r.first {
			sum = 0
		}
		most := 0
		for _, a := range r.alternatives {
			most = max(most, min(s.count(a), maxResults+1))
		}
		sum += most
		s.plan.limited = s.plan.limited || sum > resourceapi.AllocationResultsMaxSize
	}
}
