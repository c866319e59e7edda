package ownership

import (
	"cmp"
	"math"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
)

// Published knows the devices of a driver as ResourceSlices have them.
type Published struct {
	driver  string
	devices map[deviceName]publishedDevice
	// nodes are those of the pools, where slices name them.
	nodes map[string]string
}

type deviceName struct{ pool, name string }

type publishedDevice struct {
	// device is without a share, its Fraction that of all of the device.
	device Device
	// memory is the device's in bytes, if memoryKnown.
	memory      resource.Quantity
	memoryKnown bool
}

// NewPublished reads the driver's devices from slices, and keeps none of them.
// Those of other drivers are ignored.
func NewPublished(driver string, resourceSlices []*resourceapi.ResourceSlice) *Published {
	p := &Published{driver: driver, devices: map[deviceName]publishedDevice{}, nodes: map[string]string{}}
	current := currentSlices(resourceSlices, driver)
	counters := map[deviceName]map[string]resourceapi.Counter{}
	for _, slice := range current {
		pool := slice.Spec.Pool.Name
		if slice.Spec.NodeName != nil {
			p.nodes[pool] = *slice.Spec.NodeName
		}
		for _, set := range slice.Spec.SharedCounters {
			counters[deviceName{pool, set.Name}] = set.Counters
		}
	}
	for _, slice := range current {
		pool := slice.Spec.Pool.Name
		for i := range slice.Spec.Devices {
			device, part := &slice.Spec.Devices[i], 0.0
			if sets := device.ConsumesCounters; len(sets) > 0 {
				part = devicemodel.PartOfGPU(sets[0].Counters, counters[deviceName{pool, sets[0].CounterSet}])
			}
			name := deviceName{pool, device.Name}
			p.devices[name] = p.describe(name, device, part)
		}
	}
	return p
}

// currentSlices are a driver's slices without those of an older generation of a pool as
// soon as the newest is complete: while a pool is published anew, what is not in the
// newest yet has not left. The newest come last.
func currentSlices(all []*resourceapi.ResourceSlice, driver string) []*resourceapi.ResourceSlice {
	type state struct {
		generation, slices int64
		complete           bool
	}
	pools := map[string]state{}
	for _, slice := range all {
		if slice == nil {
			continue
		}
		pool := slice.Spec.Pool
		if slice.Spec.Driver != driver || pool.Generation < pools[pool.Name].generation {
			continue
		}
		s := state{generation: pool.Generation, slices: 1}
		if known, ok := pools[pool.Name]; ok && known.generation == pool.Generation {
			s.slices += known.slices
		}
		s.complete = s.slices >= pool.ResourceSliceCount
		pools[pool.Name] = s
	}
	var current []*resourceapi.ResourceSlice
	for _, slice := range all {
		if slice == nil {
			continue
		}
		s := pools[slice.Spec.Pool.Name]
		if slice.Spec.Driver == driver && (slice.Spec.Pool.Generation == s.generation || !s.complete) {
			current = append(current, slice)
		}
	}
	slices.SortStableFunc(current, func(a, b *resourceapi.ResourceSlice) int {
		return cmp.Or(cmp.Compare(a.Spec.Pool.Generation, b.Spec.Pool.Generation), strings.Compare(a.Name, b.Name))
	})
	return current
}

// Learn adds the devices of a pool as its node has them before it publishes them. What
// is known of others stays: a GPU that is lost still has its owners.
func (p *Published) Learn(pool string, devices []devicemodel.Device) {
	for i := range devices {
		name := deviceName{pool, devices[i].API.Name}
		p.devices[name] = p.describe(name, &devices[i].API, devices[i].PartOfGPU)
	}
}

// Devices are all published devices, by pool and name.
func (p *Published) Devices() []Device {
	devices := make([]Device, 0, len(p.devices))
	for _, published := range p.devices {
		devices = append(devices, published.device)
	}
	slices.SortFunc(devices, func(a, b Device) int {
		return cmp.Or(strings.Compare(a.Pool, b.Pool), strings.Compare(a.Name, b.Name))
	})
	return devices
}

// Memory is the memory in bytes of a device of a pool, ok if it is published.
func (p *Published) Memory(pool, name string) (memory resource.Quantity, ok bool) {
	published := p.devices[deviceName{pool, name}]
	return published.memory, published.memoryKnown
}

// Node is the node of a pool, empty if it is not published.
func (p *Published) Node(pool string) string { return p.nodes[pool] }

// Device says what the driver's device of a pool is, or a share of it that takes an
// amount of each capacity. Of a device that is not published it says what its name
// does.
func (p *Published) Device(pool, name string, share types.UID, consumed map[string]string) Device {
	memory := math.NaN()
	if amount, err := resource.ParseQuantity(consumed[devicemodel.CapacityMemory]); err == nil {
		memory = amount.AsApproximateFloat64()
	}
	d, taken := p.device(pool, name, share, memory)
	d.Fraction *= taken
	return d
}

// device is a device with the Fraction of all of it, and the part of it that is taken:
// of a share with memory in bytes (NaN if unknown) its part of the device's memory.
func (p *Published) device(pool, name string, share types.UID, memory float64) (d Device, taken float64) {
	published, ok := p.devices[deviceName{pool, name}]
	if !ok {
		published = p.describe(deviceName{pool, name}, nil, 0)
	}
	d, taken = published.device, 1
	if share != "" {
		d.ShareID, taken = share, 0
		if all := published.memory.AsApproximateFloat64(); memory > 0 && all > 0 {
			taken = min(1, memory/all)
		}
	}
	return d, taken
}

// describe is a device that is a part of a GPU; device is nil if it is not published.
func (p *Published) describe(name deviceName, device *resourceapi.Device, part float64) publishedDevice {
	d := Device{Driver: p.driver, Pool: name.pool, Name: name.name}
	if parsed, err := devicemodel.Parse(name.name); err == nil {
		d.Type, d.Profile = devicemodel.TypeGPU, parsed.Profile
		if parsed.IsPartition() {
			d.Type = devicemodel.TypeMIG
		}
	}
	published := publishedDevice{}
	if device != nil {
		p.text(&d.Type, device, devicemodel.AttributeType)
		p.text(&d.UUID, device, devicemodel.AttributeUUID)
		p.text(&d.ParentUUID, device, devicemodel.AttributeParentUUID)
		p.text(&d.Profile, device, devicemodel.AttributeProfile)
		for _, name := range []resourceapi.QualifiedName{devicemodel.CapacityMemory, p.qualified(devicemodel.CapacityMemory)} {
			if capacity, ok := device.Capacity[name]; ok {
				published.memory, published.memoryKnown = capacity.Value, true
			}
		}
	}
	switch d.Type {
	case devicemodel.TypeGPU:
		d.Fraction = 1
	case devicemodel.TypeMIG:
		d.Fraction = part
	}
	published.device = d
	return published
}

// text sets to to a text attribute of the driver's domain, if the device has it.
func (p *Published) text(to *string, device *resourceapi.Device, name resourceapi.QualifiedName) {
	attribute, ok := device.Attributes[name]
	if !ok {
		attribute = device.Attributes[p.qualified(name)]
	}
	if attribute.StringValue != nil {
		*to = *attribute.StringValue
	}
}

func (p *Published) qualified(name resourceapi.QualifiedName) resourceapi.QualifiedName {
	return resourceapi.QualifiedName(p.driver) + "/" + name
}
