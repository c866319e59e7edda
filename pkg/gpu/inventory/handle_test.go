package inventory_test

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

func TestHealthyGPUsAreFoundWhileAnotherIsLost(t *testing.T) {
	m, n := machine(t, "a30", "a30")
	partition, err := m.CreateMIG("1", "1g.6gb", 0)
	must(t, err)
	node := read(t, n)
	must(t, m.LoseGPU("0"))
	lib := m.NVML()
	for _, test := range []struct {
		uuid string
		want nvml.Return
	}{
		{node.GPUs[0].UUID, nvml.ERROR_GPU_IS_LOST},
		{node.GPUs[1].UUID, nvml.SUCCESS},
		{partition, nvml.SUCCESS},
	} {
		device, ret := inventory.Handle(lib, test.uuid)
		if ret != test.want {
			t.Errorf("%s: %v, want %v", test.uuid, ret, test.want)
			continue
		}
		if ret != nvml.SUCCESS {
			continue
		}
		if got, ret := device.GetUUID(); ret != nvml.SUCCESS || got != test.uuid {
			t.Errorf("%s: found %s, %v", test.uuid, got, ret)
		}
	}
}
