package ownership

import (
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
	statuses := byName(pod.Status.InitContainerStatuses)
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		kind := InitContainer
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			kind = Sidecar
		}
		if u.by(c.Name, c.Resources.Claims) {
			containers = append(containers, containerOf(kind, c.Name, statuses[c.Name]))
		}
	}
	statuses = byName(pod.Status.ContainerStatuses)
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; u.by(c.Name, c.Resources.Claims) {
			containers = append(containers, containerOf(RegularContainer, c.Name, statuses[c.Name]))
		}
	}
	statuses = byName(pod.Status.EphemeralContainerStatuses)
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; u.by(c.Name, c.Resources.Claims) {
			containers = append(containers, containerOf(EphemeralContainer, c.Name, statuses[c.Name]))
		}
	}
	return containers
}

func byName(statuses []corev1.ContainerStatus) map[string]*corev1.ContainerStatus {
	named := make(map[string]*corev1.ContainerStatus, len(statuses))
	for i := range statuses {
		named[statuses[i].Name] = &statuses[i]
	}
	return named
}

// containerOf is a container that uses a device, with what its status says, if it has
// one.
func containerOf(kind ContainerKind, name string, status *corev1.ContainerStatus) Container {
	c := Container{Name: name, Kind: kind}
	if status != nil {
		c.Started = containerHasStarted(status)
		if status.State.Running != nil {
			_, c.ID, _ = strings.Cut(status.ContainerID, "://")
		}
	}
	return c
}
