package mig

import "github.com/NVIDIA/go-nvml/pkg/nvml"

// spy is NVML with a hook at each call that this package makes.
type spy struct {
	nvml.Interface
	// before may return a code, with which the call fails without being made.
	before func(call string) nvml.Return
	after  func(call string)
}

func (s *spy) enter(call string) nvml.Return {
	if s.before == nil {
		return nvml.SUCCESS
	}
	return s.before(call)
}

func (s *spy) leave(call string) {
	if s.after != nil {
		s.after(call)
	}
}

// spied makes a call with one result.
func spied[T any](s *spy, call string, do func() (T, nvml.Return)) (T, nvml.Return) {
	if ret := s.enter(call); ret != nvml.SUCCESS {
		var none T
		return none, ret
	}
	defer s.leave(call)
	return do()
}

func spiedHandle[T any](s *spy, call string, do func() (T, nvml.Return), wrap func(T) T) (T, nvml.Return) {
	handle, ret := spied(s, call, do)
	if ret != nvml.SUCCESS {
		var none T
		return none, ret
	}
	return wrap(handle), ret
}

func spiedHandles[T any](s *spy, call string, do func() ([]T, nvml.Return), wrap func(T) T) ([]T, nvml.Return) {
	handles, ret := spied(s, call, do)
	wrapped := make([]T, len(handles))
	for i, h := range handles {
		wrapped[i] = wrap(h)
	}
	return wrapped, ret
}

func (s *spy) Init() nvml.Return {
	_, ret := spied(s, "Init", func() (bool, nvml.Return) { return true, s.Interface.Init() })
	return ret
}

func (s *spy) device(d nvml.Device) nvml.Device { return spyDevice{d, s} }

func (s *spy) DeviceGetHandleByUUID(uuid string) (nvml.Device, nvml.Return) {
	return spiedHandle(s, "DeviceGetHandleByUUID", func() (nvml.Device, nvml.Return) { return s.Interface.DeviceGetHandleByUUID(uuid) }, s.device)
}

func (s *spy) DeviceGetHandleByIndex(i int) (nvml.Device, nvml.Return) {
	return spiedHandle(s, "DeviceGetHandleByIndex", func() (nvml.Device, nvml.Return) { return s.Interface.DeviceGetHandleByIndex(i) }, s.device)
}

type spyDevice struct {
	nvml.Device
	spy *spy
}

func (d spyDevice) GetMigMode() (int, int, nvml.Return) {
	var pending int
	current, ret := spied(d.spy, "GetMigMode", func() (current int, ret nvml.Return) {
		current, pending, ret = d.Device.GetMigMode()
		return current, ret
	})
	return current, pending, ret
}

func (d spyDevice) SetMigMode(mode int) (nvml.Return, nvml.Return) {
	return spied(d.spy, "SetMigMode", func() (nvml.Return, nvml.Return) { return d.Device.SetMigMode(mode) })
}

func (d spyDevice) GetArchitecture() (nvml.DeviceArchitecture, nvml.Return) {
	return spied(d.spy, "GetArchitecture", d.Device.GetArchitecture)
}

func (d spyDevice) GetMemoryInfo() (nvml.Memory, nvml.Return) {
	return spied(d.spy, "GetMemoryInfo", d.Device.GetMemoryInfo)
}

func (d spyDevice) GetUUID() (string, nvml.Return) { return spied(d.spy, "GetUUID", d.Device.GetUUID) }

func (d spyDevice) GetGpuInstanceId() (int, nvml.Return) {
	return spied(d.spy, "GetGpuInstanceId", d.Device.GetGpuInstanceId)
}

func (d spyDevice) GetComputeInstanceId() (int, nvml.Return) {
	return spied(d.spy, "GetComputeInstanceId", d.Device.GetComputeInstanceId)
}

func (d spyDevice) GetMaxMigDeviceCount() (int, nvml.Return) {
	return spied(d.spy, "GetMaxMigDeviceCount", d.Device.GetMaxMigDeviceCount)
}

func (d spyDevice) GetMigDeviceHandleByIndex(i int) (nvml.Device, nvml.Return) {
	return spiedHandle(d.spy, "GetMigDeviceHandleByIndex", func() (nvml.Device, nvml.Return) { return d.Device.GetMigDeviceHandleByIndex(i) }, d.spy.device)
}

func (d spyDevice) GetGpuInstanceProfileInfo(i int) (nvml.GpuInstanceProfileInfo, nvml.Return) {
	return spied(d.spy, "GetGpuInstanceProfileInfo", func() (nvml.GpuInstanceProfileInfo, nvml.Return) { return d.Device.GetGpuInstanceProfileInfo(i) })
}

func (d spyDevice) GetGpuInstancePossiblePlacements(info *nvml.GpuInstanceProfileInfo) ([]nvml.GpuInstancePlacement, nvml.Return) {
	return spied(d.spy, "GetGpuInstancePossiblePlacements", func() ([]nvml.GpuInstancePlacement, nvml.Return) {
		return d.Device.GetGpuInstancePossiblePlacements(info)
	})
}

func (d spyDevice) instance(i nvml.GpuInstance) nvml.GpuInstance { return spyInstance{i, d.spy} }

func (d spyDevice) GetGpuInstances(info *nvml.GpuInstanceProfileInfo) ([]nvml.GpuInstance, nvml.Return) {
	return spiedHandles(d.spy, "GetGpuInstances", func() ([]nvml.GpuInstance, nvml.Return) { return d.Device.GetGpuInstances(info) }, d.instance)
}

func (d spyDevice) CreateGpuInstanceWithPlacement(info *nvml.GpuInstanceProfileInfo, place *nvml.GpuInstancePlacement) (nvml.GpuInstance, nvml.Return) {
	return spiedHandle(d.spy, "CreateGpuInstance", func() (nvml.GpuInstance, nvml.Return) {
		return d.Device.CreateGpuInstanceWithPlacement(info, place)
	}, d.instance)
}

type spyInstance struct {
	nvml.GpuInstance
	spy *spy
}

func (i spyInstance) GetInfo() (nvml.GpuInstanceInfo, nvml.Return) {
	return spied(i.spy, "GetInfo of GPU instance", i.GpuInstance.GetInfo)
}

func (i spyInstance) Destroy() nvml.Return {
	_, ret := spied(i.spy, "Destroy GPU instance", func() (bool, nvml.Return) { return true, i.GpuInstance.Destroy() })
	return ret
}

func (i spyInstance) GetComputeInstanceProfileInfo(index, engine int) (nvml.ComputeInstanceProfileInfo, nvml.Return) {
	return spied(i.spy, "GetComputeInstanceProfileInfo", func() (nvml.ComputeInstanceProfileInfo, nvml.Return) {
		return i.GpuInstance.GetComputeInstanceProfileInfo(index, engine)
	})
}

func (i spyInstance) compute(c nvml.ComputeInstance) nvml.ComputeInstance {
	return spyCompute{c, i.spy}
}

func (i spyInstance) GetComputeInstances(info *nvml.ComputeInstanceProfileInfo) ([]nvml.ComputeInstance, nvml.Return) {
	return spiedHandles(i.spy, "GetComputeInstances", func() ([]nvml.ComputeInstance, nvml.Return) {
		return i.GpuInstance.GetComputeInstances(info)
	}, i.compute)
}

func (i spyInstance) CreateComputeInstance(info *nvml.ComputeInstanceProfileInfo) (nvml.ComputeInstance, nvml.Return) {
	return spiedHandle(i.spy, "CreateComputeInstance", func() (nvml.ComputeInstance, nvml.Return) {
		return i.GpuInstance.CreateComputeInstance(info)
	}, i.compute)
}

type spyCompute struct {
	nvml.ComputeInstance
	spy *spy
}

func (c spyCompute) GetInfo() (nvml.ComputeInstanceInfo, nvml.Return) {
	return spied(c.spy, "GetInfo of compute instance", c.ComputeInstance.GetInfo)
}

func (c spyCompute) Destroy() nvml.Return {
	_, ret := spied(c.spy, "Destroy compute instance", func() (bool, nvml.Return) { return true, c.ComputeInstance.Destroy() })
	return ret
}
