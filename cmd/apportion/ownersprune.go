package main

import (
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

var _ cache.TransformFunc = prune

// prune drops from an object what ownership.Held and ownership.Join do not read: a
// large cluster has many pods, and most of a pod is not needed.
func prune(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		return prunePod(o), nil
	case *resourceapi.ResourceClaim:
		o.ObjectMeta = pruneMeta(o.ObjectMeta)
	case *resourceapi.ResourceSlice:
		o.ObjectMeta = pruneMeta(o.ObjectMeta)
	}
	return object, nil
}

func pruneMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, OwnerReferences: m.OwnerReferences,
	}
}

func prunePod(pod *corev1.Pod) *corev1.Pod {
	result := &corev1.Pod{ObjectMeta: pruneMeta(pod.ObjectMeta)}
	result.Spec.NodeName = pod.Spec.NodeName
	result.Status.Phase = pod.Status.Phase
	if len(pod.Spec.ResourceClaims) == 0 && pod.Status.ExtendedResourceClaimStatus == nil {
		return result
	}
	result.Labels = pod.Labels
	result.Spec.ResourceClaims, result.Spec.SchedulingGroup = pod.Spec.ResourceClaims, pod.Spec.SchedulingGroup
	result.Spec.InitContainers = pruneContainers(pod.Spec.InitContainers)
	result.Spec.Containers = pruneContainers(pod.Spec.Containers)
	for _, c := range pod.Spec.EphemeralContainers {
		result.Spec.EphemeralContainers = append(result.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: c.Name, Resources: pruneResources(c.Resources)},
		})
	}
	result.Status.InitContainerStatuses = pruneStatuses(pod.Status.InitContainerStatuses)
	result.Status.ContainerStatuses = pruneStatuses(pod.Status.ContainerStatuses)
	result.Status.EphemeralContainerStatuses = pruneStatuses(pod.Status.EphemeralContainerStatuses)
	result.Status.ResourceClaimStatuses = pod.Status.ResourceClaimStatuses
	result.Status.ExtendedResourceClaimStatus = pod.Status.ExtendedResourceClaimStatus
	return result
}

func pruneContainers(containers []corev1.Container) []corev1.Container {
	var result []corev1.Container
	for _, c := range containers {
		result = append(result, corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy, Resources: pruneResources(c.Resources)})
	}
	return result
}

func pruneResources(r corev1.ResourceRequirements) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Claims: r.Claims}
}

func pruneStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var result []corev1.ContainerStatus
	for _, s := range statuses {
		result = append(result, corev1.ContainerStatus{
			Name: s.Name, ContainerID: s.ContainerID, RestartCount: s.RestartCount,
			State: s.State, LastTerminationState: s.LastTerminationState,
		})
	}
	return result
}
