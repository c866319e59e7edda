package podwatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// followAPIServer follows the node's pods in the API server from then on, after a
// while. It does nothing if they are followed already.
func (w *Watcher) followAPIServer(ctx context.Context, after time.Duration) {
	if w.stopFallback != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		pause(ctx, after)
		if ctx.Err() == nil {
			w.reflector(klog.FromContext(ctx)).RunWithContext(ctx)
		}
	})
	w.stopFallback = func() {
		cancel()
		running.Wait()
		w.apiServer.end()
	}
}

func (w *Watcher) followAPIServerNoMore() {
	if w.stopFallback != nil {
		w.stopFallback()
		w.stopFallback = nil
	}
}

// reflector lists and watches the node's pods into the view of the API server.
func (w *Watcher) reflector(logger klog.Logger) *cache.Reflector {
	store := &store{Watcher: w}
	selector := fields.OneTermEqualSelector("spec.nodeName", w.NodeName).String()
	pods := w.Client.CoreV1().Pods(metav1.NamespaceAll)
	listWatch := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			list, err := pods.List(ctx, o)
			store.asked(err, false)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			events, err := pods.Watch(ctx, o)
			store.asked(err, true)
			return events, err
		},
	}
	return cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(listWatch, w.Client), &corev1.Pod{}, store, cache.ReflectorOptions{
		Name: "pods of " + w.NodeName, Logger: &logger,
		Backoff: &wait.Backoff{Duration: w.retry, Factor: 2, Jitter: 0.2, Steps: 30, Cap: w.retryMost},
	})
}

// store is the view of the API server as the reflector fills it. No other copy of the
// pods is kept.
type store struct{ *Watcher }

var (
	_ cache.TransformingStore      = &store{}
	_ cache.ReflectorBookmarkStore = &store{}
)

// asked notes how a request ended. One that begins a watch says that the API server is
// there; what it has to say follows.
func (s *store) asked(err error, watch bool) {
	switch {
	case err != nil:
		s.apiServer.lose(err)
	case watch:
		s.apiServer.confirm()
	default:
		return
	}
	s.changed()
}

// Transformer prunes pods on their way to the store.
func (s *store) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return object, nil
		}
		return prune(pod), nil
	}
}

func (s *store) Add(object any) error    { return s.take(object, false) }
func (s *store) Update(object any) error { return s.take(object, false) }
func (s *store) Delete(object any) error { return s.take(object, true) }
func (s *store) Resync() error           { return nil }

func (s *store) Bookmark(string) error {
	s.apiServer.confirm()
	s.changed()
	return nil
}

func (s *store) take(object any, gone bool) error {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("watch pods: got a %T", object)
	}
	var now *corev1.Pod
	if !gone && s.ours(pod) {
		now = prune(pod)
	}
	if s.apiServer.set(pod.UID, now) {
		s.changed()
	}
	return nil
}

// ours says whether the pod is on the node and has claims. The API server says which
// were made for it.
func (s *store) ours(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == s.NodeName && (len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil)
}

func (s *store) Replace(objects []any, _ string) error {
	pods := podsByUID{}
	for _, object := range objects {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("list pods: got a %T", object)
		}
		if s.ours(pod) {
			pods[pod.UID] = prune(pod)
		}
	}
	s.apiServer.replace(pods)
	s.changed()
	return nil
}
