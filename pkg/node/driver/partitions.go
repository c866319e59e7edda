package driver

import (
	"context"
	"slices"

	"k8s.io/klog/v2"

	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/prepare"
)

// ownedPartitions says which of a node's MIG partitions claims made. The hardware does
// not know: all others are somebody else's.
type ownedPartitions struct {
	// ours are the partitions that a record named before or after the hardware was
	// read; lost those of prepared claims that were not there.
	ours, lost []prepare.HeldPartition
}

// held are the partitions that are ready, with the ids of their GPU instances.
func (o ownedPartitions) held() map[inventory.Partition]int {
	out := map[inventory.Partition]int{}
	for _, p := range o.ours {
		if p.Instance != nil {
			out[p.Partition] = p.Instance.GPUInstance
		}
	}
	return out
}

func (o ownedPartitions) missing() []inventory.Partition {
	var out []inventory.Partition
	for _, p := range o.lost {
		out = append(out, p.Partition)
	}
	return out
}

// foreignOnly is the node without the partitions that claims made.
func (o ownedPartitions) foreignOnly(node inventory.Node) inventory.Node {
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

// ownedPartitions compares a node that was just read with the records as they are now.
func (d *Driver) ownedPartitions(ctx context.Context, node inventory.Node) ownedPartitions {
	return compare(node, nil, d.records(ctx))
}

// compare works out the ownership of what was read between two looks at the
// records. A partition that either look knows is ours, and one is lost only if
// both looks know it as ready, since it may be made or undone meanwhile.
func compare(node inventory.Node, before, after []prepare.HeldPartition) ownedPartitions {
	o := ownedPartitions{ours: slices.Clone(after)}
	for _, p := range before {
		same := func(q prepare.HeldPartition) bool { return q.Partition == p.Partition }
		i := slices.IndexFunc(after, same)
		if i < 0 {
			o.ours = append(o.ours, p)
			continue
		}
		ready := p.Instance != nil && after[i].Instance != nil && *p.Instance == *after[i].Instance
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

func (d *Driver) records(ctx context.Context) []prepare.HeldPartition {
	held, err := d.preparer.Held()
	if err != nil {
		klog.FromContext(ctx).Error(err, "The records of claims could not be read; their partitions may be taken for somebody else's")
	}
	return held
}

// settle says whose the partitions of a changed node are. It was read at some
// moment while claims were being prepared: where it seems to have partitions that
// nobody of ours made, or to lack one of ours, it is read again between two looks
// at the records.
func (d *Driver) settle(ctx context.Context, node inventory.Node) (inventory.Node, ownedPartitions) {
	owned := d.ownedPartitions(ctx, node)
	if !d.surprising(node, owned) {
		owned.lost = d.stillLost(node, owned)
		return node, owned
	}
	before := owned.ours
	again, err := d.Source.Snapshot(ctx)
	if err != nil {
		return node, owned // ctx ended.
	}
	return again, compare(again, before, d.records(ctx))
}

// surprising says whether somebody else seems to have changed the partitions since
// the last reading.
func (d *Driver) surprising(node inventory.Node, owned ownedPartitions) bool {
	d.mu.Lock()
	known := d.owned.foreignOnly(d.node)
	lost := d.owned.lost
	d.mu.Unlock()
	for _, gpu := range owned.foreignOnly(node).GPUs {
		for _, instance := range gpu.MIG.Instances {
			if !hasInstance(known, gpu.UUID, instance) {
				return true
			}
		}
	}
	return slices.ContainsFunc(owned.ours, func(p prepare.HeldPartition) bool {
		wasLost := slices.ContainsFunc(lost, func(q prepare.HeldPartition) bool { return q.Partition == p.Partition })
		return p.Instance != nil && readable(node, p.GPU) && !exists(node, p) && !wasLost
	})
}

func hasInstance(node inventory.Node, gpu string, instance inventory.MIGInstance) bool {
	return slices.ContainsFunc(node.GPUs, func(g inventory.GPU) bool {
		return g.UUID == gpu && slices.Contains(g.MIG.Instances, instance)
	})
}

// stillLost are the partitions that were lost before and are not back.
func (d *Driver) stillLost(node inventory.Node, owned ownedPartitions) []prepare.HeldPartition {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.owned.lost), func(p prepare.HeldPartition) bool {
		held := slices.ContainsFunc(owned.ours, func(q prepare.HeldPartition) bool { return q.Partition == p.Partition })
		return !held || exists(node, p)
	})
}

// mayBeBack is called after a claim was prepared or unprepared: a partition that
// was lost may exist again, or be nobody's any more.
func (d *Driver) mayBeBack() {
	d.mu.Lock()
	lost := len(d.owned.lost) > 0
	d.mu.Unlock()
	if lost {
		d.signal()
	}
}

// signal has lookAgain look again.
func (d *Driver) signal() {
	select {
	case d.recheck <- struct{}{}:
	default: // It will look anyway.
	}
}

// lookAgain reads the hardware and the records again when signal says so, until ctx
// ends. The gates are known, or ctx has ended.
func (d *Driver) lookAgain(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-d.recheck:
		}
		if found, less := d.withoutLost(); less {
			d.setGates(ctx, found)
		}
		d.readAgain(ctx)
	}
}

// readAgain holds the lock while it reads, so that what the source found meanwhile
// is taken over after it and not undone.
func (d *Driver) readAgain(ctx context.Context) {
	d.updating.Lock()
	defer d.updating.Unlock()
	before := d.records(ctx)
	node, err := d.Source.Snapshot(ctx)
	if err != nil {
		return // ctx ended.
	}
	d.takeOver(ctx, node, compare(node, before, d.records(ctx)))
}
