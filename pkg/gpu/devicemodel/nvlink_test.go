package devicemodel

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

func linked(address string, peers ...string) inventory.GPU {
	return inventory.GPU{
		UUID:     "GPU-000000" + address[5:7] + "-0000-4000-8000-000000000000",
		PCIBusID: address,
		NVLink:   inventory.NVLink{Peers: peers},
	}
}

func switched(address string) inventory.GPU {
	gpu := linked(address)
	gpu.NVLink.Switch = true
	return gpu
}

func TestNVLinkDomain(t *testing.T) {
	for _, tc := range []struct {
		name string
		gpus []inventory.GPU
		want map[string]string // address to domain
	}{
		{"none", []inventory.GPU{linked("0000:01:00.0"), linked("0000:02:00.0")}, map[string]string{}},
		{
			"two pairs",
			[]inventory.GPU{
				linked("0000:01:00.0", "0000:02:00.0"), linked("0000:02:00.0", "0000:01:00.0"),
				linked("0000:03:00.0", "0000:04:00.0"), linked("0000:04:00.0", "0000:03:00.0"),
				linked("0000:05:00.0"),
			},
			map[string]string{
				"0000:01:00.0": "nvlink-0000:01:00.0", "0000:02:00.0": "nvlink-0000:01:00.0",
				"0000:03:00.0": "nvlink-0000:03:00.0", "0000:04:00.0": "nvlink-0000:03:00.0",
			},
		},
		{
			"one end does not say",
			[]inventory.GPU{linked("0000:01:00.0"), linked("0000:02:00.0", "0000:01:00.0")},
			map[string]string{"0000:01:00.0": "nvlink-0000:01:00.0", "0000:02:00.0": "nvlink-0000:01:00.0"},
		},
		{
			"peer that the node does not have",
			[]inventory.GPU{linked("0000:01:00.0", "0000:09:00.0")},
			map[string]string{},
		},
		{
			"switch",
			[]inventory.GPU{switched("0000:01:00.0"), switched("0000:02:00.0"), linked("0000:03:00.0")},
			map[string]string{"0000:01:00.0": "nvswitch", "0000:02:00.0": "nvswitch"},
		},
		{"alone at a switch", []inventory.GPU{switched("0000:01:00.0")}, map[string]string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			backwards := slices.Clone(tc.gpus)
			slices.Reverse(backwards)
			for _, gpus := range [][]inventory.GPU{tc.gpus, backwards} {
				got := map[string]string{}
				for _, d := range Build(inventory.Node{GPUs: gpus}, Policy{}).Devices {
					if a, ok := d.API.Attributes["nvlinkDomain"]; ok {
						got[d.PCIBusID] = *a.StringValue
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("domains (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestNVLinkDomainDoesNotDependOnOtherProperties(t *testing.T) {
	a, b := linked("0000:01:00.0", "0000:02:00.0"), linked("0000:02:00.0", "0000:01:00.0")
	a.UUID, a.Minor, a.Problem = "", nil, "the GPU's UUID cannot be read"
	d := Build(inventory.Node{GPUs: []inventory.GPU{a, b}}, Policy{}).Devices
	if len(d) != 1 || *d[0].API.Attributes["nvlinkDomain"].StringValue != "nvlink-0000:01:00.0" {
		t.Errorf("devices are %v, want one with the domain of before", d)
	}
}
