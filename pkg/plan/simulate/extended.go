package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// extendedClaim is the claim that kube-scheduler makes for what a pod's containers
// request of extended resources that a class serves (KEP-5004).
func (b *claimBook) extendedClaim(pod *corev1.Pod, resources []corev1.ResourceName) *resourceapi.ResourceClaim {
	meta := metav1.ObjectMeta{Annotations: map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"}}
	return b.make(pod, "extended-resources", meta, resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: b.requestsFor(pod, resources)}})
}

// requestsFor are the requests for extended resources, in kube-scheduler's order.
func (b *claimBook) requestsFor(pod *corev1.Pod, resources []corev1.ResourceName) []resourceapi.DeviceRequest {
	var requests []resourceapi.DeviceRequest
	for _, name := range resources {
		requests = append(requests, extendedRequests(pod, name, b.extended.GetDeviceClass(name).Name)...)
	}
	slices.SortFunc(requests, func(a, b resourceapi.DeviceRequest) int { return cmp.Compare(a.Name, b.Name) })
	return requests
}

// extendedRequests are the requests for one extended resource: one for each container
// that lives as long as the pod, and one for what the greediest of the other init
// containers needs beyond what it can borrow from the containers that start after it.
func extendedRequests(pod *corev1.Pod, resource corev1.ResourceName, class string) []resourceapi.DeviceRequest {
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	wanted := make([]int64, len(containers))
	lasting := make([]int64, len(containers))
	for i, c := range containers {
		quantity := c.Resources.Requests[resource]
		wanted[i] = quantity.Value()
		isSidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		if i >= len(pod.Spec.InitContainers) || isSidecar {
			lasting[i] = wanted[i]
		}
	}
	request := func(i int, count int64) resourceapi.DeviceRequest {
		// The name that kube-scheduler gives it: places of the container and of the
		// resource among those that it requests.
		names := slices.Sorted(maps.Keys(containers[i].Resources.Requests))
		return resourceapi.DeviceRequest{
			Name: fmt.Sprintf("container-%d-request-%d", i, slices.Index(names, resource)),
			Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
			},
		}
	}
	var requests []resourceapi.DeviceRequest
	greediest, extra := 0, int64(0)
	for i := range containers {
		if lasting[i] > 0 {
			requests = append(requests, request(i, lasting[i]))
			continue
		}
		beyond := wanted[i]
		for _, borrowed := range lasting[i:] {
			beyond -= borrowed
		}
		if beyond > extra {
			greediest, extra = i, beyond
		}
	}
	if extra > 0 {
		requests = append(requests, request(greediest, extra))
	}
	return requests
}

// isExtended says whether a resource is one that no kubelet knows by itself, or the
// implicit name of a class.
func isExtended(name corev1.ResourceName) bool {
	text := string(name)
	if strings.HasPrefix(text, resourceapi.ResourceDeviceClassPrefix) {
		return true
	}
	return strings.Contains(text, "/") && !strings.Contains(text, corev1.ResourceDefaultNamespacePrefix)
}
