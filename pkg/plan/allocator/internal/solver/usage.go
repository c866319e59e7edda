package solver

import (
	"maps"

	resourceapi "k8s.io/api/resource/v1"
	draapi "k8s.io/dynamic-resource-allocation/api"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"
)

// Usage is what is taken: exclusive devices, shares of devices, counters. It is
// immutable. A nil Usage is empty.
//
// Counters of devices are not stored: a device in use takes of its pool's counters what
// the pool says at the time it is looked at, as for kube-scheduler. Only [Worst] fixes
// amounts.
type Usage struct {
	// leaves are added up. The sizes of those behind the first shrink by half or more,
	// so there are few.
	leaves []usageLeaf
}

// usageLeaf is a part of a usage, by pool.
type usageLeaf map[poolID]*poolUsage

type poolUsage struct {
	devices map[draapi.UniqueString]deviceUsage
	// counters are amounts that are taken beside those of charged devices.
	counters map[counterName]amount
}

type counterName struct{ set, name string }

type deviceUsage struct {
	// exclusive devices are taken. Of shared ones, there is a share.
	exclusive, shared bool
	// charged says that what the device consumes of its pool's counters is taken.
	charged  bool
	consumed map[resourceapi.QualifiedName]amount
	// device is nil if it is known by name only.
	device *Device
}

// NewUsage reads what kube-scheduler gathers from the status of claims.
func NewUsage(allocated schedulerapi.AllocatedState) *Usage {
	leaf := make(usageLeaf)
	for id := range allocated.AllocatedDevices {
		leaf.add(id, deviceUsage{exclusive: true, charged: true})
	}
	for id := range allocated.AllocatedSharedDeviceIDs {
		leaf.add(id.GetDeviceID(), deviceUsage{shared: true, charged: true})
	}
	for id, consumed := range allocated.AggregatedCapacity {
		amounts := make(map[resourceapi.QualifiedName]amount, len(consumed))
		for name, q := range consumed {
			if q != nil {
				amounts[name] = newAmount(*q)
			}
		}
		leaf.add(id, deviceUsage{shared: true, charged: true, consumed: amounts})
	}
	return (*Usage)(nil).plus(leaf)
}

// With adds what was chosen. Admin access takes nothing.
func (u *Usage) With(choices []Choice) *Usage {
	leaf := make(usageLeaf)
	for _, c := range choices {
		if c.AdminAccess {
			continue
		}
		use := deviceUsage{exclusive: !c.Device.shared, shared: c.Device.shared, charged: true, device: c.Device}
		if use.shared && len(c.Consumed) > 0 {
			use.consumed = make(map[resourceapi.QualifiedName]amount, len(c.Consumed))
			for name, q := range c.Consumed {
				use.consumed[name] = newAmount(q)
			}
		}
		leaf.add(c.Device.ID, use)
	}
	return u.plus(leaf)
}

// Sum adds up usages. Amounts that are part of several count several times, devices
// and what these charge to counters once.
func Sum(usages ...*Usage) *Usage {
	result := &Usage{}
	for _, u := range usages {
		if u == nil {
			continue
		}
		for _, leaf := range u.leaves {
			result = result.plus(leaf)
		}
	}
	return result
}

// plus adds a leaf, and merges it with those before it that are not much larger.
func (u *Usage) plus(leaf usageLeaf) *Usage {
	var leaves []usageLeaf
	if u != nil {
		leaves = u.leaves
	}
	if len(leaf) == 0 {
		return &Usage{leaves: leaves}
	}
	n := len(leaves)
	for n > 0 && len(leaves[n-1]) < 2*len(leaf) {
		leaf = mergeLeaves(leaves[n-1], leaf)
		n--
	}
	return &Usage{leaves: append(leaves[:n:n], leaf)}
}

// pool is what is taken of a pool, nil if nothing is.
func (u *Usage) pool(id poolID) *poolUsage {
	if u == nil {
		return nil
	}
	var result *poolUsage
	for _, leaf := range u.leaves {
		switch part := leaf[id]; {
		case part == nil:
		case result == nil:
			result = part
		default:
			result = result.plus(part)
		}
	}
	return result
}

func (l usageLeaf) add(id schedulerapi.DeviceID, use deviceUsage) {
	key := poolID{driver: id.Driver, name: id.Pool}
	p := l[key]
	if p == nil {
		p = &poolUsage{devices: make(map[draapi.UniqueString]deviceUsage)}
		l[key] = p
	}
	p.devices[id.Device] = p.devices[id.Device].plus(use)
}

func mergeLeaves(a, b usageLeaf) usageLeaf {
	result := maps.Clone(a)
	for id, part := range b {
		if former := result[id]; former != nil {
			part = former.plus(part)
		}
		result[id] = part
	}
	return result
}

func (p *poolUsage) plus(other *poolUsage) *poolUsage {
	result := &poolUsage{devices: maps.Clone(p.devices), counters: addAmounts(p.counters, other.counters)}
	for name, use := range other.devices {
		result.devices[name] = result.devices[name].plus(use)
	}
	return result
}

func (d deviceUsage) plus(other deviceUsage) deviceUsage {
	result := deviceUsage{
		exclusive: d.exclusive || other.exclusive,
		shared:    d.shared || other.shared,
		charged:   d.charged || other.charged,
		consumed:  addAmounts(d.consumed, other.consumed),
		device:    d.device,
	}
	if result.device == nil {
		result.device = other.device
	}
	return result
}

// addAmounts adds up amounts by name, and changes neither argument.
func addAmounts[K comparable](a, b map[K]amount) map[K]amount {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	result := maps.Clone(a)
	for name, v := range b {
		result[name] = result[name].plus(v)
	}
	return result
}

// Worst is enough for each of several usages of which only one will be real: it has the
// devices of all, and of each capacity and counter the most that one of them takes.
func Worst(usages ...*Usage) *Usage {
	switch len(usages) {
	case 0:
		return &Usage{}
	case 1:
		return Sum(usages[0])
	}
	alternatives := make([]usageLeaf, len(usages))
	ids := make(map[poolID]bool)
	for i, u := range usages {
		alternatives[i] = make(usageLeaf)
		if u == nil {
			continue
		}
		for _, leaf := range u.leaves {
			alternatives[i] = mergeLeaves(alternatives[i], leaf)
		}
		for id := range alternatives[i] {
			ids[id] = true
		}
	}
	leaf := make(usageLeaf, len(ids))
	for id := range ids {
		parts := make([]*poolUsage, len(alternatives))
		for i, alternative := range alternatives {
			if parts[i] = alternative[id]; parts[i] == nil {
				parts[i] = &poolUsage{}
			}
		}
		leaf[id] = worstOf(parts)
	}
	return (*Usage)(nil).plus(leaf)
}

func worstOf(parts []*poolUsage) *poolUsage {
	result := &poolUsage{devices: make(map[draapi.UniqueString]deviceUsage), counters: make(map[counterName]amount)}
	for _, part := range parts {
		for name := range part.devices {
			if _, ok := result.devices[name]; !ok {
				result.devices[name] = worstUse(parts, name)
			}
		}
	}
	for _, part := range parts {
		for name, taken := range part.charges(result) {
			if result.counters[name].less(taken) {
				result.counters[name] = taken
			}
		}
	}
	return result
}

// worstUse is what is taken of one device. Its counters are charged if all
// alternatives charge them: then each pays for them whatever else it takes. If only
// some do, the amounts are part of the counters' maximum, and another share has to pay
// for them once more, since the alternative that becomes real may be one that did not.
func worstUse(parts []*poolUsage, name draapi.UniqueString) deviceUsage {
	result := deviceUsage{charged: true}
	unknown := false
	for _, part := range parts {
		use := part.devices[name]
		result.exclusive = result.exclusive || use.exclusive
		result.shared = result.shared || use.shared
		result.charged = result.charged && use.charged
		if result.device == nil {
			result.device = use.device
		}
		unknown = unknown || use.charged && use.device == nil
		for capacity, taken := range use.consumed {
			if result.consumed == nil {
				result.consumed = make(map[resourceapi.QualifiedName]amount)
			}
			if result.consumed[capacity].less(taken) {
				result.consumed[capacity] = taken
			}
		}
	}
	// What a device charges that is known by name only cannot be told here.
	result.charged = result.charged || unknown
	return result
}

// charges are the amounts that a part takes of counters beside what is charged to
// devices in the result already.
func (p *poolUsage) charges(result *poolUsage) map[counterName]amount {
	total := maps.Clone(p.counters)
	if total == nil {
		total = make(map[counterName]amount)
	}
	for name, use := range p.devices {
		if !use.charged || use.device == nil || result.devices[name].charged {
			continue
		}
		for _, c := range use.device.charges {
			counter := use.device.pool.counters[c.counter]
			key := counterName{set: counter.set, name: counter.name}
			total[key] = total[key].plus(c.amount)
		}
	}
	return total
}
