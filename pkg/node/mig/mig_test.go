package mig

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/gpu/inventory"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newMachine is a fake machine, and the UUIDs of its GPUs.
func newMachine(t *testing.T, products ...string) (*fakegpu.Machine, []string) {
	t.Helper()
	m, err := fakegpu.Create(filepath.Join(t.TempDir(), "machine"), fakegpu.Spec{Node: "node-a", DriverVersion: "580.95.05", GPUs: products})
	must(t, err)
	var uuids []string
	for _, gpu := range read(t, m).GPUs {
		uuids = append(uuids, gpu.UUID)
	}
	return m, uuids
}

func read(t *testing.T, m *fakegpu.Machine) inventory.Node {
	t.Helper()
	source := inventory.NewNVML(inventory.Options{Library: m.NVML(), SysFS: m.SysFS()})
	node, err := source.Snapshot(t.Context())
	must(t, errors.Join(err, source.Close()))
	return node
}

// layout is what a GPU's MIG mode and instances are, in the form
// "on 1g.10gb@0 2g.20gb@2(half)".
func layout(t *testing.T, m *fakegpu.Machine, uuid string) string {
	t.Helper()
	for _, gpu := range read(t, m).GPUs {
		if gpu.UUID != uuid {
			continue
		}
		words := []string{"off"}
		if *gpu.MIG.Enabled {
			words[0] = "on"
		}
		if *gpu.MIG.Enabled != *gpu.MIG.Pending {
			words[0] += "(pending)"
		}
		for _, i := range gpu.MIG.Instances {
			name := "?"
			for _, p := range gpu.MIG.Profiles {
				if p.ID == i.ProfileID {
					name = p.Name
				}
			}
			half := ""
			if i.UUID == "" {
				half = "(half)"
			}
			words = append(words, fmt.Sprintf("%s@%d%s", name, i.Placement.Start, half))
		}
		return strings.Join(words, " ")
	}
	return "no GPU"
}

func wantLayout(t *testing.T, m *fakegpu.Machine, uuid, when, want string) {
	t.Helper()
	if got := layout(t, m, uuid); got != want {
		t.Errorf("%s the GPU is %q, want %q", when, got, want)
	}
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", parts)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q lacks %q", err, part)
		}
	}
}

// makeHalf makes a GPU instance without a compute instance. It turns the mode on.
func makeHalf(t *testing.T, m *fakegpu.Machine, p inventory.Partition) {
	t.Helper()
	must(t, m.SetMIGMode(p.GPU, true))
	manager := New(&spy{Interface: m.NVML(), after: func(call string) {
		if call == "CreateGpuInstance" {
			panic(errCrash)
		}
	}})
	if !crashes(t, func() { _, _ = manager.Ensure(t.Context(), p) }) {
		t.Fatal("no GPU instance was made")
	}
}

func TestEveryPartitionOfEveryProduct(t *testing.T) {
	for _, product := range fakegpu.Products() {
		if product.MIG == nil {
			continue
		}
		t.Run(product.Name, func(t *testing.T) {
			m, uuids := newMachine(t, product.Name)
			uuid, manager := uuids[0], New(m.NVML())
			empty := "off"
			if product.MIG.ModeNeedsReset {
				must(t, m.SetMIGMode(uuid, true))
				empty = "on"
			}
			for _, profile := range product.MIG.Profiles {
				for _, start := range profile.Placements.Starts {
					p := inventory.Partition{GPU: uuid, Profile: profile.Name, Start: start}
					made, err := manager.Ensure(t.Context(), p)
					must(t, err)
					wantLayout(t, m, uuid, "with "+p.String(), fmt.Sprintf("on %s@%d", profile.Name, start))
					if !strings.HasPrefix(made.UUID, "MIG-") || made.UUID != read(t, m).GPUs[0].MIG.Instances[0].UUID {
						t.Errorf("%s is %+v", p, made)
					}
					if again, err := manager.Ensure(t.Context(), p); err != nil || again != made {
						t.Errorf("%s again: %+v %v, want %+v", p, again, err, made)
					}
					if found, ok, err := manager.Find(t.Context(), p); err != nil || !ok || found != made {
						t.Errorf("found %+v %v %v, want %+v", found, ok, err, made)
					}
					for range 2 {
						must(t, manager.Remove(t.Context(), p))
						wantLayout(t, m, uuid, "without "+p.String(), empty)
					}
					if found, ok, err := manager.Find(t.Context(), p); err != nil || ok {
						t.Errorf("found %+v %v %v after it was removed", found, ok, err)
					}
				}
			}
		})
	}
}

func TestPartitionsSideBySide(t *testing.T) {
	m, uuids := newMachine(t, "h100-sxm5-80gb")
	uuid, manager := uuids[0], New(m.NVML())
	partitions := []inventory.Partition{
		{GPU: uuid, Profile: "1g.10gb", Start: 6}, {GPU: uuid, Profile: "3g.40gb", Start: 0},
		{GPU: uuid, Profile: "1g.10gb+me", Start: 4}, {GPU: uuid, Profile: "1g.10gb", Start: 5},
	}
	seen := map[string]bool{}
	for _, p := range partitions {
		made, err := manager.Ensure(t.Context(), p)
		must(t, err)
		seen[made.UUID] = true
	}
	if len(seen) != len(partitions) {
		t.Errorf("%d partitions have the UUIDs %v", len(partitions), seen)
	}
	wantLayout(t, m, uuid, "full,", "on 3g.40gb@0 1g.10gb+me@4 1g.10gb@5 1g.10gb@6")
	for i, want := range []string{"on 3g.40gb@0 1g.10gb+me@4 1g.10gb@5", "on 1g.10gb+me@4 1g.10gb@5", "on 1g.10gb@5", "off"} {
		must(t, manager.Remove(t.Context(), partitions[i]))
		wantLayout(t, m, uuid, "later", want)
	}
}

func TestSomebodyElsesInstancesAreNeverTouched(t *testing.T) {
	for _, tc := range []struct {
		name, profile string
		start         int
		ask           inventory.Partition
		parts         []string
	}{
		{"a larger one", "3g.40gb", 0, inventory.Partition{Profile: "1g.10gb", Start: 3}, []string{"taken by the 3g.40gb at 0 (GPU instance 1)"}},
		{"a smaller one", "1g.10gb", 6, inventory.Partition{Profile: "3g.40gb", Start: 4}, []string{"taken by the 1g.10gb at 6"}},
		{"another kind at the same place", "1g.10gb+me", 2, inventory.Partition{Profile: "1g.10gb", Start: 2}, []string{"taken by the 1g.10gb+me at 2"}},
		{"the engines", "1g.10gb+me", 2, inventory.Partition{Profile: "1g.10gb+me", Start: 0}, []string{"too little is left", "1g.10gb+me at 2"}},
		{"the same profile elsewhere", "2g.20gb", 2, inventory.Partition{Profile: "7g.80gb", Start: 0}, []string{"taken by the 2g.20gb at 2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, uuids := newMachine(t, "h100-sxm5-80gb")
			tc.ask.GPU = uuids[0]
			_, err := m.CreateMIG(uuids[0], tc.profile, tc.start)
			must(t, err)
			before := layout(t, m, uuids[0])
			_, err = New(m.NVML()).Ensure(t.Context(), tc.ask)
			wantError(t, err, append(tc.parts, tc.ask.String())...)
			if !errors.Is(err, nvml.ERROR_INSUFFICIENT_RESOURCES) {
				t.Errorf("error %v does not say NVML's code", err)
			}
			must(t, New(m.NVML()).Remove(t.Context(), tc.ask))
			wantLayout(t, m, uuids[0], "afterwards", before)
			wantError(t, New(m.NVML()).EnsureWhole(t.Context(), uuids[0]), "the "+tc.profile, "destroy them", uuids[0])
			wantLayout(t, m, uuids[0], "after asking for the whole", before)
		})
	}
}

func TestWhatCannotBe(t *testing.T) {
	m, uuids := newMachine(t, "h100-sxm5-80gb", "l4")
	manager := New(m.NVML())
	for _, tc := range []struct {
		ask   inventory.Partition
		parts []string
	}{
		{inventory.Partition{GPU: uuids[0], Profile: "1g.5gb", Start: 0}, []string{"no such MIG profile", "7g.80gb"}},
		{inventory.Partition{GPU: uuids[0], Profile: "2g.20gb", Start: 3}, []string{"cannot start at memory slice 3"}},
		{inventory.Partition{GPU: uuids[1], Profile: "1g.10gb", Start: 0}, []string{"cannot be partitioned"}},
		{inventory.Partition{GPU: "GPU-none", Profile: "1g.10gb", Start: 0}, []string{"not there"}},
	} {
		_, err := manager.Ensure(t.Context(), tc.ask)
		wantError(t, err, append(tc.parts, tc.ask.String())...)
		if _, found, err := manager.Find(t.Context(), tc.ask); found || err != nil {
			t.Errorf("found %s: %v %v", tc.ask, found, err)
		}
		must(t, manager.Remove(t.Context(), tc.ask))
	}
	wantLayout(t, m, uuids[0], "afterwards", "off")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := manager.Ensure(ctx, inventory.Partition{GPU: uuids[0], Profile: "1g.10gb", Start: 0})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	wantLayout(t, m, uuids[0], "after an ended context", "off")
}

func TestAPartitionInUseStays(t *testing.T) {
	m, uuids := newMachine(t, "h100-sxm5-80gb")
	p, manager := inventory.Partition{GPU: uuids[0], Profile: "1g.10gb", Start: 0}, New(m.NVML())
	made, err := manager.Ensure(t.Context(), p)
	must(t, err)
	must(t, m.SetLoad(p.GPU, fakegpu.Load{Processes: []fakegpu.Process{{PID: 7, MIGDevice: made.UUID}}}))
	err = manager.Remove(t.Context(), p)
	wantError(t, err, p.String(), "processes still run")
	if !errors.Is(err, nvml.ERROR_IN_USE) {
		t.Errorf("error %v does not say NVML's code", err)
	}
	wantLayout(t, m, p.GPU, "in use", "on 1g.10gb@0")
	must(t, m.SetLoad(p.GPU, fakegpu.Load{}))
	must(t, manager.Remove(t.Context(), p))
	wantLayout(t, m, p.GPU, "afterwards", "off")
}

func TestAHalfPartitionIsCompletedOrRemoved(t *testing.T) {
	for _, remove := range []bool{false, true} {
		m, uuids := newMachine(t, "h100-sxm5-80gb")
		p, manager := inventory.Partition{GPU: uuids[0], Profile: "2g.20gb", Start: 4}, New(m.NVML())
		makeHalf(t, m, p)
		wantLayout(t, m, p.GPU, "at first", "on 2g.20gb@4(half)")
		if _, found, err := manager.Find(t.Context(), p); found || err != nil {
			t.Errorf("found half a partition: %v %v", found, err)
		}
		if remove {
			must(t, manager.Remove(t.Context(), p))
			wantLayout(t, m, p.GPU, "removed", "off")
			continue
		}
		_, err := manager.Ensure(t.Context(), p)
		must(t, err)
		wantLayout(t, m, p.GPU, "completed", "on 2g.20gb@4")
	}
}

// A GPU instance that an administrator divided among two compute instances.
func TestADividedInstanceIsNoPartition(t *testing.T) {
	m, uuids := newMachine(t, "h100-sxm5-80gb")
	p, lib := inventory.Partition{GPU: uuids[0], Profile: "3g.40gb", Start: 4}, m.NVML()
	makeHalf(t, m, p)
	if ret := lib.Init(); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	device, _ := lib.DeviceGetHandleByUUID(p.GPU)
	gi, _ := device.GetGpuInstanceById(read(t, m).GPUs[0].MIG.Instances[0].ID)
	for _, index := range []int{nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE, nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE} {
		info, _ := gi.GetComputeInstanceProfileInfo(index, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if _, ret := gi.CreateComputeInstance(&info); ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
	}
	manager := New(lib)
	if _, found, err := manager.Find(t.Context(), p); found || err != nil {
		t.Errorf("found a divided partition: %v %v", found, err)
	}
	_, err := manager.Ensure(t.Context(), p)
	wantError(t, err, "somebody divided the 3g.40gb at 4")
	wantLayout(t, m, p.GPU, "after Ensure", "on 3g.40gb@4")
	must(t, manager.Remove(t.Context(), p))
	wantLayout(t, m, p.GPU, "after Remove", "off")
}

func TestGPUsAtOnce(t *testing.T) {
	m, uuids := newMachine(t, "h100-sxm5-80gb", "h100-sxm5-80gb", "h100-sxm5-80gb", "h100-sxm5-80gb")
	manager := New(m.NVML())
	var wg sync.WaitGroup
	for _, uuid := range uuids {
		wg.Go(func() {
			for start := range 3 {
				p := inventory.Partition{GPU: uuid, Profile: "1g.10gb", Start: start}
				if _, err := manager.Ensure(t.Context(), p); err != nil {
					t.Error(err)
				}
				if err := manager.Remove(t.Context(), p); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, uuid := range uuids {
		wantLayout(t, m, uuid, "afterwards", "off")
	}
}
