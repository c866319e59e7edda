package inventory

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
)

func TestNVLinkGroups(t *testing.T) {
	gpu := func(address string, onSwitch bool, peers ...string) GPU {
		return GPU{PCIBusID: address, NVLink: NVLink{Switch: onSwitch, Peers: peers}}
	}
	for _, tc := range []struct {
		name string
		gpus []GPU
		want [][]int
	}{
		{"no GPU", nil, nil},
		{"no link", []GPU{gpu("a", false), gpu("b", false)}, nil},
		{"pairs", []GPU{gpu("a", false, "c"), gpu("b", false, "d"), gpu("c", false, "a"), gpu("d", false, "b")}, [][]int{{0, 2}, {1, 3}}},
		{"chain", []GPU{gpu("a", false, "b"), gpu("b", false, "c"), gpu("c", false)}, [][]int{{0, 1, 2}}},
		{"chain from its end", []GPU{gpu("a", false), gpu("b", false), gpu("c", false, "b", "a")}, [][]int{{0, 1, 2}}},
		{"switch", []GPU{gpu("a", true), gpu("b", false), gpu("c", true), gpu("d", true)}, [][]int{{0, 2, 3}}},
		{"one at the switch", []GPU{gpu("a", true), gpu("b", false)}, nil},
		{"switch without addresses", []GPU{gpu("", true), gpu("", true), gpu("", false)}, [][]int{{0, 1}}},
		{"peer elsewhere", []GPU{gpu("a", false, "z"), gpu("b", false, "z")}, nil},
		{"itself", []GPU{gpu("a", false, "a"), gpu("b", false)}, nil},
		{"any case", []GPU{gpu("A", false), gpu("b", false, "a")}, [][]int{{0, 1}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := NVLinkGroups(Node{GPUs: tc.gpus})
			if len(got) == 0 {
				got = nil
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNVLink(t *testing.T) {
	type link struct {
		state  nvml.EnableState
		kind   nvml.IntNvLinkDeviceType
		remote string
	}
	const on, off = nvml.FEATURE_ENABLED, nvml.FEATURE_DISABLED
	for _, tc := range []struct {
		name    string
		links   []link
		missing []string
		want    NVLink
	}{
		{"none", nil, nil, NVLink{}},
		{
			"bridge of two links, one more is down",
			[]link{
				{on, nvml.NVLINK_DEVICE_TYPE_GPU, "00000000:3B:00.0"},
				{on, nvml.NVLINK_DEVICE_TYPE_GPU, "00000000:3B:00.0"},
				{off, nvml.NVLINK_DEVICE_TYPE_GPU, "00000000:5E:00.0"},
			},
			nil,
			NVLink{Peers: []string{"0000:3b:00.0"}},
		},
		{
			"mesh",
			[]link{{on, nvml.NVLINK_DEVICE_TYPE_GPU, "00000000:5E:00.0"}, {on, nvml.NVLINK_DEVICE_TYPE_GPU, "00000000:3B:00.0"}},
			nil,
			NVLink{Peers: []string{"0000:3b:00.0", "0000:5e:00.0"}},
		},
		{"switch", []link{{on, nvml.NVLINK_DEVICE_TYPE_SWITCH, ""}, {on, nvml.NVLINK_DEVICE_TYPE_SWITCH, ""}}, nil, NVLink{Switch: true}},
		{"processor", []link{{on, nvml.NVLINK_DEVICE_TYPE_IBMNPU, "00000004:00:00.0"}}, nil, NVLink{}},
		{"itself", []link{{on, nvml.NVLINK_DEVICE_TYPE_GPU, "00000000:07:00.0"}}, nil, NVLink{}},
		{"peer without an address", []link{{on, nvml.NVLINK_DEVICE_TYPE_GPU, ""}}, nil, NVLink{}},
		{
			"library that does not say the type",
			[]link{{on, nvml.NVLINK_DEVICE_TYPE_SWITCH, "00000000:3B:00.0"}},
			[]string{"nvmlDeviceGetNvLinkRemoteDeviceType"},
			NVLink{Peers: []string{"0000:3b:00.0"}},
		},
		{
			"library that does not say the address",
			[]link{{on, nvml.NVLINK_DEVICE_TYPE_GPU, "00000000:3B:00.0"}},
			[]string{"nvmlDeviceGetNvLinkRemotePciInfo", "nvmlDeviceGetNvLinkRemotePciInfo_v2"},
			NVLink{},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dev := plainGPU(uuid0, "00000000:07:00.0")
			dev.GetNvLinkStateFunc = func(i int) (nvml.EnableState, nvml.Return) {
				if i >= len(tc.links) {
					return 0, nvml.ERROR_INVALID_ARGUMENT
				}
				return tc.links[i].state, nvml.SUCCESS
			}
			dev.GetNvLinkRemoteDeviceTypeFunc = func(i int) (nvml.IntNvLinkDeviceType, nvml.Return) {
				return tc.links[i].kind, nvml.SUCCESS
			}
			dev.GetNvLinkRemotePciInfoFunc = func(i int) (nvml.PciInfo, nvml.Return) {
				return busID(tc.links[i].remote), nvml.SUCCESS
			}
			lib := newFakeLibrary(dev)
			lib.missing = tc.missing
			got := snapshot(t, NewNVML(Options{Library: lib, SysFS: sysFS("0000:07:00.0")})).GPUs[0].NVLink
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("NVLink (-want +got):\n%s", diff)
			}
		})
	}
}
