package fakegpu

import (
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// helperEnv makes the test binary a process that raises an XID and ends.
const helperEnv = "FAKEGPU_TEST_RAISE_XID_IN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		machine, err := Open(dir)
		if err == nil {
			err = machine.RaiseXID("0", 48)
		}
		if err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// waiting is a set that waits for XIDs of all GPUs.
func waiting(t *testing.T, lib nvml.Interface) nvml.EventSet {
	t.Helper()
	set := succeed[nvml.EventSet](t)(lib.EventSetCreate())
	t.Cleanup(func() { set.Free() })
	for i := range succeed[int](t)(lib.DeviceGetCount()) {
		if ret := gpuAt(t, lib, i).RegisterEvents(nvml.EventTypeXidCriticalError, set); ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
	}
	return set
}

func TestWaitWakesForAnXIDOfAnotherProcess(t *testing.T) {
	m := newMachine(t, "t4:2")
	lib := initialised(t, m)
	set := waiting(t, lib)
	type result struct {
		event nvml.EventData
		ret   nvml.Return
	}
	done := make(chan result, 1)
	go func() {
		e, ret := set.Wait(60_000)
		done <- result{e, ret}
	}()
	program, err := os.Executable()
	must(t, err)
	helper := exec.Command(program)
	helper.Env = append(os.Environ(), helperEnv+"="+m.Dir())
	if out, err := helper.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := <-done
	if got.ret != nvml.SUCCESS || got.event.EventData != 48 || got.event.EventType != nvml.EventTypeXidCriticalError ||
		got.event.Device != gpuAt(t, lib, 0) || got.event.GpuInstanceId != noInstance {
		t.Errorf("%+v", got)
	}
}

func TestEventsComeInOrderAndOnlyThoseRegisteredFor(t *testing.T) {
	m := newMachine(t, "h100-sxm5-80gb:2")
	lib := initialised(t, m)
	must(t, m.RaiseXID("0", 1)) // before the set was made
	set := waiting(t, lib)
	must(t, m.SetMIGMode("0", true)) // another type
	must(t, m.RaiseXID("1", 31))
	must(t, m.LoseGPU("0"))
	must(t, m.RaiseXID("1", 63))
	for _, want := range []struct {
		xid    uint64
		device nvml.Device
	}{{31, gpuAt(t, lib, 1)}, {79, gpuAt(t, lib, 0)}, {63, gpuAt(t, lib, 1)}} {
		e, ret := lib.EventSetWait(set, 0)
		if ret != nvml.SUCCESS || e.EventData != want.xid || e.Device != want.device {
			t.Errorf("XID %d on %v, %v; want %+v", e.EventData, e.Device, ret, want)
		}
	}
	if _, ret := set.Wait(0); ret != nvml.ERROR_TIMEOUT {
		t.Errorf("after the last: %v", ret)
	}
}

func TestMIGChangesAreEvents(t *testing.T) {
	m := newMachine(t, "h100-sxm5-80gb")
	lib := initialised(t, m)
	set := succeed[nvml.EventSet](t)(lib.EventSetCreate())
	defer set.Free()
	if ret := gpuAt(t, lib, 0).RegisterEvents(nvml.EventMigConfigChange, set); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	_, err := m.CreateMIG("0", "1g.10gb", 0)
	must(t, err)
	if e, ret := set.Wait(0); ret != nvml.SUCCESS || e.EventType != nvml.EventMigConfigChange {
		t.Errorf("%+v %v", e, ret)
	}
}

func TestRegisteringWhatAGPUDoesNotReport(t *testing.T) {
	lib := initialised(t, newMachine(t, "t4"))
	set := succeed[nvml.EventSet](t)(lib.EventSetCreate())
	d := gpuAt(t, lib, 0)
	if ret := d.RegisterEvents(nvml.EventMigConfigChange, set); ret != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("MIG events of a T4: %v", ret)
	}
	if ret := d.RegisterEvents(0, set); ret != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("no events: %v", ret)
	}
	if ret := d.RegisterEvents(nvml.EventTypeXidCriticalError, nil); ret != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("no set: %v", ret)
	}
	if ret := set.Free(); ret != nvml.SUCCESS {
		t.Error(ret)
	}
	if ret := set.Free(); ret != nvml.ERROR_UNINITIALIZED {
		t.Errorf("Free again: %v", ret)
	}
}

func TestFreeEndsWait(t *testing.T) {
	lib := initialised(t, newMachine(t, "t4"))
	set := waiting(t, lib)
	done := make(chan nvml.Return, 1)
	go func() {
		_, ret := set.Wait(60_000)
		done <- ret
	}()
	set.Free()
	if ret := <-done; ret != nvml.ERROR_UNINITIALIZED {
		t.Error(ret)
	}
}

func TestOldEventsAreDropped(t *testing.T) {
	m := newMachine(t, "t4")
	set := waiting(t, initialised(t, m))
	for i := range keptEvents + 10 {
		must(t, m.RaiseXID("0", uint64(i)))
	}
	e, ret := set.Wait(0)
	if ret != nvml.SUCCESS || e.EventData != 10 {
		t.Errorf("the oldest is XID %s, %v", strconv.FormatUint(e.EventData, 10), ret)
	}
}
