package podwatch

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mayHaveClaims says whether a pod refers to claims, or uses resources for which the
// scheduler may have made one.
func mayHaveClaims(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil || usesExtendedResources(pod)
}

// usesExtendedResources says whether a container asks for a resource that a
// DeviceClass may stand for (KEP-5004).
func usesExtendedResources(pod *corev1.Pod) bool {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range containers {
			for name := range c.Resources.Requests {
				if isExtendedResource(string(name)) {
					return true
				}
			}
		}
	}
	return false
}

// isExtendedResource is true of names with a domain that is not Kubernetes' own, and
// of the names that every DeviceClass has.
func isExtendedResource(name string) bool {
	domain, _, ok := strings.Cut(name, "/")
	return ok && (!strings.HasSuffix("."+domain, ".kubernetes.io") || strings.HasPrefix(name, resourceapi.ResourceDeviceClassPrefix))
}

// prune returns a copy with the fields that say whose pod it is, which claims it has,
// and which containers use them: those that ownership.Join reads.
func prune(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Labels: pod.Labels,
			DeletionTimestamp: pod.DeletionTimestamp, OwnerReferences: pod.OwnerReferences,
		},
		Spec: corev1.PodSpec{
			NodeName: pod.Spec.NodeName, ResourceClaims: pod.Spec.ResourceClaims, SchedulingGroup: pod.Spec.SchedulingGroup,
			InitContainers: pruneContainers(pod.Spec.InitContainers), Containers: pruneContainers(pod.Spec.Containers),
			EphemeralContainers: pruneEphemeral(pod.Spec.EphemeralContainers),
		},
		Status: corev1.PodStatus{
			Phase:                       pod.Status.Phase,
			InitContainerStatuses:       pruneStatuses(pod.Status.InitContainerStatuses),
			ContainerStatuses:           pruneStatuses(pod.Status.ContainerStatuses),
			EphemeralContainerStatuses:  pruneStatuses(pod.Status.EphemeralContainerStatuses),
			ResourceClaimStatuses:       pod.Status.ResourceClaimStatuses,
			ExtendedResourceClaimStatus: pod.Status.ExtendedResourceClaimStatus,
		},
	}
}

func pruneContainers(containers []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for _, c := range containers {
		out = append(out, corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy, Resources: corev1.ResourceRequirements{Claims: c.Resources.Claims}})
	}
	return out
}

func pruneEphemeral(containers []corev1.EphemeralContainer) []corev1.EphemeralContainer {
	var out []corev1.EphemeralContainer
	for _, c := range containers {
		out = append(out, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: c.Name, Resources: corev1.ResourceRequirements{Claims: c.Resources.Claims}},
			TargetContainerName:      c.TargetContainerName,
		})
	}
	return out
}

// pruneStatuses keeps which container runs, and whether it ever did. What a failing one
// says of itself changes often, and is of no interest.
func pruneStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for _, s := range statuses {
		out = append(out, corev1.ContainerStatus{
			Name: s.Name, ContainerID: s.ContainerID, RestartCount: min(s.RestartCount, 1),
			State: pruneState(s.State), LastTerminationState: pruneState(s.LastTerminationState),
		})
	}
	return out
}

func pruneState(s corev1.ContainerState) corev1.ContainerState {
	var out corev1.ContainerState
	if s.Running != nil {
		out.Running = &corev1.ContainerStateRunning{}
	}
	if s.Terminated != nil {
		out.Terminated = &corev1.ContainerStateTerminated{StartedAt: s.Terminated.StartedAt}
	}
	if s.Waiting != nil {
		out.Waiting = &corev1.ContainerStateWaiting{}
	}
	return out
}

// hasStarted says whether a container of the pod runs or has run.
func hasStarted(pod *corev1.Pod) bool {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range statuses {
			if s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil {
				return true
			}
		}
	}
	return false
}
