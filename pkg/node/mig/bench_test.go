package mig

import (
	"path/filepath"
	"testing"

	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/gpu/inventory"
)

// BenchmarkEnsureAndRemove measures a partition's calls on a fake machine, most of
// which is the fake.
func BenchmarkEnsureAndRemove(b *testing.B) {
	machine, err := fakegpu.Create(filepath.Join(b.TempDir(), "machine"), fakegpu.Spec{Node: "node-a", DriverVersion: "580.95.05", GPUs: []string{
		"h100-sxm5-80gb", "h100-sxm5-80gb", "h100-sxm5-80gb", "h100-sxm5-80gb", "h100-sxm5-80gb", "h100-sxm5-80gb", "h100-sxm5-80gb", "h100-sxm5-80gb"}})
	if err != nil {
		b.Fatal(err)
	}
	library := machine.NVML()
	if ret := library.Init(); ret != 0 {
		b.Fatal(ret)
	}
	device, ret := library.DeviceGetHandleByIndex(0)
	if ret != 0 {
		b.Fatal(ret)
	}
	uuid, ret := device.GetUUID()
	if ret != 0 {
		b.Fatal(ret)
	}
	manager, partition := New(library), inventory.Partition{GPU: uuid, Profile: "1g.10gb", Start: 6}
	for b.Loop() {
		if _, err := manager.Ensure(b.Context(), partition); err != nil {
			b.Fatal(err)
		}
		if err := manager.Remove(b.Context(), partition); err != nil {
			b.Fatal(err)
		}
	}
}
