package devicemodel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

func ptr[T any](v T) *T { return &v }

// l4 is a GPU without MIG and NVLink, of which everything is known.
func l4(uuid, address string) inventory.GPU {
	return inventory.GPU{
		UUID:                  uuid,
		Minor:                 ptr(3),
		PCIBusID:              address,
		PCIeRoot:              "pci0000:00",
		NUMANode:              ptr(1),
		ProductName:           "NVIDIA L4",
		Brand:                 "Nvidia",
		Architecture:          "Ada",
		CUDAComputeCapability: inventory.Version{Raw: "8.9", Semver: "8.9.0"},
		MemoryBytes:           ptr(uint64(24152899584)), // 23034 MiB
		MIG:                   inventory.MIG{Capable: ptr(false)},
	}
}

// a30 is a GPU with MIG, linked with the GPU at peer.
func a30(uuid, address, peer string) inventory.GPU {
	return inventory.GPU{
		UUID:        uuid,
		PCIBusID:    address,
		ProductName: "NVIDIA A30",
		MemoryBytes: ptr(uint64(24 << 30)),
		NVLink:      inventory.NVLink{Peers: []string{peer}},
		MIG: inventory.MIG{
			Capable: ptr(true),
			Enabled: ptr(false),
			Profiles: []inventory.MIGProfile{
				{
					Name: "1g.6gb", ID: 14, Slices: 1, MemoryMiB: 5952, Multiprocessors: 14, CopyEngines: 1, MaxInstances: 4,
					Placements: []inventory.MIGPlacement{{Start: 0, Size: 1}, {Start: 1, Size: 1}, {Start: 2, Size: 1}, {Start: 3, Size: 1}},
				},
				{
					Name: "1g.6gb+me", ID: 21, Slices: 1, MemoryMiB: 5952, Multiprocessors: 14, CopyEngines: 1,
					Decoders: 1, JPEGEngines: 1, OFAEngines: 1, MaxInstances: 1,
					Placements: []inventory.MIGPlacement{{Start: 0, Size: 1}, {Start: 1, Size: 1}, {Start: 2, Size: 1}, {Start: 3, Size: 1}},
				},
				{
					Name: "4g.24gb", ID: 0, Slices: 4, MemoryMiB: 24125, Multiprocessors: 56, CopyEngines: 4,
					Decoders: 4, JPEGEngines: 1, OFAEngines: 1, MaxInstances: 1,
					Placements: []inventory.MIGPlacement{{Start: 0, Size: 4}},
				},
			},
		},
	}
}

const (
	uuidA = "GPU-4f3a1b2c-0000-4000-8000-000000000001"
	uuidB = "GPU-0badcafe-0000-4000-8000-000000000002"
)

func node(gpus ...inventory.GPU) inventory.Node {
	return inventory.Node{
		DriverVersion:     inventory.Version{Raw: "580.95.05", Semver: "580.95.5"},
		CUDADriverVersion: inventory.Version{Raw: "13.0", Semver: "13.0.0"},
		GPUs:              gpus,
	}
}

func text(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
func version(s string) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{VersionValue: &s}
}
func number(n int64) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{IntValue: &n} }
func boolean(b bool) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{BoolValue: &b} }

func quantity(s string) *resource.Quantity { return ptr(resource.MustParse(s)) }

func counters(values map[string]string) map[string]resourceapi.Counter {
	result := map[string]resourceapi.Counter{}
	for name, value := range values {
		result[name] = resourceapi.Counter{Value: resource.MustParse(value)}
	}
	return result
}

// sameQuantities compares quantities by value, not by how they are cached.
var sameQuantities = cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 && a.Format == b.Format })

// wholeOf is the device of the whole GPU of a model of one.
func wholeOf(t *testing.T, m *Model) Device {
	t.Helper()
	d, ok := m.Device("gpu-4f3a1b2c")
	if !ok {
		t.Fatal("there is no device for the whole GPU")
	}
	return d
}

func TestWholeGPU(t *testing.T) {
	m := Build(node(l4(uuidA, "0000:07:00.0")), Policy{})
	want := Device{
		Name:          Name{GPU: "4f3a1b2c"},
		GPUUUID:       uuidA,
		PCIBusID:      "0000:07:00.0",
		Minor:         ptr(3),
		PartOfGPU:     1,
		MemoryBytes:   23034 << 20,
		Shareable:     true,
		MaxShares:     23034, // of 1Mi each
		MinShareBytes: 1 << 20,
		API: resourceapi.Device{
			Name: "gpu-4f3a1b2c",
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"type":                            text("gpu"),
				"uuid":                            text(uuidA),
				"productName":                     text("NVIDIA L4"),
				"brand":                           text("Nvidia"),
				"architecture":                    text("Ada"),
				"cudaComputeCapability":           version("8.9.0"),
				"driverVersion":                   version("580.95.5"),
				"cudaDriverVersion":               version("13.0.0"),
				"migCapable":                      boolean(false),
				"memoryEnforcement":               text("none"),
				"resource.kubernetes.io/pciBusID": text("0000:07:00.0"),
				"resource.kubernetes.io/pcieRoot": text("pci0000:00"),
				"resource.kubernetes.io/numaNode": number(1),
			},
			Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
				"memory": {
					Value: resource.MustParse("23034Mi"),
					RequestPolicy: &resourceapi.CapacityRequestPolicy{
						Default:    quantity("23034Mi"),
						ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: quantity("0"), Max: quantity("23034Mi"), Step: quantity("1Mi")},
					},
				},
				"shares": {
					Value: resource.MustParse("23034"),
					RequestPolicy: &resourceapi.CapacityRequestPolicy{
						Default:    quantity("1"),
						ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: quantity("0"), Max: quantity("23034"), Step: quantity("1")},
					},
				},
				"computePercent": {
					Value: resource.MustParse("100"),
					RequestPolicy: &resourceapi.CapacityRequestPolicy{
						Default:    quantity("0"),
						ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: quantity("0"), Max: quantity("100"), Step: quantity("1")},
					},
				},
			},
			AllowMultipleAllocations: ptr(true),
			ConsumesCounters: []resourceapi.DeviceCounterConsumption{
				{CounterSet: "gpu-4f3a1b2c", Counters: counters(map[string]string{"memory-slice-0": "1"})},
			},
		},
	}
	if diff := cmp.Diff([]Device{want}, m.Devices, sameQuantities); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

func TestCountersOfMIGGPU(t *testing.T) {
	m := Build(node(a30(uuidA, "0000:07:00.0", "0000:08:00.0")), Policy{})
	want := counters(map[string]string{
		"memory-slice-0": "1", "memory-slice-1": "1", "memory-slice-2": "1", "memory-slice-3": "1",
		"multiprocessors": "56", "copy-engines": "4", "decoders": "4", "jpeg-engines": "1", "ofa-engines": "1",
	})
	if diff := cmp.Diff([]resourceapi.CounterSet{{Name: "gpu-4f3a1b2c", Counters: want}}, m.CounterSets, sameQuantities); diff != "" {
		t.Errorf("counter sets (-want +got):\n%s", diff)
	}
	consumed := []resourceapi.DeviceCounterConsumption{{CounterSet: "gpu-4f3a1b2c", Counters: want}}
	if diff := cmp.Diff(consumed, wholeOf(t, m).API.ConsumesCounters, sameQuantities); diff != "" {
		t.Errorf("consumed by the whole GPU (-want +got):\n%s", diff)
	}
}

// A profile whose numbers make no sense is not offered, and counts for nothing.
func TestHostileMIGDataIsNotOffered(t *testing.T) {
	good := a30(uuidA, "", "").MIG.Profiles[0]
	for name, spoil := range map[string]func(*inventory.MIGProfile){
		"too many slices":         func(p *inventory.MIGProfile) { p.Placements[0] = inventory.MIGPlacement{Start: 0, Size: 1000} },
		"far away":                func(p *inventory.MIGProfile) { p.Placements[1].Start = 16 },
		"overflowing":             func(p *inventory.MIGProfile) { p.Placements[1] = inventory.MIGPlacement{Start: 1, Size: math.MaxInt} },
		"negative start":          func(p *inventory.MIGProfile) { p.Placements[0].Start = -1 },
		"empty placement":         func(p *inventory.MIGProfile) { p.Placements[0].Size = 0 },
		"negative engines":        func(p *inventory.MIGProfile) { p.Multiprocessors = -4 },
		"very many engines":       func(p *inventory.MIGProfile) { p.Decoders = math.MaxInt },
		"negative compute slices": func(p *inventory.MIGProfile) { p.Slices = -1 },
		"no instances":            func(p *inventory.MIGProfile) { p.MaxInstances = 0 },
		"very many instances":     func(p *inventory.MIGProfile) { p.MaxInstances = math.MaxInt },
		"no name":                 func(p *inventory.MIGProfile) { p.Name = "" },
		"odd name":                func(p *inventory.MIGProfile) { p.Name = "whole" },
		"no placements":           func(p *inventory.MIGProfile) { p.Placements, p.Multiprocessors, p.CopyEngines = nil, 0, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			gpu := a30(uuidA, "0000:07:00.0", "")
			profile := good
			profile.Placements = slices.Clone(good.Placements)
			spoil(&profile)
			gpu.MIG.Profiles = []inventory.MIGProfile{profile}
			m := Build(node(gpu), Policy{})
			want := []resourceapi.CounterSet{{Name: "gpu-4f3a1b2c", Counters: counters(map[string]string{"memory-slice-0": "1"})}}
			if diff := cmp.Diff(want, m.CounterSets, sameQuantities); diff != "" {
				t.Errorf("counter sets (-want +got):\n%s", diff)
			}
			if len(m.Devices) != 1 || m.Devices[0].Partition != nil {
				t.Errorf("there are %d devices, want the whole GPU", len(m.Devices))
			}
		})
	}
}

func TestGPUOfWhichLittleIsKnownIsPublished(t *testing.T) {
	gpu := inventory.GPU{UUID: uuidA, Problem: "the GPU is lost"}
	m := Build(inventory.Node{GPUs: []inventory.GPU{gpu}}, Policy{MemoryEnforcement: MemoryEnforcementNVML})
	want := Device{
		Name:    Name{GPU: "4f3a1b2c"},
		GPUUUID: uuidA, PartOfGPU: 1,
		Problem: "the GPU is lost",
		API: resourceapi.Device{
			Name: "gpu-4f3a1b2c",
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"type": text("gpu"), "uuid": text(uuidA), "memoryEnforcement": text("none"),
			},
			Taints: []resourceapi.DeviceTaint{{Key: "unhealthy", Value: "lost", Effect: resourceapi.DeviceTaintEffectNoSchedule}},
			ConsumesCounters: []resourceapi.DeviceCounterConsumption{
				{CounterSet: "gpu-4f3a1b2c", Counters: counters(map[string]string{"memory-slice-0": "1"})},
			},
		},
	}
	if diff := cmp.Diff([]Device{want}, m.Devices, sameQuantities); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

func TestMemory(t *testing.T) {
	for _, tc := range []struct {
		name  string
		bytes *uint64
		want  string // of the capacity, "" for none
	}{
		{"unknown", nil, ""},
		{"zero", ptr(uint64(0)), ""},
		{"less than two steps", ptr(uint64(2<<20 - 1)), ""},
		{"smallest", ptr(uint64(2 << 20)), "2Mi"},
		{"rounded down", ptr(uint64(81559<<20 + 5)), "81559Mi"},
		{"whole gibibytes", ptr(uint64(40 << 30)), "40Gi"},
		{"more than a quantity holds", ptr(^uint64(0)), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			gpu := l4(uuidA, "0000:07:00.0")
			gpu.MemoryBytes = tc.bytes
			d := Build(node(gpu), Policy{}).Devices[0]
			if tc.want == "" {
				if d.Shareable || d.MemoryBytes != 0 || d.API.AllowMultipleAllocations != nil || len(d.API.Capacity) > 0 {
					t.Errorf("shareable %v, memory %d, capacity %v, want a GPU that is only given whole", d.Shareable, d.MemoryBytes, d.API.Capacity)
				}
				return
			}
			memory := d.API.Capacity["memory"]
			if got := memory.Value.String(); got != tc.want {
				t.Errorf("memory is %s, want %s", got, tc.want)
			}
			if got := memory.RequestPolicy.Default.String(); got != tc.want {
				t.Errorf("default is %s, want %s", got, tc.want)
			}
			if got := memory.Value.Value(); got != d.MemoryBytes {
				t.Errorf("MemoryBytes is %d, capacity %d", d.MemoryBytes, got)
			}
		})
	}
}

func TestTextsFromHardware(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"plain", "NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"},
		{"outer space", "  NVIDIA L4 ", "NVIDIA L4"},
		{"only space", "   ", ""},
		{"control characters", "NVIDIA\x00\n L4", "NVIDIA L4"},
		{"invalid UTF-8", "NVIDIA\xff L4", "NVIDIA L4"},
		{"64 bytes", strings.Repeat("a", 64), strings.Repeat("a", 64)},
		{"65 bytes", strings.Repeat("a", 65), strings.Repeat("a", 64)},
		{"cut inside a character", strings.Repeat("a", 63) + "é", strings.Repeat("a", 63)},
		{"cut after a space", strings.Repeat("a", 63) + " b", strings.Repeat("a", 63)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			gpu := l4(uuidA, "0000:07:00.0")
			gpu.ProductName = tc.in
			got := ""
			if a, ok := Build(node(gpu), Policy{}).Devices[0].API.Attributes["productName"]; ok {
				got = *a.StringValue
			}
			if got != tc.want {
				t.Errorf("productName of %q is %q, want %q", tc.in, got, tc.want)
			}
		})
	}
}

func TestFactsWithoutValidFormAreAbsent(t *testing.T) {
	gpu := l4(uuidA, "not-an-address")
	gpu.NUMANode = ptr(-1)
	gpu.CUDAComputeCapability = inventory.Version{Raw: "8.9", Semver: "8.9"}
	n := node(gpu)
	n.DriverVersion = inventory.Version{Raw: "580.95.05", Semver: "580.95.05"}
	n.CUDADriverVersion = inventory.Version{Raw: "x", Semver: "1.0." + strings.Repeat("1", 64)}
	attributes := Build(n, Policy{}).Devices[0].API.Attributes
	for _, name := range []resourceapi.QualifiedName{
		"resource.kubernetes.io/pciBusID", "resource.kubernetes.io/numaNode",
		"cudaComputeCapability", "driverVersion", "cudaDriverVersion",
	} {
		if value, ok := attributes[name]; ok {
			t.Errorf("attribute %s is set: %v", name, value)
		}
	}
}

func TestSkipped(t *testing.T) {
	migMode := a30("GPU-aaaaaaaa-0000-4000-8000-000000000001", "0000:01:00.0", "")
	migMode.MIG.ModeNeedsReset, migMode.MIG.Enabled, migMode.MIG.Profiles = true, ptr(true), nil
	migInstances := a30("GPU-aaaaaaab-0000-4000-8000-000000000001", "0000:02:00.0", "")
	migInstances.MIG.Enabled = ptr(true)
	for id, start := range []int{0, 2} {
		instance := inventory.MIGInstance{ID: id, ProfileID: 5, Placement: inventory.MIGPlacement{Start: start, Size: 2}}
		migInstances.MIG.Instances = append(migInstances.MIG.Instances, instance)
	}
	noUUID := inventory.GPU{PCIBusID: "0000:03:00.0", Problem: "the GPU is lost"}
	badUUID := l4("GPU-x", "0000:04:00.0")
	excluded := l4("GPU-aaaaaaac-0000-4000-8000-000000000001", "0000:05:00.0")
	first := l4(uuidA, "0000:06:00.0")
	twice := l4(strings.ToUpper(uuidA), "0000:07:00.0")

	m := Build(node(twice, first, excluded, badUUID, noUUID, migInstances, migMode), Policy{Exclude: []string{"05:00.0"}})
	if len(m.Devices) != 1 || m.Devices[0].PCIBusID != "0000:06:00.0" {
		t.Errorf("devices are %v, want the one at 0000:06:00.0", m.Devices)
	}
	want := []struct {
		address, reason string
		byPolicy        bool
	}{
		{"0000:01:00.0", "it is in MIG mode, so it cannot be used whole, and its MIG profiles cannot be read", false},
		{"0000:02:00.0", "2 GPU instance(s)", false},
		{"0000:03:00.0", "the GPU is lost", false},
		{"0000:04:00.0", `"GPU-x"`, false},
		{"0000:05:00.0", `"05:00.0"`, true},
		{"0000:07:00.0", "same UUID as the GPU at 0000:06:00.0", false},
	}
	if len(m.Skipped) != len(want) {
		t.Fatalf("skipped %d GPUs, want %d: %v", len(m.Skipped), len(want), m.Skipped)
	}
	for i, w := range want {
		got := m.Skipped[i]
		if got.PCIBusID != w.address || !strings.Contains(got.Reason, w.reason) || got.ByPolicy != w.byPolicy {
			t.Errorf("skipped %+v, want %s because of %q, by policy %v", got, w.address, w.reason, w.byPolicy)
		}
	}
}

func TestLookups(t *testing.T) {
	m := Build(node(l4(uuidB, "0000:08:00.0"), l4(uuidA, "0000:07:00.0")), Policy{})
	if d, ok := m.Device("gpu-0badcafe"); !ok || d.GPUUUID != uuidB {
		t.Errorf("Device gave %v, %v", d.GPUUUID, ok)
	}
	if d, ok := m.GPU(uuidA); !ok || d.API.Name != "gpu-4f3a1b2c" {
		t.Errorf("GPU gave %v, %v", d.API.Name, ok)
	}
	if _, ok := m.Device("gpu-4f3a1b2c-mig-1g-6gb-0"); ok {
		t.Error("Device found a partition of a GPU without MIG")
	}
	if got := m.DevicesOf(uuidA); len(got) != 1 {
		t.Errorf("DevicesOf gave %d devices, want 1", len(got))
	}
	if _, ok := m.Device("gpu-00000000"); ok {
		t.Error("Device found a device that is not there")
	}
	if _, ok := m.GPU("GPU-00000000-0000-4000-8000-000000000000"); ok {
		t.Error("GPU found a GPU that is not there")
	}
}

// manyGPUs makes n GPUs of different kinds, of which some share the first digits
// of their UUID.
func manyGPUs(random *rand.Rand, n int) []inventory.GPU {
	var gpus []inventory.GPU
	for i := range n {
		uuid := fmt.Sprintf("GPU-%08x-%04x-4000-8000-%012x", random.Uint32N(4), random.Uint32N(3), i)
		address := fmt.Sprintf("0000:%02x:00.0", i)
		gpu := l4(uuid, address)
		if random.IntN(2) == 0 {
			gpu = a30(uuid, address, fmt.Sprintf("0000:%02x:00.0", random.IntN(n)))
		}
		if random.IntN(5) == 0 {
			gpu.MemoryBytes = nil
		}
		gpus = append(gpus, gpu)
	}
	return gpus
}

func TestProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 17 {
		gpus := manyGPUs(random, n)
		first := Build(node(gpus...), Policy{})
		for range 5 {
			random.Shuffle(len(gpus), func(i, j int) { gpus[i], gpus[j] = gpus[j], gpus[i] })
			before := slices.Clone(gpus)
			again := Build(node(gpus...), Policy{})
			if !reflect.DeepEqual(first, again) {
				t.Fatalf("%d GPUs in another order give another model:\n%s", n, cmp.Diff(first.Slices(), again.Slices(), sameQuantities))
			}
			if !reflect.DeepEqual(before, gpus) {
				t.Fatalf("Build changed its input:\n%s", cmp.Diff(before, gpus))
			}
		}
		names := map[string]bool{}
		for _, d := range first.Devices {
			if names[d.API.Name] {
				t.Errorf("device name %s appears twice", d.API.Name)
			}
			names[d.API.Name] = true
			if errs := validation.IsDNS1123Label(d.API.Name); len(errs) > 0 {
				t.Errorf("device name %s: %v", d.API.Name, errs)
			}
			parsed, err := Parse(d.API.Name)
			if err != nil || parsed != d.Name {
				t.Errorf("Parse(%s) = %v, %v, want %v", d.API.Name, parsed, err, d.Name)
			}
			if len(d.API.Attributes)+len(d.API.Capacity) > 32 {
				t.Errorf("%s has more than 32 attributes and capacities", d.API.Name)
			}
		}
		whole := 0
		for i, d := range first.Devices {
			if d.Partition == nil {
				whole++
			}
			last := i == len(first.Devices)-1 || first.Devices[i+1].GPUUUID != d.GPUUUID
			if last != (d.Partition == nil) {
				t.Errorf("%s is the last of its GPU: %v", d.API.Name, last)
			}
		}
		if whole != n {
			t.Errorf("%d GPUs gave %d whole ones", n, whole)
		}
	}
}
