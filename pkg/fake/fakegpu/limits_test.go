package fakegpu

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

const gib = 1 << 30

// newLimitsMachine has an A100 of 40 GiB and a driver that can limit memory.
func newLimitsMachine(t *testing.T) (m *Machine, d nvml.Device) {
	t.Helper()
	m = newMachine(t, "a100-sxm4-40gb")
	must(t, m.SetDriverVersion("615.43.02"))
	return m, gpuAt(t, initialised(t, m), 0)
}

func setLimit(t *testing.T, d nvml.Device, cgroup string, soft, hard uint64) {
	t.Helper()
	if ret := d.SetMemoryLimits_v1(cgroup, soft, hard); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
}

func wantLimit(t *testing.T, d nvml.Device, cgroup string, soft, hard, used uint64) {
	t.Helper()
	got, ret := d.GetMemoryLimits_v1(cgroup)
	want := nvml.MemoryLimits_v1{NameSpace: cgroup, SoftLimit: soft, HardLimit: hard, CurrentUsed: used}
	if ret != nvml.SUCCESS || got != want {
		t.Errorf("limit is %+v, %v; want %+v", got, ret, want)
	}
}

func wantNoLimit(t *testing.T, d nvml.Device, cgroup string) {
	t.Helper()
	if got, ret := d.GetMemoryLimits_v1(cgroup); ret != nvml.ERROR_NOT_FOUND {
		t.Errorf("limit of %s is %+v, %v", cgroup, got, ret)
	}
}

func TestLimitsAreKeptForEachCgroup(t *testing.T) {
	m, d := newLimitsMachine(t)
	one, two := t.TempDir(), t.TempDir()
	wantNoLimit(t, d, one)
	setLimit(t, d, one, 1*gib, 2*gib)
	setLimit(t, d, two, 3*gib, 40*gib)
	wantLimit(t, d, one, 1*gib, 2*gib, 0)
	wantLimit(t, d, two, 3*gib, 40*gib, 0)
	setLimit(t, d, one, 0, gib)
	wantLimit(t, d, one, 0, gib, 0)
	// The library's functions are the handle's.
	if ret := m.NVML().DeviceSetMemoryLimits_v1(d, one, 5, 6); ret != nvml.SUCCESS {
		t.Error(ret)
	}
	if got, ret := m.NVML().DeviceGetMemoryLimits_v1(d, one); ret != nvml.SUCCESS || got.SoftLimit != 5 || got.HardLimit != 6 {
		t.Errorf("%+v, %v", got, ret)
	}
	// Another name of the folder is the same cgroup.
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(one, link))
	wantLimit(t, d, link, 5, 6, 0)

	setLimit(t, d, one, 0, math.MaxUint64)
	wantNoLimit(t, d, one)
	wantLimit(t, d, two, 3*gib, 40*gib, 0)
}

func TestLimitsThatNVMLRefuses(t *testing.T) {
	_, d := newLimitsMachine(t)
	cgroup := t.TempDir()
	file := filepath.Join(cgroup, "cgroup.procs")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, test := range []struct {
		name, cgroup string
		soft, hard   uint64
		want         nvml.Return
	}{
		{"soft above hard", cgroup, 2, 1, nvml.ERROR_INVALID_ARGUMENT},
		{"all of the memory", cgroup, 40 * gib, 40 * gib, nvml.SUCCESS},
		{"more than the memory", cgroup, 1, 40*gib + 1, nvml.ERROR_INVALID_ARGUMENT},
		{"a soft limit alone", cgroup, 1, math.MaxUint64, nvml.ERROR_INVALID_ARGUMENT},
		{"no cgroup", "", 1, 1, nvml.ERROR_OPERATING_SYSTEM},
		{"no such cgroup", filepath.Join(cgroup, "none"), 1, 1, nvml.ERROR_OPERATING_SYSTEM},
		{"a file of a cgroup", file, 1, 1, nvml.ERROR_OPERATING_SYSTEM},
	} {
		if ret := d.SetMemoryLimits_v1(test.cgroup, test.soft, test.hard); ret != test.want {
			t.Errorf("%s: %v, want %v", test.name, ret, test.want)
		}
	}
	wantLimit(t, d, cgroup, 40*gib, 40*gib, 0)
	if _, ret := d.GetMemoryLimits_v1(filepath.Join(cgroup, "none")); ret != nvml.ERROR_OPERATING_SYSTEM {
		t.Errorf("limit of no cgroup: %v", ret)
	}
}

func TestLimitsComeWithTheDriver(t *testing.T) {
	m, d := newLimitsMachine(t)
	cgroup := t.TempDir()
	extensions := m.NVML().Extensions()
	for _, test := range []struct {
		version string
		want    nvml.Return
	}{
		{"580.95.05", nvml.ERROR_FUNCTION_NOT_FOUND},
		{"610.43.02", nvml.ERROR_FUNCTION_NOT_FOUND},
		{"615.10", nvml.SUCCESS},
		{"1000.10", nvml.SUCCESS},
	} {
		must(t, m.SetDriverVersion(test.version))
		for _, symbol := range limitSymbols {
			if got := extensions.LookupSymbol(symbol) == nil; got != (test.want == nvml.SUCCESS) {
				t.Errorf("driver %s has %s: %v", test.version, symbol, got)
			}
		}
		if ret := d.SetMemoryLimits_v1(cgroup, 1, 1); ret != test.want {
			t.Errorf("driver %s: %v, want %v", test.version, ret, test.want)
		}
		if _, ret := d.GetMemoryLimits_v1(cgroup); ret != test.want {
			t.Errorf("driver %s: %v, want %v", test.version, ret, test.want)
		}
	}
	must(t, m.HideSymbols("nvmlDeviceSetMemoryLimits_v1"))
	if ret := d.SetMemoryLimits_v1(cgroup, 1, 1); ret != nvml.ERROR_FUNCTION_NOT_FOUND {
		t.Errorf("a hidden function: %v", ret)
	}
	must(t, m.LoseGPU("0"))
	if _, ret := d.GetMemoryLimits_v1(cgroup); ret != nvml.ERROR_GPU_IS_LOST {
		t.Errorf("a lost GPU: %v", ret)
	}
}

func TestPartitionsHaveNoLimits(t *testing.T) {
	m, _ := newLimitsMachine(t)
	uuid, err := m.CreateMIG("0", "1g.5gb", 0)
	must(t, err)
	partition, ret := m.NVML().DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	if ret := partition.SetMemoryLimits_v1(t.TempDir(), 1, 1); ret != nvml.ERROR_NOT_SUPPORTED {
		t.Error(ret)
	}
	if _, ret := partition.GetMemoryLimits_v1(t.TempDir()); ret != nvml.ERROR_NOT_SUPPORTED {
		t.Error(ret)
	}
}

// A container that is started again has a new cgroup, if maybe with the old one's name.
func TestALimitEndsWithItsCgroup(t *testing.T) {
	m, d := newLimitsMachine(t)
	cgroup := filepath.Join(t.TempDir(), "c")
	must(t, os.Mkdir(cgroup, 0o700))
	setLimit(t, d, cgroup, 1, 2)
	must(t, os.Rename(cgroup, cgroup+"-old"))
	must(t, os.Mkdir(cgroup, 0o700))
	wantNoLimit(t, d, cgroup)
	if limits := summary(t, m).GPUs[0].MemoryLimits; len(limits) != 0 {
		t.Errorf("limits of a cgroup that is gone are shown: %+v", limits)
	}
}

func TestLimitsOfCgroupsThatAreGoneDoNotPileUp(t *testing.T) {
	m, d := newLimitsMachine(t)
	parent := t.TempDir()
	kept := filepath.Join(parent, "kept")
	must(t, os.Mkdir(kept, 0o700))
	setLimit(t, d, kept, 1, 2)
	for i := range 3 * keptLimits {
		cgroup := filepath.Join(parent, fmt.Sprint(i))
		must(t, os.Mkdir(cgroup, 0o700))
		setLimit(t, d, cgroup, 1, 1)
		must(t, os.Remove(cgroup))
	}
	st, err := m.store.read()
	must(t, err)
	if n := len(st.GPUs[0].Limits); n > keptLimits {
		t.Errorf("%d limits are kept", n)
	}
	wantLimit(t, d, kept, 1, 2, 0)
}

func TestLimitsSetAtOnceAreAllKept(t *testing.T) {
	m, d := newLimitsMachine(t)
	var cgroups []string
	var group sync.WaitGroup
	for range 16 {
		cgroup := t.TempDir()
		cgroups = append(cgroups, cgroup)
		group.Go(func() {
			// As separate processes would.
			other, err := Open(m.Dir())
			if err != nil {
				t.Error(err)
				return
			}
			lib := other.NVML()
			lib.Init()
			defer lib.Shutdown()
			own, ret := lib.DeviceGetHandleByIndex(0)
			if ret != nvml.SUCCESS {
				t.Error(ret)
				return
			}
			if ret := own.SetMemoryLimits_v1(cgroup, 1, 2); ret != nvml.SUCCESS {
				t.Error(ret)
			}
		})
	}
	group.Wait()
	for _, cgroup := range cgroups {
		wantLimit(t, d, cgroup, 1, 2, 0)
	}
}
