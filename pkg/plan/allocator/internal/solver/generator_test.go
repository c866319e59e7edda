package solver_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	gpuDriver = "gpu.example.com"
	nicDriver = "nic.example.com"
	pcieRoot  = "resource.kubernetes.io/pcieRoot"

	zoneLabel  = "topology.kubernetes.io/zone"
	rackLabel  = "example.com/rack"
	slotsLabel = "example.com/slots"

	// The reference tries all combinations: more would take it minutes.
	maxDevices = 9
	maxSlots   = 6
)

// traits are what a case may contain. Few at a time: a case in which everything is
// strange fails for the first strange thing, and tells nothing of the others.
type traits struct {
	counters, shares, taints, binding  bool
	generations, nodeSelection         bool
	missingAttributes, failing, broken bool
	allocated, lists, all, admin       bool
	constraints, capacities, limits    bool
	severalClaims                      bool
	// puzzle: nothing is strange, but it takes a search to find what fits together.
	puzzle bool
}

func pickTraits(source Source) traits {
	one := func(n int) bool { return oneIn(source, n) }
	t := traits{
		counters:          one(3),
		shares:            one(3),
		taints:            one(4),
		binding:           one(6),
		generations:       one(6),
		nodeSelection:     one(3),
		missingAttributes: one(3),
		failing:           one(5),
		broken:            one(12),
		allocated:         one(2),
		lists:             one(3),
		all:               one(5),
		admin:             one(6),
		constraints:       one(2),
		capacities:        one(3),
		limits:            one(25),
		severalClaims:     one(2),
	}
	if oneIn(source, 2) {
		t.puzzle, t.constraints, t.capacities = true, true, false
		t.taints, t.generations, t.missingAttributes, t.failing, t.broken, t.all, t.limits = false, false, false, false, false, false, false
	}
	return t
}

type generator struct {
	Source
	traits
	out      Case
	drivers  []string
	large    bool // a pool has more devices than a claim may get
	devices  int  // on the node, over all pools
	slots    int  // over all claims
	inSlices []generatedDevice
}

// generatedDevice is a device as some slice has it, current or not.
type generatedDevice struct {
	driver, pool string
	device       *resourceapi.Device
}

// Generate makes a case from the choices of a source.
func Generate(source Source) Case {
	g := &generator{Source: source, traits: pickTraits(source)}
	return g.generate()
}

func (g *generator) generate() Case {
	g.nodes()
	g.drivers = []string{gpuDriver}
	if !g.puzzle && g.Intn(2) == 1 {
		g.drivers = []string{gpuDriver, gpuDriver, nicDriver}
	}
	g.classes()
	for i := range 1 + g.Intn(3) {
		g.pool(i)
	}
	g.shuffleSlices()
	for i := range g.claimCount() {
		g.out.Claims = append(g.out.Claims, g.claim(i))
	}
	if g.allocated {
		g.allocate()
	}
	return g.out
}

func (g *generator) nodes() {
	g.out.Node = node("node-a", "z1", pick(g, "", "r1"))
	if g.nodeSelection {
		g.out.OtherNodes = []*corev1.Node{node("node-b", pick(g, "z1", "z2"), pick(g, "", "r1", "r2"))}
	}
}

func node(name, zone, rack string) *corev1.Node {
	labels := map[string]string{zoneLabel: zone, slotsLabel: "8"}
	if rack != "" {
		labels[rackLabel] = rack
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func (g *generator) classes() {
	add := func(name string, expressions ...string) {
		class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, expression := range expressions {
			class.Spec.Selectors = append(class.Spec.Selectors, selector(expression))
		}
		g.out.Classes = append(g.out.Classes, class)
	}
	add("any")
	add("gpu", `device.driver == "gpu.example.com"`)
	add("own", g.expressions(1+g.Intn(2))...)
}

func (g *generator) claimCount() int {
	if !g.severalClaims {
		return 1
	}
	return pick(g, 2, 2, 2, 3)
}

func (g *generator) claim(index int) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default",
		Name:      fmt.Sprintf("claim-%d", index),
		UID:       types.UID(fmt.Sprintf("claim-%d", index)),
	}}
	spec := &claim.Spec.Devices
	requests := pick(g, 1, 1, 2, 3)
	switch {
	case oneIn(g, 80): // the API server admits it
		return claim
	case g.severalClaims:
		requests = pick(g, 1, 1, 2)
	case g.puzzle:
		requests = pick(g, 1, 2, 3)
	}
	for i := range requests {
		if i > 0 && g.slots >= maxSlots {
			break
		}
		spec.Requests = append(spec.Requests, g.request(fmt.Sprintf("r%d", i)))
	}
	if g.constraints {
		for range pick(g, 1, 0, 1, 2) {
			spec.Constraints = append(spec.Constraints, g.constraint(spec.Requests))
		}
	}
	return claim
}

// shuffleSlices makes sure that nobody relies on the order of an informer's list.
func (g *generator) shuffleSlices() {
	slices := g.out.Slices
	for i := len(slices) - 1; i > 0; i-- {
		j := i - g.Intn(i+1)
		slices[i], slices[j] = slices[j], slices[i]
	}
}
