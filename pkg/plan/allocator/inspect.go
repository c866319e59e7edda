package allocator

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"
	"k8s.io/utils/ptr"
)

// Alternative is what a target to which claims were committed may still become.
type Alternative struct {
	// InstanceType is empty for a node without one.
	InstanceType string
	// Requirements are the labels that it then has, beyond what the selectors of the
	// target ask for.
	Requirements []corev1.NodeSelectorRequirement
	// Claims are all that were placed on the target, in the order of commits, with the
	// devices that they have if the target becomes this.
	Claims []ClaimAllocation
}

// Alternatives tells what a target may still become, in the order of its instance types;
// nothing for a target to which nothing was committed.
func (a *Allocator) Alternatives(target string) []Alternative {
	a.mutex.RLock()
	defer a.mutex.RUnlock()
	t := a.targets[target]
	if t == nil {
		return nil
	}
	alternatives := make([]Alternative, len(t.alternatives))
	for i, of := range t.alternatives {
		alternatives[i] = Alternative{InstanceType: of.instanceType, Requirements: of.requirements, Claims: of.taken.allClaims()}
	}
	return alternatives
}

// PlacedOn tells the target on which a claim was placed in this loop.
func (a *Allocator) PlacedOn(claim types.NamespacedName) (target string, ok bool) {
	a.mutex.RLock()
	defer a.mutex.RUnlock()
	t, ok := a.placed[claim]
	if !ok {
		return "", false
	}
	return t.id, true
}

// UnusedDevice is a device, or what is left of one, that nothing holds.
type UnusedDevice struct {
	// Device is the device. The pool of a template without a pool name is empty.
	Device   schedulerapi.DeviceID
	Template bool
	// Capacity is what is left of a device that several claims can share, nil for other
	// devices.
	Capacity map[resourceapi.QualifiedName]resource.Quantity
}

// Unused lists what is left on a target, if it becomes an instance type, after all that
// was committed: the devices of its templates and of the pools that only its node
// reaches, in publishing order, each of which could still be allocated by itself. A GPU
// of which nothing is used is there together with all of its partitions; one of which a
// partition is used, no longer. If it depends on labels what is taken, the first placement
// counts. The name is empty for a node without an instance type.
// There is nothing for a target to which nothing was committed.
func (a *Allocator) Unused(target, instanceType string) []UnusedDevice {
	a.mutex.RLock()
	defer a.mutex.RUnlock()
	t := a.targets[target]
	if t == nil {
		return nil
	}
	alternatives := t.byType[instanceType]
	if len(alternatives) == 0 {
		return nil
	}
	var unused []UnusedDevice
	for _, stock := range a.stocks(t, alternatives[0]) {
		for _, claim := range alternatives[0].taken.allClaims() {
			for j := range claim.Devices {
				stock.take(&claim.Devices[j])
			}
		}
		unused = append(unused, stock.left()...)
	}
	return unused
}

// allClaims are those of all commits.
func (t *taken) allClaims() []ClaimAllocation {
	if t == nil {
		return nil
	}
	return slices.Concat(t.before.allClaims(), t.claims)
}

// stock is the devices of one pool and what is left of them.
type stock struct {
	template     bool
	driver, pool string
	devices      []*resourceapi.Device
	taken        map[string]bool
	consumed     map[string]map[resourceapi.QualifiedName]resource.Quantity
	// counters are what is left, by set and name.
	counters map[[2]string]*resource.Quantity
}

func newStock(template bool, driver, pool string) *stock {
	return &stock{
		template: template,
		driver:   driver,
		pool:     pool,
		taken:    make(map[string]bool),
		consumed: make(map[string]map[resourceapi.QualifiedName]resource.Quantity),
		counters: make(map[[2]string]*resource.Quantity),
	}
}

func (s *stock) add(devices []resourceapi.Device, sets []resourceapi.CounterSet) {
	for i := range devices {
		s.devices = append(s.devices, &devices[i])
	}
	for _, set := range sets {
		for name, counter := range set.Counters {
			s.counters[[2]string{set.Name, name}] = ptr.To(counter.Value.DeepCopy())
		}
	}
}

// take notes one device, or a share of it, that belongs to the pool.
func (s *stock) take(d *DeviceAllocation) {
	if d.AdminAccess || d.Template != s.template || d.Device.Driver.String() != s.driver || d.Device.Pool.String() != s.pool {
		return
	}
	s.takeNamed(d.Device.Device.String(), d.Consumed)
}

func (s *stock) takeNamed(name string, consumed map[resourceapi.QualifiedName]resource.Quantity) {
	i := slices.IndexFunc(s.devices, func(device *resourceapi.Device) bool { return device.Name == name })
	if i < 0 {
		return
	}
	device := s.devices[i]
	// The first share of a device consumes its counters, all of them, for all.
	if !s.taken[name] {
		s.taken[name] = true
		for _, counters := range device.ConsumesCounters {
			for counter, amount := range counters.Counters {
				if left := s.counters[[2]string{counters.CounterSet, counter}]; left != nil {
					left.Sub(amount.Value)
				}
			}
		}
	}
	if s.consumed[name] == nil {
		s.consumed[name] = make(map[resourceapi.QualifiedName]resource.Quantity)
	}
	for capacity, amount := range consumed {
		sum := s.consumed[name][capacity].DeepCopy()
		sum.Add(amount)
		s.consumed[name][capacity] = sum
	}
}

// left lists what could be allocated.
func (s *stock) left() []UnusedDevice {
	var unused []UnusedDevice
	for _, device := range s.devices {
		shareable := ptr.Deref(device.AllowMultipleAllocations, false)
		if s.taken[device.Name] && !shareable || !s.taken[device.Name] && !s.hasCounters(device) {
			continue
		}
		u := UnusedDevice{Device: schedulerapi.MakeDeviceID(s.driver, s.pool, device.Name), Template: s.template}
		if shareable {
			u.Capacity = make(map[resourceapi.QualifiedName]resource.Quantity, len(device.Capacity))
			something := len(device.Capacity) == 0
			for name, capacity := range device.Capacity {
				left := capacity.Value.DeepCopy()
				left.Sub(s.consumed[device.Name][name])
				u.Capacity[name] = left
				something = something || left.Sign() > 0
			}
			if !something {
				continue
			}
		}
		unused = append(unused, u)
	}
	return unused
}

// hasCounters says whether what a device consumes is left.
func (s *stock) hasCounters(device *resourceapi.Device) bool {
	for _, counters := range device.ConsumesCounters {
		for name, amount := range counters.Counters {
			if left := s.counters[[2]string{counters.CounterSet, name}]; left == nil || left.Cmp(amount.Value) < 0 {
				return false
			}
		}
	}
	return true
}

// stocks are the pools of an alternative that are its own, less what claims of the
// cluster hold.
func (a *Allocator) stocks(t *target, of *alternative) []*stock {
	var stocks []*stock
	state := a.options.Allocated
	if of.set != nil {
		for _, template := range of.set.templates {
			s := newStock(true, template.Driver, template.Pool)
			for _, slice := range template.Slices {
				s.add(slice.Devices, slice.SharedCounters)
			}
			stocks = append(stocks, s)
		}
		if t.node == nil {
			return stocks
		}
		held := a.heldState(t.node, of.set)
		if held == nil {
			return stocks
		}
		state = *held
	} else if t.node != nil {
		stocks = a.localStocks(t.node.Name)
	}
	for _, s := range stocks {
		s.takeAllocated(state)
	}
	return stocks
}

// takeAllocated notes what claims of the cluster hold.
func (s *stock) takeAllocated(state schedulerapi.AllocatedState) {
	for _, device := range s.devices {
		id := schedulerapi.MakeDeviceID(s.driver, s.pool, device.Name)
		consumed := make(map[resourceapi.QualifiedName]resource.Quantity)
		for name, amount := range state.AggregatedCapacity[id] {
			consumed[name] = amount.DeepCopy()
		}
		if state.AllocatedDevices.Has(id) || len(consumed) > 0 {
			s.takeNamed(device.Name, consumed)
		}
	}
}

// localStocks are the pools that only one node reaches, in the order of their names, with
// the slices of the newest generation in the order of theirs.
func (a *Allocator) localStocks(node string) []*stock {
	pools := make(map[poolKey][]*resourceapi.ResourceSlice)
	for _, slice := range a.options.Slices {
		key := poolKey{driver: slice.Spec.Driver, pool: slice.Spec.Pool.Name}
		if a.local[key] != node || node == "" {
			continue
		}
		if of := pools[key]; len(of) > 0 && of[0].Spec.Pool.Generation != slice.Spec.Pool.Generation {
			if of[0].Spec.Pool.Generation > slice.Spec.Pool.Generation {
				continue
			}
			pools[key] = nil
		}
		pools[key] = append(pools[key], slice)
	}
	var stocks []*stock
	for _, key := range slices.SortedFunc(maps.Keys(pools), func(x, y poolKey) int {
		return cmp.Or(cmp.Compare(x.driver, y.driver), cmp.Compare(x.pool, y.pool))
	}) {
		s := newStock(false, key.driver, key.pool)
		slices.SortFunc(pools[key], func(x, y *resourceapi.ResourceSlice) int { return cmp.Compare(x.Name, y.Name) })
		for _, slice := range pools[key] {
			s.add(slice.Spec.Devices, slice.Spec.SharedCounters)
		}
		stocks = append(stocks, s)
	}
	return stocks
}
