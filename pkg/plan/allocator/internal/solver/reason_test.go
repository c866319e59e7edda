package solver

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

func TestReasons(t *testing.T) {
	large := `device.attributes["gpu.example.com"].size > 40`
	sizes := func(sizes ...int) []resourceapi.Device {
		var result []resourceapi.Device
		for i, size := range sizes {
			result = append(result, gpu("d-"+string(rune('a'+i)), attribute("size", size), capacityOf("memory", "10Gi")))
		}
		return result
	}
	for name, test := range map[string]struct {
		rig  *rig
		want string
	}{
		"too few": {
			rig:  newRig(claimOf("train", exactly("gpu", 16))).pool("p", devices(8, "d-%d")),
			want: "request gpu of claim train: 8 of 16 devices",
		},
		"a selector": {
			rig:  newRig(claimOf("train", exactly("gpu", 2, selecting(large)))).pool("p", sizes(80, 40, 20)),
			want: `request gpu of claim train: 1 of 2 devices; selector "device.attributes[\"gpu.example.com\"].size > 40" rejects 2`,
		},
		"a class": {
			rig:  newRig(claimOf("train", exactly("gpu", 1, ofClass("nic")))).class("nic", isNIC).pool("p", sizes(80, 40)),
			want: "request gpu of claim train: 0 of 1 devices; device class nic rejects 2",
		},
		"in use": {
			rig:  newRig(claimOf("train", exactly("gpu", 2, selecting(large)))).pool("p", sizes(80, 80, 40)).inUse("p/d-a"),
			want: `request gpu of claim train: 1 of 2 devices; selector "device.attributes[\"gpu.example.com\"].size > 40" rejects 1; in use: 1`,
		},
		"capacity": {
			rig:  newRig(claimOf("train", exactly("gpu", 1, asking("memory=20Gi")))).pool("p", sizes(1, 1)),
			want: "request gpu of claim train: 0 of 1 devices; capacity too small: 2",
		},
		"capacity in use": {
			rig: newRig(claimOf("train", exactly("gpu", 1, asking("memory=20Gi")))).
				pool("p", devices(1, "d-%d", shared, capacityOf("memory", "30Gi"))).share("p/d-0", "1", "memory=15Gi"),
			want: "request gpu of claim train: 0 of 1 devices; capacity used up: 1",
		},
		"taints": {
			rig:  newRig(claimOf("train", exactly("gpu", 1))).pool("p", devices(3, "d-%d", taint("sick", resourceapi.DeviceTaintEffectNoSchedule))),
			want: "request gpu of claim train: 0 of 1 devices; taint sick=yes:NoSchedule: 3",
		},
		"counters": {
			rig:  newRig(claimOf("train", exactly("gpu", 2))).pool("p", devices(3, "d-%d", consumes("s", "n=2")), counterSet("s", "n=4")).inUse("p/d-0"),
			want: "request gpu of claim train: 1 of 2 devices; in use: 1; counters suffice for 1",
		},
		"counters used up": {
			rig:  newRig(claimOf("train", exactly("gpu", 1))).pool("p", devices(2, "d-%d", consumes("s", "n=2")), counterSet("s", "n=3")).inUse("p/d-0"),
			want: "request gpu of claim train: 0 of 1 devices; in use: 1; counters used up: 1",
		},
		"a value": {
			rig: newRig(claimOf("train", exactly("gpu", 3), matchAll("gpu.example.com/size"))).
				pool("p", append(sizes(1, 1, 2), device("none"))),
			want: "request gpu of claim train: 2 of 3 devices; without a value for matchAttribute gpu.example.com/size: 1; matchAttribute gpu.example.com/size: at most 2 have the same value",
		},
		"different values": {
			rig:  newRig(claimOf("train", exactly("gpu", 3), distinct("gpu.example.com/size"))).pool("p", sizes(1, 1, 2)),
			want: "request gpu of claim train: 2 of 3 devices; distinctAttribute gpu.example.com/size: there are 2 values",
		},
		"all": {
			rig:  newRig(claimOf("train", exactly("gpu", 0, all))).pool("p", devices(3, "d-%d")).inUse("p/d-0"),
			want: "request gpu of claim train: 2 of all 3 devices; in use: 1",
		},
		"all of none": {
			rig:  newRig(claimOf("train", exactly("gpu", 0, all, selecting(isNIC)))).pool("p", sizes(1)),
			want: `request gpu of claim train: no device; selector "device.attributes[\"gpu.example.com\"].type == \"nic\"" rejects 1`,
		},
		"alternatives": {
			rig:  newRig(claimOf("train", firstOf("gpu", exactly("many", 3), exactly("large", 1, selecting(large))))).pool("p", sizes(1)),
			want: `request gpu of claim train: no alternative fits: request gpu/many of claim train: 1 of 3 devices | request gpu/large of claim train: 0 of 1 devices; selector "device.attributes[\"gpu.example.com\"].size > 40" rejects 1`,
		},
		"the first unmet": {
			rig:  newRig(claimOf("a", exactly("fine", 1)), claimOf("b", exactly("nic", 1, selecting(isNIC)), exactly("more", 9))).pool("p", sizes(1, 1)),
			want: `request nic of claim b: 0 of 1 devices; selector "device.attributes[\"gpu.example.com\"].type == \"nic\"" rejects 2`,
		},
		"together": {
			rig:  newRig(claimOf("a", exactly("two", 2)), claimOf("b", exactly("more", 2))).pool("p", sizes(1, 1, 1)),
			want: "request more of claim b: 1 of 2 devices; each request can be met by itself, but not all together",
		},
		"an incomplete pool": {
			rig: func() *rig {
				r := newRig(claimOf("train", exactly("gpu", 1))).pool("p", devices(2, "d-%d"))
				r.slices[0].Spec.Pool.ResourceSliceCount = 2
				return r
			}(),
			want: "request gpu of claim train: 0 of 1 devices; pool gpu.example.com/p is incomplete",
		},
		"nothing at all": {
			rig:  newRig(claimOf("train", exactly("gpu", 1))),
			want: "request gpu of claim train: 0 of 1 devices; there are no devices",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.rig.check(t).Reason; got != test.want {
				t.Errorf("got\n  %s\nwant\n  %s", got, test.want)
			}
		})
	}
}

func TestAnInvalidPoolIsAnErrorIfNothingElseWillDo(t *testing.T) {
	r := func(count int) *rig {
		return newRig(claimOf("c", exactly("a", count))).pool("bad", []resourceapi.Device{device("d"), device("d")}).pool("good", devices(1, "d-%d"))
	}
	r(1).check(t, []string{"a=good/d-0"})
	r(2).checkError(t, "1 of 2 devices", "pool gpu.example.com/bad is invalid", "duplicate device name d", "node node-a")
}

func TestLongSelectorsAreCut(t *testing.T) {
	got := newRig(claimOf("c", exactly("a", 1, selecting(strings.Repeat("false || ", 50)+"false")))).pool("p", devices(1, "d-%d")).check(t).Reason
	if len(got) > 200 || !strings.Contains(got, "...") {
		t.Errorf("%d characters: %s", len(got), got)
	}
}
