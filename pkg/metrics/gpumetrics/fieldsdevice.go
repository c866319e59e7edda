package gpumetrics

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func clockFields() []field {
	clock := func(kind nvml.ClockType) source {
		return call("nvmlDeviceGetClockInfo", func(d nvml.Device) (uint32, nvml.Return) { return d.GetClockInfo(kind) })
	}
	highest := func(kind nvml.ClockType) source {
		return call("nvmlDeviceGetMaxClockInfo", func(d nvml.Device) (uint32, nvml.Return) { return d.GetMaxClockInfo(kind) }).once()
	}
	return []field{
		gauge("DCGM_FI_DEV_SM_CLOCK", "Clock of the multiprocessors in MHz.", clock(nvml.CLOCK_SM)).standardField(),
		gauge("DCGM_FI_DEV_MEM_CLOCK", "Clock of the memory in MHz.", clock(nvml.CLOCK_MEM)).standardField(),
		gauge("DCGM_FI_DEV_VIDEO_CLOCK", "Clock of the video engines in MHz.", clock(nvml.CLOCK_VIDEO)),
		gauge("DCGM_FI_DEV_MAX_SM_CLOCK", "Highest clock of the multiprocessors in MHz.", highest(nvml.CLOCK_SM)),
		gauge("DCGM_FI_DEV_MAX_MEM_CLOCK", "Highest clock of the memory in MHz.", highest(nvml.CLOCK_MEM)),
		gauge("DCGM_FI_DEV_MAX_VIDEO_CLOCK", "Highest clock of the video engines in MHz.", highest(nvml.CLOCK_VIDEO)),
		gauge("DCGM_FI_DEV_PSTATE", "Performance state, from 0 (highest) to 15 (lowest).", performanceState()),
		gauge("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "Why the clocks are lower than they could be: a bit mask of DCGM_CLOCKS_EVENT_REASON values.", clocksEventReasons()),
		gauge("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "The same as DCGM_FI_DEV_CLOCKS_EVENT_REASONS, by its older name.", clocksEventReasons()),
	}
}

func performanceState() source {
	return call("nvmlDeviceGetPerformanceState", func(d nvml.Device) (nvml.Pstates, nvml.Return) {
		state, ret := d.GetPerformanceState()
		if ret == nvml.SUCCESS && state == nvml.PSTATE_UNKNOWN {
			ret = nvml.ERROR_NO_DATA
		}
		return state, ret
	})
}

// clocksEventReasons has the older of its two names in every library that knows the
// newer one.
func clocksEventReasons() source {
	return source{
		symbols: []string{"nvmlDeviceGetCurrentClocksEventReasons|nvmlDeviceGetCurrentClocksThrottleReasons"},
		number: func(r *reading) (float64, nvml.Return) {
			read := r.dev.GetCurrentClocksEventReasons
			if !r.reader.has("nvmlDeviceGetCurrentClocksEventReasons") {
				// Older libraries know it by this name alone.
				read = r.dev.GetCurrentClocksThrottleReasons
			}
			reasons, ret := read()
			return float64(reasons), ret
		},
	}
}

func powerFields() []field {
	const milli = 1000
	limit := func(symbol string, read func(nvml.Device) (uint32, nvml.Return)) source {
		return call(symbol, read).dividedBy(milli)
	}
	constraint := func(pick func(low, high uint32) uint32) source {
		return limit("nvmlDeviceGetPowerManagementLimitConstraints", func(d nvml.Device) (uint32, nvml.Return) {
			low, high, ret := d.GetPowerManagementLimitConstraints()
			return pick(low, high), ret
		}).once()
	}
	instant := fieldValue(nvml.FI_DEV_POWER_INSTANT)
	instant.field.divisor = milli
	return []field{
		gauge("DCGM_FI_DEV_POWER_USAGE", "Power draw in watts.", limit("nvmlDeviceGetPowerUsage", nvml.Device.GetPowerUsage)).standardField(),
		gauge("DCGM_FI_DEV_POWER_USAGE_INSTANT", "Power draw at this moment, not averaged, in watts.", instant),
		counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Energy drawn since the driver was loaded, in millijoules.", energy()).standardField(),
		gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT", "Power limit that is set, in watts.", limit("nvmlDeviceGetPowerManagementLimit", nvml.Device.GetPowerManagementLimit)),
		gauge("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "Power limit that is in force, the lowest of all that apply, in watts.", limit("nvmlDeviceGetEnforcedPowerLimit", nvml.Device.GetEnforcedPowerLimit)),
		gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF", "Power limit that is the default, in watts.", limit("nvmlDeviceGetPowerManagementDefaultLimit", nvml.Device.GetPowerManagementDefaultLimit).once()),
		gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN", "Lowest power limit that can be set, in watts.", constraint(func(low, _ uint32) uint32 { return low })),
		gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX", "Highest power limit that can be set, in watts.", constraint(func(_, high uint32) uint32 { return high })),
		gauge("DCGM_FI_DEV_GPU_TEMP", "Temperature of the GPU in degrees Celsius.", temperature()).standardField(),
		gauge("DCGM_FI_DEV_MEMORY_TEMP", "Temperature of the memory in degrees Celsius.", memoryTemperature()).standardField(),
		gauge("DCGM_FI_DEV_SLOWDOWN_TEMP", "Temperature in degrees Celsius at which the GPU slows down.", threshold(nvml.TEMPERATURE_THRESHOLD_SLOWDOWN)),
		gauge("DCGM_FI_DEV_SHUTDOWN_TEMP", "Temperature in degrees Celsius at which the GPU shuts down.", threshold(nvml.TEMPERATURE_THRESHOLD_SHUTDOWN)),
		gauge("DCGM_FI_DEV_GPU_MAX_OP_TEMP", "Highest temperature in degrees Celsius at which the GPU should work.", threshold(nvml.TEMPERATURE_THRESHOLD_GPU_MAX)),
		gauge("DCGM_FI_DEV_MEM_MAX_OP_TEMP", "Highest temperature in degrees Celsius at which the memory should work.", threshold(nvml.TEMPERATURE_THRESHOLD_MEM_MAX)),
		gauge("DCGM_FI_DEV_FAN_SPEED", "Speed that the fan is meant to have, in percent of its highest.", call("nvmlDeviceGetFanSpeed", nvml.Device.GetFanSpeed)),
		violation("DCGM_FI_DEV_POWER_VIOLATION", "the power limit", nvml.FI_DEV_PERF_POLICY_POWER),
		violation("DCGM_FI_DEV_THERMAL_VIOLATION", "the temperature", nvml.FI_DEV_PERF_POLICY_THERMAL),
		violation("DCGM_FI_DEV_SYNC_BOOST_VIOLATION", "the clocks of GPUs that are kept alike", nvml.FI_DEV_PERF_POLICY_SYNC_BOOST),
		violation("DCGM_FI_DEV_BOARD_LIMIT_VIOLATION", "the board's limits", nvml.FI_DEV_PERF_POLICY_BOARD_LIMIT),
		violation("DCGM_FI_DEV_LOW_UTIL_VIOLATION", "low utilization", nvml.FI_DEV_PERF_POLICY_LOW_UTILIZATION),
		violation("DCGM_FI_DEV_RELIABILITY_VIOLATION", "reliability", nvml.FI_DEV_PERF_POLICY_RELIABILITY),
	}
}

func energy() source {
	return source{symbols: []string{symbolEnergy}, number: func(r *reading) (float64, nvml.Return) {
		millijoules, ret := r.energy()
		return float64(millijoules), ret
	}}
}

const symbolEnergy = "nvmlDeviceGetTotalEnergyConsumption"

// highestTemperature is the highest that can be true, in degrees Celsius. NVML gives
// nonsense for a GPU that is being reset.
const highestTemperature = 200

func temperature() source {
	return call("nvmlDeviceGetTemperature", func(d nvml.Device) (uint32, nvml.Return) {
		celsius, ret := d.GetTemperature(nvml.TEMPERATURE_GPU)
		if ret == nvml.SUCCESS && celsius > highestTemperature {
			ret = nvml.ERROR_NO_DATA
		}
		return celsius, ret
	})
}

func memoryTemperature() source {
	s := fieldValue(nvml.FI_DEV_MEMORY_TEMP)
	s.field.most = highestTemperature
	return s
}

func threshold(kind nvml.TemperatureThresholds) source {
	return call("nvmlDeviceGetTemperatureThreshold", func(d nvml.Device) (uint32, nvml.Return) { return d.GetTemperatureThreshold(kind) }).once()
}

func violation(name, what string, id uint32) field {
	return counter(name, "Time in which "+what+" kept the clocks down, in nanoseconds.", fieldValue(id))
}

func utilizationFields() []field {
	utilization := func(pick func(nvml.Utilization) uint32) source {
		return source{symbols: []string{symbolUtilization}, number: func(r *reading) (float64, nvml.Return) {
			u, ret := r.utilization()
			return float64(pick(u)), ret
		}}
	}
	engine := func(symbol string, read func(nvml.Device) (uint32, uint32, nvml.Return)) source {
		return call(symbol, func(d nvml.Device) (uint32, nvml.Return) {
			busy, _, ret := read(d)
			return busy, ret
		})
	}
	return []field{
		gauge("DCGM_FI_DEV_GPU_UTIL", "Part of the time in which the GPU was at work, in percent.", utilization(func(u nvml.Utilization) uint32 { return u.Gpu })).standardField(),
		gauge("DCGM_FI_DEV_MEM_COPY_UTIL", "Part of the time in which memory was read or written, in percent.", utilization(func(u nvml.Utilization) uint32 { return u.Memory })).standardField(),
		gauge("DCGM_FI_DEV_ENC_UTIL", "Part of the time in which the encoder was at work, in percent.", engine("nvmlDeviceGetEncoderUtilization", nvml.Device.GetEncoderUtilization)).standardField(),
		gauge("DCGM_FI_DEV_DEC_UTIL", "Part of the time in which the decoder was at work, in percent.", engine("nvmlDeviceGetDecoderUtilization", nvml.Device.GetDecoderUtilization)).standardField(),
	}
}

const symbolUtilization = "nvmlDeviceGetUtilizationRates"

func memoryFields() []field {
	bar1 := func(pick func(nvml.BAR1Memory) uint64) source {
		return source{symbols: []string{"nvmlDeviceGetBAR1MemoryInfo"}, number: func(r *reading) (float64, nvml.Return) {
			info, ret := r.bar1.get(r.dev.GetBAR1MemoryInfo)
			return float64(pick(info)) / mebibyte, ret
		}}
	}
	return []field{
		gauge("DCGM_FI_DEV_FB_TOTAL", "Size of the memory in MiB.", memory(func(m memoryInfo) (uint64, bool) { return m.total, true })).perInstance(),
		gauge("DCGM_FI_DEV_FB_FREE", "Free memory in MiB.", memory(func(m memoryInfo) (uint64, bool) { return m.free, true })).perInstance().standardField(),
		gauge("DCGM_FI_DEV_FB_USED", "Memory in use in MiB.", memory(func(m memoryInfo) (uint64, bool) { return m.used, true })).perInstance().standardField(),
		gauge("DCGM_FI_DEV_FB_RESERVED", "Memory that the driver keeps for itself, in MiB.", memory(memoryInfo.reservedBytes)).perInstance().standardField(),
		gauge("DCGM_FI_DEV_FB_USED_PERCENT", "Memory in use, as a ratio (0 to 1) of what is not reserved.", memoryRatio()).perInstance(),
		gauge("DCGM_FI_DEV_BAR1_TOTAL", "Size of BAR1 in MiB.", bar1(func(m nvml.BAR1Memory) uint64 { return m.Bar1Total })),
		gauge("DCGM_FI_DEV_BAR1_USED", "BAR1 in use in MiB.", bar1(func(m nvml.BAR1Memory) uint64 { return m.Bar1Used })),
		gauge("DCGM_FI_DEV_BAR1_FREE", "Free BAR1 in MiB.", bar1(func(m nvml.BAR1Memory) uint64 { return m.Bar1Free })),
	}
}

func memoryRatio() source {
	return source{symbols: []string{symbolMemory}, number: func(r *reading) (float64, nvml.Return) {
		m, ret := r.memoryInfo()
		reserved, ok := m.reservedBytes()
		switch {
		case ret != nvml.SUCCESS:
			return 0, ret
		case !ok || reserved >= m.total:
			return 0, nvml.ERROR_NOT_SUPPORTED
		}
		return float64(m.used) / float64(m.total-reserved), ret
	}}
}
