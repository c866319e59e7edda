package allocator_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"apportion.dev/apportion/pkg/plan/allocator"
)

// bruteRandom makes worlds.
type bruteRandom struct {
	*rand.Rand
	claims int
}

func (r *bruteRandom) devices(prefix string, most int, sets map[string]int) []bruteDevice {
	var devices []bruteDevice
	for i := range r.IntN(most + 1) {
		d := bruteDevice{name: fmt.Sprintf("%s%d", prefix, i), model: []string{"x", "y"}[r.IntN(2)], memory: []int{10, 20, 40}[r.IntN(3)]}
		if len(sets) > 0 && r.IntN(2) == 0 {
			d.set = "s"
		} else {
			d.shared = r.IntN(3) == 0
		}
		devices = append(devices, d)
	}
	return devices
}

func (r *bruteRandom) zones() []string {
	return [][]string{{"a"}, {"a", "b"}, {"a", "b", "c"}, {"b"}, {"c"}}[r.IntN(5)]
}

func (r *bruteRandom) world() *bruteWorld {
	w := &bruteWorld{zone: []string{"a", "b", ""}[r.IntN(3)], targets: make(map[string]map[brutePlace][]bruteTaken), placed: make(map[string]string), asked: make(map[string][][]string)}
	for i := range r.IntN(4) {
		p := brutePool{name: fmt.Sprintf("p%d", i), devices: r.devices("d", 4, nil)}
		switch r.IntN(4) {
		case 0:
		case 1:
			p.node = []string{bruteNode, "n2"}[r.IntN(2)]
		default:
			p.zones = r.zones()
		}
		w.pools = append(w.pools, p)
		for _, d := range p.devices {
			if r.IntN(5) == 0 {
				w.held = append(w.held, bruteTaken{pool: p.name, device: d, consumed: 10})
			}
		}
	}
	for i := range 1 + r.IntN(4) {
		t := bruteType{name: fmt.Sprintf("t%d", i)}
		if r.IntN(4) > 0 {
			t.zones = r.zones()
		}
		if r.IntN(2) == 0 {
			t.pool.sets = map[string]int{"s": 60}
		}
		t.pool.devices = r.devices([]string{"g", "h"}[r.IntN(2)], 6, t.pool.sets)
		if i > 0 && r.IntN(3) == 0 {
			t.pool = w.types[0].pool // the same shape
		}
		w.types = append(w.types, t)
	}
	return w
}

func (r *bruteRandom) claim() bruteClaim {
	r.claims++
	c := bruteClaim{name: fmt.Sprintf("c%d", r.claims), match: r.IntN(4) == 0}
	for range 1 + r.IntN(4)/3 {
		request := bruteRequest{count: 1 + r.IntN(3)/2}
		if r.IntN(3) == 0 {
			request.model = []string{"x", "y"}[r.IntN(2)]
		}
		if r.IntN(3) > 0 {
			request.memory = []int{5, 10, 20}[r.IntN(3)]
		}
		c.requests = append(c.requests, request)
	}
	return c
}

// pod has one or two claims, of which one may be an earlier pod's.
func (r *bruteRandom) pod(earlier []bruteClaim) []bruteClaim {
	pod := []bruteClaim{r.claim()}
	switch n := r.IntN(5); {
	case n == 0:
		pod = append(pod, r.claim())
	case n == 1 && len(earlier) > 0:
		pod = append(pod, earlier[r.IntN(len(earlier))])
	case n == 2 && len(earlier) > 0:
		pod = []bruteClaim{earlier[r.IntN(len(earlier))]}
	}
	return pod
}

// TestSurvivorsAreExactlyThoseOfABruteForce plays sequences of Allocate, Commit and
// Release with two node claims and a node that share devices of the cluster. After each
// step the instance types and zones that survive are the brute force's, whatever the
// order of instance types. Their devices are the same, too, with Predict; with BestFit
// they only have to be good.
func TestSurvivorsAreExactlyThoseOfABruteForce(t *testing.T) {
	seeds := uint64(1500)
	if testing.Short() {
		seeds = 100
	}
	for _, policy := range []allocator.Policy{allocator.Predict, allocator.BestFit} {
		t.Run(string(policy), func(t *testing.T) {
			asked, places := 0, 0
			for seed := range seeds {
				g := newBruteGame(t, seed, policy)
				for range 7 {
					g.step(t)
				}
				asked, places = asked+g.asked, places+g.places
			}
			t.Logf("%d calls, %d places", asked, places)
		})
	}
}

// bruteGame plays one sequence.
type bruteGame struct {
	*bruteRandom
	world     *bruteWorld
	allocator *allocator.Allocator
	policy    allocator.Policy
	types     map[string]*allocator.InstanceType
	node      *corev1.Node
	earlier   []bruteClaim

	asked, places int
}

func newBruteGame(t *testing.T, seed uint64, policy allocator.Policy) *bruteGame {
	t.Helper()
	g := &bruteGame{
		bruteRandom: &bruteRandom{Rand: rand.New(rand.NewPCG(seed, 17))},
		policy:      policy,
		types:       make(map[string]*allocator.InstanceType),
		node:        rigNode(bruteNode),
	}
	g.world = g.bruteRandom.world()
	g.allocator = g.world.rig().policy(policy).new(t)
	for _, i := range g.world.types {
		g.types[i.name] = i.object()
	}
	if g.world.zone != "" {
		g.node.Labels[rigZone] = g.world.zone
	}
	return g
}

func (g *bruteGame) step(t *testing.T) {
	t.Helper()
	w := g.world
	on := []string{"nc1", "nc2", bruteNode}[g.IntN(3)]
	if g.IntN(4) == 0 {
		instanceType := ""
		if on != bruteNode {
			instanceType = w.types[g.IntN(len(w.types))].name
		}
		g.allocator.Release(on, instanceType)
		w.release(on, instanceType)
		return
	}
	pod, zones, target := g.pod(g.earlier), []string(nil), g.target(on)
	if g.IntN(3) == 0 {
		zones = g.zones()
		target.Selectors = []*corev1.NodeSelector{rigSelector(rigIn(rigZone, zones...))}
	}
	var claims []*resourceapi.ResourceClaim
	for _, c := range pod {
		claims = append(claims, c.object())
	}
	result := rigAsk(t, g.allocator, target, claims...)
	got, want := w.read(t, on, zones, result), w.answer(on, zones, pod)
	if wrong := g.compare(on, pod, got, want); wrong != "" {
		t.Fatalf("%s in zones %v for %+v: %s\ngot  %v\nwant %v\nresult:\n%s\nworld: %+v",
			on, zones, pod, wrong, got, want, strings.Join(rigLines(result), "\n"), w)
	}
	g.asked++
	g.places += len(got)
	if len(got) == 0 {
		return
	}
	if err := g.allocator.Commit(result); err != nil {
		t.Fatal(err)
	}
	w.commit(on, zones, got, pod)
	g.earlier = append(g.earlier, pod...)
}

// target has the instance types in any order.
func (g *bruteGame) target(on string) allocator.Target {
	if on == bruteNode {
		return allocator.Target{ID: on, Node: g.node}
	}
	target := allocator.Target{ID: on}
	for _, i := range g.Perm(len(g.world.types)) {
		target.InstanceTypes = append(target.InstanceTypes, g.types[g.world.types[i].name])
	}
	return target
}

func (g *bruteGame) compare(on string, pod []bruteClaim, got, want map[brutePlace][]bruteTaken) string {
	for p := range want {
		if _, ok := got[p]; !ok {
			return fmt.Sprintf("%v is missing", p)
		}
	}
	open := slices.DeleteFunc(slices.Clone(pod), func(c bruteClaim) bool { _, ok := g.world.placed[c.name]; return ok })
	for p, taken := range got {
		if _, ok := want[p]; !ok {
			return fmt.Sprintf("%v does not survive", p)
		}
		if wrong := g.world.fits(on, p, open, taken); wrong != "" {
			return fmt.Sprintf("%v: %s", p, wrong)
		}
		if g.policy == allocator.Predict && takenText(taken) != takenText(want[p]) {
			return fmt.Sprintf("%v: other devices", p)
		}
	}
	return ""
}
