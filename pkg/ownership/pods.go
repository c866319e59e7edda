package ownership

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// stateOf says how far a pod is. Its status is written by the kubelet, which ends a
// pod only when all its containers have.
func stateOf(pod *corev1.Pod) PodState {
	switch {
	case HasEnded(pod):
		return Gone
	case pod.DeletionTimestamp != nil:
		return Terminating
	case hasStarted(pod):
		return Running
	}
	return Waiting
}

// HasEnded says whether a pod has ended for good.
func HasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// hasStarted says whether a container of the pod has ever started.
func hasStarted(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodRunning {
		return true
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range statuses {
			if containerHasStarted(&statuses[i]) {
				return true
			}
		}
	}
	return false
}

func containerHasStarted(s *corev1.ContainerStatus) bool {
	return s.State.Running != nil || s.RestartCount > 0 || ran(s.State.Terminated) || ran(s.LastTerminationState.Terminated)
}

// ran says whether a container that has ended did start: one that the runtime could
// not start has the Unix epoch as the time when it did.
func ran(end *corev1.ContainerStateTerminated) bool {
	return end != nil && end.StartedAt.Unix() > 0
}

// containersOf are the pod's containers that use something: init containers and
// sidecars, the regular ones, ephemeral ones. The API lets no ephemeral container use
// claims yet.
func containersOf(pod *corev1.Pod, u uses) []Container {
	var containers []Container
	add := func(kind ContainerKind, c *corev1.Container, statuses []corev1.ContainerStatus) {
		if !u.by(c.Name, c.Resources.Claims) {
			return
		}
		i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Name })
		if i < 0 {
			containers = append(containers, Container{Name: c.Name, Kind: kind})
			return
		}
		containers = append(containers, containerOf(kind, &statuses[i]))
	}
	for i := range pod.Spec.InitContainers {
		c, kind := &pod.Spec.InitContainers[i], InitContainer
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			kind = Sidecar
		}
		add(kind, c, pod.Status.InitContainerStatuses)
	}
	for i := range pod.Spec.Containers {
		add(RegularContainer, &pod.Spec.Containers[i], pod.Status.ContainerStatuses)
	}
	for i := range pod.Spec.EphemeralContainers {
		c := corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		add(EphemeralContainer, &c, pod.Status.EphemeralContainerStatuses)
	}
	return containers
}

// containerOf is a container that uses a device, as its status describes it.
func containerOf(kind ContainerKind, status *corev1.ContainerStatus) Container {
	c := Container{Name: status.Name, Kind: kind, Started: containerHasStarted(status)}
	if status.State.Running != nil {
		_, c.ID, _ = strings.Cut(status.ContainerID, "://")
	}
	return c
}

// Present are the consumers that are not gone. If all are, the device is still theirs:
// its claim has not been unprepared.
func Present(consumers []Consumer) []Consumer {
	there := slices.DeleteFunc(slices.Clone(consumers), func(c Consumer) bool { return c.State == Gone })
	if len(there) == 0 {
		return consumers
	}
	return there
}
