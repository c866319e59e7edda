package allocator_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"apportion.dev/apportion/pkg/plan/allocator"
)

// benchGPUs are like those of a real driver: alike but for index and address.
func benchGPUs(prefix string, n int) []resourceapi.Device {
	devices := make([]resourceapi.Device, n)
	for i := range devices {
		devices[i] = rigModel(fmt.Sprintf("%sgpu-%d", prefix, i), "h100")
		devices[i].Capacity = rigShared("", "80Gi").Capacity
	}
	return devices
}

func benchNodes(nodes int, place func(i int, name string) func(*resourceapi.ResourceSliceSpec)) *inputs {
	r := newInputs()
	for i := range nodes {
		name := fmt.Sprintf("node-%04d", i)
		devices := benchGPUs("", 8)
		for j := range devices {
			zone := fmt.Sprintf("zone-%d", i%3)
			devices[j].Attributes["zone"] = resourceapi.DeviceAttribute{StringValue: &zone}
		}
		r.slices(rigSlice(name, place(i, name), devices...))
	}
	return r
}

func benchByNode(_ int, name string) func(*resourceapi.ResourceSliceSpec) { return rigOnNode(name) }

func benchByZone(i int, _ string) func(*resourceapi.ResourceSliceSpec) {
	return rigInZones(fmt.Sprintf("zone-%d", i%3))
}

func benchEverywhere(int, string) func(*resourceapi.ResourceSliceSpec) { return rigEverywhere }

func benchTypes(n int, names bool) []*allocator.InstanceType {
	types := make([]*allocator.InstanceType, n)
	for i := range types {
		prefix := ""
		if names {
			prefix = fmt.Sprintf("type-%03d-", i)
		}
		types[i] = rigType(fmt.Sprintf("type-%03d", i), []string{"zone-0", "zone-1", "zone-2"}, benchGPUs(prefix, 8)...)
		types[i].Labels[corev1.LabelInstanceTypeStable] = []string{types[i].Name}
	}
	return types
}

func BenchmarkAllocate(b *testing.B) {
	node := allocator.Target{ID: "node-0001", Node: rigNode("node-0001", rigZone, "zone-1")}
	h100 := rigOfModel("h100")
	inZone := rigSelector(rigIn(rigZone, "zone-1"))
	matchZone := rigClaim("c", 8, h100)
	matchZone.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: new(resourceapi.FullyQualifiedName(rigDriver + "/zone"))}}
	every := make([]string, 700)
	for i := range every {
		every[i] = fmt.Sprintf("type-%03d", i)
	}
	narrowed := []*corev1.NodeSelector{rigSelector(rigIn(corev1.LabelInstanceTypeStable, every...), rigIn(rigZone, "zone-0", "zone-1"))}
	for _, bench := range []struct {
		name   string
		rig    *inputs
		target allocator.Target
		claim  *resourceapi.ResourceClaim
	}{
		{"1-node-count-1", benchNodes(2, benchByNode), node, rigClaim("c", 1, h100)},
		{"1-node-count-8", benchNodes(2, benchByNode), node, rigClaim("c", 8, h100)},
		{"700-types-count-8", newInputs(), nodeClaim("n", benchTypes(700, false)...), rigClaim("c", 8, h100)},
		{"700-types-own-names-count-8", newInputs(), nodeClaim("n", benchTypes(700, true)...), rigClaim("c", 8, h100)},
		{"700-types-count-9", newInputs(), nodeClaim("n", benchTypes(700, false)...), rigClaim("c", 9, h100)},
		{"700-types-narrowed-count-8", newInputs(), allocator.Target{ID: "n", InstanceTypes: benchTypes(700, false), Selectors: narrowed}, rigClaim("c", 8, h100)},
		{"700-types-3-zones-count-8", benchNodes(3, benchByZone), nodeClaim("n", benchTypes(700, false)...), rigClaim("c", 8, h100)},
		{"5000-nodes-by-name-zone", benchNodes(5000, benchByNode), allocator.Target{ID: node.ID, Node: node.Node, Selectors: []*corev1.NodeSelector{inZone}}, rigClaim("c", 8, h100)},
		{"5000-nodes-by-zone", benchNodes(5000, benchByZone), allocator.Target{ID: "n", InstanceTypes: benchTypes(1, false), Selectors: []*corev1.NodeSelector{inZone}}, rigClaim("c", 8, h100)},
		{"5000-nodes-by-zone-3-zones", benchNodes(5000, benchByZone), nodeClaim("n", benchTypes(1, false)...), rigClaim("c", 8, h100)},
		{"5000-nodes-match-zone", benchNodes(5000, benchEverywhere), nodeClaim("n", benchTypes(1, false)...), matchZone},
	} {
		b.Run(bench.name, func(b *testing.B) {
			a := bench.rig.new(b)
			claims := []*resourceapi.ResourceClaim{bench.claim}
			if _, err := a.Allocate(b.Context(), bench.target, claims); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := a.Allocate(b.Context(), bench.target, claims); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLoop starts a loop anew each time, with a cache that knows the cluster.
func BenchmarkLoop(b *testing.B) {
	for _, bench := range []struct {
		name   string
		rig    *inputs
		target allocator.Target
		claim  *resourceapi.ResourceClaim
	}{
		{"700-types-count-8", newInputs(), nodeClaim("n", benchTypes(700, false)...), rigClaim("c", 8, rigOfModel("h100"))},
		{"5000-nodes-by-zone", benchNodes(5000, benchByZone), nodeClaim("n", benchTypes(1, false)...), rigClaim("c", 8, rigOfModel("h100"))},
	} {
		b.Run(bench.name, func(b *testing.B) {
			bench.rig.Cache = allocator.NewCache()
			claims := []*resourceapi.ResourceClaim{bench.claim}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := bench.rig.new(b).Allocate(b.Context(), bench.target, claims); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
