package kube

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/ptr"
)

// apiServer is a fake one that can be down.
type apiServer struct {
	*fake.Clientset
	mu      sync.Mutex
	down    bool
	watches []watch.Interface
}

var errDown = errors.New("connection refused")

func newAPIServer(objects ...runtime.Object) *apiServer {
	a := &apiServer{Clientset: fake.NewClientset(objects...)}
	a.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.down, nil, errDown
	})
	a.PrependWatchReactor("pods", func(action clienttesting.Action) (bool, watch.Interface, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.down {
			return true, nil, errDown
		}
		w, err := a.Tracker().Watch(action.GetResource(), "")
		a.watches = append(a.watches, w)
		return true, w, err
	})
	return a
}

// setDown ends all watches too.
func (a *apiServer) setDown(down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = down
	if down {
		for _, w := range a.watches {
			w.Stop()
		}
		a.watches = nil
	}
}

// watched says whether somebody watches pods. The fake sends nobody what happened between
// a list and a watch.
func (a *apiServer) watched() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.watches) > 0
}

// count is how many requests of a kind there were.
func (a *apiServer) count(verb, resource string) int {
	n := 0
	for _, action := range a.Actions() {
		if action.GetVerb() == verb && action.GetResource().Resource == resource {
			n++
		}
	}
	return n
}

// poll waits for what no event announces.
func (a *apiServer) poll(t *testing.T, what string, f func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) { return f(), nil })
	if err != nil {
		t.Fatalf("never: %s", what)
	}
}

// rig is a NodePods of node-a with an API server.
type rig struct {
	t       *testing.T
	api     *apiServer
	watcher *NodePods
	changes chan struct{}
	file    string
	stop    func()
}

// newRig makes a rig that follows nothing yet.
func newRig(t *testing.T, objects ...runtime.Object) *rig {
	t.Helper()
	return &rig{t: t, api: newAPIServer(objects...), file: filepath.Join(t.TempDir(), "pods.json")}
}

// start follows the pods anew until the test ends or stop is called.
func (r *rig) start() {
	r.watcher = NewNodePods(r.api, "node-a", r.file)
	r.watcher.set.retry, r.watcher.set.retryMost = 5*time.Millisecond, 20*time.Millisecond
	_, ctx := ktesting.NewTestContext(r.t)
	ctx, cancel := context.WithCancel(ctx)
	r.changes = make(chan struct{}, 1)
	ended := make(chan struct{})
	watcher, changes := r.watcher, r.changes
	go func() {
		defer close(ended)
		watcher.Run(ctx, func() {
			select {
			case changes <- struct{}{}:
			default:
			}
		})
	}()
	r.stop = sync.OnceFunc(func() { cancel(); <-ended })
	r.t.Cleanup(r.stop)
}

func (r *rig) add(pod *corev1.Pod) {
	r.t.Helper()
	if err := r.api.Tracker().Add(pod); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) update(pod *corev1.Pod) {
	r.t.Helper()
	if err := r.api.Tracker().Update(podResource, pod, "team"); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) remove(name string) {
	r.t.Helper()
	if err := r.api.Tracker().Delete(podResource, "team", name); err != nil {
		r.t.Fatal(err)
	}
}

// eventually fails the test unless f becomes true after some change.
func (r *rig) eventually(what string, f func(pods []*corev1.Pod, problem string) bool) {
	r.t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	for {
		pods, problem, _ := r.watcher.Get()
		if f(pods, problem) {
			return
		}
		select {
		case <-r.changes:
		case <-deadline.C:
			r.t.Fatalf("never: %s; pods are %v, the problem %q", what, podNames(pods), problem)
		}
	}
}

// have waits for exactly these pods, and no problem.
func (r *rig) have(names ...string) {
	r.t.Helper()
	r.eventually("have "+strings.Join(names, ","), func(pods []*corev1.Pod, problem string) bool {
		return pods != nil && problem == "" && equalNames(pods, names)
	})
}

// troubled waits for a problem with these parts and checks which pods there are.
func (r *rig) troubled(pods []string, parts ...string) {
	r.t.Helper()
	r.eventually("a problem with "+strings.Join(parts, ","), func(now []*corev1.Pod, problem string) bool {
		for _, part := range parts {
			if !strings.Contains(problem, part) {
				return false
			}
		}
		return problem != "" && slices.Equal(podNames(now), pods)
	})
}

func (r *rig) pod(name string) *corev1.Pod {
	r.t.Helper()
	pods, _, _ := r.watcher.Get()
	for _, pod := range pods {
		if pod.Name == name {
			return pod
		}
	}
	r.t.Fatalf("there is no pod %s", name)
	return nil
}

func equalNames(pods []*corev1.Pod, names []string) bool { return slices.Equal(podNames(pods), names) }

func podNames(pods []*corev1.Pod) []string {
	names := []string{}
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return names
}

// newPod is a pod on node-a that uses the claim "claim" by its name.
func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{
			NodeName:       "node-a",
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("claim")}},
			Containers: []corev1.Container{{
				Name: "main", Image: "example.com/image:1",
				Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}},
			}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// withTemplate has the claim made for the pod from a template.
func withTemplate(pod *corev1.Pod, claim string) *corev1.Pod {
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("template")}}
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: ptr.To(claim)}}
	return pod
}

func running(pod *corev1.Pod) *corev1.Pod {
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://0123", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	return pod
}
