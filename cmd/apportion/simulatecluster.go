package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"

	"golang.org/x/sync/errgroup"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"apportion.dev/apportion/pkg/plan/simulate"
)

// clusterState is what a plan needs of a cluster.
type clusterState struct {
	input      *simulate.Input
	priorities []*schedulingv1.PriorityClass
	// warnings say what could not be read and is not needed.
	warnings []string
}

// readCluster reads what scheduling depends on. Claims come before pods, so that a pod
// which uses a claim is seen.
func readCluster(ctx context.Context, c *clients) (*clusterState, error) {
	s := &clusterState{input: &simulate.Input{}}
	in := s.input
	resources, core := c.typed.ResourceV1(), c.typed.CoreV1()
	group, groupCtx := errgroup.WithContext(ctx)
	// At most a few calls at once, as the API server has others to serve.
	group.SetLimit(4)
	group.Go(func() error {
		if err := listInto(groupCtx, &in.Claims, "resourceclaims.resource.k8s.io", page(resources.ResourceClaims("").List)); err != nil {
			return err
		}
		return listInto(groupCtx, &in.Pods, "pods", page(core.Pods("").List))
	})
	group.Go(func() error {
		return listInto(groupCtx, &in.ClaimTemplates, "resourceclaimtemplates.resource.k8s.io", page(resources.ResourceClaimTemplates("").List))
	})
	group.Go(func() error {
		return listInto(groupCtx, &in.Slices, "resourceslices.resource.k8s.io", page(resources.ResourceSlices().List))
	})
	group.Go(func() error { return listInto(groupCtx, &in.Nodes, "nodes", page(core.Nodes().List)) })
	group.Go(func() error {
		return listInto(groupCtx, &in.Classes, "deviceclasses.resource.k8s.io", page(resources.DeviceClasses().List))
	})
	var rules, priorities error
	group.Go(func() error {
		rules = listInto(groupCtx, &in.TaintRules, "devicetaintrules.resource.k8s.io", page(resources.DeviceTaintRules().List))
		return notEssential(rules)
	})
	group.Go(func() error {
		priorities = listInto(groupCtx, &s.priorities, "priorityclasses.scheduling.k8s.io", page(c.typed.SchedulingV1().PriorityClasses().List))
		return notEssential(priorities)
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, err := range []error{rules, priorities} {
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

// page makes a typed client's List one that a pager can call.
func page[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) pager.ListPageFunc {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }
}

// listInto reads all objects of a kind, page by page.
func listInto[T runtime.Object](ctx context.Context, all *[]T, resource string, page pager.ListPageFunc) error {
	err := pager.New(page).EachListItemWithAlloc(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		typed, ok := object.(T)
		if !ok {
			return fmt.Errorf("the server sent a %T", object)
		}
		*all = append(*all, typed)
		return nil
	})
	return readError(err, resource)
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
