package solver

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

func TestClaimsThatCannotBeAllocatedAnywhere(t *testing.T) {
	change := func(f func(*resourceapi.DeviceClaim)) *rig {
		c := claimOf("c", exactly("a", 1))
		f(&c.Spec.Devices)
		return newRig(c).pool("p", devices(1, "d-%d"))
	}
	request := func(f func(*resourceapi.ExactDeviceRequest)) *rig {
		return change(func(d *resourceapi.DeviceClaim) { f(d.Requests[0].Exactly) })
	}
	for name, test := range map[string]struct {
		rig  *rig
		want string
	}{
		"no class":    {request(func(r *resourceapi.ExactDeviceRequest) { r.DeviceClassName = "" }), "no device class"},
		"which class": {request(func(r *resourceapi.ExactDeviceRequest) { r.DeviceClassName = "x" }), "device class x does not exist"},
		"which mode":  {request(func(r *resourceapi.ExactDeviceRequest) { r.AllocationMode = "Some" }), `"Some"`},
		"no selector": {request(func(r *resourceapi.ExactDeviceRequest) { r.Selectors = []resourceapi.DeviceSelector{{}} }), "selector #0"},
		"derived": {request(func(r *resourceapi.ExactDeviceRequest) {
			r.DerivedAttributes = make([]resourceapi.DeviceDerivedAttribute, 1)
		}), "derived"},
		"too many":     {request(func(r *resourceapi.ExactDeviceRequest) { r.Count = 1 << 62 }), "32"},
		"no request":   {change(func(d *resourceapi.DeviceClaim) { d.Requests[0].Exactly = nil }), "neither"},
		"no condition": {change(func(d *resourceapi.DeviceClaim) { d.Constraints = make([]resourceapi.DeviceConstraint, 1) }), "constraint #0"},
	} {
		t.Run(name, func(t *testing.T) { test.rig.checkError(t, "default/c", test.want) })
	}
}

func TestRequestsThatCannotBeToldApart(t *testing.T) {
	twins := func(claims ...*resourceapi.ResourceClaim) []int {
		t.Helper()
		r := newRig(claims...)
		compiled, err := Compile(r.cache, r.claims, r.classes)
		if err != nil {
			t.Fatal(err)
		}
		var result []int
		for _, r := range compiled.requests {
			result = append(result, r.twin)
		}
		return result
	}
	check := func(name string, got []int, want ...int) {
		t.Helper()
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: %v, want %v", name, got, want)
				return
			}
		}
	}
	check("alike", twins(claimOf("c", exactly("a", 1), exactly("b", 2), exactly("c", 1)), claimOf("d", exactly("a", 1))), -1, -1, 0, 2)
	check("selectors", twins(claimOf("c", exactly("a", 1), exactly("b", 1, selecting(isGPU)), exactly("c", 1, selecting(isGPU)))), -1, -1, 1)
	check("capacities", twins(claimOf("c", exactly("a", 1, asking("m=1")), exactly("b", 1, asking("m=2")))), -1, -1)
	check("tolerations", twins(claimOf("c", exactly("a", 1, tolerating("x")), exactly("b", 1))), -1, -1)
	check("constraints", twins(claimOf("c", exactly("a", 1), exactly("b", 1), exactly("c", 1), matchAll("x/y", "a", "c"))), -1, -1, 0)
	check("admin access", twins(claimOf("c", exactly("a", 1), exactly("b", 1), exactly("w", 1, admin))), -1, -1, -1)
}
