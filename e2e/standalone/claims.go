package standalone

import (
	"context"
	"errors"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/utils/ptr"
)

// Allocate makes a claim that has one published device, as the scheduler gives it
// to a claim that asks for no capacity.
func (p *Plugin) Allocate(uid types.UID, device resourceapi.Device) (*resourceapi.ResourceClaim, error) {
	result := resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: DriverName, Pool: Node, Device: device.Name}
	if ptr.Deref(device.AllowMultipleAllocations, false) {
		result.ShareID = &uid
		result.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{}
		for name, capacity := range device.Capacity {
			amount := capacity.Value
			if policy := capacity.RequestPolicy; policy != nil && policy.Default != nil {
				amount = *policy.Default
			}
			result.ConsumedCapacity[name] = amount
		}
	}
	claim := &resourceapi.ResourceClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "claim-" + string(uid), UID: uid, ResourceVersion: "1"},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{result}},
		}},
	}
	return claim, p.api.putClaim(claim)
}

// Prepare asks the plugin to prepare a claim, as the kubelet does for the first
// pod that uses it.
func (p *Plugin) Prepare(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	response, err := drapb.NewDRAPluginClient(p.conn).NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{reference(claim)}})
	if err == nil && response.Claims[string(claim.UID)].Error != "" {
		err = errors.New(response.Claims[string(claim.UID)].Error)
	}
	return err
}

// Unprepare asks the plugin to take a claim's devices back, as the kubelet does
// after the last pod that used it.
func (p *Plugin) Unprepare(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	response, err := drapb.NewDRAPluginClient(p.conn).NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: []*drapb.Claim{reference(claim)}})
	if err == nil && response.Claims[string(claim.UID)].Error != "" {
		err = errors.New(response.Claims[string(claim.UID)].Error)
	}
	return err
}

func reference(claim *resourceapi.ResourceClaim) *drapb.Claim {
	return &drapb.Claim{Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID)}
}
