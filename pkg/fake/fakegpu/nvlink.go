package fakegpu

import (
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// nvSwitchBuses are the bus numbers of the NVSwitches, over which a GPU's links
// are spread.
var nvSwitchBuses = [4]uint32{0x05, 0x06, 0x07, 0x08}

// nvSwitchDeviceID is the PCI device of an NVSwitch of the third generation.
const nvSwitchDeviceID = 0x22a310de

// link checks that the GPU has the NVLink of that number and reports whether it
// is connected.
func (d device) link(call string, number int) (v view, connected bool, ret nvml.Return) {
	v, ret = d.read(call)
	switch {
	case ret != nvml.SUCCESS:
		return view{}, false, ret
	case v.product.NVLink.Topology == TopologyNone:
		return view{}, false, nvml.ERROR_NOT_SUPPORTED
	case number < 0 || number >= v.product.NVLink.Links:
		return view{}, false, nvml.ERROR_INVALID_ARGUMENT
	case v.product.NVLink.Topology == TopologySwitch:
		return v, true, ret
	}
	return v, len(v.nvlinkPeers()) > 0, ret
}

// GetNvLinkState tells whether a link is up. A GPU that is lost keeps its
// neighbour's links up; one that is pulled out does not.
func (d device) GetNvLinkState(link int) (nvml.EnableState, nvml.Return) {
	_, connected, ret := d.link("GetNvLinkState", link)
	if ret != nvml.SUCCESS || !connected {
		return nvml.FEATURE_DISABLED, ret
	}
	return nvml.FEATURE_ENABLED, ret
}

func (d device) GetNvLinkVersion(link int) (uint32, nvml.Return) {
	v, _, ret := d.link("GetNvLinkVersion", link)
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return v.product.NVLink.Version, ret
}

func (d device) GetNvLinkRemoteDeviceType(link int) (nvml.IntNvLinkDeviceType, nvml.Return) {
	v, connected, ret := d.link("GetNvLinkRemoteDeviceType", link)
	switch {
	case ret != nvml.SUCCESS:
		return nvml.NVLINK_DEVICE_TYPE_UNKNOWN, ret
	case !connected:
		return nvml.NVLINK_DEVICE_TYPE_UNKNOWN, nvml.ERROR_NOT_SUPPORTED
	case v.product.NVLink.Topology == TopologySwitch:
		return nvml.NVLINK_DEVICE_TYPE_SWITCH, ret
	}
	return nvml.NVLINK_DEVICE_TYPE_GPU, ret
}

func (d device) GetNvLinkRemotePciInfo(link int) (nvml.PciInfo, nvml.Return) {
	v, connected, ret := d.link("GetNvLinkRemotePciInfo", link)
	switch {
	case ret != nvml.SUCCESS:
		return nvml.PciInfo{}, ret
	case !connected:
		return nvml.PciInfo{}, nvml.ERROR_NOT_SUPPORTED
	case v.product.NVLink.Topology == TopologySwitch:
		return pciInfo(nvSwitchBuses[link%len(nvSwitchBuses)], nvSwitchDeviceID, 0), ret
	}
	// Several links may go to one peer.
	peers := v.nvlinkPeers()
	peer := peers[link%len(peers)]
	return pciInfo(peer.slot.Bus(), peer.product.PCI.DeviceID, peer.product.PCI.SubsystemID), ret
}

func (d device) GetNvLinkCapability(link int, capability nvml.NvLinkCapability) (uint32, nvml.Return) {
	_, _, ret := d.link("GetNvLinkCapability", link)
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	if capability == nvml.NVLINK_CAP_P2P_SUPPORTED || capability == nvml.NVLINK_CAP_P2P_ATOMICS {
		return 1, ret
	}
	return 0, ret
}

// GetTopologyCommonAncestor tells how near two GPUs are on PCIe.
func (d device) GetTopologyCommonAncestor(other nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
	v, w, ret := d.pair("GetTopologyCommonAncestor", other)
	switch {
	case ret != nvml.SUCCESS:
		return nvml.TOPOLOGY_SYSTEM, ret
	case v.uuid == w.uuid:
		return nvml.TOPOLOGY_INTERNAL, ret
	case v.slot.Root() == w.slot.Root():
		return nvml.TOPOLOGY_SINGLE, ret
	case v.slot.NUMANode() == w.slot.NUMANode():
		return nvml.TOPOLOGY_NODE, ret
	}
	return nvml.TOPOLOGY_SYSTEM, ret
}

// GetP2PStatus tells whether two GPUs reach each other: over NVLink where there
// is one, else over PCIe under the same root.
func (d device) GetP2PStatus(other nvml.Device, capability nvml.GpuP2PCapsIndex) (nvml.GpuP2PStatus, nvml.Return) {
	v, w, ret := d.pair("GetP2PStatus", other)
	if ret != nvml.SUCCESS {
		return nvml.P2P_STATUS_UNKNOWN, ret
	}
	linked := v.product.NVLink.Topology == TopologySwitch && w.product.NVLink.Topology == TopologySwitch
	linked = linked || slices.ContainsFunc(v.nvlinkPeers(), func(peer view) bool { return peer.uuid == w.uuid })
	if linked || (capability != nvml.P2P_CAPS_INDEX_NVLINK && v.slot.Root() == w.slot.Root()) {
		return nvml.P2P_STATUS_OK, ret
	}
	return nvml.P2P_STATUS_CHIPSET_NOT_SUPPORTED, ret
}

// pair reads two GPUs of this machine. The other handle may be wrapped, so it is
// known by its UUID.
func (d device) pair(call string, other nvml.Device) (v, w view, ret nvml.Return) {
	if other == nil {
		return view{}, view{}, nvml.ERROR_INVALID_ARGUMENT
	}
	if v, ret = d.read(call); ret != nvml.SUCCESS {
		return view{}, view{}, ret
	}
	uuid, ret := other.GetUUID()
	if ret != nvml.SUCCESS {
		return view{}, view{}, ret
	}
	if w, ret = d.lib.device(uuid).read(call); ret != nvml.SUCCESS {
		return view{}, view{}, ret
	}
	return v, w, ret
}
