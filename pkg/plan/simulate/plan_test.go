package simulate_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"apportion.dev/apportion/pkg/plan/allocator"
	"apportion.dev/apportion/pkg/plan/simulate"
)

// planTest is an input with the outline of its plan, which was worked out by hand.
type planTest struct {
	input func() *simulate.Input
	want  []string
}

func checkPlans(t *testing.T, tests map[string]planTest) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, outline(makePlan(t, test.input(), allocator.Predict))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPlansForDevices(t *testing.T) {
	checkPlans(t, map[string]planTest{
		// The eight of a fill a node. b may go on any, c makes that a big one, e still
		// fits, and f does not. 19 GPUs need three nodes of 8.
		"mixed counts": {
			func() *simulate.Input {
				in := newInput(machine("big", 9, "", gpus(8)...), machine("small", 1, "", gpus(1)...))
				for _, count := range []int64{1, 4, 8} {
					addTemplate(in, fmt.Sprint(count), request(count))
				}
				for i, count := range []int{8, 1, 1, 1, 4, 4} {
					addPod(in, string(rune('a'+i)), fmt.Sprintf("template:%d", count))
				}
				return in
			},
			[]string{
				"new-1 big: a(gpu-0 gpu-1 gpu-2 gpu-3 gpu-4 gpu-5 gpu-6 gpu-7)",
				"new-2 big: b(gpu-0) c(gpu-1) d(gpu-2) e(gpu-3 gpu-4 gpu-5 gpu-6)",
				"new-3 big: f(gpu-0 gpu-1 gpu-2 gpu-3)",
				"bound 3",
			},
		},
		"one pod may become several types": {
			func() *simulate.Input {
				in := newInput(machine("big", 9, "", gpus(8)...), machine("unknown", 0, "", gpus(2)...), machine("small", 1, "", gpus(1)...))
				addTemplate(in, "one", request(1))
				addPod(in, "a", "template:one")
				return in
			},
			[]string{"new-1 small of small,big,unknown: a(gpu-0)", "bound 1"},
		},
		"partitions": {
			func() *simulate.Input {
				in := newInput(partitionedMachine("m", 1, 1))
				for _, p := range []string{"quarter", "half", "whole"} {
					addTemplate(in, p, request(1, profile(p)))
				}
				for i, p := range []string{"quarter", "quarter", "half", "whole", "quarter"} {
					addPod(in, string(rune('a'+i)), "template:"+p)
				}
				return in
			},
			[]string{
				"new-1 m: a(gpu-0-quarter-0) b(gpu-0-quarter-1) c(gpu-0-half-2)",
				"new-2 m: d(gpu-0-whole-0)",
				"new-3 m: e(gpu-0-quarter-0)",
				"bound 3", // 3/4 + 1/2 + 1
			},
		},
		"shares": {
			func() *simulate.Input {
				in := newInput(machine("m", 1, "", shareable("gpu-0", "80Gi")))
				addTemplate(in, "some", withMemory(request(1), "30Gi"))
				addTemplate(in, "all", request(1))
				for _, name := range []string{"a", "b", "c"} {
					addPod(in, name, "template:some")
				}
				addPod(in, "d", "template:all")
				return in
			},
			[]string{
				"new-1 m: a(gpu-0/30Gi) b(gpu-0/30Gi)",
				"new-2 m: c(gpu-0/30Gi)",
				"new-3 m: d(gpu-0/80Gi)",
				"bound 3", // 90/80 + 1
			},
		},
		"a constraint leaves one type": {
			func() *simulate.Input {
				in := newInput(
					machine("apart", 1, "", gpu("gpu-0", "root=a"), gpu("gpu-1", "root=b")),
					machine("together", 2, "", gpu("gpu-0", "root=a"), gpu("gpu-1", "root=b"), gpu("gpu-2", "root=b")),
				)
				addTemplate(in, "pair", request(2))
				attribute := resourceapi.FullyQualifiedName(driver + "/root")
				in.ClaimTemplates[0].Spec.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &attribute}}
				addPod(in, "a", "template:pair")
				return in
			},
			[]string{"new-1 together: a(gpu-1 gpu-2)", "bound 1"},
		},
	})
}

func TestPlansBesideDevices(t *testing.T) {
	checkPlans(t, map[string]planTest{
		"CPU runs out before GPUs": {
			func() *simulate.Input {
				in := newInput(machine("m", 1, "10", gpus(8)...))
				addTemplate(in, "one", request(1))
				for _, name := range []string{"a", "b", "c"} {
					requests(addPod(in, name, "template:one"), "4")
				}
				requests(addPod(in, "d"), "2") // It has no claim.
				return in
			},
			[]string{"new-1 m: a(gpu-0) b(gpu-1) d", "new-2 m: c(gpu-0)", "bound 2"},
		},
		"two pods of one claim": {
			func() *simulate.Input {
				in := newInput(machine("m", 1, "4", gpus(2)...))
				addClaim(in, "shared", request(2))
				requests(addPod(in, "a", "claim:shared"), "2")
				requests(addPod(in, "b", "claim:shared"), "2")
				requests(addPod(in, "c", "claim:shared"), "2") // The CPUs are taken, and nowhere else is the claim.
				return in
			},
			[]string{"new-1 m: a(gpu-0 gpu-1) b", "not placed: c", "bound 1"},
		},
		"what exists comes first": {
			func() *simulate.Input {
				in := newInput(machine("m", 1, "", gpus(1)...))
				addNode(in, "node-b", "", gpus(2)...)
				addNode(in, "node-a", "")
				running := addPod(in, "running", "claim:held")
				running.Spec.NodeName, running.Status.Phase = "node-b", corev1.PodRunning
				hold(addClaim(in, "held", request(1)), "node-b", "gpu-0", running)
				addTemplate(in, "one", request(1))
				addPod(in, "a", "template:one")
				addPod(in, "b", "template:one")
				addPod(in, "c")
				return in
			},
			[]string{"node-a: c", "node-b: a(gpu-1)", "new-1 m: b(gpu-0)", "bound 1"},
		},
		"a device that only a zone reaches": {
			func() *simulate.Input {
				in := newInput(inZones(machine("m", 1, "", gpus(1)...), "a", "b"), inZones(machine("elsewhere", 0.5, "", gpus(1)...), "c"))
				attached := poolSlice("attached", "attached", gpu("fpga", "kind=fpga"))
				attached.Spec.NodeSelector = onlyOn(zone, "b")
				in.Slices = append(in.Slices, attached)
				fpga := `has(device.attributes["` + driver + `"].kind)`
				addTemplate(in, "fpga", request(1, fpga))
				addTemplate(in, "gpu", request(1, "!"+fpga))
				addPod(in, "a", "template:fpga", "template:gpu")
				addPod(in, "b", "template:fpga") // There is but one.
				return in
			},
			[]string{"new-1 m: a(fpga)(gpu-0)", "not placed: b", "bound 1"},
		},
		"groups that cannot share nodes add up": {
			func() *simulate.Input {
				in := newInput(machine("a", 1, "", gpus(8, "model=a")...), machine("b", 1, "", gpus(8, "model=b")...))
				for _, model := range []string{"a", "b"} {
					addTemplate(in, model, request(1, `device.attributes["`+driver+`"].model == "`+model+`"`))
					addPod(in, "pod-"+model, "template:"+model)
				}
				return in
			},
			[]string{"new-1 a: pod-a(gpu-0)", "new-2 b: pod-b(gpu-0)", "bound 2"},
		},
		"nothing to do": {
			func() *simulate.Input { return newInput() },
			[]string{"bound 0"},
		},
	})
}

// packing is where first fit needs three nodes and two will do.
func packing() *simulate.Input {
	in := newInput(machine("m", 1, "", gpus(8)...))
	for i, count := range []int64{2, 3, 5, 6} {
		addTemplate(in, fmt.Sprint(count), request(count))
		addPod(in, string(rune('a'+i)), fmt.Sprintf("template:%d", count))
	}
	return in
}

func TestBestFitNeedsFewerNodes(t *testing.T) {
	predicted, best := makePlan(t, packing(), allocator.Predict), makePlan(t, packing(), allocator.BestFit)
	if predicted.Totals.NodeClaims != 3 || best.Totals.NodeClaims != 2 || best.LowerBound.Nodes != 2 || best.Policy != allocator.BestFit {
		t.Errorf("predict:\n%s\nbest-fit:\n%s", strings.Join(outline(predicted), "\n"), strings.Join(outline(best), "\n"))
	}
}

// A half must not be cut out of a whole GPU while another one has a half to spare.
func TestBestFitUsesTheNodeThatIsFullest(t *testing.T) {
	in := newInput()
	for _, name := range []string{"node-a", "node-b"} {
		devices, set := partitionable("gpu-0")
		node := addNode(in, name, "", devices...)
		counters := poolSlice("counters-of-"+name, name)
		counters.Spec.NodeName, counters.Spec.SharedCounters = &node.Name, []resourceapi.CounterSet{set}
		in.Slices = append(in.Slices, counters)
		for _, slice := range in.Slices {
			slice.Spec.Pool.ResourceSliceCount = 2
		}
	}
	hold(addClaim(in, "held", request(1)), "node-b", "gpu-0-half-0")
	addTemplate(in, "half", request(1, profile("half")))
	addTemplate(in, "whole", request(1, profile("whole")))
	addPod(in, "a", "template:half")
	addPod(in, "b", "template:whole")
	if diff := cmp.Diff([]string{"node-a: a(gpu-0-half-0)", "not placed: b", "bound 0"}, outline(makePlan(t, in, allocator.Predict))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"node-a: b(gpu-0-whole-0)", "node-b: a(gpu-0-half-2)", "bound 0"}, outline(makePlan(t, in, allocator.BestFit))); diff != "" {
		t.Error(diff)
	}
}

func TestWhatStaysUnused(t *testing.T) {
	in := newInput(machine("m", 1, "8", shareable("gpu-0", "80Gi"), shareable("gpu-1", "80Gi"), shareable("gpu-2", "80Gi")))
	addTemplate(in, "some", withMemory(request(1), "30Gi"))
	addTemplate(in, "all", request(1))
	requests(addPod(in, "a", "template:some"), "3")
	addPod(in, "b", "template:all")
	got := makePlan(t, in, allocator.Predict).NodeClaims[0].Unused
	want := simulate.Unused{
		Devices:   []simulate.UnusedDevices{{Kind: "gpu", Count: 1}},
		Parts:     []simulate.UnusedPart{{Kind: "gpu", Device: "gpu-0", Capacity: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("50Gi")}}},
		Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	in = newInput(partitionedMachine("m", 1, 2))
	addTemplate(in, "quarter", request(1, profile("quarter")))
	addPod(in, "a", "template:quarter")
	got = makePlan(t, in, allocator.Predict).NodeClaims[0].Unused
	want = simulate.Unused{
		Devices: []simulate.UnusedDevices{{Kind: "whole", Count: 1}},
		Parts:   []simulate.UnusedPart{{Kind: "whole", Device: "gpu-0-whole-0", Largest: "half"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPodsAreTakenByPriorityAgeAndName(t *testing.T) {
	in := newInput(machine("m", 1, ""))
	add := func(name string, priority int32, age time.Duration) {
		pod := addPod(in, name)
		pod.Spec.Priority = &priority
		pod.CreationTimestamp = metav1.NewTime(time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC).Add(-age))
	}
	add("web-10", 0, 0)
	add("web-9", 0, 0)
	add("old", 0, time.Hour)
	add("urgent", 5, 0)
	got := podsOutline(makePlan(t, in, allocator.Predict).NodeClaims[0].Pods)
	if got != "urgent old web-9 web-10" {
		t.Error(got)
	}
}

func TestWhyAPodIsNotPlaced(t *testing.T) {
	in := newInput(machine("m", 1, "4", gpus(2)...))
	node := addNode(in, "node-a", "4", gpus(1)...)
	node.Spec.Taints = []corev1.Taint{{Key: "team", Value: "b", Effect: corev1.TaintEffectNoSchedule}}
	addNode(in, "node-b", "4").Spec.Unschedulable = true
	addNode(in, "node-c", "1")
	addNode(in, "node-d", "4", gpus(1)...).Labels["disk"] = "slow"
	addTemplate(in, "one", request(1))
	addTemplate(in, "nine", request(9))
	requests(addPod(in, "a", "template:nine"), "2")
	gated := addPod(in, "gated")
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
	addPod(in, "lost", "claim:lost")
	addPod(in, "untemplated", "template:lost")
	requests(addPod(in, "greedy", "template:one"), "5")
	addPod(in, "picky").Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-z"}
	plan := makePlan(t, in, allocator.Predict)
	var got []string
	for _, pod := range plan.NotPlaced {
		if pod.Reason != "" {
			got = append(got, pod.Name+": "+pod.Reason)
		}
		for _, c := range pod.Candidates {
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s on %s %s %s: %s", pod.Name, c.Kind, c.Name, c.InstanceType, c.Reason)))
		}
	}
	for i, line := range got {
		// What the allocator says is its own.
		if strings.Contains(line, "claim a-c0") {
			got[i] = line[:strings.Index(line, ": ")] + ": claim a-c0"
		}
		if strings.HasPrefix(line, "picky on instanceType") {
			got[i] = "picky on instanceType"
		}
	}
	want := []string{
		"a on node node-a : taint team=b:NoSchedule is not tolerated",
		"a on node node-b : taint node.kubernetes.io/unschedulable:NoSchedule is not tolerated",
		"a on node node-c : cpu: 1 of 1 left, 2 wanted",
		"a on node node-d : claim a-c0",
		"a on instanceType m : claim a-c0",
		"gated: it waits for its scheduling gates example.com/wait",
		"greedy on node node-a : taint team=b:NoSchedule is not tolerated",
		"greedy on node node-b : taint node.kubernetes.io/unschedulable:NoSchedule is not tolerated",
		"greedy on node node-c : cpu: 1 of 1 left, 5 wanted",
		"greedy on node node-d : cpu: 4 of 4 left, 5 wanted",
		"greedy on instanceType m : cpu: 4 of 4 left, 5 wanted",
		"lost: ResourceClaim lost is missing: create it in namespace default",
		"picky on node node-a : taint team=b:NoSchedule is not tolerated",
		"picky on node node-b : taint node.kubernetes.io/unschedulable:NoSchedule is not tolerated",
		"picky on node node-c : its labels do not match the pod's node selector or affinity",
		"picky on node node-d : its labels do not match the pod's node selector or affinity",
		"picky on instanceType",
		"untemplated: ResourceClaimTemplate lost is missing: create it in namespace default",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWithoutNodesAndInstanceTypes(t *testing.T) {
	in := newInput()
	addPod(in, "a")
	plan := makePlan(t, in, allocator.Predict)
	if len(plan.NotPlaced) != 1 || plan.NotPlaced[0].Reason != "there is no node, and no instance type was given" {
		t.Errorf("%+v", plan.NotPlaced)
	}
}

func TestWrongInput(t *testing.T) {
	for name, test := range map[string]struct {
		change func(in *simulate.Input)
		policy allocator.Policy
		want   string
	}{
		"type twice": {func(in *simulate.Input) { in.InstanceTypes = append(in.InstanceTypes, machine("m", 1, "")) }, "", `instance type "m" is there twice or has no name: give each its own`},
		"node twice": {func(in *simulate.Input) { addNode(in, "n", ""); addNode(in, "n", "") }, "", "node n is there twice: give each its own name"},
		"served by class": {func(in *simulate.Input) {
			in.Classes[0].Spec.ExtendedResourceName = new("example.com/gpu")
			in.InstanceTypes[0].Allocatable = corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
		}, "", "instance type m: its allocatable names example.com/gpu, which comes from devices of DeviceClass gpu: leave it out"},
		"policy": {func(*simulate.Input) {}, "worst-fit", `policy "worst-fit" is unknown; known are: predict, best-fit`},
	} {
		in := newInput(machine("m", 1, ""))
		test.change(in)
		_, err := simulate.Make(t.Context(), in, simulate.Options{Policy: test.policy})
		if err == nil || err.Error() != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLabelsOfANodeClaim(t *testing.T) {
	it := inZones(machine("m", 1, "", gpus(1)...), "a", "b", "c")
	it.Labels["disk"] = []string{"slow", "fast"}
	in := newInput(it)
	pod := addPod(in, "a")
	pod.Spec.NodeSelector = map[string]string{"disk": "fast", "team": "x"}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: zone, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"a"}},
			{Key: "kernel", Operator: corev1.NodeSelectorOpGt, Values: []string{"5"}},
			{Key: "gpu", Operator: corev1.NodeSelectorOpExists},
			{Key: "spot", Operator: corev1.NodeSelectorOpDoesNotExist},
		}}},
	}}}
	plan := makePlan(t, in, allocator.Predict)
	want := map[string]string{
		zone: "b", "disk": "fast", "team": "x", "kernel": "6", "gpu": "true",
		corev1.LabelHostname: "new-1", corev1.LabelInstanceTypeStable: "m", corev1.LabelOSStable: "linux",
	}
	if len(plan.NodeClaims) != 1 {
		t.Fatalf("%+v", plan.NotPlaced)
	}
	if diff := cmp.Diff(want, plan.NodeClaims[0].Labels); diff != "" {
		t.Error(diff)
	}
	// Zone c would do as well, but not a.
	if diff := cmp.Diff([]string{"disk", "gpu", "kernel", "team", zone}, plan.NodeClaims[0].RequiredLabels); diff != "" {
		t.Error(diff)
	}
}

// The API server takes Gt of a word in a node affinity. kube-scheduler finds no node for
// such a term, and goes on with the pod's other terms and with other pods.
func TestAPodWithAWrongAffinityCostsNoOtherPodItsPlace(t *testing.T) {
	in := newInput(inZones(machine("m", 1, "", gpus(8)...), "a", "b"))
	wrong := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "cores", Operator: corev1.NodeSelectorOpGt, Values: []string{"many"}}}}
	affinity := func(name string, terms ...corev1.NodeSelectorTerm) {
		addPod(in, name).Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}
	}
	affinity("a", wrong)
	affinity("b", wrong, onlyOn(zone, "b").NodeSelectorTerms[0])
	addPod(in, "c")
	plan := makePlan(t, in, allocator.Predict)
	if diff := cmp.Diff([]string{"new-1 m: b c", "not placed: a", "bound 1"}, outline(plan)); diff != "" {
		t.Fatal(diff)
	}
	want := `its node selector or affinity is not valid: nodeSelectorTerms[0].matchExpressions[0].values[0]: Invalid value: "many": ` +
		"for 'Gt', 'Lt' operators, the value must be an integer: correct it"
	if got := plan.NotPlaced[0].Reason; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := plan.NodeClaims[0].Labels[zone]; got != "b" {
		t.Errorf("zone %s, want b", got)
	}
	e, err := simulate.Explain(t.Context(), in, in.Pods[0], simulate.Options{})
	if err != nil || e.Reason != want || e.Fits() {
		t.Errorf("%+v, %v", e, err)
	}
}

// Each of 20 teams asks for a label of its own, of which no instance type says anything.
func TestManyPodsWithLabelsOfTheirOwnShareANode(t *testing.T) {
	in := newInput(inZones(machine("m", 1, "", gpus(8)...), "a", "b"))
	var keys []string
	for i := range 20 {
		key := fmt.Sprintf("team-%02d", i)
		addPod(in, key).Spec.NodeSelector = map[string]string{key: "true"}
		keys = append(keys, key)
	}
	plan, err := simulate.Make(t.Context(), in, simulate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.NodeClaims) != 1 || len(plan.NodeClaims[0].Pods) != 20 {
		t.Fatal(outline(plan))
	}
	claim := plan.NodeClaims[0]
	// All of them are needed, and any zone will do.
	if diff := cmp.Diff(keys, claim.RequiredLabels); diff != "" {
		t.Error(diff)
	}
	for _, key := range keys {
		if claim.Labels[key] != "true" {
			t.Errorf("label %s is %q", key, claim.Labels[key])
		}
	}
}

// Pods that ask for different zones cannot share a node.
func TestZonesOfPodsNarrowANodeClaim(t *testing.T) {
	in := newInput(inZones(machine("m", 1, "", gpus(8)...), "a", "b"))
	for _, name := range []string{"a", "b"} {
		addPod(in, "pod-"+name).Spec.NodeSelector = map[string]string{zone: name}
	}
	addPod(in, "pod-c")
	want := []string{"new-1 m: pod-a pod-c", "new-2 m: pod-b", "bound 1"}
	if diff := cmp.Diff(want, outline(makePlan(t, in, allocator.Predict))); diff != "" {
		t.Error(diff)
	}
}

func TestTheSameInputGivesTheSamePlan(t *testing.T) {
	for _, policy := range []allocator.Policy{allocator.Predict, allocator.BestFit} {
		var first string
		for i := range 20 {
			in := packing()
			in.InstanceTypes = append(in.InstanceTypes, machine("n", 0.5, "", gpus(4)...), machine("o", 0, "", gpus(8)...))
			if i%2 == 1 {
				slices.Reverse(in.InstanceTypes)
				slices.Reverse(in.Pods)
				slices.Reverse(in.ClaimTemplates)
			}
			data, err := json.Marshal(makePlan(t, in, policy))
			if err != nil {
				t.Fatal(err)
			}
			if first == "" {
				first = string(data)
			}
			if string(data) != first {
				t.Fatalf("%s, run %d:\n%s\n%s", policy, i, first, data)
			}
		}
	}
}

func TestWhatIsNotConsideredIsSaid(t *testing.T) {
	in := newInput(machine("m", 1, ""))
	in.Slices = append(in.Slices, poolSlice("s", "gone"))
	in.Slices[0].Spec.NodeName = new("gone")
	spread := addPod(in, "a")
	spread.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: corev1.DoNotSchedule}}
	spread.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}}}
	addPod(in, "b").Spec.Volumes = spread.Spec.Volumes
	want := []string{
		"Not used, as there are ResourceSlices but no Node objects: nodes gone",
		"Not taken into account: topology spread of default/a",
		"Not taken into account: volumes of default/a, default/b",
	}
	if diff := cmp.Diff(want, makePlan(t, in, allocator.Predict).Warnings); diff != "" {
		t.Error(diff)
	}
}

// Where kube-scheduler would take the first device, best-fit takes the smallest, and
// says so.
func TestWhereBestFitIsUnlikeKubeScheduler(t *testing.T) {
	it := partitionedMachine("m", 1, 1)
	devices := it.Templates[0].Slices[1].Devices
	for i := range devices {
		memory := resource.NewQuantity(int64(len(devices[i].ConsumesCounters[0].Counters)), resource.BinarySI)
		devices[i].Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: *memory}}
	}
	slices.Reverse(devices) // The whole GPU is published first.
	in := newInput(it)
	addTemplate(in, "any", request(1))
	addPod(in, "a", "template:any")
	addPod(in, "b")
	predicted, best := makePlan(t, in, allocator.Predict).NodeClaims[0].Pods, makePlan(t, in, allocator.BestFit).NodeClaims[0].Pods
	if got := podsOutline(predicted); got != "a(gpu-0-whole-0) b" || predicted[0].Unlike {
		t.Errorf("predict: %s, %v", got, predicted)
	}
	if got := podsOutline(best); !strings.HasPrefix(got, "a(gpu-0-quarter-") || !best[0].Unlike || best[1].Unlike {
		t.Errorf("best-fit: %s, %v", got, best)
	}
}

// A rule for all devices of a driver is for those of new nodes, too.
func TestATaintRuleForADriver(t *testing.T) {
	in := newInput(machine("m", 1, "", gpus(1)...))
	addNode(in, "node-a", "", gpus(1)...)
	rule := &resourceapi.DeviceTaintRule{}
	rule.Spec.DeviceSelector = &resourceapi.DeviceTaintSelector{Driver: new(driver)}
	rule.Spec.Taint = resourceapi.DeviceTaint{Key: "example.com/upgrade", Effect: resourceapi.DeviceTaintEffectNoSchedule}
	in.TaintRules = append(in.TaintRules, rule)
	addTemplate(in, "one", request(1))
	addPod(in, "a", "template:one")
	if diff := cmp.Diff([]string{"not placed: a", "bound 0"}, outline(makePlan(t, in, allocator.Predict))); diff != "" {
		t.Error(diff)
	}
	rule.Spec.DeviceSelector.Pool = new("node-a")
	if diff := cmp.Diff([]string{"new-1 m: a(gpu-0)", "bound 1"}, outline(makePlan(t, in, allocator.Predict))); diff != "" {
		t.Error(diff)
	}
	if len(in.InstanceTypes[0].Templates[0].Slices[0].Devices[0].Taints) > 0 {
		t.Error("the input was changed")
	}
}
