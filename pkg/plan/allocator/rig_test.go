package allocator_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/plan/allocator"
)

const (
	rigDriver = "gpu.example.com"
	rigClass  = "gpu"
	rigZone   = corev1.LabelTopologyZone
	rigMemory = resourceapi.QualifiedName("memory")
)

// inputs are what an allocator is made of. Its methods change the one that they return.
type inputs struct {
	allocator.Options
}

func newInputs() *inputs {
	return &inputs{Options: allocator.Options{Classes: []*resourceapi.DeviceClass{{ObjectMeta: metav1.ObjectMeta{Name: rigClass}}}}}
}

func (r *inputs) slices(s ...*resourceapi.ResourceSlice) *inputs {
	r.Slices = append(r.Slices, s...)
	return r
}

// allocated takes what the claims hold.
func (r *inputs) allocated(claims ...*resourceapi.ResourceClaim) *inputs {
	r.Allocated = allocator.Allocated(claims, r.Departing)
	return r
}

func (r *inputs) policy(p allocator.Policy) *inputs {
	r.Policy = p
	return r
}

func (r *inputs) new(t testing.TB) *allocator.Allocator {
	t.Helper()
	a, err := allocator.New(r.Options)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// rigGPU is a device that one claim takes.
func rigGPU(name string) resourceapi.Device {
	return resourceapi.Device{Name: name}
}

// rigModel is a device with the attribute "model".
func rigModel(name, model string) resourceapi.Device {
	return resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"model": {StringValue: &model},
	}}
}

// rigShared is a device with memory that claims share.
func rigShared(name, memory string) resourceapi.Device {
	return resourceapi.Device{
		Name:                     name,
		AllowMultipleAllocations: ptr.To(true),
		Capacity:                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{rigMemory: {Value: resource.MustParse(memory)}},
	}
}

// rigPart is a device that consumes memory of the counter set.
func rigPart(name, set, memory string) resourceapi.Device {
	return resourceapi.Device{
		Name:     name,
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{rigMemory: {Value: resource.MustParse(memory)}},
		ConsumesCounters: []resourceapi.DeviceCounterConsumption{{
			CounterSet: set,
			Counters:   map[string]resourceapi.Counter{"memory": {Value: resource.MustParse(memory)}},
		}},
	}
}

func rigCounters(set, memory string) resourceapi.CounterSet {
	return resourceapi.CounterSet{Name: set, Counters: map[string]resourceapi.Counter{"memory": {Value: resource.MustParse(memory)}}}
}

// rigSlice is a pool of one slice. Place says where.
func rigSlice(pool string, place func(*resourceapi.ResourceSliceSpec), devices ...resourceapi.Device) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: pool + "-slice"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver:  rigDriver,
			Pool:    resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: 1},
			Devices: devices,
		},
	}
	place(&s.Spec)
	return s
}

func rigEverywhere(s *resourceapi.ResourceSliceSpec) { s.AllNodes = ptr.To(true) }

func rigOnNode(name string) func(*resourceapi.ResourceSliceSpec) {
	return func(s *resourceapi.ResourceSliceSpec) { s.NodeName = &name }
}

func rigInZones(zones ...string) func(*resourceapi.ResourceSliceSpec) {
	return func(s *resourceapi.ResourceSliceSpec) { s.NodeSelector = rigSelector(rigIn(rigZone, zones...)) }
}

func rigIn(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

func rigNotIn(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpNotIn, Values: values}
}

func rigSelector(requirements ...corev1.NodeSelectorRequirement) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: requirements}}}
}

// rigNamed selects a node by name.
func rigNamed(operator corev1.NodeSelectorOperator, name string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: operator, Values: []string{name}}},
	}}}
}

func rigNode(name string, labels ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for i := 0; i < len(labels); i += 2 {
		n.Labels[labels[i]] = labels[i+1]
	}
	return n
}

// rigType has one template with these devices, and zones if there are any.
func rigType(name string, zones []string, devices ...resourceapi.Device) *allocator.InstanceType {
	t := &allocator.InstanceType{Name: name}
	if zones != nil {
		t.Labels = map[string][]string{rigZone: zones}
	}
	if len(devices) > 0 {
		t.Templates = []allocator.Template{{Driver: rigDriver, Slices: []allocator.TemplateSlice{{Devices: devices}}}}
	}
	return t
}

func rigTypes(types ...*allocator.InstanceType) []*allocator.InstanceType { return types }

func rigGPUs(n int) []resourceapi.Device {
	devices := make([]resourceapi.Device, n)
	for i := range devices {
		devices[i] = rigGPU(fmt.Sprintf("gpu-%d", i))
	}
	return devices
}

// rigClaim has one request "r" for count devices, which may be changed.
func rigClaim(name string, count int64, change ...func(*resourceapi.ExactDeviceRequest)) *resourceapi.ResourceClaim {
	exactly := &resourceapi.ExactDeviceRequest{
		DeviceClassName: rigClass,
		AllocationMode:  resourceapi.DeviceAllocationModeExactCount,
		Count:           count,
	}
	for _, c := range change {
		c(exactly)
	}
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "r", Exactly: exactly}},
		}},
	}
}

func rigOfModel(model string) func(*resourceapi.ExactDeviceRequest) {
	return func(e *resourceapi.ExactDeviceRequest) {
		e.Selectors = append(e.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{
			Expression: fmt.Sprintf("device.attributes[%q].model == %q", rigDriver, model),
		}})
	}
}

func rigWithMemory(amount string) func(*resourceapi.ExactDeviceRequest) {
	return func(e *resourceapi.ExactDeviceRequest) {
		e.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{rigMemory: resource.MustParse(amount)}}
	}
}

func rigAdmin(e *resourceapi.ExactDeviceRequest) { e.AdminAccess = ptr.To(true) }

// rigAllocated is the claim with devices "pool/device" or, with an amount of memory as
// share, "pool/device=10Gi".
func rigAllocated(claim *resourceapi.ResourceClaim, selector *corev1.NodeSelector, devices ...string) *resourceapi.ResourceClaim {
	claim.Status.Allocation = &resourceapi.AllocationResult{NodeSelector: selector}
	for i, text := range devices {
		text, memory, share := strings.Cut(text, "=")
		pool, device, _ := strings.Cut(text, "/")
		result := resourceapi.DeviceRequestAllocationResult{Request: "r", Driver: rigDriver, Pool: pool, Device: device}
		if share {
			result.ShareID = ptr.To(types.UID(fmt.Sprintf("%s-%d", claim.Name, i)))
			result.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{rigMemory: resource.MustParse(memory)}
		}
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, result)
	}
	return claim
}

func rigReserved(claim *resourceapi.ResourceClaim, pods ...string) *resourceapi.ResourceClaim {
	for _, pod := range pods {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{
			Resource: "pods", Name: pod, UID: types.UID(pod),
		})
	}
	return claim
}

func rigAsk(t testing.TB, a *allocator.Allocator, target allocator.Target, claims ...*resourceapi.ResourceClaim) *allocator.Result {
	t.Helper()
	result, err := a.Allocate(t.Context(), target, claims)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// rigCommit asks and commits.
func rigCommit(t testing.TB, a *allocator.Allocator, target allocator.Target, claims ...*resourceapi.ResourceClaim) *allocator.Result {
	t.Helper()
	result := rigAsk(t, a, target, claims...)
	if err := a.Commit(result); err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(rigLines(result), "\n"))
	}
	return result
}

// rigLines writes a result: "type {requirements}: claim r=device,..." for each placement,
// and "type - reason" for what is dropped.
func rigLines(result *allocator.Result) []string {
	var lines []string
	for _, s := range result.Survivors {
		for _, p := range s.Placements {
			line := fmt.Sprintf("%s {%s}:", s.InstanceType, rigRequirements(p.Requirements))
			lines = append(lines, line+rigClaims(p.Claims))
		}
		if s.Unlike {
			lines = append(lines, s.InstanceType+" unlike")
		}
		if s.Unknown {
			lines = append(lines, s.InstanceType+" unknown")
		}
	}
	for _, d := range result.Dropped {
		line := d.InstanceType + " - " + d.Reason
		if d.Unknown {
			line += " (unknown)"
		}
		if d.Err {
			line += " (error)"
		}
		lines = append(lines, line)
	}
	return lines
}

func rigRequirements(requirements []corev1.NodeSelectorRequirement) string {
	words := make([]string, len(requirements))
	for i, r := range requirements {
		words[i] = strings.TrimPrefix(r.Key, "topology.kubernetes.io/") + " " + string(r.Operator)
		if len(r.Values) > 0 {
			words[i] += " " + strings.Join(r.Values, "|")
		}
	}
	return strings.Join(words, ", ")
}

func rigClaims(claims []allocator.ClaimAllocation) string {
	var b strings.Builder
	for _, c := range claims {
		fmt.Fprintf(&b, " %s:", c.Claim.Name)
		for i, d := range c.Devices {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%s=", d.Request)
			if !d.Template {
				fmt.Fprintf(&b, "%s/", d.Device.Pool)
			}
			b.WriteString(d.Device.Device.String())
			for _, name := range slices.Sorted(maps.Keys(d.Consumed)) {
				amount := d.Consumed[name]
				fmt.Fprintf(&b, "(%s)", amount.String())
			}
			if d.AdminAccess {
				b.WriteString("(admin)")
			}
		}
	}
	return b.String()
}

// rigWant compares lines. What follows "..." does not matter.
func rigWant(t testing.TB, result *allocator.Result, want ...string) {
	t.Helper()
	if got := rigLines(result); !slices.EqualFunc(got, want, func(got, want string) bool {
		prefix, open := strings.CutSuffix(want, "...")
		return got == want || open && strings.HasPrefix(got, prefix)
	}) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}
