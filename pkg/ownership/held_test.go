package ownership

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/gpu/inventory"
)

// testSlices are of a GPU that can be partitioned, in the forms that slices may have.
const testSlices = `
metadata: {name: counters}
spec:
  driver: gpu.example.com
  pool: {name: node, generation: 1, resourceSliceCount: 2}
  sharedCounters:
  - name: gpu-4f3a1b2c
    counters: {memory-slice-0: {value: "1"}, memory-slice-1: {value: "1"}, memory-slice-2: {value: "1"}, memory-slice-3: {value: "1"}, decoders: {value: "7"}}
---
metadata: {name: devices}
spec:
  driver: gpu.example.com
  pool: {name: node, generation: 1, resourceSliceCount: 2}
  devices:
  - name: gpu-4f3a1b2c-mig-1g-10gb-2
    attributes: {type: {string: mig}, parentUUID: {string: GPU-4f3a1b2c-x}, profile: {string: 1g.10gb}}
    capacity: {memory: {value: 10Gi}}
    consumesCounters: [{counterSet: gpu-4f3a1b2c, counters: {memory-slice-2: {value: "1"}, decoders: {value: "1"}}}]
  - name: gpu-4f3a1b2c-mig-2g-20gb-0
    attributes:
      gpu.example.com/type: {string: mig}
      gpu.example.com/uuid: {string: MIG-given}
      gpu.example.com/parentUUID: {string: GPU-4f3a1b2c-x}
      gpu.example.com/profile: {string: 2g.20gb}
    capacity: {gpu.example.com/memory: {value: 20Gi}}
    consumesCounters: [{counterSet: gpu-4f3a1b2c, counters: {memory-slice-0: {value: "1"}, memory-slice-1: {value: "1"}}}]
  - name: gpu-4f3a1b2c
    attributes: {type: {string: gpu}, uuid: {string: GPU-4f3a1b2c-x}, other.example.com/uuid: {string: not-this}}
    capacity: {memory: {value: 40Gi}}
    consumesCounters: [{counterSet: gpu-4f3a1b2c, counters: {memory-slice-0: {value: "1"}, memory-slice-1: {value: "1"}, memory-slice-2: {value: "1"}, memory-slice-3: {value: "1"}}}]
---
metadata: {name: someone-else}
spec:
  driver: other.example.com
  pool: {name: node, generation: 9, resourceSliceCount: 1}
  devices: [{name: gpu-4f3a1b2c, attributes: {uuid: {string: GPU-wrong}}}]
---
metadata: {name: no-partitions}
spec:
  driver: gpu.example.com
  pool: {name: node-3, generation: 1, resourceSliceCount: 1}
  devices:
  - name: gpu-0badcafe-mig-2g-20gb-0
    attributes: {type: {string: mig}, uuid: {string: MIG-admin}, parentUUID: {string: GPU-0badcafe-x}, profile: {string: 2g.20gb}}
    capacity: {memory: {value: 20Gi}}
---
metadata: {name: another-node}
spec:
  driver: gpu.example.com
  pool: {name: node-2, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-4f3a1b2c, attributes: {type: {string: gpu}, uuid: {string: GPU-other-node}}}]
`

func TestHeld(t *testing.T) {
	whole := Device{Driver: testDriver, Pool: "node", Name: "gpu-4f3a1b2c", Type: "gpu", UUID: "GPU-4f3a1b2c-x", Fraction: 1}
	onDemand := Device{
		Driver: testDriver, Pool: "node", Name: "gpu-4f3a1b2c-mig-1g-10gb-2", Type: "mig",
		ParentUUID: "GPU-4f3a1b2c-x", Profile: "1g.10gb", Fraction: 0.25,
	}
	given := Device{
		Driver: testDriver, Pool: "node", Name: "gpu-4f3a1b2c-mig-2g-20gb-0", Type: "mig", UUID: "MIG-given",
		ParentUUID: "GPU-4f3a1b2c-x", Profile: "2g.20gb", Fraction: 0.5,
	}
	share := func(d Device, id string, fraction float64) Device {
		d.ShareID, d.Fraction = types.UID(id), fraction
		return d
	}
	claim := ClaimRef{Namespace: "team", Name: "c", UID: "c1"}
	prepared := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, test := range []struct {
		name, status string
		want         []Owner
	}{
		{"not allocated", `{}`, []Owner{}},
		{
			"another driver's and ours",
			`{allocation: {devices: {results: [{request: nic, driver: nic.example.com, pool: node, device: gpu-4f3a1b2c}, {request: gpu, driver: gpu.example.com, pool: node, device: gpu-4f3a1b2c}]}}}`,
			[]Owner{{Device: whole, Claim: claim, Request: "gpu"}},
		},
		{
			"share", `{allocation: {devices: {results: [{request: gpu/small, driver: gpu.example.com, pool: node, device: gpu-4f3a1b2c, shareID: s1, consumedCapacity: {memory: 4096Mi, shares: "1", computePercent: "0"}}]}}}`,
			[]Owner{{Device: share(whole, "s1", 0.1), Claim: claim, Request: "gpu/small", Consumed: map[string]string{"memory": "4Gi", "shares": "1", "computePercent": "0"}}},
		},
		{
			"share that is all", `{allocation: {devices: {results: [{request: gpu, driver: gpu.example.com, pool: node, device: gpu-4f3a1b2c, shareID: s1, consumedCapacity: {memory: 40Gi}}]}}}`,
			[]Owner{{Device: share(whole, "s1", 1), Claim: claim, Request: "gpu", Consumed: map[string]string{"memory": "40Gi"}}},
		},
		{
			"share of a partition, with qualified capacity", `{allocation: {devices: {results: [{request: gpu, driver: gpu.example.com, pool: node, device: gpu-4f3a1b2c-mig-2g-20gb-0, shareID: s1, consumedCapacity: {memory: 10Gi}}]}}}`,
			[]Owner{{Device: share(given, "s1", 0.25), Claim: claim, Request: "gpu", Consumed: map[string]string{"memory": "10Gi"}}},
		},
		{
			"share of unknown size", `{allocation: {devices: {results: [{request: gpu, driver: gpu.example.com, pool: node, device: gpu-4f3a1b2c, shareID: s1}]}}}`,
			[]Owner{{Device: share(whole, "s1", 0), Claim: claim, Request: "gpu"}},
		},
		{
			"admin access", `{allocation: {devices: {results: [{request: gpu, driver: gpu.example.com, pool: node, device: gpu-4f3a1b2c, adminAccess: true}]}}}`,
			[]Owner{{Device: share(whole, "", 0), Claim: claim, Request: "gpu", AdminAccess: true}},
		},
		{
			"several of a request, sorted", `{allocation: {devices: {results: [
{request: gpu, driver: gpu.example.com, pool: node, device: gpu-4f3a1b2c-mig-2g-20gb-0}, {request: gpu, driver: gpu.example.com, pool: node, device: gpu-4f3a1b2c-mig-1g-10gb-2}]}}}`,
			[]Owner{{Device: onDemand, Claim: claim, Request: "gpu"}, {Device: given, Claim: claim, Request: "gpu"}},
		},
		{
			"allocated, not prepared", `{allocation: {allocationTimestamp: "2026-03-04T06:06:07+01:00", devices: {results: [{request: gpu, driver: gpu.example.com, pool: node, device: gpu-4f3a1b2c}]}}}`,
			[]Owner{{Device: whole, Claim: claim, Request: "gpu", Since: prepared}},
		},
		{
			"partition that the node has made", `{allocation: {allocationTimestamp: "2020-01-01T00:00:00Z", devices: {results: [{request: gpu, driver: gpu.example.com, pool: node, device: gpu-4f3a1b2c-mig-1g-10gb-2}]}},
devices: [{driver: gpu.example.com, pool: node, device: gpu-4f3a1b2c, conditions: [{type: Ready, status: "True", lastTransitionTime: "2021-01-01T00:00:00Z"}]},
{driver: gpu.example.com, pool: node, device: gpu-4f3a1b2c-mig-1g-10gb-2, conditions: [{type: MPS, status: "True", lastTransitionTime: "2022-01-01T00:00:00Z"}, {type: Ready, status: "True", lastTransitionTime: "2026-03-04T05:06:07Z"}],
data: {uuid: MIG-made, parentUUID: GPU-4f3a1b2c-x, profile: 1g.10gb, gpuInstance: 9}}]}`,
			[]Owner{{
				Device: func() Device { d := onDemand; d.UUID, d.GPUInstanceID = "MIG-made", ptr.To(9); return d }(),
				Claim:  claim, Request: "gpu", Since: prepared,
			}},
		},
		{
			"look at a partition that is not made", `{allocation: {devices: {results: [{request: gpu, driver: gpu.example.com, pool: node, device: gpu-4f3a1b2c-mig-1g-10gb-2, adminAccess: true}]}},
devices: [{driver: gpu.example.com, pool: node, device: gpu-4f3a1b2c-mig-1g-10gb-2, data: {uuid: GPU-4f3a1b2c-x, parentUUID: GPU-4f3a1b2c-x}}]}`,
			[]Owner{{Device: share(onDemand, "", 0), Claim: claim, Request: "gpu", AdminAccess: true}},
		},
		{
			"limited share, one of two", `{allocation: {devices: {results: [{request: gpu, driver: gpu.example.com, pool: node, device: gpu-4f3a1b2c, shareID: s1, consumedCapacity: {memory: 10Gi}}]}},
devices: [{driver: gpu.example.com, pool: node, device: gpu-4f3a1b2c, shareID: s1, data: {memoryLimitBytes: 10737418240}}, {driver: gpu.example.com, pool: node, device: gpu-4f3a1b2c, shareID: s2, data: {memoryLimitBytes: 1}}]}`,
			[]Owner{{
				Device: share(whole, "s1", 0.25), Claim: claim, Request: "gpu", Consumed: map[string]string{"memory": "10Gi"},
				MemoryLimitBytes: ptr.To[int64](10 << 30),
			}},
		},
		{
			// Without partitions to offer a node publishes no counters.
			"administrator's partition with --no-partitions", `{allocation: {devices: {results: [{request: gpu, driver: gpu.example.com, pool: node-3, device: gpu-0badcafe-mig-2g-20gb-0, shareID: s1, consumedCapacity: {memory: 10Gi}}]}},
devices: [{driver: gpu.example.com, pool: node-3, device: gpu-0badcafe-mig-2g-20gb-0, shareID: s1, data: {uuid: MIG-admin, parentUUID: GPU-0badcafe-x, profile: 2g.20gb, partOfGPU: 0.25}}]}`,
			[]Owner{{
				Device: Device{
					Driver: testDriver, Pool: "node-3", Name: "gpu-0badcafe-mig-2g-20gb-0", Type: "mig", UUID: "MIG-admin",
					ParentUUID: "GPU-0badcafe-x", Profile: "2g.20gb", ShareID: "s1", Fraction: 0.125,
				},
				Claim: claim, Request: "gpu", Consumed: map[string]string{"memory": "10Gi"},
			}},
		},
		{
			"data of another form", `{allocation: {devices: {results: [{request: gpu, driver: gpu.example.com, pool: node, device: gpu-4f3a1b2c-mig-1g-10gb-2}]}},
devices: [{driver: gpu.example.com, pool: node, device: gpu-4f3a1b2c-mig-1g-10gb-2, data: {uuid: [MIG-made]}}]}`,
			[]Owner{{Device: onDemand, Claim: claim, Request: "gpu"}},
		},
		{
			"devices that are not published any more", `{allocation: {devices: {results: [{request: a, driver: gpu.example.com, pool: gone, device: gpu-4f3a1b2c}, {request: b, driver: gpu.example.com, pool: gone, device: gpu-4f3a1b2c-mig-1g-10gb-me-3}, {request: c, driver: gpu.example.com, pool: gone, device: other-0}]}}}`,
			[]Owner{
				{Device: Device{Driver: testDriver, Pool: "gone", Name: "gpu-4f3a1b2c", Type: "gpu", Fraction: 1}, Claim: claim, Request: "a"},
				{Device: Device{Driver: testDriver, Pool: "gone", Name: "gpu-4f3a1b2c-mig-1g-10gb-me-3", Type: "mig", Profile: "1g.10gb+me"}, Claim: claim, Request: "b"},
				{Device: Device{Driver: testDriver, Pool: "gone", Name: "other-0"}, Claim: claim, Request: "c"},
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			claims := parseClaims(t, "metadata: {name: c, uid: c1}\nstatus: "+test.status)
			got := Held(claims, parse[resourceapi.ResourceSlice](t, testSlices), testDriver)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("held (-want +got):\n%s", diff)
			}
		})
	}
}

// While a pool is published anew, its devices are in slices of two generations.
func TestDevicesDoNotVanishWhileAPoolIsPublished(t *testing.T) {
	slices := parse[resourceapi.ResourceSlice](t, `
metadata: {name: a}
spec:
  driver: gpu.example.com
  pool: {name: node, generation: 2, resourceSliceCount: 3}
  devices: [{name: gpu-00000001, attributes: {type: {string: gpu}, uuid: {string: GPU-new}}}]
---
metadata: {name: b}
spec:
  driver: gpu.example.com
  pool: {name: node, generation: 1, resourceSliceCount: 2}
  devices:
  - {name: gpu-00000001, attributes: {type: {string: gpu}, uuid: {string: GPU-old}}}
  - {name: gpu-00000002, attributes: {type: {string: gpu}, uuid: {string: GPU-second}}}
`)
	for range 2 {
		p := NewPublished(testDriver, slices)
		for name, want := range map[string]string{"gpu-00000001": "GPU-new", "gpu-00000002": "GPU-second"} {
			if got := p.Device("node", name, "", nil).UUID; got != want {
				t.Errorf("UUID of %s is %s, want %s", name, got, want)
			}
		}
		slices[0], slices[1] = slices[1], slices[0]
	}
}

func TestShareOfAPublishedDevice(t *testing.T) {
	p := NewPublished(testDriver, parse[resourceapi.ResourceSlice](t, testSlices))
	for _, test := range []struct {
		name     string
		consumed map[string]string
		want     float64
	}{
		{"a quarter", map[string]string{"memory": "10Gi"}, 0.25},
		{"all, of a larger device than is published now", map[string]string{"memory": "80Gi"}, 1},
		{"nothing", map[string]string{"memory": "0"}, 0},
		{"no quantity", map[string]string{"memory": "much"}, 0},
		{"unknown", nil, 0},
	} {
		if got := p.Device("node", "gpu-4f3a1b2c", "s", test.consumed); got.Fraction != test.want || got.ShareID != "s" {
			t.Errorf("%s: share %q of %v, want %v", test.name, got.ShareID, got.Fraction, test.want)
		}
	}
}

// The devices are those that pkg/gpu/devicemodel publishes: its counters say how large a
// partition is.
func TestHeldOfAPublishedModel(t *testing.T) {
	const uuid = "GPU-4f3a1b2c-0000-4000-8000-000000000001"
	yes, memory := true, uint64(80<<30)
	var seven []inventory.MIGPlacement
	for i := range 7 {
		seven = append(seven, inventory.MIGPlacement{Start: i, Size: 1})
	}
	model := devicemodel.Build(inventory.Node{GPUs: []inventory.GPU{{
		UUID: uuid, PCIBusID: "0000:07:00.0", Architecture: "Hopper", MemoryBytes: &memory,
		MIG: inventory.MIG{Capable: &yes, Enabled: &yes, Profiles: []inventory.MIGProfile{
			{Name: "1g.10gb", ID: 19, Slices: 1, MemoryMiB: 9728, Multiprocessors: 16, MaxInstances: 7, Placements: seven},
			{Name: "3g.40gb", ID: 9, Slices: 3, MemoryMiB: 40448, Multiprocessors: 60, MaxInstances: 2, Placements: []inventory.MIGPlacement{{Start: 0, Size: 4}, {Start: 4, Size: 4}}},
		}},
	}}}, devicemodel.Policy{})
	var published []*resourceapi.ResourceSlice
	for _, s := range model.Slices() {
		published = append(published, &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "s"},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: testDriver, Pool: resourceapi.ResourcePool{Name: "node"}, Devices: s.Devices, SharedCounters: s.SharedCounters,
			},
		})
	}
	p := NewPublished(testDriver, published)
	want := []Device{
		{Driver: testDriver, Pool: "node", Name: "gpu-4f3a1b2c-mig-1g-10gb-6", Type: "mig", ParentUUID: uuid, Profile: "1g.10gb", Fraction: 1. / 8},
		{Driver: testDriver, Pool: "node", Name: "gpu-4f3a1b2c-mig-3g-40gb-4", Type: "mig", ParentUUID: uuid, Profile: "3g.40gb", Fraction: 4. / 8},
		{Driver: testDriver, Pool: "node", Name: "gpu-4f3a1b2c", Type: "gpu", UUID: uuid, Fraction: 1},
	}
	for _, d := range want {
		if diff := cmp.Diff(d, p.Device("node", d.Name, "", nil)); diff != "" {
			t.Errorf("device %s (-want +got):\n%s", d.Name, diff)
		}
	}
	half := want[1]
	half.ShareID, half.Fraction = "s", 1./4
	if diff := cmp.Diff(half, p.Device("node", half.Name, "s", map[string]string{"memory": "20224Mi"})); diff != "" {
		t.Errorf("half of a partition (-want +got):\n%s", diff)
	}
}
