package inventory

import (
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// NVLinkGroups returns the sets of GPUs that can reach each other over NVLink,
// as indices into n.GPUs. GPUs are in one group if a chain of direct links joins
// them (bridges), or if each has a link to an NVSwitch: a node has one NVSwitch
// fabric. A link that only one of its two ends reports counts. Groups have at
// least two members; members are in ascending order and groups are ordered by
// their first member.
func NVLinkGroups(n Node) [][]int {
	parent := make([]int, len(n.GPUs))
	byAddress := map[string]int{}
	for i, gpu := range n.GPUs {
		parent[i] = i
		if gpu.PCIBusID != "" {
			byAddress[strings.ToLower(gpu.PCIBusID)] = i
		}
	}
	find := func(i int) int {
		for parent[i] != i {
			i = parent[i]
		}
		return i
	}
	join := func(a, b int) {
		// The lower index becomes the root, so that a group's root is its first
		// member.
		ra, rb := find(a), find(b)
		parent[max(ra, rb)] = min(ra, rb)
	}
	onSwitch := -1
	for i, gpu := range n.GPUs {
		if gpu.NVLink.Switch {
			if onSwitch >= 0 {
				join(onSwitch, i)
			}
			onSwitch = i
		}
		for _, peer := range gpu.NVLink.Peers {
			if j, ok := byAddress[strings.ToLower(peer)]; ok {
				join(i, j)
			}
		}
	}

	members := make([][]int, len(n.GPUs))
	for i := range n.GPUs {
		root := find(i)
		members[root] = append(members[root], i)
	}
	return slices.DeleteFunc(members, func(group []int) bool { return len(group) < 2 })
}

// nvlink reads the active links and what is at their other ends.
func (g *gpuReading) nvlink() {
	if !g.pass.has("nvmlDeviceGetNvLinkState") {
		return
	}
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := g.dev.GetNvLinkState(link)
		if !g.ok("NVLink state", ret) || state != nvml.FEATURE_ENABLED {
			continue
		}
		kind := nvml.NVLINK_DEVICE_TYPE_UNKNOWN
		if g.pass.has("nvmlDeviceGetNvLinkRemoteDeviceType") {
			if k, ret := g.dev.GetNvLinkRemoteDeviceType(link); g.ok("type of NVLink peer", ret) {
				kind = k
			}
		}
		switch kind {
		case nvml.NVLINK_DEVICE_TYPE_SWITCH:
			g.gpu.NVLink.Switch = true
		case nvml.NVLINK_DEVICE_TYPE_GPU, nvml.NVLINK_DEVICE_TYPE_UNKNOWN:
			if peer := g.nvlinkPeer(link); peer != "" {
				g.gpu.NVLink.Peers = append(g.gpu.NVLink.Peers, peer)
			}
		}
	}
	slices.Sort(g.gpu.NVLink.Peers)
	g.gpu.NVLink.Peers = slices.Compact(g.gpu.NVLink.Peers)
}

// nvlinkPeer returns the PCI address at the other end of a link, or "".
func (g *gpuReading) nvlinkPeer(link int) string {
	if !g.pass.has("nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo") {
		return ""
	}
	info, ret := g.dev.GetNvLinkRemotePciInfo(link)
	if !g.ok("address of NVLink peer", ret) {
		return ""
	}
	address, err := NormalizePCIBusID(cString(info.BusId[:]))
	if err != nil || address == g.gpu.PCIBusID {
		return ""
	}
	return address
}
