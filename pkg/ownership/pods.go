package ownership

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// consumerMaker makes consumers for one worker.
type consumerMaker struct {
	*joiner
	// consumers and containers are those of all owners, the buffers those of the one
	// being looked at.
	consumers       chunks[Consumer]
	consumerBuffer  []Consumer
	containers      chunks[Container]
	containerBuffer []Container
	// workloads are those of all pods, which many of them have in common.
	workloads map[Workload]*Workload
}

// consumer is what a pod is to a device that its claim holds.
func (m *consumerMaker) consumer(pod *corev1.Pod, o *Owner) Consumer {
	m.containerBuffer = addContainers(m.containerBuffer[:0], pod, usesOf(pod, o.Claim.Name, o.Request))
	return Consumer{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Node: pod.Spec.NodeName, State: stateOf(pod),
		Workload: m.workloadOf(pod), Labels: pod.Labels, Containers: m.containers.keep(m.containerBuffer),
	}
}

func (m *consumerMaker) workloadOf(pod *corev1.Pod) *Workload {
	if m.workload != nil {
		return m.workload(pod)
	}
	w, ok := workloadOf(pod)
	if !ok {
		return nil
	}
	if m.workloads[w] == nil {
		if m.workloads == nil {
			m.workloads = map[Workload]*Workload{}
		}
		m.workloads[w] = new(w)
	}
	return m.workloads[w]
}

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
	started := func(statuses []corev1.ContainerStatus) bool {
		for i := range statuses {
			if containerHasStarted(&statuses[i]) {
				return true
			}
		}
		return false
	}
	return started(pod.Status.InitContainerStatuses) || started(pod.Status.ContainerStatuses) ||
		started(pod.Status.EphemeralContainerStatuses)
}

func containerHasStarted(s *corev1.ContainerStatus) bool {
	return s.State.Running != nil || s.RestartCount > 0 || ran(s.State.Terminated) || ran(s.LastTerminationState.Terminated)
}

// ran says whether a container that has ended did start: one that the runtime could
// not start has the Unix epoch as the time when it did.
func ran(end *corev1.ContainerStateTerminated) bool {
	return end != nil && end.StartedAt.Unix() > 0
}

// addContainers adds the pod's containers that use something: init containers and
// sidecars, the regular ones, ephemeral ones. The API lets no ephemeral container use
// claims as yet.
func addContainers(containers []Container, pod *corev1.Pod, u uses) []Container {
	statuses := containerStatuses{all: pod.Status.InitContainerStatuses}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if !u.by(c.Name, c.Resources.Claims) {
			continue
		}
		kind := InitContainer
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			kind = Sidecar
		}
		containers = append(containers, statuses.container(kind, c.Name))
	}
	statuses = containerStatuses{all: pod.Status.ContainerStatuses}
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; u.by(c.Name, c.Resources.Claims) {
			containers = append(containers, statuses.container(RegularContainer, c.Name))
		}
	}
	statuses = containerStatuses{all: pod.Status.EphemeralContainerStatuses}
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; u.by(c.Name, c.Resources.Claims) {
			containers = append(containers, statuses.container(EphemeralContainer, c.Name))
		}
	}
	return containers
}

// containerStatuses are those of a pod's containers of one kind.
type containerStatuses struct {
	all    []corev1.ContainerStatus
	byName map[string]*corev1.ContainerStatus
}

// container is one that uses a device, with what its status says.
func (r *containerStatuses) container(kind ContainerKind, name string) Container {
	c := Container{Name: name, Kind: kind}
	if status := r.find(name); status != nil {
		c.Started = containerHasStarted(status)
		if status.State.Running != nil {
			_, c.ID, _ = strings.Cut(status.ContainerID, "://")
		}
	}
	return c
}

func (r *containerStatuses) find(container string) *corev1.ContainerStatus {
	const few = 16
	if len(r.all) <= few {
		for i := range r.all {
			if r.all[i].Name == container {
				return &r.all[i]
			}
		}
		return nil
	}
	if r.byName == nil {
		// Nobody's pod takes the square of its containers.
		r.byName = make(map[string]*corev1.ContainerStatus, len(r.all))
		for i := range r.all {
			r.byName[r.all[i].Name] = &r.all[i]
		}
	}
	return r.byName[container]
}

// chunks keeps many short slices in few large arrays.
type chunks[T any] struct{ free []T }

// keep returns a copy of a slice, nil of an empty one.
func (c *chunks[T]) keep(s []T) []T {
	const length = 128
	if len(s) == 0 {
		return nil
	}
	if len(s) > len(c.free) {
		c.free = make([]T, max(length, len(s)))
	}
	n := copy(c.free, s)
	kept := c.free[:n:n]
	c.free = c.free[n:]
	return kept
}
