// Package podwatch follows the pods of one node that may use claims, and the claims
// of which it is told.
//
// Pods come from the kubelet's Pods API, a gRPC service on a Unix socket of the node
// (k8s.io/kubelet/pkg/apis/pods/v1alpha1, on by default from Kubernetes 1.37 on), and
// from the API server where that is not to be had. Whatever fails, the last good
// answer is kept, and it is said why it may be stale and since when.
//
// The package knows nothing of devices, of what is prepared, and of who owns what.
package podwatch

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// Options says where pods come from.
type Options struct {
	// NodeName is the name of the node.
	NodeName string
	// PodsSocket is the path of the kubelet's socket; empty to ask the API server
	// alone.
	PodsSocket string
	// Client reaches the API server. It may get, list and watch pods.
	Client kubernetes.Interface
	// CacheFile keeps what the kubelet does not say of pods (see [Watcher.Pods])
	// over a restart of this process; empty for no file. Its folder must exist.
	CacheFile string
}

// timing is what tests set lower.
type timing struct {
	// grace is how long the API server is not asked after the kubelet's socket was
	// lost: the kubelet may only be restarting.
	grace time.Duration
	// recheck is how often the kubelet is asked for all pods while it sends changes.
	// It would not say that one was lost, nor that it hangs.
	recheck time.Duration
	// answer is how long the kubelet has for all pods.
	answer time.Duration
	// retry and retryMost are the first and the longest time between two attempts to
	// reach what could not be reached.
	retry, retryMost time.Duration
}

var usual = timing{
	grace: 5 * time.Second, recheck: 30 * time.Second, answer: 10 * time.Second,
	retry: 200 * time.Millisecond, retryMost: 10 * time.Second,
}

// Watcher follows the pods of one node. New has no side effects; Run does the work.
type Watcher struct {
	Options
	timing
	kubelet, apiServer *view
	names              *names
	// taking is held while something the kubelet said is taken over.
	taking  sync.Mutex
	changed func()
	// stopFallback stops following the API server and waits for that; nil while it is
	// not followed. It belongs to Run.
	stopFallback func()
}

// New returns a watcher that has seen nothing yet.
func New(o Options) *Watcher {
	w := &Watcher{Options: o, timing: usual, kubelet: newView("kubelet").merging(), apiServer: newView("API server")}
	w.names = newNames(o.Client, o.CacheFile, func() { w.changed() })
	return w
}

// Run follows the pods until ctx ends, and returns when nothing it started is
// running. It calls changed when [Watcher.Pods] may answer otherwise, from several
// goroutines; changed must not block.
func (w *Watcher) Run(ctx context.Context, changed func()) {
	w.changed = changed
	w.names.load(ctx)
	var workers sync.WaitGroup
	defer workers.Wait()
	workers.Go(func() { w.names.run(ctx, w.retry, w.retryMost) })
	defer w.followAPIServerNoMore()
	if w.PodsSocket == "" {
		w.followAPIServer(ctx, 0)
		<-ctx.Done()
		return
	}
	w.alternate(ctx)
}

// alternate follows the kubelet, and while it cannot be reached the API server.
func (w *Watcher) alternate(ctx context.Context) {
	logger := klog.FromContext(ctx)
	first := wait.Backoff{Duration: w.retry, Factor: 2, Jitter: 0.2, Steps: 30, Cap: w.retryMost}
	backoff := first
	grace, reason := time.Duration(0), ""
	for ctx.Err() == nil {
		err := w.followKubelet(ctx, func() {
			w.followAPIServerNoMore()
			logger.V(1).Info("Pods come from the kubelet", "socket", w.PodsSocket)
			// The next loss may be a restart of the kubelet's.
			backoff, grace, reason = first, w.grace, ""
		})
		if ctx.Err() != nil {
			return
		}
		w.kubelet.lose(err)
		w.changed()
		if err.Error() != reason {
			reason = err.Error()
			logger.V(1).Info("The kubelet does not say which pods there are; the API server is asked", "socket", w.PodsSocket, "reason", reason, "after", grace)
		}
		w.followAPIServer(ctx, grace)
		pause(ctx, backoff.Step())
	}
}

// pause returns after d, or when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Pods returns the pods of the node that have or may have claims, by namespace, name
// and UID, with the fields that ownership needs alone. They are shared: callers must
// not change them. Those that have ended are among them for as long as the source
// has them.
//
// problem says why pods may be stale, be missing or lack claims; it is empty if they
// are right. verified is when they were last known to be so, zero for never.
//
// The kubelet does not say which claims were made for a pod from a template or for
// extended resources (the status that it gives is its own, without
// resourceClaimStatuses and extendedResourceClaimStatus). These never change once the
// pod is on its node, so the API server is asked once for each such pod. A pod of
// which they are not known yet lacks them.
func (w *Watcher) Pods() (pods []*corev1.Pod, problem string, verified time.Time) {
	kubelet, apiServer := w.kubelet.read(), w.apiServer.read()
	best := kubelet
	switch {
	case kubelet.live:
	case apiServer.live:
		best = apiServer
	default:
		if apiServer.verified.After(kubelet.verified) {
			best = apiServer
		}
		problem = describe(kubelet, apiServer)
	}
	if best.verified.IsZero() {
		return nil, problem, time.Time{}
	}
	verified = best.verified
	if best.name == kubelet.name {
		var unknown string
		var since time.Time
		pods, unknown, since = w.names.complete(best.pods)
		if unknown != "" && since.Before(verified) {
			verified = since
		}
		problem = cmp.Or(problem, unknown)
	} else {
		pods = slices.AppendSeq([]*corev1.Pod{}, maps.Values(best.pods))
	}
	slices.SortFunc(pods, comparePods)
	return pods, problem, verified
}

// describe says why neither source can be relied on.
func describe(sources ...reading) string {
	var problems []string
	for _, s := range sources {
		if s.problem != "" {
			problems = append(problems, s.name+": "+s.problem)
		}
	}
	if len(problems) == 0 {
		return "not read yet"
	}
	return strings.Join(problems, "; ")
}

func comparePods(a, b *corev1.Pod) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(string(a.UID), string(b.UID)))
}

// podsByUID are pods that are pruned and not changed any more.
type podsByUID map[types.UID]*corev1.Pod
