package kube

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// What is asked of the API server, as errors call it.
const (
	VerbList  = "list"
	VerbWatch = "watch"
)

// Object is a pointer to an API object.
type Object interface {
	runtime.Object
	metav1.Object
}

// SetOptions says which objects a Set keeps.
type SetOptions[T Object] struct {
	// Client is the one that List and Watch use.
	Client kubernetes.Interface
	List   func(context.Context, metav1.ListOptions) (runtime.Object, error)
	Watch  func(context.Context, metav1.ListOptions) (watch.Interface, error)
	// Prune returns a copy of an object without what is not needed.
	Prune func(T) T
	// Wanted says whether an object is kept; nil for all.
	Wanted func(T) bool
}

// Set keeps objects of the API server's, by listing and watching them. What the server
// last said stays known while it cannot be reached.
type Set[T Object] struct {
	o SetOptions[T]
	// retry and retryMost are the shortest and the longest time between two attempts
	// to reach the API server. Tests set them lower.
	retry, retryMost time.Duration
	changed          func()

	mu sync.Mutex
	// objects is nil as long as nothing is known of them.
	objects map[types.NamespacedName]T
	state   State
}

// State says how far a Set can be relied on.
type State struct {
	// Complete is true once all objects are known. Live is true while changes to them
	// are heard as well.
	Complete, Live bool
	// Err is why they are not heard, nil if they are. Verb is what failed first, and
	// Since when.
	Err   error
	Verb  string
	Since time.Time
	// Verified is when the objects were last known to be right, zero for never.
	Verified time.Time
}

// NewSet returns a Set that knows nothing yet.
func NewSet[T Object](o SetOptions[T]) *Set[T] {
	return &Set[T]{o: o, retry: 200 * time.Millisecond, retryMost: 10 * time.Second}
}

// Run follows the objects until ctx ends, and returns when nothing it started is
// running. It calls changed when [Set.Get] may answer otherwise; changed must not block.
func (s *Set[T]) Run(ctx context.Context, changed func()) {
	s.changed = changed
	calls := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := s.o.List(ctx, o)
			s.note(ctx, VerbList, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			events, err := s.o.Watch(ctx, o)
			// A server that cannot stream a list is asked for one next.
			if o.SendInitialEvents == nil || !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
				s.note(ctx, VerbWatch, err)
			}
			return events, err
		},
	}
	logger := klog.FromContext(ctx)
	example := reflect.New(reflect.TypeFor[T]().Elem()).Interface()
	backoff := &wait.Backoff{Duration: s.retry, Factor: 2, Jitter: 0.2, Steps: 30, Cap: s.retryMost}
	reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(calls, s.o.Client), example, &store[T]{s},
		cache.ReflectorOptions{Logger: &logger, Backoff: backoff})
	// Until returns only why ctx ended.
	_ = backoff.DelayWithReset(clock.RealClock{}, 2*time.Minute).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		if err := reflector.ListAndWatchWithContext(ctx); err != nil {
			logger.V(2).Info("Objects in the API server cannot be followed; it is tried again", "reason", err)
		}
		return false, nil
	})
}

// Get returns the objects by namespace and name, nil if nothing is known of them.
// They are shared: callers must not change them.
func (s *Set[T]) Get() ([]T, State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects == nil {
		return nil, s.state
	}
	all := make([]T, 0, len(s.objects))
	for _, object := range s.objects {
		all = append(all, object)
	}
	slices.SortFunc(all, func(a, b T) int {
		return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
	return all, s.state
}

func nameOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// seed sets what the objects were before this process began.
func (s *Set[T]) seed(objects []T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects = make(map[types.NamespacedName]T, len(objects))
	for _, object := range objects {
		s.objects[nameOf(object)] = object
	}
}

// note remembers how a call to the API server ended. One that begins a watch shows that
// the server is there; what it has to say follows.
func (s *Set[T]) note(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // It was told to end, or starts again by itself.
	}
	s.mu.Lock()
	switch {
	case err != nil && s.state.Err == nil:
		s.state.Live, s.state.Err, s.state.Verb, s.state.Since = false, err, verb, time.Now()
	case err != nil:
		s.state.Err = err
	case verb == VerbWatch:
		s.heard()
	}
	s.mu.Unlock()
	s.changed()
}

// heard notes that the API server speaks. The caller holds s.mu.
func (s *Set[T]) heard() {
	s.state = State{Complete: s.state.Complete, Live: s.state.Complete, Verified: time.Now()}
}

func (s *Set[T]) wanted(object T) bool { return s.o.Wanted == nil || s.o.Wanted(object) }

// set takes over an object, or that it is gone.
func (s *Set[T]) set(value any, gone bool) error {
	object, ok := value.(T)
	if !ok {
		return fmt.Errorf("watch objects: got a %T", value)
	}
	if s.put(nameOf(object), s.o.Prune(object), gone || !s.wanted(object)) {
		s.changed()
	}
	return nil
}

// put returns whether what is kept of the object has changed.
func (s *Set[T]) put(name types.NamespacedName, object T, gone bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard()
	before, there := s.objects[name]
	switch {
	case gone:
		delete(s.objects, name)
		return there
	case there && reflect.DeepEqual(before, object):
		return false
	case s.objects == nil:
		s.objects = map[types.NamespacedName]T{}
	}
	s.objects[name] = object
	return true
}

// replace takes over all objects that there are.
func (s *Set[T]) replace(values []any) error {
	objects := make(map[types.NamespacedName]T, len(values))
	for _, value := range values {
		object, ok := value.(T)
		if !ok {
			return fmt.Errorf("list objects: got a %T", value)
		}
		if s.wanted(object) {
			objects[nameOf(object)] = s.o.Prune(object)
		}
	}
	s.mu.Lock()
	s.objects, s.state.Complete = objects, true
	s.heard()
	s.mu.Unlock()
	s.changed()
	return nil
}

// store is a Set as the reflector fills it. No other copy of the objects is kept.
type store[T Object] struct{ set *Set[T] }

// Transformer prunes objects on their way to the store.
func (s *store[T]) Transformer() cache.TransformFunc {
	return func(value any) (any, error) {
		if object, ok := value.(T); ok {
			return s.set.o.Prune(object), nil
		}
		return value, nil
	}
}

func (s *store[T]) Add(object any) error                        { return s.set.set(object, false) }
func (s *store[T]) Update(object any) error                     { return s.set.set(object, false) }
func (s *store[T]) Delete(object any) error                     { return s.set.set(object, true) }
func (s *store[T]) Replace(objects []any, version string) error { return s.set.replace(objects) }
func (s *store[T]) Resync() error                               { return nil }

// Bookmark hears that nothing has changed.
func (s *store[T]) Bookmark(string) error {
	s.set.mu.Lock()
	s.set.heard()
	s.set.mu.Unlock()
	s.set.changed()
	return nil
}
