package report

import (
	"cmp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/ownership"
)

// hardware is what there is, as the driver publishes it. Its methods also work for
// nil, where that is not known.
type hardware struct {
	// devices are all published ones, with driver, pool, name and UUIDs alone.
	devices []ownership.Device
	// gpus are the physical GPUs, sorted.
	gpus []gpuKey
	// nodes are the pools' nodes.
	nodes map[string]string
	// names are GPUs' device names, uuids the other way round.
	names map[poolAndText]string
	uuids map[gpuKey]string
	// memory is what a device has as a whole.
	memory map[poolAndText]resource.Quantity
}

// gpuKey tells physical GPUs apart: its name is that of the device which is the GPU as
// a whole.
type gpuKey struct{ pool, name string }

type poolAndText struct{ pool, text string }

// newHardware reads a driver's slices.
func newHardware(all []*resourceapi.ResourceSlice, driver string) *hardware {
	h := &hardware{
		nodes: map[string]string{}, names: map[poolAndText]string{},
		uuids: map[gpuKey]string{}, memory: map[poolAndText]resource.Quantity{},
	}
	current := currentSlices(all, driver)
	for _, slice := range current {
		if slice.Spec.NodeName != nil {
			h.nodes[slice.Spec.Pool.Name] = *slice.Spec.NodeName
		}
		for _, d := range slice.Spec.Devices {
			h.add(driver, slice.Spec.Pool.Name, d)
		}
	}
	h.findGPUs()
	return h
}

// currentSlices are a driver's slices without those of an older generation of a pool,
// as soon as the newest is complete; the newest come last.
func currentSlices(all []*resourceapi.ResourceSlice, driver string) []*resourceapi.ResourceSlice {
	type state struct {
		generation, slices int64
		complete           bool
	}
	pools := map[string]state{}
	for _, slice := range all {
		pool := slice.Spec.Pool
		if slice.Spec.Driver != driver || pool.Generation < pools[pool.Name].generation {
			continue
		}
		s := state{generation: pool.Generation, slices: 1}
		if known, ok := pools[pool.Name]; ok && known.generation == pool.Generation {
			s.slices += known.slices
		}
		s.complete = s.slices >= pool.ResourceSliceCount
		pools[pool.Name] = s
	}
	var current []*resourceapi.ResourceSlice
	for _, slice := range all {
		s := pools[slice.Spec.Pool.Name]
		if slice.Spec.Driver == driver && (slice.Spec.Pool.Generation == s.generation || !s.complete) {
			current = append(current, slice)
		}
	}
	slices.SortStableFunc(current, func(a, b *resourceapi.ResourceSlice) int {
		return cmp.Compare(a.Spec.Pool.Generation, b.Spec.Pool.Generation)
	})
	return current
}

func (h *hardware) add(driver, pool string, published resourceapi.Device) {
	text := func(attribute resourceapi.QualifiedName) string {
		for _, name := range []resourceapi.QualifiedName{attribute, resourceapi.QualifiedName(driver) + "/" + attribute} {
			if value := published.Attributes[name].StringValue; value != nil {
				return *value
			}
		}
		return ""
	}
	d := ownership.Device{
		Driver: driver, Pool: pool, Name: published.Name,
		Type: text(devicemodel.AttributeType), UUID: text(devicemodel.AttributeUUID), ParentUUID: text(devicemodel.AttributeParentUUID),
	}
	h.devices = append(h.devices, d)
	if d.UUID != "" && d.Type == devicemodel.TypeGPU {
		h.names[poolAndText{pool, strings.ToLower(d.UUID)}] = d.Name
	}
	for _, name := range []resourceapi.QualifiedName{devicemodel.CapacityMemory, resourceapi.QualifiedName(driver) + "/" + devicemodel.CapacityMemory} {
		if capacity, ok := published.Capacity[name]; ok {
			h.memory[poolAndText{pool, d.Name}] = capacity.Value
		}
	}
}

// keepNode forgets the hardware of other nodes.
func (h *hardware) keepNode(node string) {
	if h == nil {
		return
	}
	h.devices = slices.DeleteFunc(h.devices, func(d ownership.Device) bool { return h.nodeOf(d.Pool) != node })
	h.gpus = slices.DeleteFunc(h.gpus, func(gpu gpuKey) bool { return h.nodeOf(gpu.pool) != node })
}

// findGPUs collects the GPUs behind all devices, also behind those that are published
// as partitions alone.
func (h *hardware) findGPUs() {
	for _, d := range h.devices {
		gpu := h.gpuOf(d)
		h.gpus = append(h.gpus, gpu)
		uuid := d.UUID
		if d.Type == devicemodel.TypeMIG {
			uuid = d.ParentUUID
		}
		if uuid != "" {
			h.uuids[gpu] = uuid
		}
	}
	slices.SortFunc(h.gpus, compareGPUKeys)
	h.gpus = slices.Compact(h.gpus)
}

func compareGPUKeys(a, b gpuKey) int {
	return cmp.Or(strings.Compare(a.pool, b.pool), strings.Compare(a.name, b.name))
}

// gpuOf is the GPU on which a device lies. The name of one of our own devices says it;
// where other drivers' names do not, the UUIDs may.
func (h *hardware) gpuOf(d ownership.Device) gpuKey {
	if name, err := devicemodel.Parse(d.Name); err == nil {
		return gpuKey{d.Pool, name.Whole().String()}
	}
	if d.ParentUUID == "" {
		return gpuKey{d.Pool, d.Name}
	}
	if h != nil {
		if name, ok := h.names[poolAndText{d.Pool, strings.ToLower(d.ParentUUID)}]; ok {
			return gpuKey{d.Pool, name}
		}
	}
	return gpuKey{d.Pool, d.ParentUUID}
}

// hasUUID says whether a UUID is a GPU's.
func (h *hardware) hasUUID(gpu gpuKey, uuid string) bool {
	return h != nil && h.uuids[gpu] != "" && strings.EqualFold(h.uuids[gpu], uuid)
}

// nodeOf is the node of a pool. A pool is called after its node.
func (h *hardware) nodeOf(pool string) string {
	if h != nil && h.nodes[pool] != "" {
		return h.nodes[pool]
	}
	return pool
}

// memoryOf is the memory of a device as a whole.
func (h *hardware) memoryOf(d ownership.Device) (resource.Quantity, bool) {
	if h == nil {
		return resource.Quantity{}, false
	}
	memory, ok := h.memory[poolAndText{d.Pool, d.Name}]
	return memory, ok
}
