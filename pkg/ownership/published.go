package ownership

import (
	"math"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
)

// Published knows the devices of a driver as ResourceSlices have them.
type Published struct {
	driver  string
	devices map[deviceName]publishedDevice
}

type deviceName struct{ pool, name string }

type publishedDevice struct {
	// device is without a share, its Fraction that of all of the device.
	device Device
	// memory is the device's, in bytes; 0 if unknown.
	memory float64
}

// slicePlace says which of several slices with the same device or counter set counts:
// the one of the pool's newest generation. While a pool is published anew, slices of two
// generations are there, and what is not in the newest yet has not left.
type slicePlace struct {
	generation int64
	slice      string
}

func (a slicePlace) before(b slicePlace) bool {
	if a.generation != b.generation {
		return a.generation < b.generation
	}
	return a.slice < b.slice
}

// NewPublished reads the driver's devices from slices, of which it keeps nothing.
// Those of other drivers are passed over.
func NewPublished(driver string, resourceSlices []*resourceapi.ResourceSlice) *Published {
	p := &Published{driver: driver, devices: map[deviceName]publishedDevice{}}
	type found[T any] struct {
		slicePlace
		value T
	}
	devices := map[deviceName]found[*resourceapi.Device]{}
	counters := map[deviceName]found[map[string]resourceapi.Counter]{}
	for _, slice := range resourceSlices {
		if slice == nil || slice.Spec.Driver != driver {
			continue
		}
		pool := slice.Spec.Pool.Name
		place := slicePlace{generation: slice.Spec.Pool.Generation, slice: slice.Name}
		for i := range slice.Spec.Devices {
			name := deviceName{pool, slice.Spec.Devices[i].Name}
			if known, twice := devices[name]; !twice || known.before(place) {
				devices[name] = found[*resourceapi.Device]{place, &slice.Spec.Devices[i]}
			}
		}
		for i := range slice.Spec.SharedCounters {
			set := &slice.Spec.SharedCounters[i]
			name := deviceName{pool, set.Name}
			if known, twice := counters[name]; !twice || known.before(place) {
				counters[name] = found[map[string]resourceapi.Counter]{place, set.Counters}
			}
		}
	}
	for name, device := range devices {
		part := 0.0
		if sets := device.value.ConsumesCounters; len(sets) > 0 {
			part = devicemodel.PartOfGPU(sets[0].Counters, counters[deviceName{name.pool, sets[0].CounterSet}].value)
		}
		p.devices[name] = p.describe(name, device.value, part)
	}
	return p
}

// Learn adds the devices of a pool as its node has them before it publishes them. What
// is known of others stays: a GPU that is lost still has its owners.
func (p *Published) Learn(pool string, devices []devicemodel.Device) {
	for i := range devices {
		name := deviceName{pool, devices[i].API.Name}
		p.devices[name] = p.describe(name, &devices[i].API, devices[i].PartOfGPU)
	}
}

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
		if memory > 0 && published.memory > 0 {
			taken = min(1, memory/published.memory)
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
	memory := 0.0
	if device != nil {
		p.text(&d.Type, device, devicemodel.AttributeType)
		p.text(&d.UUID, device, devicemodel.AttributeUUID)
		p.text(&d.ParentUUID, device, devicemodel.AttributeParentUUID)
		p.text(&d.Profile, device, devicemodel.AttributeProfile)
		capacity := device.Capacity[devicemodel.CapacityMemory]
		if qualified, ok := device.Capacity[p.qualified(devicemodel.CapacityMemory)]; ok {
			capacity = qualified
		}
		memory = capacity.Value.AsApproximateFloat64()
	}
	switch d.Type {
	case devicemodel.TypeGPU:
		d.Fraction = 1
	case devicemodel.TypeMIG:
		d.Fraction = part
	}
	return publishedDevice{d, memory}
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
