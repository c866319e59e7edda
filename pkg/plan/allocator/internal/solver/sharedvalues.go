package solver

import "slices"

// tallies count the devices that requests under one constraint find, by their values.
type tallies struct {
	// of are the counts by number of the value, negative numbers after the others. They
	// count if they bear the stamp.
	of    []tally
	stamp int32
	// values is how many values there are.
	values int
	// demands are the requests of which all open alternatives are constrained, and need
	// is how many devices they need at least.
	demands [][]*alternative
	need    int
}

// tally counts devices with one value.
type tally struct {
	stamp int32
	// enough is how many requests find enough, met the last of them, and found counts
	// for the one alternative with the number of.
	enough, met, of, found int
	// all are devices for all requests together.
	all int
}

// constraintsPossible is false if some constraint cannot be kept by the open requests.
func (s *search) constraintsPossible(now *alternative) bool {
	for c := range s.claims.constraints {
		if s.plan.last[c] < now.position {
			continue
		}
		possible := true
		if s.claims.constraints[c].distinct {
			possible = s.distinctPossible(c, now)
		} else if len(s.constrained[c].values) == 0 {
			possible = s.matchPossible(c, now)
		}
		if !possible {
			return false
		}
	}
	return true
}

// findConstrained finds the open requests that a constraint applies to.
func (s *search) findConstrained(c int, now *alternative) *tallies {
	t := &s.plan.bounds.tallies
	t.demands, t.need, t.values = t.demands[:0], 0, 0
	t.stamp = s.plan.bounds.draw()
	if n := 2 * (len(s.values) + firstValue); len(t.of) < n {
		t.of = make([]tally, n)
	}
	i := slices.Index(now.request.alternatives, now)
	s.addConstrained(c, now.request.alternatives[i:i+1])
	for _, r := range s.openAfter(now) {
		s.addConstrained(c, r.alternatives)
	}
	return t
}

func (s *search) addConstrained(c int, alternatives []*alternative) {
	t := &s.plan.bounds.tallies
	least := maxResults
	for _, a := range alternatives {
		count := s.count(a)
		if count == 0 || !slices.Contains(a.constraints, c) {
			return
		}
		least = min(least, count)
	}
	t.demands = append(t.demands, alternatives)
	t.need += least
}

// matchPossible is false if there is no value of which each request that must have it
// finds enough devices, and all together do.
func (s *search) matchPossible(c int, now *alternative) bool {
	t := s.findConstrained(c, now)
	if t.need < 2 {
		return true
	}
	for i := range t.demands {
		if s.tallyValues(c, i, now) {
			return true
		}
	}
	return false
}

// distinctPossible is false if there are too few values for the requests that must have
// different ones.
func (s *search) distinctPossible(c int, now *alternative) bool {
	t := s.findConstrained(c, now)
	for i := range t.demands {
		s.tallyValues(c, i, now)
	}
	return t.values >= t.need
}

// tallyValues counts the devices for one request by their values, and says whether there
// is one value that will do for all requests.
func (s *search) tallyValues(c, demand int, now *alternative) bool {
	b := &s.plan.bounds
	t := &b.tallies
	constraint := &s.claims.constraints[c]
	for _, a := range t.demands[demand] {
		need := s.count(a)
		for i := range s.plan.candidates[a.number] {
			candidate := &s.plan.candidates[a.number][i]
			if !s.available(a, candidate, now) {
				continue
			}
			v := s.valuesOf(candidate.pool, constraint.attribute)[candidate.device]
			of := t.at(v)
			of.count(a.number, demand, need)
			if b.devices[candidate.number] != t.stamp || s.device(candidate.ref).shared {
				b.devices[candidate.number] = t.stamp
				of.all++
			}
			if !constraint.distinct && v != unknownValue && of.enough == len(t.demands) && of.all >= t.need {
				return true
			}
		}
	}
	return false
}

// count counts one more device for an alternative.
func (t *tally) count(alternative, demand, need int) {
	if t.of != alternative {
		t.of, t.found = alternative, 0
	}
	t.found++
	if t.found == need && t.met != demand {
		t.enough++
		t.met = demand
	}
}

// at is the tally of a value.
func (t *tallies) at(value int32) *tally {
	if value < 0 {
		value = int32(len(t.of)/2) - value - firstValue
	}
	of := &t.of[value]
	if of.stamp != t.stamp {
		*of = tally{stamp: t.stamp, met: -1, of: -1}
		t.values++
	}
	return of
}
