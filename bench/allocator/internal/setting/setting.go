// Package setting makes the inputs on which allocators are compared.
//
// It knows the resource.k8s.io API and the model of pkg/plan/allocator, and must not know who
// is compared or how long anything takes.
package setting

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"

	"apportion.dev/apportion/pkg/plan/allocator"
)

// Setting is one question to an allocator: on how many of these can these claims be met?
// Either Types or Nodes is set.
type Setting struct {
	Classes []*resourceapi.DeviceClass
	// Claims are those of one pod.
	Claims []*resourceapi.ResourceClaim
	// Slices are published, Allocated are the devices of them that are taken.
	Slices    []*resourceapi.ResourceSlice
	Allocated []schedulerapi.DeviceID
	// Types are what one node claim may become.
	Types []*allocator.InstanceType
	// Nodes exist and are asked one after the other.
	Nodes []*corev1.Node
	// Zone is where the pod must run, empty if anywhere.
	Zone string
	// Fit is the right answer.
	Fit int
}

// Pods gives the claims of n pods that are made from one template: the same but for
// their names.
func (s Setting) Pods(n int) [][]*resourceapi.ResourceClaim {
	pods := make([][]*resourceapi.ResourceClaim, n)
	for i := range pods {
		for _, c := range s.Claims {
			c = c.DeepCopy()
			c.Name = fmt.Sprintf("%s-%d", c.Name, i)
			c.UID = types.UID(c.Name)
			pods[i] = append(pods[i], c)
		}
	}
	return pods
}

// Claim makes a claim.
func Claim(name string, requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}},
	}
}

// Request asks for some devices of a class.
func Request(name, class string, count int64) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: name, Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
	}}
}

// The classes of a Setting, with one selector each.
const (
	GPUs       = "gpu.apportion.dev"
	Partitions = "mig.apportion.dev"
	NICs       = "nic.example.com"
)

// Classes are the three classes.
func Classes() []*resourceapi.DeviceClass {
	return []*resourceapi.DeviceClass{
		class(GPUs, `device.driver == "gpu.apportion.dev" && device.attributes["gpu.apportion.dev"].type == "gpu"`),
		class(Partitions, `device.driver == "gpu.apportion.dev" && device.attributes["gpu.apportion.dev"].type == "mig"`),
		class(NICs, `device.driver == "nic.example.com"`),
	}
}

func class(name, selector string) *resourceapi.DeviceClass {
	return &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{
			{CEL: &resourceapi.CELDeviceSelector{Expression: selector}},
		}},
	}
}
