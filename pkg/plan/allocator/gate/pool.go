package gate

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// pool is what is published of one pool at its newest generation.
type pool struct {
	generation int64
	// slices are there, declared is how many there should be. Those of all nodes count:
	// a pool is whole or not for all of them.
	slices, declared int64
	// devices are those on the node.
	devices int
	// local says that a slice, of whatever generation, is for the node; shared that one
	// is for no node by name.
	local, shared bool
}

func (p *pool) complete() bool { return p.slices == p.declared }

func (p *pool) slicesMissing() string {
	if p.slices > p.declared {
		return fmt.Sprintf("%d slices of generation %d instead of %d", p.slices, p.generation, p.declared)
	}
	return fmt.Sprintf("%d of %d slices of generation %d", p.slices, p.declared, p.generation)
}

// observe gives the pools by driver and name.
func observe(node *corev1.Node, published []*resourceapi.ResourceSlice) map[string]map[string]*pool {
	result := make(map[string]map[string]*pool)
	for _, s := range published {
		pools := result[s.Spec.Driver]
		if pools == nil {
			pools = make(map[string]*pool)
			result[s.Spec.Driver] = pools
		}
		p := pools[s.Spec.Pool.Name]
		if p == nil {
			p = &pool{generation: s.Spec.Pool.Generation}
			pools[s.Spec.Pool.Name] = p
		}
		p.add(node, s)
	}
	return result
}

func (p *pool) add(node *corev1.Node, s *resourceapi.ResourceSlice) {
	devices, local, shared := reach(node, s)
	p.local = p.local || local
	p.shared = p.shared || shared
	if s.Spec.Pool.Generation < p.generation {
		return
	}
	if s.Spec.Pool.Generation > p.generation {
		p.generation, p.slices, p.declared, p.devices = s.Spec.Pool.Generation, 0, 0, 0
	}
	p.slices++
	// Slices of one generation agree. If a driver errs, waiting for the most is safe.
	p.declared = max(p.declared, s.Spec.Pool.ResourceSliceCount)
	p.devices += devices
}

// reach says how many devices of a slice are on the node, whether the slice is for this
// node, and whether it is for no node by name.
func reach(node *corev1.Node, s *resourceapi.ResourceSlice) (devices int, local, shared bool) {
	owned, owner := false, false
	for _, ref := range s.OwnerReferences {
		if ref.APIVersion == "v1" && ref.Kind == "Node" {
			owned = true
			owner = owner || ref.Name == node.Name && ref.UID == node.UID
		}
	}
	switch {
	case s.Spec.NodeName != nil:
		// The slices of an earlier node of this name are collected soon. Until then they
		// count for the pool, as they do for kube-scheduler, but not for this node.
		local = *s.Spec.NodeName == node.Name && (owner || !owned)
	case owned:
		local = owner
	default:
		for _, d := range s.Spec.Devices {
			if d.NodeName != nil && *d.NodeName == node.Name {
				devices++
			}
		}
		return devices, devices > 0, devices == 0
	}
	if local {
		devices = len(s.Spec.Devices)
	}
	return devices, local, false
}
