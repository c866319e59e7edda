package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"apportion.dev/apportion/internal/display"
	"apportion.dev/apportion/pkg/ownership"
)

const (
	testDriver = "gpu.apportion.dev"
	uuidA      = "GPU-4f3a1b2c-0000-4000-8000-000000000001"
	uuidB      = "GPU-0badcafe-0000-4000-8000-000000000002"
)

// noon is when the tests happen.
var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func noTerminal(io.Writer) (width, height int, ok bool) { return 0, 0, false }

// gpuDevice is a GPU as its node's driver publishes it, with eight memory slices.
func gpuDevice(name, uuid, memory string) resourceapi.Device {
	shareable := true
	return resourceapi.Device{
		Name: name, AllowMultipleAllocations: &shareable,
		Attributes:       map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"type": {StringValue: new("gpu")}, "uuid": {StringValue: &uuid}},
		Capacity:         map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse(memory)}},
		ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: name, Counters: memorySlices(8)}},
	}
}

// partitionDevice is a partition of a GPU, of a number of memory slices.
func partitionDevice(name, gpu, parent, profile, memory string, slices int) resourceapi.Device {
	d := gpuDevice(name, "", memory)
	d.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"type": {StringValue: new("mig")}, "parentUUID": {StringValue: &parent}, "profile": {StringValue: &profile},
	}
	d.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: gpu, Counters: memorySlices(slices)}}
	return d
}

func memorySlices(n int) map[string]resourceapi.Counter {
	counters := map[string]resourceapi.Counter{}
	for i := range n {
		counters[fmt.Sprintf("memory-slice-%d", i)] = resourceapi.Counter{Value: resource.MustParse("1")}
	}
	return counters
}

func sliceOf(node string, devices ...resourceapi.Device) *resourceapi.ResourceSlice {
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: testDriver, NodeName: &node, Devices: devices,
			Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		},
	}
	for _, d := range devices {
		if d.Attributes["type"].StringValue != nil && *d.Attributes["type"].StringValue == "gpu" {
			slice.Spec.SharedCounters = append(slice.Spec.SharedCounters, resourceapi.CounterSet{Name: d.Name, Counters: memorySlices(8)})
		}
	}
	return slice
}

func TestHardware(t *testing.T) {
	generation := func(slice *resourceapi.ResourceSlice, generation, count int64) *resourceapi.ResourceSlice {
		slice.Spec.Pool.Generation, slice.Spec.Pool.ResourceSliceCount = generation, count
		return slice
	}
	foreign := sliceOf("node-a", gpuDevice("gpu-9", "GPU-9", "1Gi"))
	foreign.Spec.Driver = "gpu.example.com"
	a, b := gpuDevice("gpu-4f3a1b2c", uuidA, "40Gi"), gpuDevice("gpu-0badcafe", uuidB, "40Gi")
	pool := sliceOf("pool-x", b)
	pool.Spec.NodeName = new("node-x")
	for name, test := range map[string]struct {
		slices []*resourceapi.ResourceSlice
		want   string
	}{
		"none":                          {nil, ""},
		"another driver's":              {[]*resourceapi.ResourceSlice{foreign}, ""},
		"two nodes":                     {[]*resourceapi.ResourceSlice{sliceOf("node-b", b), sliceOf("node-a", a)}, "node-a/gpu-4f3a1b2c node-b/gpu-0badcafe"},
		"a pool with a name of its own": {[]*resourceapi.ResourceSlice{pool}, "node-x/gpu-0badcafe"},
		"a removed GPU": {[]*resourceapi.ResourceSlice{
			generation(sliceOf("node-a", a), 2, 1), generation(sliceOf("node-a", a, b), 1, 1)}, "node-a/gpu-4f3a1b2c"},
		"a new generation that is not complete": {[]*resourceapi.ResourceSlice{
			generation(sliceOf("node-a", a), 2, 2), generation(sliceOf("node-a", a, b), 1, 1)}, "node-a/gpu-0badcafe node-a/gpu-4f3a1b2c"},
		"partitions that an administrator made": {[]*resourceapi.ResourceSlice{sliceOf("node-a",
			partitionDevice("gpu-0badcafe-mig-1g-5gb-0", "gpu-0badcafe", uuidB, "1g.5gb", "4864Mi", 1),
			partitionDevice("gpu-0badcafe-mig-1g-5gb-1", "gpu-0badcafe", uuidB, "1g.5gb", "4864Mi", 1))}, "node-a/gpu-0badcafe"},
		"another driver's names": {[]*resourceapi.ResourceSlice{sliceOf("node-a",
			gpuDevice("gpu-0", uuidA, "40Gi"), partitionDevice("gpu-0-mig-9-0-1", "gpu-0", uuidA, "1g.5gb", "4864Mi", 1),
			partitionDevice("gpu-1-mig-9-0-1", "gpu-1", uuidB, "1g.5gb", "4864Mi", 1))}, "node-a/" + uuidB + " node-a/gpu-0"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHardware(ownership.NewPublished(testDriver, test.slices))
			var got []string
			for _, gpu := range h.gpus {
				got = append(got, h.nodeOf(gpu.pool)+"/"+gpu.name)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("GPUs are %s, want %s", got, test.want)
			}
		})
	}
}

// evil is what a user of a namespace may write, and more.
const evil = "\x1b[2J\x1b]0;title\a\u009b31m\u202e\U000e0041\x7f"

func evilOwners() []ownership.Owner {
	return []ownership.Owner{{
		Device: ownership.Device{
			Driver: testDriver, Pool: "n" + evil, Name: "d" + evil, UUID: "u" + evil, ParentUUID: "p" + evil, Type: "mig", Profile: "f" + evil,
			ShareID: "s" + evil, Fraction: 0.5,
		},
		Claim: ownership.ClaimRef{Namespace: "ns" + evil, Name: "c" + evil, UID: "i" + evil}, Request: "r" + evil,
		Consumed: map[string]string{"memory" + evil: evil, "memory": evil}, Since: noon,
		Consumers: []ownership.Consumer{{
			Namespace: "ns" + evil, Name: "p" + evil, UID: "i" + evil, Node: evil, State: ownership.PodState(evil),
			Workload:   &ownership.Workload{APIVersion: evil, Kind: "K" + evil, Name: evil},
			Labels:     map[string]string{"l" + evil: evil},
			Containers: []ownership.Container{{Name: evil, Kind: ownership.ContainerKind(evil), ID: evil}},
		}},
	}}
}

func TestNoTextReachesTheTerminalAsControlCharacters(t *testing.T) {
	v := View{owners: evilOwners(), problem: "problem" + evil + "\nsecond line"}
	for _, output := range []string{"table", "wide", "json", "yaml"} {
		for _, by := range []string{"", ByNamespace, ByWorkload, ByNode} {
			for _, width := range []int{0, 40} {
				o := &Options{Output: output, By: by}
				var out strings.Builder
				if err := o.render(&out, v, noon, width); err != nil {
					t.Fatal(err)
				}
				if out.Len() == 0 || strings.ContainsFunc(out.String(), isHarmful) {
					t.Errorf("%s by %q, %d wide: %q", output, by, width, out.String())
				}
			}
		}
	}
	s := screen{options: &Options{Output: Table, Now: func() time.Time { return noon }, Terminal: noTerminal}}
	var out strings.Builder
	s.out = &out
	if err := s.show(v); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(out.String(), isHarmful) || strings.Count(out.String(), "\n") != 5 {
		t.Errorf("a watch shows %q", out.String())
	}
}

func isHarmful(r rune) bool { return r != '\n' && display.Visible(string(r)) != string(r) }

// What programs read says what was there.
func TestHarmlessJSONAndYAMLKeepTheText(t *testing.T) {
	want := List{Owners: evilOwners()}
	for _, output := range []string{"json", "yaml"} {
		var out strings.Builder
		if err := display.PrintHarmless(&out, output, want); err != nil {
			t.Fatal(err)
		}
		var got List
		unmarshal := func(data []byte) error { return json.Unmarshal(data, &got) }
		if output == "yaml" {
			unmarshal = func(data []byte) error { return yaml.UnmarshalStrict(data, &got) }
		}
		if err := unmarshal([]byte(out.String())); err != nil {
			t.Fatalf("%v in %s", err, out.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", output, diff)
		}
	}
}

func TestAge(t *testing.T) {
	for since, want := range map[time.Time]string{
		{}:                              "-",
		noon:                            "0s",
		noon.Add(time.Minute):           "0s", // Clocks differ.
		noon.Add(-90 * time.Minute):     "90m",
		noon.Add(-30 * time.Hour):       "30h",
		noon.Add(-400 * 24 * time.Hour): "400d",
	} {
		if got := age(since, noon); got != want {
			t.Errorf("since %s: %s, want %s", since, got, want)
		}
	}
	if got := age(noon, time.Time{}); got != "-" {
		t.Errorf("without a clock: %s", got)
	}
}

func TestNumbers(t *testing.T) {
	for gpus, want := range map[float64]string{0: "0", 1: "1", 0.125: "0.125", 1.0 / 3: "0.333", 0.1 + 0.2: "0.3", 16: "16"} {
		if got := parts(gpus); got != want {
			t.Errorf("%v is written %s, want %s", gpus, got, want)
		}
	}
	if got := rounded(0.1 + 0.2); got != 0.3 {
		t.Errorf("0.1 + 0.2 = %v", got)
	}
	if got := fmt.Sprint(percent(0), percent(1), percent(0.4375)); got != "0.0%100.0%43.8%" {
		t.Errorf("percentages are %s", got)
	}
}

func TestWhatIsHeldOfADevice(t *testing.T) {
	unknown := newHardware(ownership.NewPublished(testDriver, nil))
	known := newHardware(ownership.NewPublished(testDriver, []*resourceapi.ResourceSlice{sliceOf("n",
		gpuDevice("gpu-4f3a1b2c", uuidA, "40Gi"), partitionDevice("gpu-0badcafe-mig-1g-5gb-me-3", "gpu-0badcafe", uuidB, "1g.5gb+me", "4Gi", 1))}))
	gpu := ownership.Device{Pool: "n", Name: "gpu-4f3a1b2c", Type: "gpu", Fraction: 1}
	mig := ownership.Device{Pool: "n", Name: "gpu-0badcafe-mig-1g-5gb-me-3", Type: "mig", Profile: "1g.5gb+me", Fraction: 0.125}
	shared := func(d ownership.Device, fraction float64) ownership.Device {
		d.ShareID, d.Fraction = "s", fraction
		return d
	}
	memory := func(amount string) map[string]string { return map[string]string{"memory": amount} }
	for name, test := range map[string]struct {
		hardware *hardware
		owner    ownership.Owner
		others   int
		want     string
	}{
		"a GPU that is not shared":         {nil, ownership.Owner{Device: gpu}, 0, "whole"},
		"all of a GPU":                     {nil, ownership.Owner{Device: shared(gpu, 1), Consumed: memory("40Gi")}, 0, "whole"},
		"a part of a GPU":                  {nil, ownership.Owner{Device: shared(gpu, 0.25), Consumed: memory("10Gi")}, 0, "share"},
		"a GPU of unknown size":            {nil, ownership.Owner{Device: shared(gpu, 0), Consumed: memory("10Gi")}, 0, "-"},
		"a GPU of unknown size and others": {nil, ownership.Owner{Device: shared(gpu, 0), Consumed: memory("10Gi")}, 1, "share"},
		"a GPU of known size":              {known, ownership.Owner{Device: shared(gpu, 0), Consumed: memory("10Gi")}, 0, "share"},
		"an onlooker":                      {known, ownership.Owner{Device: shared(gpu, 0), AdminAccess: true}, 0, "admin"},
		"a partition":                      {nil, ownership.Owner{Device: mig}, 0, "1g.5gb+me@3"},
		"all of a partition":               {known, ownership.Owner{Device: shared(mig, 0.125), Consumed: memory("4Gi")}, 0, "1g.5gb+me@3"},
		"a part of a partition":            {known, ownership.Owner{Device: shared(mig, 0.06), Consumed: memory("2Gi")}, 0, "1g.5gb+me@3 share"},
		"a partition of unknown size":      {unknown, ownership.Owner{Device: shared(mig, 0.125), Consumed: memory("2Gi")}, 0, "1g.5gb+me@3"},
		"a partition and others":           {nil, ownership.Owner{Device: shared(mig, 0.06), Consumed: memory("2Gi")}, 1, "1g.5gb+me@3 share"},
		"an onlooker on a partition":       {known, ownership.Owner{Device: shared(mig, 0), AdminAccess: true}, 1, "1g.5gb+me@3 admin"},
		"another driver's partition":       {nil, ownership.Owner{Device: ownership.Device{Name: "gpu-0-mig-19-0-1", Type: "mig", Profile: "1g.5gb"}}, 0, "1g.5gb"},
		"a partition without profile":      {nil, ownership.Owner{Device: ownership.Device{Name: "gpu-0-mig-19-0-1", Type: "mig"}}, 0, "-"},
	} {
		t.Run(name, func(t *testing.T) {
			v := View{hardware: test.hardware, owners: []ownership.Owner{test.owner}}
			for range test.others {
				other := ownership.Owner{Device: test.owner.Device}
				other.Device.ShareID = "other"
				v.owners = append(v.owners, other, other)
			}
			if got := newHolds(v, v.owners[:1], noon)[0].part; got != test.want {
				t.Errorf("it is %q, want %q", got, test.want)
			}
		})
	}
}
