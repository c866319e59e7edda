package solver

import (
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

type hardCase struct {
	name string
	rig  *rig
}

// hardCases are inputs on which a search that tries all combinations does not end.
func hardCases() []hardCase {
	h100 := selecting(`device.attributes["gpu.example.com"].model == "h100"`)
	gpus := func(n int) []resourceapi.Device { return devices(n, "gpu-%d", attribute("model", "h100")) }
	nic := exactly("nic", 1, selecting(`device.attributes["gpu.example.com"].model == "nic"`))
	oneEach := make([]any, 32)
	for i := range oneEach {
		oneEach[i] = exactly(fmt.Sprintf("gpu-%d", i), 1, h100)
	}
	var pairs []resourceapi.Device
	var pairParts []any
	for i := range 16 {
		root := fmt.Sprintf("root-%d", i)
		pairs = append(pairs, device(fmt.Sprintf("gpu-%d", i), attribute("model", "h100"), attribute("root", root)))
		// The NIC of the first root is at the second.
		pairs = append(pairs, device(fmt.Sprintf("nic-%d", i), attribute("model", "nic"), attribute("root", fmt.Sprintf("root-%d", max(i, 1)))))
		pairParts = append(pairParts,
			exactly(fmt.Sprintf("gpu-%d", i), 1, h100), exactly(fmt.Sprintf("nic-%d", i), 1, selecting(`device.attributes["gpu.example.com"].model == "nic"`)),
			matchAll("gpu.example.com/root", fmt.Sprintf("gpu-%d", i), fmt.Sprintf("nic-%d", i)))
	}
	parts := devices(32, "part-%d", consumes("set", "slices=1"), attribute("model", "h100"))
	return []hardCase{
		{"32 GPUs and a NIC that is not there", newRig(claimOf("train", exactly("gpu", 32, h100)), claimOf("net", nic)).pool(testNode, gpus(32))},
		{"16 of 32 GPUs and a NIC that is not there", newRig(claimOf("train", exactly("gpu", 16, h100)), claimOf("net", nic)).pool(testNode, gpus(32))},
		{"32 requests of a GPU and a NIC that is not there", newRig(claimOf("train", oneEach...), claimOf("net", nic)).pool(testNode, gpus(32))},
		{"16 pairs of a GPU and its NIC of which one is apart", newRig(claimOf("train", pairParts...)).pool(testNode, pairs)},
		{"9 of 8 GPUs", newRig(claimOf("train", exactly("gpu", 9, h100))).pool(testNode, gpus(8))},
		{"16 of 32 partitions and 15 counters", newRig(claimOf("train", exactly("gpu", 16, h100))).pool(testNode, parts, counterSet("set", "slices=15"))},
	}
}

func TestHardInputsTakeFewNodes(t *testing.T) {
	for _, hard := range hardCases() {
		t.Run(hard.name, func(t *testing.T) {
			if nodes := hard.rig.check(t).Nodes; nodes > 500 {
				t.Errorf("%d nodes", nodes)
			}
		})
	}
}
