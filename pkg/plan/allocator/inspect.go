package allocator

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Alternative is what a target to which claims were committed may still become.
type Alternative struct {
	// InstanceType is empty for a node without one.
	InstanceType string
	// Requirements are the labels that it then has, beyond what the selectors of the
	// target ask for.
	Requirements []corev1.NodeSelectorRequirement
	// Claims are all that were placed on the target, in the order of commits, with the
	// devices that they have if the target becomes this.
	Claims []ClaimAllocation
}

// Alternatives tells what a target may still become, in the order of its instance types;
// nothing for a target to which nothing was committed.
func (a *Allocator) Alternatives(target string) []Alternative {
	a.mutex.RLock()
	defer a.mutex.RUnlock()
	t := a.targets[target]
	if t == nil {
		return nil
	}
	alternatives := make([]Alternative, len(t.alternatives))
	for i, of := range t.alternatives {
		alternatives[i] = Alternative{InstanceType: of.instanceType, Requirements: of.requirements, Claims: of.taken.allClaims()}
	}
	return alternatives
}

// PlacedOn tells the target on which a claim was placed in this loop.
func (a *Allocator) PlacedOn(claim types.NamespacedName) (target string, ok bool) {
	a.mutex.RLock()
	defer a.mutex.RUnlock()
	if t := a.placed[claim]; t != nil {
		return t.id, true
	}
	return "", false
}

// allClaims are those of all commits.
func (t *taken) allClaims() []ClaimAllocation {
	if t == nil {
		return nil
	}
	return slices.Concat(t.before.allClaims(), t.claims)
}
