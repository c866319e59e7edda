package devicemodel

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// Capacities of a GPU and of its partitions.
const (
	// CapacityMemory is in bytes. A claim that asks for none gets all.
	CapacityMemory = "memory"
	// CapacityShares is how many claims may hold the device at once. Each takes one
	// unless it asks for none, which only one with admin access may.
	CapacityShares = "shares"
	// CapacityComputePercent is of a whole GPU's compute, 0 to 100. A claim that
	// asks for none reserves none.
	CapacityComputePercent = "computePercent"
)

// Capacities of partitions, which say what of the GPU they have
// (nvmlGpuInstanceProfileInfo_t). A claim that asks for none reserves none.
const (
	CapacityMultiprocessors = "multiprocessors"
	CapacityCopyEngines     = "copyEngines"
	CapacityDecoders        = "decoders"
	CapacityEncoders        = "encoders"
	CapacityJPEGEngines     = "jpegEngines"
	CapacityOFAEngines      = "ofaEngines"
)

const mebibyte = 1 << 20

type capacities map[resourceapi.QualifiedName]resourceapi.DeviceCapacity

// CheckShare says why a share that takes an amount of each capacity of the device
// must not be prepared, or returns nil. The scheduler cannot refuse such a share,
// as the least of a request policy has to be nothing for the sake of claims with
// admin access. Those are not to be checked.
func (d Device) CheckShare(consumed map[resourceapi.QualifiedName]resource.Quantity) error {
	if memory, ok := consumed[CapacityMemory]; ok && d.MinShareBytes > 0 && memory.CmpInt64(d.MinShareBytes) < 0 {
		return fmt.Errorf("a share of device %s with %s of memory is too small: ask for at least %s, or for no capacity to get the whole device",
			d.API.Name, memory.String(), resource.NewQuantity(d.MinShareBytes, resource.BinarySI))
	}
	if shares, ok := consumed[CapacityShares]; ok && d.MaxShares > 0 && shares.IsZero() {
		return fmt.Errorf("a share of device %s that does not count among its %d shares is for admin access only: leave %s out of the request", d.API.Name, d.MaxShares, CapacityShares)
	}
	return nil
}

// setMemory sets what a device has of memory and how it is shared.
func (d *Device) setMemory(bytes int64, sharing SharingPolicy) {
	d.MemoryBytes = bytes
	// Without a memory capacity nothing would tell a claim for the whole device
	// from a claim for a share, and any number would fit.
	d.Shareable = bytes > 0 && !sharing.Disabled
	if !d.Shareable {
		return
	}
	d.MinShareBytes = min(alignUp(max(sharing.MinMemory, mebibyte)), bytes)
	d.MaxShares = int(bytes / d.MinShareBytes)
	if sharing.MaxShares > 0 {
		d.MaxShares = min(d.MaxShares, sharing.MaxShares)
	}
	shareable := true
	d.API.AllowMultipleAllocations = &shareable
}

// setCapacity sets the published capacities of a device with known memory: the
// amounts given beside its memory and its shares. A device that is not shared has
// the same ones, so that a claim for a share gets the whole device there; the API
// allows it no request policies.
func (d *Device) setCapacity(amounts map[resourceapi.QualifiedName]int64) {
	if d.MemoryBytes == 0 {
		return
	}
	c := capacities{
		CapacityMemory: {Value: *resource.NewQuantity(d.MemoryBytes, resource.BinarySI)},
		CapacityShares: {Value: *resource.NewQuantity(max(1, int64(d.MaxShares)), resource.DecimalSI)},
	}
	for name, n := range amounts {
		c[name] = resourceapi.DeviceCapacity{Value: *resource.NewQuantity(n, resource.DecimalSI)}
	}
	if d.Shareable {
		for name, capacity := range c {
			capacity.RequestPolicy = requestPolicy(name, capacity.Value)
			c[name] = capacity
		}
	}
	d.API.Capacity = c
}

// requestPolicy lets a share take any part of a capacity, in steps. The least is
// nothing at all, for the sake of claims with admin access: kube-scheduler counts
// what they ask for too, so a claim that looks at a device in use must ask for none
// of its memory and shares. Others that do are refused when they are prepared.
func requestPolicy(name resourceapi.QualifiedName, value resource.Quantity) *resourceapi.CapacityRequestPolicy {
	byDefault, step := resource.NewQuantity(0, resource.DecimalSI), resource.NewQuantity(1, resource.DecimalSI)
	switch name {
	case CapacityMemory:
		all := value.DeepCopy()
		byDefault, step = &all, resource.NewQuantity(mebibyte, resource.BinarySI)
	case CapacityShares:
		byDefault = resource.NewQuantity(1, resource.DecimalSI)
	}
	if value.IsZero() {
		// A range must have room for a step.
		return &resourceapi.CapacityRequestPolicy{Default: byDefault, ValidValues: []resource.Quantity{byDefault.DeepCopy()}}
	}
	most := value.DeepCopy()
	return &resourceapi.CapacityRequestPolicy{
		Default:    byDefault,
		ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: resource.NewQuantity(0, resource.DecimalSI), Max: &most, Step: step},
	}
}

// partitionAmounts are the capacities of a partition beside memory and shares.
func partitionAmounts(profile inventory.MIGProfile) map[resourceapi.QualifiedName]int64 {
	return map[resourceapi.QualifiedName]int64{
		CapacityMultiprocessors: int64(profile.Multiprocessors),
		CapacityCopyEngines:     int64(profile.CopyEngines),
		CapacityDecoders:        int64(profile.Decoders),
		CapacityEncoders:        int64(profile.Encoders),
		CapacityJPEGEngines:     int64(profile.JPEGEngines),
		CapacityOFAEngines:      int64(profile.OFAEngines),
	}
}

// publishedMemory is a memory size in bytes without what is held back, rounded
// down to whole MiB, as request policies count in MiB. It is 0 where the size is
// unknown or nothing that a policy can be made for.
func publishedMemory(bytes *uint64, heldBack int64) int64 {
	const most = 1 << 62
	if bytes == nil || *bytes > most {
		return 0
	}
	left := int64(*bytes) - max(0, heldBack)
	if left < 2*mebibyte {
		return 0
	}
	return left / mebibyte * mebibyte
}

// alignUp rounds up to whole MiB.
func alignUp(bytes int64) int64 {
	const most = 1 << 62
	return (min(bytes, most) + mebibyte - 1) / mebibyte * mebibyte
}
