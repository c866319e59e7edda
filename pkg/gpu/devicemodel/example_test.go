package devicemodel_test

import (
	"fmt"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/gpu/inventory"
)

// A node with two GPUs, one of which the administrator keeps for himself.
func ExampleBuild() {
	memory := uint64(24 << 30)
	node := inventory.Node{GPUs: []inventory.GPU{
		{UUID: "GPU-4f3a1b2c-0000-0000-0000-000000000000", PCIBusID: "0000:01:00.0", ProductName: "NVIDIA L4", MemoryBytes: &memory},
		{UUID: "GPU-5a6b7c8d-0000-0000-0000-000000000000", PCIBusID: "0000:02:00.0", ProductName: "NVIDIA L4", MemoryBytes: &memory},
	}}
	model := devicemodel.Build(node, devicemodel.Policy{Exclude: []string{"0000:02:00.0"}})
	for _, device := range model.Devices {
		capacity := device.API.Capacity["memory"].Value
		fmt.Println(device.API.Name, capacity.String())
	}
	for _, skipped := range model.Skipped {
		fmt.Println(skipped.UUID, skipped.ByPolicy)
	}
	// Output:
	// gpu-4f3a1b2c 24Gi
	// GPU-5a6b7c8d-0000-0000-0000-000000000000 true
}
