package simulate

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	corehelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/dynamic-resource-allocation/cel"
)

// lowerBound is how many new nodes the pods on the plan's node claims need in any plan.
//
// Pods that have an instance type in common, directly or through others, form a group:
// no node can have pods of two groups, so the bounds of groups add up. In a group, what
// each pod takes at least of a node of any of its instance types is summed up for each
// dimension and rounded up to whole nodes. The scarcest dimension decides.
func (p *planner) lowerBound(ctx context.Context) (LowerBound, error) {
	fresh, err := p.shared.newPlanner(p.policy)
	if err != nil {
		return LowerBound{}, err
	}
	// alone are the instance types on which pods that are alike fit.
	alone := map[string][]*InstanceType{}
	groups := groups{of: map[*InstanceType]int{}}
	counted := map[*resourceapi.ResourceClaim]bool{}
	for _, t := range p.nodeClaims {
		for _, placed := range t.pods {
			types, known := alone[placed.pod.like]
			if !known || placed.pod.like == "" {
				found, err := fresh.try(ctx, placed.pod, fresh.newNodeClaim(), nil)
				if err != nil {
					return LowerBound{}, err
				}
				types = p.shared.types
				if found != nil {
					types = found.types
				}
				alone[placed.pod.like] = types
			}
			groups.add(types, p.shared.weigher.ofPod(ctx, placed.pod, types, counted))
		}
	}
	return groups.bound(), nil
}

// groups are of pods that may share nodes.
type groups struct {
	// of is the group of each instance type, and sums are the demands of groups.
	of   map[*InstanceType]int
	sums []demand
}

// add puts a pod into the group of its instance types, which become one.
func (g *groups) add(types []*InstanceType, d demand) {
	into := len(g.sums)
	g.sums = append(g.sums, maps.Clone(d))
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
		for _, dimension := range slices.Sorted(maps.Keys(sum)) {
			if n := int(math.Ceil(sum[dimension] - rounding)); n > nodes || n == nodes && scarcest == "" {
				nodes, scarcest = n, dimension
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

// largestFirst orders pods of the same priority by the part of a node that they take at
// least, in the dimension of which they take most.
func largestFirst(ctx context.Context, s *shared, pods []*podState) {
	counted := map[*resourceapi.ResourceClaim]bool{}
	sizes := map[*podState]float64{}
	for _, pod := range pods {
		if pod.problem == "" {
			for _, part := range s.weigher.ofPod(ctx, pod, s.types, counted) {
				sizes[pod] = max(sizes[pod], part)
			}
		}
	}
	slices.SortStableFunc(pods, func(a, b *podState) int {
		return cmp.Or(cmp.Compare(corehelpers.PodPriority(b.pod), corehelpers.PodPriority(a.pod)), cmp.Compare(sizes[b], sizes[a]))
	})
}

// demand says how much of a node something takes at least, by dimension: 1 is all that
// one node has. What lies on one node adds up to at most 1 in every dimension.
//
// A dimension is a resource ("cpu"), a kind of counter ("memory-slice of DRIVER", where
// counters that differ only in their number count together), or the number of devices
// without counters ("devices of DRIVER").
type demand map[string]float64

// add sums up.
func (d demand) add(other demand, times float64) {
	for dimension, part := range other {
		d[dimension] += part * times
	}
}

// least keeps what both demands have in common; nil stands for no demand that is known.
func least(a, b demand) demand {
	if a == nil {
		return maps.Clone(b)
	}
	for dimension := range a {
		if a[dimension] = min(a[dimension], b[dimension]); a[dimension] == 0 {
			delete(a, dimension)
		}
	}
	return a
}

// weigher finds demands. What is taken of devices does not matter to it.
type weigher struct {
	classes map[string]*resourceapi.DeviceClass
	// offers are the devices of instance types, elsewhere those of the cluster that are
	// not bound to one node.
	offers    map[*InstanceType][]offer
	elsewhere []offer
	selectors *cel.Cache
	matched   map[matchKey]bool
	// demands are those of pods that are alike.
	demands map[demandKey]demand
}

// offer is a device with the parts that it takes of all that its node has.
type offer struct {
	driver string
	device *resourceapi.Device
	parts  demand
}

type matchKey struct {
	expression string
	device     *resourceapi.Device
}

// demandKey tells pods apart by what they are like, and on how many instance types: those
// on which pods that are alike fit, or all.
type demandKey struct {
	like  string
	types int
}

func newWeigher(in *Input, types []*InstanceType, published []*resourceapi.ResourceSlice) *weigher {
	w := &weigher{
		classes: map[string]*resourceapi.DeviceClass{}, offers: map[*InstanceType][]offer{},
		selectors: cel.NewCache(100, cel.Features{EnableConsumableCapacity: true}),
		matched:   map[matchKey]bool{}, demands: map[demandKey]demand{},
	}
	for _, class := range in.Classes {
		w.classes[class.Name] = class
	}
	for _, it := range types {
		w.offers[it] = offersOf(templateSlices(it))
	}
	for _, slice := range published {
		if slice.Spec.NodeName == nil {
			w.elsewhere = append(w.elsewhere, offersOf([]poolSlice{{driver: slice.Spec.Driver, devices: slice.Spec.Devices}})...)
		}
	}
	return w
}

// offersOf reads all devices of one node.
func offersOf(pools []poolSlice) []offer {
	totals := demand{}
	for _, slice := range pools {
		for _, set := range slice.counters {
			totals.add(ofCounters(slice.driver, set.Counters), 1)
		}
		for i := range slice.devices {
			if len(slice.devices[i].ConsumesCounters) == 0 {
				totals["devices of "+slice.driver]++
			}
		}
	}
	var offers []offer
	for _, slice := range pools {
		for i := range slice.devices {
			device := &slice.devices[i]
			takes := demand{}
			for _, consumption := range device.ConsumesCounters {
				takes.add(ofCounters(slice.driver, consumption.Counters), 1)
			}
			if len(device.ConsumesCounters) == 0 {
				takes["devices of "+slice.driver] = 1
			}
			parts := demand{}
			for dimension, amount := range takes {
				if total := totals[dimension]; amount*total > 0 {
					parts[dimension] = amount / total
				}
			}
			offers = append(offers, offer{driver: slice.driver, device: device, parts: parts})
		}
	}
	return offers
}

// ofCounters sums up counters by their names without the numbers at the end.
func ofCounters(driver string, counters map[string]resourceapi.Counter) demand {
	sums := demand{}
	for name, counter := range counters {
		sums[strings.TrimRight(name, "0123456789-")+" of "+driver] += counter.Value.AsApproximateFloat64()
	}
	return sums
}

// shareOf is the least part of a device that an allocation takes. Of a device that can be
// shared it is the part of its memory that is asked for, else the policy's default.
func shareOf(o offer, asked *resourceapi.CapacityRequirements) float64 {
	if o.device.AllowMultipleAllocations == nil || !*o.device.AllowMultipleAllocations {
		return 1
	}
	name, memory := memoryOf(o.driver, o.device)
	amount := memory.Value
	if policy := memory.RequestPolicy; policy != nil {
		amount = resource.Quantity{}
		if policy.Default != nil {
			amount = *policy.Default
		}
	}
	if asked != nil {
		if wanted, does := asked.Requests[name]; does {
			amount = wanted
		}
	}
	return min(1, ratio(amount, memory.Value))
}

// ofClaim is what a claim takes at least of a node of an instance type, nil if it cannot
// be met there.
func (w *weigher) ofClaim(ctx context.Context, claim *resourceapi.ResourceClaim, it *InstanceType) demand {
	sum := demand{}
	for _, request := range claim.Spec.Devices.Requests {
		alternatives := request.FirstAvailable
		if exactly := request.Exactly; exactly != nil {
			if exactly.AdminAccess != nil && *exactly.AdminAccess {
				continue
			}
			alternatives = []resourceapi.DeviceSubRequest{{
				DeviceClassName: exactly.DeviceClassName, Selectors: exactly.Selectors,
				AllocationMode: exactly.AllocationMode, Count: exactly.Count, Capacity: exactly.Capacity,
			}}
		}
		var d demand
		for i := range alternatives {
			if of := w.ofRequest(ctx, &alternatives[i], it); of != nil {
				d = least(d, of)
			}
		}
		if d == nil {
			return nil
		}
		sum.add(d, 1)
	}
	return sum
}

func (w *weigher) ofRequest(ctx context.Context, r *resourceapi.DeviceSubRequest, it *InstanceType) demand {
	if slices.ContainsFunc(w.elsewhere, func(o offer) bool { return w.matches(ctx, r, o) }) {
		return demand{} // It may take nothing of the node.
	}
	all, found := demand{}, demand(nil)
	for _, o := range w.offers[it] {
		if w.matches(ctx, r, o) {
			d := demand{}
			d.add(o.parts, shareOf(o, r.Capacity))
			all.add(d, 1)
			found = least(found, d)
		}
	}
	switch {
	case found == nil:
		return nil
	case r.AllocationMode == resourceapi.DeviceAllocationModeAll:
		return all
	}
	result := demand{}
	result.add(found, float64(r.Count))
	return result
}

// matches says whether the selectors of a class and of a request select a device. What
// cannot be told counts as selected, which can only lower a demand.
func (w *weigher) matches(ctx context.Context, r *resourceapi.DeviceSubRequest, o offer) bool {
	selectors := r.Selectors
	if class := w.classes[r.DeviceClassName]; class != nil {
		selectors = slices.Concat(class.Spec.Selectors, selectors)
	}
	return !slices.ContainsFunc(selectors, func(s resourceapi.DeviceSelector) bool {
		return s.CEL != nil && !w.selects(ctx, s.CEL.Expression, o)
	})
}

func (w *weigher) selects(ctx context.Context, expression string, o offer) bool {
	key := matchKey{expression, o.device}
	if known, is := w.matched[key]; is {
		return known
	}
	result := true
	if program := w.selectors.GetOrCompile(expression); program.Error == nil {
		matches, _, err := program.DeviceMatches(ctx, cel.Device{
			Driver: o.driver, AllowMultipleAllocations: o.device.AllowMultipleAllocations, Attributes: o.device.Attributes, Capacity: o.device.Capacity,
		})
		result = err != nil || matches
	}
	w.matched[key] = result
	return result
}

// ofPod is what a pod takes at least of a node of any of the instance types. Claims that
// were counted before are left out, and those that are counted are noted.
func (w *weigher) ofPod(ctx context.Context, pod *podState, types []*InstanceType, counted map[*resourceapi.ResourceClaim]bool) demand {
	key := demandKey{pod.like, len(types)}
	if known, is := w.demands[key]; is {
		return known
	}
	claims, requests := pod.claimsOn(nil, nil)
	var result demand
	for _, it := range types {
		d := ofResources(requests, it.Allocatable)
		possible := true
		for _, claim := range claims {
			if claim.Status.Allocation != nil || counted[claim] {
				continue
			}
			of := w.ofClaim(ctx, claim, it)
			possible = possible && of != nil
			d.add(of, 1)
		}
		if possible {
			result = least(result, d)
		}
	}
	for _, claim := range claims {
		counted[claim] = true
	}
	if result == nil {
		result = demand{}
	}
	if pod.like != "" {
		w.demands[key] = result
	}
	return result
}

func ofResources(requests, allocatable corev1.ResourceList) demand {
	d := demand{}
	for name, request := range requests {
		if total := allocatable[name]; !total.IsZero() && !request.IsZero() {
			d[string(name)] = ratio(request, total)
		}
	}
	return d
}
