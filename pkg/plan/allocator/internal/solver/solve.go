package solver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// maxResults is how many devices a claim can hold.
const maxResults = resourceapi.AllocationResultsMaxSize

// searches keeps the memory of finished searches for later ones.
var searches = sync.Pool{New: func() any { return new(search) }}

// Solve finds devices for all claims of a problem. The error is the context's, or says
// what is wrong with the input where kube-scheduler gives up with an error, too: for
// example a selector that fails at a device which the search came to.
func Solve(ctx context.Context, p Problem) (Solution, error) {
	if p.Claims == nil {
		p.Claims = &Claims{}
	}
	s := searches.Get().(*search)
	defer searches.Put(s)
	s.begin(ctx, &p)
	defer s.end()
	solution, err := s.solve()
	if err != nil {
		return Solution{Nodes: s.nodes}, fmt.Errorf("allocate devices of %s: %w", p.nodeName(), err)
	}
	solution.Nodes = s.nodes
	return solution, nil
}

// search is one run of Solve.
type search struct {
	state
	ctx    context.Context
	budget int
	nodes  int
	// err stops the search.
	err error
	// wanted are the devices that a request for all devices wants, by the number of the
	// alternative.
	wanted [][]ref
	// deepest is the last request that the search came to, and deepestHas how many
	// devices it had at most.
	deepest, deepestHas int
	bestFit             bool
	plan                plan
}

func (s *search) begin(ctx context.Context, p *Problem) {
	s.reset(p)
	s.ctx, s.budget, s.nodes, s.err = ctx, p.Budget, 0, nil
	s.deepest, s.deepestHas = 0, 0
	s.bestFit = p.BestFit
	s.wanted = s.wanted[:0]
}

// end drops what belongs to the caller.
func (s *search) end() {
	s.ctx, s.err, s.claims, s.pools, s.usage = nil, nil, nil, nil, nil
	clear(s.picks[:cap(s.picks)])
	s.plan = plan{bounds: s.plan.bounds}
}

// result is how the search of a part of the tree ended.
type result uint8

const (
	found result = iota
	failed
	// exceeded is a failure because the claim would hold too many devices, whichever
	// they are: other devices need not be tried, only other alternatives.
	exceeded
	// stopped ends the search: s.err says why, or the budget is used up.
	stopped
)

func (s *search) solve() (Solution, error) {
	if err := s.findAll(); err != nil {
		return Solution{}, err
	}
	outcome := s.run()
	switch {
	case s.err != nil:
		return Solution{}, s.err
	case outcome == found:
		return s.solution()
	case outcome == stopped:
		return Solution{OutOfBudget: true, Reason: fmt.Sprintf("not decided within %d search nodes", s.budget)}, nil
	}
	for _, p := range s.pools {
		if p.ready().invalid {
			return Solution{}, fmt.Errorf("%s; and pool %s is invalid: %s", s.reason(), p.id, p.invalidReason)
		}
	}
	return Solution{Reason: s.reason()}, nil
}

func (s *search) run() result {
	if !s.bestFit {
		if outcome := s.first(); outcome != failed {
			return outcome
		}
		s.restart()
	}
	return s.all()
}

// restart gives everything back.
func (s *search) restart() {
	for len(s.picks) > 0 {
		s.giveBack()
	}
	s.held = 0
}

// findAll finds what requests for all devices want, and fails if that is not known or
// more than the claim can hold.
func (s *search) findAll() error {
	for _, r := range s.claims.requests {
		for _, a := range r.alternatives {
			var refs []ref
			if a.all {
				var err error
				if refs, err = s.allDevices(a); err != nil {
					return err
				}
			}
			s.wanted = append(s.wanted, refs)
		}
	}
	for _, c := range s.claims.claims {
		sum := 0
		for i := c.firstRequest; i < len(s.claims.requests) && s.claims.claims[s.claims.requests[i].claim] == c; i++ {
			var err error
			count := leastCount(s.claims.requests[i], func(a *alternative) int { return len(s.wanted[a.number]) })
			if sum, err = addCount(sum, count, c, s.claims.requests[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *search) allDevices(a *alternative) ([]ref, error) {
	var refs []ref
	for i, p := range s.pools {
		if p.ready().incomplete || p.invalid {
			what := "being updated"
			if p.invalid {
				what = "invalid: " + p.invalidReason
			}
			return nil, fmt.Errorf("%s asks for all devices, but pool %s is %s", s.claims.describe(a), p.id, what)
		}
		m := p.match(a.filter)
		if m.fails >= 0 {
			return nil, s.failure(a, ref{int32(i), m.fails})
		}
		for _, d := range m.all {
			refs = append(refs, ref{int32(i), d})
		}
	}
	return refs, nil
}

// count is how many devices an alternative needs.
func (s *search) count(a *alternative) int {
	if a.all {
		return len(s.wanted[a.number])
	}
	return a.count
}

// failure is the error of a device at which an alternative fails.
func (s *search) failure(a *alternative, r ref) error {
	d := s.device(r)
	m := d.pool.match(a.filter)
	v := m.verdicts[r.device]
	switch m.outcomes[r.device] {
	case reachFails:
		return fmt.Errorf("%s: node selector of device %s: %w", s.claims.describe(a), d.ID, d.reachErr)
	case capacityFails:
		return fmt.Errorf("%s: device %s: %w", s.claims.describe(a), d.ID, v.capacityErr)
	}
	return fmt.Errorf("%s: %s on device %s: %w", s.claims.describe(a), a.selectorName(v.rejectedBy), d.ID, v.selectErr)
}

// selectorName names a selector of an alternative's filter.
func (a *alternative) selectorName(i int) string {
	if i < a.filter.ofClass {
		return fmt.Sprintf("selector #%d of device class %s", i, a.class)
	}
	return fmt.Sprintf("selector #%d", i-a.filter.ofClass)
}

// step counts a search node, and says whether the search must stop there.
func (s *search) step() bool {
	s.nodes++
	if s.budget > 0 && s.nodes > s.budget {
		return true
	}
	if s.nodes%256 == 1 && s.ctx.Err() != nil {
		s.err = context.Cause(s.ctx)
		return true
	}
	return false
}

// first tries the first device that can be taken for each request in turn. Where that
// leads to the end it is what a search would find, and most problems end here. It fails
// where a search would have to go back, even if there is a solution.
func (s *search) first() result {
	for _, r := range s.claims.requests {
		if r.first {
			s.held = 0
		}
		outcome := failed
		for _, a := range r.alternatives {
			before := len(s.picks)
			outcome = s.firstOf(a)
			s.reached(a.position, len(s.picks)-before)
			if outcome == found || outcome == stopped || len(s.picks) > before {
				break
			}
		}
		if outcome != found {
			return outcome
		}
	}
	return found
}

func (s *search) firstOf(a *alternative) result {
	if a.all && len(s.wanted[a.number]) == 0 {
		return failed
	}
	count := s.count(a)
	if count > maxResults-s.held {
		return failed
	}
	if a.all {
		for _, r := range s.wanted[a.number] {
			if outcome := s.takeWanted(a, r); outcome != found {
				return outcome
			}
		}
		return found
	}
	for i := int32(0); int(i) < len(s.pools) && count > 0; i++ {
		m := s.pools[i].match(a.filter)
		for _, d := range m.exact {
			if count == 0 {
				break
			}
			r := ref{i, d}
			switch s.try(a, r, m) {
			case found:
				count--
			case stopped:
				return stopped
			}
		}
	}
	if count > 0 {
		return failed
	}
	return found
}

// takeWanted takes one of all devices. kube-scheduler makes it an error if a constraint
// does not allow that.
func (s *search) takeWanted(a *alternative, r ref) result {
	if s.step() {
		return stopped
	}
	s.load(r.pool)
	m := s.pools[r.pool].match(a.filter)
	switch s.take(a, r, m.outcomes[r.device], m.verdicts[r.device]) {
	case takenNow:
		return found
	case constrainedOut:
		s.err = s.notAllowed(a, r)
		return stopped
	}
	return failed
}

// try takes a device if it can be taken. The search stops at a device that fails and is
// not in use.
func (s *search) try(a *alternative, r ref, m *matches) result {
	s.load(r.pool)
	o := m.outcomes[r.device]
	if o.fails() {
		if !s.free(a, s.number(r)) {
			return failed
		}
		s.err = s.failure(a, r)
		return stopped
	}
	if s.take(a, r, o, m.verdicts[r.device]) != takenNow {
		return failed
	}
	if s.step() {
		return stopped
	}
	return found
}

// solution is what was taken.
func (s *search) solution() (Solution, error) {
	solution := Solution{Found: true, Choices: make([][]Choice, len(s.claims.claims))}
	picks := slices.Clone(s.picks)
	slices.SortStableFunc(picks, func(a, b pick) int {
		return cmp.Or(cmp.Compare(a.position, b.position), cmp.Compare(a.number, b.number))
	})
	all := make([]Choice, len(picks))
	for i := range picks {
		all[i] = s.choice(&picks[i])
	}
	start := 0
	for i := range solution.Choices {
		end := start
		for end < len(all) && all[end].Claim == i {
			end++
		}
		solution.Choices[i] = all[start:end:end]
		if err := selectable(solution.Choices[i]); err != nil {
			return Solution{}, fmt.Errorf("claim %s: %w", s.claims.claims[i].name, err)
		}
		start = end
	}
	return solution, nil
}

func (s *search) choice(p *pick) Choice {
	d := s.device(p.ref)
	c := Choice{
		Claim: p.request.claim, Request: p.request.index, Subrequest: p.subrequest,
		RequestName: p.name, Device: d, AdminAccess: p.admin,
	}
	if d.shared && len(p.consumed) > 0 {
		c.Consumed = make(map[resourceapi.QualifiedName]resource.Quantity, len(p.consumed))
		for i := range p.consumed {
			c.Consumed[d.capacities[i].name] = p.consumed[i].quantity.DeepCopy()
		}
	}
	return c
}

// selectable checks that the nodes which can use a claim's devices can be written as
// one node selector term, as the claim's status needs it.
func selectable(choices []Choice) error {
	for _, c := range choices {
		if c.Device.NodeName != "" || c.Device.BindsToNode || c.Device.Template {
			return nil
		}
		if c.Device.NodeSelector != nil && len(c.Device.NodeSelector.NodeSelectorTerms) > 1 {
			return errors.New("a node selector of more than one term is not supported")
		}
	}
	return nil
}
