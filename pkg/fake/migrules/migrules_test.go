package migrules

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"apportion.dev/apportion/pkg/gpu/products"
)

// The ids are those that drivers were seen to give.
func TestInstanceIDs(t *testing.T) {
	for _, test := range []struct {
		product string
		place   Placement
		want    int
	}{
		{"a100-sxm4-40gb", Placement{0, 8}, 0},
		{"a100-sxm4-40gb", Placement{0, 4}, 1},
		{"a100-sxm4-40gb", Placement{4, 4}, 2},
		{"a100-sxm4-40gb", Placement{0, 2}, 3},
		{"a100-sxm4-40gb", Placement{4, 2}, 5},
		{"a100-sxm4-40gb", Placement{0, 1}, 7},
		{"a100-sxm4-40gb", Placement{6, 1}, 13},
		{"a30", Placement{0, 4}, 0},
		{"a30", Placement{2, 2}, 2},
		{"a30", Placement{3, 1}, 6},
	} {
		p, err := products.Lookup(test.product)
		if err != nil {
			t.Fatal(err)
		}
		if got := InstanceID(p.MIG, test.place); got != test.want {
			t.Errorf("%s %+v has id %d, want %d", test.product, test.place, got, test.want)
		}
	}
}

func TestComputePlacements(t *testing.T) {
	want := map[int]map[int][]int{
		1: {1: {0}},
		2: {1: {0, 1}, 2: {0}},
		3: {1: {0, 1, 2}, 2: {0}, 3: {0}},
		4: {1: {0, 1, 2, 3}, 2: {0, 2}, 4: {0}},
		7: {1: {0, 1, 2, 3, 4, 5, 6}, 2: {0, 2, 4}, 3: {0, 4}, 4: {0}, 7: {0}},
	}
	for slices, profiles := range want {
		got := map[int][]int{}
		for _, c := range ComputeProfiles(&products.Profile{Slices: slices, Multiprocessors: 14 * slices}) {
			got[c.Slices] = c.Starts
		}
		if diff := cmp.Diff(profiles, got); diff != "" {
			t.Errorf("%dg: %s", slices, diff)
		}
	}
}
