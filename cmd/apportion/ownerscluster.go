package main

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
	_ "k8s.io/client-go/plugin/pkg/client/auth" // Kubeconfigs may name its providers.
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/pager"

	"apportion.dev/apportion/pkg/ownership"
)

// clients speak to one cluster.
type clients struct {
	typed kubernetes.Interface
	// metadata reads objects without what is in them.
	metadata metadata.Interface
}

// connect makes the clients of the cluster that a kubeconfig names, which is found as
// kubectl finds it; in a pod without one, the clients of its own cluster.
func connect(kubeconfig, context string) (*clients, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	// The warning about files that are not there is of no use to anybody here.
	rules.WarnIfAllMissing = false
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no cluster is configured: give --kubeconfig, or --socket on a node")
	}
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	// What the server wants to say would stand in the middle of the table.
	config.WarningHandler, config.WarningHandlerWithContext = nil, rest.NoWarnings{}
	config.UserAgent = rest.DefaultKubernetesUserAgent()
	config.QPS, config.Burst = 50, 100
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the cluster: %w", err)
	}
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the cluster: %w", err)
	}
	return &clients{typed: typed, metadata: metadataClient}, nil
}

// clusterSource reads the API server.
type clusterSource struct {
	*clients
	driver string
	// namespace and node limit what is read; empty for all.
	namespace, node string
	// workloads says whether to ask who made the pods' makers.
	workloads bool
}

// What is read of a cluster, as errors call it.
const (
	claimsResource = "resourceclaims.resource.k8s.io"
	slicesResource = "resourceslices.resource.k8s.io"
	podsResource   = "pods"
)

// What is done with it.
const (
	verbList  = "list"
	verbWatch = "watch"
)

// objects are what a view is made of.
type objects struct {
	claims []*resourceapi.ResourceClaim
	pods   []*corev1.Pod
	// slices are nil, and problem says why, where they may not be read.
	slices  []*resourceapi.ResourceSlice
	problem string
}

func (s *clusterSource) read(ctx context.Context) (view, error) {
	var o objects
	makers := s.newMakers()
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		// Pods come after claims, so that one which uses a claim is seen.
		o.claims, err = list[*resourceapi.ResourceClaim](groupCtx, s.listClaims)
		if err != nil {
			return s.explain(err, verbList, claimsResource)
		}
		o.pods, err = list[*corev1.Pod](groupCtx, s.listPods)
		return s.explain(err, verbList, podsResource)
	})
	group.Go(func() (err error) {
		o.slices, err = list[*resourceapi.ResourceSlice](groupCtx, s.listSlices)
		if apierrors.IsForbidden(err) {
			o.slices, o.problem = nil, withoutSlices
			return nil
		}
		return s.explain(err, verbList, slicesResource)
	})
	group.Go(func() error {
		makers.load(groupCtx)
		return nil
	})
	if err := group.Wait(); err != nil {
		return view{}, err
	}
	return s.view(o, makers.of(ctx)), nil
}

// withoutSlices is for whoever may only read a namespace.
const withoutSlices = "You may not read resourceslices, so what is free and GPUs' UUIDs are not known"

// view joins what was read.
func (s *clusterSource) view(o objects, workload func(*corev1.Pod) *ownership.Workload) view {
	v := view{problem: o.problem, partial: s.namespace != ""}
	if o.slices != nil {
		v.hardware = newHardware(o.slices, s.driver)
	}
	held := ownership.Held(o.claims, o.slices, s.driver)
	if s.node != "" {
		held = slices.DeleteFunc(held, func(owner ownership.Owner) bool { return v.hardware.nodeOf(owner.Device.Pool) != s.node })
		v.hardware.keepNode(s.node)
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

func (s *clusterSource) listClaims(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	return s.typed.ResourceV1().ResourceClaims(s.namespace).List(ctx, o)
}

func (s *clusterSource) listPods(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	return s.typed.CoreV1().Pods(s.namespace).List(ctx, o)
}

func (s *clusterSource) listSlices(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	return s.typed.ResourceV1().ResourceSlices().List(ctx, s.selectSlices(o))
}

// selectSlices leaves other drivers' and nodes' slices to the server.
func (s *clusterSource) selectSlices(o metav1.ListOptions) metav1.ListOptions {
	selector := fields.Set{resourceapi.ResourceSliceSelectorDriver: s.driver}
	if s.node != "" {
		selector[resourceapi.ResourceSliceSelectorNodeName] = s.node
	}
	o.FieldSelector = selector.String()
	return o
}

// list reads all objects of a kind, page by page, and drops what is not needed of
// them on the way. The result is never nil.
func list[T runtime.Object](ctx context.Context, page pager.ListPageFunc) ([]T, error) {
	all := []T{}
	err := pager.New(page).EachListItemWithAlloc(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		pruned, err := prune(object)
		if err != nil {
			return err
		}
		typed, ok := pruned.(T)
		if !ok {
			return fmt.Errorf("the server sent a %T", object)
		}
		all = append(all, typed)
		return nil
	})
	return all, err
}

// explain says in one line what went wrong and what to do about it.
func (s *clusterSource) explain(err error, verb, resource string) error {
	var unreachable *url.Error
	var network net.Error
	what := resource + " in all namespaces"
	switch {
	case resource == slicesResource:
		what = resource
	case s.namespace != "":
		what = resource + " in namespace " + s.namespace
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s %s: %w", verb, resource, err)
	case apierrors.IsForbidden(err) && s.namespace == "" && resource != slicesResource:
		return fmt.Errorf("you may not %s %s: give --namespace for one in which you may, or ask for that right (%w)", verb, what, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you may not %s %s: ask for that right (%w)", verb, what, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server does not know you: log in again, or give another --context (%w)", err)
	case apierrors.IsNotFound(err) && resource != podsResource:
		return fmt.Errorf("the cluster has no %s in version v1: Dynamic Resource Allocation needs Kubernetes 1.34 or newer (%w)", resource, err)
	case errors.As(err, &unreachable) || errors.As(err, &network):
		return fmt.Errorf("the API server cannot be reached: check --kubeconfig and --context, or give --socket on a node (%w)", err)
	}
	return fmt.Errorf("%s %s: %w", verb, what, err)
}
