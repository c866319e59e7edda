package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/pkg/plan/allocator"
)

func TestNewRefusesWhatMakesNoSense(t *testing.T) {
	for want, options := range map[string]allocator.Options{
		`unknown policy "fastest": use predict or best-fit`: {Policy: "fastest"},
		"budget -1 is negative":                             {Budget: -1},
	} {
		if _, err := allocator.New(options); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestAllocateRefusesBadCalls(t *testing.T) {
	a := newInputs().new(t)
	one, two := rigType("one", nil), rigType("two", nil)
	for want, target := range map[string]allocator.Target{
		`target "": it has no ID`:                                      {InstanceTypes: rigTypes(one)},
		`target "a": it has neither a node nor instance types`:         {ID: "a"},
		`target "a": a node is of one instance type, not of 2`:         {ID: "a", Node: rigNode("a"), InstanceTypes: rigTypes(one, two)},
		`target "a": instance type 1 has no name`:                      {ID: "a", InstanceTypes: rigTypes(one, rigType("", nil))},
		`target a: there are several instance types with the name one`: {ID: "a", InstanceTypes: rigTypes(one, rigType("one", nil))},
		`target a: selector: nodeSelectorTerms[0].matchExpressions[0].values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty`: {
			ID: "a", InstanceTypes: rigTypes(one), Selectors: []*corev1.NodeSelector{rigSelector(rigIn("x"))},
		},
	} {
		if _, err := a.Allocate(t.Context(), target, nil); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestAnEndedContextIsAnError(t *testing.T) {
	a := newInputs().new(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := a.Allocate(ctx, allocator.Target{ID: "a", InstanceTypes: rigTypes(rigType("one", nil, rigGPUs(1)...))}, []*resourceapi.ResourceClaim{rigClaim("c", 1)})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// question is one call on a fresh allocator.
type question struct {
	rig    *inputs
	target allocator.Target
	claims []*resourceapi.ResourceClaim
	want   []string
}

func ask(t *testing.T, questions map[string]question) {
	t.Helper()
	for name, q := range questions {
		t.Run(name, func(t *testing.T) {
			if q.target.ID == "" {
				q.target.ID = "target"
			}
			rigWant(t, rigAsk(t, q.rig.new(t), q.target, q.claims...), q.want...)
		})
	}
}

func podClaims(c ...*resourceapi.ResourceClaim) []*resourceapi.ResourceClaim { return c }

func selectors(s ...*corev1.NodeSelector) []*corev1.NodeSelector { return s }

func TestNodeClaims(t *testing.T) {
	zones := []string{"a", "b", "c"}
	small, large := rigType("small", zones, rigGPUs(1)...), rigType("large", zones, rigGPUs(2)...)
	ask(t, map[string]question{
		"no claims": {
			rig: newInputs(), target: allocator.Target{InstanceTypes: rigTypes(small, large)},
			want: []string{"small {}:", "large {}:"},
		},
		"devices of templates": {
			rig: newInputs(), target: allocator.Target{InstanceTypes: rigTypes(small, large)}, claims: podClaims(rigClaim("c", 2)),
			want: []string{"large {}: c:r=gpu-0,r=gpu-1", "small - request r of claim c..."},
		},
		"a claim that the pod names twice gets devices once": {
			rig: newInputs(), target: allocator.Target{InstanceTypes: rigTypes(small)}, claims: podClaims(rigClaim("c", 1), rigClaim("c", 1)),
			want: []string{"small {}: c:r=gpu-0"},
		},
		"devices of the cluster come first where the driver's name does": {
			rig:    newInputs().slices(rigSlice("p", rigEverywhere, rigGPU("d"))),
			target: allocator.Target{InstanceTypes: rigTypes(small, large)}, claims: podClaims(rigClaim("c", 2)),
			want: []string{"small {}: c:r=p/d,r=gpu-0", "large {}: c:r=p/d,r=gpu-0"},
		},
		"devices of a zone": {
			rig:    newInputs().slices(rigSlice("p", rigInZones("b"), rigGPU("d"))),
			target: allocator.Target{InstanceTypes: rigTypes(small)}, claims: podClaims(rigClaim("c", 2)),
			want: []string{"small {zone In b}: c:r=p/d,r=gpu-0"},
		},
		"the same where it does not matter": {
			rig:    newInputs().slices(rigSlice("p", rigInZones("b"), rigModel("d", "other"))),
			target: allocator.Target{InstanceTypes: rigTypes(rigType("t", zones, rigModel("g", "x")))}, claims: podClaims(rigClaim("c", 1, rigOfModel("x"))),
			want: []string{"t {}: c:r=g"},
		},
		"other devices in other zones": {
			rig:    newInputs().slices(rigSlice("p", rigInZones("b"), rigGPU("d")), rigSlice("q", rigInZones("b", "c"), rigGPU("e"))),
			target: allocator.Target{InstanceTypes: rigTypes(small)}, claims: podClaims(rigClaim("c", 2)),
			want: []string{"small {zone In b}: c:r=p/d,r=q/e", "small {zone In c}: c:r=q/e,r=gpu-0"},
		},
		"a zone that the target does not allow": {
			rig:    newInputs().slices(rigSlice("p", rigInZones("b"), rigGPU("d"))),
			target: allocator.Target{InstanceTypes: rigTypes(small), Selectors: selectors(rigSelector(rigNotIn(rigZone, "b")))}, claims: podClaims(rigClaim("c", 2)),
			want: []string{"small - request r of claim c..."},
		},
		"a label of which nothing is known": {
			rig:    newInputs().slices(rigSlice("p", rigInZones("b"), rigGPU("d"))),
			target: allocator.Target{InstanceTypes: rigTypes(rigType("t", nil, rigGPUs(1)...))}, claims: podClaims(rigClaim("c", 1)),
			want: []string{"t {zone In b}: c:r=p/d", "t {zone NotIn b}: c:r=gpu-0"},
		},
		"instance types that the target does not allow": {
			rig:    newInputs(),
			target: allocator.Target{InstanceTypes: rigTypes(small, rigType("d", []string{"d"}, rigGPUs(1)...)), Selectors: selectors(rigSelector(rigIn(rigZone, "d")))},
			claims: podClaims(rigClaim("c", 1)),
			want:   []string{"d {}: c:r=gpu-0", "small - label topology.kubernetes.io/zone: a, b, c is not what the selectors ask for (in [d])"},
		},
		"devices of a node that exists": {
			rig:    newInputs().slices(rigSlice("n1", rigOnNode("n1"), rigGPU("d"))),
			target: allocator.Target{InstanceTypes: rigTypes(rigType("none", nil))}, claims: podClaims(rigClaim("c", 1)),
			want: []string{"none - request r of claim c..."},
		},
		"devices for all but one node": {
			rig: newInputs().slices(rigSlice("p", func(s *resourceapi.ResourceSliceSpec) {
				s.NodeSelector = rigNamed(corev1.NodeSelectorOpNotIn, "n1")
			}, rigGPU("d"))),
			target: allocator.Target{InstanceTypes: rigTypes(rigType("none", nil))}, claims: podClaims(rigClaim("c", 1)),
			want: []string{"none {}: c:r=p/d"},
		},
		"a reason for each part of the labels": {
			rig:    newInputs().slices(rigSlice("p", rigInZones("b"), rigGPU("d"))),
			target: allocator.Target{InstanceTypes: rigTypes(rigType("none", zones))}, claims: podClaims(rigClaim("c", 2)),
			want: []string{"none - with topology.kubernetes.io/zone in [a, c]: request r of claim c: 0 of 2 devices; there are no devices; " +
				"with topology.kubernetes.io/zone in [b]: request r of claim c: 1 of 2 devices"},
		},
		"devices with places of their own": {
			rig: newInputs().slices(rigSlice("p", func(s *resourceapi.ResourceSliceSpec) {
				s.PerDeviceNodeSelection = new(true)
				s.Devices[0].NodeSelector = rigSelector(rigIn(rigZone, "b"))
				s.Devices[1].AllNodes = new(true)
				s.Devices[2].NodeName = new("n1")
			}, rigGPU("d0"), rigGPU("d1"), rigGPU("d2"))),
			target: allocator.Target{InstanceTypes: rigTypes(rigType("none", zones))}, claims: podClaims(rigClaim("c", 2)),
			want: []string{"none {zone In b}: c:r=p/d0,r=p/d1"},
		},
		"a class that does not exist": {
			rig: newInputs(), target: allocator.Target{InstanceTypes: rigTypes(small)},
			claims: podClaims(rigClaim("c", 1, func(e *resourceapi.ExactDeviceRequest) { e.DeviceClassName = "missing" })),
			want:   []string{"small - claim default/c, request r: device class missing does not exist (error)"},
		},
		"a wrong template costs only its instance type": {
			rig: newInputs(), target: allocator.Target{InstanceTypes: rigTypes(rigType("twice", nil, rigGPU("d"), rigGPU("d")), small)}, claims: podClaims(rigClaim("c", 1)),
			want: []string{"small {}: c:r=gpu-0", "twice - template of driver gpu.example.com: duplicate device name d (error)"},
		},
	})
}

func TestAllocatedClaims(t *testing.T) {
	zones := rigTypes(rigType("t", []string{"a", "b"}, rigGPUs(1)...))
	inZone := func(zone string) *resourceapi.ResourceClaim {
		return rigAllocated(rigClaim("have", 1), rigSelector(rigIn(rigZone, zone)), "p/d")
	}
	ask(t, map[string]question{
		"everywhere": {
			rig: newInputs(), target: allocator.Target{InstanceTypes: zones}, claims: podClaims(rigAllocated(rigClaim("have", 1), nil, "p/d"), rigClaim("c", 1)),
			want: []string{"t {}: c:r=gpu-0"},
		},
		"in one zone": {
			rig: newInputs(), target: allocator.Target{InstanceTypes: zones}, claims: podClaims(inZone("b"), rigClaim("c", 1)),
			want: []string{"t {zone In b}: c:r=gpu-0"},
		},
		"in one zone, and nothing else is needed": {
			rig: newInputs(), target: allocator.Target{InstanceTypes: zones}, claims: podClaims(inZone("b")),
			want: []string{"t {zone In b}:"},
		},
		"in another zone": {
			rig: newInputs(), target: allocator.Target{InstanceTypes: zones}, claims: podClaims(inZone("x")),
			want: []string{"t - allocated claim default/have cannot be used on nodes with label topology.kubernetes.io/zone: a, b"},
		},
		"in two zones": {
			rig: newInputs(), target: allocator.Target{InstanceTypes: zones},
			claims: podClaims(inZone("b"), rigAllocated(rigClaim("too", 1), rigSelector(rigIn(rigZone, "a")), "p/e")),
			want:   []string{"t - allocated claim default/too cannot be used on nodes with label topology.kubernetes.io/zone: a, b"},
		},
		"by one of several terms": {
			rig: newInputs(), target: allocator.Target{InstanceTypes: zones},
			claims: podClaims(rigAllocated(rigClaim("have", 1), &corev1.NodeSelector{NodeSelectorTerms: append(
				rigSelector(rigIn(rigZone, "x")).NodeSelectorTerms, rigSelector(rigIn(rigZone, "b")).NodeSelectorTerms...)}, "p/d")),
			want: []string{"t {zone In b}:"},
		},
		"on a node by name": {
			rig: newInputs(), target: allocator.Target{InstanceTypes: zones}, claims: podClaims(rigAllocated(rigClaim("have", 1), rigNamed(corev1.NodeSelectorOpIn, "n1"), "n1/d")),
			want: []string{"t - allocated claim default/have cannot be used on a new node"},
		},
		"on this node by name": {
			rig: newInputs(), target: allocator.Target{Node: rigNode("n1")}, claims: podClaims(rigAllocated(rigClaim("have", 1), rigNamed(corev1.NodeSelectorOpIn, "n1"), "n1/d")),
			want: []string{" {}:"},
		},
		"on another node by name": {
			rig: newInputs(), target: allocator.Target{Node: rigNode("n2")}, claims: podClaims(rigAllocated(rigClaim("have", 1), rigNamed(corev1.NodeSelectorOpIn, "n1"), "n1/d")),
			want: []string{" - allocated claim default/have can only be used on nodes with metadata.name in [n1]"},
		},
		"on a node by label": {
			rig: newInputs(), target: allocator.Target{Node: rigNode("n2", rigZone, "b")}, claims: podClaims(inZone("b")),
			want: []string{" {}:"},
		},
		"a selector that the API would not accept": {
			rig: newInputs(), target: allocator.Target{InstanceTypes: zones}, claims: podClaims(rigAllocated(rigClaim("have", 1), rigSelector(rigIn(rigZone)), "p/d")),
			want: []string{"t - claim default/have: status.allocation.nodeSelector: nodeSelectorTerms[0].matchExpressions[0].values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty (error)"},
		},
		"held devices are not free": {
			rig:    newInputs().slices(rigSlice("p", rigEverywhere, rigGPU("d"), rigGPU("e"))).allocated(rigAllocated(rigClaim("other", 1), nil, "p/d")),
			target: allocator.Target{InstanceTypes: rigTypes(rigType("none", nil))}, claims: podClaims(rigClaim("c", 1)),
			want: []string{"none {}: c:r=p/e"},
		},
	})
}

func TestDepartingClaims(t *testing.T) {
	leaving := func() *resourceapi.ResourceClaim {
		return rigReserved(rigAllocated(rigClaim("c", 1), rigNamed(corev1.NodeSelectorOpIn, "n1"), "p/d"), "leaves", "leaves-too")
	}
	departing := func(pods ...string) *inputs {
		r := newInputs().slices(rigSlice("p", rigEverywhere, rigGPU("d")))
		r.Departing = map[types.UID]bool{}
		for _, pod := range pods {
			r.Departing[types.UID(pod)] = true
		}
		return r
	}
	none := allocator.Target{ID: "target", InstanceTypes: rigTypes(rigType("none", nil))}
	ask(t, map[string]question{
		"all its pods leave": {
			rig: departing("leaves", "leaves-too").allocated(leaving()), target: none, claims: podClaims(leaving()),
			want: []string{"none {}: c:r=p/d"},
		},
		"one pod stays": {
			rig: departing("leaves").allocated(leaving()), target: none, claims: podClaims(leaving()),
			want: []string{"none - allocated claim default/c cannot be used on a new node"},
		},
		"its devices are free for others": {
			rig: departing("leaves", "leaves-too").allocated(leaving()), target: none, claims: podClaims(rigClaim("x", 1)),
			want: []string{"none {}: x:r=p/d"},
		},
	})
	t.Run("it is not allocated twice for two pods that leave", func(t *testing.T) {
		a := departing("leaves", "leaves-too").allocated(leaving()).new(t)
		rigCommit(t, a, none, leaving())
		rigWant(t, rigAsk(t, a, none, leaving()), "none {}:")
	})
}

func TestAllocatedState(t *testing.T) {
	admin := rigAllocated(rigClaim("admin", 1), nil, "p/watched")
	admin.Status.Allocation.Devices.Results[0].AdminAccess = new(true)
	gone := rigReserved(rigAllocated(rigClaim("gone", 1), nil, "p/gone"), "departed")
	state := allocator.Allocated(podClaims(
		rigClaim("unallocated", 1),
		rigAllocated(rigClaim("whole", 2), nil, "p/a", "q/b"),
		rigAllocated(rigClaim("share", 1), nil, "p/s=10Gi", "p/s=5Gi"),
		rigAllocated(rigClaim("other-share", 1), nil, "p/s=1Gi"),
		admin, gone,
	), map[types.UID]bool{"departed": true})
	var exclusive []string
	for id := range state.AllocatedDevices {
		exclusive = append(exclusive, id.String())
	}
	slices.Sort(exclusive)
	if got := strings.Join(exclusive, " "); got != "gpu.example.com/p/a gpu.example.com/q/b" {
		t.Errorf("exclusive: %s", got)
	}
	var shares []string
	for id := range state.AllocatedSharedDeviceIDs {
		shares = append(shares, id.String())
	}
	slices.Sort(shares)
	if got := strings.Join(shares, " "); got != "gpu.example.com/p/s/other-share-0 gpu.example.com/p/s/share-0 gpu.example.com/p/s/share-1" {
		t.Errorf("shares: %s", got)
	}
	if len(state.AggregatedCapacity) != 1 {
		t.Errorf("capacity of %d devices", len(state.AggregatedCapacity))
	}
	for _, capacity := range state.AggregatedCapacity {
		if got := capacity[rigMemory].String(); got != "16Gi" {
			t.Errorf("consumed: %s", got)
		}
	}
}

func TestDeparts(t *testing.T) {
	departing := map[types.UID]bool{"a": true, "b": true}
	other := rigClaim("c", 1)
	other.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{APIGroup: "batch", Resource: "jobs", UID: "a"}}
	for name, test := range map[string]struct {
		claim *resourceapi.ResourceClaim
		want  bool
	}{
		"reserved for nothing":         {rigClaim("c", 1), false},
		"for pods that depart":         {rigReserved(rigClaim("c", 1), "a", "b"), true},
		"for one that stays":           {rigReserved(rigClaim("c", 1), "a", "x"), false},
		"for something that is no pod": {other, false},
	} {
		if got := allocator.Departs(test.claim, departing); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestNodes(t *testing.T) {
	onNode := newInputs().slices(
		rigSlice("n1", rigOnNode("n1"), rigGPU("d0"), rigGPU("d1")), rigSlice("n2", rigOnNode("n2"), rigGPU("e0")),
		rigSlice("za", rigInZones("a"), rigGPU("f0")),
	).allocated(rigAllocated(rigClaim("other", 1), nil, "n1/d0"))
	ask(t, map[string]question{
		"its devices that are free": {
			rig: onNode, target: allocator.Target{Node: rigNode("n1")}, claims: podClaims(rigClaim("c", 1)),
			want: []string{" {}: c:r=n1/d1"},
		},
		"and those that its labels reach": {
			rig: onNode, target: allocator.Target{Node: rigNode("n1", rigZone, "a")}, claims: podClaims(rigClaim("c", 2)),
			want: []string{" {}: c:r=n1/d1,r=za/f0"},
		},
		"no more": {
			rig: onNode, target: allocator.Target{Node: rigNode("n1", rigZone, "b")}, claims: podClaims(rigClaim("c", 2)),
			want: []string{" - request r of claim c..."},
		},
		"a selector that it does not match": {
			rig: onNode, target: allocator.Target{Node: rigNode("n1", rigZone, "b"), Selectors: selectors(rigSelector(rigIn(rigZone, "a")))}, claims: podClaims(rigClaim("c", 1)),
			want: []string{" - the node does not match the selectors (topology.kubernetes.io/zone in [a])"},
		},
	})
}

func TestUninitializedNodes(t *testing.T) {
	type8 := rigType("t", []string{"elsewhere"}, rigGPUs(2)...)
	parts := rigType("parts", nil)
	parts.Templates = []allocator.Template{{Driver: rigDriver, Slices: []allocator.TemplateSlice{
		{SharedCounters: []resourceapi.CounterSet{rigCounters("g0", "40Gi"), rigCounters("g1", "40Gi")}},
		{Devices: []resourceapi.Device{rigPart("g0-10", "g0", "10Gi"), rigPart("g0-40", "g0", "40Gi"), rigPart("g1-10", "g1", "10Gi"), rigPart("g1-40", "g1", "40Gi")}},
	}}}
	shared := rigType("shared", nil, rigGPU("whole"), rigShared("s0", "40Gi"), rigShared("s1", "40Gi"))
	held := func(devices ...string) *inputs {
		return newInputs().allocated(rigAllocated(rigClaim("other", 1), nil, devices...))
	}
	uninitialized := func(r *inputs, slices ...*resourceapi.ResourceSlice) *inputs {
		r.Uninitialized = slices
		return r
	}
	ask(t, map[string]question{
		"its own labels count": {
			rig: newInputs(), target: allocator.Target{Node: rigNode("n1", rigZone, "a"), InstanceTypes: rigTypes(type8), Selectors: selectors(rigSelector(rigIn(rigZone, "a")))},
			claims: podClaims(rigClaim("c", 2)), want: []string{"t {}: c:r=gpu-0,r=gpu-1"},
		},
		"a device that is held by the name in the template": {
			rig: held("n1/gpu-1"), target: allocator.Target{Node: rigNode("n1"), InstanceTypes: rigTypes(type8)},
			claims: podClaims(rigClaim("c", 1)), want: []string{"t {}: c:r=gpu-0"},
		},
		"by another name": {
			rig: held("n1/gpu-4f3a"), target: allocator.Target{Node: rigNode("n1"), InstanceTypes: rigTypes(type8)},
			claims: podClaims(rigClaim("c", 1)), want: []string{"t {}: c:r=gpu-1"},
		},
		"all held": {
			rig: held("n1/x", "n1/y", "n1/z"), target: allocator.Target{Node: rigNode("n1"), InstanceTypes: rigTypes(type8)},
			claims: podClaims(rigClaim("c", 1)), want: []string{"t - request r of claim c..."},
		},
		"devices of other nodes do not count": {
			rig: held("n2/gpu-0"), target: allocator.Target{Node: rigNode("n1"), InstanceTypes: rigTypes(type8)},
			claims: podClaims(rigClaim("c", 2)), want: []string{"t {}: c:r=gpu-0,r=gpu-1"},
		},
		"an unknown partition counts as a whole GPU": {
			rig: held("n1/x"), target: allocator.Target{Node: rigNode("n1"), InstanceTypes: rigTypes(parts)},
			claims: podClaims(rigClaim("c", 1)), want: []string{"parts {}: c:r=g1-10"},
		},
		"a known partition is one": {
			rig: uninitialized(held("n1/x"), rigSlice("n1", rigOnNode("n1"), rigPart("x", "any", "10Gi"))), target: allocator.Target{Node: rigNode("n1"), InstanceTypes: rigTypes(parts)},
			claims: podClaims(rigClaim("c", 1)), want: []string{"parts {}: c:r=g1-10"},
		},
		"a known model is found": {
			rig:    uninitialized(held("n1/x"), rigSlice("n1", rigOnNode("n1"), rigModel("x", "h100"))),
			target: allocator.Target{Node: rigNode("n1"), InstanceTypes: rigTypes(rigType("t", nil, rigModel("a", "a100"), rigModel("h", "h100")))},
			claims: podClaims(rigClaim("c", 1)), want: []string{"t {}: c:r=a"},
		},
		"shares are of a device that can be shared": {
			rig: held("n1/x=30Gi", "n1/x=5Gi"), target: allocator.Target{Node: rigNode("n1"), InstanceTypes: rigTypes(shared)},
			claims: podClaims(rigClaim("c", 1, rigWithMemory("10Gi"))), want: []string{"shared {}: c:r=s1(10Gi)"},
		},
		"what is left of a share can be had": {
			rig: held("n1/x=30Gi"), target: allocator.Target{Node: rigNode("n1"), InstanceTypes: rigTypes(shared)},
			claims: podClaims(rigClaim("c", 1, rigWithMemory("10Gi"))), want: []string{"shared {}: c:r=s0(10Gi)"},
		},
	})
}

func TestBestFit(t *testing.T) {
	priced := func(name string, price float64, devices ...resourceapi.Device) *allocator.InstanceType {
		i := rigType(name, nil, devices...)
		i.Price = price
		return i
	}
	ask(t, map[string]question{
		"the cheapest first, then by name, unknown last": {
			rig: newInputs().policy(allocator.BestFit),
			target: allocator.Target{InstanceTypes: rigTypes(
				priced("free", 0, rigGPUs(1)...), priced("dear", 9, rigGPUs(1)...), priced("b", 2, rigGPUs(1)...), priced("a", 2, rigGPUs(1)...),
			)},
			claims: podClaims(rigClaim("c", 1)),
			want:   []string{"a {}: c:r=gpu-0", "b {}: c:r=gpu-0", "dear {}: c:r=gpu-0", "free {}: c:r=gpu-0"},
		},
		"kube-scheduler would take another": {
			rig:    newInputs().policy(allocator.BestFit),
			target: allocator.Target{InstanceTypes: rigTypes(bigFirst())},
			claims: podClaims(rigClaim("c", 1)),
			want:   []string{"big-first {}: c:r=small", "big-first unlike"},
		},
		"predict takes what kube-scheduler takes": {
			rig:    newInputs(),
			target: allocator.Target{InstanceTypes: rigTypes(bigFirst())},
			claims: podClaims(rigClaim("c", 1)),
			want:   []string{"big-first {}: c:r=big"},
		},
	})
}

// bigFirst publishes a large partition before a small one.
func bigFirst() *allocator.InstanceType {
	return &allocator.InstanceType{Name: "big-first", Templates: []allocator.Template{{Driver: rigDriver, Slices: []allocator.TemplateSlice{
		{SharedCounters: []resourceapi.CounterSet{rigCounters("g", "40Gi")}},
		{Devices: []resourceapi.Device{rigPart("big", "g", "40Gi"), rigPart("small", "g", "10Gi")}},
	}}}}
}

func TestTheBudgetOfOneInstanceTypeCostsNoOther(t *testing.T) {
	// Four devices of one model are wanted. Of "hard" the first models have only three.
	var mixed []resourceapi.Device
	for i := range 30 {
		mixed = append(mixed, rigModel(fmt.Sprintf("d%d", i), fmt.Sprint(i/3)))
	}
	mixed[29].Attributes = mixed[26].Attributes
	claim := rigClaim("c", 4)
	claim.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: new(resourceapi.FullyQualifiedName(rigDriver + "/model"))}}
	easy := func(name string) *allocator.InstanceType {
		return rigType(name, nil, rigModel("a", "x"), rigModel("b", "x"), rigModel("c", "x"), rigModel("d", "x"))
	}
	r := newInputs()
	r.Budget = 6
	target := allocator.Target{ID: "target", InstanceTypes: rigTypes(easy("easy"), rigType("hard", nil, mixed...), easy("easy-too"))}
	rigWant(t, rigAsk(t, r.new(t), target, claim),
		"easy {}: c:r=a,r=b,r=c,r=d", "easy-too {}: c:r=a,r=b,r=c,r=d", "hard - not decided within 6 search nodes (unknown)")
	r.Budget = 0
	rigWant(t, rigAsk(t, r.new(t), target, claim),
		"easy {}: c:r=a,r=b,r=c,r=d", "hard {}: c:r=d24,r=d25,r=d26,r=d29", "easy-too {}: c:r=a,r=b,r=c,r=d")
}

func TestTooManyLabelsAreUnknown(t *testing.T) {
	r := newInputs()
	for i := range 40 {
		name := string(rune('a'+i%26)) + string(rune('a'+i/26))
		r.slices(rigSlice("x"+name, func(s *resourceapi.ResourceSliceSpec) { s.NodeSelector = rigSelector(rigIn("x", name)) }, rigGPU("d")))
		r.slices(rigSlice("y"+name, func(s *resourceapi.ResourceSliceSpec) { s.NodeSelector = rigSelector(rigIn("y", name)) }, rigGPU("d")))
	}
	few := rigType("few", nil, rigGPUs(1)...)
	few.Labels = map[string][]string{"x": {"aa"}, "y": {"none"}}
	rigWant(t, rigAsk(t, r.new(t), allocator.Target{ID: "target", InstanceTypes: rigTypes(few, rigType("many", nil, rigGPUs(1)...))}, rigClaim("c", 2)),
		"few {}: c:r=xaa/d,r=gpu-0",
		"many - the labels x, y may be combined in more than 1024 ways (unknown)")
}
