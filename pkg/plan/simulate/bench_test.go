package simulate_test

import (
	"fmt"
	"testing"

	"apportion.dev/apportion/pkg/plan/allocator"
	"apportion.dev/apportion/pkg/plan/simulate"
)

// BenchmarkMake plans for 1,000 pods of one GPU each on 100 instance types.
func BenchmarkMake(b *testing.B) {
	in := newInput()
	for i := range 100 {
		in.InstanceTypes = append(in.InstanceTypes, machine(fmt.Sprintf("type-%d", i), float64(1+i%9), "", gpus(1<<(i%5))...))
	}
	addTemplate(in, "one", request(1))
	for i := range 1000 {
		addPod(in, fmt.Sprintf("pod-%d", i), "template:one")
	}
	for _, policy := range []allocator.Policy{allocator.Predict, allocator.BestFit} {
		b.Run(string(policy), func(b *testing.B) {
			for b.Loop() {
				if _, err := simulate.Make(b.Context(), in, simulate.Options{Policy: policy}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkMakeInALargeCluster plans for 20 pods where 5,000 nodes are full.
func BenchmarkMakeInALargeCluster(b *testing.B) {
	in := newInput(machine("m", 1, "", gpus(8)...))
	for i := range 5000 {
		name := fmt.Sprintf("node-%d", i)
		addNode(in, name, "", gpus(8)...)
		for j := range 8 {
			hold(addClaim(in, fmt.Sprintf("held-%d-%d", i, j), request(1)), name, fmt.Sprintf("gpu-%d", j))
		}
	}
	addTemplate(in, "one", request(1))
	for i := range 20 {
		addPod(in, fmt.Sprintf("pod-%d", i), "template:one")
	}
	for b.Loop() {
		if _, err := simulate.Make(b.Context(), in, simulate.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
