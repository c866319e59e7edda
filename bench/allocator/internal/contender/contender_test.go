package contender

import (
	"testing"

	"apportion.dev/apportion/bench/allocator/internal/setting"
)

// TestAgree asks all contenders small questions of every kind twice. The right answers
// are worked out in package setting.
func TestAgree(t *testing.T) {
	for _, tc := range []struct {
		name    string
		setting setting.Setting
		want    int
	}{
		{"one of 8 GPUs", setting.OneNode(1), 1},
		{"8 of 8 GPUs", setting.OneNode(8), 1},
		{"4 of 3 GPUs", setting.OneTooFew(4), 0},
		{"three instance types of two shapes", setting.Types(3, 2), 3},
		{"one request and no NIC", setting.NoNIC(4, 1), 0},
		{"four requests and no NIC", setting.NoNIC(4, 4), 0},
		{"partitions, one unit short", setting.PartitionsOneShort(4), 0},
		{"only the last has the NIC", setting.LastHasNIC(3), 1},
		{"a new node in a zone", setting.NewNodeInZone(10), 1},
		{"full nodes in a zone", setting.FullNodesInZone(10), 0},
		{"pools in zones", setting.PoolsInZones(10), 1},
	} {
		for _, c := range All() {
			t.Run(tc.name+" "+c.Name, func(t *testing.T) {
				if tc.setting.Fit != tc.want {
					t.Errorf("the setting says %d", tc.setting.Fit)
				}
				start, err := c.Prepare(tc.setting)
				if err != nil {
					t.Fatal(err)
				}
				call, err := start(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					got, err := call(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if got != tc.want {
						t.Errorf("got %d, want %d", got, tc.want)
					}
				}
			})
		}
	}
}
