package solver_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// poolDraft is a pool while it is made.
type poolDraft struct {
	driver, name string
	generation   int64
	reach        reach
	sets         []resourceapi.CounterSet
	slices       []*resourceapi.ResourceSlice
}

// reach is how a pool's slices say for which nodes they are.
type reach int

const (
	reachNode reach = iota
	reachAll
	reachSelector
	reachDevices // each device says it
	reachMixed   // each slice has its own
	reachOther   // not this node
)

func (g *generator) pool(index int) {
	p := &poolDraft{driver: pick(g, g.drivers...), name: "node-a", generation: 1, reach: reach(g.Intn(2))}
	if index > 0 {
		p.name = fmt.Sprintf(pick(g, "pool-%d", "a-pool-%d"), index)
	}
	if g.nodeSelection {
		p.reach = pick(g, reachNode, reachAll, reachSelector, reachDevices, reachMixed, reachDevices, reachSelector, reachOther)
	}
	if g.generations {
		p.generation = 2
	}
	if g.counters && g.Intn(3) > 0 {
		p.sets = g.counterSets()
	}
	devices := g.poolDevices(p, g.deviceCount(index))
	for first := true; first || len(devices) > 0; first = false {
		n := min(1+g.Intn(4), len(devices))
		if len(devices) > maxDevices {
			n = len(devices)
		}
		g.deviceSlice(p, devices[:n])
		devices = devices[n:]
	}
	g.counterSlices(p)
	for _, slice := range p.slices {
		slice.Spec.Pool.ResourceSliceCount = int64(len(p.slices))
	}
	if g.generations {
		g.disturb(p)
	}
	g.out.Slices = append(g.out.Slices, p.slices...)
}

// deviceCount keeps a case small, except for the few that are about the limit of 32
// results.
func (g *generator) deviceCount(index int) int {
	if g.limits && index == 0 && oneIn(g, 3) {
		g.large = true
		g.devices = maxDevices
		return pick(g, 17, 33, 32)
	}
	n := pick(g, 1, 2, 4, 3, 4, 5, 6, 5)
	if g.puzzle {
		n = pick(g, 4, 6, 9)
	}
	n = min(n, g.mostDevices()-g.devices)
	g.devices += n
	return n
}

// mostDevices is less if each request may take the same devices again.
func (g *generator) mostDevices() int {
	if g.shares && g.severalClaims {
		return maxDevices - 3
	}
	return maxDevices
}

func (g *generator) poolDevices(p *poolDraft, n int) []resourceapi.Device {
	var devices []resourceapi.Device
	uniform := n > maxDevices || g.Intn(3) == 0 && !g.puzzle
	for i := range n {
		name := fmt.Sprintf("dev-%d", i)
		if i > 0 && oneIn(g, 60) {
			name = "dev-0"
		}
		if uniform && i > 0 {
			device := *devices[0].DeepCopy()
			device.Name = name
			devices = append(devices, device)
			continue
		}
		devices = append(devices, g.device(p, name))
	}
	return devices
}

// slice adds an empty slice to the pool. Its name decides where it comes, and says
// nothing of when it was made.
func (g *generator) slice(p *poolDraft) *resourceapi.ResourceSlice {
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%s-%s-%d", pick(g, "b", "a", "c"), p.driver, p.name, len(p.slices)),
		},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: p.driver,
			Pool:   resourceapi.ResourcePool{Name: p.name, Generation: p.generation},
		},
	}
	p.slices = append(p.slices, slice)
	return slice
}

func (g *generator) deviceSlice(p *poolDraft, devices []resourceapi.Device) {
	slice := g.slice(p)
	slice.Spec.Devices = devices
	g.setReach(p.reach, slice)
	for i := range devices {
		g.inSlices = append(g.inSlices, generatedDevice{p.driver, p.name, &devices[i]})
	}
}

func (g *generator) setReach(r reach, slice *resourceapi.ResourceSlice) {
	if r == reachMixed {
		r = pick(g, reachNode, reachAll, reachSelector, reachNode, reachOther, reachDevices)
	}
	spec := &slice.Spec
	switch r {
	case reachAll:
		spec.AllNodes = ptr.To(true)
	case reachSelector:
		spec.NodeSelector = g.nodeSelector(true)
	case reachOther:
		if g.Intn(2) == 0 {
			spec.NodeName = ptr.To("node-b")
		} else {
			spec.NodeSelector = g.nodeSelector(false)
		}
	case reachDevices:
		spec.PerDeviceNodeSelection = ptr.To(true)
		for i := range spec.Devices {
			g.deviceReach(&spec.Devices[i])
		}
	default:
		spec.NodeName = ptr.To("node-a")
	}
}

func (g *generator) deviceReach(device *resourceapi.Device) {
	device.NodeName, device.AllNodes, device.NodeSelector = nil, nil, nil
	switch g.Intn(5) {
	case 0:
		device.NodeName = ptr.To("node-a")
	case 1:
		device.AllNodes = ptr.To(true)
	case 2:
		device.NodeSelector = g.nodeSelector(true)
	case 3:
		device.NodeSelector = g.nodeSelector(false)
	default:
		device.NodeName = ptr.To("node-b")
	}
}

// nodeSelector selects node-a, or not. The API server admits exactly one term.
func (g *generator) nodeSelector(matches bool) *corev1.NodeSelector {
	requirement := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	var term corev1.NodeSelectorTerm
	switch {
	case matches && g.Intn(4) == 3:
		term.MatchFields = []corev1.NodeSelectorRequirement{requirement("metadata.name", corev1.NodeSelectorOpIn, "node-a")}
	case matches:
		term.MatchExpressions = []corev1.NodeSelectorRequirement{pick(g,
			requirement(zoneLabel, corev1.NodeSelectorOpIn, "z1"),
			requirement(zoneLabel, corev1.NodeSelectorOpNotIn, "z2"),
			requirement(slotsLabel, corev1.NodeSelectorOpGt, "4"),
			requirement("example.com/none", corev1.NodeSelectorOpDoesNotExist))}
	case oneIn(g, 20): // admitted, but nobody can evaluate it
		term.MatchExpressions = []corev1.NodeSelectorRequirement{requirement(slotsLabel, corev1.NodeSelectorOpGt, "many")}
	default:
		term.MatchExpressions = []corev1.NodeSelectorRequirement{
			requirement(zoneLabel, corev1.NodeSelectorOpIn, "z1", "z2"),
			pick(g,
				requirement(rackLabel, corev1.NodeSelectorOpIn, "r2"),
				requirement(slotsLabel, corev1.NodeSelectorOpLt, "8"),
				requirement(zoneLabel, corev1.NodeSelectorOpNotIn, "z1")),
		}
	}
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}
}

// disturb makes a pool one that its driver is changing.
func (g *generator) disturb(p *poolDraft) {
	switch g.Intn(7) {
	case 0: // a slice of the generation before is left over
		g.leftover(p, -1, reachNode)
	case 1: // a slice is missing
		for _, slice := range p.slices {
			slice.Spec.Pool.ResourceSliceCount++
		}
	case 2: // the driver has begun with the next generation, for other nodes
		g.leftover(p, +1, reachOther)
	case 3: // the driver has begun with the next generation
		g.leftover(p, +1, reachNode)
	case 4: // there is one slice too many
		if len(p.slices) > 1 {
			for _, slice := range p.slices {
				slice.Spec.Pool.ResourceSliceCount--
			}
		}
	case 5: // the slices do not agree how many there are
		p.slices[len(p.slices)-1].Spec.Pool.ResourceSliceCount++
	}
}

// leftover adds a slice of another generation, which says that it is one of as many as
// the pool has now.
func (g *generator) leftover(p *poolDraft, generations int64, r reach) {
	count := int64(max(1, len(p.slices)-g.Intn(2)))
	slice := g.slice(p)
	slice.Spec.Pool.Generation += generations
	slice.Spec.Pool.ResourceSliceCount = count
	without := *p
	without.sets = nil
	slice.Spec.Devices = []resourceapi.Device{g.device(&without, "dev-0"), g.device(&without, "dev-7")}
	g.setReach(r, slice)
	for i := range slice.Spec.Devices {
		g.inSlices = append(g.inSlices, generatedDevice{p.driver, p.name, &slice.Spec.Devices[i]})
	}
}
