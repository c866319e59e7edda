package devicemodel

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/gpu/inventory"
)

// readGPU is what inventory reads of a product, with the rule of its architecture
// lifted, so that it is offered both whole and partitioned.
func readGPU(t *testing.T, product string) inventory.GPU {
	t.Helper()
	gpu := readNode(t, product).GPUs[0]
	gpu.MIG.ModeNeedsReset = false
	return gpu
}

func readNode(t *testing.T, products ...string) inventory.Node {
	t.Helper()
	machine, err := fakegpu.Create(t.TempDir(), fakegpu.Spec{Node: "node-a", GPUs: products})
	if err != nil {
		t.Fatal(err)
	}
	return snapshot(t, machine)
}

func snapshot(t *testing.T, machine *fakegpu.Machine) inventory.Node {
	t.Helper()
	source := inventory.NewNVML(inventory.Options{Library: machine.NVML(), SysFS: machine.SysFS()})
	n, err := source.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Close(); err != nil {
		t.Error(err)
	}
	return n
}

func migProducts() []fakegpu.Product {
	return slices.DeleteFunc(fakegpu.Products(), func(p fakegpu.Product) bool { return p.MIG == nil })
}

// rules are the hardware's, from a product's data: what the model's counters must
// amount to. They know nothing of counters.
type rules struct {
	profiles []fakegpu.Profile
	engines  fakegpu.Engines
}

// thing is a whole GPU, or a profile at a start.
type thing struct {
	profile string
	start   int
}

var whole = thing{}

func rulesOf(product fakegpu.Product) rules {
	r := rules{profiles: product.MIG.Profiles}
	for _, p := range r.profiles {
		r.engines.Copy = max(r.engines.Copy, p.Engines.Copy)
		r.engines.Decoder = max(r.engines.Decoder, p.Engines.Decoder)
		r.engines.Encoder = max(r.engines.Encoder, p.Engines.Encoder)
		r.engines.JPEG = max(r.engines.JPEG, p.Engines.JPEG)
		r.engines.OFA = max(r.engines.OFA, p.Engines.OFA)
	}
	return r
}

func (r rules) profile(name string) fakegpu.Profile {
	i := slices.IndexFunc(r.profiles, func(p fakegpu.Profile) bool { return p.Name == name })
	return r.profiles[i]
}

func (r rules) things() []thing {
	things := []thing{whole}
	for _, p := range r.profiles {
		for _, start := range p.Placements.Starts {
			things = append(things, thing{p.Name, start})
		}
	}
	return things
}

// allow says whether all of the things can be on one GPU at once.
func (r rules) allow(things ...thing) bool {
	if slices.Contains(things, whole) {
		return len(things) == 1
	}
	var used fakegpu.Engines
	instances, owner := map[string]int{}, map[int]bool{}
	for _, t := range things {
		p := r.profile(t.profile)
		for slice := t.start; slice < t.start+p.Placements.Size; slice++ {
			if owner[slice] {
				return false
			}
			owner[slice] = true
		}
		if instances[t.profile]++; instances[t.profile] > p.MaxInstances {
			return false
		}
		used.Copy += p.Engines.Copy
		used.Decoder += p.Engines.Decoder
		used.Encoder += p.Engines.Encoder
		used.JPEG += p.Engines.JPEG
		used.OFA += p.Engines.OFA
	}
	return used.Copy <= r.engines.Copy && used.Decoder <= r.engines.Decoder && used.Encoder <= r.engines.Encoder &&
		used.JPEG <= r.engines.JPEG && used.OFA <= r.engines.OFA
}

// stock is what is left of one GPU's counters.
type stock map[string]int64

func stockOf(m *Model) stock {
	s := stock{}
	for name, c := range m.CounterSets[0].Counters {
		s[name] = c.Value.Value()
	}
	return s
}

func (s stock) has(d Device) bool {
	for name, c := range consumed(d) {
		if s[name] < c.Value.Value() {
			return false
		}
	}
	return true
}

func (s stock) take(d Device, sign int64) {
	for name, c := range consumed(d) {
		s[name] -= sign * c.Value.Value()
	}
}

func consumed(d Device) map[string]resourceapi.Counter { return d.API.ConsumesCounters[0].Counters }

func thingOf(d Device) thing {
	if d.Partition == nil {
		return whole
	}
	return thing{d.Partition.Profile, d.Partition.Start}
}

func describe(things []thing) string {
	var names []string
	for _, t := range things {
		names = append(names, fmt.Sprintf("%s@%d", t.profile, t.start))
	}
	return strings.Join(names, " ")
}

// checkEverySet compares counters with rules for every set of devices that can be
// at once, and each device on top of it. That covers every pair and every set that
// cannot grow. There are instances already that are no devices, or whose devices
// are among those given. It returns the number of sets.
func checkEverySet(t *testing.T, r rules, m *Model, there []thing) int {
	t.Helper()
	left, sets, errors := stockOf(m), 0, 0
	var visit func(from int, present []thing, taken []bool)
	visit = func(from int, present []thing, taken []bool) {
		sets++
		for i, d := range m.Devices {
			if taken[i] || errors > 10 {
				continue
			}
			next := present
			if !slices.Contains(there, thingOf(d)) {
				next = append(slices.Clone(present), thingOf(d))
			}
			byRules, byCounters := r.allow(next...), left.has(d)
			if byRules != byCounters {
				errors++
				t.Errorf("%s beside [%s]: rules allow it: %v, counters allow it: %v", d.API.Name, describe(present), byRules, byCounters)
				continue
			}
			if byRules && i >= from {
				left.take(d, 1)
				taken[i] = true
				visit(i+1, next, taken)
				taken[i] = false
				left.take(d, -1)
			}
		}
	}
	visit(0, there, make([]bool, len(m.Devices)))
	return sets
}

func TestCountersAllowWhatTheHardwareDoes(t *testing.T) {
	for _, product := range migProducts() {
		t.Run(product.Name, func(t *testing.T) {
			t.Parallel()
			m, r := Build(node(readGPU(t, product.Name)), Policy{}), rulesOf(product)
			got := map[thing]bool{}
			for _, d := range m.Devices {
				got[thingOf(d)] = true
			}
			for _, want := range r.things() {
				if !got[want] {
					t.Errorf("there is no device for %v", want)
				}
			}
			if len(m.Devices) != len(r.things()) {
				t.Errorf("there are %d devices, want %d", len(m.Devices), len(r.things()))
			}
			t.Logf("%d sets", checkEverySet(t, r, m, nil))
		})
	}
}

// What an administrator made is taken into account in the same way: what remains is
// offered, and no more.
func TestCountersAllowWhatTheHardwareDoesBesideForeignInstances(t *testing.T) {
	for _, product := range migProducts() {
		t.Run(product.Name, func(t *testing.T) {
			t.Parallel()
			gpu, r := readGPU(t, product.Name), rulesOf(product)
			partitions := slices.DeleteFunc(r.things(), func(x thing) bool { return x == whole })
			for i, first := range partitions {
				checkForeign(t, r, gpu, []thing{first})
				for _, second := range partitions[i+1:] {
					if r.allow(first, second) {
						checkForeign(t, r, gpu, []thing{first, second})
					}
				}
			}
		})
	}
}

func checkForeign(t *testing.T, r rules, gpu inventory.GPU, there []thing) {
	t.Helper()
	gpu.MIG.Enabled = ptr(true)
	for id, x := range there {
		gpu.MIG.Instances = append(gpu.MIG.Instances, foreignInstance(gpu, x.profile, x.start, id))
	}
	m := Build(node(gpu), Policy{})
	got := map[thing]bool{}
	for _, d := range m.Devices {
		got[thingOf(d)] = true
		if foreign := slices.Contains(there, thingOf(d)); foreign != (d.MIGDevice != "") {
			t.Errorf("beside [%s]: %s has the MIG device %q", describe(there), d.API.Name, d.MIGDevice)
		}
	}
	for _, x := range r.things() {
		if want := slices.Contains(there, x) || r.allow(append(slices.Clone(there), x)...); got[x] != want {
			t.Errorf("beside [%s]: %v is offered: %v, want %v", describe(there), x, got[x], want)
		}
	}
	checkEverySet(t, r, m, there)
}

// foreignInstance is a GPU instance with a compute instance that somebody made.
func foreignInstance(gpu inventory.GPU, profile string, start, id int) inventory.MIGInstance {
	i := slices.IndexFunc(gpu.MIG.Profiles, func(p inventory.MIGProfile) bool { return p.Name == profile })
	p := gpu.MIG.Profiles[i]
	size := p.Placements[0].Size
	return inventory.MIGInstance{
		ID: id, ProfileID: p.ID, Placement: inventory.MIGPlacement{Start: start, Size: size},
		UUID: fmt.Sprintf("MIG-00000000-0000-4000-8000-%012x", id),
	}
}

// The scheduler takes the first device that will do. Of each profile that one must
// leave room for as many other profiles as any of its placements would.
func TestFirstPlacementLeavesRoomForMostProfiles(t *testing.T) {
	for _, product := range migProducts() {
		t.Run(product.Name, func(t *testing.T) {
			m, r := Build(node(readGPU(t, product.Name)), Policy{}), rulesOf(product)
			room := func(x thing) int {
				others := map[string]bool{}
				for _, y := range r.things() {
					if y != whole && r.allow(x, y) {
						others[y.profile] = true
					}
				}
				return len(others)
			}
			seen := map[string]bool{}
			for _, d := range m.Devices {
				x := thingOf(d)
				if x == whole || seen[x.profile] {
					continue
				}
				seen[x.profile] = true
				for _, y := range r.things() {
					if y.profile == x.profile && room(y) > room(x) {
						t.Errorf("%v comes first and leaves room for %d profiles, %v would for %d", x, room(x), y, room(y))
					}
				}
			}
		})
	}
}

// Profiles whose engines and memory slices would allow more instances than the
// hardware have a counter of their own.
func TestLimitedProfileHasACounter(t *testing.T) {
	gpu := a30(uuidA, "0000:07:00.0", "")
	gpu.MIG.Profiles = []inventory.MIGProfile{
		{Name: "1g.6gb", ID: 1, Slices: 1, MemoryMiB: 5952, MaxInstances: 4, Placements: placements(1, 0, 1, 2, 3)},
		{Name: "1g.6gb+me", ID: 2, Slices: 1, MemoryMiB: 5952, MaxInstances: 2, Placements: placements(1, 0, 1, 2, 3)},
		{Name: "2g.12gb", ID: 3, Slices: 2, MemoryMiB: 11968, MaxInstances: 1, Placements: placements(2, 0, 1)},
	}
	m := Build(node(gpu), Policy{})
	left := stockOf(m)
	if want := (stock{"memory-slice-0": 1, "memory-slice-1": 1, "memory-slice-2": 1, "memory-slice-3": 1, "instances-1g-6gb-me": 2}); fmt.Sprint(left) != fmt.Sprint(want) {
		t.Errorf("counters are %v, want %v", left, want)
	}
	for i, start := range []int{3, 1, 0} {
		d, ok := m.Device(fmt.Sprintf("gpu-4f3a1b2c-mig-1g-6gb-me-%d", start))
		if !ok || left.has(d) != (i < 2) {
			t.Errorf("instance %d: found %v, counters allow it %v", i+1, ok, left.has(d))
		}
		left.take(d, 1)
	}
}

// A set has room for 32 counters. What cannot be counted is not offered.
func TestProfileThatCannotBeCountedIsNotOffered(t *testing.T) {
	gpu := a30(uuidA, "0000:07:00.0", "")
	gpu.MIG.Profiles = nil
	for i := range 20 {
		gpu.MIG.Profiles = append(gpu.MIG.Profiles, inventory.MIGProfile{
			Name: fmt.Sprintf("1g.%dgb", i+1), ID: i, Slices: 1, MemoryMiB: 1 << 10, MaxInstances: 1, Placements: placements(1, 0, 15),
		})
	}
	m := Build(node(gpu), Policy{})
	if n := len(m.CounterSets[0].Counters); n != 32 {
		t.Errorf("there are %d counters, want 32", n)
	}
	// 16 profiles with 2 placements each, and the whole GPU.
	if n := len(m.Devices); n != 33 {
		t.Errorf("there are %d devices, want 33", n)
	}
}

func placements(size int, starts ...int) []inventory.MIGPlacement {
	var result []inventory.MIGPlacement
	for _, start := range starts {
		result = append(result, inventory.MIGPlacement{Start: start, Size: size})
	}
	return result
}
