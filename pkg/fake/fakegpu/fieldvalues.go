package fakegpu

import (
	"encoding/binary"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// linked says whether the GPU has NVLink connections that are up.
func (v view) linked() bool {
	return v.product.NVLink.Topology == TopologySwitch || len(v.nvlinkPeers()) > 0
}

// stackedMemoryBits is the least width of the bus to stacked memory (HBM), which has a
// sensor.
const stackedMemoryBits = 2048

// GetFieldValues reads values by their NVML_FI_* numbers. Each has a code of its own.
func (d device) GetFieldValues(values []nvml.FieldValue) nvml.Return {
	v, m, ret := d.readMeter("GetFieldValues")
	switch {
	case ret != nvml.SUCCESS:
		return ret
	case len(values) == 0:
		return nvml.ERROR_INVALID_ARGUMENT
	}
	for i := range values {
		f := &values[i]
		f.Timestamp = time.Now().UnixMicro()
		f.NvmlReturn = uint32(v.fieldValue(m, f))
	}
	return ret
}

// fieldValue reads one value.
func (v view) fieldValue(m meter, f *nvml.FieldValue) nvml.Return {
	switch f.FieldId {
	case nvml.FI_DEV_MEMORY_TEMP:
		if v.product.Memory.BusWidthBits < stackedMemoryBits {
			return nvml.ERROR_NOT_SUPPORTED
		}
		setInt(f, v.temperature()+5)
	case nvml.FI_DEV_POWER_INSTANT, nvml.FI_DEV_POWER_AVERAGE:
		setInt(f, v.powerMilliwatts())
	case nvml.FI_DEV_TOTAL_ENERGY_CONSUMPTION:
		setLong(f, v.milliJoules(m))
	case nvml.FI_DEV_PERF_POLICY_POWER, nvml.FI_DEV_PERF_POLICY_THERMAL, nvml.FI_DEV_PERF_POLICY_SYNC_BOOST,
		nvml.FI_DEV_PERF_POLICY_BOARD_LIMIT, nvml.FI_DEV_PERF_POLICY_LOW_UTILIZATION, nvml.FI_DEV_PERF_POLICY_RELIABILITY:
		setLong(f, 0)
	case nvml.FI_DEV_RETIRED_SBE, nvml.FI_DEV_RETIRED_DBE, nvml.FI_DEV_RETIRED_PENDING:
		// Newer GPUs remap rows instead.
		if v.product.Architecture != "Turing" {
			return nvml.ERROR_NOT_SUPPORTED
		}
		setLong(f, 0)
	case nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX:
		if !v.linked() {
			return nvml.ERROR_NOT_SUPPORTED
		}
		// In KiB: the rate in MiB per second for as many microseconds as it was busy.
		setLong(f, m.Busy/whole*nvlinkRate/1_000_000*1024)
	case nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
		nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL:
		if !v.linked() {
			return nvml.ERROR_NOT_SUPPORTED
		}
		setLong(f, 0)
	default:
		return nvml.ERROR_NOT_SUPPORTED
	}
	return nvml.SUCCESS
}

func setInt(f *nvml.FieldValue, value uint32) {
	f.ValueType = uint32(nvml.VALUE_TYPE_UNSIGNED_INT)
	binary.NativeEndian.PutUint32(f.Value[:], value)
}

func setLong(f *nvml.FieldValue, value uint64) {
	f.ValueType = uint32(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG)
	binary.NativeEndian.PutUint64(f.Value[:], value)
}
