package devicemodel

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// partition is a profile at a placement of one GPU.
type partition struct {
	name      Name
	profile   inventory.MIGProfile
	placement inventory.MIGPlacement
	// takes are the counters that its device consumes.
	takes amounts
	// uuid is the MIG device's, of an instance that somebody else made. It is empty
	// for a partition that is made on demand.
	uuid string
	// instances are the ids of the GPU instances that it is.
	instances []int
	// missing is true if it holds a claim and somebody else destroyed it.
	missing bool
}

// Bounds of what a profile may say. Hardware is far within; a profile out of them
// was not read right, and is not offered.
const (
	maxEngines   = 1 << 20
	maxInstances = 1 << 10
)

// usableProfiles are the profiles of which partitions can be made, in order. Two
// of NVML's constants may mean one profile.
func usableProfiles(mig inventory.MIG) []inventory.MIGProfile {
	var profiles []inventory.MIGProfile
	if mig.Capable == nil || !*mig.Capable {
		return nil
	}
	for _, profile := range mig.Profiles {
		twice := slices.ContainsFunc(profiles, func(p inventory.MIGProfile) bool { return p.Name == profile.Name })
		if !twice && isUsable(profile) {
			profiles = append(profiles, profile)
		}
	}
	return profiles
}

func isUsable(profile inventory.MIGProfile) bool {
	if _, err := profileLabel(profile.Name); err != nil || profile.Slices < 0 || profile.MaxInstances < 1 || profile.MaxInstances > maxInstances {
		return false
	}
	for _, n := range profileEngines(profile) {
		if n < 0 || n > maxEngines {
			return false
		}
	}
	return !slices.ContainsFunc(profile.Placements, func(p inventory.MIGPlacement) bool { return !isPlacement(p) })
}

func isPlacement(p inventory.MIGPlacement) bool {
	return p.Start >= 0 && p.Start < maxMemorySlices && p.Size >= 1 && p.Size <= maxMemorySlices-p.Start
}

// possiblePartitions are the partitions that can be made of an empty GPU, each
// profile at each placement.
func possiblePartitions(gpu Name, profiles []inventory.MIGProfile, total amounts) []partition {
	var partitions []partition
	for _, profile := range profiles {
		for _, placement := range profile.Placements {
			name, err := PartitionName(gpu, profile.Name, placement.Start)
			takes := partitionCounters(profile, placement, total)
			if err != nil || takes == nil || slices.ContainsFunc(partitions, func(p partition) bool { return p.name == name }) {
				continue
			}
			partitions = append(partitions, partition{name: name, profile: profile, placement: placement, takes: takes})
		}
	}
	return partitions
}

// foreignPartitions are the instances that somebody else made. One without a MIG
// device cannot be used, and one of an unknown profile cannot be described; they
// only stand in the way.
func foreignPartitions(gpu Name, mig inventory.MIG, profiles []inventory.MIGProfile, total amounts) []partition {
	var partitions []partition
	for _, instance := range mig.Instances {
		i := slices.IndexFunc(profiles, func(p inventory.MIGProfile) bool { return p.ID == instance.ProfileID })
		if i < 0 || !isPlacement(instance.Placement) {
			continue
		}
		name, err := PartitionName(gpu, profiles[i].Name, instance.Placement.Start)
		takes := partitionCounters(profiles[i], instance.Placement, total)
		if err != nil || takes == nil || slices.ContainsFunc(partitions, func(p partition) bool { return p.name == name }) {
			continue
		}
		partitions = append(partitions, partition{
			name: name, profile: profiles[i], placement: instance.Placement, takes: takes,
			uuid: instance.UUID, instances: []int{instance.ID},
		})
	}
	return partitions
}

func (p partition) overlaps(instance inventory.MIGInstance) bool {
	return p.placement.Overlaps(instance.Placement)
}

// comparePartitions orders the partitions of a GPU so that the scheduler, which
// takes the first that will do, wastes least.
func comparePartitions(a, b partition) int {
	return cmp.Or(
		// The smallest first.
		cmp.Compare(a.placement.Size, b.placement.Size),
		cmp.Compare(a.profile.Slices, b.profile.Slices),
		// Of one size, what has the fewest engines that others may need: "-me",
		// the plain one, "+me", "+me.all".
		cmp.Compare(mediaEngines(a.profile), mediaEngines(b.profile)),
		cmp.Compare(a.profile.Name, b.profile.Name),
		// What exists already takes nothing from anybody.
		-cmp.Compare(len(a.uuid), len(b.uuid)),
		// Large profiles can start at few places, and all of these at the front.
		-cmp.Compare(a.placement.Start, b.placement.Start),
	)
}

func mediaEngines(p inventory.MIGProfile) int {
	return p.Decoders + p.Encoders + p.JPEGEngines + p.OFAEngines
}

// device makes the device of a partition.
func (p partition) device(gpu inventory.GPU, facts nodeFacts, sharing SharingPolicy) Device {
	d := Device{
		Name:      p.name,
		GPUUUID:   gpu.UUID,
		PCIBusID:  gpu.PCIBusID,
		Minor:     gpu.Minor,
		Partition: &inventory.Partition{GPU: gpu.UUID, Profile: p.profile.Name, Start: p.placement.Start},
		Size:      p.placement.Size,
		MIGDevice: p.uuid,
		Missing:   p.missing,
	}
	a := commonAttributes(gpu, facts)
	a.text(AttributeType, TypeMIG)
	a.text(AttributeUUID, p.uuid)
	a.text(AttributeParentUUID, gpu.UUID)
	a.text(AttributeProfile, p.profile.Name)
	a.text(AttributeMemoryEnforcement, MemoryEnforcementNone)
	d.API = resourceapi.Device{Name: p.name.String(), Attributes: a}

	var memory *uint64
	if mib := p.profile.MemoryMiB; mib <= 1<<40 {
		bytes := mib * mebibyte
		memory = &bytes
	}
	d.setMemory(publishedMemory(memory, 0), sharing)
	d.setCapacity(partitionAmounts(p.profile))
	return d
}
