package devicemodel

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// shape describes slices as the counter sets and devices in each.
func shape(published []Slice) []string {
	var result []string
	for _, s := range published {
		var names string
		for _, set := range s.SharedCounters {
			names += "counters:" + set.Name + " "
		}
		for _, d := range s.Devices {
			names += d.Name + " "
		}
		result = append(result, names)
	}
	return result
}

func TestSlicesOrder(t *testing.T) {
	m := Build(node(
		l4("GPU-00000001-0000-4000-8000-000000000000", ""),
		l4("GPU-00000002-0000-4000-8000-000000000000", "0000:0a:00.0"),
		l4("GPU-00000003-0000-4000-8000-000000000000", "0000:09:00.0"),
		l4("GPU-00000000-0000-4000-8000-000000000000", ""),
	), Policy{})
	want := []string{
		"counters:gpu-00000003 counters:gpu-00000002 counters:gpu-00000000 counters:gpu-00000001 ",
		"gpu-00000003 gpu-00000002 gpu-00000000 gpu-00000001 ",
	}
	if diff := cmp.Diff(want, shape(m.Slices())); diff != "" {
		t.Errorf("slices (-want +got):\n%s", diff)
	}
}

func TestEmptyPoolHasOneEmptySlice(t *testing.T) {
	for name, m := range map[string]*Model{
		"no GPU":      Build(inventory.Node{}, Policy{}),
		"none wanted": Build(node(l4(uuidA, "0000:07:00.0")), Policy{Exclude: []string{"*"}}),
	} {
		if diff := cmp.Diff([]Slice{{}}, m.Slices()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestCounterSetsGoEightToASlice(t *testing.T) {
	var gpus []inventory.GPU
	for i := range 17 {
		gpus = append(gpus, l4(fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", i), fmt.Sprintf("0000:%02x:00.0", i)))
	}
	var got []string
	for _, s := range Build(node(gpus...), Policy{}).Slices() {
		got = append(got, fmt.Sprintf("%d sets, %d devices", len(s.SharedCounters), len(s.Devices)))
	}
	want := []string{"8 sets, 0 devices", "8 sets, 0 devices", "1 sets, 0 devices", "0 sets, 17 devices"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("slices (-want +got):\n%s", diff)
	}
}

func TestDevicesOfOneGPUStayTogether(t *testing.T) {
	for _, tc := range []struct {
		name     string
		perGPU   []int // number of devices of each GPU
		perSlice []int
	}{
		{"one", []int{1}, []int{1}},
		{"exactly one slice", []int{32, 32}, []int{64}},
		{"one more starts a slice", []int{32, 33, 1}, []int{32, 34}},
		{"sixteen of 26", []int{26, 26, 26, 26, 26}, []int{52, 52, 26}},
		{"more than a slice holds", []int{10, 130, 3}, []int{10, 64, 64, 5}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := &Model{}
			for gpu, n := range tc.perGPU {
				for i := range n {
					m.Devices = append(m.Devices, Device{
						GPUUUID: fmt.Sprint(gpu),
						API:     resourceapi.Device{Name: fmt.Sprintf("gpu-%d-%d", gpu, i)},
					})
				}
			}
			var got []int
			for _, s := range m.Slices() {
				got = append(got, len(s.Devices))
			}
			if diff := cmp.Diff(tc.perSlice, got); diff != "" {
				t.Errorf("devices in each slice (-want +got):\n%s", diff)
			}
		})
	}
}

// A GPU of 26 devices and its neighbour fit in a slice.
func TestSlicesOfEightPartitionableGPUs(t *testing.T) {
	gpus := readNode(t, slices.Repeat([]string{"h100-sxm5-80gb"}, 8)...)
	var got []string
	for _, s := range Build(gpus, Policy{}).Slices() {
		got = append(got, fmt.Sprintf("%d sets, %d devices", len(s.SharedCounters), len(s.Devices)))
	}
	want := []string{"8 sets, 0 devices", "0 sets, 52 devices", "0 sets, 52 devices", "0 sets, 52 devices", "0 sets, 52 devices"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("slices (-want +got):\n%s", diff)
	}
}
