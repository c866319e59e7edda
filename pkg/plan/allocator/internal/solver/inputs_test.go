package solver_test

import (
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// devices returns n devices, each changed by edits.
func devices(prefix string, n int, edits ...func(i int, device *resourceapi.Device)) []resourceapi.Device {
	out := make([]resourceapi.Device, n)
	for i := range out {
		out[i].Name = fmt.Sprintf("%s-%02d", prefix, i)
		out[i].Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"type": {StringValue: &prefix}}
		for _, edit := range edits {
			edit(i, &out[i])
		}
	}
	return out
}

func intAttribute(name resourceapi.QualifiedName, value func(i int) int) func(int, *resourceapi.Device) {
	return func(i int, device *resourceapi.Device) {
		device.Attributes[name] = resourceapi.DeviceAttribute{IntValue: ptr.To(int64(value(i)))}
	}
}

// consumes lets devices take memory from a counter set.
func consumes(set func(i int) int, memory string) func(int, *resourceapi.Device) {
	return func(i int, device *resourceapi.Device) {
		device.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{
			CounterSet: fmt.Sprintf("set-%d", set(i)),
			Counters:   map[string]resourceapi.Counter{"memory": {Value: resource.MustParse(memory)}},
		}}
	}
}

func shareable(memory string) func(int, *resourceapi.Device) {
	return func(_ int, device *resourceapi.Device) {
		device.AllowMultipleAllocations = ptr.To(true)
		device.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse(memory)}}
	}
}

func counterSets(memory ...string) []resourceapi.CounterSet {
	var sets []resourceapi.CounterSet
	for i, value := range memory {
		sets = append(sets, resourceapi.CounterSet{
			Name:     fmt.Sprintf("set-%d", i),
			Counters: map[string]resourceapi.Counter{"memory": {Value: resource.MustParse(value)}},
		})
	}
	return sets
}

// published returns the slices of one pool of a node.
func published(node string, sets []resourceapi.CounterSet, groups ...[]resourceapi.Device) []*resourceapi.ResourceSlice {
	var out []*resourceapi.ResourceSlice
	add := func(edit func(*resourceapi.ResourceSliceSpec)) {
		slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", node, len(out))}}
		slice.Spec = resourceapi.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, Generation: 1},
		}
		edit(&slice.Spec)
		out = append(out, slice)
	}
	if len(sets) > 0 {
		add(func(spec *resourceapi.ResourceSliceSpec) { spec.SharedCounters = sets })
	}
	for _, group := range groups {
		add(func(spec *resourceapi.ResourceSliceSpec) { spec.Devices = group })
	}
	for _, slice := range out {
		slice.Spec.Pool.ResourceSliceCount = int64(len(out))
	}
	return out
}

// wants returns a request for count devices of a type, of any if that is empty.
func wants(count int, kind string) resourceapi.DeviceRequest {
	exactly := &resourceapi.ExactDeviceRequest{
		DeviceClassName: "any", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: int64(count),
	}
	if kind != "" {
		exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: fmt.Sprintf(`device.attributes["gpu.example.com"].type == %q`, kind),
		}}}
	}
	return resourceapi.DeviceRequest{Exactly: exactly}
}

func wantsMemory(count int, memory string) resourceapi.DeviceRequest {
	request := wants(count, "")
	request.Exactly.Capacity = &resourceapi.CapacityRequirements{
		Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(memory)},
	}
	return request
}

// times repeats a request.
func times(n int, request resourceapi.DeviceRequest) []resourceapi.DeviceRequest {
	return slices.Repeat([]resourceapi.DeviceRequest{request}, n)
}

// claim gives requests names.
func claim(requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim"}}
	for i, request := range requests {
		request.Name = fmt.Sprintf("r%d", i)
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, request)
	}
	return c
}

func matching(attribute resourceapi.FullyQualifiedName, c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	c.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &attribute}}
	return c
}
