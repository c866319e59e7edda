package gate

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/plan/allocator"
)

const (
	gpus = "gpu.apportion.dev"
	nics = "nic.example.com"
)

var node1 = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "uid-1"}}

// named makes devices dev-0, dev-1, ...
func named(count int) []resourceapi.Device {
	devices := make([]resourceapi.Device, count)
	for i := range devices {
		devices[i].Name = fmt.Sprintf("dev-%d", i)
	}
	return devices
}

// template promises devices in slices of these sizes, behind one slice of counters.
func template(driver, pool string, sizes ...int) allocator.Template {
	t := allocator.Template{Driver: driver, Pool: pool}
	t.Slices = []allocator.TemplateSlice{{SharedCounters: []resourceapi.CounterSet{{Name: "gpu-0"}}}}
	for _, size := range sizes {
		t.Slices = append(t.Slices, allocator.TemplateSlice{Devices: named(size)})
	}
	return t
}

// slice is for node-1; of is how many slices the pool has.
func slice(driver, pool string, generation, of int64, devices int, changes ...func(*resourceapi.ResourceSlice)) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
		Driver:   driver,
		Pool:     resourceapi.ResourcePool{Name: pool, Generation: generation, ResourceSliceCount: of},
		NodeName: ptr.To("node-1"),
		Devices:  named(devices),
	}}
	s.OwnerReferences = []metav1.OwnerReference{nodeOwner("node-1", "uid-1")}
	for _, change := range changes {
		change(s)
	}
	return s
}

func nodeOwner(name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: name, UID: uid, Controller: ptr.To(true)}
}

func ownedBy(owners ...metav1.OwnerReference) func(*resourceapi.ResourceSlice) {
	return func(s *resourceapi.ResourceSlice) { s.OwnerReferences = owners }
}

func ofNode(name string) func(*resourceapi.ResourceSlice) {
	return func(s *resourceapi.ResourceSlice) {
		s.Spec.NodeName = ptr.To(name)
		s.OwnerReferences = []metav1.OwnerReference{nodeOwner(name, types.UID("uid-of-"+name))}
	}
}

func ofAllNodes(s *resourceapi.ResourceSlice) {
	s.Spec.NodeName, s.Spec.AllNodes, s.OwnerReferences = nil, ptr.To(true), nil
}

func bySelector(s *resourceapi.ResourceSlice) {
	s.Spec.NodeName, s.OwnerReferences = nil, nil
	s.Spec.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "rack", Operator: corev1.NodeSelectorOpExists}},
	}}}
}

// perDevice gives the devices to these nodes, in turn; "" is for all nodes.
func perDevice(nodes ...string) func(*resourceapi.ResourceSlice) {
	return func(s *resourceapi.ResourceSlice) {
		s.Spec.NodeName, s.OwnerReferences = nil, nil
		s.Spec.PerDeviceNodeSelection = ptr.To(true)
		for i := range s.Spec.Devices {
			if name := nodes[i%len(nodes)]; name != "" {
				s.Spec.Devices[i].NodeName = &name
			} else {
				s.Spec.Devices[i].AllNodes = ptr.To(true)
			}
		}
	}
}

func requested(drivers string) map[string]string {
	return map[string]string{"karpenter.sh/requested-dra-drivers": drivers}
}

type readyCase struct {
	name        string
	templates   []allocator.Template
	slices      []*resourceapi.ResourceSlice
	annotations map[string]string
	// waiting is empty if the node is ready.
	waiting []string
}

var published = []readyCase{
	{
		name:   "a type without devices",
		slices: []*resourceapi.ResourceSlice{slice(gpus, "node-1", 1, 2, 8)},
	},
	{
		name:      "nothing is published",
		templates: []allocator.Template{template(gpus, "", 8)},
		waiting:   []string{"driver gpu.apportion.dev: pool node-1: nothing published"},
	},
	{
		name:      "all is published",
		templates: []allocator.Template{template(gpus, "", 8)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "node-1", 1, 2, 0), slice(gpus, "node-1", 1, 2, 8)},
	},
	{
		name:      "a slice is missing",
		templates: []allocator.Template{template(gpus, "", 8)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "node-1", 3, 2, 8)},
		waiting:   []string{"driver gpu.apportion.dev: pool node-1: 1 of 2 slices of generation 3"},
	},
	{
		name:      "two GPUs are missing",
		templates: []allocator.Template{template(gpus, "", 4, 4)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "node-1", 1, 2, 0), slice(gpus, "node-1", 1, 2, 6)},
		waiting:   []string{"driver gpu.apportion.dev: pool node-1: 6 of 8 devices"},
	},
	{
		name:      "more devices than promised",
		templates: []allocator.Template{template(gpus, "", 8)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "node-1", 1, 1, 10)},
	},
	{
		name:      "an empty pool",
		templates: []allocator.Template{template(gpus, "", 8)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "node-1", 1, 1, 0)},
		waiting:   []string{"driver gpu.apportion.dev: pool node-1: 0 of 8 devices"},
	},
	{
		name:      "templates without devices",
		templates: []allocator.Template{template(gpus, "", 0), template(nics, ""), {Driver: "other.example.com"}},
	},
	{
		name:      "a template without devices beside an incomplete pool",
		templates: []allocator.Template{template(gpus, "", 0)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "node-1", 1, 2, 0)},
	},
	{
		name:      "two templates of one pool add up",
		templates: []allocator.Template{template(gpus, "", 4), template(gpus, "node-1", 4)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "node-1", 1, 1, 7)},
		waiting:   []string{"driver gpu.apportion.dev: pool node-1: 7 of 8 devices"},
	},
}

var generations = []readyCase{
	{
		name:      "an old generation is left over",
		templates: []allocator.Template{template(gpus, "", 8)},
		slices: []*resourceapi.ResourceSlice{
			slice(gpus, "node-1", 2, 1, 8), slice(gpus, "node-1", 1, 2, 8), slice(gpus, "node-1", 1, 2, 8),
		},
	},
	{
		name:      "only the old generation is whole",
		templates: []allocator.Template{template(gpus, "", 8)},
		slices: []*resourceapi.ResourceSlice{
			slice(gpus, "node-1", 1, 2, 0), slice(gpus, "node-1", 2, 2, 8), slice(gpus, "node-1", 1, 2, 8),
		},
		waiting: []string{"driver gpu.apportion.dev: pool node-1: 1 of 2 slices of generation 2"},
	},
	{
		name:      "the new generation has fewer devices",
		templates: []allocator.Template{template(gpus, "", 8)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "node-1", 1, 1, 8), slice(gpus, "node-1", 2, 1, 7)},
		waiting:   []string{"driver gpu.apportion.dev: pool node-1: 7 of 8 devices"},
	},
	{
		name:      "more slices than the pool says",
		templates: []allocator.Template{template(gpus, "", 8)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "node-1", 4, 1, 8), slice(gpus, "node-1", 4, 1, 8)},
		waiting:   []string{"driver gpu.apportion.dev: pool node-1: 2 slices of generation 4 instead of 1"},
	},
	{
		name:      "slices that disagree on their number",
		templates: []allocator.Template{template(gpus, "", 8)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "node-1", 4, 3, 4), slice(gpus, "node-1", 4, 2, 4)},
		waiting:   []string{"driver gpu.apportion.dev: pool node-1: 2 of 3 slices of generation 4"},
	},
}

var ofOtherNodes = []readyCase{
	{
		name:      "another node's pool",
		templates: []allocator.Template{template(gpus, "", 8)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "node-2", 1, 1, 8, ofNode("node-2"))},
		waiting:   []string{"driver gpu.apportion.dev: pool node-1: nothing published"},
	},
	{
		name:      "another node's pool is incomplete",
		templates: []allocator.Template{template(gpus, "", 8)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "node-2", 1, 2, 8, ofNode("node-2")), slice(gpus, "node-1", 1, 1, 8)},
	},
	{
		name:      "slices of an earlier node of the same name",
		templates: []allocator.Template{template(gpus, "", 8)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "node-1", 7, 1, 8, ownedBy(nodeOwner("node-1", "uid-0")))},
		waiting:   []string{"driver gpu.apportion.dev: pool node-1: nothing published"},
	},
	{
		name:      "slices of an earlier node of the same name hide the new ones",
		templates: []allocator.Template{template(gpus, "", 8)},
		slices: []*resourceapi.ResourceSlice{
			slice(gpus, "node-1", 7, 1, 8, ownedBy(nodeOwner("node-1", "uid-0"))), slice(gpus, "node-1", 1, 1, 8),
		},
		waiting: []string{"driver gpu.apportion.dev: pool node-1: 0 of 8 devices"},
	},
	{
		name:      "a slice that nobody owns",
		templates: []allocator.Template{template(gpus, "", 8)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "node-1", 1, 1, 8, ownedBy())},
	},
	{
		name:      "an owner that is no node",
		templates: []allocator.Template{template(gpus, "", 8)},
		slices: []*resourceapi.ResourceSlice{slice(gpus, "node-1", 1, 1, 8,
			ownedBy(metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Node", Name: "node-1", UID: "x"}))},
	},
	{
		name:      "a pool with a selector that the node owns",
		templates: []allocator.Template{template(gpus, "", 8)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "node-1", 1, 1, 8, bySelector, ownedBy(nodeOwner("node-1", "uid-1")))},
	},
	{
		name:      "devices with a node each",
		templates: []allocator.Template{template(gpus, "", 2)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "rack", 1, 1, 4, perDevice("node-1", "node-2"))},
	},
	{
		name:      "devices with a node each, too few for this one",
		templates: []allocator.Template{template(gpus, "", 3)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "rack", 1, 1, 4, perDevice("node-1", "node-2"))},
		waiting:   []string{"driver gpu.apportion.dev: pool rack: 2 of 3 devices"},
	},
	{
		name:      "a named pool that spans nodes",
		templates: []allocator.Template{template(gpus, "rack", 8)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "rack", 1, 1, 8, ofNode("node-2"))},
		waiting:   []string{"driver gpu.apportion.dev: pool rack: nothing published"},
	},
}

var pools = []readyCase{
	{
		name:      "the driver names its pools otherwise",
		templates: []allocator.Template{template(gpus, "", 8)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "node-1-a", 1, 1, 4), slice(gpus, "node-1-b", 5, 1, 4)},
	},
	{
		name:      "the driver names its pools otherwise, and they fall short",
		templates: []allocator.Template{template(gpus, "", 8)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "node-1-b", 5, 1, 4), slice(gpus, "node-1-a", 1, 1, 3)},
		waiting:   []string{"driver gpu.apportion.dev: pool node-1-a, node-1-b: 7 of 8 devices"},
	},
	{
		name:      "devices of a named pool do not count for the node's",
		templates: []allocator.Template{template(gpus, "", 8), template(gpus, "spare", 1)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "node-1", 1, 1, 6), slice(gpus, "spare", 1, 1, 2)},
		waiting:   []string{"driver gpu.apportion.dev: pool node-1: 6 of 8 devices"},
	},
	{
		name:      "a named pool is not published",
		templates: []allocator.Template{template(gpus, "spare", 1)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "node-1", 1, 1, 6)},
		waiting:   []string{"driver gpu.apportion.dev: pool spare: nothing published"},
	},
	{
		name:      "a pool that was not promised is incomplete",
		templates: []allocator.Template{template(gpus, "", 8)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "node-1", 1, 1, 8), slice(gpus, "node-1-extra", 2, 2, 1)},
		waiting:   []string{"driver gpu.apportion.dev: pool node-1-extra: 1 of 2 slices of generation 2"},
	},
	{
		name:      "two drivers, in order",
		templates: []allocator.Template{template(nics, "", 4), template(gpus, "", 8)},
		slices:    []*resourceapi.ResourceSlice{slice(nics, "node-1", 1, 1, 3)},
		waiting: []string{
			"driver gpu.apportion.dev: pool node-1: nothing published",
			"driver nic.example.com: pool node-1: 3 of 4 devices",
		},
	},
	{
		name:      "a driver of another type has half a pool",
		templates: []allocator.Template{template(gpus, "", 8)},
		slices:    []*resourceapi.ResourceSlice{slice(gpus, "node-1", 1, 1, 8), slice(nics, "node-1", 1, 2, 1)},
	},
	{
		name:      "a pool behind the network, for all nodes, in the middle of an update",
		templates: []allocator.Template{template(nics, "fabric", 4)},
		slices:    []*resourceapi.ResourceSlice{slice(nics, "fabric", 9, 3, 1, ofAllNodes)},
	},
	{
		name:      "a pool behind the network, for nodes with a label",
		templates: []allocator.Template{template(gpus, "", 8), template(nics, "fabric", 4)},
		slices:    []*resourceapi.ResourceSlice{slice(nics, "fabric", 9, 1, 1, bySelector)},
		waiting:   []string{"driver gpu.apportion.dev: pool node-1: nothing published"},
	},
	{
		name: "promised devices that are other nodes', too",
		templates: []allocator.Template{{Driver: nics, Slices: []allocator.TemplateSlice{{Devices: []resourceapi.Device{
			{Name: "a", AllNodes: ptr.To(true)},
			{Name: "b", NodeSelector: &corev1.NodeSelector{}},
			{Name: "c", NodeName: ptr.To("node-2")},
		}}}}},
	},
	{
		name: "one promised device is the node's",
		templates: []allocator.Template{{Driver: nics, Slices: []allocator.TemplateSlice{{Devices: []resourceapi.Device{
			{Name: "a", AllNodes: ptr.To(true)},
			{Name: "b", NodeName: ptr.To("node-1")},
		}}}}},
		slices:  []*resourceapi.ResourceSlice{slice(nics, "node-1", 1, 1, 0)},
		waiting: []string{"driver nic.example.com: pool node-1: 0 of 1 devices"},
	},
}

var annotated = []readyCase{
	{
		name:        "only one driver was asked for",
		templates:   []allocator.Template{template(gpus, "", 8), template(nics, "", 4)},
		annotations: requested("nic.example.com"),
		waiting:     []string{"driver nic.example.com: pool node-1: nothing published"},
	},
	{
		name:        "both drivers were asked for",
		templates:   []allocator.Template{template(gpus, "", 8), template(nics, "", 4)},
		annotations: requested(" gpu.apportion.dev , ,nic.example.com"),
		waiting: []string{
			"driver gpu.apportion.dev: pool node-1: nothing published",
			"driver nic.example.com: pool node-1: nothing published",
		},
	},
	{
		name:        "a driver of another instance type of the node claim",
		templates:   []allocator.Template{template(gpus, "", 8)},
		slices:      []*resourceapi.ResourceSlice{slice(gpus, "node-1", 1, 1, 8)},
		annotations: requested("gpu.apportion.dev,tpu.example.com"),
	},
	{
		name:        "the driver of a published device behind the network",
		templates:   []allocator.Template{template(gpus, "", 8)},
		slices:      []*resourceapi.ResourceSlice{slice(gpus, "node-1", 1, 1, 8), slice(nics, "fabric", 9, 2, 4, ofAllNodes)},
		annotations: requested("gpu.apportion.dev,nic.example.com"),
	},
	{
		name:        "an empty annotation",
		templates:   []allocator.Template{template(gpus, "", 8)},
		annotations: requested(""),
	},
	{
		name:        "other annotations",
		templates:   []allocator.Template{template(gpus, "", 8)},
		annotations: map[string]string{"karpenter.sh/do-not-disrupt": "true"},
		waiting:     []string{"driver gpu.apportion.dev: pool node-1: nothing published"},
	},
}

func TestReady(t *testing.T) {
	for _, tc := range slices.Concat(published, generations, ofOtherNodes, pools, annotated) {
		t.Run(tc.name, func(t *testing.T) {
			ready, waiting := Ready(node1, tc.templates, tc.slices, tc.annotations)
			check(t, tc, ready, waiting)
			// The order in which slices are listed says nothing.
			backwards := slices.Clone(tc.slices)
			slices.Reverse(backwards)
			ready, waiting = Ready(node1, tc.templates, backwards, tc.annotations)
			check(t, tc, ready, waiting)
		})
	}
}

func check(t *testing.T, tc readyCase, ready bool, waiting []Waiting) {
	t.Helper()
	var got []string
	for _, w := range waiting {
		got = append(got, w.String())
	}
	if diff := cmp.Diff(tc.waiting, got); diff != "" {
		t.Errorf("waits for (-want +got):\n%s", diff)
	}
	if want := len(tc.waiting) == 0; ready != want {
		t.Errorf("ready: %t, want %t", ready, want)
	}
}
