package gpumetrics

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

func TestUnknownFieldsAreNamed(t *testing.T) {
	_, err := NewReader(newMock(nil), []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_NONSENSE", "gpu_temp"})
	if err == nil || !strings.Contains(err.Error(), "DCGM_FI_DEV_NONSENSE, gpu_temp") {
		t.Errorf("error is %v", err)
	}
}

// A call of a function that the library lacks would end the process: the mocks panic.
func TestFunctionsThatTheLibraryLacksAreNotCalled(t *testing.T) {
	lib := newMock(map[string]*mock.Device{uuid0: {}})
	lib.ExtensionsFunc = func() nvml.ExtendedInterface {
		return &mock.ExtendedInterface{LookupSymbolFunc: func(string) error { return context.Canceled }}
	}
	r := newReader(t, lib, allNames()...)
	for second := range 2 {
		d := readOne(t, r, oneGPU(), time.Unix(int64(second), 0))
		wantValues(t, r, d, map[string]Value{
			"DCGM_FI_DRIVER_VERSION": words("580.95.05"), "DCGM_FI_CUDA_DRIVER_VERSION": words("12040"), "DCGM_FI_NVML_VERSION": words("13.580.95.05"),
			"DCGM_FI_DEV_NAME": words("NVIDIA L4"), "DCGM_FI_DEV_BRAND": words("Nvidia"),
		})
		if d.EnergyMillijoules != nil || d.SMUtil != nil || d.Processes != nil {
			t.Errorf("device %+v", d)
		}
	}
}

func TestOlderNamesOfFunctionsAreTaken(t *testing.T) {
	fields := &fieldNumbers{}
	d := plainDevice(fields)
	d.GetCurrentClocksEventReasonsFunc = nil
	d.GetMemoryInfo_v2Func = nil
	d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) { return 9, nvml.SUCCESS }
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		return nvml.Memory{Total: 1000 << 20, Used: 800 << 20, Free: 200 << 20}, nvml.SUCCESS
	}
	r := newReader(t, newMock(map[string]*mock.Device{uuid0: d}, "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetMemoryInfo_v2"),
		"DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_FB_USED_PERCENT")
	// The older call counts what is reserved as used.
	wantValues(t, r, readOne(t, r, oneGPU(), time.Unix(0, 0)), map[string]Value{
		"DCGM_FI_DEV_CLOCKS_EVENT_REASONS": of(9), "DCGM_FI_DEV_FB_USED": of(800),
	})
}

func TestWhatCannotBeTrueIsAbsent(t *testing.T) {
	fields := &fieldNumbers{numbers: map[uint32]uint64{nvml.FI_DEV_MEMORY_TEMP: 201}}
	d := plainDevice(fields)
	d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 4_000_000_000, nvml.SUCCESS }
	d.GetPerformanceStateFunc = func() (nvml.Pstates, nvml.Return) { return nvml.PSTATE_UNKNOWN, nvml.SUCCESS }
	d.GetSerialFunc = func() (string, nvml.Return) { return "  ", nvml.SUCCESS }
	d.GetGridLicensableFeaturesFunc = func() (nvml.GridLicensableFeatures, nvml.Return) {
		return nvml.GridLicensableFeatures{IsGridLicenseSupported: 1, LicensableFeaturesCount: 9}, nvml.SUCCESS
	}
	d.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { return nvml.EventTypePState, nvml.SUCCESS }
	lib := withGPM(newMock(map[string]*mock.Device{uuid0: d}), map[nvml.GpmMetricId]float64{
		nvml.GPM_METRIC_GRAPHICS_UTIL: 106, nvml.GPM_METRIC_SM_UTIL: -1, nvml.GPM_METRIC_DRAM_BW_UTIL: 104, nvml.GPM_METRIC_PCIE_TX_PER_SEC: -0.5,
	})
	r := newReader(t, lib, "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_PSTATE", "DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
		"DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_FAN_SPEED", "DCGM_FI_DEV_MIG_MODE",
		"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_PCIE_TX_BYTES")
	readOne(t, r, oneGPU(), time.Unix(0, 0))
	// A percentage a little over 100 is one that was measured a little late.
	wantValues(t, r, readOne(t, r, oneGPU(), time.Unix(1, 0)), map[string]Value{"DCGM_FI_DEV_FAN_SPEED": of(33), "DCGM_FI_PROF_DRAM_ACTIVE": of(1)})
}

func TestALostGPUIsNotAskedAgain(t *testing.T) {
	d := &mock.Device{GetTemperatureFunc: func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, nvml.ERROR_GPU_IS_LOST }}
	r := newReader(t, newMock(map[string]*mock.Device{uuid0: d}), "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_PROF_SM_ACTIVE")
	got := readOne(t, r, oneGPU(), time.Unix(0, 0))
	wantValues(t, r, got, nil)
	if got.UUID != uuid0 || got.SMUtil != nil || got.Processes != nil {
		t.Errorf("device %+v", got)
	}
}

func TestAGPUThatNVMLDoesNotKnowHasNoValues(t *testing.T) {
	r := newReader(t, newMock(nil), "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DRIVER_VERSION")
	wantValues(t, r, readOne(t, r, oneGPU(), time.Unix(0, 0)), nil)
}

func TestWithoutADriverThereIsNothing(t *testing.T) {
	lib := newMock(map[string]*mock.Device{uuid0: plainDevice(&fieldNumbers{})})
	r := newReader(t, lib, "DCGM_FI_DEV_GPU_TEMP")
	at := time.Unix(7, 0)
	node := oneGPU()
	node.Problem = "no driver"
	if s := r.Read(t.Context(), node, at); len(s.Devices) != 0 || !s.Time.Equal(at) {
		t.Errorf("sample %+v", s)
	}
	lib.InitFunc = func() nvml.Return { return nvml.ERROR_DRIVER_NOT_LOADED }
	if s := r.Read(t.Context(), oneGPU(), at); len(s.Devices) != 0 {
		t.Errorf("sample %+v", s)
	}
	lib.InitFunc = func() nvml.Return { return nvml.SUCCESS }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s := r.Read(ctx, oneGPU(), at); len(s.Devices) != 0 {
		t.Errorf("sample %+v", s)
	}
	node = oneGPU(func(g *inventory.GPU) { g.UUID = "" })
	if s := r.Read(t.Context(), node, at); len(s.Devices) != 0 {
		t.Errorf("sample %+v", s)
	}
	if len(lib.InitCalls()) != 3 || len(lib.ShutdownCalls()) != 2 {
		t.Errorf("%d Inits, %d Shutdowns", len(lib.InitCalls()), len(lib.ShutdownCalls()))
	}
	must(t, r.Close())
	if s := r.Read(t.Context(), oneGPU(), at); len(s.Devices) != 0 {
		t.Errorf("after Close: %+v", s)
	}
}

func TestWhatDoesNotChangeIsReadOnce(t *testing.T) {
	d := plainDevice(&fieldNumbers{})
	r := newReader(t, newMock(map[string]*mock.Device{uuid0: d}), "DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_MAX_SM_CLOCK", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL")
	want := map[string]Value{
		"DCGM_FI_DEV_SERIAL": words("1322"), "DCGM_FI_DEV_MAX_SM_CLOCK": of(2001), "DCGM_FI_DEV_GPU_UTIL": of(57), "DCGM_FI_DEV_MEM_COPY_UTIL": of(23),
	}
	for i := range 3 {
		wantValues(t, r, readOne(t, r, oneGPU(), time.Unix(int64(i), 0)), want)
	}
	if serials, clocks, rates := len(d.GetSerialCalls()), len(d.GetMaxClockInfoCalls()), len(d.GetUtilizationRatesCalls()); serials != 1 || clocks != 1 || rates != 3 {
		t.Errorf("%d calls for the serial number, %d for the highest clock, %d for the utilization", serials, clocks, rates)
	}
	// Another driver may say otherwise.
	node := oneGPU()
	node.DriverVersion.Raw = "590.44"
	wantValues(t, r, readOne(t, r, node, time.Unix(3, 0)), want)
	// A GPU that was away is another one.
	r.Read(t.Context(), inventory.Node{}, time.Unix(4, 0))
	wantValues(t, r, readOne(t, r, oneGPU(), time.Unix(5, 0)), want)
	if serials := len(d.GetSerialCalls()); serials != 3 {
		t.Errorf("%d calls for the serial number", serials)
	}
}

// A partition's handle is not asked for them: its mock would panic.
func TestLabelsOfAPartitionAreItsGPUs(t *testing.T) {
	r := newReader(t, newMock(map[string]*mock.Device{uuid0: plainDevice(&fieldNumbers{}), mig0: {}}, "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"),
		"DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_BRAND", "DCGM_FI_DEV_GPU_TEMP")
	devices := r.Read(t.Context(), oneGPU(func(g *inventory.GPU) {
		g.MIG.Enabled = ptr(true)
		g.MIG.Instances = []inventory.MIGInstance{{ID: 7, UUID: mig0}}
	}), time.Unix(0, 0)).Devices
	labels := map[string]Value{"DCGM_FI_DEV_SERIAL": words("1322"), "DCGM_FI_DEV_BRAND": words("Nvidia")}
	wantValues(t, r, devices[1], labels)
	labels["DCGM_FI_DEV_GPU_TEMP"] = of(41)
	wantValues(t, r, devices[0], labels)
}

func TestTheLastXIDStays(t *testing.T) {
	r := newReader(t, newMock(map[string]*mock.Device{uuid0: plainDevice(&fieldNumbers{})}), "DCGM_FI_DEV_XID_ERRORS")
	for i, step := range []struct {
		xids []inventory.XID
		want float64
	}{
		{nil, 0},
		{[]inventory.XID{{Code: 63}, {Code: 79}}, 79},
		{[]inventory.XID{{Code: 48}, {Code: 63}, {Code: 79}}, 48},
		{[]inventory.XID{{Code: 63}, {Code: 79}}, 48},
		{nil, 48},
		{[]inventory.XID{{Code: 94, GPUInstance: ptr(3)}}, 94},
		{[]inventory.XID{{Code: 63, GPUInstance: ptr(3)}, {Code: 94, GPUInstance: ptr(3)}}, 63},
		{[]inventory.XID{{Code: 63, GPUInstance: ptr(3)}, {Code: 94, GPUInstance: ptr(3)}, {Code: 94, GPUInstance: ptr(5)}}, 94},
	} {
		d := readOne(t, r, oneGPU(func(g *inventory.GPU) { g.XIDs = step.xids }), time.Unix(int64(i), 0))
		if got := d.Values[0]; !got.Present || got.Number != step.want {
			t.Errorf("step %d: %+v, want %v", i, got, step.want)
		}
	}
}

func TestNVLinkBandwidthIsARate(t *testing.T) {
	fields := &fieldNumbers{numbers: map[uint32]uint64{}}
	r := newReader(t, newMock(map[string]*mock.Device{uuid0: plainDevice(fields)}), "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL")
	start := time.Unix(1000, 0)
	const tx, rx = nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX
	for i, step := range []struct {
		after  time.Duration
		tx, rx uint64
		want   float64
	}{
		{0, 5000, 5000, -1},
		// 1000000 KiB in each direction in 2 s.
		{2 * time.Second, 1_005_000, 1_005_000, 1024},
		// Too soon to measure anything.
		{2*time.Second + 99*time.Millisecond, 1_005_000, 1_005_000, 1024},
		{3 * time.Second, 1_005_000, 1_005_000, 0},
		// The driver was loaded again.
		{4 * time.Second, 10, 10, -1},
		{5 * time.Second, 500_010, 500_010, 1024},
	} {
		fields.numbers[tx], fields.numbers[rx], fields.at = step.tx, step.rx, start.Add(step.after)
		got := readOne(t, r, oneGPU(), start.Add(step.after)).Values[0]
		if want := (Value{Number: step.want, Present: step.want >= 0}); got.Present != want.Present || got.Present && got != want {
			t.Errorf("step %d: %+v, want %+v", i, got, want)
		}
	}
	delete(fields.numbers, rx)
	if got := readOne(t, r, oneGPU(), start.Add(time.Hour)).Values[0]; got.Present {
		t.Errorf("half of it is there: %+v", got)
	}
}

func TestFieldValuesOfAllKinds(t *testing.T) {
	for _, test := range []struct {
		kind  nvml.ValueType
		bytes [8]byte
		want  float64
		ok    bool
	}{
		{nvml.VALUE_TYPE_DOUBLE, [8]byte{0, 0, 0, 0, 0, 0, 0xf8, 0x3f}, 1.5, true},
		{nvml.VALUE_TYPE_DOUBLE, [8]byte{0, 0, 0, 0, 0, 0, 0xf8, 0x7f}, 0, false},
		{nvml.VALUE_TYPE_UNSIGNED_INT, [8]byte{1, 0, 0, 0x80, 9}, 2147483649, true},
		{nvml.VALUE_TYPE_UNSIGNED_LONG, [8]byte{1, 0, 0, 0, 1}, 4294967297, true},
		{nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, [8]byte{1, 0, 0, 0, 1}, 4294967297, true},
		{nvml.VALUE_TYPE_SIGNED_LONG_LONG, [8]byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, -2, true},
		{nvml.VALUE_TYPE_SIGNED_INT, [8]byte{0xfe, 0xff, 0xff, 0xff}, -2, true},
		{nvml.VALUE_TYPE_UNSIGNED_SHORT, [8]byte{1, 1, 9}, 257, true},
		{nvml.VALUE_TYPE_COUNT, [8]byte{1}, 0, false},
	} {
		// These bytes are of a little endian machine, as all are that have such GPUs.
		if got, ok := decode(nvml.FieldValue{ValueType: uint32(test.kind), Value: test.bytes}); ok != test.ok || ok && got != test.want {
			t.Errorf("kind %d, %v: %v, %t, want %v, %t", test.kind, test.bytes, got, ok, test.want, test.ok)
		}
	}
}

func TestConcurrentReadings(t *testing.T) {
	r := newRig(t, []string{"h100-sxm5-80gb", "h100-sxm5-80gb"}, Default()...)
	node := r.node()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 3 {
				if got := len(r.reader.Read(t.Context(), node, time.Now()).Devices); got != 2 && got != 0 {
					t.Errorf("%d devices", got)
				}
			}
		})
	}
	wg.Go(func() {
		if err := r.reader.Close(); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
}
