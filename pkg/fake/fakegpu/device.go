package fakegpu

import (
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"apportion.dev/apportion/pkg/fake/internal/chassis"
)

// device is the handle of a GPU. Two handles of the same GPU are equal. It holds
// no facts: every call looks at the machine as it is then.
type device struct {
	nvml.Device
	lib  *library
	uuid string
}

// read is the start of every call on the GPU: what the GPU is now, or the code
// that the call returns instead.
func (d device) read(call string) (view, nvml.Return) {
	st, ret := d.lib.read("nvmlDevice" + call)
	if ret != nvml.SUCCESS {
		return view{}, ret
	}
	v, ok := st.byUUID(d.uuid)
	if !ok {
		return view{}, nvml.ERROR_GPU_IS_LOST
	}
	return v, v.failure(call)
}

// get answers a call that always succeeds on a GPU in order.
func get[T any](d device, call string, value func(view) T) (T, nvml.Return) {
	v, ret := d.read(call)
	if ret != nvml.SUCCESS {
		var none T
		return none, ret
	}
	return value(v), ret
}

func (d device) GetUUID() (string, nvml.Return) {
	return get(d, "GetUUID", func(v view) string { return v.uuid })
}

func (d device) GetName() (string, nvml.Return) {
	return get(d, "GetName", func(v view) string { return v.product.ProductName })
}

func (d device) GetBrand() (nvml.BrandType, nvml.Return) {
	return get(d, "GetBrand", func(v view) nvml.BrandType { return brands[v.product.Brand] })
}

func (d device) GetArchitecture() (nvml.DeviceArchitecture, nvml.Return) {
	return get(d, "GetArchitecture", func(v view) nvml.DeviceArchitecture { return architectures[v.product.Architecture] })
}

func (d device) GetCudaComputeCapability() (int, int, nvml.Return) {
	v, ret := d.read("GetCudaComputeCapability")
	if ret != nvml.SUCCESS {
		return 0, 0, ret
	}
	major, minor, err := v.product.ComputeCapabilityNumbers()
	if err != nil {
		return 0, 0, nvml.ERROR_UNKNOWN
	}
	return major, minor, nvml.SUCCESS
}

func (d device) GetIndex() (int, nvml.Return) {
	return get(d, "GetIndex", func(v view) int {
		for i, other := range v.state.present() {
			if other.uuid == v.uuid {
				return i
			}
		}
		return -1
	})
}

func (d device) GetMinorNumber() (int, nvml.Return) {
	return get(d, "GetMinorNumber", func(v view) int { return v.slot.Number })
}

func (d device) GetSerial() (string, nvml.Return) {
	return get(d, "GetSerial", func(v view) string { return chassis.Serial(v.state.Node, v.Slot, v.product.Name) })
}

func (d device) GetBoardPartNumber() (string, nvml.Return) {
	return get(d, "GetBoardPartNumber", func(v view) string { return v.product.BoardPartNumber })
}

func (d device) GetBoardId() (uint32, nvml.Return) {
	return get(d, "GetBoardId", func(v view) uint32 { return v.slot.Bus() << 8 })
}

func (d device) GetVbiosVersion() (string, nvml.Return) {
	return get(d, "GetVbiosVersion", func(view) string { return "96.00.74.00.01" })
}

func (d device) GetNumGpuCores() (int, nvml.Return) {
	return get(d, "GetNumGpuCores", func(v view) int { return v.product.Cores })
}

// GetNumaNodeId is not what it seems: it is about GPUs whose memory is a NUMA
// node (Grace), which these are not.
func (d device) GetNumaNodeId() (int, nvml.Return) {
	_, ret := d.read("GetNumaNodeId")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return 0, nvml.ERROR_NOT_SUPPORTED
}

func (d device) GetPciInfo() (nvml.PciInfo, nvml.Return) {
	return get(d, "GetPciInfo", func(v view) nvml.PciInfo {
		return pciInfo(v.slot.Bus(), v.product.PCI.DeviceID, v.product.PCI.SubsystemID)
	})
}

func (d device) GetPciInfoExt() (nvml.PciInfoExt, nvml.Return) {
	return get(d, "GetPciInfoExt", func(v view) nvml.PciInfoExt {
		info := pciInfo(v.slot.Bus(), v.product.PCI.DeviceID, v.product.PCI.SubsystemID)
		return nvml.PciInfoExt{
			Domain: info.Domain, Bus: info.Bus, Device: info.Device, PciDeviceId: info.PciDeviceId,
			PciSubSystemId: info.PciSubSystemId, BaseClass: 0x03, SubClass: 0x02, BusId: info.BusId,
		}
	})
}

// pciInfo describes function 0 of device 0 on a bus of domain 0, with the address
// in NVML's two spellings.
func pciInfo(bus, deviceID, subsystemID uint32) nvml.PciInfo {
	info := nvml.PciInfo{Bus: bus, PciDeviceId: deviceID, PciSubSystemId: subsystemID}
	address := strings.ToUpper(chassis.PCIAddress(bus))
	copyChars(info.BusIdLegacy[:], address)
	copyChars(info.BusId[:], "0000"+address)
	return info
}

func copyChars(dst []int8, src string) {
	for i := 0; i < len(src) && i < len(dst)-1; i++ {
		dst[i] = int8(src[i])
	}
}

func (d device) IsMigDeviceHandle() (bool, nvml.Return) {
	return get(d, "IsMigDeviceHandle", func(view) bool { return false })
}

func (d device) GetMemoryInfo() (nvml.Memory, nvml.Return) {
	return get(d, "GetMemoryInfo", func(v view) nvml.Memory {
		m := v.memory()
		// Version 1 counts what the driver keeps as used.
		return nvml.Memory{Total: m.Total, Free: m.Free, Used: m.Used + m.Reserved}
	})
}

func (d device) GetMemoryInfo_v2() (nvml.Memory_v2, nvml.Return) {
	return get(d, "GetMemoryInfo_v2", func(v view) nvml.Memory_v2 { return v.memory() })
}

const mebibyte = 1 << 20

// memory is the GPU's memory in bytes.
func (v view) memory() nvml.Memory_v2 {
	total := v.product.Memory.TotalMiB * mebibyte
	reserved := v.product.Memory.ReservedMiB * mebibyte
	used := min(max(v.Load.MemoryBytes, memoryOf(v.Load.Processes))+v.allocated(), total-reserved)
	return nvml.Memory_v2{Total: total, Reserved: reserved, Used: used, Free: total - reserved - used}
}

func memoryOf(processes []Process) uint64 {
	var sum uint64
	for _, p := range processes {
		sum += p.MemoryBytes
	}
	return sum
}

func (d device) GetBAR1MemoryInfo() (nvml.BAR1Memory, nvml.Return) {
	return get(d, "GetBAR1MemoryInfo", func(v view) nvml.BAR1Memory {
		// The BAR is the next power of two above the memory.
		total := uint64(mebibyte)
		for total < v.product.Memory.TotalMiB*mebibyte {
			total *= 2
		}
		return nvml.BAR1Memory{Bar1Total: total, Bar1Free: total - mebibyte, Bar1Used: mebibyte}
	})
}

func (d device) GetMemoryBusWidth() (uint32, nvml.Return) {
	return get(d, "GetMemoryBusWidth", func(v view) uint32 { return v.product.Memory.BusWidthBits })
}

func (d device) GetComputeMode() (nvml.ComputeMode, nvml.Return) {
	return get(d, "GetComputeMode", func(view) nvml.ComputeMode { return nvml.COMPUTEMODE_DEFAULT })
}

func (d device) GetPersistenceMode() (nvml.EnableState, nvml.Return) {
	return get(d, "GetPersistenceMode", func(view) nvml.EnableState { return nvml.FEATURE_ENABLED })
}

func (d device) GetVirtualizationMode() (nvml.GpuVirtualizationMode, nvml.Return) {
	return get(d, "GetVirtualizationMode", func(view) nvml.GpuVirtualizationMode { return nvml.GPU_VIRTUALIZATION_MODE_NONE })
}

func (d device) GetGspFirmwareVersion() (string, nvml.Return) {
	return get(d, "GetGspFirmwareVersion", func(v view) string { return v.state.DriverVersion })
}

// The PCIe link runs at its best.

func (d device) GetCurrPcieLinkGeneration() (int, nvml.Return) {
	return get(d, "GetCurrPcieLinkGeneration", func(v view) int { return v.product.PCI.Generation })
}

func (d device) GetMaxPcieLinkGeneration() (int, nvml.Return) {
	return get(d, "GetMaxPcieLinkGeneration", func(v view) int { return v.product.PCI.Generation })
}

func (d device) GetCurrPcieLinkWidth() (int, nvml.Return) {
	return get(d, "GetCurrPcieLinkWidth", func(v view) int { return v.product.PCI.Width })
}

func (d device) GetMaxPcieLinkWidth() (int, nvml.Return) {
	return get(d, "GetMaxPcieLinkWidth", func(v view) int { return v.product.PCI.Width })
}

func (d device) GetPcieReplayCounter() (int, nvml.Return) {
	return get(d, "GetPcieReplayCounter", func(view) int { return 0 })
}

// GetMultiGpuBoard gives 0: none of the products has two GPUs on a board.
func (d device) GetMultiGpuBoard() (int, nvml.Return) {
	return get(d, "GetMultiGpuBoard", func(view) int { return 0 })
}
