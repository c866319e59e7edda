package ownership

import (
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PrunePod returns a copy of a pod with what [Join] reads. Of a pod without claims that
// is little more than its name.
func PrunePod(pod *corev1.Pod) *corev1.Pod {
	pruned := &corev1.Pod{ObjectMeta: pruneMeta(pod.ObjectMeta)}
	pruned.DeletionTimestamp, pruned.OwnerReferences = pod.DeletionTimestamp, pod.OwnerReferences
	pruned.Spec.NodeName, pruned.Status.Phase = pod.Spec.NodeName, pod.Status.Phase
	if !HasClaims(pod) {
		return pruned
	}
	pruned.Labels = pod.Labels
	pruned.Spec.ResourceClaims, pruned.Spec.SchedulingGroup = pod.Spec.ResourceClaims, pod.Spec.SchedulingGroup
	pruned.Spec.InitContainers, pruned.Spec.Containers = pruneContainers(pod.Spec.InitContainers), pruneContainers(pod.Spec.Containers)
	for _, c := range pod.Spec.EphemeralContainers {
		pruned.Spec.EphemeralContainers = append(pruned.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: c.Name, Resources: corev1.ResourceRequirements{Claims: c.Resources.Claims}},
		})
	}
	pruned.Status.InitContainerStatuses = pruneStatuses(pod.Status.InitContainerStatuses)
	pruned.Status.ContainerStatuses = pruneStatuses(pod.Status.ContainerStatuses)
	pruned.Status.EphemeralContainerStatuses = pruneStatuses(pod.Status.EphemeralContainerStatuses)
	pruned.Status.ResourceClaimStatuses = pod.Status.ResourceClaimStatuses
	pruned.Status.ExtendedResourceClaimStatus = pod.Status.ExtendedResourceClaimStatus
	return pruned
}

// PruneClaim returns a copy of a claim with what [Held] and [Join] read.
func PruneClaim(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	pruned := &resourceapi.ResourceClaim{ObjectMeta: pruneMeta(claim.ObjectMeta)}
	// A claim that has been read again is told from what was known of it before.
	pruned.ResourceVersion = claim.ResourceVersion
	pruned.Status.ReservedFor, pruned.Status.Devices = claim.Status.ReservedFor, claim.Status.Devices
	if a := claim.Status.Allocation; a != nil {
		pruned.Status.Allocation = &resourceapi.AllocationResult{
			Devices:             resourceapi.DeviceAllocationResult{Results: a.Devices.Results},
			AllocationTimestamp: a.AllocationTimestamp,
		}
	}
	return pruned
}

// PruneSlice returns a copy of a slice with what [NewPublished] reads.
func PruneSlice(slice *resourceapi.ResourceSlice) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{ObjectMeta: pruneMeta(slice.ObjectMeta), Spec: slice.Spec}
}

func pruneMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID}
}

func pruneContainers(containers []corev1.Container) []corev1.Container {
	var pruned []corev1.Container
	for _, c := range containers {
		pruned = append(pruned, corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy, Resources: corev1.ResourceRequirements{Claims: c.Resources.Claims}})
	}
	return pruned
}

// pruneStatuses keeps which container runs, and whether it ever did. What a failing one
// says of itself changes often, and is of no interest.
func pruneStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var pruned []corev1.ContainerStatus
	for _, s := range statuses {
		pruned = append(pruned, corev1.ContainerStatus{
			Name: s.Name, ContainerID: s.ContainerID, RestartCount: min(s.RestartCount, 1),
			State: pruneState(s.State), LastTerminationState: pruneState(s.LastTerminationState),
		})
	}
	return pruned
}

func pruneState(s corev1.ContainerState) corev1.ContainerState {
	var pruned corev1.ContainerState
	if s.Running != nil {
		pruned.Running = &corev1.ContainerStateRunning{}
	}
	if s.Terminated != nil {
		pruned.Terminated = &corev1.ContainerStateTerminated{StartedAt: s.Terminated.StartedAt}
	}
	return pruned
}
