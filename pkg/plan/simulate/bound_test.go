package simulate_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"apportion.dev/apportion/pkg/plan/allocator"
	"apportion.dev/apportion/pkg/plan/simulate"
)

// The bounds were worked out by hand.
func TestLowerBounds(t *testing.T) {
	for name, test := range map[string]struct {
		input func() *simulate.Input
		want  simulate.LowerBound
	}{
		// 3 of at most 8 at once, five times: 15/8.
		"GPUs": {func() *simulate.Input {
			in := newInput(machine("large", 1, "", gpus(8)...), machine("small", 1, "", gpus(4)...))
			return pods(in, 5, request(3))
		}, simulate.LowerBound{Nodes: 2, Because: "devices of " + driver}},
		// A quarter takes one of four slices, wherever it lies: 9/8 for two GPUs each.
		"partitions": {func() *simulate.Input {
			return pods(newInput(partitionedMachine("m", 1, 2)), 9, request(1, profile("quarter")))
		}, simulate.LowerBound{Nodes: 2, Because: "slice of " + driver}},
		// 7 times 30 of 160Gi: 210/160.
		"shares": {func() *simulate.Input {
			in := newInput(machine("m", 1, "", shareable("gpu-0", "80Gi"), shareable("gpu-1", "80Gi")))
			return pods(in, 7, withMemory(request(1), "30Gi"))
		}, simulate.LowerBound{Nodes: 2, Because: "devices of " + driver}},
		// The one alternative takes a whole GPU, the other a quarter of one.
		"alternatives": {func() *simulate.Input {
			sub := func(name, kind string) resourceapi.DeviceSubRequest {
				return resourceapi.DeviceSubRequest{
					Name: name, DeviceClassName: "gpu", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
					Selectors: request(1, profile(kind)).Exactly.Selectors,
				}
			}
			r := resourceapi.DeviceRequest{Name: "gpu", FirstAvailable: []resourceapi.DeviceSubRequest{sub("w", "whole"), sub("q", "quarter")}}
			return pods(newInput(partitionedMachine("m", 1, 1)), 5, r)
		}, simulate.LowerBound{Nodes: 2, Because: "slice of " + driver}},
		// All of what there is, which is 2 of 8 and on the other type 4 of 4.
		"all": {func() *simulate.Input {
			in := newInput(
				machine("a", 1, "", append(gpus(6), gpu("x-0", "kind=x"), gpu("x-1", "kind=x"))...),
				machine("b", 2, "", gpus(4, "kind=x")...),
			)
			r := request(0, `has(device.attributes["`+driver+`"].kind)`)
			r.Exactly.AllocationMode = resourceapi.DeviceAllocationModeAll
			return pods(in, 3, r)
		}, simulate.LowerBound{Nodes: 1, Because: "devices of " + driver}},
		// 5 times 4 of 10.
		"CPU": {func() *simulate.Input {
			in := pods(newInput(machine("m", 1, "10", gpus(8)...)), 5, request(1))
			for _, pod := range in.Pods {
				requests(pod, "4")
			}
			return in
		}, simulate.LowerBound{Nodes: 2, Because: "cpu"}},
		// It might be the other type, of which it is not known how many CPUs it has.
		"CPU is not limited everywhere": {func() *simulate.Input {
			in := pods(newInput(machine("m", 1, "10", gpus(8)...), machine("n", 2, "", gpus(8)...)), 5, request(1))
			for _, pod := range in.Pods {
				requests(pod, "4")
			}
			return in
		}, simulate.LowerBound{Nodes: 1, Because: "devices of " + driver}},
		"pods": {func() *simulate.Input {
			in := newInput(machine("m", 1, ""))
			in.InstanceTypes[0].Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("3")}
			for _, name := range []string{"a", "b", "c", "d"} {
				addPod(in, name)
			}
			return in
		}, simulate.LowerBound{Nodes: 2, Because: "pods"}},
		// A device without capacities, such as a network card, has room for any number.
		"shared without capacities": {func() *simulate.Input {
			nic := gpu("nic")
			nic.AllowMultipleAllocations = new(true)
			return pods(newInput(machine("m", 1, "", nic)), 3, request(1))
		}, simulate.LowerBound{Nodes: 1}},
		// One claim counts once, however many pods have it.
		"shared claim": {func() *simulate.Input {
			in := newInput(machine("m", 1, "", gpus(4)...))
			addClaim(in, "c", request(4))
			for _, name := range []string{"a", "b", "c"} {
				addPod(in, name, "claim:c")
			}
			return in
		}, simulate.LowerBound{Nodes: 1, Because: "devices of " + driver}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := makePlan(t, test.input(), allocator.Predict)
			if plan.LowerBound != test.want || len(plan.NotPlaced) > 0 {
				t.Errorf("%+v, want %+v; %v", plan.LowerBound, test.want, outline(plan))
			}
		})
	}
}

// pods adds some pods with a claim each.
func pods(in *simulate.Input, n int, r resourceapi.DeviceRequest) *simulate.Input {
	addTemplate(in, "t", r)
	for i := range n {
		addPod(in, string(rune('a'+i)), "template:t")
	}
	return in
}
