package fakegpu

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"apportion.dev/apportion/pkg/fake/internal/notsupported"
	"apportion.dev/apportion/pkg/fake/migrules"
)

// migView is one MIG device of a state: a compute instance in its GPU instance.
type migView struct {
	view
	gi      migrules.Instance
	ci      migrules.ComputeInstance
	profile *Profile
	compute migrules.ComputeProfile
	uuid    string
	index   int
}

// migDevice is the handle of a MIG device.
type migDevice struct {
	nvml.Device
	parent device
	uuid   string
}

func (l *library) migDevice(parent, uuid string) migDevice {
	return migDevice{Device: notsupported.Device, parent: l.device(parent), uuid: uuid}
}

// read is the start of every call on the MIG device. One that was destroyed is
// not found.
func (m migDevice) read(call string) (migView, nvml.Return) {
	v, ret := m.parent.read(call)
	if ret != nvml.SUCCESS {
		return migView{}, ret
	}
	if d, ok := v.migDevice(m.uuid); ok {
		return d, ret
	}
	return migView{}, nvml.ERROR_NOT_FOUND
}

func getMIG[T any](m migDevice, call string, value func(migView) T) (T, nvml.Return) {
	v, ret := m.read(call)
	if ret != nvml.SUCCESS {
		var none T
		return none, ret
	}
	return value(v), ret
}

func (m migDevice) IsMigDeviceHandle() (bool, nvml.Return) {
	return getMIG(m, "IsMigDeviceHandle", func(migView) bool { return true })
}

func (m migDevice) GetUUID() (string, nvml.Return) {
	return getMIG(m, "GetUUID", func(v migView) string { return v.uuid })
}

// name is the profile's name; a compute instance that is a part of its GPU
// instance has its own slices in front, as in "1c.3g.40gb".
func (v migView) name() string {
	if v.compute.Slices == v.profile.Slices {
		return v.profile.Name
	}
	return string(rune('0'+v.compute.Slices)) + "c." + v.profile.Name
}

func (m migDevice) GetName() (string, nvml.Return) {
	return getMIG(m, "GetName", func(v migView) string { return v.product.ProductName + " MIG " + v.name() })
}

func (m migDevice) GetIndex() (int, nvml.Return) {
	return getMIG(m, "GetIndex", func(v migView) int { return v.index })
}

func (m migDevice) GetGpuInstanceId() (int, nvml.Return) {
	return getMIG(m, "GetGpuInstanceId", func(v migView) int { return v.gi.ID })
}

func (m migDevice) GetComputeInstanceId() (int, nvml.Return) {
	return getMIG(m, "GetComputeInstanceId", func(v migView) int { return v.ci.ID })
}

func (m migDevice) GetDeviceHandleFromMigDeviceHandle() (nvml.Device, nvml.Return) {
	return getMIG(m, "GetDeviceHandleFromMigDeviceHandle", func(migView) nvml.Device { return m.parent })
}

func (m migDevice) GetAttributes() (nvml.DeviceAttributes, nvml.Return) {
	return getMIG(m, "GetAttributes", func(v migView) nvml.DeviceAttributes {
		return nvml.DeviceAttributes{
			MultiprocessorCount:   uint32(v.compute.Multiprocessors),
			SharedCopyEngineCount: uint32(v.profile.Engines.Copy), SharedDecoderCount: uint32(v.profile.Engines.Decoder),
			SharedEncoderCount: uint32(v.profile.Engines.Encoder), SharedJpegCount: uint32(v.profile.Engines.JPEG),
			SharedOfaCount: uint32(v.profile.Engines.OFA), GpuInstanceSliceCount: uint32(v.profile.Slices),
			ComputeInstanceSliceCount: uint32(v.compute.Slices), MemorySizeMB: v.profile.MemoryMiB,
		}
	})
}

// memory is that of the GPU instance, in bytes, which its compute instances share.
func (v migView) memory() nvml.Memory_v2 {
	total := v.profile.MemoryMiB * mebibyte
	var used uint64
	for _, p := range v.running() {
		if on, ok := v.migDevice(p.MIGDevice); ok && on.gi.ID == v.gi.ID {
			used += p.MemoryBytes
		}
	}
	used = min(used, total)
	return nvml.Memory_v2{Total: total, Used: used, Free: total - used}
}

func (v migView) ownProcesses() []Process {
	var own []Process
	for _, p := range v.running() {
		if p.MIGDevice == v.uuid {
			own = append(own, p)
		}
	}
	return own
}

func (m migDevice) GetMemoryInfo() (nvml.Memory, nvml.Return) {
	return getMIG(m, "GetMemoryInfo", func(v migView) nvml.Memory {
		memory := v.memory()
		return nvml.Memory{Total: memory.Total, Used: memory.Used, Free: memory.Free}
	})
}

func (m migDevice) GetMemoryInfo_v2() (nvml.Memory_v2, nvml.Return) {
	return getMIG(m, "GetMemoryInfo_v2", func(v migView) nvml.Memory_v2 { return v.memory() })
}

func (m migDevice) processes(call string, graphics bool) ([]nvml.ProcessInfo, nvml.Return) {
	return getMIG(m, call, func(v migView) []nvml.ProcessInfo {
		infos := []nvml.ProcessInfo{}
		for _, p := range v.ownProcesses() {
			if p.Graphics == graphics {
				infos = append(infos, v.processInfo(p))
			}
		}
		return infos
	})
}

func (m migDevice) GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return m.processes("GetComputeRunningProcesses", false)
}

func (m migDevice) GetGraphicsRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return m.processes("GetGraphicsRunningProcesses", true)
}

func (m migDevice) GetMPSComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return getMIG(m, "GetMPSComputeRunningProcesses", func(migView) []nvml.ProcessInfo { return []nvml.ProcessInfo{} })
}
