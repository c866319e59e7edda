package simulate

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"apportion.dev/apportion/pkg/plan/allocator"
)

// target is a node that exists or a node claim, with what the plan has put there.
type target struct {
	name string
	// node is nil for a node claim.
	node *corev1.Node
	// types are what a node claim may still become, cheapest first.
	types []*InstanceType
	// selectors are those of the pods on a node claim.
	selectors []*corev1.NodeSelector
	used      corev1.ResourceList
	// held are devices of a node that were taken before.
	held []taken
	pods []placed
}

// placed is a pod with what the allocator said of it.
type placed struct {
	pod    *podState
	result *allocator.Result
}

func (t *target) kind() CandidateKind {
	if t.node != nil {
		return KindNode
	}
	return KindNodeClaim
}

// attempt is a place for a pod that is not taken yet.
type attempt struct {
	target *target
	result *allocator.Result
	// types survive of a node claim's, in their order.
	types    []*InstanceType
	requests corev1.ResourceList
}

// refusals collects why a pod does not fit. It is nil where nobody asks.
type refusals struct {
	all []Candidate
}

func (r *refusals) add(t *target, instanceType, reason string) {
	if r != nil {
		r.all = append(r.all, Candidate{Kind: t.kind(), Name: t.name, InstanceType: instanceType, Reason: reason})
	}
}

func (r *refusals) drop(t *target, dropped []allocator.Dropped) {
	if r == nil {
		return
	}
	for _, d := range dropped {
		r.all = append(r.all, Candidate{Kind: t.kind(), Name: t.name, InstanceType: d.InstanceType, Reason: d.Reason, Unknown: d.Unknown})
	}
}

// try looks whether a pod fits on a target, nil if it does not.
func (p *planner) try(ctx context.Context, pod *podState, t *target, why *refusals) (*attempt, error) {
	if t.node != nil {
		return p.tryNode(ctx, pod, t, why)
	}
	return p.tryNodeClaim(ctx, pod, t, why)
}

func (p *planner) tryNode(ctx context.Context, pod *podState, t *target, why *refusals) (*attempt, error) {
	claims, requests := pod.claimsOn(t.node.Status.Allocatable, p.book)
	if reason := nodeRefusal(pod, t.node, requests, t.used); reason != "" {
		why.add(t, "", reason)
		return nil, nil
	}
	result, err := p.alloc.Allocate(ctx, allocator.Target{ID: t.name, Node: t.node}, claims)
	if err != nil {
		return nil, fmt.Errorf("place pod %s on node %s: %w", pod.name, t.name, err)
	}
	if len(result.Survivors) == 0 {
		why.drop(t, result.Dropped)
		return nil, nil
	}
	return &attempt{target: t, result: result, requests: requests}, nil
}

// nodeRefusal says what beside devices keeps a pod from a node, empty if nothing does.
func nodeRefusal(pod *podState, node *corev1.Node, requests, used corev1.ResourceList) string {
	if node.DeletionTimestamp != nil {
		return "it is being deleted"
	}
	taints := node.Spec.Taints
	if node.Spec.Unschedulable {
		taints = append(slices.Clone(taints), corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	if reason := pod.untolerated(taints); reason != "" {
		return reason
	}
	matches, err := pod.affinity.Match(node)
	if err != nil {
		return fmt.Sprintf("the pod's node affinity is not valid: %v", err)
	}
	if !matches {
		return "its labels do not match the pod's node selector or affinity"
	}
	return shortage(requests, used, node.Status.Allocatable)
}

func (p *planner) tryNodeClaim(ctx context.Context, pod *podState, t *target, why *refusals) (*attempt, error) {
	claims, requests := pod.claimsOn(nil, p.book)
	var types []*InstanceType
	var alternatives []*allocator.InstanceType
	for _, it := range t.types {
		reason := pod.untolerated(it.Taints)
		if reason == "" {
			reason = shortage(requests, t.used, it.Allocatable)
		}
		if reason != "" {
			why.add(t, it.Name, reason)
			continue
		}
		types = append(types, it)
		alternatives = append(alternatives, &it.InstanceType)
	}
	if len(types) == 0 {
		return nil, nil
	}
	result, err := p.alloc.Allocate(ctx, allocator.Target{
		ID: t.name, InstanceTypes: alternatives, Selectors: slices.Concat(t.selectors, pod.selectors),
	}, claims)
	if err != nil {
		return nil, fmt.Errorf("place pod %s on a new node: %w", pod.name, err)
	}
	why.drop(t, result.Dropped)
	survives := map[string]bool{}
	for _, s := range result.Survivors {
		survives[s.InstanceType] = true
	}
	types = slices.DeleteFunc(types, func(it *InstanceType) bool { return !survives[it.Name] })
	if len(types) == 0 {
		return nil, nil
	}
	return &attempt{target: t, result: result, types: types, requests: requests}, nil
}

// take puts the pod where it was tried.
func (p *planner) take(pod *podState, a *attempt) error {
	t := a.target
	if err := p.alloc.Commit(a.result); err != nil {
		return fmt.Errorf("place pod %s on %s: %w", pod.name, t.name, err)
	}
	if t.node == nil {
		// The commit has released the instance types that did not survive.
		t.types = a.types
		t.selectors = append(t.selectors, pod.selectors...)
	}
	t.used = plus(t.used, a.requests)
	t.pods = append(t.pods, placed{pod: pod, result: a.result})
	return nil
}
