package devicemodel

import (
	"maps"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// Counters of a GPU's counter set (KEP-4815). There is one counter of value 1
// for each memory slice, "memory-slice-0" and so on, and one for each kind of
// engine that the GPU has. Where these would allow more instances of a profile
// than the hardware, the profile has one too, as "instances-1g-10gb-me".
const (
	CounterMultiprocessors = "multiprocessors"
	CounterCopyEngines     = "copy-engines"
	CounterDecoders        = "decoders"
	CounterEncoders        = "encoders"
	CounterJPEGEngines     = "jpeg-engines"
	CounterOFAEngines      = "ofa-engines"
)

// maxMemorySlices and maxCounters keep a set within the API's limits. Hardware
// has up to 8 memory slices.
const (
	maxMemorySlices = 16
	maxCounters     = resourceapi.ResourceSliceMaxCountersPerCounterSet
)

// MemorySliceCounter is the name of the counter of one memory slice.
func MemorySliceCounter(slice int) string {
	return memorySlicePrefix + strconv.Itoa(slice)
}

// memorySlicePrefix is what the names of the counters of memory slices start with.
const memorySlicePrefix = "memory-slice-"

// PartOfGPU is the part of a GPU that a device is, over 0 and up to 1: the memory slices
// that it consumes over those of the GPU's counter set. It is 0 if there are none.
func PartOfGPU(consumed, all map[string]resourceapi.Counter) float64 {
	count := func(counters map[string]resourceapi.Counter) (slices float64) {
		for name, counter := range counters {
			if strings.HasPrefix(name, memorySlicePrefix) {
				slices += counter.Value.AsApproximateFloat64()
			}
		}
		return slices
	}
	if own, total := count(consumed), count(all); own > 0 && total > 0 {
		return min(1, own/total)
	}
	return 0
}

// InstancesCounter is the name of the counter of a profile's instances. It is empty
// for what is no profile.
func InstancesCounter(profile string) string {
	label, err := profileLabel(profile)
	if err != nil {
		return ""
	}
	return "instances-" + label
}

// amounts are of counters, by their names.
type amounts map[string]int

// gpuCounters makes the counters of one GPU from its MIG profiles. A GPU that
// cannot be partitioned has a single memory slice: its set still matters, because
// the scheduler counts it for a share too. Were the GPU's memory to become
// unreadable while it has shares, the device would be published as not shareable,
// and without counters the scheduler would take it for free.
func gpuCounters(profiles []inventory.MIGProfile) amounts {
	total := amounts{MemorySliceCounter(0): 1}
	for _, profile := range profiles {
		for _, placement := range profile.Placements {
			for slice := range placement.Start + placement.Size {
				total[MemorySliceCounter(slice)] = 1
			}
		}
		// A GPU has at least what the largest number of instances of any profile
		// takes, and the profile of the whole GPU says what there is beyond.
		for counter, n := range profileEngines(profile) {
			if n > 0 {
				total[counter] = max(total[counter], n*profile.MaxInstances)
			}
		}
	}
	for _, profile := range profiles {
		if needsLimit(profile, total) && len(total) < maxCounters {
			total[InstancesCounter(profile.Name)] = profile.MaxInstances
		}
	}
	return total
}

// needsLimit says whether memory slices and engines allow more instances of a
// profile than the hardware does.
func needsLimit(profile inventory.MIGProfile, total amounts) bool {
	for counter, n := range profileEngines(profile) {
		if n > 0 && total[counter]/n <= profile.MaxInstances {
			return false
		}
	}
	// The most that lie side by side are found by taking what ends first.
	side, end := 0, 0
	for {
		next := -1
		for _, p := range profile.Placements {
			if p.Start >= end && (next < 0 || p.Start+p.Size < next) {
				next = p.Start + p.Size
			}
		}
		if next < 0 {
			return side > profile.MaxInstances
		}
		side, end = side+1, next
	}
}

// profileEngines is what one instance of a profile takes beside memory slices.
func profileEngines(profile inventory.MIGProfile) amounts {
	return amounts{
		CounterMultiprocessors: profile.Multiprocessors,
		CounterCopyEngines:     profile.CopyEngines,
		CounterDecoders:        profile.Decoders,
		CounterEncoders:        profile.Encoders,
		CounterJPEGEngines:     profile.JPEGEngines,
		CounterOFAEngines:      profile.OFAEngines,
	}
}

// partitionCounters is what a partition takes of a GPU's counters. It is nil for
// one that there is no room in the set to count.
func partitionCounters(profile inventory.MIGProfile, placement inventory.MIGPlacement, total amounts) amounts {
	takes := amounts{}
	for counter, n := range profileEngines(profile) {
		if n > 0 {
			takes[counter] = n
		}
	}
	if limit := InstancesCounter(profile.Name); total[limit] > 0 {
		takes[limit] = 1
	} else if needsLimit(profile, total) {
		return nil
	}
	maps.Copy(takes, memorySlices(placement))
	return takes
}

func memorySlices(placement inventory.MIGPlacement) amounts {
	takes := amounts{}
	for i := range placement.Size {
		takes[MemorySliceCounter(placement.Start+i)] = 1
	}
	return takes
}

// fits says whether what is taken is there.
func (total amounts) fits(takes amounts) bool {
	for counter, n := range takes {
		if n > total[counter] {
			return false
		}
	}
	return true
}

func (total amounts) subtract(takes amounts) {
	for counter, n := range takes {
		total[counter] -= n
	}
}

// counters is the published form; counters of which there are none are left out.
func (total amounts) counters() map[string]resourceapi.Counter {
	counters := map[string]resourceapi.Counter{}
	for name, n := range total {
		if n > 0 {
			counters[name] = resourceapi.Counter{Value: *resource.NewQuantity(int64(n), resource.DecimalSI)}
		}
	}
	return counters
}
