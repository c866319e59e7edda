package simulate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"apportion.dev/apportion/pkg/plan/allocator"
)

// settled is what a node claim becomes.
type settled struct {
	it     *InstanceType
	labels map[string]string
	// required are the keys of labels that could not as well have another value, or be
	// absent, if all others stay as they are.
	required []string
}

// settle finds the cheapest surviving instance type of a node claim, and labels with
// which it has room for all its pods: of several possible values the first, and none if
// possible.
func (p *planner) settle(ctx context.Context, t *target) (settled, error) {
	for _, it := range t.types {
		if s, err := p.labels(ctx, t, it); s.it != nil || err != nil {
			return s, err
		}
	}
	return settled{}, fmt.Errorf("no labels were found that suit all pods of node claim %s: give instance types the labels that their nodes have", t.name)
}

// labels settles on one instance type; the result has none if no labels were found.
func (p *planner) labels(ctx context.Context, t *target, it *InstanceType) (settled, error) {
	keys, values := t.choices(it)
	s := settled{it: it, labels: map[string]string{}}
	var chosen []corev1.NodeSelectorRequirement
	for i, key := range keys {
		found := false
		for j := 0; j < len(values[i]) && !found; j++ {
			// A copy, as the allocator keeps selectors.
			with := append(slices.Clone(chosen), exactly(key, values[i][j]))
			if found = len(values[i]) == 1; !found {
				var err error
				if found, err = p.allows(ctx, t, it, with); err != nil {
					return settled{}, err
				}
			}
			if found {
				chosen = with
			}
		}
		if !found {
			return settled{}, nil
		}
	}
	for i, key := range keys {
		if len(chosen[i].Values) > 0 {
			s.labels[key] = chosen[i].Values[0]
		}
		for _, value := range values[i] {
			other := slices.Clone(chosen)
			if other[i] = exactly(key, value); slices.Equal(other[i].Values, chosen[i].Values) {
				continue
			}
			allowed, err := p.allows(ctx, t, it, other)
			if err != nil {
				return settled{}, err
			}
			if !allowed {
				s.required = append(s.required, key)
				break
			}
		}
	}
	s.labels[corev1.LabelHostname] = t.name
	return s, nil
}

// exactly requires a label to have a value, or to be absent for nil.
func exactly(key string, value *string) corev1.NodeSelectorRequirement {
	if value == nil {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpDoesNotExist}
	}
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{*value}}
}

// allows says whether a node of an instance type that meets the requirements has room for
// all pods of a node claim.
func (p *planner) allows(ctx context.Context, t *target, it *InstanceType, requirements []corev1.NodeSelectorRequirement) (bool, error) {
	selector := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: requirements}}}
	result, err := p.alloc.Allocate(ctx, allocator.Target{
		ID: t.name, InstanceTypes: []*allocator.InstanceType{&it.InstanceType}, Selectors: []*corev1.NodeSelector{selector},
	}, nil)
	if err != nil {
		return false, fmt.Errorf("choose labels for node claim %s: %w", t.name, err)
	}
	return len(result.Survivors) > 0, nil
}

// choices are the labels that matter, in order, with the values that each may have; nil
// stands for none.
func (t *target) choices(it *InstanceType) (keys []string, values [][]*string) {
	known := map[string][]*string{}
	for key, all := range it.Labels {
		for _, value := range all {
			known[key] = append(known[key], &value)
		}
	}
	consider := func(requirements []corev1.NodeSelectorRequirement) {
		for _, r := range requirements {
			if _, declared := it.Labels[r.Key]; declared {
				continue
			}
			if known[r.Key] == nil {
				known[r.Key] = []*string{nil}
			}
			for _, value := range valuesFor(r) {
				known[r.Key] = append(known[r.Key], &value)
			}
		}
	}
	for _, selector := range t.selectors {
		for _, term := range selector.NodeSelectorTerms {
			consider(term.MatchExpressions)
		}
	}
	for _, pod := range t.pods {
		for _, placement := range placementsOn(pod.result, it.Name) {
			consider(placement.Requirements)
		}
	}
	keys = slices.Sorted(maps.Keys(known))
	for _, key := range keys {
		values = append(values, known[key])
	}
	return keys, values
}

// valuesFor are values with which a requirement may hold.
func valuesFor(r corev1.NodeSelectorRequirement) []string {
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return r.Values
	case corev1.NodeSelectorOpExists:
		return []string{"true"}
	case corev1.NodeSelectorOpGt:
		return beside(r.Values, 1)
	case corev1.NodeSelectorOpLt:
		return beside(r.Values, -1)
	}
	return nil
}

// beside is the next number after the one that is given, or before it.
func beside(values []string, step int) []string {
	if len(values) != 1 {
		return nil
	}
	bound, err := strconv.Atoi(values[0])
	if err != nil {
		return nil // Such a selector matches nothing.
	}
	return []string{strconv.Itoa(bound + step)}
}

func placementsOn(result *allocator.Result, instanceType string) []allocator.Placement {
	for _, s := range result.Survivors {
		if s.InstanceType == instanceType {
			return s.Placements
		}
	}
	return nil
}

// placementFor is what the claims get on a node with these labels, nil if there is none.
func placementFor(placements []allocator.Placement, labels map[string]string) *allocator.Placement {
	node := &corev1.Node{}
	node.Labels = labels
	for i := range placements {
		if len(placements[i].Requirements) == 0 {
			return &placements[i]
		}
		selector := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: placements[i].Requirements}}}
		if matches, err := nodeaffinity.NewLazyErrorNodeSelector(selector).Match(node); err == nil && matches {
			return &placements[i]
		}
	}
	return nil
}
