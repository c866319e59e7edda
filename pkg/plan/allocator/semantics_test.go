package allocator_test

import (
	"encoding/json"
	"fmt"
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

// Each test here is about something in which another allocator for nodes that do not
// exist yet is known to differ from kube-scheduler. What is expected follows from the
// API's documentation and was worked out by hand.

const gpuDriver = "gpu.example.com"

// gpu returns a device, changed by edits.
func gpu(name string, edits ...func(*resourceapi.Device)) resourceapi.Device {
	device := resourceapi.Device{Name: name}
	for _, edit := range edits {
		edit(&device)
	}
	return device
}

func withMemory(memory string) func(*resourceapi.Device) {
	return func(device *resourceapi.Device) {
		device.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse(memory)}}
	}
}

func withNUMA(node int64) func(*resourceapi.Device) {
	return func(device *resourceapi.Device) {
		device.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"numa": {IntValue: &node}}
	}
}

func withTaint(effect resourceapi.DeviceTaintEffect) func(*resourceapi.Device) {
	return func(device *resourceapi.Device) {
		device.Taints = []resourceapi.DeviceTaint{{Key: "example.com/sick", Effect: effect}}
	}
}

func consuming(memory string) func(*resourceapi.Device) {
	return func(device *resourceapi.Device) {
		device.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{
			CounterSet: "gpu-0", Counters: map[string]resourceapi.Counter{"memory": {Value: resource.MustParse(memory)}},
		}}
	}
}

func shareable(device *resourceapi.Device) { device.AllowMultipleAllocations = ptr.To(true) }

// instanceType publishes devices of the driver gpu.example.com.
func instanceType(name string, devices ...resourceapi.Device) *allocator.InstanceType {
	return &allocator.InstanceType{Name: name, Templates: []allocator.Template{{
		Driver: gpuDriver, Slices: []allocator.TemplateSlice{{Devices: devices}},
	}}}
}

// request makes a claim of one request for count devices.
func request(name string, count int64, edits ...func(*resourceapi.DeviceClaim)) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: "any", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
	}}}
	for _, edit := range edits {
		edit(&claim.Spec.Devices)
	}
	return claim
}

func asking(name resourceapi.QualifiedName, amount string) func(*resourceapi.DeviceClaim) {
	return func(devices *resourceapi.DeviceClaim) {
		devices.Requests[0].Exactly.Capacity = &resourceapi.CapacityRequirements{
			Requests: map[resourceapi.QualifiedName]resource.Quantity{name: resource.MustParse(amount)},
		}
	}
}

func selecting(expression string) func(*resourceapi.DeviceClaim) {
	return func(devices *resourceapi.DeviceClaim) {
		devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
	}
}

func asAdmin(devices *resourceapi.DeviceClaim) {
	devices.Requests[0].Exactly.AdminAccess = ptr.To(true)
}

func all(devices *resourceapi.DeviceClaim) {
	devices.Requests[0].Exactly.AllocationMode = resourceapi.DeviceAllocationModeAll
	devices.Requests[0].Exactly.Count = 0
}

// rig is one scheduling loop.
type rig struct {
	*testing.T
	*allocator.Allocator
}

func newRig(t *testing.T, options allocator.Options) rig {
	t.Helper()
	if options.Classes == nil {
		options.Classes = []*resourceapi.DeviceClass{{ObjectMeta: metav1.ObjectMeta{Name: "any"}}}
	}
	a, err := allocator.New(options)
	if err != nil {
		t.Fatalf("new allocator: %v", err)
	}
	return rig{t, a}
}

// place asks for a node claim that may become one of the instance types.
func (r rig) place(claims []*resourceapi.ResourceClaim, instanceTypes ...*allocator.InstanceType) *allocator.Result {
	r.Helper()
	return r.placeOn(allocator.Target{ID: "claim-a", InstanceTypes: instanceTypes}, claims...)
}

func (r rig) placeOn(target allocator.Target, claims ...*resourceapi.ResourceClaim) *allocator.Result {
	r.Helper()
	result, err := r.Allocate(r.Context(), target, claims)
	if err != nil {
		r.Fatalf("allocate: %v", err)
	}
	return result
}

func (r rig) commit(result *allocator.Result) {
	r.Helper()
	if err := r.Commit(result); err != nil {
		r.Fatalf("commit: %v", err)
	}
}

func claims(list ...*resourceapi.ResourceClaim) []*resourceapi.ResourceClaim { return list }

// summary is "type: device device+consumed | device" for each survivor, claims apart by
// bars, and "type: no" for each type dropped, in words as short as that.
func summary(result *allocator.Result) []string {
	var lines []string
	for _, survivor := range result.Survivors {
		for _, placement := range survivor.Placements {
			var parts []string
			for _, claim := range placement.Claims {
				var devices []string
				for _, device := range claim.Devices {
					text := device.Device.Device.String()
					if memory, found := device.Consumed["memory"]; found {
						text += "+" + memory.String()
					}
					devices = append(devices, text)
				}
				parts = append(parts, strings.Join(devices, " "))
			}
			lines = append(lines, survivor.InstanceType+": "+strings.Join(parts, " | "))
		}
	}
	for _, dropped := range result.Dropped {
		kind := "no"
		switch {
		case dropped.Err:
			kind = "error"
		case dropped.Unknown:
			kind = "unknown"
		}
		lines = append(lines, dropped.InstanceType+": "+kind)
	}
	return lines
}

func expect(t *testing.T, result *allocator.Result, want ...string) {
	t.Helper()
	if got := summary(result); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q; dropped: %+v", got, want, result.Dropped)
	}
}

func TestCapacityRequestCountsOnExclusiveDevices(t *testing.T) {
	small, large := instanceType("small", gpu("g0", withMemory("40Gi"))), instanceType("large", gpu("g0", withMemory("80Gi")))
	r := newRig(t, allocator.Options{})
	expect(t, r.place(claims(request("c", 1, asking("memory", "60Gi"))), small, large), "large: g0", "small: no")
	expect(t, r.place(claims(request("c", 1, asking("memory", "40Gi"))), small, large), "small: g0", "large: g0")
	expect(t, r.place(claims(request("c", 1, asking("cores", "1"))), small, large), "small: no", "large: no")
}

func TestSecondShareOfADeviceThatConsumesCounters(t *testing.T) {
	shared := instanceType("t", gpu("g0", shareable, withMemory("40Gi"), consuming("40")), gpu("part", consuming("20"), withNUMA(0)))
	shared.Templates[0].Slices = append(shared.Templates[0].Slices, allocator.TemplateSlice{SharedCounters: []resourceapi.CounterSet{
		{Name: "gpu-0", Counters: map[string]resourceapi.Counter{"memory": {Value: resource.MustParse("40")}}},
	}})
	share := func(name string) *resourceapi.ResourceClaim {
		return request(name, 1, asking("memory", "15Gi"), selecting(`device.allowMultipleAllocations`))
	}
	part := request("part", 1, selecting(`!device.allowMultipleAllocations`))

	r := newRig(t, allocator.Options{})
	expect(t, r.place(claims(share("a"), share("b")), shared), "t: g0+15Gi | g0+15Gi")
	expect(t, r.place(claims(share("a"), share("b"), share("c")), shared), "t: no")
	expect(t, r.place(claims(share("a"), part), shared), "t: no")

	first := r.place(claims(share("a")), shared)
	expect(t, first, "t: g0+15Gi")
	r.commit(first)
	expect(t, r.place(claims(part), shared), "t: no")
	second := r.place(claims(share("b")), shared)
	expect(t, second, "t: g0+15Gi")
	r.commit(second)
	expect(t, r.place(claims(share("c")), shared), "t: no")
}

func TestAdminAccessTakesNothing(t *testing.T) {
	one := instanceType("t", gpu("g0"))
	r := newRig(t, allocator.Options{})
	for _, name := range []string{"watch", "watch too"} {
		watching := r.place(claims(request(name, 1, asAdmin)), one)
		expect(t, watching, "t: g0")
		r.commit(watching)
	}
	working := r.place(claims(request("work", 1)), one)
	expect(t, working, "t: g0")
	r.commit(working)
	expect(t, r.place(claims(request("more work", 1)), one), "t: no")
	expect(t, r.place(claims(request("watch three", 1, asAdmin)), one), "t: g0")
}

func TestSelectorThatFailsIsReported(t *testing.T) {
	r := newRig(t, allocator.Options{})
	result := r.place(claims(request("c", 1, selecting(`device.attributes["gpu.example.com"].memoryType == "HBM3"`))), instanceType("t", gpu("g0")))
	expect(t, result, "t: error")
	for _, dropped := range result.Dropped {
		if !strings.Contains(dropped.Reason, "memoryType") {
			t.Errorf("reason %q does not say what is missing", dropped.Reason)
		}
	}
}

func TestTaintsAndTolerations(t *testing.T) {
	sick := instanceType("sick", gpu("g0", withTaint(resourceapi.DeviceTaintEffectNoSchedule)))
	dying := instanceType("dying", gpu("g0", withTaint(resourceapi.DeviceTaintEffectNoExecute)))
	noted := instanceType("noted", gpu("g0", withTaint(resourceapi.DeviceTaintEffectNone)))
	half := instanceType("half", gpu("g0", withTaint(resourceapi.DeviceTaintEffectNoSchedule)), gpu("g1"))
	tolerant := func(devices *resourceapi.DeviceClaim) {
		devices.Requests[0].Exactly.Tolerations = []resourceapi.DeviceToleration{{
			Key: "example.com/sick", Operator: resourceapi.DeviceTolerationOpExists, Effect: resourceapi.DeviceTaintEffectNoSchedule,
		}}
	}
	r := newRig(t, allocator.Options{})
	expect(t, r.place(claims(request("c", 1)), sick, dying, noted, half), "noted: g0", "half: g1", "sick: no", "dying: no")
	expect(t, r.place(claims(request("c", 1, tolerant)), sick, dying, noted, half), "sick: g0", "noted: g0", "half: g0", "dying: no")
}

func TestDistinctAttribute(t *testing.T) {
	distinct := func(devices *resourceapi.DeviceClaim) {
		devices.Constraints = []resourceapi.DeviceConstraint{{DistinctAttribute: ptr.To[resourceapi.FullyQualifiedName](gpuDriver + "/numa")}}
	}
	together := instanceType("together", gpu("g0", withNUMA(0)), gpu("g1", withNUMA(0)))
	apart := instanceType("apart", gpu("g0", withNUMA(0)), gpu("g1", withNUMA(0)), gpu("g2", withNUMA(1)))
	unknown := instanceType("unknown", gpu("g0", withNUMA(0)), gpu("g1"))
	r := newRig(t, allocator.Options{})
	expect(t, r.place(claims(request("c", 2, distinct)), together, apart, unknown), "apart: g0 g2", "together: no", "unknown: no")
}

// TestDevicesWithBindingConditionsComeLast: kube-scheduler prefers pools without. Of one
// driver alone "fabric.example.com" would come before "gpu.example.com".
func TestDevicesWithBindingConditionsComeLast(t *testing.T) {
	fabric := allocator.Template{Driver: "fabric.example.com", Slices: []allocator.TemplateSlice{{Devices: []resourceapi.Device{
		{Name: "f0", BindsToNode: ptr.To(true), BindingConditions: []string{"example.com/attached"}, BindingFailureConditions: []string{"example.com/failed"}},
	}}}}
	local := allocator.Template{Driver: gpuDriver, Slices: []allocator.TemplateSlice{{Devices: []resourceapi.Device{gpu("g0")}}}}
	both := &allocator.InstanceType{Name: "both", Templates: []allocator.Template{fabric, local}}
	only := &allocator.InstanceType{Name: "only", Templates: []allocator.Template{fabric}}
	r := newRig(t, allocator.Options{})
	expect(t, r.place(claims(request("c", 1)), both, only), "both: g0", "only: f0")
	expect(t, r.place(claims(request("a", 1), request("b", 1)), both, only), "both: g0 | f0", "only: no")
}

// slice is one of count slices of a pool, for one node or, without, for all.
func slice(pool, node string, count int64, devices ...resourceapi.Device) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "slice-of-" + pool},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: gpuDriver, Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: count}, Devices: devices,
		},
	}
	if node != "" {
		s.Spec.NodeName = &node
	} else {
		s.Spec.AllNodes = ptr.To(true)
	}
	return s
}

func TestAllDevicesBesideAnotherNodesIncompletePool(t *testing.T) {
	pair := instanceType("pair", gpu("g0"), gpu("g1"))
	mine := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	r := newRig(t, allocator.Options{Slices: []*resourceapi.ResourceSlice{
		slice("mine", "mine", 1, gpu("m0"), gpu("m1"), gpu("m2")),
		slice("other", "other", 2, gpu("o0")),
	}})
	expect(t, r.place(claims(request("c", 0, all)), pair), "pair: g0 g1")
	expect(t, r.placeOn(allocator.Target{ID: "mine", Node: mine}, request("c", 0, all)), ": m0 m1 m2")
	expect(t, r.placeOn(allocator.Target{ID: "other", Node: other}, request("c", 0, all)), ": error")
}

// TestABudgetThatRunsOutKeepsTheTypesThatWereFound gives one of three types devices of
// which it takes long to find the right ones.
func TestABudgetThatRunsOutKeepsTheTypesThatWereFound(t *testing.T) {
	easy := func(name string) *allocator.InstanceType { return instanceType(name, gpu("g0")) }
	hard := instanceType("hard", puzzle()...)
	r := newRig(t, allocator.Options{Budget: 40})
	claim := request("c", 1)
	claim.Spec.Devices.Requests[0].Exactly = nil
	claim.Spec.Devices.Requests[0].FirstAvailable = []resourceapi.DeviceSubRequest{
		{Name: "puzzle", DeviceClassName: "any", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 8,
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `"row" in device.attributes["gpu.example.com"]`}}}},
		{Name: "one", DeviceClassName: "any", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `!("row" in device.attributes["gpu.example.com"])`}}}},
	}
	claim.Spec.Devices.Constraints = puzzleConstraints()
	expect(t, r.place(claims(claim), easy("first"), hard, easy("last")), "first: g0", "last: g0", "hard: unknown")
}

// puzzle returns the squares of a chess board as devices. Eight that differ in row,
// column and both diagonals are places for eight queens.
func puzzle() []resourceapi.Device {
	var devices []resourceapi.Device
	for row := range int64(8) {
		for column := range int64(8) {
			devices = append(devices, gpu(fmt.Sprintf("g%d%d", row, column), func(device *resourceapi.Device) {
				device.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
					"column": {IntValue: ptr.To(column)}, "row": {IntValue: ptr.To(row)},
					"up": {IntValue: ptr.To(row + column)}, "down": {IntValue: ptr.To(row - column)},
				}
			}))
		}
	}
	return devices
}

func puzzleConstraints() []resourceapi.DeviceConstraint {
	var constraints []resourceapi.DeviceConstraint
	for _, name := range []resourceapi.FullyQualifiedName{"column", "row", "up", "down"} {
		constraints = append(constraints, resourceapi.DeviceConstraint{DistinctAttribute: ptr.To(gpuDriver + "/" + name), Requests: []string{"gpu/puzzle"}})
	}
	return constraints
}

func TestSameAnswer100Times(t *testing.T) {
	var types []*allocator.InstanceType
	for i := range 8 {
		types = append(types, instanceType(fmt.Sprintf("t%d", i), gpu("g0", withNUMA(0)), gpu("g1", withNUMA(1)), gpu("g2", withNUMA(int64(i%2)), withMemory("40Gi"))))
	}
	slices := []*resourceapi.ResourceSlice{slice("b", "", 1, gpu("b0", withNUMA(1))), slice("a", "", 1, gpu("a0", withNUMA(0))), slice("c", "", 1, gpu("c0"))}
	match := func(devices *resourceapi.DeviceClaim) {
		devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: ptr.To[resourceapi.FullyQualifiedName](gpuDriver + "/numa")}}
	}
	var first string
	for i := range 100 {
		r := newRig(t, allocator.Options{Slices: slices})
		result, err := json.Marshal(r.place(claims(request("a", 2, match), request("b", 2), request("c", 1, asking("memory", "1Gi"))), types...))
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = string(result)
		} else if string(result) != first {
			t.Fatalf("answer %d is\n%s\nwant\n%s", i, result, first)
		}
	}
}

// TestPoolsAreTakenInTheOrderOfTheirNames: not in that of a list or a map, and the
// cluster's before the templates'.
func TestPoolsAreTakenInTheOrderOfTheirNames(t *testing.T) {
	pools := []*resourceapi.ResourceSlice{slice("m", "", 1, gpu("m0")), slice("z", "", 1, gpu("z0")), slice("a", "", 1, gpu("a0"))}
	for range len(pools) {
		pools = append(pools[1:], pools[0])
		r := newRig(t, allocator.Options{Slices: slices.Clone(pools)})
		expect(t, r.place(claims(request("c", 4)), instanceType("t", gpu("g0"), gpu("g1"))), "t: a0 m0 z0 g0")
		expect(t, r.place(claims(request("c", 2)), instanceType("t", gpu("g0"), gpu("g1"))), "t: a0 m0")
	}
}
