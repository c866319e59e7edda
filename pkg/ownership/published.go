package ownership

import (
	"math"
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
}

type deviceName struct{ pool, name string }

type publishedDevice struct {
	// Device is without share, its Fraction that of all of the device.
	Device
	// memory is the device's, in bytes; 0 if unknown.
	memory float64
}

// slicePlace says which of several slices with the same device or counter set counts:
// that of the newest generation of the pool. While a pool is published anew, slices of
// two generations are there, and what is not in the newest yet has not left.
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
	counters := map[deviceName]found[float64]{}
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
				counters[name] = found[float64]{place, memorySlices(set.Counters)}
			}
		}
	}
	for name, device := range devices {
		all := 0.0
		if sets := device.value.ConsumesCounters; len(sets) > 0 {
			all = counters[deviceName{name.pool, sets[0].CounterSet}].value
		}
		p.devices[name] = p.describe(name, device.value, all)
	}
	return p
}

// Device says what the driver's device of a pool is, or a share of it that takes an
// amount of each capacity. Of a device that is not published it says what its name
// does.
func (p *Published) Device(pool, name string, share types.UID, consumed map[string]string) Device {
	memory := math.NaN()
	if amount, err := resource.ParseQuantity(consumed[devicemodel.CapacityMemory]); err == nil {
		memory = amount.AsApproximateFloat64()
	}
	return p.device(pool, name, share, memory)
}

// device is Device with the memory that a share takes in bytes, NaN if unknown.
func (p *Published) device(pool, name string, share types.UID, memory float64) Device {
	published, ok := p.devices[deviceName{pool, name}]
	if !ok {
		published = p.describe(deviceName{pool, name}, nil, 0)
	}
	d := published.Device
	if share != "" {
		d.ShareID = share
		d.Fraction *= part(memory, published.memory)
	}
	return d
}

// describe is a device that takes its part of all memory slices of a GPU; device is
// nil if it is not published.
func (p *Published) describe(name deviceName, device *resourceapi.Device, all float64) publishedDevice {
	d := publishedDevice{Device: Device{Driver: p.driver, Pool: name.pool, Name: name.name}}
	if parsed, err := devicemodel.Parse(name.name); err == nil {
		d.Type, d.Profile = devicemodel.TypeGPU, parsed.Profile
		if parsed.IsPartition() {
			d.Type = devicemodel.TypeMIG
		}
	}
	var own float64
	if device != nil {
		p.text(&d.Type, device, devicemodel.AttributeType)
		p.text(&d.UUID, device, devicemodel.AttributeUUID)
		p.text(&d.ParentUUID, device, devicemodel.AttributeParentUUID)
		p.text(&d.Profile, device, devicemodel.AttributeProfile)
		memory := device.Capacity[devicemodel.CapacityMemory]
		if qualified, ok := device.Capacity[p.qualified(devicemodel.CapacityMemory)]; ok {
			memory = qualified
		}
		d.memory = memory.Value.AsApproximateFloat64()
		if len(device.ConsumesCounters) > 0 {
			own = memorySlices(device.ConsumesCounters[0].Counters)
		}
	}
	switch d.Type {
	case devicemodel.TypeGPU:
		d.Fraction = 1
	case devicemodel.TypeMIG:
		d.Fraction = part(own, all)
	}
	return d
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

// memorySlicePrefix is what the names of a GPU's counters of memory slices start with.
var memorySlicePrefix = strings.TrimSuffix(devicemodel.MemorySliceCounter(0), "0")

// memorySlices counts memory slices.
func memorySlices(counters map[string]resourceapi.Counter) float64 {
	n := 0.0
	for name, counter := range counters {
		if strings.HasPrefix(name, memorySlicePrefix) {
			n += counter.Value.AsApproximateFloat64()
		}
	}
	return n
}

// part is an amount over the whole, up to 1; 0 if either is not known.
func part(amount, whole float64) float64 {
	if amount > 0 && whole > 0 {
		return min(1, amount/whole)
	}
	return 0
}
