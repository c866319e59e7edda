package solver

import (
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

const (
	typeIs = `device.attributes["gpu.example.com"].type == `
	isGPU  = typeIs + `"gpu"`
	isNIC  = typeIs + `"nic"`
	// failing is an error for devices without the attribute.
	failing = `device.attributes["gpu.example.com"].absent == 1`
	broken  = `device.attributes[`
)

func gpu(name string, options ...deviceOption) resourceapi.Device {
	return device(name, append([]deviceOption{attribute("type", "gpu")}, options...)...)
}

func nic(name string, options ...deviceOption) resourceapi.Device {
	return device(name, append([]deviceOption{attribute("type", "nic")}, options...)...)
}

// everything is a policy under which a share takes all by default.
func everything(value, step string) *resourceapi.CapacityRequestPolicy {
	return &resourceapi.CapacityRequestPolicy{
		Default:    ptr.To(resource.MustParse(value)),
		ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: ptr.To(resource.MustParse(step)), Step: ptr.To(resource.MustParse(step))},
	}
}

func TestDevicesComeInPublishingOrder(t *testing.T) {
	newRig(claimOf("c", exactly("a", 1), exactly("b", 2))).
		pool("pool-2", devices(2, "x-%d")).pool("pool-1", devices(2, "y-%d")).
		check(t, []string{"a=pool-1/y-0", "b=pool-1/y-1", "b=pool-2/x-0"})
}

func TestSelectorsOfClassAndRequestBothCount(t *testing.T) {
	newRig(claimOf("c", exactly("a", 1, ofClass("gpu"), selecting(`device.attributes["gpu.example.com"].size == 2`)))).
		class("gpu", isGPU).
		pool("p", []resourceapi.Device{nic("n", attribute("size", 2)), gpu("small", attribute("size", 1)), gpu("large", attribute("size", 2))}).
		check(t, []string{"a=p/large"})
}

func TestDevicesInUseAreLeftOut(t *testing.T) {
	newRig(claimOf("c", exactly("a", 1))).pool("p", devices(3, "d-%d")).inUse("p/d-0", "p/d-1").
		check(t, []string{"a=p/d-2"})
}

func TestTheSearchGoesBackToAnEarlierRequest(t *testing.T) {
	// The first request would take the only GPU.
	newRig(claimOf("c", exactly("any", 1), exactly("gpu", 1, selecting(isGPU)))).
		pool("p", []resourceapi.Device{gpu("g"), nic("n")}).
		check(t, []string{"any=p/n", "gpu=p/g"})
}

func TestTheSearchGoesBackToAnEarlierClaim(t *testing.T) {
	newRig(claimOf("one", exactly("any", 1)), claimOf("two", exactly("gpu", 1, selecting(isGPU)))).
		pool("p", []resourceapi.Device{gpu("g"), nic("n")}).
		check(t, []string{"any=p/n"}, []string{"gpu=p/g"})
}

func TestMatchAttribute(t *testing.T) {
	numa := func(n int) deviceOption { return attribute("numa", n) }
	newRig(claimOf("c", exactly("gpu", 2, selecting(isGPU)), exactly("nic", 1, selecting(isNIC)), matchAll("gpu.example.com/numa"))).
		pool("p", []resourceapi.Device{
			gpu("g0", numa(0)), gpu("g1", numa(1)), gpu("g2", numa(0)), gpu("g3", numa(1)), gpu("g4"),
			nic("n0", numa(1)),
		}).
		check(t, []string{"gpu=p/g1", "gpu=p/g3", "nic=p/n0"})
}

func TestMatchAttributeOfSomeRequests(t *testing.T) {
	numa := func(n int) deviceOption { return attribute("numa", n) }
	newRig(claimOf("c", exactly("a", 1), exactly("b", 1), exactly("c", 1), matchAll("gpu.example.com/numa", "a", "c"))).
		pool("p", []resourceapi.Device{gpu("g0", numa(0)), gpu("g1", numa(1)), gpu("g2", numa(0))}).
		check(t, []string{"a=p/g0", "b=p/g1", "c=p/g2"})
}

func TestValuesOfDifferentKindsDoNotMatch(t *testing.T) {
	newRig(claimOf("c", exactly("a", 2), matchAll("gpu.example.com/v"))).
		pool("p", []resourceapi.Device{device("text", attribute("v", "1")), device("number", attribute("v", 1))}).
		check(t)
}

func TestALoneDeviceMatchesWhateverItsValue(t *testing.T) {
	r := func(count int) *rig {
		return newRig(claimOf("c", exactly("a", count), matchAll("gpu.example.com/v"))).
			pool("p", devices(2, "d-%d", attribute("v", []string{"x"})))
	}
	r(1).check(t, []string{"a=p/d-0"})
	r(2).check(t) // Lists are not compared.
}

func TestDistinctAttribute(t *testing.T) {
	rack := func(n int) deviceOption { return attribute("rack", n) }
	newRig(claimOf("c", exactly("a", 3), distinct("gpu.example.com/rack"))).
		pool("p", []resourceapi.Device{device("d0", rack(0)), device("d1", rack(0)), device("d2", rack(1)), device("d3"), device("d4", rack(2))}).
		check(t, []string{"a=p/d0", "a=p/d2", "a=p/d4"})
}

func TestAttributesOfOtherDomainsAreNotTheDrivers(t *testing.T) {
	newRig(claimOf("c", exactly("a", 2), matchAll("other.example.com/numa"))).
		pool("p", devices(2, "d-%d", attribute("numa", 0))).check(t)
	newRig(claimOf("c", exactly("a", 2), matchAll("other.example.com/numa"))).
		pool("p", devices(2, "d-%d", attribute("other.example.com/numa", 0))).
		check(t, []string{"a=p/d-0", "a=p/d-1"})
}

func TestFirstAvailable(t *testing.T) {
	large := exactly("large", 2, selecting(isGPU))
	small := exactly("small", 1, selecting(isNIC))
	newRig(claimOf("c", firstOf("r", large, small))).pool("p", []resourceapi.Device{gpu("g0"), gpu("g1"), nic("n")}).
		check(t, []string{"r/large=p/g0", "r/large=p/g1"})
	newRig(claimOf("c", firstOf("r", large, small))).pool("p", []resourceapi.Device{gpu("g0"), nic("n")}).
		check(t, []string{"r/small=p/n"})
	// The first alternative would leave nothing for the second request.
	newRig(claimOf("c", firstOf("r", large, small), exactly("gpu", 1, selecting(isGPU)))).
		pool("p", []resourceapi.Device{gpu("g0"), gpu("g1"), nic("n")}).
		check(t, []string{"r/small=p/n", "gpu=p/g0"})
}

func TestAConstraintCanNameAnAlternative(t *testing.T) {
	numa := func(n int) deviceOption { return attribute("numa", n) }
	claim := claimOf("c", exactly("nic", 1, selecting(isNIC)),
		firstOf("r", exactly("near", 1, selecting(isGPU)), exactly("far", 1, selecting(isGPU))),
		matchAll("gpu.example.com/numa", "nic", "r/near"))
	newRig(claim).pool("p", []resourceapi.Device{nic("n", numa(1)), gpu("g0", numa(0))}).check(t, []string{"nic=p/n", "r/far=p/g0"})
	newRig(claim).pool("p", []resourceapi.Device{nic("n", numa(1)), gpu("g0", numa(0)), gpu("g1", numa(1))}).
		check(t, []string{"nic=p/n", "r/near=p/g1"})
}

func TestAllDevices(t *testing.T) {
	newRig(claimOf("c", exactly("a", 0, all, selecting(isGPU)))).pool("p", []resourceapi.Device{gpu("g0"), nic("n"), gpu("g1")}).
		check(t, []string{"a=p/g0", "a=p/g1"})
	// One of all is in use, or none is there.
	newRig(claimOf("c", exactly("a", 0, all, selecting(isGPU)))).pool("p", []resourceapi.Device{gpu("g0"), gpu("g1")}).inUse("p/g1").check(t)
	newRig(claimOf("c", exactly("a", 0, all, selecting(isGPU)))).pool("p", []resourceapi.Device{nic("n")}).check(t)
	// All wait for a tainted one.
	newRig(claimOf("c", exactly("a", 0, all))).pool("p", []resourceapi.Device{gpu("g0"), gpu("g1", taint("sick", resourceapi.DeviceTaintEffectNoSchedule))}).check(t)
}

func TestAllDevicesOfAConstraintThatForbidsItIsAnError(t *testing.T) {
	newRig(claimOf("c", exactly("a", 0, all), matchAll("gpu.example.com/numa"))).
		pool("p", []resourceapi.Device{gpu("g0", attribute("numa", 0)), gpu("g1", attribute("numa", 1))}).
		checkError(t, "request a of claim c", "g1")
}

func TestAllAndACountedRequestErrIfTheFirstChoiceForbidsAll(t *testing.T) {
	// With g1 all would be allowed, but kube-scheduler tries g0 first and gives up.
	newRig(claimOf("c", exactly("one", 1, selecting(isGPU)), exactly("rest", 0, all, selecting(isNIC)), matchAll("gpu.example.com/numa"))).
		pool("p", []resourceapi.Device{gpu("g0", attribute("numa", 0)), gpu("g1", attribute("numa", 1)), nic("n", attribute("numa", 1))}).
		checkError(t, "request rest of claim c")
}

func TestAdminAccess(t *testing.T) {
	// It does not mind that the device is in use, and takes nothing after all.
	r := newRig(claimOf("c", exactly("watch", 1, admin))).pool("p", devices(1, "d-%d")).inUse("p/d-0")
	solution := r.check(t, []string{"watch=p/d-0 admin"})
	if u := NewUsage(newRig().allocated).With(solution.Choices[0]); u.pool(poolID{}) != nil || len(u.leaves) > 0 {
		t.Errorf("admin access takes something: %v", u)
	}
	// The same claim gets a device only once.
	newRig(claimOf("c", exactly("watch", 2, admin), exactly("more", 1, admin))).pool("p", devices(3, "d-%d")).
		check(t, []string{"watch=p/d-0 admin", "watch=p/d-1 admin", "more=p/d-2 admin"})
	// Another may have it too, but not after admin access.
	newRig(claimOf("one", exactly("use", 1)), claimOf("two", exactly("watch", 1, admin))).pool("p", devices(1, "d-%d")).
		check(t, []string{"use=p/d-0"}, []string{"watch=p/d-0 admin"})
	newRig(claimOf("two", exactly("watch", 1, admin)), claimOf("one", exactly("use", 1))).pool("p", devices(1, "d-%d")).check(t)
}

func TestTaints(t *testing.T) {
	tainted := []resourceapi.Device{
		gpu("g0", taint("sick", resourceapi.DeviceTaintEffectNoExecute)),
		gpu("g1", taint("old", resourceapi.DeviceTaintEffectNoSchedule)),
		gpu("g2", taint("note", resourceapi.DeviceTaintEffectNone)),
	}
	newRig(claimOf("c", exactly("a", 1))).pool("p", tainted).check(t, []string{"a=p/g2"})
	newRig(claimOf("c", exactly("a", 2, tolerating("old")))).pool("p", tainted).check(t, []string{"a=p/g1", "a=p/g2"})
	newRig(claimOf("c", exactly("a", 3, tolerating("")))).pool("p", tainted).check(t, []string{"a=p/g0", "a=p/g1", "a=p/g2"})
}

func TestCountersAreSharedByDevices(t *testing.T) {
	set := counterSet("s", "memory=40Gi")
	parts := []resourceapi.Device{
		device("whole", consumes("s", "memory=40Gi")), device("half", consumes("s", "memory=20Gi")), device("rest", consumes("s", "memory=30Gi")),
	}
	newRig(claimOf("c", exactly("a", 1))).pool("p", parts, set).check(t, []string{"a=p/whole"})
	newRig(claimOf("c", exactly("a", 1))).pool("p", parts, set).inUse("p/half").check(t)
	newRig(claimOf("c", exactly("a", 2))).pool("p", parts, set).check(t)
	newRig(claimOf("c", exactly("a", 2))).pool("p", append(parts[:3:3], device("quarter", consumes("s", "memory=10Gi"))), set).
		check(t, []string{"a=p/half", "a=p/quarter"})
}

func TestAnOverdrawnCounterStopsAllOfThePoolThatConsumes(t *testing.T) {
	r := newRig(claimOf("c", exactly("a", 1))).
		pool("p", []resourceapi.Device{
			device("x", consumes("one", "n=2")), device("y", consumes("two", "n=1")), device("z"),
		}, counterSet("one", "n=1"), counterSet("two", "n=1")).inUse("p/x")
	r.check(t, []string{"a=p/z"})
}

func TestShares(t *testing.T) {
	whole := gpu("g", shared, capacityOf("memory", "40Gi", everything("40Gi", "1Gi")), consumes("s", "memory=40Gi"))
	part := device("part", attribute("type", "part"), consumes("s", "memory=20Gi"))
	pool := func(r *rig) *rig {
		return r.pool("p", []resourceapi.Device{part, whole}, counterSet("s", "memory=40Gi"))
	}
	share := exactly("share", 1, selecting(isGPU), asking("memory=10Gi"))
	four := []any{}
	for _, name := range []string{"a", "b", "c", "d"} {
		r := share
		r.Name = name
		four = append(four, r)
	}
	// The counters are paid for once, and the default is everything.
	pool(newRig(claimOf("c", four...))).check(t, []string{
		"a=p/g memory=10Gi", "b=p/g memory=10Gi", "c=p/g memory=10Gi", "d=p/g memory=10Gi",
	})
	pool(newRig(claimOf("c", append(four, share)...))).check(t)
	pool(newRig(claimOf("c", exactly("gpu", 1, selecting(isGPU))))).check(t, []string{"gpu=p/g memory=40Gi"})
	pool(newRig(claimOf("c", share, exactly("part", 1, selecting(typeIs+`"part"`))))).check(t)
	pool(newRig(claimOf("c", share))).share("p/g", "1", "memory=30Gi").check(t, []string{"share=p/g memory=10Gi"})
	pool(newRig(claimOf("c", share))).share("p/g", "1", "memory=31Gi").check(t)
	pool(newRig(claimOf("c", share))).inUse("p/part").check(t)
	pool(newRig(claimOf("c", exactly("two", 2, selecting(isGPU), asking("memory=10Gi"))))).check(t) // Not twice in one request.
}

func TestAShareWithoutCapacityStillPaysForTheCounters(t *testing.T) {
	r := newRig(claimOf("c", exactly("part", 1))).
		pool("p", []resourceapi.Device{device("part", consumes("s", "n=1")), device("open", shared, consumes("s", "n=1"))}, counterSet("s", "n=1"))
	r.share("p/open", "1").check(t, []string{"part=p/open"})
}

func TestCapacityRequestsOfExclusiveDevices(t *testing.T) {
	r := func(q string) *rig {
		return newRig(claimOf("c", exactly("a", 1, asking("memory="+q)))).
			pool("p", []resourceapi.Device{device("none"), device("small", capacityOf("memory", "10Gi")), device("large", capacityOf("memory", "20Gi"))})
	}
	r("10Gi").check(t, []string{"a=p/small"})
	r("11Gi").check(t, []string{"a=p/large"})
	r("21Gi").check(t)
}

func TestDevicesWithBindingConditionsComeLast(t *testing.T) {
	late := device("late")
	late.BindingConditions = []string{"ready"}
	newRig(claimOf("c", exactly("a", 2))).pool("a", []resourceapi.Device{late}).pool("b", devices(2, "d-%d")).
		check(t, []string{"a=b/d-0", "a=b/d-1"})
}

func TestLimits(t *testing.T) {
	newRig(claimOf("c", exactly("a", 33))).pool("p", devices(40, "d-%d")).checkError(t, "request a", "32")
	newRig(claimOf("c", exactly("a", 20), exactly("b", 13))).pool("p", devices(40, "d-%d")).checkError(t, "request b", "32")
	newRig(claimOf("c", exactly("a", 0, all))).pool("p", devices(33, "d-%d")).checkError(t, "request a", "32")
	// An alternative that is too much gives way to the next.
	want := []string{"r/b=p/d-0"}
	for i := range 30 {
		want = append(want, fmt.Sprintf("more=p/d-%d", i+1))
	}
	newRig(claimOf("c", firstOf("r", exactly("a", 10), exactly("b", 1)), exactly("more", 30))).pool("p", devices(40, "d-%d")).check(t, want)
}

func TestErrorsCountOnlyWhereTheSearchGets(t *testing.T) {
	good := selecting(`device.attributes["gpu.example.com"].absent == 1`)
	with := device("with", attribute("absent", 1))
	without := device("without")
	// The first device suffices.
	newRig(claimOf("c", exactly("a", 1, good))).pool("p", []resourceapi.Device{with, without}).check(t, []string{"a=p/with"})
	newRig(claimOf("c", exactly("a", 2, good))).pool("p", []resourceapi.Device{with, without}).checkError(t, "p/without", "no such key")
	// A device in use is not looked at.
	newRig(claimOf("c", exactly("a", 2, good))).pool("p", []resourceapi.Device{without, with}).inUse("p/without").check(t)
	// No device, no error.
	newRig(claimOf("c", exactly("a", 1, selecting(broken)))).check(t)
	newRig(claimOf("c", exactly("a", 1, selecting(broken)))).pool("p", devices(1, "d-%d")).checkError(t, "compile")
	// The request before cannot be met, so nobody gets there.
	newRig(claimOf("c", exactly("before", 2, selecting(isGPU)), exactly("a", 1, selecting(failing)))).
		pool("p", []resourceapi.Device{gpu("g")}).check(t)
	// All are looked at before anything is tried.
	newRig(claimOf("c", exactly("before", 2), exactly("a", 0, all, selecting(failing)))).pool("p", devices(1, "d-%d")).checkError(t, "no such key")
}

func TestAnErrorBehindAGoodAlternativeIsNotSeen(t *testing.T) {
	claim := claimOf("c", firstOf("r", exactly("a", 1), exactly("b", 1, selecting(failing))))
	newRig(claim).pool("p", devices(1, "d-%d")).check(t, []string{"r/a=p/d-0"})
	newRig(claim, claimOf("d", exactly("a", 1))).pool("p", devices(1, "d-%d")).checkError(t, "request r/b")
}

func TestANegativeCapacityIsAnError(t *testing.T) {
	newRig(claimOf("c", exactly("a", 1))).pool("p", []resourceapi.Device{device("d", capacityOf("memory", "-1"))}).checkError(t, "negative")
}

func TestClaimsWithoutRequests(t *testing.T) {
	newRig(claimOf("empty"), claimOf("c", exactly("a", 1))).pool("p", devices(1, "d-%d")).check(t, []string{}, []string{"a=p/d-0"})
}

func TestTemplatesComeAfterTheClustersPoolsOfTheSameDriver(t *testing.T) {
	newRig(claimOf("c", exactly("a", 3))).pool("z", devices(1, "real-%d")).
		template(t, "", []TemplateSlice{{Devices: devices(2, "new-%d")}}).
		check(t, []string{"a=z/real-0", "a=/new-0", "a=/new-1"})
}
