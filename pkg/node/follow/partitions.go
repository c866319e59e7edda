package follow

import (
	"slices"

	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/prepare"
)

// partitions says which of a node's MIG partitions claims made. The hardware does
// not know: all others are somebody else's.
type partitions struct {
	// ours are the partitions that a record named before or after the hardware was
	// read; lost those of prepared claims that were not there.
	ours, lost []prepare.HeldPartition
}

// held are the partitions that are ready, with the ids of their GPU instances.
func (o partitions) held() map[inventory.Partition]int {
	out := map[inventory.Partition]int{}
	for _, p := range o.ours {
		if p.Instance != nil {
			out[p.Partition] = p.Instance.GPUInstance
		}
	}
	return out
}

func (o partitions) missing() []inventory.Partition {
	var out []inventory.Partition
	for _, p := range o.lost {
		out = append(out, p.Partition)
	}
	return out
}

// foreignOnly is the node without the partitions that claims made.
func (o partitions) foreignOnly(node inventory.Node) inventory.Node {
	node.GPUs = slices.Clone(node.GPUs)
	for i := range node.GPUs {
		gpu := &node.GPUs[i]
		gpu.MIG.Instances = slices.DeleteFunc(slices.Clone(gpu.MIG.Instances), func(instance inventory.MIGInstance) bool {
			return slices.ContainsFunc(o.ours, func(p prepare.HeldPartition) bool { return isInstance(*gpu, instance, p) })
		})
	}
	return node
}

// isInstance says whether an instance of the GPU is that partition: at the same
// place with the same profile there is no other.
func isInstance(gpu inventory.GPU, instance inventory.MIGInstance, p prepare.HeldPartition) bool {
	if p.GPU != gpu.UUID || instance.Placement.Start != p.Start {
		return false
	}
	return slices.ContainsFunc(gpu.MIG.Profiles, func(profile inventory.MIGProfile) bool {
		return profile.ID == instance.ProfileID && profile.Name == p.Profile
	})
}

func exists(node inventory.Node, p prepare.HeldPartition) bool {
	return slices.ContainsFunc(node.GPUs, func(gpu inventory.GPU) bool {
		return slices.ContainsFunc(gpu.MIG.Instances, func(i inventory.MIGInstance) bool { return isInstance(gpu, i, p) })
	})
}

// compare works out the ownership of what was read between two looks at the
// records. A partition that either look knows is ours, and one is lost only if
// both looks know it as ready and it was not released in between, since it may be made
// or undone meanwhile.
func compare(node inventory.Node, before, after []prepare.HeldPartition) partitions {
	o := partitions{ours: slices.Clone(after)}
	for _, p := range before {
		same := func(q prepare.HeldPartition) bool { return q.Partition == p.Partition }
		i := slices.IndexFunc(after, same)
		if i < 0 {
			o.ours = append(o.ours, p)
			continue
		}
		changing := slices.ContainsFunc(after, func(q prepare.HeldPartition) bool { return same(q) && q.Instance == nil })
		ready := p.Instance != nil && !changing && *p.Instance == *after[i].Instance
		if ready && readable(node, p.GPU) && !exists(node, p) {
			o.lost = append(o.lost, p)
		}
	}
	return o
}

// readable says whether the node's partitions on a GPU could be read at all.
func readable(node inventory.Node, uuid string) bool {
	return slices.ContainsFunc(node.GPUs, func(gpu inventory.GPU) bool {
		return gpu.UUID == uuid && gpu.Problem == "" && gpu.MIG.Enabled != nil
	})
}

// surprising says whether somebody else seems to have changed the partitions since
// the last reading: the node seems to have some that none of our claims made, or to
// lack one of ours.
func (s State) surprising(node inventory.Node, owned partitions) bool {
	known := s.owned.foreignOnly(s.view.Node)
	for _, gpu := range owned.foreignOnly(node).GPUs {
		for _, instance := range gpu.MIG.Instances {
			if !hasInstance(known, gpu.UUID, instance) {
				return true
			}
		}
	}
	return slices.ContainsFunc(owned.ours, func(p prepare.HeldPartition) bool {
		wasLost := slices.ContainsFunc(s.owned.lost, func(q prepare.HeldPartition) bool { return q.Partition == p.Partition })
		return p.Instance != nil && readable(node, p.GPU) && !exists(node, p) && !wasLost
	})
}

func hasInstance(node inventory.Node, gpu string, instance inventory.MIGInstance) bool {
	return slices.ContainsFunc(node.GPUs, func(g inventory.GPU) bool {
		return g.UUID == gpu && slices.Contains(g.MIG.Instances, instance)
	})
}

// stillLost are the partitions that were lost before and are not back.
func (s State) stillLost(node inventory.Node, owned partitions) []prepare.HeldPartition {
	return slices.DeleteFunc(slices.Clone(s.owned.lost), func(p prepare.HeldPartition) bool {
		held := slices.ContainsFunc(owned.ours, func(q prepare.HeldPartition) bool { return q.Partition == p.Partition })
		return !held || exists(node, p)
	})
}
