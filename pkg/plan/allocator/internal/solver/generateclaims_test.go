package solver_test

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func (g *generator) request(name string) resourceapi.DeviceRequest {
	request := resourceapi.DeviceRequest{Name: name}
	if g.lists && g.Intn(2) == 1 {
		for i := range 1 + g.Intn(3) {
			request.FirstAvailable = append(request.FirstAvailable, g.subrequest(fmt.Sprintf("s%d", i)))
		}
		return request
	}
	mode, count := g.amount()
	request.Exactly = &resourceapi.ExactDeviceRequest{
		DeviceClassName: g.className(),
		Selectors:       g.selectors(),
		AllocationMode:  mode,
		Count:           count,
		Tolerations:     g.tolerations(),
		Capacity:        g.capacityRequests(),
	}
	if g.admin {
		request.Exactly.AdminAccess = pick(g, nil, ptr.To(true), ptr.To(true), ptr.To(false))
	}
	return request
}

func (g *generator) subrequest(name string) resourceapi.DeviceSubRequest {
	mode, count := g.amount()
	return resourceapi.DeviceSubRequest{
		Name:            name,
		DeviceClassName: g.className(),
		Selectors:       g.selectors(),
		AllocationMode:  mode,
		Count:           count,
		Tolerations:     g.tolerations(),
		Capacity:        g.capacityRequests(),
	}
}

func (g *generator) className() string {
	if g.broken && oneIn(g, 8) {
		return "gone"
	}
	if g.puzzle {
		return pick(g, "any", "gpu")
	}
	return pick(g, "any", "gpu", "any", "gpu", "any", "own")
}

func (g *generator) amount() (resourceapi.DeviceAllocationMode, int64) {
	if g.all && g.Intn(2) == 1 {
		return resourceapi.DeviceAllocationModeAll, 0
	}
	switch {
	case g.large && g.Intn(2) == 1:
		return resourceapi.DeviceAllocationModeAll, 0
	case g.large:
		return resourceapi.DeviceAllocationModeExactCount, 1
	case g.limits:
		if n := pick(g, 0, 0, 31, 32, 33, 20, 1<<40); n != 0 {
			return resourceapi.DeviceAllocationModeExactCount, int64(n)
		}
	}
	n := pick(g, 1, 1, 2, 1, 1, 3, 1, 2, 1, 4, 1, 1)
	if g.puzzle {
		n = pick(g, 2, 2, 1, 3)
	}
	n = min(n, max(1, maxSlots-g.slots))
	g.slots += n
	return resourceapi.DeviceAllocationModeExactCount, int64(n)
}

func (g *generator) tolerations() []resourceapi.DeviceToleration {
	if !g.taints || g.Intn(2) == 0 {
		return nil
	}
	var tolerations []resourceapi.DeviceToleration
	for range 1 + g.Intn(2) {
		toleration := resourceapi.DeviceToleration{
			Key:      pick(g, "example.com/sick", "example.com/old", ""),
			Operator: resourceapi.DeviceTolerationOpExists,
			Effect:   pick(g, "", resourceapi.DeviceTaintEffectNoSchedule, resourceapi.DeviceTaintEffectNoExecute),
		}
		if toleration.Key != "" && g.Intn(2) == 1 {
			toleration.Operator = resourceapi.DeviceTolerationOpEqual
			toleration.Value = pick(g, "", "yes")
		}
		tolerations = append(tolerations, toleration)
	}
	return tolerations
}

func (g *generator) capacityRequests() *resourceapi.CapacityRequirements {
	if !g.capacities && !g.shares || g.Intn(5) < 3 {
		return nil
	}
	requests := map[resourceapi.QualifiedName]resource.Quantity{}
	if g.Intn(8) > 0 {
		requests["memory"] = g.requestedQuantity()
	}
	if oneIn(g, 10) {
		requests["cores"] = g.requestedQuantity()
	}
	if oneIn(g, 30) {
		requests[pick[resourceapi.QualifiedName](g, gpuDriver+"/lanes", gpuDriver+"/memory", "none")] = quantity("1")
	}
	return &resourceapi.CapacityRequirements{Requests: requests}
}

func (g *generator) requestedQuantity() resource.Quantity {
	if oneIn(g, 100) {
		return g.quantity("9223372036854775807", "9223372036854775808", "10E")
	}
	return g.quantity("1", "2", "3", "1", "500m", "1250m", "2", "0", "4", "1", "5", "1500m", "1Gi", "600m", "250m", "1")
}

func (g *generator) constraint(requests []resourceapi.DeviceRequest) resourceapi.DeviceConstraint {
	var constraint resourceapi.DeviceConstraint
	name := pick[resourceapi.FullyQualifiedName](g, gpuDriver+"/numa", pcieRoot, gpuDriver+"/type", pcieRoot,
		gpuDriver+"/numa", pcieRoot)
	if oneIn(g, 10) {
		name = pick[resourceapi.FullyQualifiedName](g, nicDriver+"/numa", gpuDriver+"/ecc", gpuDriver+"/version", "other.example.com/link")
	}
	if g.Intn(5) < 3 || g.puzzle && g.Intn(3) > 0 {
		constraint.MatchAttribute = &name
	} else {
		constraint.DistinctAttribute = &name
	}
	if g.Intn(2) == 0 {
		return constraint
	}
	for _, request := range requests {
		switch {
		case g.Intn(3) == 0:
		case len(request.FirstAvailable) > 0 && g.Intn(2) == 1:
			sub := pick(g, request.FirstAvailable...)
			constraint.Requests = append(constraint.Requests, request.Name+"/"+sub.Name)
		default:
			constraint.Requests = append(constraint.Requests, request.Name)
		}
	}
	return constraint
}

// allocate lets claims hold some of the published devices, and some that are not there.
func (g *generator) allocate() {
	known := g.inSlices
	if oneIn(g, 4) {
		known = append(known, generatedDevice{gpuDriver, "node-a", &resourceapi.Device{Name: "gone"}})
	}
	for _, one := range known {
		if g.Intn(6) != 1 {
			continue
		}
		for range 1 + g.Intn(2) {
			g.hold(one)
		}
	}
}

func (g *generator) hold(one generatedDevice) {
	index := len(g.out.AllocatedClaims)
	result := resourceapi.DeviceRequestAllocationResult{
		Request: "r", Driver: one.driver, Pool: one.pool, Device: one.device.Name,
	}
	shared := one.device.AllowMultipleAllocations != nil && *one.device.AllowMultipleAllocations
	if oneIn(g, 10) { // the device was published differently then
		shared = !shared
	}
	if shared {
		result.ShareID = ptr.To(types.UID(fmt.Sprintf("share-%d", index)))
		result.ConsumedCapacity = g.consumed(one.device)
	}
	if oneIn(g, 8) {
		result.AdminAccess = ptr.To(true)
	}
	name := fmt.Sprintf("held-%d", index)
	g.out.AllocatedClaims = append(g.out.AllocatedClaims, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{result}},
		}},
	})
}

func (g *generator) consumed(device *resourceapi.Device) map[resourceapi.QualifiedName]resource.Quantity {
	if len(device.Capacity) == 0 {
		return nil
	}
	consumed := map[resourceapi.QualifiedName]resource.Quantity{}
	for _, name := range []resourceapi.QualifiedName{"memory", "cores", gpuDriver + "/lanes"} {
		if _, found := device.Capacity[name]; found {
			consumed[name] = g.quantity("1", "2", "500m", "0", "3")
		}
	}
	return consumed
}
