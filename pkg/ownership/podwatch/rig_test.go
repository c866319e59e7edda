package podwatch

import (
	"context"
	"errors"
	"os"
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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/ownership/podwatch/fakekubelet"
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

// rig is a watcher with a kubelet and an API server.
type rig struct {
	t       *testing.T
	kubelet *fakekubelet.Kubelet
	api     *apiServer
	watcher *Watcher
	changes chan struct{}
	options Options
	stop    func()
}

// newRig makes a rig whose watcher and kubelet are not started yet.
func newRig(t *testing.T, objects ...runtime.Object) *rig {
	t.Helper()
	// A socket's path is short.
	dir, err := os.MkdirTemp("", "pods")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "pods.sock")
	r := &rig{t: t, kubelet: fakekubelet.New(socket), api: newAPIServer(objects...)}
	r.options = Options{NodeName: "node-a", PodsSocket: socket, Client: r.api, CacheFile: filepath.Join(dir, "claims.json")}
	t.Cleanup(func() { r.kubelet.Stop() })
	return r
}

func (r *rig) startKubelet() {
	r.t.Helper()
	if err := r.kubelet.Start(); err != nil {
		r.t.Fatal(err)
	}
}

// start runs a new watcher until the test ends or stop is called.
func (r *rig) start() {
	r.t.Helper()
	r.startWith(timing{grace: 20 * time.Millisecond, recheck: time.Hour, answer: 5 * time.Second, retry: 5 * time.Millisecond, retryMost: 20 * time.Millisecond})
}

func (r *rig) startWith(times timing) {
	r.watcher = New(r.options)
	r.watcher.timing = times
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

// eventually fails the test unless f becomes true after some change.
func (r *rig) eventually(what string, f func(pods []*corev1.Pod, problem string) bool) {
	r.t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	for {
		pods, problem, _ := r.watcher.Pods()
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
		return pods != nil && problem == "" && slices.Equal(podNames(pods), names)
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
	pods, _, _ := r.watcher.Pods()
	for _, pod := range pods {
		if pod.Name == name {
			return pod
		}
	}
	r.t.Fatalf("there is no pod %s", name)
	return nil
}

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
