package solver_test

import (
	"fmt"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// parsed has the literals that were parsed before: parsing would take most of the time.
var parsed sync.Map

// quantity parses the literals of this package. Its result shares nothing.
func quantity(literal string) resource.Quantity {
	known, found := parsed.Load(literal)
	if !found {
		known, _ = parsed.LoadOrStore(literal, resource.MustParse(literal))
	}
	value, _ := known.(resource.Quantity)
	return value.DeepCopy()
}

func (g *generator) quantity(literals ...string) resource.Quantity {
	return quantity(pick(g, literals...))
}

func (g *generator) counterSets() []resourceapi.CounterSet {
	var sets []resourceapi.CounterSet
	for i := range 1 + g.Intn(2) {
		sets = append(sets, resourceapi.CounterSet{
			Name: fmt.Sprintf("set-%d", i),
			Counters: map[string]resourceapi.Counter{
				"memory": {Value: g.quantity("4", "8", "3", "2500m")},
				"engine": {Value: g.quantity("2", "1", "3")},
			},
		})
	}
	return sets
}

// counterSlices publishes the sets, in slices of their own. Now and then they are wrong
// in a way that only shows when all slices of the pool are read.
func (g *generator) counterSlices(p *poolDraft) {
	if len(p.sets) == 0 {
		return
	}
	sets := p.sets
	switch {
	case oneIn(g, 25):
		sets = sets[:len(sets)-1]
	case oneIn(g, 25):
		sets = append(sets, sets[0])
	case oneIn(g, 25):
		delete(sets[0].Counters, "engine")
	}
	apart := len(sets) > 1 && (g.Intn(2) == 1 || sets[0].Name == sets[len(sets)-1].Name)
	for len(sets) > 0 {
		n := len(sets)
		if apart {
			n = 1
		}
		slice := g.slice(p)
		slice.Spec.SharedCounters = sets[:n]
		r := p.reach
		if r == reachDevices {
			r = pick(g, reachAll, reachDevices)
		}
		g.setReach(r, slice)
		sets = sets[n:]
	}
}

func (g *generator) device(p *poolDraft, name string) resourceapi.Device {
	device := resourceapi.Device{Name: name, Attributes: g.attributes(p.driver)}
	shared := g.shares && g.Intn(3) > 0
	if shared || oneIn(g, 20) {
		device.AllowMultipleAllocations = &shared
	}
	if shared || g.capacities || g.Intn(3) == 0 {
		device.Capacity = g.capacity(shared)
	}
	if len(p.sets) > 0 && g.Intn(5) > 0 {
		device.ConsumesCounters = g.consumption(p.sets)
	}
	if g.taints && g.Intn(3) == 1 {
		for range 1 + g.Intn(2) {
			device.Taints = append(device.Taints, resourceapi.DeviceTaint{
				Key:    pick(g, "example.com/sick", "example.com/old"),
				Value:  pick(g, "", "yes"),
				Effect: pick(g, resourceapi.DeviceTaintEffectNoSchedule, resourceapi.DeviceTaintEffectNoExecute, resourceapi.DeviceTaintEffectNone),
			})
		}
	}
	if g.binding && g.Intn(2) == 1 {
		device.BindsToNode = ptr.To(true)
		device.BindingConditions = []string{"example.com/attached"}
		device.BindingFailureConditions = []string{"example.com/failed"}
	}
	return device
}

func (g *generator) attributes(driver string) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	attributes := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
	set := func(name resourceapi.QualifiedName, value resourceapi.DeviceAttribute) {
		if g.missingAttributes && oneIn(g, 5) {
			return
		}
		attributes[name] = value
	}
	text := func(values ...string) resourceapi.DeviceAttribute {
		return resourceapi.DeviceAttribute{StringValue: ptr.To(pick(g, values...))}
	}
	set("type", text("whole", "part"))
	numa := resourceapi.QualifiedName("numa")
	if oneIn(g, 6) {
		numa = resourceapi.QualifiedName(driver + "/numa")
	}
	value := resourceapi.DeviceAttribute{IntValue: ptr.To(int64(g.Intn(2)))}
	root := text("root-0", "root-1", "root-0", "root-1", "root-2")
	if g.puzzle { // so many that the first device often has no partner
		value.IntValue = ptr.To(int64(g.Intn(4)))
		root = text("root-0", "root-1", "root-2", "root-3")
	}
	if oneIn(g, 25) {
		value = text("0", "1")
	}
	set(numa, value)
	set(pcieRoot, root)
	if g.Intn(3) == 1 {
		set("ecc", resourceapi.DeviceAttribute{BoolValue: ptr.To(g.Intn(2) == 0)})
	}
	if g.Intn(3) == 1 {
		set("version", resourceapi.DeviceAttribute{VersionValue: ptr.To(pick(g, "1.0.0", "2.0.0-rc.1", "2.0.0"))})
	}
	if g.Intn(4) == 1 {
		set("other.example.com/link", text("up", "down"))
	}
	if driver != gpuDriver && oneIn(g, 5) {
		set(gpuDriver+"/numa", resourceapi.DeviceAttribute{IntValue: ptr.To(int64(g.Intn(2)))})
	}
	return attributes
}

func (g *generator) consumption(sets []resourceapi.CounterSet) []resourceapi.DeviceCounterConsumption {
	var consumption []resourceapi.DeviceCounterConsumption
	first := g.Intn(len(sets))
	for i := range 1 + g.Intn(len(sets)) {
		set := sets[(first+i)%len(sets)]
		counters := map[string]resourceapi.Counter{"memory": {Value: g.quantity("1", "2", "4", "0", "500m", "1250m")}}
		if g.Intn(2) == 0 {
			counters["engine"] = resourceapi.Counter{Value: g.quantity("1", "0", "2")}
		}
		consumption = append(consumption, resourceapi.DeviceCounterConsumption{CounterSet: set.Name, Counters: counters})
	}
	if oneIn(g, 200) {
		consumption[0].CompatibilityGroups = []string{"mig"}
	}
	return consumption
}

func (g *generator) capacity(shared bool) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	capacity := map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{}
	add := func(name resourceapi.QualifiedName, values ...string) {
		c := resourceapi.DeviceCapacity{Value: g.quantity(values...)}
		if shared && g.Intn(4) > 0 {
			c.RequestPolicy = g.policy()
		}
		capacity[name] = c
	}
	if !oneIn(g, 20) {
		add("memory", "4", "8", "5", "4500m", "8Gi")
	}
	if g.Intn(2) == 1 {
		add("cores", "4", "10", "6")
	}
	if g.Intn(6) == 1 {
		add(gpuDriver+"/lanes", "4", "8")
	}
	return capacity
}

// policy returns a policy that is valid for each capacity of at least 4.
func (g *generator) policy() *resourceapi.CapacityRequestPolicy {
	values := func(literals ...string) []resource.Quantity {
		out := make([]resource.Quantity, len(literals))
		for i := range literals {
			out[i] = quantity(literals[i])
		}
		return out
	}
	span := func(low, high, step string) *resourceapi.CapacityRequestPolicyRange {
		r := &resourceapi.CapacityRequestPolicyRange{Min: ptr.To(quantity(low))}
		if high != "" {
			r.Max = ptr.To(quantity(high))
		}
		if step != "" {
			r.Step = ptr.To(quantity(step))
		}
		return r
	}
	policy := func(standard string) *resourceapi.CapacityRequestPolicy {
		return &resourceapi.CapacityRequestPolicy{Default: ptr.To(quantity(standard))}
	}
	switch g.Intn(9) {
	case 0:
		return policy(pick(g, "1", "4", "0"))
	case 1:
		p := policy(pick(g, "1", "2", "4"))
		p.ValidValues = values("1", "2", "4")
		return p
	case 2:
		p := policy("500m")
		p.ValidValues = values("500m", "1500m", "3")
		return p
	case 3:
		p := policy(pick(g, "1", "2"))
		p.ValidRange = span("1", "", "")
		return p
	case 4:
		p := policy("3")
		p.ValidRange = span("1", "3", "2")
		return p
	case 5:
		p := policy(pick(g, "1", "2500m"))
		p.ValidRange = span("1", pick(g, "", "4"), "500m")
		return p
	case 6:
		p := policy("0")
		p.ValidRange = span("0", "4", pick(g, "", "1"))
		return p
	case 7:
		p := policy("750m")
		p.ValidRange = span("250m", "3250m", "250m")
		return p
	default:
		return &resourceapi.CapacityRequestPolicy{}
	}
}
