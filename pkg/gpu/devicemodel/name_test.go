package devicemodel

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

func TestNames(t *testing.T) {
	for _, tc := range []struct {
		name Name
		want string
	}{
		{Name{GPU: "4f3a1b2c"}, "gpu-4f3a1b2c"},
		{Name{GPU: "4f3a1b2c00"}, "gpu-4f3a1b2c00"},
		{Name{GPU: "4f3a1b2c", Profile: "1g.10gb"}, "gpu-4f3a1b2c-mig-1g-10gb-0"},
		{Name{GPU: "4f3a1b2c", Profile: "7g.80gb", Start: 0}, "gpu-4f3a1b2c-mig-7g-80gb-0"},
		{Name{GPU: "4f3a1b2c", Profile: "1g.10gb+me", Start: 12}, "gpu-4f3a1b2c-mig-1g-10gb-me-12"},
		{Name{GPU: "4f3a1b2c", Profile: "1g.10gb-me", Start: 3}, "gpu-4f3a1b2c-mig-1g-10gb-no-me-3"},
		{Name{GPU: "4f3a1b2c", Profile: "1g.24gb+me.all", Start: 1}, "gpu-4f3a1b2c-mig-1g-24gb-me-all-1"},
		{Name{GPU: "4f3a1b2c", Profile: "2g.48gb+gfx", Start: 2}, "gpu-4f3a1b2c-mig-2g-48gb-gfx-2"},
		{Name{GPU: "4f3a1b2c", Profile: "1g.24gb+me.all,gfx", Start: 1}, "gpu-4f3a1b2c-mig-1g-24gb-me-all-gfx-1"},
	} {
		t.Run(tc.want, func(t *testing.T) {
			if got := tc.name.String(); got != tc.want {
				t.Errorf("String() is %s", got)
			}
			if got, err := Parse(tc.want); err != nil || got != tc.name {
				t.Errorf("Parse gave %+v, %v, want %+v", got, err, tc.name)
			}
			if tc.name.IsPartition() {
				got, err := PartitionName(tc.name.Whole(), tc.name.Profile, tc.name.Start)
				if err != nil || got != tc.name {
					t.Errorf("PartitionName gave %+v, %v", got, err)
				}
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, s := range []string{
		"",
		"gpu-",
		"gpu-4f3a1b2",
		"gpu-4F3A1B2C",
		"gpu-4f3a1b2g",
		"gpu-" + strings.Repeat("0", 33),
		"gpu-4f3a1b2c-",
		"gpu-4f3a1b2c-mig",
		"gpu-4f3a1b2c-mig-",
		"gpu-4f3a1b2c-mig-0",
		"gpu-4f3a1b2c-mig-1g-10gb",
		"gpu-4f3a1b2c-mig-1g-10gb-",
		"gpu-4f3a1b2c-mig-1g-10gb-00",
		"gpu-4f3a1b2c-mig-1g-10gb-+1",
		"gpu-4f3a1b2c-mig-1g-10gb--1",
		"gpu-4f3a1b2c-mig-1g-10gb-no-0",
		"gpu-4f3a1b2c-mig-1g-10gb-all-0",
		"gpu-4f3a1b2c-mig-1g-10gb-me-all-all-0",
		"gpu-4f3a1b2c-mig-0g-10gb-0",
		"gpu-4f3a1b2c-mig-1g.10gb-0",
		"mig-4f3a1b2c",
		"gpu-4f3a1b2c\n",
	} {
		if name, err := Parse(s); err == nil {
			t.Errorf("Parse(%q) gave %+v, want an error", s, name)
		}
	}
}

func TestPartitionNameRefuses(t *testing.T) {
	for profile, start := range map[string]int{
		"":                                    0,
		"1g.10gb":                             -1,
		"1c.2g.10gb":                          0,
		"1g.10gb+":                            0,
		"1g.10gb+ME":                          0,
		"1g.10gb+no":                          0,
		"1g.10gb+me.half":                     0,
		"1g.10gb+" + strings.Repeat("x", 40):  0,
		"MIG 1g.10gb":                         0,
		"1g.10gb+" + strings.Repeat("x-", 40): 0,
	} {
		if name, err := PartitionName(Name{GPU: "4f3a1b2c"}, profile, start); err == nil {
			t.Errorf("PartitionName(%q, %d) gave %s, want an error", profile, start, name)
		}
	}
}

func TestGPUNames(t *testing.T) {
	for _, tc := range []struct {
		name  string
		uuids []string
		want  map[string]string // digits of the UUID to name
	}{
		{"none", nil, map[string]string{}},
		{
			"different",
			[]string{"GPU-4f3a1b2c-1111-2222-3333-444444444444", "GPU-4F3A1B2D-1111-2222-3333-444444444444"},
			map[string]string{
				"4f3a1b2c111122223333444444444444": "gpu-4f3a1b2c",
				"4f3a1b2d111122223333444444444444": "gpu-4f3a1b2d",
			},
		},
		{
			"collision: all that collide get longer, no other does",
			[]string{
				"GPU-4f3a1b2c-1111-2222-3333-444444444444",
				"GPU-4f3a1b2c-1121-2222-3333-444444444444",
				"GPU-4f3a1b2c-2111-2222-3333-444444444444",
				"GPU-00000000-1111-2222-3333-444444444444",
			},
			map[string]string{
				"4f3a1b2c111122223333444444444444": "gpu-4f3a1b2c111",
				"4f3a1b2c112122223333444444444444": "gpu-4f3a1b2c112",
				"4f3a1b2c211122223333444444444444": "gpu-4f3a1b2c211",
				"00000000111122223333444444444444": "gpu-00000000",
			},
		},
		{
			"different only at the end",
			[]string{"GPU-4f3a1b2c-1111-2222-3333-444444444444", "GPU-4f3a1b2c-1111-2222-3333-444444444445"},
			map[string]string{
				"4f3a1b2c111122223333444444444444": "gpu-4f3a1b2c111122223333444444444444",
				"4f3a1b2c111122223333444444444445": "gpu-4f3a1b2c111122223333444444444445",
			},
		},
		{
			"the same twice, and some without a UUID",
			[]string{"GPU-4f3a1b2c-1111-2222-3333-444444444444", "gpu-4f3a1b2c-1111-2222-3333-444444444444", "", "GPU-1"},
			map[string]string{"4f3a1b2c111122223333444444444444": "gpu-4f3a1b2c"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var gpus []inventory.GPU
			for _, uuid := range tc.uuids {
				gpus = append(gpus, inventory.GPU{UUID: uuid})
			}
			got := map[string]string{}
			for digits, name := range gpuNames(gpus) {
				got[digits] = name.String()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNameDoesNotChangeWithPolicy(t *testing.T) {
	a := l4("GPU-4f3a1b2c-1111-2222-3333-444444444444", "0000:01:00.0")
	b := l4("GPU-4f3a1b2c-2111-2222-3333-444444444444", "0000:02:00.0")
	all, one := Build(node(a, b), Policy{}), Build(node(a, b), Policy{Exclude: []string{b.UUID}})
	if got, want := maps.Keys(one.byName), "gpu-4f3a1b2c1"; len(one.Devices) != 1 {
		t.Fatalf("devices are %v, want one", got)
	} else if one.Devices[0].API.Name != want || all.Devices[0].API.Name != want {
		t.Errorf("names are %s and %s, want %s", all.Devices[0].API.Name, one.Devices[0].API.Name, want)
	}
}
