package devicemodel

import (
	"strings"
	"testing"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

func TestExclude(t *testing.T) {
	gpu := inventory.GPU{UUID: "GPU-4f3a1b2c-1111-2222-3333-444444444444", PCIBusID: "0000:af:00.0", ProductName: "NVIDIA A100-SXM4-40GB"}
	for _, tc := range []struct {
		entry string
		want  bool
	}{
		{"GPU-4f3a1b2c-1111-2222-3333-444444444444", true},
		{"gpu-4F3A1B2C-1111-2222-3333-444444444444", true},
		{"GPU-4f3a1b2c-1111-2222-3333-444444444445", false},
		{"0000:af:00.0", true},
		{"00000000:AF:00.0", true},
		{"af:00.0", true},
		{" af:00.0 ", true},
		{"0000:b0:00.0", false},
		{"0001:af:00.0", false},
		{"NVIDIA A100-SXM4-40GB", true},
		{"nvidia a100-sxm4-40gb", true},
		{"NVIDIA A100", false},
		{"*A100*", true},
		{"NVIDIA ?100-*", true},
		{"NVIDIA H100*", false},
		{"*", true},
	} {
		t.Run(tc.entry, func(t *testing.T) {
			policy := Policy{Exclude: []string{tc.entry}}
			if err := policy.Validate(); err != nil {
				t.Fatalf("Validate: %v", err)
			}
			m := Build(inventory.Node{GPUs: []inventory.GPU{gpu}}, policy)
			if got := len(m.Devices) == 0; got != tc.want {
				t.Errorf("excluded %v, want %v", got, tc.want)
			}
		})
	}
}

func TestValidatePolicy(t *testing.T) {
	for _, tc := range []struct {
		name   string
		policy Policy
		want   []string // parts of the error, none if valid
	}{
		{"zero", Policy{}, nil},
		{"enforcement nvml", Policy{MemoryEnforcement: "nvml"}, nil},
		{"enforcement none", Policy{MemoryEnforcement: "none"}, nil},
		{"unknown enforcement", Policy{MemoryEnforcement: "hope"}, []string{`"hope"`, "nvml or none"}},
		{"empty entry", Policy{Exclude: []string{""}}, []string{`""`, "empty", "UUID", "PCI address", "product name"}},
		{"index", Policy{Exclude: []string{"0"}}, []string{`"0"`, "index"}},
		{"part of a UUID", Policy{Exclude: []string{"GPU-4f3a1b2c"}}, []string{`"GPU-4f3a1b2c"`, "no complete UUID"}},
		{"MIG device", Policy{Exclude: []string{"MIG-4f3a1b2c-1111-2222-3333-444444444444"}}, []string{"MIG device"}},
		{"bad address", Policy{Exclude: []string{"0000:zz:00.0"}}, []string{`"0000:zz:00.0"`, "no PCI address"}},
		{"bad pattern", Policy{Exclude: []string{"NVIDIA [A"}}, []string{`"NVIDIA [A"`, "pattern"}},
		{"sharing", Policy{Sharing: SharingPolicy{MaxShares: 4, MinMemory: 1, ReservedMemory: 1}, Products: []ProductPolicy{{Product: "*L4*"}}}, nil},
		{"negative shares", Policy{Sharing: SharingPolicy{MaxShares: -1}}, []string{"-1", "0 for no limit"}},
		{"negative memory", Policy{Sharing: SharingPolicy{MinMemory: -1, ReservedMemory: -2}}, []string{"smallest share's memory of -1", "-2 bytes that is held back"}},
		{"product without name", Policy{Products: []ProductPolicy{{}}}, []string{`product ""`, "give a product name"}},
		{"product of bad pattern", Policy{Products: []ProductPolicy{{Product: "[A"}}}, []string{`product "[A"`, "pattern"}},
		{"product's negative shares", Policy{Products: []ProductPolicy{{Product: "*", SharingPolicy: SharingPolicy{MaxShares: -1}}}}, []string{`product "*"`, "-1"}},
		{"taint domain", Policy{TaintDomain: "gpu.apportion.dev"}, nil},
		{"bad taint domain", Policy{TaintDomain: "GPU"}, []string{`"GPU"`, "driver's name"}},
		{"every bad entry is named", Policy{Exclude: []string{"1", "NVIDIA L4", "2"}}, []string{`"1"`, `"2"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.policy.Validate()
			if len(tc.want) == 0 {
				if err != nil {
					t.Errorf("error %v, want none", err)
				}
				return
			}
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}
