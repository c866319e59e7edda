package devicemodel

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// layout is what one GPU offers: partitions, itself, or both at the scheduler's
// choice.
type layout struct {
	// whole says whether the GPU is offered as a whole.
	whole bool
	// partitions are offered, or hold a claim, in publishing order.
	partitions []partition
	// counters are those of the GPU's counter set.
	counters amounts
	// nothing says why the GPU offers nothing, and is empty if it offers something.
	nothing string
}

// layOut works out what a GPU offers.
func layOut(name Name, gpu inventory.GPU, policy Policy) layout {
	profiles := usableProfiles(gpu.MIG)
	l := layout{counters: gpuCounters(profiles)}
	possible := possiblePartitions(name, profiles, l.counters)
	foreign := foreignPartitions(name, gpu.MIG, profiles, l.counters)
	claimed := policy.claimedPartitions(name, gpu.UUID)

	on, fixed := gpu.MIG.Enabled != nil && *gpu.MIG.Enabled, gpu.MIG.ModeNeedsReset
	// A partition in use of which nothing is known may lie anywhere, so all that
	// is not in use already stays out of reach.
	unclear := anyUnclear(claimed, possible, foreign)
	l.whole = len(gpu.MIG.Instances) == 0 && !unclear && !(on && fixed) && !(policy.NoPartitions && len(claimed) > 0)
	offered := !policy.NoPartitions && !unclear && (on || !fixed)

	for _, p := range foreign {
		l.takeOut(p)
	}
	possible = slices.DeleteFunc(possible, func(p partition) bool {
		return !l.counters.fits(p.takes) || slices.ContainsFunc(gpu.MIG.Instances, p.overlaps)
	})
	fitting := fittingClaims(claimed, possible, l.counters)
	for _, p := range foreign {
		if p.uuid != "" {
			l.partitions = append(l.partitions, p)
		}
	}
	for _, p := range possible {
		_, isClaimed := claimed[p.name]
		if fitting[p.name] || offered && !isClaimed {
			l.partitions = append(l.partitions, p)
		}
	}
	for i := range l.partitions {
		p := &l.partitions[i]
		if c, ok := claimed[p.name]; ok {
			p.missing, p.instances = c.missing, append(p.instances, c.instances...)
		}
	}
	slices.SortStableFunc(l.partitions, comparePartitions)
	if !l.whole && len(l.partitions) == 0 {
		l.nothing = nothingReason(gpu, policy, on && fixed)
	}
	return l
}

// takeOut takes what an instance that somebody else made has out of the counter
// set, except its memory slices. These stay for its own device to consume, so that
// the scheduler knows a device with shares from a free one whatever becomes of its
// other properties.
func (l *layout) takeOut(foreign partition) {
	kept := memorySlices(foreign.placement)
	for counter, n := range foreign.takes {
		if kept[counter] == 0 {
			l.counters[counter] = max(0, l.counters[counter]-n)
			delete(foreign.takes, counter)
		}
	}
}

// anyUnclear says whether a partition is in use that cannot be described, because
// the GPU's profiles cannot be read.
func anyUnclear(claimed map[Name]claimedPartition, known ...[]partition) bool {
	for name, c := range claimed {
		isKnown := slices.ContainsFunc(slices.Concat(known...), func(p partition) bool { return p.name == name })
		if !isKnown && !c.missing {
			return true
		}
	}
	return false
}

// fittingClaims returns the claimed partitions that fit beside each other, those
// that exist before those that are missing.
//
// The scheduler must never see more of a counter in use than its set has: it would
// give out nothing of the node that consumes counters, of no GPU, as its allocator
// compares all counters of the pool (checkAvailableCounters). A missing partition
// may do that, since somebody else may have made another one in its place. It is
// left out then, and its claim with it.
func fittingClaims(claimed map[Name]claimedPartition, possible []partition, total amounts) map[Name]bool {
	left, fitting := maps.Clone(total), map[Name]bool{}
	for _, missing := range []bool{false, true} {
		for _, p := range possible {
			if c, ok := claimed[p.name]; ok && c.missing == missing && left.fits(p.takes) {
				left.subtract(p.takes)
				fitting[p.name] = true
			}
		}
	}
	return fitting
}

// nothingReason says why a GPU offers nothing and, where something can be done,
// what. CUDA does not see the whole of a GPU in MIG mode.
func nothingReason(gpu inventory.GPU, policy Policy, needsReset bool) string {
	device := cmp.Or(gpu.PCIBusID, gpu.UUID)
	if n := len(gpu.MIG.Instances); n > 0 {
		return fmt.Sprintf("it is in MIG mode with %d GPU instance(s) that somebody else made, none of which can be used as a device: give each a compute instance (nvidia-smi mig -cci -i %[2]s), or destroy them (nvidia-smi mig -dci -i %[2]s; nvidia-smi mig -dgi -i %[2]s) and disable the mode (nvidia-smi -i %[2]s -mig 0)", n, device)
	}
	if !needsReset {
		return "claims still hold partitions of it, which cannot be described: its MIG profiles cannot be read now"
	}
	why := "its MIG profiles cannot be read"
	if policy.NoPartitions {
		why = "this node offers no partitions"
	}
	return fmt.Sprintf("it is in MIG mode, so it cannot be used whole, and %s: disable the mode (nvidia-smi -i %s -mig 0) and reset the GPU", why, device)
}
