package karpenter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"unique"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/scheduling/dynamicresources"
)

// classes is all that Karpenter's allocator reads from an API server: DeviceClasses, here
// with one selector each.
type classes struct {
	client.Client
	selectors map[string]string
}

func (c classes) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	selector, ok := c.selectors[key.Name]
	class, isClass := object.(*resourceapi.DeviceClass)
	if !ok || !isClass {
		return fmt.Errorf("unexpected %T %s", object, key)
	}
	class.Name = key.Name
	class.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: selector}}}
	return nil
}

// nodeClaim is one that may still become any of its instance types.
type nodeClaim struct {
	instanceTypes []*cloudprovider.InstanceType
}

func (nodeClaim) ID() dynamicresources.NodeClaimID        { return unique.Make("node-claim-1") }
func (nodeClaim) NodeName() string                        { return "" }
func (nodeClaim) NodePoolID() dynamicresources.NodePoolID { return unique.Make("default") }
func (nodeClaim) Requirements() scheduling.Requirements   { return scheduling.NewRequirements() }

func (n nodeClaim) InstanceTypes() []dynamicresources.InstanceTypeID {
	var result []dynamicresources.InstanceTypeID
	for _, it := range n.instanceTypes {
		result = append(result, unique.Make(it.Name))
	}
	return result
}

func (n nodeClaim) ResourceSlices() map[dynamicresources.InstanceTypeID][]dynamicresources.ResourceSlice {
	result := make(map[dynamicresources.InstanceTypeID][]dynamicresources.ResourceSlice)
	for _, it := range n.instanceTypes {
		for _, t := range it.DynamicResources.ResourceSliceTemplates {
			result[unique.Make(it.Name)] = append(result[unique.Make(it.Name)], dynamicresources.NewTemplateSlice(t))
		}
	}
	return result
}

// loop is one scheduling loop of Karpenter with one node claim.
type loop struct {
	allocator *dynamicresources.Allocator
	claim     nodeClaim
}

func newLoop(instanceTypes ...*cloudprovider.InstanceType) *loop {
	client := classes{selectors: map[string]string{
		"gpu.apportion.dev": `device.driver == "gpu.apportion.dev" && device.attributes["gpu.apportion.dev"].type == "gpu"`,
		"mig.apportion.dev": `device.driver == "gpu.apportion.dev" && device.attributes["gpu.apportion.dev"].type == "mig"`,
	}}
	bindings := dynamicresources.BuildAttributeBindings(map[string][]*cloudprovider.InstanceType{"default": instanceTypes})
	return &loop{
		allocator: dynamicresources.NewAllocator(nil, dynamicresources.AllocatedDeviceState{}, bindings, client, nil),
		claim:     nodeClaim{instanceTypes: instanceTypes},
	}
}

var errRefused = errors.New("refused")

// place gives the devices that a claim gets on each instance type that survives, and
// commits them. The error is errRefused if no instance type can satisfy the claim.
func (l *loop) place(t *testing.T, claim *resourceapi.ResourceClaim) (map[string][]string, error) {
	t.Helper()
	result, err := l.allocator.Allocate(t.Context(), l.claim, []*resourceapi.ResourceClaim{claim})
	if err != nil {
		// Karpenter has no error to tell this by.
		if err.Error() == "no instance type can satisfy the allocation" {
			return nil, errRefused
		}
		return nil, err
	}
	result.Allocation.Commit(t.Context())
	meta := l.allocator.ResourceClaimAllocationMetadataForClaim(types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name})
	placed := make(map[string][]string)
	for it, devices := range meta.Devices {
		for _, d := range devices {
			placed[it.Value()] = append(placed[it.Value()], d.DeviceID.Device.Value())
		}
	}
	return placed, nil
}

func claim(name string, requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}},
	}
}

func request(class string, count int64, selectors ...string) resourceapi.DeviceRequest {
	exactly := &resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count}
	for _, s := range selectors {
		exactly.Selectors = append(exactly.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: s}})
	}
	return resourceapi.DeviceRequest{Name: "r", Exactly: exactly}
}

func matching(c *resourceapi.ResourceClaim, attribute resourceapi.FullyQualifiedName) *resourceapi.ResourceClaim {
	c.Spec.Devices.Constraints = append(c.Spec.Devices.Constraints, resourceapi.DeviceConstraint{MatchAttribute: ptr.To(attribute)})
	return c
}

func share(c *resourceapi.ResourceClaim, memory string) *resourceapi.ResourceClaim {
	c.Spec.Devices.Requests[0].Exactly.Capacity = &resourceapi.CapacityRequirements{
		Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(memory)},
	}
	return c
}
