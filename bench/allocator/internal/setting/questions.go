package setting

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"

	"apportion.dev/apportion/pkg/plan/allocator"
)

// OneNode has 8 GPUs, of which the pod wants some.
func OneNode(count int64) Setting {
	return onNode(1, gpus("gpu", "H100", 8), Claim("train", Request("gpu", GPUs, count)))
}

// NoNIC has as many GPUs as one claim wants, in this many requests of the same number,
// and no NIC for the other claim.
func NoNIC(gpuCount, requests int) Setting {
	claim := Claim("train")
	for i := range requests {
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, Request(fmt.Sprintf("gpu-%d", i), GPUs, int64(gpuCount/requests)))
	}
	return onNode(0, gpus("gpu", "H100", gpuCount), claim, Claim("net", Request("nic", NICs, 1)))
}

// OneTooFew has one GPU less than the pod wants.
func OneTooFew(wanted int) Setting {
	return onNode(0, gpus("gpu", "H100", wanted-1), Claim("train", Request("gpu", GPUs, int64(wanted))))
}

// PartitionsOneShort has this many partitions and one unit too little of their counter
// for half of them, which the pod wants.
func PartitionsOneShort(count int) Setting {
	slices := nodeSlices("node-0", partitioned(count, count/2)...)
	return Setting{
		Classes: Classes(), Slices: slices, Nodes: []*corev1.Node{node("node-0", "a")},
		Claims: []*resourceapi.ResourceClaim{Claim("infer", Request("mig", Partitions, int64(count/2)))},
	}
}

func onNode(fit int, devices []resourceapi.Device, claims ...*resourceapi.ResourceClaim) Setting {
	for i := range devices {
		devices[i] = published(devices[i], "node-0")
	}
	return Setting{
		Classes: Classes(), Slices: nodeSlices("node-0", allocator.TemplateSlice{Devices: devices}),
		Nodes: []*corev1.Node{node("node-0", "a")}, Claims: claims, Fit: fit,
	}
}

// Types are instance types with 8 GPUs each, all of which the pod wants. There are so
// many kinds of GPUs; the names of devices differ everywhere.
func Types(count, shapes int) Setting {
	s := Setting{Classes: Classes(), Claims: []*resourceapi.ResourceClaim{Claim("train", Request("gpu", GPUs, 8))}, Fit: count}
	for i := range count {
		name := fmt.Sprintf("type-%d", i)
		s.Types = append(s.Types, instanceType(name, template(gpuDriver, gpus("gpu-"+name, fmt.Sprintf("product-%d", i%shapes), 8)...)))
	}
	return s
}

// LastHasNIC are instance types with 8 GPUs, of which only the last has the NIC that the
// pod wants beside all GPUs.
func LastHasNIC(count int) Setting {
	s := Types(count, 1)
	s.Claims = append(s.Claims, Claim("net", Request("nic", NICs, 1)))
	s.Fit = 1
	last := s.Types[count-1]
	last.Templates = append(last.Templates, template(nicDriver, resourceapi.Device{Name: "nic-0"}))
	return s
}

var zones = []string{"a", "b", "c", "d", "e"}

// NewNodeInZone is a node claim for a pod that wants 8 GPUs in one zone, in a cluster with
// many nodes of 8 GPUs.
func NewNodeInZone(nodes int) Setting {
	s := Types(1, 1)
	s.Slices = FullNodesInZone(nodes).Slices
	s.Zone = "c"
	return s
}

// FullNodesInZone are nodes in five zones, with 8 GPUs each of which the first is taken.
// The pod wants 8, in one zone.
func FullNodesInZone(nodes int) Setting {
	s := Setting{Classes: Classes(), Claims: []*resourceapi.ResourceClaim{Claim("train", Request("gpu", GPUs, 8))}, Zone: "c"}
	for i := range nodes {
		name := fmt.Sprintf("node-%d", i)
		devices := gpus("gpu", "H100", 8)
		for d := range devices {
			devices[d] = published(devices[d], name)
		}
		s.Nodes = append(s.Nodes, node(name, zones[i%len(zones)]))
		s.Slices = append(s.Slices, nodeSlices(name, allocator.TemplateSlice{Devices: devices})...)
		s.Allocated = append(s.Allocated, schedulerapi.MakeDeviceID(gpuDriver, name, devices[0].Name))
	}
	return s
}

// PoolsInZones are pools of 8 GPUs that all nodes of a zone reach, in five zones. The pod
// wants 8 in one of them, on a new node.
func PoolsInZones(pools int) Setting {
	s := Types(1, 1)
	s.Types[0].Templates = nil
	s.Zone = "c"
	for i := range pools {
		name := fmt.Sprintf("pool-%d", i)
		slices := nodeSlices(name, allocator.TemplateSlice{Devices: gpus("gpu", "H100", 8)})
		for _, slice := range slices {
			slice.Spec.NodeName = nil
			slice.Spec.NodeSelector = inZone(zones[i%len(zones)])
		}
		s.Slices = append(s.Slices, slices...)
	}
	return s
}

func inZone(zone string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}},
	}}}}
}

// Selectors are those that the pod's zone makes, if any.
func (s Setting) Selectors() []*corev1.NodeSelector {
	if s.Zone == "" {
		return nil
	}
	return []*corev1.NodeSelector{inZone(s.Zone)}
}

// NodesFor gives a node for each of Types and what is published then, for an allocator
// that knows only nodes that exist.
func (s Setting) NodesFor() ([]*corev1.Node, []*resourceapi.ResourceSlice) {
	nodes, slices := s.Nodes, s.Slices
	for _, t := range s.Types {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "of-" + t.Name, Labels: map[string]string{
			corev1.LabelInstanceTypeStable: t.Name, corev1.LabelTopologyZone: s.Zone,
		}}}
		nodes = append(nodes, n)
		for _, template := range t.Templates {
			of := nodeSlices(n.Name, template.Slices...)
			for _, slice := range of {
				slice.Name += "-" + template.Driver
				slice.Spec.Driver = template.Driver
			}
			slices = append(slices, of...)
		}
	}
	return nodes, slices
}
