package report

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/ownership"
)

// hardware is what there is, as the driver publishes it. Its methods also work for
// nil, where that is not known.
type hardware struct {
	published *ownership.Published
	devices   []ownership.Device
	// gpus are the physical GPUs, sorted.
	gpus []gpuKey
	// names are GPUs' device names by pool and UUID, uuids the other way round.
	names map[poolAndText]string
	uuids map[gpuKey]string
}

// gpuKey tells physical GPUs apart: its name is that of the device which is the GPU as
// a whole.
type gpuKey struct{ pool, name string }

type poolAndText struct{ pool, text string }

func newHardware(published *ownership.Published) *hardware {
	h := &hardware{published: published, devices: published.Devices(), names: map[poolAndText]string{}, uuids: map[gpuKey]string{}}
	for i := range h.devices {
		if d := &h.devices[i]; d.UUID != "" && !d.IsPartition() {
			h.names[poolAndText{d.Pool, strings.ToLower(d.UUID)}] = d.Name
		}
	}
	h.findGPUs()
	return h
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
		if uuid := d.GPUUUID(); uuid != "" {
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
	if h == nil {
		return pool
	}
	return cmp.Or(h.published.Node(pool), pool)
}

// memoryOf is the memory of a device as a whole.
func (h *hardware) memoryOf(d ownership.Device) (resource.Quantity, bool) {
	if h == nil {
		return resource.Quantity{}, false
	}
	return h.published.Memory(d.Pool, d.Name)
}
