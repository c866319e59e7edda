package simulate

import (
	"cmp"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"
)

// stock is what a node has of devices, in units that do not overlap: a unit is all
// devices that consume one counter set, such as a GPU with its partitions, or one device
// that consumes none.
type stock struct {
	units []*unit
	// byDevice finds the unit of a device. The pool of a template without a name is empty.
	byDevice map[schedulerapi.DeviceID]*unit
}

// unit is a physical device.
type unit struct {
	driver   string
	counters map[string]resourceapi.Counter
	devices  []*resourceapi.Device
	ids      []schedulerapi.DeviceID
}

// taken is a device, or a share of it, that somebody has.
type taken struct {
	id schedulerapi.DeviceID
	// consumed is nil for an exclusive device.
	consumed map[resourceapi.QualifiedName]resource.Quantity
}

// poolSlice is a slice, published or of a template.
type poolSlice struct {
	driver, pool string
	devices      []resourceapi.Device
	counters     []resourceapi.CounterSet
}

func newStock(slices []poolSlice) *stock {
	s := &stock{byDevice: map[schedulerapi.DeviceID]*unit{}}
	type setName struct{ driver, pool, set string }
	sets := map[setName]*unit{}
	for _, slice := range slices {
		for _, set := range slice.counters {
			sets[setName{slice.driver, slice.pool, set.Name}] = &unit{driver: slice.driver, counters: set.Counters}
		}
	}
	for _, slice := range slices {
		for i := range slice.devices {
			device := &slice.devices[i]
			var u *unit
			if len(device.ConsumesCounters) > 0 {
				u = sets[setName{slice.driver, slice.pool, device.ConsumesCounters[0].CounterSet}]
			}
			if u == nil {
				u = &unit{driver: slice.driver}
			}
			if len(u.devices) == 0 {
				s.units = append(s.units, u)
			}
			id := schedulerapi.MakeDeviceID(slice.driver, slice.pool, device.Name)
			u.devices, u.ids = append(u.devices, device), append(u.ids, id)
			s.byDevice[id] = u
		}
	}
	return s
}

// stockOfType is what a node of an instance type will have.
func stockOfType(it *InstanceType) *stock { return newStock(templateSlices(it)) }

func templateSlices(it *InstanceType) []poolSlice {
	var all []poolSlice
	for _, template := range it.Templates {
		for _, slice := range template.Slices {
			all = append(all, poolSlice{template.Driver, template.Pool, slice.Devices, slice.SharedCounters})
		}
	}
	return all
}

// stockOfCluster is what slices publish, in the newest generation of each pool.
func stockOfCluster(published []*resourceapi.ResourceSlice) *stock {
	type poolName struct{ driver, pool string }
	newest := map[poolName]int64{}
	for _, slice := range published {
		name := poolName{slice.Spec.Driver, slice.Spec.Pool.Name}
		newest[name] = max(newest[name], slice.Spec.Pool.Generation)
	}
	var all []poolSlice
	for _, slice := range published {
		if slice.Spec.Pool.Generation == newest[poolName{slice.Spec.Driver, slice.Spec.Pool.Name}] {
			all = append(all, poolSlice{slice.Spec.Driver, slice.Spec.Pool.Name, slice.Spec.Devices, slice.Spec.SharedCounters})
		}
	}
	return newStock(all)
}

// whole is the device of a unit that is all of it: the one with the most memory, and of
// these the one that consumes most.
func (u *unit) whole() *resourceapi.Device {
	return slices.MaxFunc(u.devices, func(a, b *resourceapi.Device) int {
		return cmp.Or(cmp.Compare(u.memory(a), u.memory(b)), cmp.Compare(u.size(a), u.size(b)))
	})
}

// memory is a device's capacity of that name in bytes, 0 if it has none.
func (u *unit) memory(device *resourceapi.Device) float64 {
	_, capacity := memoryOf(u.driver, device)
	return capacity.Value.AsApproximateFloat64()
}

// memoryOf is a device's capacity "memory" and its name as the device writes it; nothing
// if it has none.
func memoryOf(driver string, device *resourceapi.Device) (resourceapi.QualifiedName, resourceapi.DeviceCapacity) {
	for _, name := range []resourceapi.QualifiedName{"memory", resourceapi.QualifiedName(driver + "/memory")} {
		if capacity, has := device.Capacity[name]; has {
			return name, capacity
		}
	}
	return "", resourceapi.DeviceCapacity{}
}

// size is how much of a unit a device is, up to 1: its part of the counters on average.
func (u *unit) size(device *resourceapi.Device) float64 {
	if len(u.counters) == 0 {
		return 1
	}
	sum := 0.0
	for _, consumption := range device.ConsumesCounters[:1] {
		for name, counter := range consumption.Counters {
			sum += ratio(counter.Value, u.counters[name].Value)
		}
	}
	return sum / float64(len(u.counters))
}

func ratio(part, whole resource.Quantity) float64 {
	if whole.IsZero() {
		return 0
	}
	return part.AsApproximateFloat64() / whole.AsApproximateFloat64()
}

// holdings are what is taken of each unit, by device: the sum of shares, nil for an
// exclusive device.
type holdings map[*unit]map[schedulerapi.DeviceID]map[resourceapi.QualifiedName]resource.Quantity

func (s *stock) hold(all []taken) holdings {
	h := holdings{}
	for _, t := range all {
		u := s.byDevice[t.id]
		if u == nil {
			continue
		}
		if h[u] == nil {
			h[u] = map[schedulerapi.DeviceID]map[resourceapi.QualifiedName]resource.Quantity{}
		}
		consumed := h[u][t.id]
		if t.consumed != nil {
			consumed = plus(consumed, t.consumed)
		}
		h[u][t.id] = consumed
	}
	return h
}

// memory is the sum of the memory of all units in bytes, which tells small GPUs from
// large ones.
func (s *stock) memory() float64 {
	sum := 0.0
	for _, u := range s.units {
		sum += u.memory(u.whole())
	}
	return sum
}

// left is how many units are left, where one that is used in part counts in part.
func (s *stock) left(h holdings) float64 {
	sum := 0.0
	for _, u := range s.units {
		used := 0.0
		for i, device := range u.devices {
			consumed, is := h[u][u.ids[i]]
			if !is {
				continue
			}
			part := 1.0
			if consumed != nil {
				part = share(device, consumed)
			}
			used += part * u.size(device)
		}
		sum += max(0, 1-used)
	}
	return sum
}

// share is the part of a device that is consumed: that of its scarcest capacity.
func share(device *resourceapi.Device, consumed map[resourceapi.QualifiedName]resource.Quantity) float64 {
	most := 0.0
	for name, amount := range consumed {
		most = max(most, ratio(amount, device.Capacity[name].Value))
	}
	return min(1, most)
}

// kindAttributes say what a device is, the first that a device has.
var kindAttributes = []string{"profile", "productName", "model", "type"}

// kindOf says in a word or two what a device is.
func kindOf(driver string, device *resourceapi.Device) string {
	for _, name := range kindAttributes {
		for _, qualified := range []string{name, driver + "/" + name} {
			if value := device.Attributes[resourceapi.QualifiedName(qualified)].StringValue; value != nil && *value != "" {
				return *value
			}
		}
	}
	return "device of " + driver
}

// find gives a device with its driver by its name, nil if it is not of this stock.
func (s *stock) find(id schedulerapi.DeviceID) *resourceapi.Device {
	u := s.byDevice[id]
	if u == nil {
		return nil
	}
	return u.devices[slices.Index(u.ids, id)]
}

// unused says what nobody has.
func (s *stock) unused(h holdings) Unused {
	var result Unused
	for _, u := range s.units {
		kind := kindOf(u.driver, u.whole())
		if len(h[u]) > 0 {
			result.Parts = append(result.Parts, u.parts(h[u])...)
			continue
		}
		i := slices.IndexFunc(result.Devices, func(d UnusedDevices) bool { return d.Kind == kind })
		if i < 0 {
			i = len(result.Devices)
			result.Devices = append(result.Devices, UnusedDevices{Kind: kind})
		}
		result.Devices[i].Count++
	}
	return result
}

// parts are what is left of a unit of which something is taken: of each shared device
// what further shares may take, and the largest of the devices beside those taken.
func (u *unit) parts(h map[schedulerapi.DeviceID]map[resourceapi.QualifiedName]resource.Quantity) []UnusedPart {
	var parts []UnusedPart
	left := maps.Clone(u.counters)
	name := u.whole().Name
	for i, device := range u.devices {
		consumed, is := h[u.ids[i]]
		if !is {
			continue
		}
		subtract(left, device)
		if capacity := leftOf(device, consumed); capacity != nil {
			parts = append(parts, UnusedPart{Kind: kindOf(u.driver, device), Device: device.Name, Capacity: capacity})
		}
	}
	var largest *resourceapi.Device
	for i, device := range u.devices {
		if _, is := h[u.ids[i]]; is || !fits(left, device) {
			continue
		}
		if largest == nil || u.size(device) > u.size(largest) {
			largest = device
		}
	}
	if largest != nil {
		parts = append(parts, UnusedPart{Kind: kindOf(u.driver, u.whole()), Device: name, Largest: kindOf(u.driver, largest)})
	}
	return parts
}

// leftOf is what further shares may take of a device; nil for none, also if one capacity
// of it is used up.
func leftOf(device *resourceapi.Device, consumed map[resourceapi.QualifiedName]resource.Quantity) map[resourceapi.QualifiedName]resource.Quantity {
	if consumed == nil {
		return nil
	}
	result := map[resourceapi.QualifiedName]resource.Quantity{}
	for name, capacity := range device.Capacity {
		if capacity.Value.IsZero() {
			continue
		}
		left := capacity.Value.DeepCopy()
		left.Sub(consumed[name])
		if left.Sign() <= 0 {
			return nil
		}
		if used := consumed[name]; !used.IsZero() {
			result[name] = left
		}
	}
	return result
}

func subtract(left map[string]resourceapi.Counter, device *resourceapi.Device) {
	for _, consumption := range device.ConsumesCounters[:min(1, len(device.ConsumesCounters))] {
		for name, counter := range consumption.Counters {
			value := left[name].Value.DeepCopy()
			value.Sub(counter.Value)
			left[name] = resourceapi.Counter{Value: value}
		}
	}
}

// fits says whether a device can be had of the counters that are left. One without
// counters is taken or it is not.
func fits(left map[string]resourceapi.Counter, device *resourceapi.Device) bool {
	for _, consumption := range device.ConsumesCounters[:min(1, len(device.ConsumesCounters))] {
		for name, counter := range consumption.Counters {
			value := left[name].Value
			if value.Cmp(counter.Value) < 0 {
				return false
			}
		}
	}
	return true
}
