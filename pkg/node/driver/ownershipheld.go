package driver

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/prepare"
	"apportion.dev/apportion/pkg/ownership"
)

// deviceFacts are what ownership says of devices that their records do not. What was
// known once is kept: a GPU that is lost still has its owners.
type deviceFacts struct {
	// memory is the capacity of a device in bytes, by its name; slices is how many
	// memory slices a GPU has, by its UUID.
	memory map[string]int64
	slices map[string]int
	// instances are the ids of GPU instances on their GPU, by the UUID of the MIG
	// device.
	instances map[string]int
}

func newDeviceFacts() deviceFacts {
	return deviceFacts{memory: map[string]int64{}, slices: map[string]int{}, instances: map[string]int{}}
}

func (f deviceFacts) learn(node inventory.Node, model *devicemodel.Model) {
	for _, device := range model.Devices {
		if device.MemoryBytes > 0 {
			f.memory[device.API.Name] = device.MemoryBytes
		}
	}
	for _, gpu := range node.GPUs {
		slices := 0
		for _, profile := range gpu.MIG.Profiles {
			for _, placement := range profile.Placements {
				slices = max(slices, placement.Start+placement.Size)
			}
		}
		if slices > 0 {
			f.slices[gpu.UUID] = slices
		}
		for _, instance := range gpu.MIG.Instances {
			if instance.UUID != "" {
				f.instances[instance.UUID] = instance.ID
			}
		}
	}
}

// forget drops what is known of MIG devices that neither exist nor are in a record:
// each partition that is made has a UUID of its own.
func (f deviceFacts) forget(node inventory.Node, records []*prepare.Record) {
	used := map[string]bool{}
	for _, gpu := range node.GPUs {
		for _, instance := range gpu.MIG.Instances {
			used[instance.UUID] = true
		}
	}
	for _, record := range records {
		for i := range record.Devices {
			if made := record.Devices[i].MIG; made != nil {
				used[made.UUID] = true
			}
		}
	}
	maps.DeleteFunc(f.instances, func(uuid string, _ int) bool { return !used[uuid] })
}

// held are the owners of the devices of prepared claims, without consumers.
func held(driver string, records []*prepare.Record, facts deviceFacts) []ownership.Owner {
	owners := []ownership.Owner{}
	for _, record := range records {
		for i := range record.Devices {
			device := &record.Devices[i]
			owner := ownership.Owner{
				Device:  facts.device(driver, device),
				Claim:   ownership.ClaimRef{Namespace: record.Claim.Namespace, Name: record.Claim.Name, UID: record.Claim.UID},
				Request: device.Request, AdminAccess: device.AdminAccess, Consumed: device.Consumed, Since: record.Since,
			}
			if device.MemoryLimit != nil {
				owner.MemoryLimitBytes = ptr.To(device.MemoryLimit.Hard)
			}
			owners = append(owners, owner)
		}
	}
	ownership.Sort(owners)
	return owners
}

// device says what a recorded device is.
func (f deviceFacts) device(driver string, d *prepare.Device) ownership.Device {
	out := ownership.Device{
		Driver: driver, Pool: d.Pool, Name: d.Device, Type: devicemodel.TypeGPU, UUID: d.GPU,
		ShareID: ptr.Deref(d.ShareID, ""), Fraction: f.fraction(d),
	}
	if d.Placement == nil {
		return out
	}
	out.Type, out.UUID, out.ParentUUID, out.Profile = devicemodel.TypeMIG, "", d.GPU, d.Placement.Profile
	if d.MIG == nil {
		return out // Looked at with admin access, and not there.
	}
	out.UUID = d.MIG.UUID
	if id, ok := f.instances[d.MIG.UUID]; ok {
		out.GPUInstanceID = &id
	} else if !d.Placement.Given {
		// The record of one that somebody else made does not have it.
		out.GPUInstanceID = ptr.To(d.MIG.GPUInstance)
	}
	return out
}

// fraction is the part of the whole GPU that is held, 0 if it is not known.
func (f deviceFacts) fraction(d *prepare.Device) float64 {
	if d.AdminAccess {
		return 0
	}
	whole := 1.0
	if d.Placement != nil {
		slices := f.slices[d.GPU]
		if slices == 0 {
			return 0
		}
		whole = min(1, float64(d.Placement.Size)/float64(slices))
	}
	if d.ShareID == nil {
		return whole
	}
	memory, err := resource.ParseQuantity(d.Consumed[devicemodel.CapacityMemory])
	all := f.memory[d.Device]
	if err != nil || all == 0 {
		return 0
	}
	return whole * min(1, memory.AsApproximateFloat64()/float64(all))
}
