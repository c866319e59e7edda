package solver

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
)

// content is what selectors and capacity requests can see of a device. Devices with
// equal contents have the same.
type content struct {
	serial uint64
	driver string
	// shared says that the device allows multiple allocations.
	shared     bool
	attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
	// capacities are ordered by name.
	capacities []capacity
	input      dracel.Device
	cache      *Cache

	mu       sync.Mutex
	epoch    int64 // of the cache, when the results were made
	selected map[*expression]selected
	verdicts map[*filter]*verdict
}

// capacity is one capacity of a device.
type capacity struct {
	name  resourceapi.QualifiedName
	spec  resourceapi.DeviceCapacity
	value amount
}

// selected is what a CEL expression says of a content.
type selected struct {
	matches bool
	err     error
}

// content interns what a device is.
func (c *Cache) content(driver string, d *resourceapi.Device) *content {
	key := make([]byte, 0, 1024)
	key = appendContent(key, driver, d)
	return intern(c, &c.contents, cachedContents, key, func() *content {
		return &content{
			serial:     c.nextSerial(),
			driver:     driver,
			shared:     ptr.Deref(d.AllowMultipleAllocations, false),
			attributes: d.Attributes,
			capacities: capacitiesOf(d),
			input: dracel.Device{
				Driver: driver, AllowMultipleAllocations: d.AllowMultipleAllocations,
				Attributes: d.Attributes, Capacity: d.Capacity,
			},
			cache: c,
		}
	})
}

func capacitiesOf(d *resourceapi.Device) []capacity {
	result := make([]capacity, 0, len(d.Capacity))
	for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
		spec := d.Capacity[name]
		result = append(result, capacity{name: name, spec: spec, value: newAmount(spec.Value)})
	}
	return result
}

// selects evaluates a compiled expression, once.
func (c *content) selects(e *expression) selected {
	c.mu.Lock()
	defer c.mu.Unlock()
	if result, ok := c.selected[e]; ok {
		return result
	}
	// The cost of an expression is limited, so there is no need to cancel it, and a
	// result that depends on when it was asked for could not be kept.
	matches, _, err := e.compile(c.cache).DeviceMatches(context.Background(), c.input)
	if err != nil {
		err = dracel.EnhanceRuntimeError(err)
	}
	result := selected{matches: matches && err == nil, err: err}
	c.grow()
	c.selected[e] = result
	return result
}

// grow makes room for one more result. The caller holds the lock.
func (c *content) grow() {
	c.cache.count()
	if epoch := c.cache.epoch.Load(); c.selected == nil || c.epoch != epoch {
		c.epoch = epoch
		c.selected = make(map[*expression]selected)
		c.verdicts = make(map[*filter]*verdict)
	}
}

// appendContent encodes all that selectors and capacity requests can see, in an order
// of its own. Lengths are encoded before texts, so different contents differ.
func appendContent(key []byte, driver string, d *resourceapi.Device) []byte {
	key = appendText(key, driver)
	key = strconv.AppendBool(key, ptr.Deref(d.AllowMultipleAllocations, false))
	key = binary.AppendUvarint(key, uint64(len(d.Attributes)))
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		key = appendText(key, string(name))
		key = appendAttribute(key, d.Attributes[name])
	}
	for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
		spec := d.Capacity[name]
		key = appendText(key, string(name))
		key = appendQuantity(key, &spec.Value)
		key = appendPolicy(key, spec.RequestPolicy)
	}
	return key
}

func appendAttribute(key []byte, a resourceapi.DeviceAttribute) []byte {
	if a.StringValue != nil {
		key = appendText(append(key, 's'), *a.StringValue)
	}
	if a.IntValue != nil {
		key = binary.AppendVarint(append(key, 'i'), *a.IntValue)
	}
	if a.BoolValue != nil {
		key = strconv.AppendBool(append(key, 'b'), *a.BoolValue)
	}
	if a.VersionValue != nil {
		key = appendText(append(key, 'v'), *a.VersionValue)
	}
	if a.StringValues != nil {
		key = appendTexts(append(key, 'S'), a.StringValues)
	}
	if a.VersionValues != nil {
		key = appendTexts(append(key, 'V'), a.VersionValues)
	}
	if a.IntValues != nil {
		key = binary.AppendUvarint(append(key, 'I'), uint64(len(a.IntValues)))
		for _, v := range a.IntValues {
			key = binary.AppendVarint(key, v)
		}
	}
	if a.BoolValues != nil {
		key = binary.AppendUvarint(append(key, 'B'), uint64(len(a.BoolValues)))
		for _, v := range a.BoolValues {
			key = strconv.AppendBool(key, v)
		}
	}
	return append(key, ';')
}

func appendPolicy(key []byte, p *resourceapi.CapacityRequestPolicy) []byte {
	if p == nil {
		return append(key, '-')
	}
	key = appendQuantity(append(key, 'p'), p.Default)
	key = binary.AppendUvarint(key, uint64(len(p.ValidValues)))
	for i := range p.ValidValues {
		key = appendQuantity(key, &p.ValidValues[i])
	}
	if p.ValidRange == nil {
		return append(key, '-')
	}
	key = appendQuantity(append(key, 'r'), p.ValidRange.Min)
	key = appendQuantity(key, p.ValidRange.Max)
	return appendQuantity(key, p.ValidRange.Step)
}

// appendQuantity encodes a quantity with its format, which results inherit. It does not
// let the quantity cache its text, for others may be reading it.
func appendQuantity(key []byte, q *resource.Quantity) []byte {
	if q == nil {
		return append(key, '-')
	}
	key = append(key, 'q')
	if v, ok := q.AsInt64(); ok {
		key = binary.AppendVarint(append(key, 'i'), v)
	} else {
		number := q.DeepCopy()
		key = appendText(key, number.String())
	}
	return appendText(key, string(q.Format))
}

func appendText(key []byte, text string) []byte {
	key = binary.AppendUvarint(key, uint64(len(text)))
	return append(key, text...)
}

func appendTexts(key []byte, texts []string) []byte {
	key = binary.AppendUvarint(key, uint64(len(texts)))
	for _, text := range texts {
		key = appendText(key, text)
	}
	return key
}
