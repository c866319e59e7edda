package fakegpu

import (
	"reflect"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func TestALostGPUIsCountedAndAnswersNothing(t *testing.T) {
	m := newMachine(t, "h100-sxm5-80gb:2")
	lib := initialised(t, m)
	held := gpuAt(t, lib, 0)
	must(t, m.LoseGPU("0"))
	if got := succeed[int](t)(lib.DeviceGetCount()); got != 2 {
		t.Errorf("%d GPUs", got)
	}
	for name, d := range map[string]nvml.Device{"held": held, "new": gpuAt(t, lib, 0)} {
		if _, ret := d.GetUUID(); ret != nvml.ERROR_GPU_IS_LOST {
			t.Errorf("%s handle, UUID: %v", name, ret)
		}
		if _, ret := d.GetMemoryInfo(); ret != nvml.ERROR_GPU_IS_LOST {
			t.Errorf("%s handle, memory: %v", name, ret)
		}
	}
	if _, ret := gpuAt(t, lib, 1).GetUUID(); ret != nvml.SUCCESS {
		t.Errorf("its neighbour: %v", ret)
	}
	must(t, m.RestoreGPU("0"))
	if _, ret := held.GetUUID(); ret != nvml.SUCCESS {
		t.Errorf("after it is back: %v", ret)
	}
}

func TestOnlyThePropertyThatFailsFails(t *testing.T) {
	m := newMachine(t, "h100-sxm5-80gb:2")
	lib := initialised(t, m)
	must(t, m.Fail("0", "memory", "timeout"))
	d, other := gpuAt(t, lib, 0), gpuAt(t, lib, 1)
	if _, ret := d.GetMemoryInfo(); ret != nvml.ERROR_TIMEOUT {
		t.Errorf("memory: %v", ret)
	}
	if _, ret := d.GetMemoryInfo_v2(); ret != nvml.ERROR_TIMEOUT {
		t.Errorf("memory v2: %v", ret)
	}
	if _, ret := d.GetName(); ret != nvml.SUCCESS {
		t.Errorf("name: %v", ret)
	}
	if _, ret := other.GetMemoryInfo(); ret != nvml.SUCCESS {
		t.Errorf("memory of the other: %v", ret)
	}
	must(t, m.Heal("0", "memory"))
	if _, ret := d.GetMemoryInfo(); ret != nvml.SUCCESS {
		t.Errorf("memory after healing: %v", ret)
	}
}

// Every property names methods that exist, or it fails nothing.
func TestPropertiesNameMethods(t *testing.T) {
	known := map[string]bool{"DestroyGpuInstance": true, "DestroyComputeInstance": true}
	for _, handle := range []reflect.Type{reflect.TypeFor[device](), reflect.TypeFor[gpuInstanceHandle]()} {
		for i := range handle.NumMethod() {
			known[handle.Method(i).Name] = true
		}
	}
	for property, calls := range properties {
		for _, call := range calls {
			if !known[call] {
				t.Errorf("%s names %s, which is no method", property, call)
			}
		}
	}
}

func TestARemovedGPUIsGoneForItsHolders(t *testing.T) {
	m := newMachine(t, "t4:2")
	lib := initialised(t, m)
	held := gpuAt(t, lib, 0)
	uuid := succeed[string](t)(held.GetUUID())
	must(t, m.RemoveGPU("0"))
	if got := succeed[int](t)(lib.DeviceGetCount()); got != 1 {
		t.Errorf("%d GPUs", got)
	}
	if _, ret := held.GetName(); ret != nvml.ERROR_GPU_IS_LOST {
		t.Errorf("its handle: %v", ret)
	}
	if _, ret := lib.DeviceGetHandleByUUID(uuid); ret != nvml.ERROR_NOT_FOUND {
		t.Errorf("by UUID: %v", ret)
	}
}

func TestWithoutADriverNothingWorks(t *testing.T) {
	m := newMachine(t, "t4")
	lib := initialised(t, m)
	must(t, m.SetDriverVersion("none"))
	if _, ret := lib.DeviceGetCount(); ret != nvml.ERROR_DRIVER_NOT_LOADED {
		t.Errorf("count: %v", ret)
	}
	if ret := lib.Init(); ret != nvml.ERROR_DRIVER_NOT_LOADED {
		t.Errorf("Init: %v", ret)
	}
	must(t, m.SetDriverVersion("570.124.06"))
	if got := succeed[string](t)(lib.SystemGetDriverVersion()); got != "570.124.06" {
		t.Errorf("driver %s", got)
	}
}

// So says the header: "if any GPU has fallen off the bus".
func TestWhileAnyGPUIsLostNoneIsFoundByUUIDOrSerial(t *testing.T) {
	m := newMachine(t, "t4:2")
	lib := initialised(t, m)
	healthy := gpuAt(t, lib, 1)
	uuid := succeed[string](t)(healthy.GetUUID())
	serial := succeed[string](t)(healthy.GetSerial())
	must(t, m.LoseGPU("0"))
	if _, ret := lib.DeviceGetHandleByUUID(uuid); ret != nvml.ERROR_GPU_IS_LOST {
		t.Errorf("by UUID: %v", ret)
	}
	if _, ret := lib.DeviceGetHandleBySerial(serial); ret != nvml.ERROR_GPU_IS_LOST {
		t.Errorf("by serial: %v", ret)
	}
	if again := gpuAt(t, lib, 1); again != healthy {
		t.Errorf("by index: %v, want %v", again, healthy)
	}
	must(t, m.RestoreGPU("0"))
	if again := succeed[nvml.Device](t)(lib.DeviceGetHandleByUUID(uuid)); again != healthy {
		t.Errorf("by UUID once it is back: %v, want %v", again, healthy)
	}
}
