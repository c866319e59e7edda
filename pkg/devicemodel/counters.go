package devicemodel

import (
	"fmt"
	"maps"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"apportion.dev/apportion/pkg/inventory"
)

// Counters of a GPU's counter set (KEP-4815). There is one counter of value 1
// for each memory slice, "memory-slice-0" and so on, and one for each kind of
// engine that the GPU has.
const (
	CounterMultiprocessors = "multiprocessors"
	CounterCopyEngines     = "copy-engines"
	CounterDecoders        = "decoders"
	CounterEncoders        = "encoders"
	CounterJPEGEngines     = "jpeg-engines"
	CounterOFAEngines      = "ofa-engines"
)

// maxMemorySlices keeps a set's counters below the API's limit of 32
// (ResourceSliceMaxCountersPerCounterSet). Hardware has up to 8.
const maxMemorySlices = 16

// MemorySliceCounter is the name of the counter of one memory slice.
func MemorySliceCounter(slice int) string {
	return fmt.Sprintf("memory-slice-%d", slice)
}

// gpuCounterSet makes the counter set of one GPU from its MIG profiles. A GPU
// that cannot be partitioned has a single memory slice: its set still matters,
// because the scheduler counts it for a share too. Were the GPU's memory to
// become unreadable while it has shares, the device would be published as not
// shareable, and without counters the scheduler would take it for free.
func gpuCounterSet(name Name, mig inventory.MIG) resourceapi.CounterSet {
	slices, engines := 0, map[string]int{}
	for _, profile := range mig.Profiles {
		for _, placement := range profile.Placements {
			slices = max(slices, placement.Start+placement.Size)
		}
		// A GPU has at least what the largest number of instances of any profile
		// takes, and the profile of the whole GPU says what there is beyond.
		instances := max(1, profile.MaxInstances)
		for counter, n := range profileEngines(profile) {
			engines[counter] = max(engines[counter], n*instances)
		}
	}
	if slices < 1 || slices > maxMemorySlices {
		slices, engines = 1, nil
	}

	counters := map[string]resourceapi.Counter{}
	for slice := range slices {
		counters[MemorySliceCounter(slice)] = counter(1)
	}
	for name, n := range engines {
		if n > 0 {
			counters[name] = counter(n)
		}
	}
	return resourceapi.CounterSet{Name: name.String(), Counters: counters}
}

// profileEngines is what one instance of a profile takes beside memory slices.
func profileEngines(profile inventory.MIGProfile) map[string]int {
	return map[string]int{
		CounterMultiprocessors: profile.Multiprocessors,
		CounterCopyEngines:     profile.CopyEngines,
		CounterDecoders:        profile.Decoders,
		CounterEncoders:        profile.Encoders,
		CounterJPEGEngines:     profile.JPEGEngines,
		CounterOFAEngines:      profile.OFAEngines,
	}
}

// consumeAll is what the whole GPU takes of its counter set.
func consumeAll(set resourceapi.CounterSet) []resourceapi.DeviceCounterConsumption {
	return []resourceapi.DeviceCounterConsumption{{CounterSet: set.Name, Counters: maps.Clone(set.Counters)}}
}

func counter(n int) resourceapi.Counter {
	return resourceapi.Counter{Value: *resource.NewQuantity(int64(n), resource.DecimalSI)}
}
