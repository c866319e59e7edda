package podwatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/internal/atomicfile"
)

// names finds out which claims were made for a pod, where the kubelet does not say it.
type names struct {
	client  kubernetes.Interface
	file    string
	changed func()
	queue   workqueue.TypedRateLimitingInterface[types.UID]

	mu      sync.Mutex
	known   map[types.UID]claimNames
	pending map[types.UID]*lookup
	// unsaved is true if the file lacks something of known.
	unsaved bool
	saving  sync.Mutex
}

// claimNames is what a pod's status says of its claims. It does not change once the
// pod is on its node.
type claimNames struct {
	Statuses []corev1.PodResourceClaimStatus        `json:"statuses,omitempty"`
	Extended *corev1.PodExtendedResourceClaimStatus `json:"extended,omitempty"`
}

// lookup is a pod that the API server is to be asked about.
type lookup struct {
	namespace, name string
	since           time.Time
	err             error
}

// lookups is how many pods are asked about at once, and lookupTime how long each may
// take.
const (
	lookups    = 4
	lookupTime = 10 * time.Second
)

// saveOnly is in the queue where there is nothing to ask, only to save.
const saveOnly types.UID = ""

func newNames(client kubernetes.Interface, file string, changed func()) *names {
	return &names{client: client, file: file, changed: changed, known: map[types.UID]claimNames{}, pending: map[types.UID]*lookup{}}
}

// load reads what the last process found out. Without it everything is asked again.
func (n *names) load(ctx context.Context) {
	if n.file == "" {
		return
	}
	data, err := os.ReadFile(n.file)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	known := map[types.UID]claimNames{}
	if err == nil {
		err = json.Unmarshal(data, &known)
	}
	if err != nil {
		klog.FromContext(ctx).Info("What was known of pods' claims could not be read; the API server is asked again", "file", n.file, "reason", err)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known = known
}

// run asks the API server until ctx ends.
func (n *names) run(ctx context.Context, retry, retryMost time.Duration) {
	n.mu.Lock()
	n.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](retry, retryMost))
	for uid := range n.pending {
		n.queue.Add(uid)
	}
	queue := n.queue
	n.mu.Unlock()
	var workers sync.WaitGroup
	for range lookups {
		workers.Go(func() {
			for {
				uid, stop := queue.Get()
				if stop {
					return
				}
				n.look(ctx, uid)
				n.save(ctx)
				queue.Done(uid)
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	workers.Wait()
}

// note takes from a pod of the kubelet's what it says of its claims, or has the API
// server asked.
func (n *names) note(pod *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.known[pod.UID]; ok || n.pending[pod.UID] != nil {
		return
	}
	extended := usesExtendedResources(pod)
	switch {
	case saysTemplates(pod) && (!extended || pod.Status.ExtendedResourceClaimStatus != nil):
		if !usesTemplates(pod) && !extended {
			return
		}
		n.learn(pod)
		n.enqueue(saveOnly)
	default:
		n.pending[pod.UID] = &lookup{namespace: pod.Namespace, name: pod.Name, since: time.Now()}
		n.enqueue(pod.UID)
	}
}

// enqueue does nothing before run, which begins with all that is pending.
func (n *names) enqueue(uid types.UID) {
	if n.queue != nil {
		n.queue.Add(uid)
	}
}

func (n *names) learn(pod *corev1.Pod) {
	n.known[pod.UID] = claimNames{Statuses: pod.Status.ResourceClaimStatuses, Extended: pod.Status.ExtendedResourceClaimStatus}
	n.unsaved = true
	delete(n.pending, pod.UID)
}

func usesTemplates(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return c.ResourceClaimTemplateName != nil })
}

// saysTemplates says whether the pod's status names the claims made from templates.
func saysTemplates(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(pod.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool {
		return c.ResourceClaimTemplateName != nil && !slices.ContainsFunc(pod.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool { return s.Name == c.Name })
	})
}

// look asks about one pod.
func (n *names) look(ctx context.Context, uid types.UID) {
	n.mu.Lock()
	l := n.pending[uid]
	n.mu.Unlock()
	if l == nil {
		n.queue.Forget(uid)
		return
	}
	ask, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	pod, err := n.client.CoreV1().Pods(l.namespace).Get(ask, l.name, metav1.GetOptions{})
	if ctx.Err() != nil {
		return
	}
	again := true
	n.mu.Lock()
	switch {
	case n.pending[uid] != l:
		again = false
	case err == nil && pod.UID == uid && saysTemplates(pod):
		n.learn(pod)
		again = false
	case err == nil && pod.UID == uid:
		// It came to the node without the scheduler, before its claims were made, and
		// cannot start until they are.
		l.err = nil
	case err == nil || apierrors.IsNotFound(err):
		// It is gone, and the kubelet will say so; or it is a static pod, which has
		// another UID there and cannot have claims.
		n.known[uid] = claimNames{}
		delete(n.pending, uid)
		again = false
	default:
		l.err = err
	}
	n.mu.Unlock()
	if again {
		n.queue.AddRateLimited(uid)
	} else {
		n.queue.Forget(uid)
	}
	n.changed()
}

// forget drops what is known of a pod that is gone.
func (n *names) forget(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.known, uid)
	delete(n.pending, uid)
}

// retain drops what is known of other pods than these.
func (n *names) retain(pods podsByUID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for uid := range n.known {
		if pods[uid] == nil {
			delete(n.known, uid)
			n.unsaved = true
		}
	}
	for uid := range n.pending {
		if pods[uid] == nil {
			delete(n.pending, uid)
		}
	}
}

// complete returns the pods with what is known of their claims, without those that
// turned out to have none. problem says of which pods it is not known although they
// run, since is when the first of them came.
func (n *names) complete(pods podsByUID) (out []*corev1.Pod, problem string, since time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	out = []*corev1.Pod{}
	var unknown []string
	for uid, pod := range pods {
		if l := n.pending[uid]; l != nil && (hasStarted(pod) || l.err != nil) {
			unknown = append(unknown, l.describe())
			if since.IsZero() || l.since.Before(since) {
				since = l.since
			}
		}
		names, known := n.known[uid]
		if known {
			pod = names.complete(pod)
		}
		if !known || len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil {
			out = append(out, pod)
		}
	}
	slices.Sort(unknown)
	return out, strings.Join(unknown, "; "), since
}

func (c claimNames) complete(pod *corev1.Pod) *corev1.Pod {
	completed := *pod
	if completed.Status.ResourceClaimStatuses == nil {
		completed.Status.ResourceClaimStatuses = c.Statuses
	}
	if completed.Status.ExtendedResourceClaimStatus == nil {
		completed.Status.ExtendedResourceClaimStatus = c.Extended
	}
	return &completed
}

func (l *lookup) describe() string {
	if l.err == nil {
		return fmt.Sprintf("claims of pod %s/%s: not read yet", l.namespace, l.name)
	}
	return fmt.Sprintf("claims of pod %s/%s: %v", l.namespace, l.name, l.err)
}

// save writes the file if there is something new. It is a cache: whether it survives
// a power failure does not matter, as no pod does.
func (n *names) save(ctx context.Context) {
	if n.file == "" {
		return
	}
	n.saving.Lock()
	defer n.saving.Unlock()
	n.mu.Lock()
	if !n.unsaved {
		n.mu.Unlock()
		return
	}
	n.unsaved = false
	data, err := json.Marshal(n.known)
	n.mu.Unlock()
	if err == nil {
		err = atomicfile.WriteVolatile(n.file, data, 0o600)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "What is known of pods' claims could not be saved; after a restart the API server is asked again", "file", n.file)
	}
}
