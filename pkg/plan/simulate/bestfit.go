package simulate

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"apportion.dev/apportion/pkg/plan/allocator"
)

// bestFit makes the plan of policy predict, and plans in which each pod goes where it
// leaves least, in the usual order and with the largest pods first. It gives the best
// plan that is in nothing worse than the first.
func (s *shared) bestFit(ctx context.Context) (*Plan, error) {
	best, err := s.plan(ctx, allocator.Predict, usualOrder)
	if err != nil {
		return nil, err
	}
	// Among equals the last one is taken, as its devices are used best.
	for _, order := range []ordering{largestFirst, usualOrder} {
		other, err := s.plan(ctx, allocator.BestFit, order)
		if err != nil {
			return nil, err
		}
		if notWorse(other, best) {
			best = other
		}
	}
	best.Policy = allocator.BestFit
	return best, nil
}

// notWorse compares plans by the pods that they leave, then by nodes, then by price. A
// plan that is better in one of the first two and worse in the other is worse.
func notWorse(a, b *Plan) bool {
	if a.Totals.NotPlaced > b.Totals.NotPlaced || a.Totals.NodeClaims > b.Totals.NodeClaims {
		return false
	}
	return a.Totals.NotPlaced < b.Totals.NotPlaced || a.Totals.NodeClaims < b.Totals.NodeClaims ||
		a.Totals.Price <= b.Totals.Price || b.Totals.Price == 0
}

// tightest is the target on which a pod leaves least: the fewest devices, then the least
// of the scarcest resource, on the cheapest type that survives.
func (p *planner) tightest(ctx context.Context, pod *podState, targets []*target) (*attempt, error) {
	var best *attempt
	var bestSlack slack
	for _, t := range targets {
		found, err := p.tryAgain(ctx, pod, t)
		if err != nil {
			return nil, err
		}
		if found == nil {
			continue
		}
		if s := p.slack(found); best == nil || s.less(bestSlack) {
			best, bestSlack = found, s
		}
	}
	return best, nil
}

// slack is what a target has left.
type slack struct {
	// units are devices, resources the smallest part of any resource.
	units, resources float64
}

func (s slack) less(other slack) bool {
	return cmp.Or(cmp.Compare(s.units, other.units), cmp.Compare(s.resources, other.resources)) < 0
}

// slack is what would be left if the attempt was taken.
func (p *planner) slack(a *attempt) slack {
	t := a.target
	var s *stock
	var allocatable corev1.ResourceList
	instanceType := ""
	if t.node != nil {
		s, allocatable = p.shared.nodeStocks[t.name], t.node.Status.Allocatable
	} else {
		it := a.types[0]
		s, allocatable, instanceType = p.shared.stocks[it], it.Allocatable, it.Name
	}
	all := slices.Clone(t.held)
	take := func(result *allocator.Result) {
		// Which labels the node will have is open yet; the placements differ little.
		if placements := placementsOn(result, instanceType); len(placements) > 0 {
			all = append(all, takenBy(placements[0].Claims)...)
		}
	}
	for _, pod := range t.pods {
		take(pod.result)
	}
	take(a.result)
	left := slack{units: s.left(s.hold(all)), resources: 1}
	used := plus(t.used, a.requests)
	for name, total := range allocatable {
		if !total.IsZero() {
			left.resources = min(left.resources, 1-ratio(used[name], total))
		}
	}
	return left
}
