package fakegpu

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Telemetry follows from the load: an idle GPU is cold and draws little, a busy
// one draws its limit.

// powerMilliwatts is the draw at the GPU's utilisation.
func (v view) powerMilliwatts() uint32 {
	p := v.product.Power
	busy, _ := v.activity(v.seen())
	return p.IdleWatts*1000 + uint32(uint64(p.LimitWatts-p.IdleWatts)*1000*busy/whole)
}

func (d device) GetPowerUsage() (uint32, nvml.Return) {
	return get(d, "GetPowerUsage", view.powerMilliwatts)
}

func (d device) GetPowerManagementMode() (nvml.EnableState, nvml.Return) {
	return get(d, "GetPowerManagementMode", func(view) nvml.EnableState { return nvml.FEATURE_ENABLED })
}

func (v view) powerLimit() uint32 { return v.product.Power.LimitWatts * 1000 }

func (d device) GetPowerManagementLimit() (uint32, nvml.Return) {
	return get(d, "GetPowerManagementLimit", view.powerLimit)
}

func (d device) GetPowerManagementDefaultLimit() (uint32, nvml.Return) {
	return get(d, "GetPowerManagementDefaultLimit", view.powerLimit)
}

func (d device) GetEnforcedPowerLimit() (uint32, nvml.Return) {
	return get(d, "GetEnforcedPowerLimit", view.powerLimit)
}

func (d device) GetPowerManagementLimitConstraints() (uint32, uint32, nvml.Return) {
	v, ret := d.read("GetPowerManagementLimitConstraints")
	if ret != nvml.SUCCESS {
		return 0, 0, ret
	}
	return v.product.Power.MinWatts * 1000, v.powerLimit(), ret
}

// GetTotalEnergyConsumption is in millijoules since the driver was loaded: the draw
// summed up over time. It never goes down.
func (d device) GetTotalEnergyConsumption() (uint64, nvml.Return) {
	v, m, ret := d.readMeter("GetTotalEnergyConsumption")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return v.milliJoules(m), ret
}

func (d device) GetTemperature(sensor nvml.TemperatureSensors) (uint32, nvml.Return) {
	v, ret := d.read("GetTemperature")
	switch {
	case ret != nvml.SUCCESS:
		return 0, ret
	case sensor != nvml.TEMPERATURE_GPU:
		return 0, nvml.ERROR_INVALID_ARGUMENT
	}
	return v.temperature(), ret
}

// temperature is the GPU's in degrees Celsius.
func (v view) temperature() uint32 { return 30 + v.busyNow()*2/5 }

func (d device) GetTemperatureThreshold(threshold nvml.TemperatureThresholds) (uint32, nvml.Return) {
	if _, ret := d.read("GetTemperatureThreshold"); ret != nvml.SUCCESS {
		return 0, ret
	}
	switch threshold {
	case nvml.TEMPERATURE_THRESHOLD_SHUTDOWN:
		return 95, nvml.SUCCESS
	case nvml.TEMPERATURE_THRESHOLD_SLOWDOWN:
		return 92, nvml.SUCCESS
	case nvml.TEMPERATURE_THRESHOLD_GPU_MAX:
		return 87, nvml.SUCCESS
	}
	return 0, nvml.ERROR_NOT_SUPPORTED
}

// maxClock is in MHz.
func (v view) maxClock(clock nvml.ClockType) (uint32, nvml.Return) {
	switch clock {
	case nvml.CLOCK_GRAPHICS, nvml.CLOCK_SM:
		return v.product.Clocks.GraphicsMHz, nvml.SUCCESS
	case nvml.CLOCK_MEM:
		return v.product.Clocks.MemoryMHz, nvml.SUCCESS
	case nvml.CLOCK_VIDEO:
		return v.product.Clocks.GraphicsMHz * 9 / 10, nvml.SUCCESS
	}
	return 0, nvml.ERROR_INVALID_ARGUMENT
}

// idleClockMHz is what an idle GPU's cores run at.
const idleClockMHz = 345

func (d device) GetClockInfo(clock nvml.ClockType) (uint32, nvml.Return) {
	v, ret := d.read("GetClockInfo")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	highest, ret := v.maxClock(clock)
	if ret == nvml.SUCCESS && clock != nvml.CLOCK_MEM && v.busyNow() == 0 {
		return idleClockMHz, ret
	}
	return highest, ret
}

func (d device) GetMaxClockInfo(clock nvml.ClockType) (uint32, nvml.Return) {
	v, ret := d.read("GetMaxClockInfo")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return v.maxClock(clock)
}

func (d device) GetPerformanceState() (nvml.Pstates, nvml.Return) {
	return get(d, "GetPerformanceState", func(view) nvml.Pstates { return nvml.PSTATE_0 })
}

func (d device) GetCurrentClocksEventReasons() (uint64, nvml.Return) {
	return get(d, "GetCurrentClocksEventReasons", func(v view) uint64 {
		if v.busyNow() == 0 {
			return nvml.ClocksEventReasonGpuIdle
		}
		return nvml.ClocksEventReasonNone
	})
}

// GetUtilizationRates does not exist while the GPU is in MIG mode, as with real
// ones.
func (d device) GetUtilizationRates() (nvml.Utilization, nvml.Return) {
	v, ret := d.read("GetUtilizationRates")
	switch {
	case ret != nvml.SUCCESS:
		return nvml.Utilization{}, ret
	case v.MIGEnabled:
		return nvml.Utilization{}, nvml.ERROR_NOT_SUPPORTED
	}
	return nvml.Utilization{Gpu: v.busyNow(), Memory: v.Load.MemoryPercent}, ret
}

// samplingMicroseconds is the period over which encoders and decoders are
// measured.
const samplingMicroseconds = 167_000

func (d device) GetEncoderUtilization() (uint32, uint32, nvml.Return) {
	_, ret := d.read("GetEncoderUtilization")
	return 0, samplingMicroseconds, ret
}

func (d device) GetDecoderUtilization() (uint32, uint32, nvml.Return) {
	_, ret := d.read("GetDecoderUtilization")
	return 0, samplingMicroseconds, ret
}

func (d device) GetPcieThroughput(nvml.PcieUtilCounter) (uint32, nvml.Return) {
	return get(d, "GetPcieThroughput", func(v view) uint32 { return v.busyNow() * 1000 })
}

// ECC is on and has counted nothing.

func (d device) GetEccMode() (nvml.EnableState, nvml.EnableState, nvml.Return) {
	_, ret := d.read("GetEccMode")
	if ret != nvml.SUCCESS {
		return nvml.FEATURE_DISABLED, nvml.FEATURE_DISABLED, ret
	}
	return nvml.FEATURE_ENABLED, nvml.FEATURE_ENABLED, ret
}

func (d device) GetTotalEccErrors(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
	return get(d, "GetTotalEccErrors", func(view) uint64 { return 0 })
}

func (d device) GetRetiredPages(nvml.PageRetirementCause) ([]uint64, nvml.Return) {
	return get(d, "GetRetiredPages", func(view) []uint64 { return nil })
}

func (d device) GetRemappedRows() (int, int, bool, bool, nvml.Return) {
	_, ret := d.read("GetRemappedRows")
	return 0, 0, false, false, ret
}

// processes lists those of a kind. In MIG mode each belongs to an instance.
func (v view) processes(graphics bool) []nvml.ProcessInfo {
	infos := []nvml.ProcessInfo{}
	for _, p := range v.running() {
		if p.Graphics == graphics {
			infos = append(infos, v.processInfo(p))
		}
	}
	return infos
}

func (v view) processInfo(p Process) nvml.ProcessInfo {
	info := nvml.ProcessInfo{
		Pid: p.PID, UsedGpuMemory: p.MemoryBytes, GpuInstanceId: noInstance, ComputeInstanceId: noInstance,
	}
	for _, m := range v.migDevices() {
		if m.uuid == p.MIGDevice {
			info.GpuInstanceId, info.ComputeInstanceId = uint32(m.gi.ID), uint32(m.ci.ID)
		}
	}
	return info
}

func (d device) GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return get(d, "GetComputeRunningProcesses", func(v view) []nvml.ProcessInfo { return v.processes(false) })
}

func (d device) GetGraphicsRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return get(d, "GetGraphicsRunningProcesses", func(v view) []nvml.ProcessInfo { return v.processes(true) })
}

func (d device) GetMPSComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return get(d, "GetMPSComputeRunningProcesses", func(view) []nvml.ProcessInfo { return []nvml.ProcessInfo{} })
}

// GetProcessUtilization gives a sample of each process that is at work, of now. Together
// they are the GPU's utilisation. The time stamp is in microseconds.
func (d device) GetProcessUtilization(lastSeen uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
	v, ret := d.read("GetProcessUtilization")
	now := uint64(time.Now().UnixMicro())
	switch {
	case ret != nvml.SUCCESS:
		return nil, ret
	case v.MIGEnabled:
		return nil, nvml.ERROR_NOT_SUPPORTED
	case lastSeen >= now:
		return nil, nvml.ERROR_NOT_FOUND
	}
	loads, _ := v.busyOn("", v.seen())
	memory := split(v.Load.MemoryPercent, make([]uint32, len(loads)))
	var samples []nvml.ProcessUtilizationSample
	for i, p := range loads {
		if p.percent > 0 || memory[i] > 0 {
			samples = append(samples, nvml.ProcessUtilizationSample{Pid: p.PID, TimeStamp: now, SmUtil: p.percent, MemUtil: memory[i]})
		}
	}
	if len(samples) == 0 {
		return nil, nvml.ERROR_NOT_FOUND
	}
	return samples, ret
}

// GetGridLicensableFeatures says that the GPU needs no license: it is not one for
// virtual machines.
func (d device) GetGridLicensableFeatures() (nvml.GridLicensableFeatures, nvml.Return) {
	return get(d, "GetGridLicensableFeatures", func(view) nvml.GridLicensableFeatures { return nvml.GridLicensableFeatures{} })
}
