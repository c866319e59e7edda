package simulate

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"apportion.dev/apportion/pkg/plan/allocator"
)

// maxLabelings limits how many sets of labels are looked at for one instance type.
const maxLabelings = 10_000

// settled is what a node claim becomes.
type settled struct {
	it     *InstanceType
	labels map[string]string
	// required are the keys of labels that could not as well have another value, or be
	// absent, if all others stay as they are.
	required []string
}

// settle finds the cheapest surviving instance type of a node claim, and labels with
// which it has room for all its pods. There are none only if so many labels matter that
// not all could be looked at.
func (t *target) settle() (settled, bool) {
	for _, it := range t.types {
		if s, ok := t.labels(it); ok {
			return s, true
		}
	}
	return settled{}, false
}

// labels are the labels of a node of an instance type: of labels with several values the
// first with which everything holds, and of others none if possible.
func (t *target) labels(it *InstanceType) (settled, bool) {
	keys, values := t.choices(it)
	possible := t.possible(keys, values)
	if slices.ContainsFunc(possible, func(left []*string) bool { return len(left) == 0 }) {
		return settled{}, false
	}
	chosen := make([]int, len(keys))
	for range maxLabelings {
		labels := map[string]string{}
		for i, key := range keys {
			setLabel(labels, key, possible[i][chosen[i]])
		}
		if t.holds(it, labels) {
			s := settled{it: it, labels: labels, required: t.required(it, labels, keys, values)}
			labels[corev1.LabelHostname] = t.name
			return s, true
		}
		if !next(chosen, possible) {
			break
		}
	}
	return settled{}, false
}

// setLabel gives a label a value, or takes it away for nil.
func setLabel(labels map[string]string, key string, value *string) {
	delete(labels, key)
	if value != nil {
		labels[key] = *value
	}
}

// required are the keys that could not as well have another value, or be absent, if all
// others stay as they are.
func (t *target) required(it *InstanceType, labels map[string]string, keys []string, values [][]*string) []string {
	var required []string
	for i, key := range keys {
		other := maps.Clone(labels)
		for _, value := range values[i] {
			if setLabel(other, key, value); !t.holds(it, other) {
				required = append(required, key)
				break
			}
		}
	}
	return required
}

// possible are the values without those that a selector of one term forbids by itself,
// as most do. So only the labels that selectors leave open have to be searched, however
// many pods ask for one each.
func (t *target) possible(keys []string, values [][]*string) [][]*string {
	possible := slices.Clone(values)
	for _, selector := range t.selectors {
		if len(selector.NodeSelectorTerms) != 1 {
			continue
		}
		for _, r := range selector.NodeSelectorTerms[0].MatchExpressions {
			i, found := slices.BinarySearch(keys, r.Key)
			if !found {
				continue
			}
			alone := nodeaffinity.NewLazyErrorNodeSelector(&corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{r}}},
			})
			possible[i] = slices.DeleteFunc(slices.Clone(possible[i]), func(value *string) bool {
				node := &corev1.Node{}
				node.Labels = map[string]string{}
				setLabel(node.Labels, r.Key, value)
				matches, err := alone.Match(node)
				return err != nil || !matches
			})
		}
	}
	return possible
}

// next goes on to the next combination of values, of which the last changes first; false
// after the last combination.
func next(chosen []int, values [][]*string) bool {
	for i := len(chosen) - 1; i >= 0; i-- {
		if chosen[i]++; chosen[i] < len(values[i]) {
			return true
		}
		chosen[i] = 0
	}
	return false
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

// holds says whether a node with these labels has room for all pods.
func (t *target) holds(it *InstanceType, labels map[string]string) bool {
	node := &corev1.Node{}
	node.Name, node.Labels = newNodeHostname, labels
	for _, selector := range t.selectors {
		if matches, err := nodeaffinity.NewLazyErrorNodeSelector(selector).Match(node); err != nil || !matches {
			return false
		}
	}
	for _, pod := range t.pods {
		if placementFor(placementsOn(pod.result, it.Name), labels) == nil {
			return false
		}
	}
	return true
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
