package solver

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	resourceapi "k8s.io/api/resource/v1"
	draapi "k8s.io/dynamic-resource-allocation/api"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"
)

// poolID names a pool. Pools of different drivers may have the same name.
type poolID struct {
	driver, name draapi.UniqueString
}

func (id poolID) String() string { return id.driver.String() + "/" + id.name.String() }

// pool is a pool as one node sees it. It is immutable but for what it remembers. Its
// devices are read when they are first needed: see [pool.ready].
type pool struct {
	id       poolID
	template bool
	// incomplete pools, of which slices are missing, have no devices.
	incomplete bool
	// late pools have devices with binding conditions and are tried last.
	late bool
	// size is the number of devices, or less if the pool is invalid.
	size int
	// shape is equal for templates that differ in names only, and is one of its own for
	// each pool of the cluster.
	shape shapeID

	once   sync.Once
	cache  *Cache
	source poolSource

	// The rest is there once the pool is ready. invalid pools have no devices.
	invalid       bool
	invalidReason string
	// devices are those that the node reaches, in publishing order.
	devices []Device
	// counters are those of all counter sets.
	counters []counter
	// foreign are devices that other nodes reach and that consume the pool's counters.
	foreign []foreignDevice
	// bound are synthetic values: attribute -> device -> group, 0 for none.
	bound map[resourceapi.FullyQualifiedName][]int32

	matches    memo[*filter, *matches]
	attributes memo[resourceapi.FullyQualifiedName, []value]
}

// counter is one counter of a counter set of a pool.
type counter struct {
	set, name string
	value     amount
}

// charge is what a device takes of a counter of its pool.
type charge struct {
	counter int32
	amount  amount
}

type foreignDevice struct {
	name    draapi.UniqueString
	charges []charge
}

// reach says whether the node reaches a device.
type reach uint8

const (
	reachable reach = iota
	unreachable
	// reachUnknown is of a device whose node selector cannot be read.
	reachUnknown
)

// perPool bounds what is remembered of one pool.
const perPool = 256

// memo remembers the results of a function. It may be used by several goroutines.
type memo[K comparable, V any] struct {
	entries sync.Map
	count   atomic.Int64
}

func (m *memo[K, V]) get(key K, compute func() V) V {
	if v, ok := m.entries.Load(key); ok {
		return v.(V)
	}
	if m.count.Add(1) > perPool {
		m.entries.Clear()
		m.count.Store(1)
	}
	v, _ := m.entries.LoadOrStore(key, compute())
	return v.(V)
}

// match is what a filter says of the pool's devices.
func (p *pool) match(f *filter) *matches {
	return p.ready().matches.get(f, func() *matches { return f.match(p) })
}

// poolSource is what a pool is made of.
type poolSource struct {
	slices []sliceSource
	// foreign are devices that the node does not reach.
	foreign [][]resourceapi.Device
	sets    []resourceapi.CounterSet
}

// sliceSource is one slice whose devices the node reaches, or some of them.
type sliceSource struct {
	devices []resourceapi.Device
	// place fills in where the i-th device is, nil for devices of templates.
	place func(i int, d *Device)
}

func newPool(cache *Cache, id poolID, template bool, source poolSource) *pool {
	p := &pool{id: id, template: template, cache: cache, source: source}
	for _, slice := range source.slices {
		p.size += len(slice.devices)
		p.late = p.late || slices.ContainsFunc(slice.devices, func(d resourceapi.Device) bool { return d.BindingConditions != nil })
	}
	return p
}

// ready reads the pool's devices. A pool that breaks a rule which the API server cannot
// check is invalid, and its devices are not used.
func (p *pool) ready() *pool {
	p.once.Do(func() {
		if err := p.fill(p.cache, p.source); err != nil {
			p.invalid, p.invalidReason = true, err.Error()
			p.devices, p.counters, p.foreign = nil, nil, nil
		}
		p.source = poolSource{}
	})
	return p
}

func (p *pool) fill(cache *Cache, src poolSource) error {
	if err := uniqueNames(src.slices); err != nil {
		return err
	}
	sets, err := p.fillCounters(src.sets)
	if err != nil {
		return err
	}
	p.devices = make([]Device, p.size)
	i := 0
	for _, slice := range src.slices {
		for j := range slice.devices {
			spec := &slice.devices[j]
			d := &p.devices[i]
			d.pool, d.index = p, i
			i++
			if d.charges, err = sets.charges(spec); err != nil {
				return err
			}
			p.fillDevice(cache, d, spec)
			if slice.place != nil {
				slice.place(j, d)
			}
		}
	}
	for _, devices := range src.foreign {
		for j := range devices {
			charges, err := sets.charges(&devices[j])
			if err != nil {
				return err
			}
			if len(charges) > 0 {
				p.foreign = append(p.foreign, foreignDevice{name: draapi.MakeUniqueString(devices[j].Name), charges: charges})
			}
		}
	}
	return nil
}

func (p *pool) fillDevice(cache *Cache, d *Device, spec *resourceapi.Device) {
	d.ID = schedulerapi.DeviceID{Driver: p.id.driver, Pool: p.id.name, Device: draapi.MakeUniqueString(spec.Name)}
	d.Template = p.template
	d.BindsToNode = spec.BindsToNode != nil && *spec.BindsToNode
	d.BindingConditions = spec.BindingConditions
	d.BindingFailureConditions = spec.BindingFailureConditions
	d.Taints = spec.Taints
	d.content = cache.content(p.id.driver.String(), spec)
	d.consumes = len(spec.ConsumesCounters) > 0
}

func uniqueNames(sources []sliceSource) error {
	seen := make(map[string]bool)
	for _, slice := range sources {
		for i := range slice.devices {
			name := slice.devices[i].Name
			if seen[name] {
				return fmt.Errorf("duplicate device name %s", name)
			}
			seen[name] = true
		}
	}
	return nil
}

// counterSets finds the counters of a pool by the names of set and counter.
type counterSets map[string]map[string]int32

func (p *pool) fillCounters(sets []resourceapi.CounterSet) (counterSets, error) {
	if len(sets) == 0 {
		return nil, nil
	}
	result := make(counterSets, len(sets))
	for _, set := range sets {
		if _, ok := result[set.Name]; ok {
			return nil, fmt.Errorf("duplicate counter set name %s", set.Name)
		}
		indices := make(map[string]int32, len(set.Counters))
		result[set.Name] = indices
		for _, name := range slices.Sorted(maps.Keys(set.Counters)) {
			indices[name] = int32(len(p.counters))
			p.counters = append(p.counters, counter{set: set.Name, name: name, value: newAmount(set.Counters[name].Value)})
		}
	}
	return result, nil
}

// charges is what a device takes of each counter, in the order of the counters.
func (s counterSets) charges(d *resourceapi.Device) ([]charge, error) {
	var result []charge
	for _, consumption := range d.ConsumesCounters {
		set, ok := s[consumption.CounterSet]
		if !ok {
			return nil, fmt.Errorf("counter set %s not found", consumption.CounterSet)
		}
		for name, c := range consumption.Counters {
			index, ok := set[name]
			if !ok {
				return nil, fmt.Errorf("counter %s not found in counter set %s", name, consumption.CounterSet)
			}
			at := slices.IndexFunc(result, func(c charge) bool { return c.counter == index })
			if at < 0 {
				result = append(result, charge{counter: index, amount: newAmount(c.Value)})
			} else {
				result[at].amount = result[at].amount.plus(newAmount(c.Value))
			}
		}
	}
	slices.SortFunc(result, func(a, b charge) int { return cmp.Compare(a.counter, b.counter) })
	return result, nil
}

// value is an attribute's value as constraints compare it.
type value struct {
	kind valueKind
	text string
	n    int64
}

type valueKind uint8

const (
	// missing is of a device without the attribute.
	missing valueKind = iota
	// unknown is of a kind that kube-scheduler does not compare, like lists.
	unknown
	textValue
	intValue
	boolValue
	versionValue
	// boundValue is of devices of which it is known that they will share a value.
	boundValue
)

// values are an attribute's values for the pool's devices.
func (p *pool) values(name resourceapi.FullyQualifiedName) []value {
	return p.ready().attributes.get(name, func() []value {
		result := make([]value, len(p.devices))
		for i := range p.devices {
			v := valueOf(lookup(p.devices[i].content, name))
			if v.kind == missing && p.bound[name] != nil && p.bound[name][i] > 0 {
				v = value{kind: boundValue, n: int64(p.bound[name][i])}
			}
			result[i] = v
		}
		return result
	})
}

// lookup finds an attribute by its full name. One without a domain has the driver's.
func lookup(c *content, name resourceapi.FullyQualifiedName) *resourceapi.DeviceAttribute {
	if a, ok := c.attributes[resourceapi.QualifiedName(name)]; ok {
		return &a
	}
	domain, id, ok := strings.Cut(string(name), "/")
	if !ok || domain != c.driver {
		return nil
	}
	if a, ok := c.attributes[resourceapi.QualifiedName(id)]; ok {
		return &a
	}
	return nil
}

func valueOf(a *resourceapi.DeviceAttribute) value {
	switch {
	case a == nil:
		return value{}
	case a.StringValue != nil:
		return value{kind: textValue, text: *a.StringValue}
	case a.IntValue != nil:
		return value{kind: intValue, n: *a.IntValue}
	case a.BoolValue != nil && *a.BoolValue:
		return value{kind: boolValue, n: 1}
	case a.BoolValue != nil:
		return value{kind: boolValue}
	case a.VersionValue != nil:
		return value{kind: versionValue, text: *a.VersionValue}
	}
	return value{kind: unknown}
}

// shapeID is a number for pools that look alike.
type shapeID uint64

// lastPool numbers pools of clusters, each of which is a shape of its own. The numbers
// of templates are even.
var lastPool atomic.Uint64

func newPoolShape() shapeID { return shapeID(lastPool.Add(1)<<1 | 1) }

// templateShape is equal for templates that differ in nothing but names of pools,
// devices and counter sets.
func (p *pool) templateShape(cache *Cache) shapeID {
	key := appendText(nil, p.id.driver.String())
	if p.incomplete {
		key = append(key, 'i')
	}
	for i := range p.devices {
		d := &p.devices[i]
		key = binary.AppendUvarint(append(key, 'd'), d.serial)
		for _, t := range d.Taints {
			key = appendTexts(append(key, 't'), []string{t.Key, t.Value, string(t.Effect)})
		}
		for _, c := range d.charges {
			key = binary.AppendUvarint(append(key, 'c'), uint64(c.counter))
			key = c.amount.appendTo(key)
		}
		if d.consumes {
			key = append(key, 'C')
		}
		if d.BindingConditions != nil {
			key = append(key, 'b')
		}
	}
	for _, c := range p.counters {
		key = c.value.appendTo(append(key, 'v'))
	}
	for _, name := range slices.Sorted(maps.Keys(p.bound)) {
		key = appendText(append(key, 'g'), string(name))
		for _, group := range p.bound[name] {
			key = binary.AppendUvarint(key, uint64(group))
		}
	}
	return shapeID(intern(cache, &cache.shapes, cachedContents, key, cache.nextSerial) << 1)
}
