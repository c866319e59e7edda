package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// leastInterval is how long what was shown stays at least, so that a cluster in which
// much happens is not joined all the time.
const leastInterval = 500 * time.Millisecond

// follower keeps a cluster's objects, and knows what of them may be stale.
type follower struct {
	source *clusterSource
	// changed has room for one.
	changed chan struct{}
	// failed has room for one: why the follower cannot begin.
	failed chan error

	mu sync.Mutex
	// begun is true once everything was read and is watched, of which watched says
	// what is.
	begun   bool
	watched map[string]bool
	// troubles are by resource.
	troubles map[string]trouble
	// withoutSlices is true if slices may not be read.
	withoutSlices bool
}

// trouble is why a resource may be stale, and since when.
type trouble struct {
	problem string
	since   time.Time
}

func (s *clusterSource) follow(ctx context.Context, show func(view) error) error {
	// Informers log what is shown or returned anyhow.
	ctx, stop := context.WithCancel(klog.NewContext(ctx, klog.Logger{}))
	f := &follower{source: s, changed: make(chan struct{}, 1), failed: make(chan error, 1), watched: map[string]bool{}, troubles: map[string]trouble{}}
	informers := f.informers()
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	makers := s.newMakers()
	for _, informer := range informers {
		if err := f.prepare(informer); err != nil {
			return err
		}
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	makers.load(ctx)
	if err := f.waitForAll(ctx, informers); err != nil {
		return err
	}
	for {
		began := time.Now()
		v := s.view(f.objects(informers), makers.of(ctx))
		// A cluster so large that this takes long is not worth all of a processor.
		pause := max(leastInterval, 2*time.Since(began))
		if err := show(v); err != nil {
			return err
		}
		if err := f.waitForChange(ctx, pause); err != nil {
			return err
		}
	}
}

// informers read all that a view is made of.
func (f *follower) informers() map[string]cache.SharedIndexInformer {
	s := f.source
	return map[string]cache.SharedIndexInformer{
		claimsResource: f.informer(&resourceapi.ResourceClaim{}, claimsResource, s.listClaims, func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return s.typed.ResourceV1().ResourceClaims(s.namespace).Watch(ctx, o)
		}),
		podsResource: f.informer(&corev1.Pod{}, podsResource, s.listPods, func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return s.typed.CoreV1().Pods(s.namespace).Watch(ctx, o)
		}),
		slicesResource: f.informer(&resourceapi.ResourceSlice{}, slicesResource, s.listSlices, func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return s.typed.ResourceV1().ResourceSlices().Watch(ctx, s.selectSlices(o))
		}),
	}
}

// informer makes an informer of which the follower learns how each call went.
func (f *follower) informer(
	object runtime.Object, resource string,
	list func(context.Context, metav1.ListOptions) (runtime.Object, error),
	watchAll func(context.Context, metav1.ListOptions) (watch.Interface, error),
) cache.SharedIndexInformer {
	calls := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			objects, err := list(ctx, o)
			f.note(ctx, resource, verbList, err)
			return objects, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			events, err := watchAll(ctx, o)
			// Servers that cannot stream a list are asked for one next.
			streams := o.SendInitialEvents == nil || !(apierrors.IsInvalid(err) || apierrors.IsBadRequest(err))
			if streams {
				f.note(ctx, resource, verbWatch, err)
			}
			return events, err
		},
	}
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(calls, f.source.typed), object, 0, cache.Indexers{})
}

func (f *follower) prepare(informer cache.SharedIndexInformer) error {
	if err := informer.SetTransform(prune); err != nil {
		return fmt.Errorf("follow the cluster: %w", err)
	}
	silent := func(context.Context, *cache.Reflector, error) {} // The calls were noted.
	if err := informer.SetWatchErrorHandlerWithContext(silent); err != nil {
		return fmt.Errorf("follow the cluster: %w", err)
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { f.wake() },
		UpdateFunc: func(any, any) { f.wake() },
		DeleteFunc: func(any) { f.wake() },
	})
	if err != nil {
		return fmt.Errorf("follow the cluster: %w", err)
	}
	return nil
}

func (f *follower) wake() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// note remembers how a call went. Before everything was read, a failure is the end:
// somebody waits at a terminal, and what is wrong is most likely wrong for good.
func (f *follower) note(ctx context.Context, resource, verb string, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // It was told to end, or begins anew by itself.
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, troubled := f.troubles[resource]
	switch {
	case err == nil && verb == verbList: // What comes after the list is not known yet.
	case err == nil:
		delete(f.troubles, resource)
		if troubled || !f.watched[resource] {
			f.wake()
		}
		f.watched[resource] = true
	case !f.begun && resource == slicesResource && apierrors.IsForbidden(err):
		f.withoutSlices = true
		f.wake()
	case !f.begun:
		select {
		case f.failed <- f.source.explain(err, verb, resource):
		default: // The first reason is as good.
		}
	case !troubled && !f.withoutSlices:
		f.troubles[resource] = trouble{err.Error(), time.Now()}
		f.wake()
	}
}

// waitForAll waits until everything that may be read was read and is watched.
func (f *follower) waitForAll(ctx context.Context, informers map[string]cache.SharedIndexInformer) error {
	for _, resource := range []string{claimsResource, podsResource, slicesResource} {
		synced := informers[resource].HasSyncedChecker().Done()
		for !f.has(resource, informers[resource]) {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case err := <-f.failed:
				return err
			case <-synced:
				synced = nil // What is left to wait for is the watch.
			case <-f.changed:
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun = true
	return nil
}

// has says whether a resource is read and watched, or need not be.
func (f *follower) has(resource string, informer cache.SharedIndexInformer) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.watched[resource] && informer.HasSynced() || resource == slicesResource && f.withoutSlices
}

// waitForChange waits until something has changed, and for a pause before.
func (f *follower) waitForChange(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-f.changed:
		return nil
	}
}

// objects are what the informers have now.
func (f *follower) objects(informers map[string]cache.SharedIndexInformer) objects {
	o := objects{
		claims: listed[*resourceapi.ResourceClaim](informers[claimsResource]),
		pods:   listed[*corev1.Pod](informers[podsResource]),
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var problems []string
	if f.withoutSlices {
		problems = append(problems, withoutSlices)
	} else {
		o.slices = listed[*resourceapi.ResourceSlice](informers[slicesResource])
	}
	for _, resource := range []string{claimsResource, podsResource, slicesResource} {
		if t, ok := f.troubles[resource]; ok {
			problems = append(problems, fmt.Sprintf("%s may be stale since %s: %s", resource, t.since.Format(time.TimeOnly), t.problem))
		}
	}
	o.problem = strings.Join(problems, "; ")
	return o
}

// listed are an informer's objects, in the order of their names.
func listed[T metav1.Object](informer cache.SharedIndexInformer) []T {
	all := []T{}
	for _, object := range informer.GetStore().List() {
		if typed, ok := object.(T); ok {
			all = append(all, typed)
		}
	}
	slices.SortFunc(all, func(a, b T) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return all
}
