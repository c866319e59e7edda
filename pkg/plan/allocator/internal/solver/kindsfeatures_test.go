package solver_test

import (
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
)

// straight is how many steps the search takes if its first choices are right: one for
// each device, one for the end of each request and claim, one for each list of
// alternatives, and the last.
func straight(c Case, answer Answer) int64 {
	steps := int64(1)
	for i, claim := range c.Claims {
		steps += int64(1 + len(claim.Spec.Devices.Requests) + len(answer.Claims[i]))
		for _, request := range claim.Spec.Devices.Requests {
			if len(request.FirstAvailable) > 0 {
				steps++
			}
		}
	}
	return steps
}

// features names what a case contains; of an allocation, what it makes use of.
func features(c Case, answer Answer) []string {
	var found []string
	add := func(name string, yes bool) {
		if yes {
			found = append(found, name)
		}
	}
	device := func(is func(resourceapi.Device) bool) bool {
		return slices.ContainsFunc(c.Slices, func(slice *resourceapi.ResourceSlice) bool {
			return slices.ContainsFunc(slice.Spec.Devices, is)
		})
	}
	request := func(is func(resourceapi.DeviceRequest) bool) bool {
		return slices.ContainsFunc(c.Claims, func(claim *resourceapi.ResourceClaim) bool {
			return slices.ContainsFunc(claim.Spec.Devices.Requests, is)
		})
	}
	result := func(is func(Picked) bool) bool {
		return slices.ContainsFunc(answer.Claims, func(claim []Picked) bool { return slices.ContainsFunc(claim, is) })
	}
	add("counters", device(func(d resourceapi.Device) bool { return len(d.ConsumesCounters) > 0 }))
	add("shareable devices", device(func(d resourceapi.Device) bool { return d.AllowMultipleAllocations != nil }))
	add("shareable devices with counters", device(func(d resourceapi.Device) bool {
		return d.AllowMultipleAllocations != nil && len(d.ConsumesCounters) > 0
	}))
	add("taints", device(func(d resourceapi.Device) bool { return len(d.Taints) > 0 }))
	add("binding conditions", device(func(d resourceapi.Device) bool { return len(d.BindingConditions) > 0 }))
	add("a list of alternatives", request(func(r resourceapi.DeviceRequest) bool { return len(r.FirstAvailable) > 0 }))
	add("all devices", request(func(r resourceapi.DeviceRequest) bool {
		return r.Exactly != nil && r.Exactly.AllocationMode == resourceapi.DeviceAllocationModeAll
	}))
	add("capacity requests", request(func(r resourceapi.DeviceRequest) bool { return r.Exactly != nil && r.Exactly.Capacity != nil }))
	add("constraints", slices.ContainsFunc(c.Claims, func(claim *resourceapi.ResourceClaim) bool { return len(claim.Spec.Devices.Constraints) > 0 }))
	add("allocated claims", len(c.AllocatedClaims) > 0)
	add("several claims", len(c.Claims) > 1)
	add("a share as result", result(func(p Picked) bool { return p.Consumed != nil }))
	add("admin access as result", result(func(p Picked) bool { return p.Admin }))
	return found
}

func sortedLines(count map[string]int, of int) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(count)) {
		lines = append(lines, fmt.Sprintf("%6.2f %% %s", 100*float64(count[name])/float64(of), name))
	}
	return lines
}
