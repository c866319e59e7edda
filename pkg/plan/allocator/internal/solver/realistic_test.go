package solver_test

import (
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// profile is a kind of partition of an 80 GB GPU: how much computing it takes, how many
// of the 8 memory slices, and at which of them it may start.
type profile struct {
	name            string
	compute, memory int
	starts          []int
}

var profiles = []profile{
	{"1g", 1, 1, []int{0, 1, 2, 3, 4, 5, 6}},
	{"2g", 2, 2, []int{0, 2, 4}},
	{"3g", 3, 4, []int{0, 4}},
	{"4g", 4, 4, []int{0}},
	{"7g", 7, 8, []int{0}},
	{"whole", 7, 8, []int{0}},
}

// partitionable publishes GPUs as drivers do: a counter for each memory slice, so that
// partitions exclude each other by where they are, and no two devices of a GPU are alike.
func partitionable(gpus int) []*resourceapi.ResourceSlice {
	var sets []resourceapi.CounterSet
	var groups [][]resourceapi.Device
	one := resourceapi.Counter{Value: resource.MustParse("1")}
	for g := range gpus {
		set := resourceapi.CounterSet{Name: fmt.Sprintf("gpu-%d", g), Counters: map[string]resourceapi.Counter{
			"compute": {Value: resource.MustParse("7")},
		}}
		for i := range 8 {
			set.Counters[fmt.Sprintf("memory-%d", i)] = one
		}
		sets = append(sets, set)
		var group []resourceapi.Device
		for _, p := range profiles {
			for _, start := range p.starts {
				counters := map[string]resourceapi.Counter{"compute": {Value: *resource.NewQuantity(int64(p.compute), resource.DecimalSI)}}
				for i := range p.memory {
					counters[fmt.Sprintf("memory-%d", start+i)] = one
				}
				group = append(group, resourceapi.Device{
					Name: fmt.Sprintf("gpu-%d-%s-%d", g, p.name, start),
					Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
						"type": {StringValue: ptr.To(p.name)}, "uuid": {StringValue: ptr.To(fmt.Sprint("GPU-", g))},
					},
					ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: set.Name, Counters: counters}},
				})
			}
		}
		groups = append(groups, group)
	}
	return published("node-a", sets, groups...)
}

// partitions are 8 GPUs to divide. By hand: a GPU has room for two of 3g, or three of 2g
// and one of 1g, or seven of 1g, or one of 4g and one of 3g.
func partitions() []row {
	gpus := partitionable(8)
	return []row{
		{"8 whole", gpus, claims(claim(wants(8, "whole"))), Allocates},
		{"8 whole and one of 1g", gpus, claims(claim(wants(8, "whole"), wants(1, "1g"))), Cannot},
		{"one of 1g and 8 whole", gpus, claims(claim(wants(1, "1g"), wants(8, "whole"))), Cannot},
		{"7 whole and 7 of 1g", gpus, claims(claim(wants(7, "1g"), wants(7, "whole"))), Allocates},
		{"16 of 3g", gpus, claims(claim(wants(16, "3g"))), Allocates},
		{"17 of 3g", gpus, claims(claim(wants(17, "3g"))), Cannot},
		{"16 of 3g and one of 1g", gpus, claims(claim(wants(16, "3g"), wants(1, "1g"))), Cannot},
		{"16 requests of 3g and one of 1g", gpus, claims(claim(times(16, wants(1, "3g"))...), claim(wants(1, "1g"))), Cannot},
		{"24 of 2g and 8 of 1g", gpus, claims(claim(wants(24, "2g"), wants(8, "1g"))), Allocates},
		{"25 of 2g", gpus, claims(claim(wants(25, "2g"))), Cannot},
		{"8 of 4g and 8 of 3g", gpus, claims(claim(wants(8, "4g"), wants(8, "3g"))), Allocates},
		{"8 of 4g and 9 of 3g", gpus, claims(claim(wants(8, "4g"), wants(9, "3g"))), Cannot},
		{"56 of 1g", gpus, claims(claim(wants(28, "1g")), claim(wants(28, "1g"))), Allocates},
		{"57 of 1g", gpus, claims(claim(wants(28, "1g")), claim(wants(29, "1g"))), Cannot},
		// Eight of 3g, nine of 2g and fifteen of 1g compute with 24 + 18 + 15 = 57 of 56.
		{"8 of 3g, 9 of 2g and 15 of 1g", gpus, claims(claim(wants(8, "3g"), wants(9, "2g")), claim(wants(15, "1g"))), Cannot},
	}
}

// rooted publishes 8 GPUs, two on each of 4 PCIe roots, and a NIC on each root.
func rooted() []*resourceapi.ResourceSlice {
	root := func(per int) func(int, *resourceapi.Device) {
		return func(i int, device *resourceapi.Device) {
			device.Attributes["resource.kubernetes.io/pcieRoot"] = resourceapi.DeviceAttribute{StringValue: ptr.To(fmt.Sprintf("pci0000:%02d", i/per))}
			device.Attributes["uuid"] = resourceapi.DeviceAttribute{StringValue: ptr.To(device.Name)}
		}
	}
	return published("node-a", nil, devices("gpu", 8, root(2)), devices("nic", 4, root(1)))
}

// topology wants devices under one PCIe root.
func topology() []row {
	beside := func(gpus int) *resourceapi.ResourceClaim {
		return matching("resource.kubernetes.io/pcieRoot", claim(wants(gpus, "gpu"), wants(1, "nic")))
	}
	many := func(n, gpus int) []*resourceapi.ResourceClaim {
		var out []*resourceapi.ResourceClaim
		for range n {
			out = append(out, beside(gpus))
		}
		return out
	}
	return []row{
		{"4 pairs with their NIC", rooted(), many(4, 2), Allocates},
		{"5 GPUs with a NIC each", rooted(), many(5, 1), Cannot},
		{"4 GPUs with a NIC, then 4", rooted(), append(many(4, 1), claim(wants(4, "gpu"))), Allocates},
		{"4 GPUs with a NIC, then 5", rooted(), append(many(4, 1), claim(wants(5, "gpu"))), Cannot},
		{"3 of one root", rooted(), many(1, 3), Cannot},
		{"6 GPUs, then a pair with its NIC", rooted(), append(claims(claim(wants(6, "gpu"))), many(1, 2)...), Allocates},
		{"7 GPUs, then a pair with its NIC", rooted(), append(claims(claim(wants(7, "gpu"))), many(1, 2)...), Cannot},
		{"7 requests, then a pair with its NIC", rooted(), append(claims(claim(times(7, wants(1, "gpu"))...)), many(1, 2)...), Cannot},
	}
}

func TestStaysFastPartitionsByPlace(t *testing.T) { check(t, partitions()) }

func TestStaysFastPCIeRoots(t *testing.T) { check(t, topology()) }
