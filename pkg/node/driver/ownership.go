package driver

import (
	"maps"
	"path/filepath"

	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/prepare"
	"apportion.dev/apportion/pkg/ownership"
	ownershipnode "apportion.dev/apportion/pkg/ownership/node"
)

// newOwners makes what says who holds what is prepared; nil if nobody wants to know.
func (d *Driver) newOwners() *ownershipnode.Owners {
	if !d.config.Ownership {
		return nil
	}
	hardware := func() (inventory.Node, *devicemodel.Model) {
		seen := d.seen.Load()
		return seen.Node, seen.Model
	}
	facts := newDeviceFacts(d.config)
	return ownershipnode.New(ownershipnode.Options{
		NodeName: d.config.NodeName, Client: d.Client,
		Socket: d.config.OwnershipSocket(), PodsFile: filepath.Join(d.config.Dir(), "pods.json"),
		MappingDir: d.config.DCGMJobMappingDir,
		Held: func() ([]ownership.Owner, error) {
			node, model := hardware()
			facts.learn(node, model)
			records, err := d.preparer.Prepared()
			if err != nil {
				return nil, err
			}
			facts.forget(node, records)
			return facts.held(records), nil
		},
		GPUIndex: func(uuid string) (int, bool) {
			node, _ := hardware()
			for _, gpu := range node.GPUs {
				if gpu.UUID == uuid {
					return gpu.Index, true
				}
			}
			return 0, false
		},
	})
}

// deviceFacts are what ownership says of devices that their records do not. What was
// known once is kept: a GPU that is lost still has its owners.
type deviceFacts struct {
	node    string
	devices *ownership.Published
	// instances are the ids of GPU instances on their GPU, by the UUID of the MIG
	// device.
	instances map[string]int
}

func newDeviceFacts(c Config) deviceFacts {
	return deviceFacts{node: c.NodeName, devices: ownership.NewPublished(c.DriverName, nil), instances: map[string]int{}}
}

func (f deviceFacts) learn(node inventory.Node, model *devicemodel.Model) {
	f.devices.Learn(f.node, model.Devices)
	for _, gpu := range node.GPUs {
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
func (f deviceFacts) held(records []*prepare.Record) []ownership.Owner {
	owners := []ownership.Owner{}
	for _, record := range records {
		for i := range record.Devices {
			device := &record.Devices[i]
			owner := ownership.Owner{
				Device:  f.device(device),
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
func (f deviceFacts) device(d *prepare.Device) ownership.Device {
	out := f.devices.Device(d.Pool, d.Device, ptr.Deref(d.ShareID, ""), d.Consumed)
	out.Type, out.UUID, out.ParentUUID = devicemodel.TypeGPU, d.GPU, ""
	if d.AdminAccess {
		out.Fraction = 0
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
