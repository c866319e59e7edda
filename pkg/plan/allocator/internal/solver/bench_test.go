package solver

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func bench(b *testing.B, r *rig) {
	b.Helper()
	p, err := r.problem()
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	solution, err := Solve(ctx, p)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Solve(ctx, p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(solution.Nodes), "nodes")
}

// BenchmarkSolve is the usual case: one node with 8 devices and one selector.
func BenchmarkSolve(b *testing.B) {
	for _, count := range []int{1, 8} {
		b.Run(fmt.Sprintf("count=%d", count), func(b *testing.B) {
			gpus := devices(8, "gpu-%d", attribute("model", "h100"), attribute("memory", 80), capacityOf("memory", "80Gi"))
			bench(b, newRig(claimOf("train", exactly("gpu", count, selecting(`device.attributes["gpu.example.com"].model == "h100"`)))).pool(testNode, gpus))
		})
	}
}

func BenchmarkSolveHard(b *testing.B) {
	for _, hard := range hardCases() {
		b.Run(hard.name, func(b *testing.B) { bench(b, hard.rig) })
	}
}

// BenchmarkCluster is a node in a cluster of 5,000 nodes with 8 GPUs each, of which it
// reaches its own, or all of its zone.
func BenchmarkCluster(b *testing.B) {
	for _, named := range []bool{true, false} {
		slices := clusterSlices(5000, named)
		claim := claimOf("train", exactly("gpu", 8, selecting(`device.attributes["gpu.example.com"].model == "h100"`)), matchAll("gpu.example.com/zone"))
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-17", Labels: map[string]string{"zone": "z2"}}}
		b.Run(fmt.Sprintf("named=%v", named), func(b *testing.B) {
			NewCache().expression("true").compile(NewCache()) // CEL's own start takes long.
			b.ReportAllocs()
			for b.Loop() {
				cache := NewCache()
				snapshot := NewSnapshot(cache, slices)
				pools, err := snapshot.Pools(node)
				if err != nil {
					b.Fatal(err)
				}
				claims, err := Compile(cache, []*resourceapi.ResourceClaim{claim}, newRig().classes)
				if err != nil {
					b.Fatal(err)
				}
				solution, err := Solve(context.Background(), Problem{Pools: pools, Claims: claims})
				if err != nil || !solution.Found {
					b.Fatal(err, solution.Reason)
				}
			}
		})
		cache := NewCache()
		snapshot := NewSnapshot(cache, slices)
		b.Run(fmt.Sprintf("named=%v/warm", named), func(b *testing.B) {
			b.ReportAllocs()
			claims, err := Compile(cache, []*resourceapi.ResourceClaim{claim}, newRig().classes)
			if err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			for b.Loop() {
				pools, err := snapshot.Pools(node)
				if err != nil {
					b.Fatal(err)
				}
				solution, err := Solve(context.Background(), Problem{Pools: pools, Claims: claims})
				if err != nil || !solution.Found {
					b.Fatal(err, solution.Reason)
				}
			}
		})
	}
}

// BenchmarkClusterWithout is a node that reaches 40,000 GPUs but no NIC.
func BenchmarkClusterWithout(b *testing.B) {
	slices := clusterSlices(5000, false)
	for _, s := range slices {
		s.Spec.NodeSelector, s.Spec.AllNodes = nil, ptr.To(true)
	}
	r := newRig(claimOf("train", exactly("gpu", 8, selecting(`device.attributes["gpu.example.com"].model == "h100"`)), matchAll("gpu.example.com/zone")),
		claimOf("net", exactly("nic", 1, selecting(`device.attributes["gpu.example.com"].model == "nic"`))))
	r.slices = slices
	bench(b, r)
}

func clusterSlices(nodes int, named bool) []*resourceapi.ResourceSlice {
	var result []*resourceapi.ResourceSlice
	for i := range nodes {
		zone := fmt.Sprintf("z%d", i%3)
		gpus := devices(8, fmt.Sprintf("gpu-%d-%%d", i), attribute("model", "h100"), attribute("zone", zone))
		for k := range gpus {
			attribute("uuid", fmt.Sprintf("%d-%d", i, k))(&gpus[k])
		}
		s := slicesOf(fmt.Sprintf("node-%d", i), gpus)[0]
		s.Spec.NodeName = ptr.To(fmt.Sprintf("node-%d", i))
		if !named {
			s.Spec.NodeName = nil
			s.Spec.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
			}}}
		}
		result = append(result, s)
	}
	return result
}
