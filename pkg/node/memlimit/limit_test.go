package memlimit

import (
	"math"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/gpu/inventory"
)

const gib = 1 << 30

// machineWithLimits has an A100 of 40 GiB and a driver that can limit memory.
func machineWithLimits(t *testing.T) (machine *fakegpu.Machine, device nvml.Device, uuid string) {
	t.Helper()
	machine, err := fakegpu.Create(filepath.Join(t.TempDir(), "machine"), fakegpu.Spec{
		Node: "node-a", DriverVersion: "615.43.02", GPUs: []string{"a100-sxm4-40gb"},
	})
	if err != nil {
		t.Fatal(err)
	}
	library := machine.NVML()
	if ret := library.Init(); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	t.Cleanup(func() { library.Shutdown() })
	device, ret := library.DeviceGetHandleByIndex(0)
	if ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	if uuid, ret = device.GetUUID(); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	return machine, device, uuid
}

func TestSharesOfOneContainerAddUpAndOthersHaveTheirOwn(t *testing.T) {
	machine, device, uuid := machineWithLimits(t)
	one, two := t.TempDir(), t.TempDir()
	for _, step := range []struct {
		cgroup     string
		limit      Limit
		soft, hard uint64
	}{
		{one, Limit{4 * gib, 5 * gib}, 4 * gib, 5 * gib},
		{two, Limit{10 * gib, 10 * gib}, 10 * gib, 10 * gib},
		{one, Limit{7 * gib, 7 * gib}, 11 * gib, 12 * gib},
	} {
		if err := Apply(machine.NVML(), uuid, step.cgroup, step.limit); err != nil {
			t.Fatal(err)
		}
		got, ret := device.GetMemoryLimits_v1(step.cgroup)
		if ret != nvml.SUCCESS || got.SoftLimit != step.soft || got.HardLimit != step.hard {
			t.Errorf("limit of %s is %+v, %v; want %d and %d", step.cgroup, got, ret, step.soft, step.hard)
		}
	}
}

func TestLimitsThatCannotBe(t *testing.T) {
	machine, device, uuid := machineWithLimits(t)
	cgroup := t.TempDir()
	other := "GPU-00000000-0000-4000-8000-000000000000"
	if err := Apply(machine.NVML(), uuid, cgroup, Limit{30 * gib, 30 * gib}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, gpu, cgroup string
		limit             Limit
		want              string
	}{
		{"no hard limit", uuid, cgroup, Limit{}, "hard limit is 0"},
		{"no soft limit", uuid, cgroup, Limit{0, gib}, "soft limit 0"},
		{"soft above hard", uuid, cgroup, Limit{2 * gib, gib}, "soft limit 2147483648 is not between"},
		{"NVML's word for no limit", uuid, cgroup, Limit{1, math.MaxUint64}, "means no limit"},
		{"shares above what the GPU has", uuid, cgroup, Limit{30 * gib, 30 * gib}, "to 64424509440 bytes (soft 64424509440): ERROR_INVALID_ARGUMENT"},
		{"more than can be counted", uuid, cgroup, Limit{1, math.MaxUint64 - 1}, "more than can be counted"},
		{"no such GPU", other, cgroup, Limit{gib, gib}, "find GPU " + other},
		{"no such cgroup", uuid, filepath.Join(cgroup, "gone"), Limit{gib, gib}, "gone: no such file"},
	} {
		if err := Apply(machine.NVML(), test.gpu, test.cgroup, test.limit); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error is %v, want one with %q", test.name, err, test.want)
		}
	}
	if got, ret := device.GetMemoryLimits_v1(cgroup); ret != nvml.SUCCESS || got.HardLimit != 30*gib {
		t.Errorf("the limit is %+v, %v; want it as it was", got, ret)
	}
}

func TestDriversThatCannotLimit(t *testing.T) {
	machine, _, uuid := machineWithLimits(t)
	cgroup := t.TempDir()
	for _, test := range []struct {
		name   string
		change func() error
		want   string
	}{
		{"an older driver", func() error { return machine.SetDriverVersion("610.11") }, "615 or newer"},
		{"no driver", func() error { return machine.SetDriverVersion("none") }, "initialize NVML"},
		{"half of the calls", func() error {
			if err := machine.SetDriverVersion("615.43.02"); err != nil {
				return err
			}
			return machine.HideSymbols("nvmlDeviceGetMemoryLimits_v1")
		}, "nvmlDeviceGetMemoryLimits_v1"},
	} {
		if err := test.change(); err != nil {
			t.Fatal(err)
		}
		if err := Apply(machine.NVML(), uuid, cgroup, Limit{gib, gib}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error is %v, want one with %q", test.name, err, test.want)
		}
	}
}

func TestWhereNVMLWasSearchedForInVainTheErrorSaysWhere(t *testing.T) {
	root := t.TempDir()
	err := Apply(inventory.OpenLibrary("", root), "GPU-x", t.TempDir(), Limit{gib, gib})
	if err == nil || !strings.Contains(err.Error(), "driver root "+root) {
		t.Errorf("error is %v", err)
	}
}

// extensions have every symbol.
type extensions struct{}

func (extensions) LookupSymbol(string) error { return nil }

// answers gives an NVML whose one GPU returns these limits, one after the other.
func answers(limits []nvml.MemoryLimits_v1, gets []nvml.Return, set nvml.Return) (lib nvml.Interface, calls *int, got *Limit) {
	calls, got = new(int), new(Limit)
	device := &mock.Device{
		GetMemoryLimits_v1Func: func(string) (nvml.MemoryLimits_v1, nvml.Return) {
			i := *calls
			*calls++
			return limits[i], gets[i]
		},
		SetMemoryLimits_v1Func: func(_ string, soft, hard uint64) nvml.Return {
			*got = Limit{soft, hard}
			return set
		},
	}
	return &mock.Interface{
		InitFunc:                  func() nvml.Return { return nvml.SUCCESS },
		ShutdownFunc:              func() nvml.Return { return nvml.SUCCESS },
		ExtensionsFunc:            func() nvml.ExtendedInterface { return extensions{} },
		DeviceGetHandleByUUIDFunc: func(string) (nvml.Device, nvml.Return) { return device, nvml.SUCCESS },
	}, calls, got
}

func TestALimitThatNVMLDoesNotKeepIsAnError(t *testing.T) {
	unlimited := nvml.MemoryLimits_v1{HardLimit: math.MaxUint64}
	ten := nvml.MemoryLimits_v1{SoftLimit: 10, HardLimit: 10}
	ok, notFound := nvml.SUCCESS, nvml.ERROR_NOT_FOUND
	for _, test := range []struct {
		name   string
		limits []nvml.MemoryLimits_v1
		gets   []nvml.Return
		set    nvml.Return
		want   Limit
		err    string
	}{
		{"none before", []nvml.MemoryLimits_v1{{}, ten}, []nvml.Return{notFound, ok}, ok, Limit{10, 10}, ""},
		{"unlimited before", []nvml.MemoryLimits_v1{unlimited, ten}, []nvml.Return{ok, ok}, ok, Limit{10, 10}, ""},
		{"of another share before", []nvml.MemoryLimits_v1{{SoftLimit: 3, HardLimit: 5}, {SoftLimit: 13, HardLimit: 15}}, []nvml.Return{ok, ok}, ok, Limit{13, 15}, ""},
		{"of another share, in use", []nvml.MemoryLimits_v1{{SoftLimit: 3, HardLimit: 5, CurrentUsed: 1}}, []nvml.Return{ok}, ok, Limit{}, "uses 1 bytes already"},
		{"only a hard limit before", []nvml.MemoryLimits_v1{{HardLimit: 5}}, []nvml.Return{ok}, ok, Limit{}, "somebody else"},
		{"only a soft limit before", []nvml.MemoryLimits_v1{{SoftLimit: 5, HardLimit: math.MaxUint64}}, []nvml.Return{ok}, ok, Limit{}, "somebody else"},
		{"kept something else", []nvml.MemoryLimits_v1{{}, {SoftLimit: 10, HardLimit: 4096}}, []nvml.Return{notFound, ok}, ok, Limit{10, 10}, "is 4096 bytes (soft 10) after it was set to 10 bytes (soft 10)"},
		{"kept another soft limit", []nvml.MemoryLimits_v1{{}, {SoftLimit: 0, HardLimit: 10}}, []nvml.Return{notFound, ok}, ok, Limit{10, 10}, "(soft 0) after"},
		{"kept nothing", []nvml.MemoryLimits_v1{{}, {}}, []nvml.Return{notFound, notFound}, ok, Limit{10, 10}, "after it was set"},
		{"not read back", []nvml.MemoryLimits_v1{{}, {}}, []nvml.Return{notFound, nvml.ERROR_UNKNOWN}, ok, Limit{10, 10}, "back: ERROR_UNKNOWN"},
		{"not root", []nvml.MemoryLimits_v1{{}}, []nvml.Return{notFound}, nvml.ERROR_NO_PERMISSION, Limit{10, 10}, "ERROR_NO_PERMISSION"},
		{"a cgroup of version 1", []nvml.MemoryLimits_v1{{}}, []nvml.Return{nvml.ERROR_OPERATING_SYSTEM}, ok, Limit{}, "systemd.unified_cgroup_hierarchy=1"},
		{"a library whose driver is older", []nvml.MemoryLimits_v1{{}}, []nvml.Return{nvml.ERROR_FUNCTION_NOT_FOUND}, ok, Limit{}, "615 or newer"},
		{"a GPU without limits", []nvml.MemoryLimits_v1{{}}, []nvml.Return{nvml.ERROR_NOT_SUPPORTED}, ok, Limit{}, "GPU cannot limit memory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			lib, calls, set := answers(test.limits, test.gets, test.set)
			err := Apply(lib, "GPU-x", t.TempDir(), Limit{10, 10})
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("error is %v, want %q", err, test.err)
			}
			if *set != test.want || *calls != len(test.gets) {
				t.Errorf("set %v, read %d times; want %v, %d times", *set, *calls, test.want, len(test.gets))
			}
		})
	}
}

// Hooks of one container run one after the other; if a runtime ever runs them at once no
// share is lost.
func TestSharesThatAreSetAtOnceAddUp(t *testing.T) {
	machine, device, uuid := machineWithLimits(t)
	cgroup := t.TempDir()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			other, err := fakegpu.Open(machine.Dir())
			if err == nil {
				err = Apply(other.NVML(), uuid, cgroup, Limit{gib, gib})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got, ret := device.GetMemoryLimits_v1(cgroup); ret != nvml.SUCCESS || got.HardLimit != 8*gib {
		t.Errorf("the limit is %+v, %v", got, ret)
	}
}
