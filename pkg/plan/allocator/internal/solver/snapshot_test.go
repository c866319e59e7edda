package solver

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
)

// sliceOf changes the only slice of a pool with one device.
func sliceOf(pool, device string, change func(*resourceapi.ResourceSlice)) *resourceapi.ResourceSlice {
	s := slicesOf(pool, devices(1, device+"-%d"))[0]
	s.Name = pool + "-" + device
	change(s)
	return s
}

func inZone(zone string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
	}}}
}

var unreadable = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
	MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: "Like", Values: []string{"a"}}},
}}}

// describePools writes pools as "driver/pool: devices", incomplete and invalid ones as
// such.
func describePools(pools Pools) []string {
	var result []string
	for _, p := range pools.pools {
		p.ready()
		text := p.id.name.String() + ":"
		switch {
		case p.incomplete:
			text += " incomplete"
		case p.invalid:
			text += " invalid: " + p.invalidReason
		}
		for i := range p.devices {
			text += " " + p.devices[i].ID.Device.String()
		}
		result = append(result, text)
	}
	return result
}

func generation(number, slices int64) func(*resourceapi.ResourceSlice) {
	return func(s *resourceapi.ResourceSlice) {
		s.Spec.Pool.Generation, s.Spec.Pool.ResourceSliceCount = number, slices
	}
}

func elsewhere(s *resourceapi.ResourceSlice) { s.Spec.NodeName = ptr.To("other") }

func both(changes ...func(*resourceapi.ResourceSlice)) func(*resourceapi.ResourceSlice) {
	return func(s *resourceapi.ResourceSlice) {
		for _, change := range changes {
			change(s)
		}
	}
}

func selectedBy(selector *corev1.NodeSelector) func(*resourceapi.ResourceSlice) {
	return func(s *resourceapi.ResourceSlice) { s.Spec.NodeName, s.Spec.NodeSelector = nil, selector }
}

func eachFor(selector *corev1.NodeSelector) func(*resourceapi.ResourceSlice) {
	return func(s *resourceapi.ResourceSlice) {
		s.Spec.NodeName, s.Spec.PerDeviceNodeSelection = nil, ptr.To(true)
		s.Spec.Devices[0].NodeSelector = selector
	}
}

func TestPools(t *testing.T) {
	grouped := func(s *resourceapi.ResourceSlice) {
		s.Spec.Devices[0].ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: "s", CompatibilityGroups: []string{"g"}}}
	}
	for name, test := range map[string]struct {
		slices []*resourceapi.ResourceSlice
		want   []string
		err    string
	}{
		"one": {
			slices: []*resourceapi.ResourceSlice{sliceOf("p", "a", generation(1, 1))},
			want:   []string{"p: a-0"},
		},
		"slices by name, pools by name": {
			slices: []*resourceapi.ResourceSlice{sliceOf("q", "x", generation(1, 1)), sliceOf("p", "b", generation(1, 2)), sliceOf("p", "a", generation(1, 2))},
			want:   []string{"p: a-0 b-0", "q: x-0"},
		},
		"an older generation is ignored": {
			slices: []*resourceapi.ResourceSlice{sliceOf("p", "new", generation(2, 1)), sliceOf("p", "old", generation(1, 1))},
			want:   []string{"p: new-0"},
		},
		"a newer generation is incomplete": {
			slices: []*resourceapi.ResourceSlice{sliceOf("p", "new", generation(2, 2)), sliceOf("p", "old", generation(1, 1))},
			want:   []string{"p: incomplete"},
		},
		"the rest of the pool is elsewhere": {
			slices: []*resourceapi.ResourceSlice{sliceOf("p", "here", generation(1, 2)), sliceOf("p", "there", both(generation(1, 2), elsewhere))},
			want:   []string{"p: here-0"},
		},
		"the rest of the pool is missing": {
			slices: []*resourceapi.ResourceSlice{sliceOf("p", "here", generation(1, 3)), sliceOf("p", "there", both(generation(1, 3), elsewhere))},
			want:   []string{"p: incomplete"},
		},
		"a newer generation is elsewhere": {
			slices: []*resourceapi.ResourceSlice{sliceOf("p", "here", generation(1, 2)), sliceOf("p", "there", both(generation(2, 2), elsewhere))},
		},
		"a newer generation is elsewhere, but the old one is whole": {
			slices: []*resourceapi.ResourceSlice{sliceOf("p", "here", generation(1, 1)), sliceOf("p", "there", both(generation(2, 1), elsewhere))},
			want:   []string{"p: here-0"},
		},
		"two devices of one name": {
			slices: []*resourceapi.ResourceSlice{sliceOf("p", "a", generation(1, 2)), sliceOf("p", "b", both(generation(1, 2), func(s *resourceapi.ResourceSlice) {
				s.Spec.Devices[0].Name = "a-0"
			}))},
			want: []string{"p: invalid: duplicate device name a-0"},
		},
		"counters that are not there": {
			slices: []*resourceapi.ResourceSlice{sliceOf("p", "a", func(s *resourceapi.ResourceSlice) { consumes("s", "n=1")(&s.Spec.Devices[0]) })},
			want:   []string{"p: invalid: counter set s not found"},
		},
		"by node selector": {
			slices: []*resourceapi.ResourceSlice{sliceOf("p", "a", selectedBy(inZone("z1"))), sliceOf("q", "b", selectedBy(inZone("z2")))},
			want:   []string{"p: a-0"},
		},
		"a node selector that cannot be read": {
			slices: []*resourceapi.ResourceSlice{sliceOf("p", "a", selectedBy(unreadable))},
			err:    "ResourceSlice p-a",
		},
		"each device by itself": {
			slices: []*resourceapi.ResourceSlice{sliceOf("p", "a", eachFor(inZone("z1"))), sliceOf("q", "b", eachFor(inZone("z2")))},
			want:   []string{"p: a-0"},
		},
		"a device's node selector that cannot be read": {
			slices: []*resourceapi.ResourceSlice{sliceOf("p", "a", eachFor(unreadable))},
			err:    "device a-0 in ResourceSlice p-a",
		},
		"compatibility groups": {
			slices: []*resourceapi.ResourceSlice{sliceOf("p", "a", generation(1, 2)), sliceOf("p", "b", both(generation(1, 2), grouped))},
			want:   []string{"p: incomplete"},
		},
		"a slice for nobody": {
			slices: []*resourceapi.ResourceSlice{sliceOf("p", "a", func(s *resourceapi.ResourceSlice) { s.Spec.NodeName = nil })},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // in either order
				r := newRig()
				r.labels = map[string]string{"zone": "z1"}
				pools, err := NewSnapshot(r.cache, test.slices).Pools(r.node())
				switch {
				case test.err != "":
					if err == nil || !strings.Contains(err.Error(), test.err) {
						t.Fatalf("error %v, want %q", err, test.err)
					}
				case err != nil:
					t.Fatal(err)
				case !slices.Equal(describePools(pools), test.want):
					t.Fatalf("got %q, want %q", describePools(pools), test.want)
				}
				slices.Reverse(test.slices)
			}
		})
	}
}

func TestADeviceForAnotherNodeIsRejectedByItself(t *testing.T) {
	s := sliceOf("p", "a", eachFor(inZone("z1")))
	far, bad := device("far"), device("bad")
	far.NodeSelector, bad.NodeSelector = inZone("z2"), unreadable
	s.Spec.Devices = append(s.Spec.Devices, far)
	one := newRig(claimOf("c", exactly("r", 1)))
	one.labels, one.slices = map[string]string{"zone": "z1"}, []*resourceapi.ResourceSlice{s}
	one.check(t, []string{"r=p/a-0"})
	two := newRig(claimOf("c", exactly("r", 2)))
	two.labels, two.slices = one.labels, one.slices
	two.check(t)
	s.Spec.Devices = append(s.Spec.Devices, bad)
	two.checkError(t, "bad")
}

func TestNodesThatSeeTheSameShareAPool(t *testing.T) {
	r := newRig()
	snapshot := NewSnapshot(r.cache, []*resourceapi.ResourceSlice{sliceOf("p", "a", selectedBy(inZone("z1"))), sliceOf("q", "b", eachFor(inZone("z2")))})
	pools := func(labels ...string) Pools {
		n := &corev1.Node{}
		n.Labels = make(map[string]string)
		for i := 0; i < len(labels); i += 2 {
			n.Labels[labels[i]] = labels[i+1]
		}
		result, err := snapshot.Pools(n)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	if pools("zone", "z1").Shape() != pools("zone", "z1", "rack", "7").Shape() {
		t.Error("nodes of one zone see different shapes")
	}
	if pools("zone", "z1").Shape() == pools("zone", "z2").Shape() {
		t.Error("nodes of two zones see one shape")
	}
	if got := len(snapshot.Selectors()); got != 2 {
		t.Errorf("%d selectors, want 2", got)
	}
}

func TestANilSnapshotHasNoPools(t *testing.T) {
	var s *Snapshot
	if pools, err := s.Pools(nil); err != nil || len(pools.pools) != 0 || s.Selectors() != nil {
		t.Errorf("pools %v, error %v", pools, err)
	}
}

func TestDevicesElsewhereUseCounters(t *testing.T) {
	// The pool spans two nodes; the other one's device is in use and takes the counters.
	parts := slicesOf("p", []resourceapi.Device{device("here", consumes("s", "n=1"))}, counterSet("s", "n=1"))
	there := sliceOf("p", "there", elsewhere)
	consumes("s", "n=1")(&there.Spec.Devices[0])
	parts = append(parts, there)
	for _, s := range parts {
		s.Spec.Pool.ResourceSliceCount = 3
	}
	r := newRig(claimOf("c", exactly("a", 1)))
	r.slices = parts
	r.check(t, []string{"a=p/here"})
	r.inUse("p/there-0").check(t)
}

func TestManyOtherNodesDoNotMatter(t *testing.T) {
	r := newRig(claimOf("c", exactly("a", 1))).pool("p", devices(1, "d-%d"))
	for i := range 100 {
		r.slices = append(r.slices, sliceOf(fmt.Sprintf("o-%d", i), "x", func(s *resourceapi.ResourceSlice) {
			s.Spec.NodeName = ptr.To(fmt.Sprintf("other-%d", i))
		}))
	}
	r.check(t, []string{"a=p/d-0"})
	pools, err := NewSnapshot(r.cache, r.slices).Pools(r.node())
	if err != nil || len(pools.pools) != 1 {
		t.Errorf("%d pools, error %v", len(pools.pools), err)
	}
}

// kube-scheduler remembers a pool's counters from the first node that it looks at, and
// uses them for nodes that see another generation of the pool.
func TestEachNodeSeesTheCountersOfItsGeneration(t *testing.T) {
	published := func(node string, generation int64, have, want string) []*resourceapi.ResourceSlice {
		result := slicesOf("p", []resourceapi.Device{device("d", consumes("s", want))}, counterSet("s", have))
		for _, s := range result {
			s.Name += "-" + node
			s.Spec.NodeName, s.Spec.Pool.Generation = ptr.To(node), generation
		}
		return result
	}
	r := newRig(claimOf("c", exactly("a", 1)))
	snapshot := NewSnapshot(r.cache, append(published("a", 1, "n=1", "n=1"), published("b", 2, "n=5", "n=3")...))
	claims, err := Compile(r.cache, r.claims, r.classes)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		node := &corev1.Node{}
		node.Name = name
		pools, err := snapshot.Pools(node)
		if err != nil {
			t.Fatal(err)
		}
		if solution, err := Solve(t.Context(), Problem{Pools: pools, Claims: claims}); err != nil || !solution.Found {
			t.Errorf("node %s: found: %v, error %v (%s)", name, solution.Found, err, solution.Reason)
		}
	}
}
