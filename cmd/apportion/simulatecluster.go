package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"apportion.dev/apportion/pkg/simulate"
)

// clusterState is what a plan needs of a cluster.
type clusterState struct {
	*simulate.Input
	priorities []*schedulingv1.PriorityClass
	// warnings say what could not be read and is not needed.
	warnings []string
}

// readCluster reads what scheduling depends on. Claims come before pods, so that a pod
// which uses a claim is seen.
func readCluster(ctx context.Context, c *clients) (*clusterState, error) {
	s := &clusterState{Input: &simulate.Input{}}
	resources, core := c.typed.ResourceV1(), c.typed.CoreV1()
	group, groupCtx := errgroup.WithContext(ctx)
	// At most a few calls at once, as the API server has others to serve.
	group.SetLimit(4)
	var rules, classes error
	group.Go(func() (err error) {
		s.Claims, err = listAll[*resourceapi.ResourceClaim](groupCtx, claimsResource, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return resources.ResourceClaims("").List(ctx, o)
		})
		if err != nil {
			return err
		}
		s.Pods, err = listAll[*corev1.Pod](groupCtx, podsResource, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return core.Pods("").List(ctx, o)
		})
		return err
	})
	group.Go(func() (err error) {
		s.ClaimTemplates, err = listAll[*resourceapi.ResourceClaimTemplate](groupCtx, "resourceclaimtemplates.resource.k8s.io", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return resources.ResourceClaimTemplates("").List(ctx, o)
		})
		return err
	})
	group.Go(func() (err error) {
		s.Slices, err = listAll[*resourceapi.ResourceSlice](groupCtx, slicesResource, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return resources.ResourceSlices().List(ctx, o)
		})
		return err
	})
	group.Go(func() (err error) {
		s.Nodes, err = listAll[*corev1.Node](groupCtx, "nodes", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return core.Nodes().List(ctx, o)
		})
		return err
	})
	group.Go(func() (err error) {
		s.Classes, err = listAll[*resourceapi.DeviceClass](groupCtx, "deviceclasses.resource.k8s.io", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return resources.DeviceClasses().List(ctx, o)
		})
		return err
	})
	group.Go(func() error {
		s.TaintRules, rules = listAll[*resourceapi.DeviceTaintRule](groupCtx, "devicetaintrules.resource.k8s.io", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return resources.DeviceTaintRules().List(ctx, o)
		})
		return notEssential(rules)
	})
	group.Go(func() error {
		s.priorities, classes = listAll[*schedulingv1.PriorityClass](groupCtx, "priorityclasses.scheduling.k8s.io", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.typed.SchedulingV1().PriorityClasses().List(ctx, o)
		})
		return notEssential(classes)
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, err := range []error{rules, classes} {
		if apierrors.IsForbidden(err) {
			s.warnings = append(s.warnings, "Done without: "+err.Error())
		}
	}
	return s, nil
}

// notEssential passes over what a cluster does not have, or does not show.
func notEssential(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// listAll reads all objects of a kind, page by page.
func listAll[T runtime.Object](ctx context.Context, resource string, page pager.ListPageFunc) ([]T, error) {
	var all []T
	err := pager.New(page).EachListItemWithAlloc(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		typed, ok := object.(T)
		if !ok {
			return fmt.Errorf("the server sent a %T", object)
		}
		all = append(all, typed)
		return nil
	})
	return all, readError(err, resource)
}

// readError says in one line what went wrong and what to do about it.
func readError(err error, resource string) error {
	var unreachable *url.Error
	var network net.Error
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you may not list %s in all namespaces: ask for that right (%w)", resource, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server does not know you: log in again, or give another --context (%w)", err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the cluster has no %s in version v1: Dynamic Resource Allocation needs Kubernetes 1.34 or newer (%w)", resource, err)
	case errors.As(err, &unreachable) || errors.As(err, &network):
		return fmt.Errorf("the API server cannot be reached: check --kubeconfig and --context (%w)", err)
	}
	return fmt.Errorf("list %s: %w", resource, err)
}
