package fakegpu

import (
	"reflect"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
)

// initialised gives the machine's library between Init and Shutdown.
func initialised(t *testing.T, m *Machine) nvml.Interface {
	t.Helper()
	lib := m.NVML()
	if ret := lib.Init(); ret != nvml.SUCCESS {
		t.Fatalf("Init: %v", ret)
	}
	t.Cleanup(func() {
		if ret := lib.Shutdown(); ret != nvml.SUCCESS {
			t.Errorf("Shutdown: %v", ret)
		}
	})
	return lib
}

// succeed gives the value of a call that must succeed.
func succeed[T any](t *testing.T) func(T, nvml.Return) T {
	return func(value T, ret nvml.Return) T {
		t.Helper()
		if ret != nvml.SUCCESS {
			t.Fatalf("%T: %v", value, ret)
		}
		return value
	}
}

func gpuAt(t *testing.T, lib nvml.Interface, index int) nvml.Device {
	t.Helper()
	return succeed[nvml.Device](t)(lib.DeviceGetHandleByIndex(index))
}

func chars(values []int8) string {
	var b strings.Builder
	for _, v := range values {
		if v == 0 {
			break
		}
		b.WriteByte(byte(v))
	}
	return b.String()
}

func TestLibraryAnswersForTheMachine(t *testing.T) {
	lib := initialised(t, newMachine(t, "h100-sxm5-80gb:2"))
	str, num := succeed[string](t), succeed[int](t)
	if got := str(lib.SystemGetDriverVersion()); got != "580.95.05" {
		t.Errorf("driver %s", got)
	}
	if got := str(lib.SystemGetNVMLVersion()); got != "13.580.95.05" {
		t.Errorf("NVML %s", got)
	}
	if got := num(lib.SystemGetCudaDriverVersion()); got != 13000 {
		t.Errorf("CUDA %d", got)
	}
	if got := num(lib.SystemGetCudaDriverVersion_v2()); got != 13000 {
		t.Errorf("CUDA v2 %d", got)
	}
	if got := num(lib.DeviceGetCount()); got != 2 {
		t.Errorf("%d GPUs", got)
	}
	if _, ret := lib.DeviceGetHandleByIndex(2); ret != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("index 2: %v", ret)
	}
	first := gpuAt(t, lib, 0)
	uuid, serial := str(first.GetUUID()), str(first.GetSerial())
	for name, find := range map[string]func() (nvml.Device, nvml.Return){
		"UUID":            func() (nvml.Device, nvml.Return) { return lib.DeviceGetHandleByUUID(uuid) },
		"serial":          func() (nvml.Device, nvml.Return) { return lib.DeviceGetHandleBySerial(serial) },
		"PCI":             func() (nvml.Device, nvml.Return) { return lib.DeviceGetHandleByPciBusId("0000:1b:00.0") },
		"PCI, NVML's way": func() (nvml.Device, nvml.Return) { return lib.DeviceGetHandleByPciBusId("00000000:1B:00.0") },
		"PCI, short":      func() (nvml.Device, nvml.Return) { return lib.DeviceGetHandleByPciBusId("1b:00.0") },
	} {
		if got, ret := find(); ret != nvml.SUCCESS || got != first {
			t.Errorf("by %s: %v %v", name, got, ret)
		}
	}
	if _, ret := lib.DeviceGetHandleByUUID("GPU-1"); ret != nvml.ERROR_NOT_FOUND {
		t.Errorf("unknown UUID: %v", ret)
	}
}

func TestGPUAnswersForItsProduct(t *testing.T) {
	lib := initialised(t, newMachine(t, "h100-sxm5-80gb:8"))
	d := gpuAt(t, lib, 5)
	str, num, word := succeed[string](t), succeed[int](t), succeed[uint32](t)
	if got := str(d.GetName()); got != "NVIDIA H100 80GB HBM3" {
		t.Errorf("name %q", got)
	}
	if got := succeed[nvml.BrandType](t)(d.GetBrand()); got != nvml.BRAND_NVIDIA {
		t.Errorf("brand %v", got)
	}
	if got := succeed[nvml.DeviceArchitecture](t)(d.GetArchitecture()); got != nvml.DEVICE_ARCH_HOPPER {
		t.Errorf("architecture %v", got)
	}
	if major, minor, ret := d.GetCudaComputeCapability(); major != 9 || minor != 0 || ret != nvml.SUCCESS {
		t.Errorf("compute capability %d.%d %v", major, minor, ret)
	}
	if got := num(d.GetIndex()); got != 5 {
		t.Errorf("index %d", got)
	}
	if got := num(d.GetMinorNumber()); got != 5 {
		t.Errorf("minor %d", got)
	}
	if mig, ret := d.IsMigDeviceHandle(); mig || ret != nvml.SUCCESS {
		t.Errorf("MIG handle: %v %v", mig, ret)
	}
	pci := succeed[nvml.PciInfo](t)(d.GetPciInfo())
	if got := chars(pci.BusId[:]); got != "00000000:C3:00.0" {
		t.Errorf("bus id %q", got)
	}
	if got := chars(pci.BusIdLegacy[:]); got != "0000:C3:00.0" {
		t.Errorf("legacy bus id %q", got)
	}
	if pci.Bus != 0xc3 || pci.PciDeviceId != 0x233010de {
		t.Errorf("PCI %+v", pci)
	}
	memory := succeed[nvml.Memory](t)(d.GetMemoryInfo())
	if want := (nvml.Memory{Total: 85520809984, Free: 84943044608, Used: 577765376}); memory != want {
		t.Errorf("memory %+v, want %+v", memory, want)
	}
	if got := word(d.GetPowerUsage()); got != 70_000 {
		t.Errorf("idle at %d mW", got)
	}
	if got := word(d.GetEnforcedPowerLimit()); got != 700_000 {
		t.Errorf("limit %d mW", got)
	}
}

func TestLoadShowsInTelemetry(t *testing.T) {
	m := newMachine(t, "l4")
	d := gpuAt(t, initialised(t, m), 0)
	must(t, m.SetLoad("0", Load{
		GPUPercent: 50, MemoryPercent: 20, MemoryBytes: 1 << 30,
		Processes: []Process{{PID: 7, MemoryBytes: 2 << 30, Name: "train"}, {PID: 8, Graphics: true}},
	}))
	if got := succeed[nvml.Utilization](t)(d.GetUtilizationRates()); got != (nvml.Utilization{Gpu: 50, Memory: 20}) {
		t.Errorf("utilization %+v", got)
	}
	if got := succeed[nvml.Memory_v2](t)(d.GetMemoryInfo_v2()).Used; got != 2<<30 {
		t.Errorf("%d bytes used", got)
	}
	// 17 W idle, 72 W at the limit.
	if got := succeed[uint32](t)(d.GetPowerUsage()); got != 44_500 {
		t.Errorf("%d mW", got)
	}
	if got := succeed[uint32](t)(d.GetTemperature(nvml.TEMPERATURE_GPU)); got != 50 {
		t.Errorf("%d degrees", got)
	}
	want := []nvml.ProcessInfo{{Pid: 7, UsedGpuMemory: 2 << 30, GpuInstanceId: noInstance, ComputeInstanceId: noInstance}}
	if diff := cmp.Diff(want, succeed[[]nvml.ProcessInfo](t)(d.GetComputeRunningProcesses())); diff != "" {
		t.Error(diff)
	}
	if got := succeed[[]nvml.ProcessInfo](t)(d.GetGraphicsRunningProcesses()); len(got) != 1 || got[0].Pid != 8 {
		t.Errorf("graphics %+v", got)
	}
	if got := succeed[string](t)(m.NVML().SystemGetProcessName(7)); got != "train" {
		t.Errorf("process name %q", got)
	}
}

func TestNVLinkTopology(t *testing.T) {
	peerOf := func(d nvml.Device, link int) string {
		t.Helper()
		state := succeed[nvml.EnableState](t)(d.GetNvLinkState(link))
		if state != nvml.FEATURE_ENABLED {
			return "down"
		}
		kind := succeed[nvml.IntNvLinkDeviceType](t)(d.GetNvLinkRemoteDeviceType(link))
		pci := succeed[nvml.PciInfo](t)(d.GetNvLinkRemotePciInfo(link))
		if kind == nvml.NVLINK_DEVICE_TYPE_SWITCH {
			return "switch"
		}
		return chars(pci.BusIdLegacy[:])
	}
	m := newMachine(t, "a30:3,l4")
	lib := initialised(t, m)
	// Slots 0 and 1 are a pair, slot 2's partner holds another product.
	for i, want := range []string{"0000:52:00.0", "0000:1B:00.0", "down"} {
		if got := peerOf(gpuAt(t, lib, i), 3); got != want {
			t.Errorf("A30 %d is linked with %s, want %s", i, got, want)
		}
	}
	if _, ret := gpuAt(t, lib, 0).GetNvLinkState(4); ret != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("link 4 of 4: %v", ret)
	}
	if _, ret := gpuAt(t, lib, 3).GetNvLinkState(0); ret != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("L4: %v", ret)
	}
	must(t, m.LoseGPU("1"))
	if got := peerOf(gpuAt(t, lib, 0), 0); got != "0000:52:00.0" {
		t.Errorf("the partner of a lost GPU is linked with %s", got)
	}
	must(t, m.RemoveGPU("1"))
	if got := peerOf(gpuAt(t, lib, 0), 0); got != "down" {
		t.Errorf("the partner of a removed GPU is linked with %s", got)
	}
	hgx := initialised(t, newMachine(t, "h100-sxm5-80gb:8"))
	for link := range 18 {
		if got := peerOf(gpuAt(t, hgx, 7), link); got != "switch" {
			t.Errorf("link %d of an H100 ends at %s", link, got)
		}
	}
}

// A call that nobody implemented returns a code, whatever it is; it must not
// panic.
func TestNoCallPanics(t *testing.T) {
	m := newMachine(t, "h100-sxm5-80gb")
	_, err := m.CreateMIG("0", "1g.10gb", 0)
	must(t, err)
	lib := initialised(t, m)
	gpu := gpuAt(t, lib, 0)
	migDev := succeed[nvml.Device](t)(gpu.GetMigDeviceHandleByIndex(0))
	gi := succeed[nvml.GpuInstance](t)(gpu.GetGpuInstanceById(7))
	ci := succeed[nvml.ComputeInstance](t)(gi.GetComputeInstanceById(0))
	set := succeed[nvml.EventSet](t)(lib.EventSetCreate())
	callAll(t, reflect.ValueOf(&lib).Elem(), nil)
	callAll(t, reflect.ValueOf(&lib).Elem(), reflect.ValueOf(&gpu).Elem())
	callAll(t, reflect.ValueOf(&gpu).Elem(), nil)
	callAll(t, reflect.ValueOf(&migDev).Elem(), nil)
	callAll(t, reflect.ValueOf(&ci).Elem(), nil)
	callAll(t, reflect.ValueOf(&gi).Elem(), nil)
	callAll(t, reflect.ValueOf(&set).Elem(), nil)
	if ret := lib.Init(); ret != nvml.SUCCESS { // callAll shut the library down.
		t.Fatal(ret)
	}
}

// callAll calls every method of an interface with zero values; handle, if valid,
// stands for each argument of its type.
func callAll(t *testing.T, target reflect.Value, handle any) {
	t.Helper()
	given, _ := handle.(reflect.Value)
	for i := range target.NumMethod() {
		name := target.Type().Method(i).Name
		if name == "Shutdown" || strings.HasPrefix(name, "Init") {
			continue
		}
		method := target.Method(i)
		args := make([]reflect.Value, method.Type().NumIn())
		for j := range args {
			in := method.Type().In(j)
			args[j] = reflect.Zero(in)
			if given.IsValid() && in == given.Type() {
				args[j] = given
			}
		}
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("%s.%s panics: %v", target.Type(), name, p)
				}
			}()
			method.Call(args)
		}()
	}
}

func TestLibraryFunctionsForwardToTheHandle(t *testing.T) {
	lib := initialised(t, newMachine(t, "t4"))
	d := gpuAt(t, lib, 0)
	if got := succeed[string](t)(lib.DeviceGetName(d)); got != "Tesla T4" {
		t.Errorf("name %q", got)
	}
	if _, ret := lib.DeviceGetName(nil); ret != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("without a handle: %v", ret)
	}
	if _, _, ret := lib.DeviceGetMigMode(d); ret != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("MIG mode of a T4: %v", ret)
	}
	if _, ret := lib.SystemGetHicVersion(); ret != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("not implemented: %v", ret)
	}
}

func TestLibraryMustBeInitialised(t *testing.T) {
	lib := newMachine(t, "t4").NVML()
	if _, ret := lib.DeviceGetCount(); ret != nvml.ERROR_UNINITIALIZED {
		t.Errorf("before Init: %v", ret)
	}
	lib.Init()
	lib.Init()
	lib.Shutdown()
	if _, ret := lib.DeviceGetCount(); ret != nvml.SUCCESS {
		t.Errorf("one of two Inits was taken back: %v", ret)
	}
	lib.Shutdown()
	if _, ret := lib.DeviceGetCount(); ret != nvml.ERROR_UNINITIALIZED {
		t.Errorf("after Shutdown: %v", ret)
	}
	if ret := lib.Shutdown(); ret != nvml.ERROR_UNINITIALIZED {
		t.Errorf("Shutdown once more: %v", ret)
	}
}

func TestSymbols(t *testing.T) {
	m := newMachine(t, "h100-sxm5-80gb")
	lib := initialised(t, m)
	must(t, m.HideSymbols("nvmlDeviceGetMigMode", "nvmlDeviceGetMemoryInfo_v2"))
	for symbol, want := range map[string]bool{
		"nvmlDeviceGetUUID":                             true,
		"nvmlDeviceGetMigMode":                          false,
		"nvmlDeviceGetMemoryInfo_v2":                    false,
		"nvmlDeviceGetGpuFabricInfoV":                   false,
		"nvmlDeviceGetGpuInstanceProfileInfoV":          false,
		"nvmlGpuInstanceGetComputeInstanceProfileInfoV": false,
		"nvmlDeviceSetMemoryLimits_v1":                  false, // of driver 615
		"cuInit":                                        false,
	} {
		if got := lib.Extensions().LookupSymbol(symbol) == nil; got != want {
			t.Errorf("%s is there: %v, want %v", symbol, got, want)
		}
	}
	d := gpuAt(t, lib, 0)
	if _, _, ret := d.GetMigMode(); ret != nvml.ERROR_FUNCTION_NOT_FOUND {
		t.Errorf("a hidden function: %v", ret)
	}
	if _, ret := d.GetMemoryInfo(); ret != nvml.SUCCESS {
		t.Errorf("its older version: %v", ret)
	}
	must(t, m.ShowSymbols())
	if _, _, ret := d.GetMigMode(); ret != nvml.SUCCESS {
		t.Errorf("after it is back: %v", ret)
	}
}
