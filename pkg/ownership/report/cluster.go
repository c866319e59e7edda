package report

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"

	"apportion.dev/apportion/pkg/ownership"
	"apportion.dev/apportion/pkg/ownership/kube"
)

// Cluster reads the API server.
type Cluster struct {
	// Typed reads claims, pods and slices; Metadata reads what made pods, without what
	// is in it.
	Typed    kubernetes.Interface
	Metadata metadata.Interface
	Options  *Options
}

// What is read of a cluster, as errors call it.
const (
	claimsResource = "resourceclaims.resource.k8s.io"
	slicesResource = "resourceslices.resource.k8s.io"
	podsResource   = "pods"
)

// objects are what a view is made of.
type objects struct {
	claims []*resourceapi.ResourceClaim
	pods   []*corev1.Pod
	// slices are nil, and problem says why, where they may not be read.
	slices  []*resourceapi.ResourceSlice
	problem string
}

// Read implements [Source].
func (s *Cluster) Read(ctx context.Context) (View, error) {
	var o objects
	makers := s.newMakers()
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		// Pods come after claims, so that one which uses a claim is seen.
		o.claims, err = ListAll(groupCtx, s.listClaims(), ownership.PruneClaim)
		if err != nil {
			return s.explain(err, kube.VerbList, claimsResource)
		}
		o.pods, err = ListAll(groupCtx, s.listPods(), ownership.PrunePod)
		return s.explain(err, kube.VerbList, podsResource)
	})
	group.Go(func() (err error) {
		o.slices, err = ListAll(groupCtx, s.listSlices, ownership.PruneSlice)
		if apierrors.IsForbidden(err) {
			o.slices, o.problem = nil, withoutSlices
			return nil
		}
		return s.explain(err, kube.VerbList, slicesResource)
	})
	group.Go(func() error {
		makers.load(groupCtx)
		return nil
	})
	if err := group.Wait(); err != nil {
		return View{}, err
	}
	return s.view(o, makers.of(ctx)), nil
}

// withoutSlices is for users who may only read a namespace.
const withoutSlices = "You may not read resourceslices, so what is free and GPUs' UUIDs are not known"

// view joins what was read.
func (s *Cluster) view(o objects, workload func(*corev1.Pod) *ownership.Workload) View {
	v := View{problem: o.problem, partial: s.Options.Namespace != ""}
	published := ownership.NewPublished(s.Options.Driver, o.slices)
	if o.slices != nil {
		v.hardware = newHardware(published)
	}
	held := published.Held(o.claims)
	if s.Options.Node != "" {
		held = slices.DeleteFunc(held, func(owner ownership.Owner) bool { return v.hardware.nodeOf(owner.Device.Pool) != s.Options.Node })
		v.hardware.keepNode(s.Options.Node)
	}
	v.owners = ownership.Join(held, o.claims, o.pods, workload)
	pods := o.pods
	v.hasPod = func(namespace, name string) bool {
		return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
			return pod.Name == name && (namespace == "" || pod.Namespace == namespace)
		})
	}
	return v
}

func (s *Cluster) listClaims() pager.ListPageFunc {
	return Page(s.Typed.ResourceV1().ResourceClaims(s.Options.Namespace).List)
}

func (s *Cluster) listPods() pager.ListPageFunc {
	return Page(s.Typed.CoreV1().Pods(s.Options.Namespace).List)
}

func (s *Cluster) listSlices(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	return s.Typed.ResourceV1().ResourceSlices().List(ctx, s.selectSlices(o))
}

// selectSlices leaves other drivers' and nodes' slices to the server.
func (s *Cluster) selectSlices(o metav1.ListOptions) metav1.ListOptions {
	selector := fields.Set{resourceapi.ResourceSliceSelectorDriver: s.Options.Driver}
	if s.Options.Node != "" {
		selector[resourceapi.ResourceSliceSelectorNodeName] = s.Options.Node
	}
	o.FieldSelector = selector.String()
	return o
}

// Page makes a typed client's List one that reads a page for [ListAll].
func Page[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) pager.ListPageFunc {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }
}

// ListAll reads all objects of a kind, page by page, and drops what is not needed of
// them on the way. The result is never nil.
func ListAll[T runtime.Object](ctx context.Context, page pager.ListPageFunc, prune func(T) T) ([]T, error) {
	all := []T{}
	err := pager.New(page).EachListItemWithAlloc(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		typed, ok := object.(T)
		if !ok {
			return fmt.Errorf("the server sent a %T", object)
		}
		all = append(all, prune(typed))
		return nil
	})
	return all, err
}

// explain says in one line what went wrong and what to do about it.
func (s *Cluster) explain(err error, verb, resource string) error {
	where := " in all namespaces"
	switch {
	case resource == slicesResource:
		where = ""
	case s.Options.Namespace != "":
		where = " in namespace " + s.Options.Namespace
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you may not %s %s%s: give --namespace for one in which you may, or ask for that right (%w)", verb, resource, where, err)
	}
	return Explain(err, verb, resource, where, ", or give --socket on a node")
}

// Explain says in one line what went wrong with a call to the API server, and what to do
// about it. where follows the resource, such as " in all namespaces", and otherwise what
// a user can check if there is no API server.
func Explain(err error, verb, resource, where, otherwise string) error {
	var unreachable *url.Error
	var network net.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s %s: %w", verb, resource, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you may not %s %s%s: ask for that right (%w)", verb, resource, where, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server does not know you: log in again, or give another --context (%w)", err)
	case apierrors.IsNotFound(err) && resource != podsResource:
		return fmt.Errorf("the cluster has no %s in version v1: Dynamic Resource Allocation needs Kubernetes 1.34 or newer (%w)", resource, err)
	case errors.As(err, &unreachable) || errors.As(err, &network):
		return fmt.Errorf("the API server cannot be reached: check --kubeconfig and --context%s (%w)", otherwise, err)
	}
	return fmt.Errorf("%s %s%s: %w", verb, resource, where, err)
}
