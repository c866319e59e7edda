package driver

import (
	"reflect"
	"slices"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/mig"
	"apportion.dev/apportion/pkg/node/prepare"
	"apportion.dev/apportion/pkg/ownership"
)

// hardware reads a fake machine with one GPU.
func hardware(t *testing.T, product string, policy devicemodel.Policy) (inventory.Node, *devicemodel.Model) {
	t.Helper()
	machine, err := fakegpu.Create(t.TempDir(), fakegpu.Spec{Node: "node-a", DriverVersion: "580.95.05", GPUs: []string{product}})
	if err != nil {
		t.Fatal(err)
	}
	source := inventory.NewNVML(inventory.Options{Library: machine.NVML(), SysFS: machine.SysFS()})
	node, err := source.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Close(); err != nil {
		t.Fatal(err)
	}
	return node, devicemodel.Build(node, policy)
}

func TestRecordsSayWhatIsHeld(t *testing.T) {
	// An H100 has 81559 MiB and 8 memory slices; 3g.40gb takes 4 of them and has
	// 40448 MiB (NVIDIA's MIG user guide, and nvmlGpuInstanceProfileInfo_t).
	node, model := hardware(t, "h100-sxm5-80gb", devicemodel.Policy{})
	gpu := node.GPUs[0].UUID
	whole := model.Devices[len(model.Devices)-1].API.Name
	given := node
	given.GPUs = []inventory.GPU{node.GPUs[0]}
	given.GPUs[0].MIG.Instances = []inventory.MIGInstance{{ID: 5, UUID: "MIG-given"}}
	facts := newDeviceFacts(Config{NodeName: "node-a", DriverName: "gpu.apportion.dev"})
	facts.learn(given, model)

	share := ptr.To(types.UID("share-1"))
	placement := &prepare.Placement{Profile: "3g.40gb", Start: 4, Size: 4}
	partition := ownership.Device{
		Driver: "gpu.apportion.dev", Pool: "node-a", Name: whole + "-mig-3g-40gb-4", Type: "mig",
		UUID: "MIG-1", ParentUUID: gpu, Profile: "3g.40gb", GPUInstanceID: ptr.To(2), Fraction: 0.5,
	}
	tests := []struct {
		name   string
		device prepare.Device
		want   ownership.Device
		limit  *int64
	}{
		{
			"a whole GPU that cannot be shared", prepare.Device{Device: whole, GPU: gpu},
			ownership.Device{Name: whole, Type: "gpu", UUID: gpu, Fraction: 1}, nil,
		},
		{
			"all of a GPU that can be shared", prepare.Device{Device: whole, GPU: gpu, ShareID: share, Consumed: map[string]string{"memory": "81559Mi"}},
			ownership.Device{Name: whole, Type: "gpu", UUID: gpu, ShareID: "share-1", Fraction: 1}, nil,
		},
		{
			"a share with a limit", prepare.Device{
				Device: whole, GPU: gpu, ShareID: share, Consumed: map[string]string{"memory": "8155900Ki"},
				MemoryLimit: &prepare.MemoryLimit{Soft: 1, Hard: 8351641600},
			},
			// 8155900 KiB are 81559/10.24 MiB.
			ownership.Device{Name: whole, Type: "gpu", UUID: gpu, ShareID: "share-1", Fraction: 1 / 10.24}, ptr.To(int64(8351641600)),
		},
		{
			"a partition", prepare.Device{Device: partition.Name, GPU: gpu, Placement: placement, MIG: &mig.Instance{UUID: "MIG-1", GPUInstance: 2}},
			partition, nil,
		},
		{
			"half of a partition", prepare.Device{
				Device: partition.Name, GPU: gpu, Placement: placement, MIG: &mig.Instance{UUID: "MIG-1", GPUInstance: 2},
				ShareID: share, Consumed: map[string]string{"memory": "20224Mi"},
			},
			with(partition, func(d *ownership.Device) { d.ShareID, d.Fraction = "share-1", 0.25 }), nil,
		},
		{
			"an administrator's partition", prepare.Device{
				Device: partition.Name, GPU: gpu, MIG: &mig.Instance{UUID: "MIG-given"},
				Placement: &prepare.Placement{Profile: "3g.40gb", Start: 4, Size: 4, Given: true},
			},
			with(partition, func(d *ownership.Device) { d.UUID, d.GPUInstanceID = "MIG-given", ptr.To(5) }), nil,
		},
		{
			"an administrator's partition that is gone", prepare.Device{
				Device: partition.Name, GPU: gpu, MIG: &mig.Instance{UUID: "MIG-gone"},
				Placement: &prepare.Placement{Profile: "3g.40gb", Start: 4, Size: 4, Given: true},
			},
			with(partition, func(d *ownership.Device) { d.UUID, d.GPUInstanceID = "MIG-gone", nil }), nil,
		},
		{
			"a GPU that is only looked at", prepare.Device{Device: whole, GPU: gpu, AdminAccess: true},
			ownership.Device{Name: whole, Type: "gpu", UUID: gpu}, nil,
		},
		{
			"a partition that is looked at and not there", prepare.Device{Device: partition.Name, GPU: gpu, Placement: placement, AdminAccess: true},
			with(partition, func(d *ownership.Device) { d.UUID, d.GPUInstanceID, d.Fraction = "", nil, 0 }), nil,
		},
		{
			"a share of a GPU that was never seen", prepare.Device{Device: "gpu-0", GPU: "GPU-0", ShareID: share, Consumed: map[string]string{"memory": "1Gi"}},
			ownership.Device{Name: "gpu-0", Type: "gpu", UUID: "GPU-0", ShareID: "share-1"}, nil,
		},
	}
	since := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.device.Pool, test.device.Request = "node-a", "gpu/large"
			record := &prepare.Record{Claim: prepare.ClaimRef{Namespace: "team", Name: "claim", UID: "c1"}, Since: since, Devices: []prepare.Device{test.device}}
			test.want.Driver, test.want.Pool = "gpu.apportion.dev", "node-a"
			want := []ownership.Owner{{
				Device: test.want, Claim: ownership.ClaimRef{Namespace: "team", Name: "claim", UID: "c1"}, Request: "gpu/large",
				AdminAccess: test.device.AdminAccess, Consumed: test.device.Consumed, MemoryLimitBytes: test.limit, Since: since,
			}}
			if got := facts.held([]*prepare.Record{record}); !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func with(d ownership.Device, change func(*ownership.Device)) ownership.Device {
	change(&d)
	return d
}

func TestALostGPUKeepsItsOwners(t *testing.T) {
	node, model := hardware(t, "h100-sxm5-80gb", devicemodel.Policy{})
	facts := newDeviceFacts(Config{NodeName: "node-a", DriverName: "gpu.apportion.dev"})
	facts.learn(node, model)
	facts.learn(inventory.Node{}, devicemodel.Build(inventory.Node{}, devicemodel.Policy{}))
	whole := model.Devices[len(model.Devices)-1].API.Name
	records := []*prepare.Record{{Claim: prepare.ClaimRef{UID: "c1"}, Devices: []prepare.Device{
		{Pool: "node-a", Device: whole, GPU: node.GPUs[0].UUID, ShareID: ptr.To(types.UID("s")), Consumed: map[string]string{"memory": "81559Mi"}},
		{Pool: "node-a", Device: whole + "-mig-3g-40gb-4", GPU: node.GPUs[0].UUID, Placement: &prepare.Placement{Profile: "3g.40gb", Start: 4, Size: 4}},
	}}}
	got := facts.held(records)
	if len(got) != 2 || got[0].Device.Fraction != 1 || got[1].Device.Fraction != 0.5 {
		t.Errorf("owners are %+v, want all and half of the GPU", got)
	}
}

// The node and the cluster must not have two opinions of how much of a GPU is held, also
// where the node offers no partitions and publishes no counters.
func TestTheNodeAndTheClusterAgreeOnFractions(t *testing.T) {
	for name, policy := range map[string]devicemodel.Policy{"partitions": {}, "no partitions": {NoPartitions: true}} {
		t.Run(name, func(t *testing.T) {
			node, model := hardware(t, "h100-sxm5-80gb", policy)
			// An administrator made 1g.10gb (1 of 8 memory slices) at the front.
			profiles := node.GPUs[0].MIG.Profiles
			profile := profiles[slices.IndexFunc(profiles, func(p inventory.MIGProfile) bool { return p.Name == "1g.10gb" })]
			enabled := true
			node.GPUs[0].MIG.Enabled = &enabled
			node.GPUs[0].MIG.Instances = []inventory.MIGInstance{{ID: 5, UUID: "MIG-given", ProfileID: profile.ID, Placement: profile.Placements[0]}}
			withInstance := devicemodel.Build(node, policy)
			for _, m := range []*devicemodel.Model{model, withInstance} {
				checkFractions(t, node, m)
			}
		})
	}
}

func checkFractions(t *testing.T, node inventory.Node, model *devicemodel.Model) {
	t.Helper()
	config := Config{NodeName: "node-a", DriverName: "gpu.apportion.dev"}
	facts := newDeviceFacts(config)
	facts.learn(node, model)
	var published []*resourceapi.ResourceSlice
	for _, slice := range model.Slices() {
		published = append(published, &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
			Driver: "gpu.apportion.dev", Pool: resourceapi.ResourcePool{Name: "node-a"}, Devices: slice.Devices, SharedCounters: slice.SharedCounters,
		}})
	}
	for _, device := range model.Devices {
		for _, divisor := range []int64{1, 3} {
			memory := resource.NewQuantity(device.MemoryBytes/divisor, resource.BinarySI)
			share := types.UID("share")
			recorded := prepare.Device{
				Pool: "node-a", Device: device.API.Name, GPU: device.GPUUUID, ShareID: &share, Consumed: map[string]string{"memory": memory.String()},
			}
			if p := device.Partition; p != nil {
				recorded.Placement = &prepare.Placement{Profile: p.Profile, Start: p.Start, Size: device.Size, Given: device.MIGDevice != ""}
				recorded.MIG = &mig.Instance{UUID: "MIG-given"}
			}
			record := &prepare.Record{Claim: prepare.ClaimRef{Namespace: "team", Name: "claim", UID: "c1"}, Devices: []prepare.Device{recorded}}
			status := statusDevices(config, record, model)[0]
			claim := &resourceapi.ResourceClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "claim", UID: "c1"},
				Status: resourceapi.ResourceClaimStatus{
					Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
						Results: []resourceapi.DeviceRequestAllocationResult{{
							Request: "gpu", Driver: "gpu.apportion.dev", Pool: "node-a", Device: device.API.Name, ShareID: &share,
							ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{"memory": *memory},
						}},
					}},
					Devices: []resourceapi.AllocatedDeviceStatus{{
						Driver: *status.Driver, Pool: *status.Pool, Device: *status.Device, ShareID: status.ShareID, Data: status.Data,
					}},
				},
			}
			inCluster := ownership.Held([]*resourceapi.ResourceClaim{claim}, published, "gpu.apportion.dev")[0].Device.Fraction
			onNode := facts.held([]*prepare.Record{record})[0].Device.Fraction
			if onNode != inCluster || onNode == 0 {
				t.Errorf("a share of 1/%d of %s is %g of the GPU on the node, %g in the cluster", divisor, device.API.Name, onNode, inCluster)
			}
			if device.MIGDevice != "" && divisor == 1 && onNode != 0.125 {
				t.Errorf("the administrator's partition %s is %g of the GPU, want an eighth", device.API.Name, onNode)
			}
		}
	}
}

// Partitions come and go for as long as the driver runs, each with a UUID of its own.
func TestFactsOfPartitionsThatAreGoneAreForgotten(t *testing.T) {
	node := func(instances ...inventory.MIGInstance) inventory.Node {
		return inventory.Node{GPUs: []inventory.GPU{{UUID: "GPU-1", MIG: inventory.MIG{Instances: instances}}}}
	}
	model := devicemodel.Build(inventory.Node{}, devicemodel.Policy{})
	records := []*prepare.Record{{Devices: []prepare.Device{
		{GPU: "GPU-1"}, {GPU: "GPU-1", MIG: &mig.Instance{GPUInstance: 7, UUID: "MIG-held"}},
	}}}
	facts := newDeviceFacts(Config{NodeName: "node-a", DriverName: "gpu.apportion.dev"})
	facts.learn(node(inventory.MIGInstance{ID: 7, UUID: "MIG-held"}, inventory.MIGInstance{ID: 8, UUID: "MIG-free"}, inventory.MIGInstance{ID: 9, UUID: "MIG-there"}), model)
	// The GPU with the held partition is lost, and one of the others was destroyed.
	later := node(inventory.MIGInstance{ID: 9, UUID: "MIG-there"})
	facts.learn(later, model)
	facts.forget(later, records)
	want := map[string]int{"MIG-held": 7, "MIG-there": 9}
	if !reflect.DeepEqual(facts.instances, want) {
		t.Errorf("instances known are %v, want %v", facts.instances, want)
	}
}
