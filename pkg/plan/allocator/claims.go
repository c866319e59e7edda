package allocator

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/pkg/plan/allocator/internal/cells"
	"apportion.dev/apportion/pkg/plan/allocator/internal/solver"
)

// classified are the claims of one call.
type classified struct {
	// open are those that need devices.
	open []*resourceapi.ResourceClaim
	// narrow are selectors of devices that other claims have.
	narrow []cells.Narrowing
	// impossible says why no node but one certain other will do.
	impossible string
	// err says that kube-scheduler gives up, too.
	err error
}

// classify sorts claims by what has to be done for them. A claim that a pod names twice
// counts once.
func (a *Allocator) classify(id string, claims []*resourceapi.ResourceClaim) classified {
	var c classified
	for i, claim := range claims {
		name := nameOf(claim)
		if repeated(claims[:i], name) {
			continue
		}
		// A departing claim that got new devices in this loop has them: this comes first.
		if placed, ok := a.placed[name]; ok {
			if placed.id != id {
				c.elsewhere(a, placed, name)
			}
			continue
		}
		if claim.Status.Allocation == nil || Departs(claim, a.options.Departing) {
			c.open = append(c.open, claim)
			continue
		}
		selector := claim.Status.Allocation.NodeSelector
		if selector == nil {
			continue
		}
		s, err := a.selectors.Selector(selector)
		if err != nil {
			c.err = fmt.Errorf("claim %s: status.allocation.nodeSelector: %w", name, err)
			continue
		}
		c.narrow = append(c.narrow, cells.Narrowing{Selector: s, Source: fmt.Sprintf("allocated claim %s", name)})
	}
	return c
}

// elsewhere adds what a claim that was placed on another target asks for: its devices
// must be of the cluster, and all that it may have there must be in reach, as it is not
// known which of them it will have.
func (c *classified) elsewhere(a *Allocator, placed *target, name types.NamespacedName) {
	for _, alternative := range placed.alternatives {
		for _, choice := range alternative.taken.choicesOf(name) {
			device := choice.Device
			if device.Template || device.BindsToNode || device.NodeName != "" {
				if c.impossible == "" {
					c.impossible = fmt.Sprintf("claim %s was placed on %s, with devices that only that node reaches", name, placed.id)
				}
				return
			}
			if device.NodeSelector == nil {
				continue
			}
			s, err := a.selectors.Selector(device.NodeSelector)
			if err != nil {
				c.err = fmt.Errorf("claim %s: node selector of device %s: %w", name, device.ID, err)
				return
			}
			if !c.narrows(s) {
				c.narrow = append(c.narrow, cells.Narrowing{Selector: s, Source: fmt.Sprintf("claim %s, placed on %s,", name, placed.id)})
			}
		}
	}
}

func (c *classified) narrows(selector *cells.Selector) bool {
	for _, n := range c.narrow {
		if n.Selector == selector {
			return true
		}
	}
	return false
}

func nameOf(claim *resourceapi.ResourceClaim) types.NamespacedName {
	return types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
}

func repeated(before []*resourceapi.ResourceClaim, name types.NamespacedName) bool {
	for _, claim := range before {
		if nameOf(claim) == name {
			return true
		}
	}
	return false
}

// claimsKey identifies the open claims of a call.
type claimsKey [4]claimKey

type claimKey struct {
	claim   *resourceapi.ResourceClaim
	version string
}

type compiledClaims struct {
	claims *solver.Claims
	err    error
}

// compile compiles claims, the same ones only once: a pod is tried on many targets.
func (a *Allocator) compile(claims []*resourceapi.ResourceClaim) (*solver.Claims, error) {
	var key claimsKey
	if len(claims) > len(key) {
		return solver.Compile(a.options.Cache.solver, claims, a.classes)
	}
	for i, claim := range claims {
		key[i] = claimKey{claim: claim, version: claim.ResourceVersion}
	}
	c := a.compiled.get(key, func() *compiledClaims {
		compiled, err := solver.Compile(a.options.Cache.solver, claims, a.classes)
		return &compiledClaims{claims: compiled, err: err}
	})
	return c.claims, c.err
}

// matchAll says why a node that exists will not do, if so.
func (c *classified) matchAll(node *corev1.Node) string {
	for _, n := range c.narrow {
		if !n.Selector.Matches(node) {
			return fmt.Sprintf("%s can only be used on nodes with %s", n.Source, n.Selector)
		}
	}
	return ""
}
