package devicemodel

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
)

// Slice is one ResourceSlice of a pool, as far as the model says what is in it. (The
// type of k8s.io/dynamic-resource-allocation/resourceslice comes with a client for the
// API server, which those who only read the model do not need.)
type Slice struct {
	SharedCounters []resourceapi.CounterSet
	Devices        []resourceapi.Device
}

// Slices returns the pool's slices in publishing order: first those of the
// counter sets, which the API keeps apart from devices, then those of the
// devices. The devices of one GPU share a slice, so that a change to one GPU
// rewrites one slice. An empty pool has one empty slice, which says that the
// node was looked at.
func (m *Model) Slices() []Slice {
	if len(m.Devices) == 0 {
		return []Slice{{}}
	}
	var result []Slice
	for sets := range slices.Chunk(m.CounterSets, resourceapi.ResourceSliceMaxCounterSets) {
		result = append(result, Slice{SharedCounters: slices.Clone(sets)})
	}
	var current []resourceapi.Device
	flush := func() {
		if len(current) > 0 {
			result = append(result, Slice{Devices: current})
			current = nil
		}
	}
	for _, group := range m.groups() {
		if len(current)+len(group) > maxDevicesPerSlice {
			flush()
		}
		for chunk := range slices.Chunk(group, maxDevicesPerSlice) {
			if len(current)+len(chunk) > maxDevicesPerSlice {
				flush()
			}
			current = append(current, chunk...)
		}
	}
	flush()
	return result
}

// maxDevicesPerSlice is the API's limit for slices whose devices consume
// counters or have taints, as ours may.
const maxDevicesPerSlice = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures

// groups returns the published devices by GPU, in publishing order.
func (m *Model) groups() [][]resourceapi.Device {
	var groups [][]resourceapi.Device
	last := ""
	for _, d := range m.Devices {
		if len(groups) == 0 || d.GPUUUID != last {
			groups = append(groups, nil)
			last = d.GPUUUID
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], d.API)
	}
	return groups
}
