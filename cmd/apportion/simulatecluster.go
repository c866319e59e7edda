package main

import (
	"context"

	"golang.org/x/sync/errgroup"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"apportion.dev/apportion/pkg/ownership/kube"
	"apportion.dev/apportion/pkg/ownership/report"
	"apportion.dev/apportion/pkg/plan/simulate"
)

// clusterState is what a plan needs of a cluster.
type clusterState struct {
	input      *simulate.Input
	priorities []*schedulingv1.PriorityClass
	// warnings say what could not be read and is not needed.
	warnings []string
}

// everywhere follows the names of namespaced resources in errors.
const everywhere = " in all namespaces"

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
		if err := listInto(groupCtx, &in.Claims, "resourceclaims.resource.k8s.io", everywhere, report.Page(resources.ResourceClaims("").List)); err != nil {
			return err
		}
		return listInto(groupCtx, &in.Pods, "pods", everywhere, report.Page(core.Pods("").List))
	})
	group.Go(func() error {
		return listInto(groupCtx, &in.ClaimTemplates, "resourceclaimtemplates.resource.k8s.io", everywhere, report.Page(resources.ResourceClaimTemplates("").List))
	})
	group.Go(func() error {
		return listInto(groupCtx, &in.Slices, "resourceslices.resource.k8s.io", "", report.Page(resources.ResourceSlices().List))
	})
	group.Go(func() error { return listInto(groupCtx, &in.Nodes, "nodes", "", report.Page(core.Nodes().List)) })
	group.Go(func() error {
		return listInto(groupCtx, &in.Classes, "deviceclasses.resource.k8s.io", "", report.Page(resources.DeviceClasses().List))
	})
	var rules, priorities error
	group.Go(func() error {
		rules = listInto(groupCtx, &in.TaintRules, "devicetaintrules.resource.k8s.io", "", report.Page(resources.DeviceTaintRules().List))
		return notEssential(rules)
	})
	group.Go(func() error {
		priorities = listInto(groupCtx, &s.priorities, "priorityclasses.scheduling.k8s.io", "", report.Page(c.typed.SchedulingV1().PriorityClasses().List))
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

// notEssential ignores that a cluster does not have something, or does not show it.
func notEssential(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// listInto reads all objects of a kind.
func listInto[T runtime.Object](ctx context.Context, all *[]T, resource, where string, page pager.ListPageFunc) (err error) {
	*all, err = report.ListAll(ctx, page, func(object T) T { return object })
	return report.Explain(err, kube.VerbList, resource, where, "")
}
