package allocator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/pkg/plan/allocator/internal/cells"
	"apportion.dev/apportion/pkg/plan/allocator/internal/solver"
)

// commit is what Commit needs of a result.
type commit struct {
	allocator  *Allocator
	generation uint64
	done       bool
	id         string
	node       *corev1.Node
	selectors  []*cells.Selector
	claims     []types.NamespacedName
	places     []place
}

// place is an instance type that survived, with what is taken on each of its placements.
type place struct {
	instanceType *instanceType
	verdict      *verdict
}

func (s *search) newResult() *Result {
	return &Result{commit: &commit{
		allocator:  s.allocator,
		generation: s.allocator.generation,
		id:         s.on.ID,
		node:       s.on.Node,
		selectors:  s.selectors,
		claims:     s.names,
	}}
}

// Commit places the claims: it reserves their devices on each of the survivors, and from
// now on the target may become these only, with the labels of their placements and of the
// target's selectors. Until the target is one instance type, other targets cannot have
// what any of them took of devices that they reach, too.
//
// A result is good until the next Commit, Release, Forget or Narrow that changes
// anything: so any number of targets can be asked at the same time and one of the results
// committed, after which the next pod is for asking anew. It is an error to commit a
// result twice, one that is too old, one of another Allocator, and one without survivors.
func (a *Allocator) Commit(result *Result) error {
	if result == nil || result.commit == nil || result.commit.allocator != a {
		return errors.New("committing: the result is not of this allocator")
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	c := result.commit
	switch {
	case c.done:
		return fmt.Errorf("committing to %s: the result was committed before", c.id)
	case c.generation != a.generation:
		return fmt.Errorf("committing to %s: something was committed or released since: allocate again", c.id)
	case len(c.places) == 0:
		return fmt.Errorf("committing to %s: the claims can be met on none of its instance types", c.id)
	}
	alternatives, err := a.alternatives(c.places)
	if err != nil {
		return fmt.Errorf("committing to %s: %w", c.id, err)
	}
	c.done = true
	t := a.targets[c.id]
	if t == nil {
		t = &target{id: c.id}
		a.targets[c.id] = t
	}
	t.node, t.alternatives, t.selectors = c.node, alternatives, c.selectors
	t.claims = append(t.claims, c.claims...)
	for _, claim := range c.claims {
		a.placed[claim] = t
	}
	a.changed(t)
	return nil
}

// alternatives are the placements of all places.
func (a *Allocator) alternatives(places []place) ([]*alternative, error) {
	var alternatives []*alternative
	for _, p := range places {
		for i, placement := range p.verdict.placements {
			of := &alternative{
				instanceType: p.instanceType.name,
				labels:       p.instanceType.labels,
				set:          p.instanceType.set,
				requirements: placement.Requirements,
				taken:        p.verdict.taken[i],
			}
			alternatives = append(alternatives, of)
			if len(placement.Requirements) == 0 {
				continue
			}
			box, err := a.selectors.Selector(&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: placement.Requirements},
			}})
			if err != nil {
				return nil, fmt.Errorf("requirements of %s: %w", p.instanceType.name, err)
			}
			of.box = box
		}
	}
	return alternatives, nil
}

// Release gives back what instance types of a target reserved: the target can no longer
// become them, whoever dropped them. The alternative of a node without an instance type
// has an empty name. A target without alternatives is forgotten, and the claims that were
// placed on it are unallocated again.
func (a *Allocator) Release(target string, instanceTypes ...string) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	t := a.targets[target]
	if t == nil {
		return
	}
	a.keep(t, func(alternative *alternative) bool { return !slices.Contains(instanceTypes, alternative.instanceType) })
}

// Forget gives back all that a target reserved.
func (a *Allocator) Forget(target string) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if t := a.targets[target]; t != nil {
		a.keep(t, func(*alternative) bool { return false })
	}
}

// Narrow says that a target's labels will match more selectors: placements that cannot
// match them are released. Nothing happens for a target to which nothing was committed.
// The error is for a selector that cannot be parsed.
func (a *Allocator) Narrow(target string, selectors ...*corev1.NodeSelector) error {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	t := a.targets[target]
	if t == nil {
		return nil
	}
	all := t.selectors
	for _, selector := range selectors {
		s, err := a.selectors.Selector(selector)
		if err != nil {
			return fmt.Errorf("narrowing %s: %w", target, err)
		}
		all = appendNew(slices.Clip(all), s)
	}
	if len(all) == len(t.selectors) {
		return nil
	}
	t.selectors = all
	space := cells.NewSpace(nil, all, nil, t.boxes)
	a.generation++
	a.keep(t, func(alternative *alternative) bool {
		if t.node != nil {
			return !slices.ContainsFunc(all, func(s *cells.Selector) bool { return !s.Matches(t.node) })
		}
		_, _, err := space.Grid(alternative.labels, alternative.box)
		impossible := new(cells.Impossible)
		return !errors.As(err, &impossible)
	})
	return nil
}

// keep drops the other alternatives, and the target if none is left.
func (a *Allocator) keep(t *target, good func(*alternative) bool) {
	kept := slices.DeleteFunc(slices.Clone(t.alternatives), func(alternative *alternative) bool { return !good(alternative) })
	if len(kept) == len(t.alternatives) {
		return
	}
	t.alternatives = kept
	if len(kept) == 0 {
		delete(a.targets, t.id)
		for _, claim := range t.claims {
			delete(a.placed, claim)
		}
	}
	a.changed(t)
}

// changed works out anew what depends on a target's alternatives.
func (a *Allocator) changed(t *target) {
	a.generation++
	t.byType, t.boxes = make(map[string][]*alternative, len(t.alternatives)), nil
	for _, of := range t.alternatives {
		t.byType[of.instanceType] = append(t.byType[of.instanceType], of)
		if of.box != nil {
			t.boxes = appendNew(t.boxes, of.box)
		}
	}
	before := t.shared
	t.shared = t.sharedUsage(a.local)
	if before == nil && t.shared == nil {
		return // as with all that take devices of their own nodes only
	}
	takers := slices.DeleteFunc(slices.Clone(a.takers), func(other *target) bool { return other == t })
	if t.shared == nil {
		t.others = nil
	} else {
		i, _ := slices.BinarySearchFunc(takers, t.id, func(other *target, id string) int { return strings.Compare(other.id, id) })
		takers = slices.Insert(takers, i, t)
	}
	a.takers = takers
	a.usage = a.sum(takers, nil)
	for _, taker := range takers {
		taker.others = sync.OnceValue(func() *solver.Usage { return a.sum(takers, taker) })
	}
}

// sum is what claims of the cluster hold and what targets but one may take.
func (a *Allocator) sum(takers []*target, without *target) *solver.Usage {
	usages := []*solver.Usage{a.cluster}
	for _, taker := range takers {
		if taker != without {
			usages = append(usages, taker.shared)
		}
	}
	if len(usages) == 1 {
		return a.cluster
	}
	return solver.Sum(usages...)
}

// sharedUsage is the most that the target may take of what others reach.
func (t *target) sharedUsage(local map[poolKey]string) *solver.Usage {
	var usages []*solver.Usage
	seen := make(map[*group]bool)
	for _, alternative := range t.alternatives {
		at := alternative.taken.at()
		if seen[at] {
			continue // the same devices: those of the cluster do not depend on names
		}
		seen[at] = true
		if usage := alternative.taken.sharedUsage(local); usage != nil {
			usages = append(usages, usage)
		}
	}
	switch len(usages) {
	case 0:
		return nil
	case 1:
		return usages[0]
	}
	return solver.Worst(usages...)
}
