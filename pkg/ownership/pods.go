package ownership

import (
	"cmp"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podView is a pod with what is worked out of it once, for all its claims.
type podView struct {
	*corev1.Pod
	// workload is not known until it is a consumer of some claim.
	workload     *Workload
	workloadOnce sync.Once
}

// podViews finds pods by UID.
type podViews struct {
	views []podView
	byUID map[types.UID]*podView
	// workload may be called by several workers at once.
	workload func(*corev1.Pod) *Workload
}

func viewPods(pods []*corev1.Pod, workload func(*corev1.Pod) *Workload) *podViews {
	v := &podViews{views: make([]podView, 0, len(pods)), byUID: make(map[types.UID]*podView, len(pods)), workload: WorkloadOf}
	if workload != nil {
		var mu sync.Mutex
		v.workload = func(pod *corev1.Pod) *Workload {
			mu.Lock()
			defer mu.Unlock()
			return workload(pod)
		}
	}
	for _, pod := range pods {
		if pod == nil {
			continue
		}
		if known, twice := v.byUID[pod.UID]; twice {
			if newer(pod.ResourceVersion, known.ResourceVersion) {
				known.Pod = pod
			}
			continue
		}
		v.views = append(v.views, podView{Pod: pod})
		v.byUID[pod.UID] = &v.views[len(v.views)-1]
	}
	return v
}

func (v *podViews) workloadOf(pod *podView) *Workload {
	pod.workloadOnce.Do(func() { pod.workload = v.workload(pod.Pod) })
	return pod.workload
}

// newer says whether a resource version is of a later state of the same object
// (KEP-5504: they are numbers).
func newer(a, b string) bool {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) > 0
}

// stateOf says how far a pod is. Its status is written by the kubelet, which ends a
// pod only when all its containers have.
func stateOf(pod *corev1.Pod) PodState {
	switch {
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return Gone
	case pod.DeletionTimestamp != nil:
		return Terminating
	case hasStarted(pod):
		return Running
	}
	return Waiting
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
