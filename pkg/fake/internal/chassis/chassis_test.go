package chassis

import (
	"testing"

	"apportion.dev/apportion/pkg/fake/fakeroot"
)

func TestSlotsAreSpreadAndNeverMove(t *testing.T) {
	tests := []struct {
		bays, number int
		address      string
		numa         int
		root         uint32
	}{
		{2, 0, "0000:1b:00.0", 0, 0x15},
		{2, 1, "0000:9d:00.0", 1, 0x9a},
		{2, 2, "0000:2a:00.0", 0, 0x15},
		{2, 15, "0000:e7:00.0", 1, 0xd0},
		{8, 0, "0000:1b:00.0", 0, 0x15},
		{8, 1, "0000:43:00.0", 0, 0x15},
		{8, 3, "0000:61:00.0", 0, 0x50},
		{8, 4, "0000:9d:00.0", 1, 0x9a},
		{8, 7, "0000:df:00.0", 1, 0xd0},
		{8, 8, "0000:2a:00.0", 0, 0x15},
		{16, 15, "0000:e7:00.0", 1, 0xd0},
	}
	for _, test := range tests {
		s := At(test.bays, test.number)
		if s.PCIBusID() != test.address || s.NUMANode() != test.numa || s.Root() != test.root {
			t.Errorf("slot %d of %d: %s on node %d under %#x", test.number, test.bays, s.PCIBusID(), s.NUMANode(), s.Root())
		}
	}
	for _, bays := range []int{2, 4, 8, 16} {
		seen := map[string]bool{}
		for i := range fakeroot.MaxGPUs {
			seen[At(bays, i).PCIBusID()] = true
		}
		if len(seen) != fakeroot.MaxGPUs {
			t.Errorf("%d bays: %d addresses for %d slots", bays, len(seen), fakeroot.MaxGPUs)
		}
	}
}
