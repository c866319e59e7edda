package inventory_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/gpu/inventory"
)

func machine(t *testing.T, gpus ...string) (*fakegpu.Machine, *inventory.NVML) {
	t.Helper()
	m, err := fakegpu.Create(t.TempDir(), fakegpu.Spec{Node: "node-a", DriverVersion: "580.95.05", GPUs: gpus})
	if err != nil {
		t.Fatal(err)
	}
	return m, inventory.NewNVML(inventory.Options{Library: m.NVML(), SysFS: m.SysFS()})
}

func read(t *testing.T, n *inventory.NVML) inventory.Node {
	t.Helper()
	node, err := n.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return node
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The profiles are those of nvidia-smi mig -lgip for each product.
func TestFakeProducts(t *testing.T) {
	for _, tc := range []struct {
		product, name, architecture, capability, profiles string
		linked                                            bool
	}{
		{"a100-sxm4-40gb", "NVIDIA A100-SXM4-40GB", "Ampere", "8.0.0", "1g.10gb 1g.5gb 1g.5gb+me 2g.10gb 3g.20gb 4g.20gb 7g.40gb", true},
		{"a100-sxm4-80gb", "NVIDIA A100-SXM4-80GB", "Ampere", "8.0.0", "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", true},
		{"a30", "NVIDIA A30", "Ampere", "8.0.0", "1g.6gb 1g.6gb+me 2g.12gb 2g.12gb+me 4g.24gb", true},
		{"h100-sxm5-80gb", "NVIDIA H100 80GB HBM3", "Hopper", "9.0.0", "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", true},
		{"h200-sxm5-141gb", "NVIDIA H200", "Hopper", "9.0.0", "1g.18gb 1g.18gb+me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb", true},
		{"l4", "NVIDIA L4", "Ada", "8.9.0", "", false},
		{"l40s", "NVIDIA L40S", "Ada", "8.9.0", "", false},
		{"t4", "Tesla T4", "Turing", "7.5.0", "", false},
	} {
		t.Run(tc.product, func(t *testing.T) {
			_, n := machine(t, tc.product, tc.product)
			node := read(t, n)
			if len(node.GPUs) != 2 || node.Problem != "" {
				t.Fatalf("node is %+v, want two GPUs", node)
			}
			for _, gpu := range node.GPUs {
				if gpu.ProductName != tc.name || gpu.Architecture != tc.architecture || gpu.CUDAComputeCapability.Semver != tc.capability || gpu.Problem != "" {
					t.Errorf("GPU is %+v", gpu)
				}
				if gpu.Minor == nil || gpu.MemoryBytes == nil || gpu.PCIBusID == "" || gpu.PCIeRoot == "" || gpu.NUMANode == nil || gpu.UUID == "" {
					t.Errorf("facts are missing: %+v", gpu)
				}
				names := map[string]bool{}
				for _, p := range gpu.MIG.Profiles {
					names[p.Name] = true
					if len(p.Placements) == 0 {
						t.Errorf("profile %s has no placements", p.Name)
					}
				}
				want := map[string]bool{}
				for name := range strings.FieldsSeq(tc.profiles) {
					want[name] = true
				}
				if diff := cmp.Diff(want, names); diff != "" {
					t.Errorf("MIG profiles (-want +got):\n%s", diff)
				}
			}
			if got := len(inventory.NVLinkGroups(node)) == 1; got != tc.linked {
				t.Errorf("linked %v, want %v: %+v", got, tc.linked, node.GPUs[0].NVLink)
			}
		})
	}
}

func TestFakeFaults(t *testing.T) {
	m, n := machine(t, "h100-sxm5-80gb", "h100-sxm5-80gb")
	before := read(t, n)
	first := before.GPUs[0].UUID

	must(t, m.Fail(first, "memory", "unknown"))
	want := before
	want.GPUs = append([]inventory.GPU(nil), before.GPUs...)
	want.GPUs[0].MemoryBytes = nil
	got := read(t, n)
	// The names of MIG profiles follow from the memory too.
	want.GPUs[0].MIG.Profiles, got.GPUs[0].MIG.Profiles = nil, nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after the memory cannot be read (-want +got):\n%s", diff)
	}
	must(t, m.Heal(first, "memory"))

	must(t, m.LoseGPU(first))
	got = read(t, n)
	if got.GPUs[0].UUID != first || !strings.Contains(got.GPUs[0].Problem, "lost") || got.GPUs[1].Problem != "" {
		t.Errorf("GPUs are %+v, want the first lost", got.GPUs)
	}
	must(t, m.RestoreGPU(first))
	if diff := cmp.Diff(before, read(t, n)); diff != "" {
		t.Errorf("after all is well again (-want +got):\n%s", diff)
	}

	must(t, m.SetDriverVersion("590.10.01"))
	if got := read(t, n).DriverVersion; got != (inventory.Version{Raw: "590.10.01", Semver: "590.10.1"}) {
		t.Errorf("driver version is %v", got)
	}

	must(t, m.SetMIGMode(first, true))
	uuid, err := m.CreateMIG(first, "3g.40gb", 4)
	must(t, err)
	mig := read(t, n).GPUs[0].MIG
	if !*mig.Enabled || len(mig.Instances) != 1 || mig.Instances[0].UUID != uuid || mig.Instances[0].Placement != (inventory.MIGPlacement{Start: 4, Size: 4}) {
		t.Errorf("MIG is %+v, want one instance at 4", mig)
	}
}

func TestWatchFakeMachine(t *testing.T) {
	m, err := fakegpu.Create(t.TempDir(), fakegpu.Spec{Node: "node-a"})
	must(t, err)
	n := inventory.NewNVML(inventory.Options{Library: m.NVML(), SysFS: m.SysFS(), PollInterval: 10 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan inventory.Node)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.Watch(ctx, func(node inventory.Node) {
			select {
			case seen <- node:
			case <-ctx.Done():
			}
		})
	}()
	// A change of several files may be seen in parts, so it is waited for.
	until := func(what string, reached func(inventory.Node) bool) {
		t.Helper()
		for {
			select {
			case node := <-seen:
				if reached(node) {
					return
				}
			case <-t.Context().Done():
				t.Fatalf("never saw %s", what)
			}
		}
	}
	until("a node without GPUs", func(node inventory.Node) bool { return len(node.GPUs) == 0 && node.Problem == "" })
	uuid, err := m.AddGPU("l4", 3)
	must(t, err)
	until("the new GPU", func(node inventory.Node) bool { return len(node.GPUs) == 1 && node.GPUs[0].UUID == uuid })
	must(t, m.LoseGPU(uuid))
	until("the lost GPU", func(node inventory.Node) bool {
		return len(node.GPUs) == 1 && node.GPUs[0].UUID == uuid && node.GPUs[0].Problem != ""
	})
	must(t, m.RestoreGPU(uuid))
	until("the GPU again", func(node inventory.Node) bool { return len(node.GPUs) == 1 && node.GPUs[0].Problem == "" })
	must(t, m.SetDriverVersion("590.10.01"))
	until("the new driver", func(node inventory.Node) bool { return node.DriverVersion.Raw == "590.10.01" })
	must(t, m.RemoveGPU(uuid))
	until("that the GPU is gone", func(node inventory.Node) bool { return len(node.GPUs) == 0 })
	cancel()
	<-ended
}

func BenchmarkSnapshot16(b *testing.B) {
	gpus := make([]string, 16)
	for i := range gpus {
		gpus[i] = "h100-sxm5-80gb"
	}
	m, err := fakegpu.Create(b.TempDir(), fakegpu.Spec{Node: "node-a", GPUs: gpus})
	if err != nil {
		b.Fatal(err)
	}
	n := inventory.NewNVML(inventory.Options{Library: m.NVML(), SysFS: m.SysFS()})
	for b.Loop() {
		if node, err := n.Snapshot(b.Context()); err != nil || len(node.GPUs) != 16 {
			b.Fatal(fmt.Sprint(len(node.GPUs)), err)
		}
	}
}
