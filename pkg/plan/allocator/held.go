package allocator

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/plan/allocator/internal/solver"
)

// A node that is not initialized may have published devices already, and claims may hold
// some of them. Its templates stand for all of its devices, but the names that it
// published are not theirs. Which of a template's devices is held is told, in this order:
//
//  1. by the name, if the template has it;
//  2. by the content, if the device's slice is among [Options.Uninitialized]: the first
//     device that has the same capacities and consumes the same counters, and whose
//     attributes the held one has, too;
//  3. otherwise the device that consumes most of the node's counters, the first of
//     equals. So an unknown partition counts as a whole GPU: the plan may ask for more
//     than needed, and never promises what is not there.
//
// Shares are looked for among devices that allow several allocations, if there are any.

// heldPool is what claims hold of one pool, by device.
type heldPool struct {
	exclusive, shared []string
}

// heldIndex sorts what is allocated in the cluster by pool.
func heldIndex(state schedulerapi.AllocatedState) map[poolKey]*heldPool {
	index := make(map[poolKey]*heldPool)
	pool := func(id schedulerapi.DeviceID) *heldPool {
		key := poolKey{driver: id.Driver.String(), pool: id.Pool.String()}
		if index[key] == nil {
			index[key] = &heldPool{}
		}
		return index[key]
	}
	for id := range state.AllocatedDevices {
		p := pool(id)
		p.exclusive = append(p.exclusive, id.Device.String())
	}
	for id := range state.AllocatedSharedDeviceIDs {
		p := pool(id.GetDeviceID())
		p.shared = append(p.shared, id.Device.String())
	}
	for _, p := range index {
		slices.Sort(p.exclusive)
		slices.Sort(p.shared)
		p.shared = slices.Compact(p.shared)
	}
	return index
}

// publishedIndex has the devices of slices by pool and name.
func publishedIndex(resourceSlices []*resourceapi.ResourceSlice) map[schedulerapi.DeviceID]*resourceapi.Device {
	index := make(map[schedulerapi.DeviceID]*resourceapi.Device)
	for _, slice := range resourceSlices {
		for i := range slice.Spec.Devices {
			device := &slice.Spec.Devices[i]
			index[schedulerapi.MakeDeviceID(slice.Spec.Driver, slice.Spec.Pool.Name, device.Name)] = device
		}
	}
	return index
}

// holdings are made once, when the first node that is not initialized is asked for.
type holdings struct {
	once      sync.Once
	held      map[poolKey]*heldPool
	published map[schedulerapi.DeviceID]*resourceapi.Device
}

// held is the usage of what claims in the cluster hold of the devices of templates on a
// node; nil if they hold none, as on a node that does not exist yet.
func (a *Allocator) held(node *corev1.Node, set *templateSet) *solver.Usage {
	if node == nil {
		return nil
	}
	a.holdings.once.Do(func() {
		a.holdings.held = heldIndex(a.options.Allocated)
		a.holdings.published = publishedIndex(a.options.Uninitialized)
	})
	state, any := Allocated(nil, nil), false
	for i := range set.templates {
		t := &set.templates[i]
		key := poolKey{driver: t.Driver, pool: cmp.Or(t.Pool, node.Name)}
		if held := a.holdings.held[key]; held != nil {
			any = true
			a.holdTemplate(&state, t, key, held)
		}
	}
	if !any {
		return nil
	}
	return solver.NewUsage(state)
}

// holdTemplate adds what is held of one template.
func (a *Allocator) holdTemplate(state *schedulerapi.AllocatedState, t *Template, key poolKey, held *heldPool) {
	m := &matching{assigned: make(map[string]*resourceapi.Device), taken: sets.New[string]()}
	for _, slice := range t.Slices {
		for i := range slice.Devices {
			m.devices = append(m.devices, &slice.Devices[i])
		}
	}
	published := func(name string) *resourceapi.Device {
		return a.holdings.published[schedulerapi.MakeDeviceID(key.driver, key.pool, name)]
	}
	shared := sets.New(held.shared...)
	all := slices.Concat(held.exclusive, held.shared)
	for _, name := range all {
		m.assign(name, func(d *resourceapi.Device) bool { return d.Name == name })
	}
	for _, name := range all {
		if real := published(name); real != nil {
			m.assign(name, func(d *resourceapi.Device) bool { return resembles(d, real) })
		}
	}
	for _, name := range all {
		m.assignLargest(name, shared.Has(name))
	}
	for _, name := range held.exclusive {
		if d := m.assigned[name]; d != nil {
			state.AllocatedDevices.Insert(schedulerapi.MakeDeviceID(t.Driver, t.Pool, d.Name))
		}
	}
	for _, name := range held.shared {
		if d := m.assigned[name]; d != nil {
			a.holdShare(state, schedulerapi.MakeDeviceID(key.driver, key.pool, name), schedulerapi.MakeDeviceID(t.Driver, t.Pool, d.Name))
		}
	}
}

// holdShare adds all shares of a device to the template's.
func (a *Allocator) holdShare(state *schedulerapi.AllocatedState, from, to schedulerapi.DeviceID) {
	state.AllocatedSharedDeviceIDs.Insert(schedulerapi.MakeSharedDeviceID(to, nil))
	if consumed, ok := a.options.Allocated.AggregatedCapacity[from]; ok {
		state.AggregatedCapacity.Insert(schedulerapi.DeviceConsumedCapacity{DeviceID: to, ConsumedCapacity: consumed})
	}
}

// matching finds a template's device for each held one.
type matching struct {
	devices  []*resourceapi.Device
	assigned map[string]*resourceapi.Device
	taken    sets.Set[string]
}

// assign takes the first free device that will do, if the held one has none yet.
func (m *matching) assign(held string, good func(*resourceapi.Device) bool) {
	if m.assigned[held] != nil {
		return
	}
	for _, d := range m.devices {
		if !m.taken.Has(d.Name) && good(d) {
			m.assigned[held] = d
			m.taken.Insert(d.Name)
			return
		}
	}
}

// assignLargest takes the device that consumes most.
func (m *matching) assignLargest(held string, shared bool) {
	for _, onlyShareable := range []bool{shared, false} {
		var largest *resourceapi.Device
		for _, d := range m.devices {
			if m.taken.Has(d.Name) || onlyShareable && !ptr.Deref(d.AllowMultipleAllocations, false) {
				continue
			}
			if largest == nil || consumption(d) > consumption(largest) {
				largest = d
			}
		}
		m.assign(held, func(d *resourceapi.Device) bool { return d == largest })
	}
}

// consumption is the sum of what a device takes of counters, of whatever kind.
func consumption(d *resourceapi.Device) float64 {
	var sum float64
	for _, counters := range d.ConsumesCounters {
		for _, counter := range counters.Counters {
			sum += counter.Value.AsApproximateFloat64()
		}
	}
	return sum
}

// resembles says whether a published device may be what a template's device stood for.
func resembles(template, published *resourceapi.Device) bool {
	for name, value := range template.Attributes {
		if other, ok := published.Attributes[name]; !ok || !equality.Semantic.DeepEqual(value, other) {
			return false
		}
	}
	return ptr.Deref(template.AllowMultipleAllocations, false) == ptr.Deref(published.AllowMultipleAllocations, false) &&
		maps.EqualFunc(template.Capacity, published.Capacity, func(a, b resourceapi.DeviceCapacity) bool { return a.Value.Cmp(b.Value) == 0 }) &&
		slices.Equal(counterTexts(template), counterTexts(published))
}

// counterTexts lists what a device consumes without the names of counter sets, which may
// be made of a serial number.
func counterTexts(d *resourceapi.Device) []string {
	var words []string
	for _, counters := range d.ConsumesCounters {
		for name, counter := range counters.Counters {
			value := counter.Value.DeepCopy()
			words = append(words, name+"="+value.String())
		}
	}
	slices.Sort(words)
	return words
}
