package simulate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/pkg/plan/allocator"
	"apportion.dev/apportion/pkg/plan/simulate"
)

const (
	driver = "gpu.example.com"
	zone   = corev1.LabelTopologyZone
)

// now is some time.
var now = metav1.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// newInput has one class for all devices.
func newInput(its ...*simulate.InstanceType) *simulate.Input {
	return &simulate.Input{
		Classes:       []*resourceapi.DeviceClass{{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}},
		InstanceTypes: its,
	}
}

// gpu is a device that one claim takes, with attributes as "name=text".
func gpu(name string, attributes ...string) resourceapi.Device {
	d := resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}}
	for _, attribute := range append(attributes, "type=gpu") {
		key, value, _ := strings.Cut(attribute, "=")
		d.Attributes[resourceapi.QualifiedName(key)] = resourceapi.DeviceAttribute{StringValue: &value}
	}
	return d
}

// gpus are some that are alike.
func gpus(n int, attributes ...string) []resourceapi.Device {
	var all []resourceapi.Device
	for i := range n {
		all = append(all, gpu(fmt.Sprintf("gpu-%d", i), attributes...))
	}
	return all
}

// shareable is a GPU of which claims take memory; without asking they take all.
func shareable(name, memory string) resourceapi.Device {
	d := gpu(name)
	d.AllowMultipleAllocations = new(true)
	all := resource.MustParse(memory)
	d.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {
		Value: all, RequestPolicy: &resourceapi.CapacityRequestPolicy{
			Default:    &all,
			ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: new(resource.MustParse("1Gi")), Max: &all, Step: new(resource.MustParse("1Gi"))},
		},
	}}
	return d
}

func quantities(n int) map[string]resourceapi.Counter {
	counters := map[string]resourceapi.Counter{}
	for i := range n {
		counters[fmt.Sprintf("slice-%d", i)] = resourceapi.Counter{Value: resource.MustParse("1")}
	}
	return counters
}

// partitionable is a GPU of four slices: quarters, halves and the whole, in this order.
func partitionable(name string) ([]resourceapi.Device, resourceapi.CounterSet) {
	var devices []resourceapi.Device
	for _, size := range []int{1, 2, 4} {
		for start := 0; start < 4; start += size {
			kind := map[int]string{1: "quarter", 2: "half", 4: "whole"}[size]
			d := gpu(fmt.Sprintf("%s-%s-%d", name, kind, start), "profile="+kind)
			counters := map[string]resourceapi.Counter{}
			for i := range size {
				counters[fmt.Sprintf("slice-%d", start+i)] = resourceapi.Counter{Value: resource.MustParse("1")}
			}
			d.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: name, Counters: counters}}
			devices = append(devices, d)
		}
	}
	return devices, resourceapi.CounterSet{Name: name, Counters: quantities(4)}
}

// machine is an instance type with devices, a price, and cpu if not empty.
func machine(name string, price float64, cpu string, devices ...resourceapi.Device) *simulate.InstanceType {
	it := &simulate.InstanceType{}
	it.Name, it.Price = name, price
	it.Templates = []allocator.Template{{Driver: driver, Slices: []allocator.TemplateSlice{{Devices: devices}}}}
	if cpu != "" {
		it.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	return it
}

// partitionedMachine is an instance type with partitionable GPUs.
func partitionedMachine(name string, price float64, n int) *simulate.InstanceType {
	it := machine(name, price, "")
	template := &it.Templates[0]
	template.Slices = nil
	for i := range n {
		devices, set := partitionable(fmt.Sprintf("gpu-%d", i))
		template.Slices = append(template.Slices,
			allocator.TemplateSlice{SharedCounters: []resourceapi.CounterSet{set}}, allocator.TemplateSlice{Devices: devices})
	}
	return it
}

func inZones(it *simulate.InstanceType, zones ...string) *simulate.InstanceType {
	it.Labels = map[string][]string{zone: zones}
	return it
}

// request is one for devices of the class; selectors are CEL expressions.
func request(count int64, selectors ...string) resourceapi.DeviceRequest {
	exactly := &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count}
	for _, expression := range selectors {
		exactly.Selectors = append(exactly.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: expression}})
	}
	return resourceapi.DeviceRequest{Name: "gpu", Exactly: exactly}
}

func withMemory(r resourceapi.DeviceRequest, memory string) resourceapi.DeviceRequest {
	r.Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(memory)}}
	return r
}

func profile(name string) string {
	return `device.attributes["` + driver + `"].profile == "` + name + `"`
}

// addTemplate adds a ResourceClaimTemplate.
func addTemplate(in *simulate.Input, name string, requests ...resourceapi.DeviceRequest) {
	template := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	template.Spec.Spec.Devices.Requests = requests
	in.ClaimTemplates = append(in.ClaimTemplates, template)
}

// addClaim adds a ResourceClaim.
func addClaim(in *simulate.Input, name string, requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("claim/" + name)}}
	claim.Spec.Devices.Requests = requests
	in.Claims = append(in.Claims, claim)
	return claim
}

// addPod adds a pending pod with claims: "template:name", or "claim:name".
func addPod(in *simulate.Input, name string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("pod/" + name)}}
	pod.Status.Phase = corev1.PodPending
	pod.Spec.Containers = []corev1.Container{{Name: "main"}}
	for i, claim := range claims {
		kind, of, _ := strings.Cut(claim, ":")
		entry := corev1.PodResourceClaim{Name: fmt.Sprintf("c%d", i)}
		if kind == "claim" {
			entry.ResourceClaimName = &of
		} else {
			entry.ResourceClaimTemplateName = &of
		}
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, entry)
	}
	in.Pods = append(in.Pods, pod)
	return pod
}

func requests(pod *corev1.Pod, cpu string) *corev1.Pod {
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	return pod
}

// addNode adds a node with devices.
func addNode(in *simulate.Input, name, cpu string, devices ...resourceapi.Device) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	if cpu != "" {
		node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	in.Nodes = append(in.Nodes, node)
	if len(devices) > 0 {
		slice := poolSlice("slice-of-"+name, name, devices...)
		slice.Spec.NodeName = &name
		in.Slices = append(in.Slices, slice)
	}
	return node
}

func poolSlice(name, pool string, devices ...resourceapi.Device) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, Devices: devices, Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: 1},
		},
	}
}

// hold lets a claim have a device of a node, for pods.
func hold(claim *resourceapi.ResourceClaim, pool, device string, pods ...*corev1.Pod) *resourceapi.ResourceClaim {
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: "gpu", Driver: driver, Pool: pool, Device: device}},
	}}
	for _, pod := range pods {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
	}
	return claim
}

func onlyOn(key string, values ...string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}},
	}}}
}

func makePlan(t testing.TB, in *simulate.Input, policy allocator.Policy) *simulate.Plan {
	t.Helper()
	plan, err := simulate.Make(t.Context(), in, simulate.Options{Policy: policy})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// outline writes a plan in few words: each node with its instance type, what else it may
// become, and its pods with their devices; then pods without a place; then the bound.
func outline(plan *simulate.Plan) []string {
	var lines []string
	for _, n := range plan.Nodes {
		lines = append(lines, n.Name+": "+podsOutline(n.Pods))
	}
	for _, n := range plan.NodeClaims {
		var survivors []string
		for _, s := range n.Survivors {
			survivors = append(survivors, s.InstanceType)
		}
		line := n.Name + " " + n.InstanceType
		if !slices.Equal(survivors, []string{n.InstanceType}) {
			line += " of " + strings.Join(survivors, ",")
		}
		lines = append(lines, line+": "+podsOutline(n.Pods))
	}
	for _, p := range plan.NotPlaced {
		lines = append(lines, "not placed: "+p.Name)
	}
	return append(lines, fmt.Sprintf("bound %d", plan.LowerBound.Nodes))
}

func podsOutline(pods []simulate.Pod) string {
	var texts []string
	for _, pod := range pods {
		text := pod.Name
		for _, claim := range pod.Claims {
			var devices []string
			for _, d := range claim.Devices {
				name := d.Device
				if memory, is := d.Consumed["memory"]; is {
					name += "/" + memory.String()
				}
				devices = append(devices, name)
			}
			text += "(" + strings.Join(devices, " ") + ")"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " ")
}
