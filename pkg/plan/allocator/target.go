package allocator

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/pkg/plan/allocator/internal/cells"
	"apportion.dev/apportion/pkg/plan/allocator/internal/solver"
)

// target is what was committed for one target.
type target struct {
	id string
	// node is the node if there is one.
	node *corev1.Node
	// alternatives are what the target may still become, in the order of its instance
	// types. They exclude each other.
	alternatives []*alternative
	// byType are the same by instance type, and boxes the labels that they have.
	byType map[string][]*alternative
	boxes  []*cells.Selector
	// claims are those that were placed on it.
	claims []types.NamespacedName
	// selectors are all that were asked of its labels.
	selectors []*cells.Selector
	// shared is what it may take of devices that other targets reach, whichever of the
	// alternatives it becomes; nil if nothing.
	shared *solver.Usage
	// others is what the cluster's claims hold and other targets may take; nil for a target
	// without shared, for which that is the allocator's usage.
	others func() *solver.Usage
}

// alternative is an instance type, or the node, with certain labels.
type alternative struct {
	instanceType string
	labels       *cells.Labels
	// box are the labels, nil for any that the target may have; requirements are the
	// same as the caller was told them.
	box          *cells.Selector
	requirements []corev1.NodeSelectorRequirement
	set          *templateSet
	taken        *taken
}

// taken is what the claims of a target got on alternatives with the same templates, one
// link for each commit. Its positions are those of the group: alternatives with the same
// group differ only in the names of template devices.
type taken struct {
	before *taken
	group  *group
	reach  *reach
	claims []ClaimAllocation

	once    sync.Once
	choices [][]solver.Choice
	all     *solver.Usage
}

// at is what identifies the state after the commit, by positions.
func (t *taken) at() *group {
	if t == nil {
		return nil
	}
	return t.group
}

func (t *taken) translate() {
	t.once.Do(func() {
		t.choices = solver.Translate(t.group.solution.Choices, t.group.reach.pools, t.reach.pools)
		t.all = t.before.usage().With(slices.Concat(t.choices...))
	})
}

// usage is all that was taken, nothing for nil.
func (t *taken) usage() *solver.Usage {
	if t == nil {
		return nothing
	}
	t.translate()
	return t.all
}

// nothing is the usage without devices.
var nothing *solver.Usage

// choicesOf are the devices of one claim.
func (t *taken) choicesOf(claim types.NamespacedName) []solver.Choice {
	for ; t != nil; t = t.before {
		for i, name := range t.group.claims {
			if name == claim {
				t.translate()
				return t.choices[i]
			}
		}
	}
	return nil
}

// sharedUsage is what was taken of the cluster's devices that other targets reach, nil if
// nothing.
func (t *taken) sharedUsage(local map[poolKey]string) *solver.Usage {
	var choices []solver.Choice
	for ; t != nil; t = t.before {
		for _, choice := range slices.Concat(t.group.solution.Choices...) {
			id := choice.Device.ID
			if !choice.Device.Template && !choice.AdminAccess && local[poolKey{driver: id.Driver.String(), pool: id.Pool.String()}] == "" {
				choices = append(choices, choice)
			}
		}
	}
	if len(choices) == 0 {
		return nil
	}
	return nothing.With(choices)
}
