package simulate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"apportion.dev/apportion/pkg/plan/allocator"
	"apportion.dev/apportion/pkg/plan/simulate"
)

// randomInput has instance types, nodes and pods of the kinds that the other tests have.
func randomInput(seed uint64) *simulate.Input {
	r := rand.New(rand.NewPCG(seed, 1))
	in := newInput()
	for i := range 1 + r.IntN(4) {
		it := randomMachine(r, fmt.Sprintf("type-%d", i))
		if r.IntN(3) > 0 {
			it.Price = float64(1 + r.IntN(9))
		}
		inZones(it, [][]string{{"a"}, {"b"}, {"a", "b"}}[r.IntN(3)]...)
		in.InstanceTypes = append(in.InstanceTypes, it)
	}
	for i := range r.IntN(3) {
		it := randomMachine(r, "")
		name := fmt.Sprintf("node-%d", i)
		node := addNode(in, name, "")
		node.Status.Allocatable = it.Allocatable
		node.Labels[zone] = []string{"a", "b"}[r.IntN(2)]
		in.Slices = append(in.Slices, materialize(it, name)...)
	}
	addTemplate(in, "one", request(1))
	addTemplate(in, "some", request(int64(2+r.IntN(3))))
	addTemplate(in, "quarter", request(1, profileIs("quarter")))
	addTemplate(in, "half", request(1, profileIs("half")))
	addTemplate(in, "whole", request(1, profileIs("whole")))
	addTemplate(in, "share", withMemory(request(1, `has(device.capacity["`+driver+`"].memory)`), fmt.Sprintf("%dGi", 5+r.IntN(30))))
	addTemplate(in, "either", resourceapi.DeviceRequest{Name: "gpu", FirstAvailable: []resourceapi.DeviceSubRequest{
		{Name: "half", DeviceClassName: "gpu", AllocationMode: "ExactCount", Count: 1, Selectors: request(1, profileIs("half")).Exactly.Selectors},
		{Name: "any", DeviceClassName: "gpu", AllocationMode: "ExactCount", Count: 1},
	}})
	addTemplate(in, "pair", request(1, profileIs("quarter")), resourceapi.DeviceRequest{Name: "other", Exactly: request(1).Exactly})
	names := []string{"one", "some", "quarter", "half", "whole", "share", "either", "pair"}
	for i := range 1 + r.IntN(14) {
		var claims []string
		for range r.IntN(3) {
			claims = append(claims, "template:"+names[r.IntN(len(names))])
		}
		pod := requests(addPod(in, fmt.Sprintf("pod-%02d", i), claims...), fmt.Sprint(r.IntN(5)))
		if r.IntN(4) == 0 {
			pod.Spec.NodeSelector = map[string]string{zone: []string{"a", "b"}[r.IntN(2)]}
		}
	}
	return in
}

// profileIs does not fail on devices without a profile.
func profileIs(name string) string {
	return `device.attributes["` + driver + `"].?profile.orValue("") == "` + name + `"`
}

func randomMachine(r *rand.Rand, name string) *simulate.InstanceType {
	n := 1 + r.IntN(3)
	var it *simulate.InstanceType
	switch r.IntN(3) {
	case 0:
		it = machine(name, 0, "", gpus(n)...)
	case 1:
		it = partitionedMachine(name, 0, n)
	case 2:
		var devices []resourceapi.Device
		for i := range n {
			devices = append(devices, shareable(fmt.Sprintf("gpu-%d", i), "40Gi"))
		}
		it = machine(name, 0, "", devices...)
	}
	if r.IntN(2) == 0 {
		it.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(fmt.Sprint(4 + r.IntN(12)))}
	}
	return it
}

// materialize are the slices of a node of an instance type.
func materialize(it *simulate.InstanceType, node string) []*resourceapi.ResourceSlice {
	var all []*resourceapi.ResourceSlice
	for i, slice := range it.Templates[0].Slices {
		published := poolSlice(fmt.Sprintf("%s-%d", node, i), node, slice.Devices...)
		published.Spec.NodeName, published.Spec.SharedCounters = &node, slice.SharedCounters
		published.Spec.Pool.ResourceSliceCount = int64(len(it.Templates[0].Slices))
		all = append(all, published)
	}
	return all
}

// features are those of kube-scheduler 1.37 with its gates at their defaults.
var features = structured.Features{
	AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true,
	DeviceBindingAndStatus: true, ConsumableCapacity: true,
}

type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }
func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("no class %s", name)
}

// world is what a plan makes of a cluster: nodes with their slices.
type world struct {
	in     *simulate.Input
	nodes  map[string]*corev1.Node
	slices []*resourceapi.ResourceSlice
	types  map[string]*simulate.InstanceType
}

func newWorld(in *simulate.Input, plan *simulate.Plan) *world {
	w := &world{in: in, nodes: map[string]*corev1.Node{}, slices: in.Slices, types: map[string]*simulate.InstanceType{}}
	for _, it := range in.InstanceTypes {
		w.types[it.Name] = it
	}
	for _, node := range in.Nodes {
		w.nodes[node.Name] = node
	}
	for _, n := range plan.NodeClaims {
		w.add(n.Name, n.InstanceType, n.Labels)
	}
	return w
}

func (w *world) add(name, instanceType string, labels map[string]string) {
	node := &corev1.Node{}
	node.Name, node.Labels = name, labels
	node.Status.Allocatable = w.types[instanceType].Allocatable
	w.nodes[name] = node
	w.slices = append(slices.Clip(w.slices), materialize(w.types[instanceType], name)...)
}

// allocate asks kube-scheduler's allocator; nil if there is no allocation.
func (w *world) allocate(t *testing.T, node string, state structured.AllocatedState, claims []*resourceapi.ResourceClaim) []resourceapi.AllocationResult {
	t.Helper()
	a, err := structured.NewAllocator(t.Context(), features, state, classes(w.in.Classes), w.slices, cel.NewCache(10, cel.Features{EnableConsumableCapacity: true}))
	if err != nil {
		t.Fatal(err)
	}
	results, err := a.Allocate(t.Context(), w.nodes[node], claims)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func noneAllocated() structured.AllocatedState {
	return structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
}

func hold1(state *structured.AllocatedState, result resourceapi.DeviceRequestAllocationResult) {
	id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
	if result.ShareID == nil {
		state.AllocatedDevices.Insert(id)
		return
	}
	state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
	state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
}

// claimsOf are those of a pod, as its controller makes them.
func (w *world) claimsOf(pod *corev1.Pod) []*resourceapi.ResourceClaim {
	var claims []*resourceapi.ResourceClaim
	for _, podClaim := range pod.Spec.ResourceClaims {
		for _, template := range w.in.ClaimTemplates {
			if template.Name == *podClaim.ResourceClaimTemplateName {
				claim := &resourceapi.ResourceClaim{Spec: template.Spec.Spec}
				claim.Name, claim.Namespace = pod.Name+"-"+podClaim.Name, pod.Namespace
				claims = append(claims, claim)
			}
		}
	}
	return claims
}

func (w *world) pod(name string) *corev1.Pod {
	i := slices.IndexFunc(w.in.Pods, func(pod *corev1.Pod) bool { return pod.Name == name })
	return w.in.Pods[i]
}

// nodeOf are the places of pods, and what they get there.
func nodesOf(plan *simulate.Plan) (nodes map[string]string, pods map[string]simulate.Pod) {
	nodes, pods = map[string]string{}, map[string]simulate.Pod{}
	for _, n := range plan.Nodes {
		for _, pod := range n.Pods {
			nodes[pod.Name], pods[pod.Name] = n.Name, pod
		}
	}
	for _, n := range plan.NodeClaims {
		for _, pod := range n.Pods {
			nodes[pod.Name], pods[pod.Name] = n.Name, pod
		}
	}
	return nodes, pods
}

// When the planned nodes are there, kube-scheduler's allocator gives each pod on its node
// the devices that the plan says.
func TestKubeSchedulerFollowsThePlan(t *testing.T) {
	for seed := range uint64(200) {
		in := randomInput(seed)
		plan := makePlan(t, in, allocator.Predict)
		w, state := newWorld(in, plan), noneAllocated()
		nodes, pods := nodesOf(plan)
		for _, pod := range in.Pods { // They are in the order of planning.
			node, placed := nodes[pod.Name]
			if !placed {
				continue
			}
			claims := w.claimsOf(pod)
			if len(claims) == 0 {
				continue
			}
			var got []string
			for _, result := range w.allocate(t, node, state, claims) {
				for _, device := range result.Devices.Results {
					hold1(&state, device)
					got = append(got, device.Request+"="+device.Device)
				}
			}
			var want []string
			for _, claim := range pods[pod.Name].Claims {
				for _, device := range claim.Devices {
					want = append(want, device.Request+"="+device.Device)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d: pod %s on %s: kube-scheduler gives %v, the plan %v\n%s", seed, pod.Name, node, got, want, strings.Join(outline(plan), "\n"))
			}
		}
		checkPlan(t, seed, w, plan)
		checkNotPlaced(t, seed, w, plan)
	}
}

// checkNotPlaced makes sure that pods without a place do not fit on an empty new node.
func checkNotPlaced(t *testing.T, seed uint64, w *world, plan *simulate.Plan) {
	t.Helper()
	for _, n := range plan.NotPlaced {
		pod := w.pod(n.Name)
		for _, it := range w.in.InstanceTypes {
			zones := it.Labels[zone]
			if asked := pod.Spec.NodeSelector[zone]; asked != "" && !slices.Contains(zones, asked) {
				continue
			}
			if cpu := pod.Spec.Containers[0].Resources.Requests.Cpu(); it.Allocatable != nil && cpu.Cmp(it.Allocatable[corev1.ResourceCPU]) > 0 {
				continue
			}
			w.add("try-"+it.Name, it.Name, nil)
			if w.allocate(t, "try-"+it.Name, noneAllocated(), w.claimsOf(pod)) != nil {
				t.Errorf("seed %d: pod %s has no place, but fits on a new %s", seed, n.Name, it.Name)
			}
		}
	}
}

// checkPlan makes sure that nothing is given away twice, and that sums are right.
func checkPlan(t *testing.T, seed uint64, w *world, plan *simulate.Plan) {
	t.Helper()
	nodes, pods := nodesOf(plan)
	if len(pods)+len(plan.NotPlaced) != len(w.in.Pods) || plan.Totals.Pods != len(w.in.Pods) {
		t.Errorf("seed %d: %d pods have a place and %d have none, of %d", seed, len(pods), len(plan.NotPlaced), len(w.in.Pods))
	}
	if plan.LowerBound.Nodes > len(plan.NodeClaims) {
		t.Errorf("seed %d: %d nodes are below the bound %d\n%s", seed, len(plan.NodeClaims), plan.LowerBound.Nodes, strings.Join(outline(plan), "\n"))
	}
	for name, node := range w.nodes {
		var cpu resource.Quantity
		u := &used{counters: map[string]resource.Quantity{}, capacity: map[string]resource.Quantity{}, exclusive: map[string]bool{}}
		for pod, on := range nodes {
			if on != name {
				continue
			}
			cpu.Add(*w.pod(pod).Spec.Containers[0].Resources.Requests.Cpu())
			if asked := w.pod(pod).Spec.NodeSelector[zone]; asked != "" && node.Labels[zone] != asked {
				t.Errorf("seed %d: pod %s is on %s in zone %s", seed, pod, name, node.Labels[zone])
			}
			for _, claim := range pods[pod].Claims {
				for _, device := range claim.Devices {
					if problem := u.take(w, name, device); problem != "" {
						t.Errorf("seed %d: %s: %s\n%s", seed, name, problem, strings.Join(outline(plan), "\n"))
					}
				}
			}
		}
		if total, limited := node.Status.Allocatable[corev1.ResourceCPU]; limited && cpu.Cmp(total) > 0 {
			t.Errorf("seed %d: %s has %s CPUs of %s", seed, name, cpu.String(), total.String())
		}
	}
}

// used is what is taken of a node.
type used struct {
	counters, capacity map[string]resource.Quantity
	exclusive          map[string]bool
}

// take adds a device, and says if there was not as much left.
func (u *used) take(w *world, node string, d simulate.Device) string {
	if u.exclusive[d.Device] {
		return d.Device + " is taken twice"
	}
	for _, slice := range w.slices {
		if *slice.Spec.NodeName != node {
			continue
		}
		for i := range slice.Spec.Devices {
			if device := &slice.Spec.Devices[i]; device.Name == d.Device {
				return u.takeOf(w, node, device, d)
			}
		}
	}
	return d.Device + " is not there"
}

func (u *used) takeOf(w *world, node string, device *resourceapi.Device, d simulate.Device) string {
	if device.AllowMultipleAllocations == nil {
		u.exclusive[device.Name] = true
	}
	for name, amount := range d.Consumed {
		key := device.Name + string(name)
		sum := u.capacity[key].DeepCopy()
		sum.Add(amount)
		if u.capacity[key] = sum; sum.Cmp(device.Capacity[name].Value) > 0 {
			return key + " is exceeded"
		}
	}
	for _, consumption := range device.ConsumesCounters {
		for name, counter := range consumption.Counters {
			key := consumption.CounterSet + name
			sum := u.counters[key].DeepCopy()
			sum.Add(counter.Value)
			if u.counters[key] = sum; sum.CmpInt64(1) > 0 { // Each slice is there once.
				return key + " is exceeded"
			}
		}
	}
	return ""
}

func TestBestFitIsNeverWorse(t *testing.T) {
	better := 0
	for seed := range uint64(200) {
		in := randomInput(seed)
		predicted, best := makePlan(t, in, allocator.Predict), makePlan(t, in, allocator.BestFit)
		if best.Totals.NodeClaims > predicted.Totals.NodeClaims || best.Totals.NotPlaced > predicted.Totals.NotPlaced {
			t.Errorf("seed %d: best-fit is worse:\n%s\nthan predict:\n%s", seed, strings.Join(outline(best), "\n"), strings.Join(outline(predicted), "\n"))
		}
		if best.Totals.NodeClaims < predicted.Totals.NodeClaims || best.Totals.NotPlaced < predicted.Totals.NotPlaced {
			better++
		}
		checkPlan(t, seed, newWorld(in, best), best)
	}
	if better == 0 {
		t.Error("best-fit is never better, so this tests nothing")
	}
	t.Logf("best-fit needs fewer nodes, or leaves fewer pods, in %d of 200", better)
}

func TestTheContextEndsAPlan(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := simulate.Make(ctx, packing(), simulate.Options{}); err == nil {
		t.Error("no error")
	}
}
