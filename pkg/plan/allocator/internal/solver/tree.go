package solver

import "fmt"

// all searches everything that may hold a solution.
func (s *search) all() result {
	if !s.prepare() {
		return failed
	}
	if s.bestFit && s.plan.hasErrors() {
		// Whether there is an error depends on the order, so it is kube-scheduler's.
		s.bestFit = false
		if outcome := s.first(); outcome != failed {
			return outcome
		}
		s.restart()
	}
	return s.requestAt(0)
}

// requestAt searches devices for a request and those after it.
func (s *search) requestAt(position int) result {
	if position == len(s.claims.requests) {
		return found
	}
	r := s.claims.requests[position]
	held := s.held
	if r.first {
		s.held = 0
	}
	outcome := exceeded
	for _, a := range r.alternatives {
		switch got := s.alternative(a); got {
		case found, stopped:
			return got
		case failed:
			outcome = failed
		}
	}
	s.held = held
	if r.first {
		// Other devices for earlier claims may make room for an alternative that needs
		// fewer devices.
		return failed
	}
	return outcome
}

func (s *search) alternative(a *alternative) result {
	candidates := s.plan.candidates[a.number]
	start := 0
	if s.bestFit {
		candidates = s.ordered(a, candidates)
	} else if twin := a.request.twin; twin >= 0 && !s.plan.exact {
		start = s.afterTwin(candidates, twin)
	}
	return s.devices(a, candidates, 0, start)
}

// afterTwin is where to start for a request that asks the same as an earlier one: that
// one would as well have the earlier device.
func (s *search) afterTwin(candidates []candidate, twin int) int {
	for i := range s.picks {
		if s.picks[i].position != twin {
			continue
		}
		for k := range candidates {
			if candidates[k].number >= s.picks[i].number {
				return k
			}
		}
	}
	return 0
}

// devices searches the devices of an alternative that has some, from a candidate on, and
// then those of the following requests.
func (s *search) devices(a *alternative, candidates []candidate, has, from int) result {
	if s.step() {
		return stopped
	}
	count := s.count(a)
	s.reached(a.position, has)
	switch {
	case a.all && count == 0:
		return failed
	case has >= count:
		return s.requestAt(a.position + 1)
	case count-has > maxResults-s.held:
		return exceeded
	}
	if s.plan.exact {
		return s.choose(a, candidates, has, from)
	}
	key := s.stateKey(a, has)
	if known, ok := s.plan.failures.recall(key); ok {
		return known
	}
	kept := string(key)
	outcome := failed
	if s.possible(a, candidates, has, from) {
		outcome = s.choose(a, candidates, has, from)
	}
	if key != nil && (outcome == failed || outcome == exceeded) {
		s.plan.failures.remember(kept, outcome)
	}
	return outcome
}

// choose tries one candidate after the other.
func (s *search) choose(a *alternative, candidates []candidate, has, from int) result {
	if a.all {
		return s.chooseWanted(a, candidates, has)
	}
	need := s.count(a) - has
	tried := len(s.plan.symmetry.tried)
	defer func() { s.plan.symmetry.tried = s.plan.symmetry.tried[:tried] }()
	for i := from; i < len(candidates); i++ {
		c := &candidates[i]
		if len(candidates)-i < need && !s.plan.fails[a.number] {
			break
		}
		if !s.free(a, c.number) {
			continue
		}
		if c.outcome.fails() {
			s.err = s.failure(a, c.ref)
			return stopped
		}
		like := int64(-1)
		if !s.plan.exact {
			if like = s.likeness(c.number); s.wasTried(tried, like) {
				continue
			}
		}
		if s.grab(a, c) != takenNow {
			continue
		}
		got := s.devices(a, candidates, has+1, i+1)
		if got == found || got == stopped {
			return got
		}
		s.release()
		if got == exceeded {
			return got
		}
		s.addTried(tried, like)
	}
	return failed
}

// chooseWanted takes the next of all devices. kube-scheduler makes it an error if a
// constraint does not allow that.
func (s *search) chooseWanted(a *alternative, candidates []candidate, has int) result {
	c := &candidates[has]
	switch s.grab(a, c) {
	case takenNow:
	case constrainedOut:
		s.err = s.notAllowed(a, c.ref)
		return stopped
	default:
		return failed
	}
	got := s.devices(a, candidates, has+1, has+1)
	if got == failed || got == exceeded {
		s.release()
	}
	return got
}

func (s *search) notAllowed(a *alternative, r ref) error {
	return fmt.Errorf("%s asks for all devices, but a constraint does not allow device %s", s.claims.describe(a), s.device(r).ID)
}

// reached notes how far the search came.
func (s *search) reached(position, has int) {
	if position > s.deepest || position == s.deepest && has > s.deepestHas {
		s.deepest, s.deepestHas = position, has
	}
}
