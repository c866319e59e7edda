package devicemodel

import (
	"strings"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// nvswitchDomain is the domain of all GPUs on the node's NVSwitch fabric. It
// needs no distinguishing part, as a node has one fabric and a claim's devices
// lie on one node.
const nvswitchDomain = "nvswitch"

// nvlinkDomains returns the nvlinkDomain of each GPU that is linked with another,
// by its index in node.GPUs. The domain of a group without switch is made from
// the lowest PCI address that its GPUs and their links name, so it does not
// depend on indices or on anything else that may be unreadable, and stays the
// same while a member is lost.
func nvlinkDomains(node inventory.Node) map[int]string {
	domains := map[int]string{}
	for _, group := range inventory.NVLinkGroups(node) {
		domain := groupDomain(node, group)
		for _, i := range group {
			domains[i] = domain
		}
	}
	return domains
}

func groupDomain(node inventory.Node, group []int) string {
	lowest := ""
	consider := func(address string) {
		address = strings.ToLower(address)
		if address != "" && (lowest == "" || address < lowest) {
			lowest = address
		}
	}
	for _, i := range group {
		gpu := node.GPUs[i]
		if gpu.NVLink.Switch {
			return nvswitchDomain
		}
		consider(gpu.PCIBusID)
		for _, peer := range gpu.NVLink.Peers {
			consider(peer)
		}
	}
	return "nvlink-" + lowest
}
