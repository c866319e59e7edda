package solver_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// farm makes up nodes with several GPUs, their partitions and NICs that are alike or
// nearly so, and claims that compete for them: what the solver leaves out because it
// looks alike must not be what kube-scheduler finds.
type farm struct {
	*rand.Rand
	// share, counters and failing say that GPUs are shared, that there are partitions,
	// and that a selector fails on some devices.
	share, counters, failing bool
	memory, roots            int
	common                   *resourceapi.DeviceSubRequest
}

// TestGroupsAgainstKubeScheduler compares seeded cases of a farm.
func TestGroupsAgainstKubeScheduler(t *testing.T) {
	p := newComparer()
	verdicts := make(map[Verdict]int)
	for seed := range uint64(500) {
		c := newFarm(seed).generate()
		text, verdict := p.difference(c, c.Node)
		verdicts[verdict]++
		if text != "" {
			t.Fatalf("seed %d: %s", seed, p.describe(c, c.Node))
		}
	}
	t.Logf("kube-scheduler's verdicts: %v", verdicts)
}

func newFarm(seed uint64) *farm {
	f := &farm{Rand: rand.New(rand.NewPCG(seed, 7))}
	f.share, f.counters, f.failing = f.one(2), f.one(2), f.one(6)
	f.memory, f.roots = 4+f.IntN(5), 1+f.IntN(3)
	if f.one(3) {
		common := f.request()
		common.Count = 1
		f.common = &common
	}
	return f
}

// one is true once in n times.
func (f *farm) one(n int) bool { return f.IntN(n) == 0 }

func (f *farm) generate() Case {
	c := Case{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}
	for _, name := range []string{"any", "gpu", "mig", "nic"} {
		class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if name != "any" {
			class.Spec.Selectors = celSelectors(`device.attributes["d"].type == "` + name + `"`)
		}
		c.Classes = append(c.Classes, class)
	}
	gpus := 1 + f.IntN(5)
	for i := range 1 + f.IntN(2) {
		f.pool(&c, fmt.Sprintf("p%d", i), gpus)
	}
	for i := range []int{1, 1, 1, 2, 2, 3}[f.IntN(6)] {
		c.Claims = append(c.Claims, f.claim(fmt.Sprintf("c%d", i)))
	}
	return c
}

func celSelectors(expression string) []resourceapi.DeviceSelector {
	return []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
}

func number(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

func amounts(memory, engines int) map[string]resourceapi.Counter {
	result := map[string]resourceapi.Counter{"memory": {Value: number(memory)}}
	if engines > 0 {
		result["engines"] = resourceapi.Counter{Value: number(engines)}
	}
	return result
}

func (f *farm) pool(c *Case, name string, gpus int) {
	var devices []resourceapi.Device
	contents := []resourceapi.ResourceSliceSpec{{}}
	for i := range gpus {
		set := fmt.Sprintf("s%d", i)
		if f.counters {
			contents[0].SharedCounters = append(contents[0].SharedCounters, resourceapi.CounterSet{Name: set, Counters: amounts(f.memory, 3)})
		}
		devices = append(devices, f.gpu(set)...)
	}
	if f.counters {
		contents = append(contents, resourceapi.ResourceSliceSpec{})
	}
	contents[len(contents)-1].Devices = devices
	for i, spec := range contents {
		spec.Driver, spec.NodeName = "d", ptr.To("n")
		spec.Pool = resourceapi.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: int64(len(contents))}
		c.Slices = append(c.Slices, &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i)}, Spec: spec})
	}
	c.AllocatedClaims = append(c.AllocatedClaims, f.allocated(name, devices))
}

// gpu is a GPU with its partitions and perhaps a NIC beside it.
func (f *farm) gpu(set string) []resourceapi.Device {
	var devices []resourceapi.Device
	if !f.one(4) {
		devices = append(devices, f.whole(set))
	}
	for i := range f.IntN(4) {
		if f.counters {
			d := f.device(fmt.Sprintf("mig-%s-%d", set, i), "mig")
			d.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: number(1 + f.IntN(2))}}
			d.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: set, Counters: amounts(1+f.IntN(f.memory/2), f.IntN(3)/2)}}
			devices = append(devices, d)
		}
	}
	if f.one(3) {
		devices = append(devices, f.device("nic-"+set, "nic"))
	}
	return devices
}

func (f *farm) whole(set string) resourceapi.Device {
	d := f.device("gpu-"+set, "gpu")
	memory := resourceapi.DeviceCapacity{Value: number(f.memory)}
	if f.share && !f.one(4) {
		d.AllowMultipleAllocations = ptr.To(true)
		if f.one(2) {
			memory.RequestPolicy = &resourceapi.CapacityRequestPolicy{
				Default:    ptr.To(number(f.memory)),
				ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: ptr.To(number(1)), Step: ptr.To(number(1))},
			}
		}
	}
	d.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": memory}
	if f.one(10) {
		d.Taints = []resourceapi.DeviceTaint{{Key: "t", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	}
	if f.counters {
		d.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: set, Counters: amounts(f.memory, 2)}}
	}
	return d
}

func (f *farm) device(name, kind string) resourceapi.Device {
	d := resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"type": {StringValue: &kind}}}
	if !f.one(8) {
		d.Attributes["root"] = resourceapi.DeviceAttribute{IntValue: ptr.To(int64(f.IntN(f.roots)))}
	}
	if !f.failing || !f.one(8) {
		d.Attributes["kind"] = resourceapi.DeviceAttribute{IntValue: ptr.To(int64(f.IntN(2)))}
	}
	return d
}

// allocated holds some of the devices.
func (f *farm) allocated(pool string, devices []resourceapi.Device) *resourceapi.ResourceClaim {
	allocation := &resourceapi.AllocationResult{}
	for _, d := range devices {
		if !f.one(8) {
			continue
		}
		result := resourceapi.DeviceRequestAllocationResult{Driver: "d", Pool: pool, Device: d.Name}
		if d.AllowMultipleAllocations != nil {
			result.ShareID = ptr.To(types.UID(d.Name))
			result.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{"memory": number(1 + f.IntN(3))}
		}
		allocation.Devices.Results = append(allocation.Devices.Results, result)
	}
	return &resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{Allocation: allocation}}
}

func (f *farm) claim(name string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	var names []string
	for i := range 1 + f.IntN(3) {
		names = append(names, fmt.Sprintf("r%d", i))
		r := resourceapi.DeviceRequest{Name: names[i]}
		a, b := f.request(), f.request()
		if f.common != nil && !f.one(4) {
			a = *f.common
		}
		if f.one(6) {
			a.Name, b.Name = "a", "b"
			r.FirstAvailable = []resourceapi.DeviceSubRequest{a, b}
		} else {
			r.Exactly = &resourceapi.ExactDeviceRequest{
				DeviceClassName: a.DeviceClassName, Selectors: a.Selectors, AllocationMode: a.AllocationMode, Count: a.Count,
				Tolerations: a.Tolerations, Capacity: a.Capacity,
			}
			if f.one(15) {
				r.Exactly.AdminAccess = ptr.To(true)
			}
		}
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, r)
	}
	if f.one(2) {
		attribute := []resourceapi.FullyQualifiedName{"d/root", "d/kind"}[f.IntN(2)]
		constraint := resourceapi.DeviceConstraint{MatchAttribute: &attribute}
		if f.one(3) {
			constraint = resourceapi.DeviceConstraint{DistinctAttribute: &attribute}
		}
		if f.one(2) {
			constraint.Requests = names[:1+f.IntN(len(names))]
		}
		c.Spec.Devices.Constraints = append(c.Spec.Devices.Constraints, constraint)
	}
	return c
}

func (f *farm) request() resourceapi.DeviceSubRequest {
	r := resourceapi.DeviceSubRequest{
		DeviceClassName: []string{"any", "gpu", "gpu", "mig", "nic"}[f.IntN(5)],
		AllocationMode:  resourceapi.DeviceAllocationModeExactCount,
		Count:           []int64{1, 1, 1, 2, 2, 3}[f.IntN(6)],
	}
	if f.one(12) {
		r.AllocationMode, r.Count = resourceapi.DeviceAllocationModeAll, 0
	}
	if f.one(3) {
		r.Selectors = celSelectors(fmt.Sprintf(`device.attributes["d"].kind == %d`, f.IntN(2)))
	}
	if f.share && f.one(2) || f.one(8) {
		r.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": number(1 + f.IntN(4))}}
	}
	if f.one(3) {
		r.Tolerations = []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
	}
	return r
}
