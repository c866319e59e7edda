package solver

import (
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

func oneSlice(devices ...resourceapi.Device) []TemplateSlice {
	return []TemplateSlice{{Devices: devices}}
}

func binding(devices ...string) Binding {
	return Binding{Attribute: "resource.kubernetes.io/pcieRoot", Devices: devices}
}

func TestBoundDevicesMatch(t *testing.T) {
	pcieRoot := matchAll("resource.kubernetes.io/pcieRoot")
	parts := []resourceapi.Device{gpu("g0"), gpu("g1"), nic("n0"), nic("n1"), nic("n2")}
	claim := claimOf("c", exactly("gpu", 1, selecting(isGPU)), exactly("nic", 2, selecting(isNIC)), pcieRoot)
	// g0 has one NIC, g1 has two.
	newRig(claim).template(t, "", oneSlice(parts...), binding("g0", "n0"), binding("g1", "n1", "n2")).
		check(t, []string{"gpu=/g1", "nic=/n1", "nic=/n2"})
	// What bindings have in common is one value.
	newRig(claim).template(t, "", oneSlice(parts...), binding("g0", "n0"), binding("g1", "n1"), binding("n0", "n2")).
		check(t, []string{"gpu=/g0", "nic=/n0", "nic=/n2"})
	// A value that a device has is no binding's.
	known := []resourceapi.Device{gpu("g0", attribute("resource.kubernetes.io/pcieRoot", "pci0000:00")), nic("n0"), nic("n1")}
	newRig(claim).template(t, "", oneSlice(known...), binding("g0", "n0", "n1")).check(t)
	// Without bindings nothing matches, and no other attribute does.
	newRig(claim).template(t, "", oneSlice(parts...)).check(t)
	other := Binding{Attribute: "resource.kubernetes.io/numaNode", Devices: []string{"g0", "n0", "n1"}}
	newRig(claim).template(t, "", oneSlice(parts...), other).check(t)
}

func TestBindingsAreInvisibleToSelectorsAndDistinctAttribute(t *testing.T) {
	parts := devices(2, "d-%d")
	has := selecting(`"pcieRoot" in device.attributes["resource.kubernetes.io"]`)
	newRig(claimOf("c", exactly("a", 1, has))).template(t, "", oneSlice(parts...), binding("d-0"), binding("d-1")).check(t)
	newRig(claimOf("c", exactly("a", 1), distinct("resource.kubernetes.io/pcieRoot"))).
		template(t, "", oneSlice(parts...), binding("d-0"), binding("d-1")).check(t)
}

func TestBindingsOfTwoTemplatesAreDifferentValues(t *testing.T) {
	newRig(claimOf("c", exactly("a", 2), matchAll("resource.kubernetes.io/pcieRoot"))).
		template(t, "one", oneSlice(device("d")), binding("d")).template(t, "two", oneSlice(device("d")), binding("d")).
		check(t)
}

func TestTemplatesThatCannotBePublished(t *testing.T) {
	for name, test := range map[string]struct {
		slices   []TemplateSlice
		bindings []Binding
		want     string
	}{
		"a name twice":               {slices: oneSlice(device("d"), device("d")), want: "duplicate device name d"},
		"a counter set twice":        {slices: []TemplateSlice{{SharedCounters: []resourceapi.CounterSet{counterSet("s"), counterSet("s")}}}, want: "duplicate counter set"},
		"an unknown counter":         {slices: oneSlice(device("d", consumes("s", "n=1"))), want: "counter set s not found"},
		"devices beside counters":    {slices: []TemplateSlice{{Devices: devices(1, "d-%d"), SharedCounters: []resourceapi.CounterSet{counterSet("s")}}}, want: "slices of their own"},
		"a binding of nothing":       {slices: oneSlice(device("d")), bindings: []Binding{binding("e")}, want: "does not have"},
		"a binding without a name":   {slices: oneSlice(device("d")), bindings: []Binding{{Devices: []string{"d"}}}, want: "no attribute"},
		"a counter that is not told": {slices: []TemplateSlice{{SharedCounters: []resourceapi.CounterSet{counterSet("s")}}, {Devices: []resourceapi.Device{device("d", consumes("s", "n=1"))}}}, want: "counter n not found"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewTemplate(NewCache(), testDriver, "", test.slices, test.bindings)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), testDriver) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func TestTemplatesAreOrderedLikePools(t *testing.T) {
	cache := NewCache()
	late := device("late")
	late.BindingConditions = []string{"ready"}
	make := func(driver, pool string, d resourceapi.Device) *Template {
		template, err := NewTemplate(cache, driver, pool, oneSlice(d), nil)
		if err != nil {
			t.Fatal(err)
		}
		return template
	}
	pools, err := NewSnapshot(cache, slicesOf("z", devices(1, "real-%d"))).Pools(newRig().node())
	if err != nil {
		t.Fatal(err)
	}
	got := describePools(pools.WithTemplates(
		make("z.example.com", "", device("z")), make(testDriver, "b", device("b")), make(testDriver, "", device("none")),
		make("a.example.com", "late", late), make("a.example.com", "a", device("a"))))
	want := []string{"a: a", "z: real-0", ": none", "b: b", ": z", "late: late"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestShapesDoNotDependOnNames(t *testing.T) {
	cache := NewCache()
	shape := func(driver, pool string, slices []TemplateSlice, bindings ...Binding) Shape {
		template, err := NewTemplate(cache, driver, pool, slices, bindings)
		if err != nil {
			t.Fatal(err)
		}
		return Pools{}.WithTemplates(template).Shape()
	}
	counted := func(set, name, value string) []TemplateSlice {
		return []TemplateSlice{{SharedCounters: []resourceapi.CounterSet{counterSet(set, "n="+value)}}, {Devices: []resourceapi.Device{device(name, consumes(set, "n=1"))}}}
	}
	base := shape(testDriver, "p", oneSlice(gpu("a"), gpu("b")), binding("a", "b"))
	if base != shape(testDriver, "q", oneSlice(gpu("x"), gpu("y")), binding("y", "x")) {
		t.Error("names make another shape")
	}
	if shape(testDriver, "p", counted("s", "a", "2")) != shape(testDriver, "p", counted("t", "b", "2")) {
		t.Error("names of counter sets make another shape")
	}
	for name, other := range map[string]Shape{
		"driver":     shape("other.example.com", "p", oneSlice(gpu("a"), gpu("b")), binding("a", "b")),
		"attribute":  shape(testDriver, "p", oneSlice(gpu("a"), nic("b")), binding("a", "b")),
		"number":     shape(testDriver, "p", oneSlice(gpu("a")), binding("a")),
		"binding":    shape(testDriver, "p", oneSlice(gpu("a"), gpu("b")), binding("a"), binding("b")),
		"no binding": shape(testDriver, "p", oneSlice(gpu("a"), gpu("b"))),
		"taint":      shape(testDriver, "p", oneSlice(gpu("a"), gpu("b", taint("t", resourceapi.DeviceTaintEffectNoSchedule))), binding("a", "b")),
		"counters":   shape(testDriver, "p", counted("s", "a", "3")),
	} {
		if other == base || other == shape(testDriver, "p", counted("s", "a", "2")) {
			t.Errorf("%s: the same shape", name)
		}
	}
}

func TestTranslate(t *testing.T) {
	one := newRig(claimOf("c", exactly("r", 2, selecting(isGPU)))).pool("z", []resourceapi.Device{gpu("real")}).
		template(t, "", oneSlice(nic("n"), gpu("a")))
	p, err := one.problem()
	if err != nil {
		t.Fatal(err)
	}
	solution := one.check(t, []string{"r=z/real", "r=/a"})
	other, err := NewTemplate(one.cache, testDriver, "", oneSlice(nic("m"), gpu("b")), nil)
	if err != nil {
		t.Fatal(err)
	}
	from := p.Pools
	to := Pools{pools: from.pools[:1]}.WithTemplates(other)
	solution, err = Solve(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if from.Shape() != to.Shape() {
		t.Fatal("the shapes differ")
	}
	got := describeChoices(Translate(solution.Choices, from, to))
	if want := []string{"r=z/real", "r=/b"}; !slices.Equal(got[0], want) {
		t.Errorf("got %q, want %q", got[0], want)
	}
	if again := describeChoices(solution.Choices); !slices.Equal(again[0], []string{"r=z/real", "r=/a"}) {
		t.Errorf("the choices were changed to %q", again[0])
	}
	if d := solution.Choices[0][1].Device; from.Position(d) != 2 || to.Position(d) != -1 {
		t.Errorf("positions %d and %d, want 2 and -1", from.Position(d), to.Position(d))
	}
}
