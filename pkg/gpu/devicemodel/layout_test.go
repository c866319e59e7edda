package devicemodel

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// halves is a GPU that can be cut in two, or be one large partition. Only one half
// has a JPEG engine.
func halves() inventory.GPU {
	gpu := l4(uuidA, "0000:07:00.0")
	gpu.Architecture = "Hopper"
	gpu.MIG = inventory.MIG{
		Capable: ptr(true), Enabled: ptr(false),
		Profiles: []inventory.MIGProfile{
			{Name: "2g.12gb", ID: 5, Slices: 2, MemoryMiB: 11968, Multiprocessors: 28, MaxInstances: 2, Placements: placements(2, 0, 2)},
			{Name: "2g.12gb+me", ID: 6, Slices: 2, MemoryMiB: 11968, Multiprocessors: 28, JPEGEngines: 1, MaxInstances: 1, Placements: placements(2, 0, 2)},
			{Name: "4g.24gb", ID: 0, Slices: 4, MemoryMiB: 24000, Multiprocessors: 56, JPEGEngines: 1, MaxInstances: 1, Placements: placements(4, 0)},
		},
	}
	return gpu
}

// offered lists the devices of a node of one GPU, without what their names have in
// common, with "*" where somebody else made them and "!" where they are missing.
func offered(m *Model) string {
	var names []string
	for _, d := range m.Devices {
		name := strings.TrimPrefix(d.API.Name, "gpu-4f3a1b2c")
		name = strings.TrimPrefix(name, "-mig-")
		if name == "" {
			name = "whole"
		}
		if d.MIGDevice != "" {
			name += "*"
		}
		if d.Missing {
			name += "!"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func TestWhatAGPUOffers(t *testing.T) {
	const all = "2g-12gb-2 2g-12gb-0 2g-12gb-me-2 2g-12gb-me-0 4g-24gb-0"
	mode := func(on bool) func(*inventory.GPU) {
		return func(g *inventory.GPU) { g.MIG.Enabled = ptr(on) }
	}
	ampere := func(then func(*inventory.GPU)) func(*inventory.GPU) {
		return func(g *inventory.GPU) { g.MIG.ModeNeedsReset = true; then(g) }
	}
	foreign := func(instances ...inventory.MIGInstance) func(*inventory.GPU) {
		return func(g *inventory.GPU) { g.MIG.Enabled, g.MIG.Instances = ptr(true), instances }
	}
	unreadable := func(g *inventory.GPU) { g.MIG.Enabled, g.MIG.Profiles = ptr(true), nil }
	held := func(profile string, start int) Policy {
		return Policy{Held: map[inventory.Partition]int{{GPU: uuidA, Profile: profile, Start: start}: 0}}
	}
	missing := func(profile string, start int) Policy {
		return Policy{Missing: []inventory.Partition{{GPU: strings.ToLower(uuidA), Profile: profile, Start: start}}}
	}
	without := func(p Policy) Policy { p.NoPartitions = true; return p }
	lower := inventory.MIGInstance{ID: 3, ProfileID: 5, Placement: inventory.MIGPlacement{Start: 0, Size: 2}, UUID: "MIG-1"}
	lowerUnusable, lowerMedia, upper, unknown := lower, lower, lower, lower
	lowerUnusable.UUID = ""
	lowerMedia.ProfileID = 6
	upper.Placement.Start = 2
	unknown.ProfileID = 99

	for _, tc := range []struct {
		name   string
		gpu    func(*inventory.GPU)
		policy Policy
		want   string
		reason string // part of why nothing is offered
	}{
		{"MIG mode off", mode(false), Policy{}, all + " whole", ""},
		{"MIG mode on", mode(true), Policy{}, all + " whole", ""},
		{"MIG mode unknown", func(g *inventory.GPU) { g.MIG.Enabled = nil }, Policy{}, all + " whole", ""},
		{"no MIG", func(g *inventory.GPU) { g.MIG.Capable = ptr(false) }, Policy{}, "whole", ""},
		{"MIG unknown", func(g *inventory.GPU) { g.MIG.Capable = nil }, Policy{}, "whole", ""},
		{"mode needs a reset, off", ampere(mode(false)), Policy{}, "whole", ""},
		{"mode needs a reset, on", ampere(mode(true)), Policy{}, all, ""},
		{"mode needs a reset, unknown", ampere(func(g *inventory.GPU) { g.MIG.Enabled = nil }), Policy{}, "whole", ""},
		{"mode needs a reset, on, profiles unreadable", ampere(unreadable), Policy{}, "", "MIG profiles cannot be read: disable the mode"},
		{"no partitions wanted", mode(false), Policy{NoPartitions: true}, "whole", ""},
		{"no partitions wanted, mode on", mode(true), Policy{NoPartitions: true}, "whole", ""},
		{"no partitions wanted, mode on and needs a reset", ampere(mode(true)), Policy{NoPartitions: true}, "", "this node offers no partitions: disable the mode"},

		{"an administrator's", foreign(lower), Policy{}, "2g-12gb-0* 2g-12gb-2 2g-12gb-me-2", ""},
		{"an administrator's, no partitions wanted", foreign(lower), Policy{NoPartitions: true}, "2g-12gb-0*", ""},
		{"an administrator's with the only engine", foreign(lowerMedia), Policy{}, "2g-12gb-2 2g-12gb-me-0*", ""},
		{"an administrator's two", foreign(lower, upper), Policy{}, "2g-12gb-2* 2g-12gb-0*", ""},
		{"an administrator's without compute instance", foreign(lowerUnusable), Policy{}, "2g-12gb-2 2g-12gb-me-2", ""},
		{"an administrator's of an unknown profile", foreign(unknown), Policy{}, "2g-12gb-2 2g-12gb-me-2", ""},
		{"an administrator's of unknown profiles", foreign(unknown, upper), Policy{NoPartitions: true}, "2g-12gb-2*", ""},
		{"an administrator's that cannot be used", foreign(lowerUnusable), Policy{NoPartitions: true}, "", "1 GPU instance(s) that somebody else made"},

		{"in use", mode(true), held("2g.12gb", 0), all + " whole", ""},
		{"in use, no partitions wanted any more", mode(true), without(held("2g.12gb", 0)), "2g-12gb-0", ""},
		{"in use, mode reported off", ampere(mode(false)), held("2g.12gb", 0), "2g-12gb-0 whole", ""},
		{"in use, beside an administrator's", foreign(upper), held("2g.12gb", 0), "2g-12gb-2* 2g-12gb-0 2g-12gb-me-0", ""},
		{"in use, profiles unreadable", unreadable, held("2g.12gb", 0), "", "claims still hold partitions of it"},
		{"in use, its profile unreadable", func(g *inventory.GPU) { g.MIG.Profiles = g.MIG.Profiles[1:] }, Policy{Held: map[inventory.Partition]int{{GPU: uuidA, Profile: "2g.12gb"}: 0, {GPU: uuidA, Profile: "2g.12gb+me", Start: 2}: 1}}, "2g-12gb-me-2", ""},
		{"another GPU's in use, profiles unreadable", unreadable, Policy{Held: map[inventory.Partition]int{{GPU: uuidB, Profile: "2g.12gb"}: 0}}, "whole", ""},

		{"destroyed by somebody", mode(true), missing("2g.12gb", 0), "2g-12gb-2 2g-12gb-0! 2g-12gb-me-2 2g-12gb-me-0 4g-24gb-0 whole", ""},
		{"destroyed by somebody, mode off", ampere(mode(false)), missing("2g.12gb", 0), "2g-12gb-0! whole", ""},
		{"destroyed by somebody, no partitions wanted any more", mode(true), without(missing("2g.12gb", 0)), "2g-12gb-0!", ""},
		{"destroyed by somebody, profiles unreadable", unreadable, missing("2g.12gb", 0), "whole", ""},
		{"replaced by the same", foreign(lower), missing("2g.12gb", 0), "2g-12gb-0*! 2g-12gb-2 2g-12gb-me-2", ""},
		{"replaced by what overlaps", foreign(lowerMedia), missing("2g.12gb", 0), "2g-12gb-2 2g-12gb-me-0*", ""},
		{"its engine taken by somebody", foreign(lowerMedia), missing("2g.12gb+me", 2), "2g-12gb-2 2g-12gb-me-0*", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			gpu := halves()
			tc.gpu(&gpu)
			m := Build(node(gpu), tc.policy)
			if got := offered(m); got != tc.want {
				t.Errorf("offered is %q, want %q", got, tc.want)
			}
			switch {
			case tc.reason == "" && len(m.Skipped) > 0:
				t.Errorf("skipped: %v", m.Skipped)
			case tc.reason != "" && (len(m.Skipped) != 1 || !strings.Contains(m.Skipped[0].Reason, tc.reason)):
				t.Errorf("skipped: %v, want because of %q", m.Skipped, tc.reason)
			}
			checkCounters(t, m, tc.policy)
		})
	}
}

// checkCounters checks that a device consumes what is there, and that what claims
// hold is there for all of them at once.
func checkCounters(t *testing.T, m *Model, policy Policy) {
	t.Helper()
	if policy.NoPartitions {
		if len(m.CounterSets) > 0 {
			t.Errorf("there are counter sets: %v", m.CounterSets)
		}
		for _, d := range m.Devices {
			if len(d.API.ConsumesCounters) > 0 {
				t.Errorf("%s consumes counters", d.API.Name)
			}
		}
		return
	}
	if len(m.Devices) == 0 {
		return
	}
	left := stockOf(m)
	for _, d := range m.Devices {
		if len(d.API.ConsumesCounters) != 1 || len(consumed(d)) == 0 || !left.has(d) {
			t.Errorf("%s consumes %v of %v", d.API.Name, d.API.ConsumesCounters, left)
		}
	}
	for _, d := range m.Devices {
		_, claimed := policy.Held[inventory.Partition{GPU: d.GPUUUID, Profile: d.Name.Profile, Start: d.Name.Start}]
		if claimed || d.Missing {
			left.take(d, 1)
		}
	}
	for name, n := range left {
		if n < 0 {
			t.Errorf("claims hold more of counter %s than there is", name)
		}
	}
}

func TestPartition(t *testing.T) {
	gpu := halves()
	gpu.NVLink = inventory.NVLink{Switch: true}
	gpu.MIG.Profiles[1].Encoders = 2
	peer := halves()
	peer.UUID, peer.PCIBusID, peer.NVLink = uuidB, "0000:08:00.0", gpu.NVLink
	d, ok := Build(node(gpu, peer), Policy{MemoryEnforcement: MemoryEnforcementNVML}).Device("gpu-4f3a1b2c-mig-2g-12gb-me-2")
	if !ok {
		t.Fatal("there is no such device")
	}
	upTo := func(n string) resourceapi.DeviceCapacity {
		return resourceapi.DeviceCapacity{Value: *quantity(n), RequestPolicy: &resourceapi.CapacityRequestPolicy{
			Default:    quantity("0"),
			ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: quantity("0"), Max: quantity(n), Step: quantity("1")},
		}}
	}
	none := resourceapi.DeviceCapacity{Value: *quantity("0"), RequestPolicy: &resourceapi.CapacityRequestPolicy{
		Default: quantity("0"), ValidValues: []resource.Quantity{*quantity("0")},
	}}
	shares := upTo("11968")
	shares.RequestPolicy.Default = quantity("1")
	want := Device{
		Name:          Name{GPU: "4f3a1b2c", Profile: "2g.12gb+me", Start: 2},
		GPUUUID:       uuidA,
		PCIBusID:      "0000:07:00.0",
		Minor:         ptr(3),
		Partition:     &inventory.Partition{GPU: uuidA, Profile: "2g.12gb+me", Start: 2},
		Size:          2,
		PartOfGPU:     0.5, // 2 of 4 memory slices
		MemoryBytes:   11968 << 20,
		Shareable:     true,
		MaxShares:     11968,
		MinShareBytes: 1 << 20,
		API: resourceapi.Device{
			Name: "gpu-4f3a1b2c-mig-2g-12gb-me-2",
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"type":                            text("mig"),
				"parentUUID":                      text(uuidA),
				"profile":                         text("2g.12gb+me"),
				"productName":                     text("NVIDIA L4"),
				"brand":                           text("Nvidia"),
				"architecture":                    text("Hopper"),
				"cudaComputeCapability":           version("8.9.0"),
				"driverVersion":                   version("580.95.5"),
				"cudaDriverVersion":               version("13.0.0"),
				"memoryEnforcement":               text("none"),
				"resource.kubernetes.io/pciBusID": text("0000:07:00.0"),
				"resource.kubernetes.io/pcieRoot": text("pci0000:00"),
				"resource.kubernetes.io/numaNode": number(1),
			},
			Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
				"memory": {
					Value: *quantity("11968Mi"),
					RequestPolicy: &resourceapi.CapacityRequestPolicy{
						Default:    quantity("11968Mi"),
						ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: quantity("0"), Max: quantity("11968Mi"), Step: quantity("1Mi")},
					},
				},
				"shares":          shares,
				"multiprocessors": upTo("28"),
				"copyEngines":     none,
				"decoders":        none,
				"encoders":        upTo("2"),
				"jpegEngines":     upTo("1"),
				"ofaEngines":      none,
			},
			AllowMultipleAllocations: ptr(true),
			ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: "gpu-4f3a1b2c", Counters: counters(map[string]string{
				"memory-slice-2": "1", "memory-slice-3": "1", "multiprocessors": "28", "encoders": "2", "jpeg-engines": "1",
			})}},
		},
	}
	if diff := cmp.Diff(want, d, sameQuantities); diff != "" {
		t.Errorf("device (-want +got):\n%s", diff)
	}
}

func TestPartitionMadeByAnAdministrator(t *testing.T) {
	gpu := halves()
	gpu.MIG.Enabled = ptr(true)
	gpu.MIG.Instances = []inventory.MIGInstance{foreignInstance(gpu, "2g.12gb+me", 2, 7)}
	m := Build(node(gpu), Policy{})
	d, ok := m.Device("gpu-4f3a1b2c-mig-2g-12gb-me-2")
	if !ok || d.MIGDevice != "MIG-00000000-0000-4000-8000-000000000007" {
		t.Fatalf("device found %v, its MIG device is %q", ok, d.MIGDevice)
	}
	if diff := cmp.Diff(text(d.MIGDevice), d.API.Attributes["uuid"]); diff != "" {
		t.Errorf("uuid (-want +got):\n%s", diff)
	}
	// Its engines are gone from the set, its memory slices are its own.
	want := []resourceapi.CounterSet{{Name: "gpu-4f3a1b2c", Counters: counters(map[string]string{
		"memory-slice-0": "1", "memory-slice-1": "1", "memory-slice-2": "1", "memory-slice-3": "1", "multiprocessors": "28",
	})}}
	if diff := cmp.Diff(want, m.CounterSets, sameQuantities); diff != "" {
		t.Errorf("counter sets (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(counters(map[string]string{"memory-slice-2": "1", "memory-slice-3": "1"}), consumed(d), sameQuantities); diff != "" {
		t.Errorf("consumed counters (-want +got):\n%s", diff)
	}
}

func TestPublishingOrderOfPartitions(t *testing.T) {
	for product, want := range map[string]string{
		"h100-sxm5-80gb":    "1g-10gb 1g-10gb-me 1g-20gb 2g-20gb 3g-40gb 4g-40gb 7g-80gb whole",
		"rtx-pro-6000-96gb": "1g-24gb-no-me 1g-24gb 1g-24gb-gfx 1g-24gb-me 1g-24gb-me-all 2g-48gb-no-me 2g-48gb 2g-48gb-gfx 2g-48gb-me-all 4g-96gb 4g-96gb-gfx whole",
	} {
		t.Run(product, func(t *testing.T) {
			var profiles []string
			for _, d := range Build(node(readGPU(t, product)), Policy{}).Devices {
				label := "whole"
				if d.Partition != nil {
					label, _ = profileLabel(d.Partition.Profile)
				}
				if len(profiles) == 0 || profiles[len(profiles)-1] != label {
					profiles = append(profiles, label)
				}
			}
			if got := strings.Join(profiles, " "); got != want {
				t.Errorf("order is\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// Two of NVML's constants may mean one profile.
func TestProfileThatIsListedTwiceIsPublishedOnce(t *testing.T) {
	gpu := halves()
	gpu.MIG.Profiles = append(gpu.MIG.Profiles, gpu.MIG.Profiles[0])
	if got, want := offered(Build(node(gpu), Policy{})), offered(Build(node(halves()), Policy{})); got != want {
		t.Errorf("offered is %q, want %q", got, want)
	}
}
