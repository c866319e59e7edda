package solver_test

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"
)

// rulePool is what a node reaches of a pool, at the newest generation of that.
type rulePool struct {
	name    string
	usable  bool // complete and valid
	reached bool // the node reaches all of the pool's slices
	devices []*publishedDevice
	sets    map[string]resourceapi.CounterSet
	// all are the pool's devices for any node: these consume counters, too.
	all []*publishedDevice
}

// publishedDevice is a device as a slice has it.
type publishedDevice struct {
	resourceapi.Device
	id     schedulerapi.DeviceID
	driver string
	pool   *rulePool
}

func (d *publishedDevice) shared() bool {
	return d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
}

// gather finds the pools that the node reaches.
func (k *ruleCheck) gather(node *corev1.Node) {
	type key struct{ driver, pool string }
	newest, anywhere := map[key]int64{}, map[key]int64{}
	for _, slice := range k.c.Slices {
		id := key{slice.Spec.Driver, slice.Spec.Pool.Name}
		anywhere[id] = max(anywhere[id], slice.Spec.Pool.Generation)
		if grouped(slice) {
			continue
		}
		if reaches(slice, node) && slice.Spec.Pool.Generation > newest[id] {
			newest[id] = slice.Spec.Pool.Generation
		}
	}
	k.devices = map[schedulerapi.DeviceID]*publishedDevice{}
	pools := map[key]*rulePool{}
	for id, generation := range newest {
		var current []*resourceapi.ResourceSlice
		for _, slice := range k.c.Slices {
			if slice.Spec.Driver == id.driver && slice.Spec.Pool.Name == id.pool && slice.Spec.Pool.Generation == generation && !grouped(slice) {
				current = append(current, slice)
			}
		}
		pool := newRulePool(id.driver+"/"+id.pool, current, node)
		if anywhere[id] > generation && !pool.reached {
			continue // the driver is taking the pool away from this node
		}
		pools[id] = pool
	}
	for _, p := range pools {
		k.pools = append(k.pools, p)
		for _, d := range p.devices {
			if p.usable {
				k.devices[d.id] = d
			}
		}
	}
}

// grouped says whether devices of a slice have compatibility groups. These are alpha: a
// slice with them counts as not there.
func grouped(slice *resourceapi.ResourceSlice) bool {
	return slices.ContainsFunc(slice.Spec.Devices, func(device resourceapi.Device) bool {
		return slices.ContainsFunc(device.ConsumesCounters, func(c resourceapi.DeviceCounterConsumption) bool {
			return len(c.CompatibilityGroups) > 0
		})
	})
}

func newRulePool(name string, current []*resourceapi.ResourceSlice, node *corev1.Node) *rulePool {
	p := &rulePool{name: name, sets: map[string]resourceapi.CounterSet{}}
	// Slices that disagree on how many there are prove nothing: one is believed. And if
	// there are more than they say, those that the node reaches may be the right ones.
	var reached int64
	for _, slice := range current {
		if reaches(slice, node) {
			reached++
		}
	}
	for _, slice := range current {
		count := slice.Spec.Pool.ResourceSliceCount
		p.reached = p.reached || count == reached
		p.usable = p.usable || count == reached || count == int64(len(current))
	}
	names := map[string]bool{}
	for _, slice := range current {
		if p.reached && !reaches(slice, node) {
			continue // the pool is whole without it
		}
		for _, set := range slice.Spec.SharedCounters {
			if _, found := p.sets[set.Name]; found {
				p.usable = false
			}
			p.sets[set.Name] = set
		}
		for i := range slice.Spec.Devices {
			d := &publishedDevice{Device: slice.Spec.Devices[i], driver: slice.Spec.Driver, pool: p}
			d.id = schedulerapi.MakeDeviceID(slice.Spec.Driver, slice.Spec.Pool.Name, d.Name)
			p.all = append(p.all, d)
			if reaches(slice, node) {
				if names[d.Name] {
					p.usable = false
				}
				names[d.Name] = true
			}
			if reachesDevice(slice, d.Device, node) {
				p.devices = append(p.devices, d)
			}
		}
	}
	for _, d := range p.all {
		for _, consumption := range d.ConsumesCounters {
			for counter := range consumption.Counters {
				if _, found := p.sets[consumption.CounterSet].Counters[counter]; !found {
					p.usable = false
				}
			}
		}
	}
	return p
}

func reaches(slice *resourceapi.ResourceSlice, node *corev1.Node) bool {
	spec := slice.Spec
	if spec.PerDeviceNodeSelection != nil && *spec.PerDeviceNodeSelection {
		return slices.ContainsFunc(spec.Devices, func(device resourceapi.Device) bool {
			return selects(device.NodeName, device.AllNodes, device.NodeSelector, node)
		})
	}
	return selects(spec.NodeName, spec.AllNodes, spec.NodeSelector, node)
}

func reachesDevice(slice *resourceapi.ResourceSlice, device resourceapi.Device, node *corev1.Node) bool {
	if slice.Spec.PerDeviceNodeSelection != nil && *slice.Spec.PerDeviceNodeSelection {
		return selects(device.NodeName, device.AllNodes, device.NodeSelector, node)
	}
	return reaches(slice, node)
}

func selects(nodeName *string, allNodes *bool, selector *corev1.NodeSelector, node *corev1.Node) bool {
	switch {
	case nodeName != nil:
		return *nodeName == node.Name
	case allNodes != nil:
		return *allNodes
	case selector == nil:
		return false
	}
	return slices.ContainsFunc(selector.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		for _, r := range term.MatchExpressions {
			value, found := node.Labels[r.Key]
			if !holds(r, value, found) {
				return false
			}
		}
		for _, r := range term.MatchFields {
			if r.Key != "metadata.name" || !holds(r, node.Name, true) {
				return false
			}
		}
		return len(term.MatchExpressions)+len(term.MatchFields) > 0
	})
}

func holds(r corev1.NodeSelectorRequirement, value string, found bool) bool {
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return found && slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpNotIn:
		return !found || !slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpExists:
		return found
	case corev1.NodeSelectorOpDoesNotExist:
		return !found
	}
	have, err := strconv.Atoi(value)
	if !found || err != nil || len(r.Values) != 1 {
		return false
	}
	limit, err := strconv.Atoi(r.Values[0])
	if err != nil {
		return false
	}
	return r.Operator == corev1.NodeSelectorOpGt && have > limit || r.Operator == corev1.NodeSelectorOpLt && have < limit
}

// attribute returns the value of an attribute with its kind as a text, empty if the
// device has none of that name. A name without domain is the driver's.
func (d *publishedDevice) attribute(name resourceapi.FullyQualifiedName) string {
	value, found := d.Attributes[resourceapi.QualifiedName(name)]
	if !found {
		short, own := strings.CutPrefix(string(name), d.driver+"/")
		if !own {
			return ""
		}
		value, found = d.Attributes[resourceapi.QualifiedName(short)]
	}
	if !found {
		return ""
	}
	return describe(value)
}
