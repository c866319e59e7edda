package simulate

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// requestsOf is what a pod takes of a node: what its containers request, and one pod.
func requestsOf(pod *corev1.Pod) corev1.ResourceList {
	// For a pod that runs, the kubelet may know better than the spec (KEP-1287).
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: pod.Spec.NodeName != ""})
	requests[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return requests
}

// unlimited says whether what is not named among allocatable resources is not limited.
func unlimited(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods:
		return true
	}
	return false
}

// shortage says which request does not fit beside what is used, empty if all do.
func shortage(requests, used, allocatable corev1.ResourceList) string {
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		request := requests[name]
		if request.IsZero() {
			continue
		}
		total, named := allocatable[name]
		if !named && unlimited(name) {
			continue
		}
		left := total.DeepCopy()
		left.Sub(used[name])
		if request.Cmp(left) <= 0 {
			continue
		}
		switch {
		case !named:
			return fmt.Sprintf("it has no %s", name)
		case name == corev1.ResourcePods:
			return fmt.Sprintf("it has room for %s pods, all taken", total.String())
		}
		return fmt.Sprintf("%s: %s of %s left, %s wanted", name, left.String(), total.String(), request.String())
	}
	return ""
}

// plus adds quantities of the same name; neither map is changed.
func plus[K ~string](a, b map[K]resource.Quantity) map[K]resource.Quantity {
	sum := map[K]resource.Quantity{}
	for _, quantities := range []map[K]resource.Quantity{a, b} {
		for name, quantity := range quantities {
			total := sum[name]
			total.Add(quantity)
			sum[name] = total
		}
	}
	return sum
}
