package allocator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/pkg/plan/allocator/internal/cells"
	"apportion.dev/apportion/pkg/plan/allocator/internal/solver"
)

// search is one call of Allocate.
type search struct {
	allocator *Allocator
	ctx       context.Context
	on        *Target
	// state is what was committed for the target before, nil if nothing.
	state *target
	// selectors are those of the target, now and before.
	selectors []*cells.Selector
	claims    classified
	types     []*instanceType
	names     []types.NamespacedName
	compiled  *solver.Claims
	usage     *solver.Usage

	groups map[groupKey]*group
}

// groupKey is what decides: how the devices in reach look, and what the target has taken
// of them.
type groupKey struct {
	shape  solver.Shape
	before *group
}

// group is the answer for all alternatives that look alike.
type group struct {
	claims []types.NamespacedName
	// reach is the one that was searched.
	reach    *reach
	solution solver.Solution
	unlike   bool
	// err is for input for which kube-scheduler, too, gives up.
	err error
}

// outcome is the answer for one alternative, or a region of it.
type outcome struct {
	group *group
	// taken is what the target has then taken, if the group was solved.
	taken *taken
}

// placed are the claims that got devices now.
func (o *outcome) placed() []ClaimAllocation {
	if len(o.group.claims) == 0 {
		return nil
	}
	return o.taken.claims
}

func (a *Allocator) newSearch(ctx context.Context, on *Target, claims []*resourceapi.ResourceClaim) (*search, error) {
	s := &search{
		allocator: a,
		ctx:       ctx,
		on:        on,
		state:     a.targets[on.ID],
		claims:    a.classify(on.ID, claims),
		usage:     a.usage,
		groups:    make(map[groupKey]*group),
	}
	for _, selector := range on.Selectors {
		if selector == nil {
			continue
		}
		parsed, err := a.selectors.Selector(selector)
		if err != nil {
			return nil, fmt.Errorf("selector: %w", err)
		}
		s.selectors = appendNew(s.selectors, parsed)
	}
	if s.state != nil {
		if (s.state.node == nil) != (on.Node == nil) {
			return nil, errors.New("claims were placed on it as a node claim or as a node: it cannot be both, use another ID")
		}
		s.selectors = appendNew(s.selectors, s.state.selectors...)
		if s.state.others != nil {
			s.usage = s.state.others()
		}
	}
	types, twice := a.options.Cache.instanceTypes(on.InstanceTypes)
	if twice != "" {
		return nil, fmt.Errorf("there are several instance types with the name %s", twice)
	}
	s.types = types
	for _, claim := range s.claims.open {
		s.names = append(s.names, nameOf(claim))
	}
	if len(s.claims.open) > 0 && s.claims.err == nil {
		s.compiled, s.claims.err = a.compile(s.claims.open)
	}
	return s, nil
}

// appendNew appends the selectors that are not in the list yet.
func appendNew(to []*cells.Selector, selectors ...*cells.Selector) []*cells.Selector {
	for _, selector := range selectors {
		if !slices.Contains(to, selector) {
			to = append(to, selector)
		}
	}
	return to
}

func (s *search) run() (*Result, error) {
	if s.on.Node != nil {
		return s.runNode()
	}
	return s.runNodeClaim()
}

// outcome searches what a node reaches, or finds what was found where it looks the same.
func (s *search) outcome(r *reach, before *taken) (outcome, error) {
	g, err := s.group(r, before)
	if err != nil {
		return outcome{}, err
	}
	o := outcome{group: g, taken: before}
	if g.solution.Found && len(s.names) > 0 {
		choices := g.solution.Choices
		if g.reach != r {
			choices = solver.Translate(choices, g.reach.pools, r.pools)
		}
		o.taken = &taken{before: before, group: g, reach: r, claims: allocations(s.names, choices)}
	}
	return o, nil
}

func (s *search) group(r *reach, before *taken) (*group, error) {
	if len(s.names) == 0 {
		return &group{solution: solver.Solution{Found: true}}, nil
	}
	if r.err != nil {
		return &group{err: r.err}, nil
	}
	key := groupKey{shape: r.shape, before: before.at()}
	if g, ok := s.groups[key]; ok {
		return g, nil
	}
	usages := []*solver.Usage{s.usage}
	if before != nil {
		usages = append(usages, before.usage())
	}
	if r.held != nil {
		usages = append(usages, r.held)
	}
	usage := s.usage
	if len(usages) > 1 {
		usage = solver.Sum(usages...)
	}
	g, err := s.solve(r, usage)
	if err != nil {
		return nil, err
	}
	s.groups[key] = g
	return g, nil
}

// solve searches. Its error is the context's; others are the group's.
func (s *search) solve(r *reach, usage *solver.Usage) (*group, error) {
	g := &group{claims: s.names, reach: r}
	problem := solver.Problem{
		Pools:  r.pools,
		Node:   s.on.Node,
		Usage:  usage,
		Claims: s.compiled,
		Budget: s.allocator.options.Budget,
	}
	g.solution, g.err = solver.Solve(s.ctx, problem)
	if err := s.ctx.Err(); err != nil {
		return nil, err
	}
	if g.err != nil || s.allocator.options.Policy != BestFit {
		return g, nil
	}
	problem.BestFit = true
	best, err := solver.Solve(s.ctx, problem)
	if ctxErr := s.ctx.Err(); ctxErr != nil {
		return nil, ctxErr
	}
	if err != nil || !best.Found {
		return g, nil // what first fit found, if anything: best fit must not cost it
	}
	g.unlike = !g.solution.Found || !sameClaims(allocations(s.names, g.solution.Choices), allocations(s.names, best.Choices))
	g.solution = best
	return g, nil
}

// sameClaims says whether claims get the same devices.
func sameClaims(a, b []ClaimAllocation) bool {
	return slices.EqualFunc(a, b, func(a, b ClaimAllocation) bool { return slices.EqualFunc(a.Devices, b.Devices, sameDevice) })
}

func sameDevice(a, b DeviceAllocation) bool {
	return a.Device == b.Device && a.Template == b.Template && a.Request == b.Request && a.AdminAccess == b.AdminAccess &&
		maps.EqualFunc(a.Consumed, b.Consumed, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
}

// allocations writes choices for the caller.
func allocations(names []types.NamespacedName, choices [][]solver.Choice) []ClaimAllocation {
	claims := make([]ClaimAllocation, len(names))
	for i, name := range names {
		claims[i] = ClaimAllocation{Claim: name, Devices: make([]DeviceAllocation, len(choices[i]))}
		for j, choice := range choices[i] {
			claims[i].Devices[j] = DeviceAllocation{
				Request:     choice.RequestName,
				Device:      choice.Device.ID,
				Template:    choice.Device.Template,
				AdminAccess: choice.AdminAccess,
				Consumed:    choice.Consumed,
			}
		}
	}
	return claims
}

// dropped says why an alternative with one region will not do.
func (g *group) dropped(budget int) Dropped {
	switch {
	case g.err != nil:
		return Dropped{Reason: g.err.Error(), Err: true}
	case g.solution.OutOfBudget:
		return Dropped{Reason: fmt.Sprintf("not decided within %d search nodes", budget), Unknown: true}
	}
	return Dropped{Reason: g.solution.Reason}
}
