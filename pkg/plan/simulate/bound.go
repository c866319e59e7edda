package simulate

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	corehelpers "k8s.io/component-helpers/scheduling/corev1"
)

// lowerBound is how many new nodes the pods on the plan's node claims need in any plan.
//
// Pods that have an instance type in common, directly or through others, form a group:
// no node can have pods of two groups, so groups add up. In a group, what each pod takes
// at least of a node of any of its instance types is summed up for each resource and
// each kind of device, and rounded up to whole nodes. The scarcest decides.
func (p *planner) lowerBound(ctx context.Context) (LowerBound, error) {
	fresh, err := p.newPlanner(p.policy)
	if err != nil {
		return LowerBound{}, err
	}
	// alone are the instance types on which pods that are alike fit.
	alone := map[string][]*InstanceType{}
	groups := newGroups()
	counted := map[*resourceapi.ResourceClaim]bool{}
	for _, t := range p.nodeClaims {
		for _, placed := range t.pods {
			types, known := alone[placed.pod.like]
			if !known || placed.pod.like == "" {
				found, err := fresh.try(ctx, placed.pod, fresh.newNodeClaim(), nil)
				if err != nil {
					return LowerBound{}, err
				}
				types = p.types
				if found != nil {
					types = found.types
				}
				alone[placed.pod.like] = types
			}
			groups.add(types, p.weigher.ofPod(ctx, placed.pod, types, counted))
		}
	}
	return groups.bound(), nil
}

// groups are of pods that may share nodes.
type groups struct {
	// of is the group of each instance type, the demand of which is summed up.
	of   map[*InstanceType]int
	sums []demand
}

func newGroups() *groups { return &groups{of: map[*InstanceType]int{}} }

// add puts a pod into the group of its instance types, which become one.
func (g *groups) add(types []*InstanceType, d demand) {
	into := len(g.sums)
	g.sums = append(g.sums, demand{})
	g.sums[into].add(d, 1)
	for _, it := range types {
		old, known := g.of[it]
		if known && old != into {
			g.sums[into].add(g.sums[old], 1)
			g.sums[old] = nil
			for other, group := range g.of {
				if group == old {
					g.of[other] = into
				}
			}
		}
		g.of[it] = into
	}
}

// rounding keeps errors of floating point from adding a node.
const rounding = 1e-6

func (g *groups) bound() LowerBound {
	var bound LowerBound
	var because []string
	for _, sum := range g.sums {
		if sum == nil {
			continue
		}
		nodes, scarcest := 1, ""
		for _, dim := range slices.SortedFunc(maps.Keys(sum), compareDimensions) {
			if n := int(math.Ceil(sum[dim] - rounding)); n > nodes || n == nodes && scarcest == "" {
				nodes, scarcest = n, dim.String()
			}
		}
		bound.Nodes += nodes
		if scarcest != "" && !slices.Contains(because, scarcest) {
			because = append(because, scarcest)
		}
	}
	bound.Because = strings.Join(because, ", ")
	return bound
}

// String names the dimension for people.
func (d dimension) String() string {
	switch {
	case d.of == "":
		return d.what
	case d.capacity != "":
		return d.capacity + " of " + d.of
	}
	return d.what + " of " + d.of
}

func compareDimensions(a, b dimension) int {
	return cmp.Or(cmp.Compare(a.of, b.of), cmp.Compare(a.what, b.what), cmp.Compare(a.capacity, b.capacity))
}

// largestFirst orders pods of the same priority by the part of a node that they take at
// least.
func largestFirst(ctx context.Context, s *shared, pods []*podState) {
	counted := map[*resourceapi.ResourceClaim]bool{}
	sizes := map[*podState]float64{}
	for _, pod := range pods {
		if pod.problem == "" {
			sizes[pod] = s.weigher.ofPod(ctx, pod, s.types, counted).most()
		}
	}
	slices.SortStableFunc(pods, func(a, b *podState) int {
		return cmp.Or(cmp.Compare(corehelpers.PodPriority(b.Pod), corehelpers.PodPriority(a.Pod)), cmp.Compare(sizes[b], sizes[a]))
	})
}
