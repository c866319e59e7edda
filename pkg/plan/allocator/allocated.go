package allocator

import (
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"
	"k8s.io/utils/ptr"
)

// Allocated says which devices claims hold by their status.allocation, as
// kube-scheduler's plugin does: a result with a share ID is a share of a device and
// consumes capacity, one with admin access takes nothing, any other takes the device.
// Claims that are reserved for departing pods alone hold nothing (see
// [Options.Departing]).
func Allocated(claims []*resourceapi.ResourceClaim, departing map[types.UID]bool) schedulerapi.AllocatedState {
	state := schedulerapi.AllocatedState{
		AllocatedDevices:         sets.New[schedulerapi.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[schedulerapi.SharedDeviceID](),
		AggregatedCapacity:       schedulerapi.NewConsumedCapacityCollection(),
	}
	for _, claim := range claims {
		if claim.Status.Allocation == nil || Departs(claim, departing) {
			continue
		}
		for i := range claim.Status.Allocation.Devices.Results {
			add(&state, &claim.Status.Allocation.Devices.Results[i])
		}
	}
	return state
}

func add(state *schedulerapi.AllocatedState, result *resourceapi.DeviceRequestAllocationResult) {
	if ptr.Deref(result.AdminAccess, false) {
		return
	}
	device := schedulerapi.MakeDeviceID(result.Driver, result.Pool, result.Device)
	if result.ShareID == nil {
		state.AllocatedDevices.Insert(device)
		return
	}
	state.AllocatedSharedDeviceIDs.Insert(schedulerapi.MakeSharedDeviceID(device, result.ShareID))
	if result.ConsumedCapacity != nil {
		state.AggregatedCapacity.Insert(schedulerapi.NewDeviceConsumedCapacity(device, result.ConsumedCapacity))
	}
}

// Departs says whether all that a claim is reserved for are departing pods. One that is
// reserved for nothing, or for something that is not a pod, stays.
func Departs(claim *resourceapi.ResourceClaim, departing map[types.UID]bool) bool {
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup != corev1.GroupName || consumer.Resource != string(corev1.ResourcePods) || !departing[consumer.UID] {
			return false
		}
	}
	return len(claim.Status.ReservedFor) > 0
}
