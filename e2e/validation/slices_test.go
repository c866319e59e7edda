// Package validation holds the published devices against the API server's own
// code: what it would accept, and that it would store all of it.
package validation

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/resource"
	_ "k8s.io/kubernetes/pkg/apis/resource/install" // registers the group with the scheme
	registry "k8s.io/kubernetes/pkg/registry/resource/resourceslice"

	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/gpu/inventory"
)

const (
	driverName = "gpu.apportion.dev"
	nodeName   = "node-a"
)

// objects are a pool's slices as they are sent to the API server.
func objects(slices []devicemodel.Slice) []*resourceapi.ResourceSlice {
	var result []*resourceapi.ResourceSlice
	for i, s := range slices {
		node := nodeName
		result = append(result, &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%05x-%s-%s-abcde", i, driverName, nodeName)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver:         driverName,
				Pool:           resourceapi.ResourcePool{Name: nodeName, Generation: 1, ResourceSliceCount: int64(len(slices))},
				NodeName:       &node,
				Devices:        s.Devices,
				SharedCounters: s.SharedCounters,
			},
		})
	}
	return result
}

// create does what the API server does with a new object, with its default
// feature gates: it drops the fields of disabled ones and validates the rest.
// It returns why the API server would refuse the object.
func create(t *testing.T, object *resourceapi.ResourceSlice) error {
	t.Helper()
	internal := &resource.ResourceSlice{}
	if err := legacyscheme.Scheme.Convert(object.DeepCopy(), internal, nil); err != nil {
		t.Fatalf("converting slice %s: %v", object.Name, err)
	}
	ctx := genericapirequest.WithRequestInfo(genericapirequest.WithNamespace(t.Context(), metav1.NamespaceNone), &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: "create", APIGroup: "resource.k8s.io", APIVersion: "v1", Resource: "resourceslices",
	})
	rest.FillObjectMetaSystemFields(internal)
	sent := internal.DeepCopy()
	if err := rest.BeforeCreate(registry.Strategy, ctx, internal); err != nil {
		return err
	}
	if !apiequality.Semantic.DeepEqual(sent.Spec, internal.Spec) {
		return errors.New("fields would be dropped")
	}
	return nil
}

// checkPool checks what the scheduler demands of a pool: unique names, and
// counters that exist. It would take none of its devices otherwise.
func checkPool(t *testing.T, slices []devicemodel.Slice) {
	t.Helper()
	sets := map[string]map[string]resourceapi.Counter{}
	for _, s := range slices {
		for _, set := range s.SharedCounters {
			if sets[set.Name] != nil {
				t.Errorf("counter set %s appears twice", set.Name)
			}
			sets[set.Name] = set.Counters
		}
	}
	devices := map[string]bool{}
	for _, s := range slices {
		for _, d := range s.Devices {
			if devices[d.Name] {
				t.Errorf("device %s appears twice", d.Name)
			}
			devices[d.Name] = true
			for _, consumption := range d.ConsumesCounters {
				for counter := range consumption.Counters {
					if _, ok := sets[consumption.CounterSet][counter]; !ok {
						t.Errorf("device %s consumes counter %s of set %s, which does not exist", d.Name, counter, consumption.CounterSet)
					}
				}
			}
		}
	}
}

// policies are what an administrator, a cluster or the claims on the node may make
// of the devices.
func policies(node inventory.Node) map[string]devicemodel.Policy {
	claimed := devicemodel.Policy{TaintDomain: driverName, MemoryEnforcement: devicemodel.MemoryEnforcementNVML, Held: map[inventory.Partition]int{}}
	for _, gpu := range node.GPUs {
		for i, profile := range gpu.MIG.Profiles {
			for _, placement := range profile.Placements {
				if i%2 == 0 {
					claimed.Held[inventory.Partition{GPU: gpu.UUID, Profile: profile.Name, Start: placement.Start}] = 1
				} else {
					claimed.Missing = append(claimed.Missing, inventory.Partition{GPU: gpu.UUID, Profile: profile.Name, Start: placement.Start})
				}
			}
		}
	}
	return map[string]devicemodel.Policy{
		"zero":          {},
		"exclusive":     {NoShares: true, TaintDomain: driverName},
		"no partitions": {NoPartitions: true},
		"neither":       {NoPartitions: true, NoShares: true},
		"sharing":       {Sharing: devicemodel.SharingPolicy{MaxShares: 3, MinMemory: 5<<30 + 1, ReservedMemory: 12345}},
		"one share":     {Sharing: devicemodel.SharingPolicy{MaxShares: 1, MinMemory: 1 << 60}},
		"claimed":       claimed,
	}
}

// check checks the slices under every policy. Of a policy of zero value there must
// be a number of devices.
func check(t *testing.T, node inventory.Node, wantDevices int) {
	t.Helper()
	for name, policy := range policies(node) {
		if devices := checkSlices(t, name, devicemodel.Build(node, policy).Slices()); name == "zero" && devices != wantDevices {
			t.Errorf("%d devices are published, want %d", devices, wantDevices)
		}
	}
}

// checkSlices returns the number of devices.
func checkSlices(t *testing.T, policy string, slices []devicemodel.Slice) int {
	t.Helper()
	devices := 0
	for _, object := range objects(slices) {
		if err := create(t, object); err != nil {
			t.Errorf("policy %s, slice %s: %v", policy, object.Name, err)
		}
		devices += len(object.Spec.Devices)
	}
	checkPool(t, slices)
	return devices
}

// devicesOf is how many devices a GPU of a product has: itself, and each profile at
// each placement. Where the MIG mode needs a reset, and is off, it has only itself.
func devicesOf(product fakegpu.Product) int {
	devices := 1
	if product.MIG == nil || product.MIG.ModeNeedsReset {
		return devices
	}
	for _, profile := range product.MIG.Profiles {
		devices += len(profile.Placements.Starts)
	}
	return devices
}

func read(t *testing.T, products ...string) inventory.Node {
	t.Helper()
	machine, err := fakegpu.Create(t.TempDir(), fakegpu.Spec{Node: nodeName, GPUs: products})
	if err != nil {
		t.Fatal(err)
	}
	source := inventory.NewNVML(inventory.Options{Library: machine.NVML(), SysFS: machine.SysFS()})
	node, err := source.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Close(); err != nil {
		t.Error(err)
	}
	return node
}

func TestEveryProductInEveryNumber(t *testing.T) {
	for _, product := range fakegpu.Products() {
		t.Run(product.Name, func(t *testing.T) {
			all := make([]string, 16)
			for i := range all {
				all[i] = product.Name
			}
			node := read(t, all...)
			if len(node.GPUs) != 16 {
				t.Fatalf("%d GPUs were read, want 16: %s", len(node.GPUs), node.Problem)
			}
			for n := range 17 {
				some := node
				some.GPUs = node.GPUs[:n]
				t.Run(fmt.Sprint(n), func(t *testing.T) { check(t, some, n*devicesOf(product)) })
			}
		})
	}
}

func TestAllProductsInOneNode(t *testing.T) {
	var products []string
	devices := 0
	for _, product := range fakegpu.Products() {
		products = append(products, product.Name)
		devices += devicesOf(product)
	}
	check(t, read(t, products...), devices)
}

// Every GPU with an architecture whose mode needs no reset, with everything that a
// machine can have wrong, and with partitions that an administrator made.
func TestDamagedAndPartitionedNode(t *testing.T) {
	var products []string
	for _, product := range fakegpu.Products() {
		products = append(products, product.Name)
	}
	node := read(t, products...)
	devices := 0
	for i := range node.GPUs {
		gpu := &node.GPUs[i]
		gpu.Architecture = "Next"
		gpu.Problem = strings.Repeat("ä", 300)
		on := true
		gpu.MIG.Enabled = &on
		for code := range 40 {
			gpu.XIDs = append(gpu.XIDs, inventory.XID{Code: code})
		}
		if len(gpu.MIG.Profiles) == 0 {
			devices++
			continue
		}
		gpu.MIG.Profiles[0].MaxInstances = 1
		gpu.MIG.Instances = []inventory.MIGInstance{{
			ID: 1, ProfileID: gpu.MIG.Profiles[0].ID, Placement: gpu.MIG.Profiles[0].Placements[0], UUID: fmt.Sprintf("MIG-%d", i),
		}}
		// The first profile is that of the whole GPU: nothing fits beside it.
		devices++
	}
	check(t, node, devices)
}

// Hardware and firmware may say anything.
func TestHostileNode(t *testing.T) {
	long := strings.Repeat("ä", 300)
	number := func(n int) *int { return &n }
	huge := ^uint64(0)
	small := uint64(3 << 20)
	node := inventory.Node{
		DriverVersion:     inventory.Version{Raw: long, Semver: "1.2"},
		CUDADriverVersion: inventory.Version{Raw: "x", Semver: long},
	}
	for i, memory := range []*uint64{nil, &huge, &small} {
		node.GPUs = append(node.GPUs, inventory.GPU{
			UUID:                  fmt.Sprintf("GPU-4f3a1b2c-0000-4000-8000-00000000000%d", i),
			Index:                 i,
			PCIBusID:              "10000:01:00.0",
			PCIeRoot:              long,
			NUMANode:              number(-1),
			ProductName:           long,
			Brand:                 "\xff\x00" + long,
			Architecture:          "\n",
			CUDAComputeCapability: inventory.Version{Semver: "9.0.0-" + long},
			MemoryBytes:           memory,
			NVLink:                inventory.NVLink{Peers: []string{long, "10000:01:00.0"}, Switch: i > 0},
			Problem:               long,
			MIG: inventory.MIG{Profiles: []inventory.MIGProfile{{
				Name: long, Multiprocessors: -1, Decoders: 1 << 40, MaxInstances: -3,
				Placements: []inventory.MIGPlacement{{Start: 1 << 40, Size: 1 << 40}, {Start: -1}},
			}}},
		})
	}
	check(t, node, 3)
}

// The check itself must find what the API server refuses.
func TestCheckFindsInvalidSlices(t *testing.T) {
	for name, spoil := range map[string]func(counters, devices *resourceapi.ResourceSliceSpec){
		"counter name": func(counters, _ *resourceapi.ResourceSliceSpec) {
			counters.SharedCounters[0].Counters["memorySlice0"] = resourceapi.Counter{}
		},
		"device name": func(_, devices *resourceapi.ResourceSliceSpec) { devices.Devices[0].Name = "GPU" },
		"version": func(_, devices *resourceapi.ResourceSliceSpec) {
			version := "580.95.05"
			devices.Devices[0].Attributes["driverVersion"] = resourceapi.DeviceAttribute{VersionValue: &version}
		},
		"default off the steps": func(_, devices *resourceapi.ResourceSliceSpec) {
			devices.Devices[0].Capacity["memory"].RequestPolicy.Default.Sub(quantity.MustParse("1"))
		},
		"policy without sharing": func(_, devices *resourceapi.ResourceSliceSpec) {
			devices.Devices[0].AllowMultipleAllocations = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			slices := objects(devicemodel.Build(read(t, "h100-sxm5-80gb"), devicemodel.Policy{}).Slices())
			spoil(&slices[0].Spec, &slices[1].Spec)
			if err := errors.Join(create(t, slices[0]), create(t, slices[1])); err == nil || !strings.Contains(err.Error(), "is invalid") {
				t.Errorf("error is %v, want that an object is invalid", err)
			}
		})
	}
}
