package fakegpu

import (
	"slices"
	"strings"
	"testing"

	nvlib "github.com/NVIDIA/go-nvlib/pkg/nvlib/device"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"apportion.dev/apportion/pkg/fake/internal/chassis"
	"apportion.dev/apportion/pkg/fake/migrules"
)

func TestProductsAreKnown(t *testing.T) {
	want := []string{
		"a100-pcie-80gb", "a100-sxm4-40gb", "a100-sxm4-80gb", "a10g", "a30", "b200", "h100-nvl-94gb", "h100-sxm5-80gb", "h200-sxm5-141gb",
		"l4", "l40s", "rtx-pro-6000-96gb", "t4", "v100-sxm2-16gb", "v100-sxm2-32gb",
	}
	var got []string
	for _, p := range Products() {
		got = append(got, p.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestProductsAreWhole(t *testing.T) {
	for _, p := range Products() {
		t.Run(p.Name, func(t *testing.T) {
			if _, ok := brands[p.Brand]; !ok {
				t.Errorf("unknown brand %q", p.Brand)
			}
			if _, ok := architectures[p.Architecture]; !ok {
				t.Errorf("unknown architecture %q", p.Architecture)
			}
			if _, _, err := p.ComputeCapabilityNumbers(); err != nil {
				t.Error(err)
			}
			if p.PCI.DeviceID&0xffff != 0x10de || p.PCI.SubsystemID&0xffff != 0x10de {
				t.Errorf("PCI ids %#x %#x are not NVIDIA's", p.PCI.DeviceID, p.PCI.SubsystemID)
			}
			if linked := p.NVLink.Topology != TopologyNone; linked != (p.NVLink.Links > 0) {
				t.Errorf("topology %s with %d links", p.NVLink.Topology, p.NVLink.Links)
			}
			if p.Power.IdleWatts >= p.Power.LimitWatts || p.Memory.ReservedMiB >= p.Memory.TotalMiB || p.Cores == 0 {
				t.Errorf("implausible: %+v", p)
			}
		})
	}
}

// go-nvlib computes the names of profiles from their sizes; they must be those in
// the data, or nvcdi and the data disagree.
func TestProfileNamesAreThoseOfGoNvlib(t *testing.T) {
	lib := nvlib.New(nil)
	for _, p := range Products() {
		if p.MIG == nil {
			continue
		}
		for _, q := range p.MIG.Profiles {
			c := slices.IndexFunc(migrules.ComputeProfiles(&q), func(c migrules.ComputeProfile) bool { return c.Slices == q.Slices })
			if c < 0 {
				t.Errorf("%s %s has no full compute instance", p.Name, q.Name)
				continue
			}
			m, err := lib.NewMigProfile(q.Index, migrules.ComputeProfiles(&q)[c].ID, 0, q.MemoryMiB, p.Memory.TotalMiB*mebibyte)
			if err != nil {
				t.Fatal(err)
			}
			if m.String() != q.Name {
				t.Errorf("%s: go-nvlib calls %s %s", p.Name, q.Name, m)
			}
		}
	}
}

func TestProfilesFitAsOftenAsTheySay(t *testing.T) {
	for _, p := range Products() {
		if p.MIG == nil {
			continue
		}
		ids := map[int]bool{}
		for _, q := range p.MIG.Profiles {
			if ids[q.ID] {
				t.Errorf("%s: id %d twice", p.Name, q.ID)
			}
			ids[q.ID] = true
			if got := migrules.Remaining(&p, nil, &q); got != q.MaxInstances {
				t.Errorf("%s: %d instances of %s fit on an empty GPU, not %d", p.Name, got, q.Name, q.MaxInstances)
			}
			for _, start := range q.Placements.Starts {
				if start+q.Placements.Size > p.MIG.MemorySlices {
					t.Errorf("%s: %s at %d ends beyond the GPU", p.Name, q.Name, start)
				}
			}
		}
	}
}

func TestLookupProductListsTheKnown(t *testing.T) {
	_, err := LookupProduct("h100")
	if err == nil || !strings.Contains(err.Error(), "h100-sxm5-80gb, h200-sxm5-141gb") {
		t.Errorf("error %v does not list the products", err)
	}
}

func TestParseGPUs(t *testing.T) {
	eight := slices.Repeat([]string{"h100-sxm5-80gb"}, 8)
	tests := []struct {
		list  string
		want  []string
		error string
	}{
		{list: "", want: nil},
		{list: "none", want: nil},
		{list: "t4", want: []string{"t4"}},
		{list: "h100-sxm5-80gb:8", want: eight},
		{list: " l4:2 , t4 ", want: []string{"l4", "l4", "t4"}},
		{list: "t4:16", want: slices.Repeat([]string{"t4"}, 16)},
		{list: "t4:17", error: "more than 16"},
		{list: "t4:9,l4:8", error: "more than 16"},
		{list: "t4:0", error: "must be 1 to 16"},
		{list: "t4:x", error: "must be 1 to 16"},
		{list: "gtx", error: "unknown GPU product"},
		{list: "t4,,l4", error: "unknown GPU product"},
	}
	for _, test := range tests {
		got, err := ParseGPUs(test.list)
		checkParsed(t, test.list, got, err, test.want, test.error)
	}
}

func TestGPUsForNode(t *testing.T) {
	const table = "node-a=h100-sxm5-80gb:2; node-b=none;*=t4:1"
	tests := []struct {
		table, node string
		want        []string
		error       string
	}{
		{table: table, node: "node-a", want: []string{"h100-sxm5-80gb", "h100-sxm5-80gb"}},
		{table: table, node: "node-b", want: nil},
		{table: table, node: "node-c", want: []string{"t4"}},
		{table: "node-a=l4", node: "node-c", want: nil},
		{table: "l4:2", node: "node-c", want: []string{"l4", "l4"}},
		{table: "node-a=l4;node-a=t4", node: "node-a", error: "two entries"},
		{table: "node-a=l4;t4", node: "node-a", error: "NODE=PRODUCT:NUMBER"},
		{table: "node-a=l4;node-b=gtx", node: "node-a", error: "unknown GPU product"},
	}
	for _, test := range tests {
		got, err := GPUsForNode(test.table, test.node)
		checkParsed(t, test.table+" for "+test.node, got, err, test.want, test.error)
	}
}

func checkParsed(t *testing.T, name string, got []string, err error, want []string, wantError string) {
	t.Helper()
	switch {
	case wantError == "" && err != nil:
		t.Errorf("%s: %v", name, err)
	case wantError != "" && (err == nil || !strings.Contains(err.Error(), wantError)):
		t.Errorf("%s: error %v, want one with %q", name, err, wantError)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s", name, diff)
	}
}

// In a hybrid cube mesh the first GPU is linked with the other three of its four and with
// the first of the others.
func TestV100AreLinkedAsAMesh(t *testing.T) {
	m := newMachine(t, "v100-sxm2-16gb:8")
	lib := initialised(t, m)
	for gpu, want := range map[int][]int{0: {1, 2, 3, 4}, 6: {2, 4, 5, 7}} {
		d := gpuAt(t, lib, gpu)
		linked := map[string]bool{}
		for link := range 6 {
			if state := succeed[nvml.EnableState](t)(d.GetNvLinkState(link)); state != nvml.FEATURE_ENABLED {
				t.Errorf("link %d of GPU %d is not up", link, gpu)
			}
			if kind := succeed[nvml.IntNvLinkDeviceType](t)(d.GetNvLinkRemoteDeviceType(link)); kind != nvml.NVLINK_DEVICE_TYPE_GPU {
				t.Errorf("link %d of GPU %d ends at %v", link, gpu, kind)
			}
			info := succeed[nvml.PciInfo](t)(d.GetNvLinkRemotePciInfo(link))
			linked[chassis.PCIAddress(info.Bus)] = true
		}
		wanted := map[string]bool{}
		for _, other := range want {
			wanted[chassis.PCIAddress(succeed[nvml.PciInfo](t)(gpuAt(t, lib, other).GetPciInfo()).Bus)] = true
		}
		if diff := cmp.Diff(wanted, linked); diff != "" {
			t.Errorf("GPU %d: %s", gpu, diff)
		}
		if _, ret := d.GetNvLinkState(6); ret != nvml.ERROR_INVALID_ARGUMENT {
			t.Errorf("a seventh link of GPU %d: %v", gpu, ret)
		}
	}
}
