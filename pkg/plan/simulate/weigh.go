package simulate

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/cel"
)

// demand says how much of a node something takes at least, by dimension: 1 is all that
// one node has. What lies on one node adds up to at most 1 in every dimension.
//
// A dimension is a resource, or a kind of counter of a driver's devices ("memory-slice",
// where counters that differ only in their number count together), or, for devices
// without counters, their number. Where devices can be shared, there is one for each
// capacity of which shares take a part.
type demand map[dimension]float64

type dimension struct{ of, what, capacity string }

// add sums up.
func (d demand) add(other demand, times float64) {
	for dim, amount := range other {
		d[dim] += amount * times
	}
}

// least keeps what both demands have in common; nil stands for no demand that is known.
func least(a, b demand) demand {
	if a == nil {
		return maps.Clone(b)
	}
	for dim := range a {
		a[dim] = min(a[dim], b[dim])
		if a[dim] == 0 {
			delete(a, dim)
		}
	}
	return a
}

// most is the largest part in any dimension.
func (d demand) most() float64 {
	most := 0.0
	for _, amount := range d {
		most = max(most, amount)
	}
	return most
}

// weigher finds demands. It makes no use of what is taken.
type weigher struct {
	classes map[string]*resourceapi.DeviceClass
	// offers are the devices of instance types, elsewhere those of the cluster that are
	// not bound to one node.
	offers    map[string][]offer
	elsewhere []offer
	// capacities are those of which shares of a driver's devices may take a part.
	capacities map[string][]resourceapi.QualifiedName
	compiled   map[string]cel.CompilationResult
	matched    map[matchKey]bool
	// demands are those of pods that are alike.
	demands map[demandKey]demand
}

// offer is a device.
type offer struct {
	driver string
	device *resourceapi.Device
	// parts are how much of its node's counters it takes, by kind.
	parts map[string]float64
	// content is equal for devices that no selector tells apart.
	content string
}

type matchKey struct{ expression, content string }

// demandKey tells pods apart by what they are like, and on how many instance types: those
// on which pods that are alike fit, or all.
type demandKey struct {
	like  string
	types int
}

func newWeigher(in *Input, types []*InstanceType, published []*resourceapi.ResourceSlice) (*weigher, error) {
	w := &weigher{
		classes: map[string]*resourceapi.DeviceClass{}, offers: map[string][]offer{}, capacities: map[string][]resourceapi.QualifiedName{},
		compiled: map[string]cel.CompilationResult{}, matched: map[matchKey]bool{}, demands: map[demandKey]demand{},
	}
	for _, class := range in.Classes {
		w.classes[class.Name] = class
	}
	for _, it := range types {
		byDriver := map[string][]poolSlice{}
		for _, slice := range templateSlices(it) {
			byDriver[slice.driver] = append(byDriver[slice.driver], slice)
		}
		for _, driver := range slices.Sorted(maps.Keys(byDriver)) {
			offers, err := offersOf(driver, byDriver[driver])
			if err != nil {
				return nil, err
			}
			w.offers[it.Name] = append(w.offers[it.Name], offers...)
		}
		w.noteCapacities(w.offers[it.Name])
	}
	for _, slice := range published {
		if slice.Spec.NodeName == nil {
			offers, err := offersOf(slice.Spec.Driver, []poolSlice{{devices: slice.Spec.Devices}})
			if err != nil {
				return nil, err
			}
			w.elsewhere = append(w.elsewhere, offers...)
		}
	}
	return w, nil
}

// offersOf reads all devices of a driver on one node.
func offersOf(driver string, pools []poolSlice) ([]offer, error) {
	totals := map[string]float64{}
	plain := 0.0
	for _, slice := range pools {
		for _, set := range slice.counters {
			for name, counter := range set.Counters {
				totals[counterKind(name)] += counter.Value.AsApproximateFloat64()
			}
		}
		for _, device := range slice.devices {
			if len(device.ConsumesCounters) == 0 {
				plain++
			}
		}
	}
	var offers []offer
	for _, slice := range pools {
		for i := range slice.devices {
			device := &slice.devices[i]
			content, err := contentOf(device)
			if err != nil {
				return nil, err
			}
			o := offer{driver: driver, device: device, parts: map[string]float64{}, content: driver + content}
			for _, consumption := range device.ConsumesCounters {
				for name, counter := range consumption.Counters {
					if total := totals[counterKind(name)]; total > 0 {
						o.parts[counterKind(name)] += counter.Value.AsApproximateFloat64() / total
					}
				}
			}
			if len(device.ConsumesCounters) == 0 {
				o.parts["devices"] = 1 / plain
			}
			offers = append(offers, o)
		}
	}
	return offers, nil
}

// counterKind is a counter's name without the number at its end.
func counterKind(name string) string { return strings.TrimRight(name, "0123456789-") }

// contentOf is all of a device that selectors see.
func contentOf(device *resourceapi.Device) (string, error) {
	data, err := json.Marshal(resourceapi.Device{
		Attributes: device.Attributes, Capacity: device.Capacity, AllowMultipleAllocations: device.AllowMultipleAllocations,
	})
	return string(data), err
}

func shareable(device *resourceapi.Device) bool {
	return device.AllowMultipleAllocations != nil && *device.AllowMultipleAllocations
}

func (w *weigher) noteCapacities(offers []offer) {
	for _, o := range offers {
		if !shareable(o.device) {
			continue
		}
		for name := range o.device.Capacity {
			if !slices.Contains(w.capacities[o.driver], name) {
				w.capacities[o.driver] = append(w.capacities[o.driver], name)
			}
		}
	}
}

// demandOf is what an allocation of an offer takes, if it asks for these capacities.
func (w *weigher) demandOf(o offer, asked map[resourceapi.QualifiedName]resource.Quantity) demand {
	d := demand{}
	names := w.capacities[o.driver]
	if len(names) == 0 {
		names = []resourceapi.QualifiedName{""}
	}
	for _, name := range names {
		part := 1.0
		switch {
		case shareable(o.device) && name != "":
			part = consumption(o.device, name, asked)
		case shareable(o.device):
			part = 0 // Without capacities, any number of claims can have it.
		}
		for kind, amount := range o.parts {
			if part*amount > 0 {
				d[dimension{of: o.driver, what: kind, capacity: string(name)}] = part * amount
			}
		}
	}
	return d
}

// consumption is the least part of a capacity that a share takes: what it asks for, else
// the policy's default, else all.
func consumption(device *resourceapi.Device, name resourceapi.QualifiedName, asked map[resourceapi.QualifiedName]resource.Quantity) float64 {
	capacity, has := device.Capacity[name]
	if !has || capacity.Value.IsZero() {
		return 0
	}
	amount, does := asked[name]
	switch {
	case does:
	case capacity.RequestPolicy != nil && capacity.RequestPolicy.Default != nil:
		amount = *capacity.RequestPolicy.Default
	case capacity.RequestPolicy != nil:
		return 0
	default:
		amount = capacity.Value
	}
	return min(1, ratio(amount, capacity.Value))
}

// ofClaim is what a claim takes at least of a node of an instance type, nil if it cannot
// be met there.
func (w *weigher) ofClaim(ctx context.Context, claim *resourceapi.ResourceClaim, it *InstanceType) demand {
	sum := demand{}
	for _, request := range claim.Spec.Devices.Requests {
		var d demand
		if request.Exactly != nil {
			d = w.ofRequest(ctx, wanted{
				request.Exactly.DeviceClassName, request.Exactly.Selectors, request.Exactly.AllocationMode, request.Exactly.Count,
				request.Exactly.Capacity, request.Exactly.AdminAccess != nil && *request.Exactly.AdminAccess,
			}, it)
		}
		for _, sub := range request.FirstAvailable {
			if alternative := w.ofRequest(ctx, wanted{sub.DeviceClassName, sub.Selectors, sub.AllocationMode, sub.Count, sub.Capacity, false}, it); alternative != nil {
				d = least(d, alternative)
			}
		}
		if d == nil {
			return nil
		}
		sum.add(d, 1)
	}
	return sum
}

// wanted is a request, or an alternative of one.
type wanted struct {
	class       string
	selectors   []resourceapi.DeviceSelector
	mode        resourceapi.DeviceAllocationMode
	count       int64
	capacity    *resourceapi.CapacityRequirements
	adminAccess bool
}

func (w *weigher) ofRequest(ctx context.Context, r wanted, it *InstanceType) demand {
	if r.adminAccess || w.class(r.class) == nil {
		return demand{}
	}
	for _, o := range w.elsewhere {
		if w.matches(ctx, r, o) {
			return demand{} // It may take nothing of the node.
		}
	}
	var asked map[resourceapi.QualifiedName]resource.Quantity
	if r.capacity != nil {
		asked = r.capacity.Requests
	}
	all, found := demand{}, demand(nil)
	for _, o := range w.offers[it.Name] {
		if w.matches(ctx, r, o) {
			d := w.demandOf(o, asked)
			all.add(d, 1)
			found = least(found, d)
		}
	}
	switch {
	case found == nil:
		return nil
	case r.mode == resourceapi.DeviceAllocationModeAll:
		return all
	}
	result := demand{}
	result.add(found, float64(r.count))
	return result
}

func (w *weigher) class(name string) *resourceapi.DeviceClass { return w.classes[name] }

// matches says whether the selectors of a class and of a request select a device. What
// cannot be told counts as selected, which can only lower a demand.
func (w *weigher) matches(ctx context.Context, r wanted, o offer) bool {
	for _, selector := range slices.Concat(w.class(r.class).Spec.Selectors, r.selectors) {
		if selector.CEL != nil && !w.selected(ctx, selector.CEL.Expression, o) {
			return false
		}
	}
	return true
}

func (w *weigher) selected(ctx context.Context, expression string, o offer) bool {
	key := matchKey{expression, o.content}
	if known, is := w.matched[key]; is {
		return known
	}
	program, is := w.compiled[expression]
	if !is {
		program = cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).CompileCELExpression(expression, cel.Options{})
		w.compiled[expression] = program
	}
	result := true
	if program.Error == nil {
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
			d[dimension{what: string(name)}] = ratio(request, total)
		}
	}
	return d
}
