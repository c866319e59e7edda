package devicemodel

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

func TestSharingPolicy(t *testing.T) {
	const gib = 1 << 30
	l4Exclusive := []ProductPolicy{{Product: " nvidia l? ", SharingPolicy: SharingPolicy{Disabled: true}}, {Product: "*", SharingPolicy: SharingPolicy{MaxShares: 9}}}
	type outcome struct {
		shareable bool
		memory    int64 // published, in MiB
		shares    int
		least     int64 // of a share's memory, in MiB
	}
	for _, tc := range []struct {
		name    string
		policy  Policy
		product string
		device  string // which of the devices, as offered writes it
		want    outcome
	}{
		{"none", Policy{}, "NVIDIA L4", "whole", outcome{true, 23034, 23034, 1}},
		{"none, partition", Policy{}, "NVIDIA L4", "2g-12gb-0", outcome{true, 11968, 11968, 1}},
		{"four shares", Policy{Sharing: SharingPolicy{MaxShares: 4}}, "NVIDIA L4", "whole", outcome{true, 23034, 4, 1}},
		{"four shares, partition", Policy{Sharing: SharingPolicy{MaxShares: 4}}, "NVIDIA L4", "2g-12gb-0", outcome{true, 11968, 4, 1}},
		{"at least 10Gi", Policy{Sharing: SharingPolicy{MinMemory: 10 * gib}}, "NVIDIA L4", "whole", outcome{true, 23034, 2, 10240}},
		{"at least 10Gi, four shares", Policy{Sharing: SharingPolicy{MaxShares: 4, MinMemory: 10 * gib}}, "NVIDIA L4", "whole", outcome{true, 23034, 2, 10240}},
		{"at least 10Gi, partition", Policy{Sharing: SharingPolicy{MinMemory: 10 * gib}}, "NVIDIA L4", "2g-12gb-0", outcome{true, 11968, 1, 10240}},
		{"at least one byte", Policy{Sharing: SharingPolicy{MinMemory: 1}}, "NVIDIA L4", "whole", outcome{true, 23034, 23034, 1}},
		{"at least more than there is", Policy{Sharing: SharingPolicy{MinMemory: 1 << 62}}, "NVIDIA L4", "whole", outcome{true, 23034, 1, 23034}},
		{"held back", Policy{Sharing: SharingPolicy{ReservedMemory: 34<<20 - 1}}, "NVIDIA L4", "whole", outcome{true, 23000, 23000, 1}},
		{"held back of whole GPUs only", Policy{Sharing: SharingPolicy{ReservedMemory: gib}}, "NVIDIA L4", "2g-12gb-0", outcome{true, 11968, 11968, 1}},
		{"held back, exclusive", Policy{Sharing: SharingPolicy{ReservedMemory: 34 << 20, Disabled: true}}, "NVIDIA L4", "whole", outcome{false, 23000, 1, 0}},
		{"all held back", Policy{Sharing: SharingPolicy{ReservedMemory: 1 << 62}}, "NVIDIA L4", "whole", outcome{}},
		{"disabled", Policy{Sharing: SharingPolicy{Disabled: true}}, "NVIDIA L4", "whole", outcome{false, 23034, 1, 0}},
		{"disabled, partition", Policy{Sharing: SharingPolicy{Disabled: true}}, "NVIDIA L4", "2g-12gb-0", outcome{false, 11968, 1, 0}},
		{"the cluster cannot", Policy{NoShares: true, Products: l4Exclusive}, "NVIDIA T4", "whole", outcome{false, 23034, 1, 0}},
		{"by product, first", Policy{Products: l4Exclusive}, "NVIDIA L4", "whole", outcome{false, 23034, 1, 0}},
		{"by product, second", Policy{Products: l4Exclusive}, "NVIDIA T4", "whole", outcome{true, 23034, 9, 1}},
		{"by product, none", Policy{Sharing: SharingPolicy{MaxShares: 3}, Products: l4Exclusive[:1]}, "NVIDIA T4", "whole", outcome{true, 23034, 3, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.policy.Validate(); err != nil {
				t.Errorf("Validate: %v", err)
			}
			gpu := halves()
			gpu.ProductName = tc.product
			m := Build(node(gpu), tc.policy)
			name := "gpu-4f3a1b2c"
			if tc.device != "whole" {
				name += "-mig-" + tc.device
			}
			d, ok := m.Device(name)
			if !ok {
				t.Fatalf("there is no device %s", name)
			}
			if got := (outcome{d.Shareable, d.MemoryBytes >> 20, max(d.MaxShares, published(d, CapacityShares)), d.MinShareBytes >> 20}); got != tc.want {
				t.Errorf("the device is %+v, want %+v", got, tc.want)
			}
			if got := published(d, CapacityMemory) >> 20; int64(got) != tc.want.memory {
				t.Errorf("published are %d MiB, want %d", got, tc.want.memory)
			}
			if got := d.API.AllowMultipleAllocations != nil && *d.API.AllowMultipleAllocations; got != tc.want.shareable {
				t.Errorf("allowMultipleAllocations is %v", got)
			}
			for capacity, c := range d.API.Capacity {
				if (c.RequestPolicy != nil) != tc.want.shareable {
					t.Errorf("capacity %s has the request policy %v", capacity, c.RequestPolicy)
				}
			}
		})
	}
}

func published(d Device, capacity resourceapi.QualifiedName) int {
	c := d.API.Capacity[capacity]
	return int(c.Value.Value())
}

func TestEnforcement(t *testing.T) {
	for _, tc := range []struct {
		name   string
		policy string
		limits *bool
		want   bool
	}{
		{"node and GPU can", MemoryEnforcementNVML, ptr(true), true},
		{"the GPU cannot", MemoryEnforcementNVML, ptr(false), false},
		{"of the GPU it is unknown", MemoryEnforcementNVML, nil, false},
		{"the node cannot", MemoryEnforcementNone, ptr(true), false},
		{"nobody said", "", ptr(true), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			gpu := halves()
			gpu.MemoryLimits = tc.limits
			for _, d := range Build(inventory.Node{GPUs: []inventory.GPU{gpu}}, Policy{MemoryEnforcement: tc.policy}).Devices {
				want := tc.want && d.Partition == nil
				value := *d.API.Attributes[AttributeMemoryEnforcement].StringValue
				if d.Enforced != want || (value == "nvml") != want || (value == "none") == want {
					t.Errorf("%s: enforced %v, published %s, want %v", d.API.Name, d.Enforced, value, want)
				}
			}
		})
	}
}

func TestCheckShare(t *testing.T) {
	policy := Policy{Sharing: SharingPolicy{MaxShares: 4, MinMemory: 2 << 30}}
	for _, tc := range []struct {
		name     string
		policy   Policy
		consumed map[resourceapi.QualifiedName]string
		want     []string // parts of the error, none if it is fine
	}{
		{"everything", policy, map[resourceapi.QualifiedName]string{"memory": "23034Mi", "shares": "1", "computePercent": "0"}, nil},
		{"the least", policy, map[resourceapi.QualifiedName]string{"memory": "2Gi", "shares": "1"}, nil},
		{"too little", policy, map[resourceapi.QualifiedName]string{"memory": "2047Mi", "shares": "1"}, []string{"gpu-4f3a1b2c", "2047Mi", "at least 2Gi"}},
		{"no memory", Policy{}, map[resourceapi.QualifiedName]string{"memory": "0", "shares": "1"}, []string{"gpu-4f3a1b2c with 0 of memory", "at least 1Mi"}},
		{"uncounted", policy, map[resourceapi.QualifiedName]string{"memory": "2Gi", "shares": "0"}, []string{"its 4 shares", "admin access", "leave shares out"}},
		{"several of them", policy, map[resourceapi.QualifiedName]string{"memory": "2Gi", "shares": "2"}, nil},
		{"from before there were shares", policy, map[resourceapi.QualifiedName]string{"memory": "2Gi"}, nil},
		{"exclusive", Policy{NoShares: true}, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			consumed := map[resourceapi.QualifiedName]resource.Quantity{}
			for name, value := range tc.consumed {
				consumed[name] = resource.MustParse(value)
			}
			err := wholeOf(t, Build(node(l4(uuidA, "0000:07:00.0")), tc.policy)).CheckShare(consumed)
			if (err == nil) != (len(tc.want) == 0) {
				t.Fatalf("error is %v", err)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}
