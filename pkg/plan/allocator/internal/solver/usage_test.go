package solver

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// used solves claims on a rig's pools, and is what they take by themselves.
func used(t *testing.T, r *rig, want []string, requests ...any) *Usage {
	t.Helper()
	r.claims = []*resourceapi.ResourceClaim{claimOf("c", requests...)}
	r.usage = &Usage{}
	return (*Usage)(nil).With(r.check(t, want).Choices[0])
}

func TestUsageAddsUp(t *testing.T) {
	r := newRig().pool("p", []resourceapi.Device{
		device("whole", consumes("s", "n=3")), device("part-0", consumes("s", "n=1")), device("part-1", consumes("s", "n=1")), device("part-2", consumes("s", "n=1")),
	}, counterSet("s", "n=3"))
	part := exactly("part", 1, selecting(`true`))
	r.allocated.AllocatedDevices.Insert(deviceID("p/whole"))
	r.claims = []*resourceapi.ResourceClaim{claimOf("c", part)}
	r.check(t) // The whole is in use.
	r.allocated.AllocatedDevices.Clear()
	r.inUse("p/part-1")
	base := NewUsage(r.allocated)
	r.usage = base
	first := r.check(t, []string{"part=p/part-0"})
	r.usage = base.With(first.Choices[0])
	second := r.check(t, []string{"part=p/part-2"})
	r.usage = r.usage.With(second.Choices[0])
	r.check(t)
	r.usage = Sum(base, (*Usage)(nil).With(second.Choices[0]))
	r.check(t, []string{"part=p/part-0"})
	r.usage = base
	r.check(t, []string{"part=p/part-0"}) // It was not changed.
}

func TestSharesAddUp(t *testing.T) {
	r := newRig().pool("p", []resourceapi.Device{device("g", shared, capacityOf("memory", "40Gi", everything("40Gi", "1Gi")), consumes("s", "n=1"))}, counterSet("s", "n=1"))
	share := exactly("share", 1, asking("memory=15Gi"))
	one := used(t, r, []string{"share=p/g memory=15Gi"}, share)
	r.usage = one
	two := one.With(r.check(t, []string{"share=p/g memory=15Gi"}).Choices[0])
	r.usage = two
	r.check(t)
	// The counters are paid for once, whoever has the first share.
	r.usage = Sum(one, one)
	r.check(t)
	r.claims = []*resourceapi.ResourceClaim{claimOf("c", exactly("share", 1, asking("memory=10Gi")))}
	r.check(t, []string{"share=p/g memory=10Gi"})
	r.usage = NewUsage(newRig().share("p/g", "1", "memory=15Gi").allocated)
	r.usage = Sum(r.usage, one)
	r.check(t, []string{"share=p/g memory=10Gi"})
}

func TestWorstHasTheDevicesOfAll(t *testing.T) {
	r := newRig().pool("p", devices(3, "d-%d"))
	one := used(t, r, []string{"a=p/d-0"}, exactly("a", 1))
	two := used(t, r, []string{"a=p/d-0", "a=p/d-1"}, exactly("a", 2))
	r.claims = []*resourceapi.ResourceClaim{claimOf("c", exactly("a", 1))}
	r.usage = Worst(one, two)
	r.check(t, []string{"a=p/d-2"})
	r.usage = Worst(one, nil)
	r.check(t, []string{"a=p/d-1"})
	r.usage = Worst()
	r.check(t, []string{"a=p/d-0"})
}

func TestWorstHasTheMostOfCapacitiesAndCounters(t *testing.T) {
	r := newRig().pool("p", []resourceapi.Device{
		device("g", shared, capacityOf("memory", "40Gi")),
		device("two", attribute("slices", 2), consumes("s", "n=2")),
		device("three", attribute("slices", 3), consumes("s", "n=3")),
		device("four", attribute("slices", 4), consumes("s", "n=4")),
	}, counterSet("s", "n=7"))
	slicesAre := func(n string) requestOption {
		return selecting(`device.attributes["gpu.example.com"].?slices.orValue(0) == ` + n)
	}
	shareOf := func(memory string) []any {
		return []any{exactly("share", 1, selecting(`device.allowMultipleAllocations`), asking("memory="+memory))}
	}
	ten := used(t, r, []string{"share=p/g memory=10Gi"}, shareOf("10Gi")...)
	thirty := used(t, r, []string{"share=p/g memory=30Gi"}, shareOf("30Gi")...)
	r.usage = Worst(ten, thirty)
	r.claims = []*resourceapi.ResourceClaim{claimOf("c", shareOf("10Gi")...)}
	r.check(t, []string{"share=p/g memory=10Gi"})
	r.claims = []*resourceapi.ResourceClaim{claimOf("c", shareOf("11Gi")...)}
	r.check(t)

	two := used(t, r, []string{"a=p/two"}, exactly("a", 1, slicesAre("2")))
	three := used(t, r, []string{"a=p/three"}, exactly("a", 1, slicesAre("3")))
	r.claims = []*resourceapi.ResourceClaim{claimOf("c", exactly("a", 1, slicesAre("4")))}
	r.usage = Worst(two, three) // at most 3 of 7, though both together are 5
	r.check(t, []string{"a=p/four"})
	r.usage = Sum(two, three)
	r.check(t)
	r.usage = Worst(Sum(two, three), two)
	r.check(t)
}

func TestAShareInOnlyOneAlternativePaysForCountersAgain(t *testing.T) {
	open := device("open", shared, attribute("kind", "open"), capacityOf("memory", "40Gi", everything("40Gi", "1Gi")), consumes("s", "n=2"))
	part := device("part", attribute("kind", "part"), consumes("s", "n=2"))
	kind := func(kind string, options ...requestOption) resourceapi.DeviceRequest {
		return exactly("a", 1, append(options, selecting(`device.attributes["gpu.example.com"].kind == "`+kind+`"`))...)
	}
	for counters, want := range map[string][][]string{"n=3": nil, "n=4": {{"a=p/open memory=1Gi"}}} {
		r := newRig().pool("p", []resourceapi.Device{open, part}, counterSet("s", counters))
		shared := used(t, r, []string{"a=p/open memory=1Gi"}, kind("open", asking("memory=1Gi")))
		parted := used(t, r, []string{"a=p/part"}, kind("part"))
		r.claims = []*resourceapi.ResourceClaim{claimOf("c", kind("open", asking("memory=1Gi")))}
		// If the part is what becomes real, a share of the other device needs 2 more.
		r.usage = Worst(shared, parted)
		r.check(t, want...)
	}
}

func TestUsageOfManyCommitsHasFewLeaves(t *testing.T) {
	u := &Usage{}
	for i := range 1000 {
		r := &Device{ID: deviceID("p-" + string(rune('a'+i%26)) + "/d"), content: &content{}}
		u = u.With([]Choice{{Device: r}})
	}
	if len(u.leaves) > 10 {
		t.Errorf("%d leaves", len(u.leaves))
	}
}
