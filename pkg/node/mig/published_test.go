package mig

import (
	"testing"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/gpu/inventory"
)

// What is published can be had, and what is refused is not published: also where
// NVML does not say of which architecture a GPU is.
func TestAPartitionIsNotPublishedThatPrepareRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, product, profile string
		modeOn, unreadable     bool
		published, whole       bool
	}{
		{"Hopper", "h100-sxm5-80gb", "1g.10gb", false, false, true, true},
		{"Hopper in MIG mode", "h100-sxm5-80gb", "1g.10gb", true, false, true, true},
		{"Hopper whose architecture cannot be read", "h100-sxm5-80gb", "1g.10gb", false, true, false, true},
		{"Hopper in MIG mode whose architecture cannot be read", "h100-sxm5-80gb", "1g.10gb", true, true, true, false},
		{"Ampere", "a100-sxm4-80gb", "1g.10gb", false, false, false, true},
		{"Ampere in MIG mode", "a100-sxm4-80gb", "1g.10gb", true, false, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, uuids := newMachine(t, tc.product)
			uuid, manager := uuids[0], New(m.NVML())
			must(t, m.SetMIGMode(uuid, tc.modeOn))
			if tc.unreadable {
				must(t, m.Fail(uuid, "architecture", "not-supported"))
			}
			model := devicemodel.Build(read(t, m), devicemodel.Policy{})
			whole, published := false, false
			for _, d := range model.Devices {
				whole = whole || !d.Name.IsPartition()
				published = published || d.Name.Profile == tc.profile && d.Name.Start == 2
			}
			if published != tc.published || whole != tc.whole {
				t.Errorf("published: partition %t, whole %t; want %t, %t", published, whole, tc.published, tc.whole)
			}
			if err := manager.EnsureWhole(t.Context(), uuid); (err == nil) != tc.whole {
				t.Errorf("using the GPU whole: %v, want success %t", err, tc.whole)
			}
			if _, err := manager.Ensure(t.Context(), inventory.Partition{GPU: uuid, Profile: tc.profile, Start: 2}); (err == nil) != tc.published {
				t.Errorf("making the partition: %v, want success %t", err, tc.published)
			}
		})
	}
}
