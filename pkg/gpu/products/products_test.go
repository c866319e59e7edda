package products

import (
	"slices"
	"strings"
	"testing"
)

func TestAllIsSortedAndLookupFindsEach(t *testing.T) {
	if _, err := load(); err != nil {
		t.Fatal(err)
	}
	all := All()
	if !slices.IsSortedFunc(all, func(a, b Product) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the products are not in order of their names")
	}
	for _, p := range all {
		if got, err := Lookup(p.Name); err != nil || got.ProductName != p.ProductName {
			t.Errorf("lookup of %s: %v, %v", p.Name, got.ProductName, err)
		}
	}
	if _, err := Lookup("gtx"); err == nil || !strings.Contains(err.Error(), `unknown GPU product "gtx"; known are: a100-pcie-80gb, a100-sxm4-40gb,`) {
		t.Errorf("error %v does not list the products", err)
	}
}

func TestProductNamesAreDistinct(t *testing.T) {
	seen := map[string]string{}
	for _, p := range All() {
		if other, twice := seen[p.ProductName]; twice {
			t.Errorf("%s and %s are both called %s", other, p.Name, p.ProductName)
		}
		seen[p.ProductName] = p.Name
	}
}

// mig is a small GPU with two memory slices.
func mig() *MIG {
	return &MIG{MemorySlices: 2, MaxDevices: 2, Profiles: []Profile{{
		Name: "1g.10gb", ID: 19, Slices: 1, MemoryMiB: 10000, Multiprocessors: 16, MaxInstances: 2,
		Placements: Placements{Size: 1, Starts: []int{0, 1}},
	}}}
}

func valid() Product {
	return Product{
		Name: "x100", ProductName: "NVIDIA X100", Brand: "Nvidia", Architecture: "Hopper", ComputeCapability: "9.0",
		Memory: Memory{TotalMiB: 20000}, NVLink: NVLink{Topology: TopologyNone}, MIG: mig(),
	}
}

func TestValidate(t *testing.T) {
	ok := valid()
	if err := ok.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(p *Product){
		`name "X 100"`:                        func(p *Product) { p.Name = "X 100" },
		"productName is missing":              func(p *Product) { p.ProductName = " " },
		`brand "NVIDIA" is unknown`:           func(p *Product) { p.Brand = "NVIDIA" },
		`architecture "hopper" is unknown`:    func(p *Product) { p.Architecture = "hopper" },
		`computeCapability "9" is not`:        func(p *Product) { p.ComputeCapability = "9" },
		"memory.totalMiB is 0":                func(p *Product) { p.Memory.TotalMiB = 0 },
		`nvlink.topology "" is unknown`:       func(p *Product) { p.NVLink.Topology = "" },
		"it is true for Ampere":               func(p *Product) { p.MIG.ModeNeedsReset = true },
		"mig.modeNeedsReset is false":         func(p *Product) { p.Architecture = "Ampere" },
		"mig.memorySlices is 0":               func(p *Product) { p.MIG.MemorySlices = 0 },
		"mig.profiles is empty":               func(p *Product) { p.MIG.Profiles = nil },
		"MIG profile 1g.10gb is there twice":  func(p *Product) { p.MIG.Profiles = append(p.MIG.Profiles, p.MIG.Profiles[0]) },
		`MIG profile "one": its name`:         func(p *Product) { p.MIG.Profiles[0].Name = "one" },
		"memoryMiB is 0":                      func(p *Product) { p.MIG.Profiles[0].MemoryMiB = 0 },
		"maxInstances must be 1 or more":      func(p *Product) { p.MIG.Profiles[0].MaxInstances = 0 },
		"engines must be 0 or more":           func(p *Product) { p.MIG.Profiles[0].Engines.Copy = -1 },
		"placements need a size and starts":   func(p *Product) { p.MIG.Profiles[0].Placements.Starts = nil },
		"the placement at 2 of size 1 is not": func(p *Product) { p.MIG.Profiles[0].Placements.Starts = []int{0, 2} },
		"the placement at 1 is there twice":   func(p *Product) { p.MIG.Profiles[0].Placements.Starts = []int{1, 1} },
	} {
		p := valid()
		change(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestLinked(t *testing.T) {
	for _, test := range []struct {
		topology Topology
		place    int
		want     []int
	}{
		{TopologyNone, 0, nil},
		{TopologySwitch, 0, nil},
		{TopologyBridge, 0, []int{1}},
		{TopologyBridge, 5, []int{4}},
		{TopologyMesh, 0, []int{1, 2, 3, 4}},
		{TopologyMesh, 5, []int{1, 4, 6, 7}},
		{TopologyMesh, 8, []int{9, 10, 11, 12}},
	} {
		var got []int
		for other := range 16 {
			if test.topology.Linked(test.place, other) {
				got = append(got, other)
			}
			if test.topology.Linked(test.place, other) != test.topology.Linked(other, test.place) {
				t.Errorf("%s: %d and %d are linked one way", test.topology, test.place, other)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %d is linked with %v, want %v", test.topology, test.place, got, test.want)
		}
	}
}
