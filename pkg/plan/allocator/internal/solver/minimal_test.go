package solver_test

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// held is a claim that has a device of node-a's pool.
func held(device string, edits ...func(*resourceapi.DeviceRequestAllocationResult)) *resourceapi.ResourceClaim {
	result := resourceapi.DeviceRequestAllocationResult{Driver: "gpu.example.com", Pool: "node-a", Device: device}
	for _, edit := range edits {
		edit(&result)
	}
	c := claim()
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{result},
	}}
	return c
}

func asShare(result *resourceapi.DeviceRequestAllocationResult) {
	result.ShareID = ptr.To(types.UID("share-" + result.Device))
}

func asAdmin(result *resourceapi.DeviceRequestAllocationResult) { result.AdminAccess = ptr.To(true) }

func admin(request resourceapi.DeviceRequest) resourceapi.DeviceRequest {
	request.Exactly = request.Exactly.DeepCopy()
	request.Exactly.AdminAccess = ptr.To(true)
	return request
}

func all(kind string) resourceapi.DeviceRequest {
	request := wants(0, kind)
	request.Exactly.AllocationMode = resourceapi.DeviceAllocationModeAll
	return request
}

func where(expression string, request resourceapi.DeviceRequest) resourceapi.DeviceRequest {
	request.Exactly = request.Exactly.DeepCopy()
	request.Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
	return request
}

// with publishes the only device slice with other pool data.
func with(slices []*resourceapi.ResourceSlice, edit func(*resourceapi.ResourceSliceSpec)) []*resourceapi.ResourceSlice {
	edit(&slices[len(slices)-1].Spec)
	return slices
}

// minimal are small cases in which it is easy to be unlike kube-scheduler. Where its
// behaviour is not what the API's documentation promises, the name says so.
func minimal() []minimalCase {
	plain := func(n int) []*resourceapi.ResourceSlice { return published("node-a", nil, devices("gpu", n)) }
	shares := func() []*resourceapi.ResourceSlice {
		return published("node-a", counterSets("4"), devices("gpu", 1, shareable("4"), consumes(one, "4")))
	}
	secondIsBare := published("node-a", nil, devices("gpu", 3, func(i int, device *resourceapi.Device) {
		if i == 1 {
			device.Attributes = nil
		}
	}))
	failing := `device.attributes["gpu.example.com"].type == "gpu"`
	numa := published("node-a", nil, devices("gpu", 2, intAttribute("numa", index)))
	nobody := func(spec *resourceapi.ResourceSliceSpec) { spec.NodeName = ptr.To("node-b") }
	newer := published("node-b", nil, devices("gpu", 1))[0]
	newer.Spec.Pool = resourceapi.ResourcePool{Name: "node-a", Generation: 2, ResourceSliceCount: 1}
	other := published("node-b", nil, devices("gpu", 1))[0]
	other.Spec.Pool = resourceapi.ResourcePool{Name: "node-a", Generation: 1, ResourceSliceCount: 1}
	twice := published("node-a", nil, devices("gpu", 1), devices("gpu", 1))
	valid := published("node-a-too", nil, devices("gpu", 1))
	valid[0].Spec.NodeName = ptr.To("node-a")
	stepped := func(slices []*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice {
		return with(slices, func(spec *resourceapi.ResourceSliceSpec) {
			spec.Devices[0].Capacity["memory"] = resourceapi.DeviceCapacity{Value: resource.MustParse("4"), RequestPolicy: &resourceapi.CapacityRequestPolicy{
				Default: ptr.To(resource.MustParse("1")), ValidRange: &resourceapi.CapacityRequestPolicyRange{
					Min: ptr.To(resource.MustParse("1")), Step: ptr.To(resource.MustParse("1")),
				},
			}}
		})
	}

	return []minimalCase{
		{name: "admin access after a request for the same device", slices: plain(1),
			claims: claims(claim(wants(1, "")), claim(admin(wants(1, "")))), want: Allocates},
		{name: "admin access before a request for the same device takes it, contrary to the API", slices: plain(1),
			claims: claims(claim(admin(wants(1, ""))), claim(wants(1, ""))), want: Cannot},
		{name: "admin access of two claims", slices: plain(1),
			claims: claims(claim(admin(wants(1, ""))), claim(admin(wants(1, "")))), want: Allocates},
		{name: "admin access twice in one claim", slices: plain(1),
			claims: claims(claim(admin(wants(1, "")), admin(wants(1, "")))), want: Cannot},
		{name: "admin access to a device that is held", slices: plain(1), allocated: claims(held("gpu-00")),
			claims: claims(claim(admin(wants(1, "")))), want: Allocates},
		{name: "a device that is held with admin access", slices: plain(1), allocated: claims(held("gpu-00", asAdmin)),
			claims: claims(claim(wants(1, ""))), want: Allocates},
		{name: "admin access to a share takes capacity in the same pod, contrary to the API", slices: shares(),
			claims: claims(claim(admin(wantsMemory(1, "4"))), claim(wantsMemory(1, "1"))), want: Cannot},

		{name: "a second share of counters that are used up", slices: shares(),
			claims: claims(claim(wantsMemory(1, "2")), claim(wantsMemory(1, "2"))), want: Allocates},
		{name: "a share of a device of which one is held without capacity", slices: shares(), allocated: claims(held("gpu-00", asShare)),
			claims: claims(claim(wantsMemory(1, "4"))), want: Allocates},
		{name: "a share of a device that is held whole", slices: shares(), allocated: claims(held("gpu-00")),
			claims: claims(claim(wantsMemory(1, "1"))), want: Cannot},
		{name: "a device of another set while a counter is overdrawn, contrary to the API",
			slices:    published("node-a", counterSets("1", "1"), devices("mig", 3, consumes(func(i int) int { return i / 2 }, "1"))),
			allocated: claims(held("mig-00"), held("mig-01")), claims: claims(claim(wants(1, ""))), want: Cannot},

		{name: "a selector that fails only behind the solution", slices: secondIsBare, claims: claims(claim(where(failing, wants(1, "")))), want: Allocates},
		{name: "a selector that fails before the solution", slices: secondIsBare, claims: claims(claim(where(failing, wants(2, "")))), want: Errors},
		{name: "a selector that fails after what cannot be met", slices: plain(2),
			claims: claims(claim(wants(3, "")), claim(where(`device.attributes["gpu.example.com"].none`, wants(1, "")))), want: Cannot},
		{name: "a selector that fails before what cannot be met", slices: plain(2),
			claims: claims(claim(where(`device.attributes["gpu.example.com"].none`, wants(1, ""))), claim(wants(3, ""))), want: Errors},
		{name: "a selector that does not compile, and no device", slices: plain(0), claims: claims(claim(where(`1 +`, wants(1, "")))), want: Cannot},

		{name: "all of none", slices: plain(0), claims: claims(claim(all(""))), want: Cannot},
		{name: "all of which a constraint rejects one", slices: numa, claims: claims(matching("gpu.example.com/numa", claim(all("")))), want: Errors},
		{name: "all of which one is held", slices: plain(2), allocated: claims(held("gpu-01")), claims: claims(claim(all(""))), want: Cannot},
		{name: "all of 33", slices: plain(33), claims: claims(claim(all(""))), want: Errors},
		{name: "all of 32", slices: plain(32), claims: claims(claim(all(""))), want: Allocates},
		{name: "all while a pool is incomplete", slices: with(plain(1), func(spec *resourceapi.ResourceSliceSpec) { spec.Pool.ResourceSliceCount = 2 }),
			claims: claims(claim(all(""))), want: Errors},
		{name: "all while another node's pool is incomplete", slices: append(plain(1), with(published("other", nil, devices("gpu", 1)), func(spec *resourceapi.ResourceSliceSpec) {
			nobody(spec)
			spec.Pool.ResourceSliceCount = 2
		})...), claims: claims(claim(all(""))), want: Allocates},

		{name: "an old generation that is whole, although a newer one is elsewhere, contrary to the API", slices: append(plain(1), newer),
			claims: claims(claim(wants(1, ""))), want: Allocates},
		{name: "an old generation that is not whole, and a newer one elsewhere",
			slices: append(with(plain(1), func(spec *resourceapi.ResourceSliceSpec) { spec.Pool.ResourceSliceCount = 2 }), newer), claims: claims(claim(all(""))), want: Cannot},
		{name: "more slices than there should be, contrary to the API", slices: append(plain(1), other), claims: claims(claim(wants(1, ""))), want: Allocates},
		{name: "an invalid pool, and nothing found", slices: twice, claims: claims(claim(wants(1, ""))), want: Errors},
		{name: "an invalid pool, and a device of another", slices: append(twice, valid...), claims: claims(claim(wants(1, ""))), want: Allocates},

		{name: "a capacity by its full name", slices: published("node-a", nil, devices("gpu", 1, shareable("4"))),
			claims: claims(claim(func() resourceapi.DeviceRequest {
				request := wants(1, "")
				request.Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"gpu.example.com/memory": resource.MustParse("1")}}
				return request
			}())), want: Cannot},
		{name: "a capacity that no step can reach", slices: stepped(shares()), claims: claims(claim(wantsMemory(1, "9223372036854775807"))), want: Errors},
		{name: "a capacity that is too much, without steps", slices: shares(), claims: claims(claim(wantsMemory(1, "9223372036854775807"))), want: Cannot},
		{name: "no requests", slices: plain(0), claims: claims(claim()), want: Allocates},
	}
}

type minimalCase struct {
	name              string
	slices            []*resourceapi.ResourceSlice
	allocated, claims []*resourceapi.ResourceClaim
	want              Verdict
}

// TestMinimalCases compares both allocators with what was worked out by hand.
func TestMinimalCases(t *testing.T) {
	p := newComparer()
	for _, m := range minimal() {
		t.Run(m.name, func(t *testing.T) {
			c := row{m.name, m.slices, m.claims, m.want}.input()
			c.AllocatedClaims = m.allocated
			if want := p.scheduler.Allocate(c, c.Node); want.Verdict != m.want {
				t.Errorf("kube-scheduler: %s, want %q", want, m.want)
			}
			if text, _ := p.difference(c, c.Node); text != "" {
				t.Error(text)
			}
		})
	}
}
