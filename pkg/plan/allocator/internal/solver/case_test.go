package solver_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"
	"sigs.k8s.io/yaml"
)

// The tests make up small inputs: a node, pools of devices, what is allocated, and
// claims. They are nasty on purpose, but such as the API server admits, except that a
// pool may be invalid: a duplicate device or a missing counter, which no validation of a
// single slice can see. What makes them knows the resource.k8s.io API and must not know
// how anything is allocated.

// Case is one input.
type Case struct {
	// Node is the node for which claims are allocated.
	Node *corev1.Node `json:"node"`
	// OtherNodes are nodes that some of the slices are for.
	OtherNodes []*corev1.Node `json:"otherNodes,omitempty"`
	// Slices are the cluster's, in no order.
	Slices []*resourceapi.ResourceSlice `json:"slices,omitempty"`
	// Classes are all device classes. A claim may name one that is not there.
	Classes []*resourceapi.DeviceClass `json:"classes,omitempty"`
	// Claims are to be allocated together.
	Claims []*resourceapi.ResourceClaim `json:"claims,omitempty"`
	// AllocatedClaims hold devices.
	AllocatedClaims []*resourceapi.ResourceClaim `json:"allocatedClaims,omitempty"`
}

// DeepCopy returns a case that shares nothing with c.
func (c Case) DeepCopy() Case {
	return Case{
		Node:            c.Node.DeepCopy(),
		OtherNodes:      copyAll(c.OtherNodes, (*corev1.Node).DeepCopy),
		Slices:          copyAll(c.Slices, (*resourceapi.ResourceSlice).DeepCopy),
		Classes:         copyAll(c.Classes, (*resourceapi.DeviceClass).DeepCopy),
		Claims:          copyAll(c.Claims, (*resourceapi.ResourceClaim).DeepCopy),
		AllocatedClaims: copyAll(c.AllocatedClaims, (*resourceapi.ResourceClaim).DeepCopy),
	}
}

func copyAll[T any](in []*T, deepCopy func(*T) *T) []*T {
	out := make([]*T, len(in))
	for i := range in {
		out[i] = deepCopy(in[i])
	}
	return out
}

// YAML prints the case for a reader: of nodes their names and labels, of each other
// object its name and content.
func (c Case) YAML() string {
	type nodeView struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels,omitempty"`
	}
	type view struct {
		Nodes     []nodeView                                  `json:"nodes"`
		Classes   map[string]resourceapi.DeviceClassSpec      `json:"classes,omitempty"`
		Slices    map[string]resourceapi.ResourceSliceSpec    `json:"slices,omitempty"`
		Allocated []resourceapi.DeviceRequestAllocationResult `json:"allocated,omitempty"`
		Claims    []resourceapi.DeviceClaim                   `json:"claims"`
	}
	v := view{Classes: map[string]resourceapi.DeviceClassSpec{}, Slices: map[string]resourceapi.ResourceSliceSpec{}}
	for _, node := range append([]*corev1.Node{c.Node}, c.OtherNodes...) {
		v.Nodes = append(v.Nodes, nodeView{node.Name, node.Labels})
	}
	for _, class := range c.Classes {
		v.Classes[class.Name] = class.Spec
	}
	for _, slice := range c.Slices {
		v.Slices[slice.Name] = slice.Spec
	}
	for _, claim := range c.AllocatedClaims {
		if claim.Status.Allocation != nil {
			v.Allocated = append(v.Allocated, claim.Status.Allocation.Devices.Results...)
		}
	}
	for _, claim := range c.Claims {
		v.Claims = append(v.Claims, claim.Spec.Devices)
	}
	out, err := yaml.Marshal(v)
	if err != nil {
		return fmt.Sprintf("cannot print the case: %v", err)
	}
	return string(out)
}

// ClassMap returns the classes by name.
func (c Case) ClassMap() map[string]*resourceapi.DeviceClass {
	classes := make(map[string]*resourceapi.DeviceClass, len(c.Classes))
	for _, class := range c.Classes {
		classes[class.Name] = class
	}
	return classes
}

// Allocated says what the allocated claims hold, as kube-scheduler's plugin counts it:
// a result with a share ID is a share, one with admin access takes nothing, and any
// other takes the device whole.
func (c Case) Allocated() schedulerapi.AllocatedState {
	state := schedulerapi.AllocatedState{
		AllocatedDevices:         sets.New[schedulerapi.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[schedulerapi.SharedDeviceID](),
		AggregatedCapacity:       schedulerapi.NewConsumedCapacityCollection(),
	}
	for _, claim := range c.AllocatedClaims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			id := schedulerapi.MakeDeviceID(result.Driver, result.Pool, result.Device)
			switch {
			case result.AdminAccess != nil && *result.AdminAccess:
			case result.ShareID == nil:
				state.AllocatedDevices.Insert(id)
			default:
				state.AllocatedSharedDeviceIDs.Insert(schedulerapi.MakeSharedDeviceID(id, result.ShareID))
				if result.ConsumedCapacity != nil {
					state.AggregatedCapacity.Insert(schedulerapi.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
				}
			}
		}
	}
	return state
}
