package allocator_test

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/plan/allocator"
)

// exampleClass selects every device.
var exampleClass = &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}

// exampleClaim asks for a number of devices.
func exampleClaim(count int64) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "train"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "gpus",
			Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: "gpu",
				AllocationMode:  resourceapi.DeviceAllocationModeExactCount,
				Count:           count,
			},
		}}}},
	}
}

// exampleDevices are the devices gpu-0, gpu-1 and so on.
func exampleDevices(n int) []resourceapi.Device {
	devices := make([]resourceapi.Device, n)
	for i := range devices {
		devices[i].Name = fmt.Sprintf("gpu-%d", i)
	}
	return devices
}

func printResult(result *allocator.Result) {
	for _, survivor := range result.Survivors {
		where := survivor.InstanceType
		if where == "" {
			where = "the node"
		}
		for _, placement := range survivor.Placements {
			for _, claim := range placement.Claims {
				for _, device := range claim.Devices {
					fmt.Printf("on %s: claim %s: %s gets %s\n", where, claim.Claim, device.Request, device.Device.Device)
				}
			}
		}
	}
	for _, dropped := range result.Dropped {
		fmt.Printf("not on %s: %s\n", dropped.InstanceType, dropped.Reason)
	}
}

// A node that exists gives the devices that its ResourceSlices publish.
func ExampleAllocator_Allocate_existingNode() {
	a, err := allocator.New(allocator.Options{
		Classes: []*resourceapi.DeviceClass{exampleClass},
		Slices: []*resourceapi.ResourceSlice{{
			ObjectMeta: metav1.ObjectMeta{Name: "node-1-gpus"},
			Spec: resourceapi.ResourceSliceSpec{
				Driver:   "gpu.example.com",
				Pool:     resourceapi.ResourcePool{Name: "node-1", Generation: 1, ResourceSliceCount: 1},
				NodeName: ptr.To("node-1"),
				Devices:  exampleDevices(4),
			},
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	result, err := a.Allocate(context.Background(), allocator.Target{ID: "node-1", Node: node}, []*resourceapi.ResourceClaim{exampleClaim(2)})
	if err != nil {
		log.Fatal(err)
	}
	printResult(result)
	// Output:
	// on the node: claim default/train: gpus gets gpu-0
	// on the node: claim default/train: gpus gets gpu-1
}

// A node claim may become any of its instance types. Those that cannot meet the claims
// are dropped, and Commit reserves the devices on the others.
func ExampleAllocator_Allocate_nodeClaim() {
	a, err := allocator.New(allocator.Options{Classes: []*resourceapi.DeviceClass{exampleClass}})
	if err != nil {
		log.Fatal(err)
	}
	var types []*allocator.InstanceType
	for i, name := range []string{"one-gpu", "two-gpus"} {
		types = append(types, &allocator.InstanceType{
			Name:      name,
			Templates: []allocator.Template{{Driver: "gpu.example.com", Slices: []allocator.TemplateSlice{{Devices: exampleDevices(i + 1)}}}},
		})
	}
	on := allocator.Target{ID: "node-claim-1", InstanceTypes: types}
	result, err := a.Allocate(context.Background(), on, []*resourceapi.ResourceClaim{exampleClaim(2)})
	if err != nil {
		log.Fatal(err)
	}
	printResult(result)
	if err := a.Commit(result); err != nil {
		log.Fatal(err)
	}
	for _, alternative := range a.Alternatives("node-claim-1") {
		fmt.Println("may still become", alternative.InstanceType)
	}
	// Output:
	// on two-gpus: claim default/train: gpus gets gpu-0
	// on two-gpus: claim default/train: gpus gets gpu-1
	// not on one-gpu: request gpus of claim train: 1 of 2 devices
	// may still become two-gpus
}
