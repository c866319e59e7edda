package gpumetrics

import (
	"encoding/binary"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/google/go-cmp/cmp"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// These are dcgm-exporter's default fields. NVML gives all of them.
var dcgmDefault = []string{
	"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_DEC_UTIL", "DCGM_FI_DEV_ENC_UTIL",
	"DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_TEMP",
	"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_MEM_CLOCK", "DCGM_FI_DEV_MEM_COPY_UTIL",
	"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "DCGM_FI_DEV_POWER_USAGE",
	"DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
	"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_VGPU_LICENSE_STATUS", "DCGM_FI_DEV_XID_ERRORS",
	"DCGM_FI_DRIVER_VERSION", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
	"DCGM_FI_PROF_PCIE_RX_BYTES", "DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
}

func TestDefaultIsDCGMs(t *testing.T) {
	if diff := cmp.Diff(dcgmDefault, Default()); diff != "" {
		t.Errorf("default fields (-want +got):\n%s", diff)
	}
}

func TestFieldsAreSortedAndDescribed(t *testing.T) {
	fields := Fields()
	if !slices.IsSortedFunc(fields, func(a, b Field) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the fields are not sorted")
	}
	for i, f := range fields {
		switch {
		case i > 0 && f.Name == fields[i-1].Name:
			t.Errorf("%s is there twice", f.Name)
		case !regexp.MustCompile(`^DCGM_FI_[A-Z0-9_]+$`).MatchString(f.Name):
			t.Errorf("%q is no name of DCGM's", f.Name)
		case f.Help == "" || strings.ContainsAny(f.Help, "\n\"\\") || !strings.HasSuffix(f.Help, "."):
			t.Errorf("%s has the help %q", f.Name, f.Help)
		case f.Type != Gauge && f.Type != Counter && f.Type != Label:
			t.Errorf("%s is a %q", f.Name, f.Type)
		}
	}
}

func TestFieldsOfPartitions(t *testing.T) {
	var got []string
	for _, f := range Fields() {
		if f.PerInstance && f.Type != Label {
			got = append(got, strings.TrimPrefix(f.Name, "DCGM_FI_"))
		}
	}
	want := []string{
		"DEV_FB_FREE", "DEV_FB_RESERVED", "DEV_FB_TOTAL", "DEV_FB_USED", "DEV_FB_USED_PERCENT",
		"PROF_DRAM_ACTIVE", "PROF_GR_ENGINE_ACTIVE", "PROF_PIPE_FP16_ACTIVE", "PROF_PIPE_FP32_ACTIVE",
		"PROF_PIPE_FP64_ACTIVE", "PROF_PIPE_TENSOR_ACTIVE", "PROF_SM_ACTIVE", "PROF_SM_OCCUPANCY",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

func TestCountersAreWhatOnlyGrows(t *testing.T) {
	var got []string
	for _, f := range Fields() {
		if f.Type == Counter && slices.Contains(dcgmDefault, f.Name) {
			got = append(got, strings.TrimPrefix(f.Name, "DCGM_FI_DEV_"))
		}
	}
	want := []string{"CORRECTABLE_REMAPPED_ROWS", "PCIE_REPLAY_COUNTER", "TOTAL_ENERGY_CONSUMPTION", "UNCORRECTABLE_REMAPPED_ROWS"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}

// value fills a field value with a number of 32 or 64 bits.
func (v fieldNumbers) get(values []nvml.FieldValue) nvml.Return {
	for i := range values {
		f := &values[i]
		number, ok := v.numbers[f.FieldId]
		if !ok {
			f.NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
			continue
		}
		f.Timestamp = v.at.UnixMicro()
		f.ValueType = uint32(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG)
		binary.NativeEndian.PutUint64(f.Value[:], number)
	}
	return nvml.SUCCESS
}

type fieldNumbers struct {
	numbers map[uint32]uint64
	at      time.Time
}

// plainDevice gives a number of its own for everything that a field reads.
func plainDevice(fields *fieldNumbers) *mock.Device {
	return &mock.Device{
		GetClockInfoFunc:    func(kind nvml.ClockType) (uint32, nvml.Return) { return 1000 + uint32(kind), nvml.SUCCESS },
		GetMaxClockInfoFunc: func(kind nvml.ClockType) (uint32, nvml.Return) { return 2000 + uint32(kind), nvml.SUCCESS },
		GetPerformanceStateFunc: func() (nvml.Pstates, nvml.Return) {
			return nvml.PSTATE_8, nvml.SUCCESS
		},
		GetCurrentClocksEventReasonsFunc:   func() (uint64, nvml.Return) { return nvml.ClocksEventReasonSwPowerCap, nvml.SUCCESS },
		GetPowerUsageFunc:                  func() (uint32, nvml.Return) { return 61_234, nvml.SUCCESS },
		GetPowerManagementLimitFunc:        func() (uint32, nvml.Return) { return 72_000, nvml.SUCCESS },
		GetEnforcedPowerLimitFunc:          func() (uint32, nvml.Return) { return 71_500, nvml.SUCCESS },
		GetPowerManagementDefaultLimitFunc: func() (uint32, nvml.Return) { return 70_000, nvml.SUCCESS },
		GetTotalEnergyConsumptionFunc:      func() (uint64, nvml.Return) { return 123_456_789, nvml.SUCCESS },
		GetTemperatureFunc:                 func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 41, nvml.SUCCESS },
		GetTemperatureThresholdFunc:        func(k nvml.TemperatureThresholds) (uint32, nvml.Return) { return 90 + uint32(k), nvml.SUCCESS },
		GetFanSpeedFunc:                    func() (uint32, nvml.Return) { return 33, nvml.SUCCESS },
		GetUtilizationRatesFunc:            func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: 57, Memory: 23}, nvml.SUCCESS },
		GetEncoderUtilizationFunc:          func() (uint32, uint32, nvml.Return) { return 11, 167_000, nvml.SUCCESS },
		GetDecoderUtilizationFunc:          func() (uint32, uint32, nvml.Return) { return 12, 167_000, nvml.SUCCESS },
		GetBAR1MemoryInfoFunc: func() (nvml.BAR1Memory, nvml.Return) {
			return nvml.BAR1Memory{Bar1Total: 256 << 20, Bar1Used: 1 << 20, Bar1Free: 255 << 20}, nvml.SUCCESS
		},
		GetSupportedEventTypesFunc:    func() (uint64, nvml.Return) { return nvml.EventTypeXidCriticalError, nvml.SUCCESS },
		GetRemappedRowsFunc:           func() (int, int, bool, bool, nvml.Return) { return 4, 5, true, true, nvml.SUCCESS },
		GetPcieReplayCounterFunc:      func() (int, nvml.Return) { return 17, nvml.SUCCESS },
		GetCurrPcieLinkGenerationFunc: func() (int, nvml.Return) { return 3, nvml.SUCCESS },
		GetMaxPcieLinkGenerationFunc:  func() (int, nvml.Return) { return 4, nvml.SUCCESS },
		GetCurrPcieLinkWidthFunc:      func() (int, nvml.Return) { return 8, nvml.SUCCESS },
		GetMaxPcieLinkWidthFunc:       func() (int, nvml.Return) { return 16, nvml.SUCCESS },
		GetSerialFunc:                 func() (string, nvml.Return) { return " 1322 ", nvml.SUCCESS },
		GetVbiosVersionFunc:           func() (string, nvml.Return) { return "95.04", nvml.SUCCESS },
		GetInforomImageVersionFunc:    func() (string, nvml.Return) { return "G193", nvml.SUCCESS },
		GetEccModeFunc: func() (nvml.EnableState, nvml.EnableState, nvml.Return) {
			return nvml.FEATURE_ENABLED, nvml.FEATURE_DISABLED, nvml.SUCCESS
		},
		GetPersistenceModeFunc:                 func() (nvml.EnableState, nvml.Return) { return nvml.FEATURE_ENABLED, nvml.SUCCESS },
		GetFieldValuesFunc:                     func(values []nvml.FieldValue) nvml.Return { return fields.get(values) },
		GetComputeRunningProcessesFunc:         func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS },
		GetGraphicsRunningProcessesFunc:        func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS },
		GetMPSComputeRunningProcessesFunc:      func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS },
		GetPowerManagementLimitConstraintsFunc: func() (uint32, uint32, nvml.Return) { return 40_000, 75_000, nvml.SUCCESS },
		GetMemoryInfo_v2Func: func() (nvml.Memory_v2, nvml.Return) {
			return nvml.Memory_v2{Total: 1000 << 20, Reserved: 200 << 20, Used: 600 << 20, Free: 200 << 20}, nvml.SUCCESS
		},
		GetTotalEccErrorsFunc: func(kind nvml.MemoryErrorType, since nvml.EccCounterType) (uint64, nvml.Return) {
			return 100 + 10*uint64(kind) + uint64(since), nvml.SUCCESS
		},
		GetGridLicensableFeaturesFunc: func() (nvml.GridLicensableFeatures, nvml.Return) {
			f := nvml.GridLicensableFeatures{IsGridLicenseSupported: 1, LicensableFeaturesCount: 1}
			f.GridLicensableFeatures[0] = nvml.GridLicensableFeature{FeatureCode: uint32(nvml.GRID_LICENSE_FEATURE_CODE_VGPU), FeatureState: 1}
			return f, nvml.SUCCESS
		},
	}
}

// plainFields are the field values of plainDevice.
func plainFields() map[uint32]uint64 {
	return map[uint32]uint64{
		nvml.FI_DEV_MEMORY_TEMP: 52, nvml.FI_DEV_POWER_INSTANT: 63_210,
		nvml.FI_DEV_PERF_POLICY_POWER: 1001, nvml.FI_DEV_PERF_POLICY_THERMAL: 1002, nvml.FI_DEV_PERF_POLICY_SYNC_BOOST: 1003,
		nvml.FI_DEV_PERF_POLICY_BOARD_LIMIT: 1004, nvml.FI_DEV_PERF_POLICY_LOW_UTILIZATION: 1005, nvml.FI_DEV_PERF_POLICY_RELIABILITY: 1006,
		nvml.FI_DEV_RETIRED_SBE: 21, nvml.FI_DEV_RETIRED_DBE: 22, nvml.FI_DEV_RETIRED_PENDING: 1,
		nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX: 1000, nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX: 2000,
		nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL: 31, nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL: 32,
		nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL: 33, nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL: 34,
	}
}

// withGPM gives a mocked library GPM, with the metrics by number.
func withGPM(lib *mock.Interface, metrics map[nvml.GpmMetricId]float64) *mock.Interface {
	lib.GpmQueryDeviceSupportFunc = func(nvml.Device) (nvml.GpmSupport, nvml.Return) {
		return nvml.GpmSupport{IsSupportedDevice: 1}, nvml.SUCCESS
	}
	lib.GpmSampleAllocFunc = func() (nvml.GpmSample, nvml.Return) { return &mock.GpmSample{}, nvml.SUCCESS }
	lib.GpmSampleFreeFunc = func(nvml.GpmSample) nvml.Return { return nvml.SUCCESS }
	lib.GpmSampleGetFunc = func(nvml.Device, nvml.GpmSample) nvml.Return { return nvml.SUCCESS }
	lib.GpmMigSampleGetFunc = func(nvml.Device, int, nvml.GpmSample) nvml.Return { return nvml.SUCCESS }
	lib.GpmMetricsGetFunc = func(get *nvml.GpmMetricsGetType) nvml.Return {
		for i := range get.Metrics[:get.NumMetrics] {
			m := &get.Metrics[i]
			value, ok := metrics[nvml.GpmMetricId(m.MetricId)]
			if m.Value = value; !ok {
				m.NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
			}
		}
		return nvml.SUCCESS
	}
	return lib
}

func allNames() []string {
	var names []string
	for _, f := range Fields() {
		names = append(names, f.Name)
	}
	return names
}

// Every field is read from where it should be, in DCGM's unit.
func TestEveryFieldHasItsValue(t *testing.T) {
	at := time.Unix(1000, 0)
	fields := &fieldNumbers{numbers: plainFields(), at: at}
	lib := withGPM(newMock(map[string]*mock.Device{uuid0: plainDevice(fields)}), map[nvml.GpmMetricId]float64{
		nvml.GPM_METRIC_GRAPHICS_UTIL: 91, nvml.GPM_METRIC_SM_UTIL: 82, nvml.GPM_METRIC_SM_OCCUPANCY: 43, nvml.GPM_METRIC_ANY_TENSOR_UTIL: 34,
		nvml.GPM_METRIC_FP64_UTIL: 5, nvml.GPM_METRIC_FP32_UTIL: 16, nvml.GPM_METRIC_FP16_UTIL: 27, nvml.GPM_METRIC_DRAM_BW_UTIL: 68,
		nvml.GPM_METRIC_PCIE_TX_PER_SEC: 3, nvml.GPM_METRIC_PCIE_RX_PER_SEC: 0.5,
		nvml.GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: 7, nvml.GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: 8,
	})
	r := newReader(t, lib, allNames()...)
	node := oneGPU(func(g *inventory.GPU) {
		g.XIDs = []inventory.XID{{Code: 63}}
		g.MIG.Enabled = ptr(false)
	})
	readOne(t, r, node, at)
	fields.at = at.Add(2 * time.Second)
	fields.numbers[nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX] += 3_000_000
	fields.numbers[nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX] += 1_000_000
	d := readOne(t, r, node, at.Add(2*time.Second))
	wantValues(t, r, d, map[string]Value{
		"DCGM_FI_DEV_SM_CLOCK": of(1001), "DCGM_FI_DEV_MEM_CLOCK": of(1002), "DCGM_FI_DEV_VIDEO_CLOCK": of(1003),
		"DCGM_FI_DEV_MAX_SM_CLOCK": of(2001), "DCGM_FI_DEV_MAX_MEM_CLOCK": of(2002), "DCGM_FI_DEV_MAX_VIDEO_CLOCK": of(2003),
		"DCGM_FI_DEV_PSTATE": of(8), "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": of(4), "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": of(4),
		// Watts of milliwatts.
		"DCGM_FI_DEV_POWER_USAGE": of(61.234), "DCGM_FI_DEV_POWER_USAGE_INSTANT": of(63.21),
		"DCGM_FI_DEV_POWER_MGMT_LIMIT": of(72), "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": of(71.5), "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF": of(70),
		"DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN": of(40), "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX": of(75),
		"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": of(123_456_789),
		"DCGM_FI_DEV_GPU_TEMP":                 of(41), "DCGM_FI_DEV_MEMORY_TEMP": of(52), "DCGM_FI_DEV_FAN_SPEED": of(33),
		"DCGM_FI_DEV_SHUTDOWN_TEMP": of(90), "DCGM_FI_DEV_SLOWDOWN_TEMP": of(91), "DCGM_FI_DEV_MEM_MAX_OP_TEMP": of(92), "DCGM_FI_DEV_GPU_MAX_OP_TEMP": of(93),
		"DCGM_FI_DEV_POWER_VIOLATION": of(1001), "DCGM_FI_DEV_THERMAL_VIOLATION": of(1002), "DCGM_FI_DEV_SYNC_BOOST_VIOLATION": of(1003),
		"DCGM_FI_DEV_BOARD_LIMIT_VIOLATION": of(1004), "DCGM_FI_DEV_LOW_UTIL_VIOLATION": of(1005), "DCGM_FI_DEV_RELIABILITY_VIOLATION": of(1006),
		"DCGM_FI_DEV_GPU_UTIL": of(57), "DCGM_FI_DEV_MEM_COPY_UTIL": of(23), "DCGM_FI_DEV_ENC_UTIL": of(11), "DCGM_FI_DEV_DEC_UTIL": of(12),
		// MiB of bytes; 600 of 1000 - 200.
		"DCGM_FI_DEV_FB_TOTAL": of(1000), "DCGM_FI_DEV_FB_FREE": of(200), "DCGM_FI_DEV_FB_USED": of(600), "DCGM_FI_DEV_FB_RESERVED": of(200),
		"DCGM_FI_DEV_FB_USED_PERCENT": of(0.75),
		"DCGM_FI_DEV_BAR1_TOTAL":      of(256), "DCGM_FI_DEV_BAR1_USED": of(1), "DCGM_FI_DEV_BAR1_FREE": of(255),
		"DCGM_FI_DEV_XID_ERRORS":        of(63),
		"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": of(100), "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": of(101), "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": of(110), "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": of(111),
		"DCGM_FI_DEV_RETIRED_SBE": of(21), "DCGM_FI_DEV_RETIRED_DBE": of(22), "DCGM_FI_DEV_RETIRED_PENDING": of(1),
		"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": of(4), "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": of(5),
		"DCGM_FI_DEV_ROW_REMAP_PENDING": of(1), "DCGM_FI_DEV_ROW_REMAP_FAILURE": of(1),
		// 4000000 KiB in 2 s.
		"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL":            of(2048),
		"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": of(31), "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": of(32),
		"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": of(33), "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": of(34),
		"DCGM_FI_DEV_PCIE_REPLAY_COUNTER": of(17),
		"DCGM_FI_DEV_PCIE_LINK_GEN":       of(3), "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": of(4), "DCGM_FI_DEV_PCIE_LINK_WIDTH": of(8), "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": of(16),
		// Ratios of percent, bytes of MiB.
		"DCGM_FI_PROF_GR_ENGINE_ACTIVE": of(0.91), "DCGM_FI_PROF_SM_ACTIVE": of(0.82), "DCGM_FI_PROF_SM_OCCUPANCY": of(0.43), "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": of(0.34),
		"DCGM_FI_PROF_PIPE_FP64_ACTIVE": of(0.05), "DCGM_FI_PROF_PIPE_FP32_ACTIVE": of(0.16), "DCGM_FI_PROF_PIPE_FP16_ACTIVE": of(0.27), "DCGM_FI_PROF_DRAM_ACTIVE": of(0.68),
		"DCGM_FI_PROF_PCIE_TX_BYTES": of(3_145_728), "DCGM_FI_PROF_PCIE_RX_BYTES": of(524_288),
		"DCGM_FI_PROF_NVLINK_TX_BYTES": of(7_340_032), "DCGM_FI_PROF_NVLINK_RX_BYTES": of(8_388_608),
		"DCGM_FI_DRIVER_VERSION": words("580.95.05"), "DCGM_FI_NVML_VERSION": words("13.580.95.05"), "DCGM_FI_CUDA_DRIVER_VERSION": words("12040"),
		"DCGM_FI_DEV_NAME": words("NVIDIA L4"), "DCGM_FI_DEV_BRAND": words("Nvidia"), "DCGM_FI_DEV_SERIAL": words("1322"),
		"DCGM_FI_DEV_VBIOS_VERSION": words("95.04"), "DCGM_FI_DEV_INFOROM_IMAGE_VER": words("G193"),
		"DCGM_FI_DEV_MIG_MODE": of(0), "DCGM_FI_DEV_ECC_CURRENT": of(1), "DCGM_FI_DEV_PERSISTENCE_MODE": of(1), "DCGM_FI_DEV_VGPU_LICENSE_STATUS": of(1),
	})
	want := Device{
		Kind: GPU, UUID: uuid0, EnergyMillijoules: ptr(uint64(123_456_789)), SMUtil: ptr(0.57),
		GPU:       GPUIdentity{Index: 2, Minor: ptr(3), UUID: uuid0, PCIBusID: "0000:07:00.0", ModelName: "NVIDIA L4"},
		Processes: []Process{}, MeasuredSince: at,
	}
	d.Values = nil
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("device (-want +got):\n%s", diff)
	}
}
