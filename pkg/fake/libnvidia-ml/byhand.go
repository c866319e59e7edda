package main

import "C"

import (
	"reflect"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// byHand are the handlers of functions that differ from their methods in more than
// types.
var byHand = map[string]handler{
	"nvmlInit":                                initialise,
	"nvmlInit_v2":                             initialise,
	"nvmlInitWithFlags":                       initialise,
	"nvmlShutdown":                            shutdown,
	"nvmlEventSetWait":                        func(args arguments) nvml.Return { return waitForEvent(args, false) },
	"nvmlEventSetWait_v2":                     func(args arguments) nvml.Return { return waitForEvent(args, true) },
	"nvmlEventSetFree":                        free[nvml.EventSet],
	"nvmlGpmSampleFree":                       free[nvml.GpmSample],
	"nvmlGpmMetricsGet":                       gpmMetrics,
	"nvmlGpuInstanceGetInfo":                  gpuInstanceInfo,
	"nvmlComputeInstanceGetInfo":              func(args arguments) nvml.Return { return computeInstanceInfo(args, false) },
	"nvmlComputeInstanceGetInfo_v2":           func(args arguments) nvml.Return { return computeInstanceInfo(args, true) },
	"nvmlDeviceGetFieldValues":                fieldValues,
	"nvmlDeviceSetMemoryLimits_v1":            setMemoryLimits,
	"nvmlDeviceGetMemoryLimits_v1":            getMemoryLimits,
	"nvmlDeviceGetPciInfo":                    oldPCIInfo,
	"nvmlDeviceGetPciInfo_v2":                 oldPCIInfo,
	"nvmlDeviceGetComputeRunningProcesses":    oldProcesses(nvml.Device.GetComputeRunningProcesses),
	"nvmlDeviceGetGraphicsRunningProcesses":   oldProcesses(nvml.Device.GetGraphicsRunningProcesses),
	"nvmlDeviceGetMPSComputeRunningProcesses": oldProcesses(nvml.Device.GetMPSComputeRunningProcesses),
}

// eventData is nvmlEventData_t; its first version ends before the instances.
type eventData struct {
	device                       unsafe.Pointer
	kind, data                   uint64
	gpuInstance, computeInstance uint32
}

func waitForEvent(args arguments, instances bool) nvml.Return {
	set, ret := behind[nvml.EventSet](args.pointer(0))
	out := (*eventData)(args.pointer(1))
	if ret != nvml.SUCCESS || out == nil {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	event, ret := set.Wait(uint32(args.number(2)))
	if ret != nvml.SUCCESS {
		return ret
	}
	out.device, out.kind, out.data = handleOf(event.Device), event.EventType, event.EventData
	if instances {
		out.gpuInstance, out.computeInstance = event.GpuInstanceId, event.ComputeInstanceId
	}
	return ret
}

// free frees what a handle stands for, and the handle.
func free[T interface{ Free() nvml.Return }](args arguments) nvml.Return {
	value, ret := behind[T](args.pointer(0))
	if ret == nvml.SUCCESS {
		ret = value.Free()
	}
	if ret == nvml.SUCCESS {
		drop(args.pointer(0))
	}
	return ret
}

// gpmMetricsGet is the beginning of nvmlGpmMetricsGet_t; as many metrics follow as the
// caller's header has.
type gpmMetricsGet struct {
	version, count   uint32
	sample1, sample2 unsafe.Pointer
	metrics          [1]nvml.GpmMetric
}

func gpmMetrics(args arguments) nvml.Return {
	out := (*gpmMetricsGet)(args.pointer(0))
	var get nvml.GpmMetricsGetType
	switch {
	case out == nil || int(out.count) > len(get.Metrics):
		return nvml.ERROR_INVALID_ARGUMENT
	case out.version != nvml.GPM_METRICS_GET_VERSION:
		return nvml.ERROR_ARGUMENT_VERSION_MISMATCH
	}
	var ret1, ret2 nvml.Return
	get.Sample1, ret1 = behind[nvml.GpmSample](out.sample1)
	get.Sample2, ret2 = behind[nvml.GpmSample](out.sample2)
	if ret1 != nvml.SUCCESS || ret2 != nvml.SUCCESS {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	metrics := unsafe.Slice(&out.metrics[0], out.count)
	get.Version, get.NumMetrics = out.version, out.count
	copy(get.Metrics[:], metrics)
	ret := library.GpmMetricsGet(&get)
	copy(metrics, get.Metrics[:])
	return ret
}

func gpuInstanceInfo(args arguments) nvml.Return {
	instance, ret := behind[nvml.GpuInstance](args.pointer(0))
	out := (*struct {
		device      unsafe.Pointer
		id, profile uint32
		placement   nvml.GpuInstancePlacement
	})(args.pointer(1))
	if ret != nvml.SUCCESS || out == nil {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	info, ret := instance.GetInfo()
	if ret == nvml.SUCCESS {
		out.device, out.id, out.profile, out.placement = handleOf(info.Device), info.Id, info.ProfileId, info.Placement
	}
	return ret
}

// computeInstanceInfo gives a placement since its second version.
func computeInstanceInfo(args arguments, placement bool) nvml.Return {
	instance, ret := behind[nvml.ComputeInstance](args.pointer(0))
	out := (*struct {
		device, gpuInstance unsafe.Pointer
		id, profile         uint32
		placement           nvml.ComputeInstancePlacement
	})(args.pointer(1))
	if ret != nvml.SUCCESS || out == nil {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	info, ret := instance.GetInfo()
	if ret != nvml.SUCCESS {
		return ret
	}
	out.device, out.gpuInstance, out.id, out.profile = handleOf(info.Device), handleOf(info.GpuInstance), info.Id, info.ProfileId
	if placement {
		out.placement = info.Placement
	}
	return ret
}

func fieldValues(args arguments) nvml.Return {
	device, ret := behind[nvml.Device](args.pointer(0))
	values := (*nvml.FieldValue)(args.pointer(2))
	count := int32(args.number(1))
	if ret != nvml.SUCCESS || values == nil || count <= 0 {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	return device.GetFieldValues(unsafe.Slice(values, count))
}

func setMemoryLimits(args arguments) nvml.Return {
	device, ret := behind[nvml.Device](args.pointer(0))
	limits := (*nvml.SetMemoryLimits_v1)(args.pointer(1))
	if ret != nvml.SUCCESS || limits == nil || limits.NameSpace == nil {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	return device.SetMemoryLimits_v1(C.GoString((*C.char)(limits.NameSpace)), limits.SoftLimit, limits.HardLimit)
}

func getMemoryLimits(args arguments) nvml.Return {
	device, ret := behind[nvml.Device](args.pointer(0))
	out := (*nvml.GetMemoryLimits_v1)(args.pointer(1))
	if ret != nvml.SUCCESS || out == nil || out.NameSpace == nil {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	limits, ret := device.GetMemoryLimits_v1(C.GoString((*C.char)(out.NameSpace)))
	if ret == nvml.SUCCESS {
		out.SoftLimit, out.HardLimit, out.CurrentUsed = limits.SoftLimit, limits.HardLimit, limits.CurrentUsed
	}
	return ret
}

// oldPCIInfo writes what structures had before the third version: all but the address of
// 32 characters, which came last.
func oldPCIInfo(args arguments) nvml.Return {
	device, ret := behind[nvml.Device](args.pointer(0))
	out := args.pointer(1)
	if ret != nvml.SUCCESS || out == nil {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	info, ret := device.GetPciInfo()
	if ret == nvml.SUCCESS {
		size := unsafe.Offsetof(info.BusId)
		copy(unsafe.Slice((*byte)(out), size), unsafe.Slice((*byte)(unsafe.Pointer(&info)), size))
	}
	return ret
}

// oldProcesses lists processes in the structures that know no instances.
func oldProcesses(list func(nvml.Device) ([]nvml.ProcessInfo, nvml.Return)) handler {
	return func(args arguments) nvml.Return {
		device, ret := behind[nvml.Device](args.pointer(0))
		if ret != nvml.SUCCESS || args.pointer(1) == nil {
			return nvml.ERROR_INVALID_ARGUMENT
		}
		processes, ret := list(device)
		if ret != nvml.SUCCESS {
			return ret
		}
		old := make([]nvml.ProcessInfo_v1, len(processes))
		for i, p := range processes {
			old[i] = nvml.ProcessInfo_v1{Pid: p.Pid, UsedGpuMemory: p.UsedGpuMemory}
		}
		return writeList(args.pointer(1), args.pointer(2), reflect.ValueOf(old), true)
	}
}
