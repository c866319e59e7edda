package report

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/pkg/ownership"
	"apportion.dev/apportion/pkg/ownership/kube"
)

// leastInterval is how long what was shown stays at least, so that a cluster in which
// much happens is not joined all the time.
const leastInterval = 500 * time.Millisecond

// follower follows a cluster's objects.
type follower struct {
	cluster *Cluster
	claims  *kube.Set[*resourceapi.ResourceClaim]
	pods    *kube.Set[*corev1.Pod]
	slices  *kube.Set[*resourceapi.ResourceSlice]
	// withoutSlices is true if slices may not be read.
	withoutSlices bool
	// changed has room for one.
	changed chan struct{}
}

func newFollower(s *Cluster) *follower {
	return &follower{
		cluster: s, changed: make(chan struct{}, 1),
		claims: kube.NewSet(kube.SetOptions[*resourceapi.ResourceClaim]{
			Client: s.Typed, List: s.listClaims(), Prune: ownership.PruneClaim,
			Watch: s.Typed.ResourceV1().ResourceClaims(s.Options.Namespace).Watch,
		}),
		pods: kube.NewSet(kube.SetOptions[*corev1.Pod]{
			Client: s.Typed, List: s.listPods(), Prune: ownership.PrunePod,
			Watch: s.Typed.CoreV1().Pods(s.Options.Namespace).Watch,
		}),
		slices: kube.NewSet(kube.SetOptions[*resourceapi.ResourceSlice]{
			Client: s.Typed, List: s.listSlices, Prune: ownership.PruneSlice,
			Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return s.Typed.ResourceV1().ResourceSlices().Watch(ctx, s.selectSlices(o))
			},
		}),
	}
}

// Follow implements [Source].
func (s *Cluster) Follow(ctx context.Context, show func(View) error) error {
	// What would be logged is shown or returned.
	ctx, stop := context.WithCancel(klog.NewContext(ctx, klog.Logger{}))
	f := newFollower(s)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for _, run := range []func(context.Context, func()){f.claims.Run, f.pods.Run, f.slices.Run} {
		running.Go(func() { run(ctx, f.wake) })
	}
	makers := s.newMakers()
	makers.load(ctx)
	if err := f.waitForAll(ctx); err != nil {
		return err
	}
	for {
		began := time.Now()
		v := s.view(f.objects(), makers.of(ctx))
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

func (f *follower) wake() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// waitForAll waits until everything that may be read was read and is watched. A failure
// before that is the end: somebody waits at a terminal, and what is wrong is most likely
// wrong for good.
func (f *follower) waitForAll(ctx context.Context) error {
	for {
		missing := false
		for _, r := range f.resources() {
			switch {
			case r.name == slicesResource && (f.withoutSlices || apierrors.IsForbidden(r.state.Err)):
				f.withoutSlices = true
			case r.state.Err != nil:
				return f.cluster.explain(r.state.Err, r.state.Verb, r.name)
			case !r.state.Live:
				missing = true
			}
		}
		if !missing {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.changed:
		}
	}
}

// followed is a resource that views are made of, and how far it can be relied on.
type followed struct {
	name  string
	state kube.State
}

func (f *follower) resources() []followed {
	_, claims := f.claims.Get()
	_, pods := f.pods.Get()
	_, slices := f.slices.Get()
	return []followed{{claimsResource, claims}, {podsResource, pods}, {slicesResource, slices}}
}

// waitForChange waits until something has changed, after a pause.
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

// objects are what is known now.
func (f *follower) objects() objects {
	var o objects
	var problems []string
	o.claims, _ = f.claims.Get()
	o.pods, _ = f.pods.Get()
	if f.withoutSlices {
		problems = append(problems, withoutSlices)
	} else {
		o.slices, _ = f.slices.Get()
	}
	for _, r := range f.resources() {
		if r.state.Err != nil && !(f.withoutSlices && r.name == slicesResource) {
			problems = append(problems, fmt.Sprintf("%s may be stale since %s: %s", r.name, r.state.Since.Format(time.TimeOnly), r.state.Err))
		}
	}
	o.problem = strings.Join(problems, "; ")
	return o
}
