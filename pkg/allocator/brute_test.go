package allocator_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"apportion.dev/apportion/pkg/allocator"
)

// The brute force knows the rules of the API and none of the allocator's code: it tries
// all devices for all slots in the order of publishing, for each instance type and each
// zone by itself.

type bruteDevice struct {
	name   string
	model  string
	memory int    // Gi
	shared bool   // claims share the memory
	set    string // of the counter from which the memory is taken; empty for none
}

type brutePool struct {
	name    string // empty for the pool of a template
	zones   []string
	node    string
	devices []bruteDevice
	sets    map[string]int // Gi
}

type bruteType struct {
	name  string
	zones []string // nil if it does not tell
	pool  brutePool
}

type bruteRequest struct {
	count  int
	model  string // empty for any
	memory int    // Gi, 0 for none
}

type bruteClaim struct {
	name     string
	requests []bruteRequest
	match    bool // all devices are of one model
}

// brutePlace is one concrete node: an instance type, or none for the node that exists,
// in a zone, or none.
type brutePlace struct {
	instanceType, zone string
}

// bruteTaken is what one claim has of one device.
type bruteTaken struct {
	claim    string
	pool     string
	device   bruteDevice
	consumed int // Gi, of a shared device
}

type bruteWorld struct {
	pools []brutePool
	types []bruteType
	zone  string // of the node that exists
	held  []bruteTaken
	// targets have for each place that is left what was taken there.
	targets map[string]map[brutePlace][]bruteTaken
	placed  map[string]string // claim -> target
	// asked are the zones that committed pods asked for: the caller knows them.
	asked map[string][][]string
}

func (w *bruteWorld) outside(target, zone string, zones []string) bool {
	for _, asked := range append(slices.Clip(w.asked[target]), zones) {
		if asked != nil && !slices.Contains(asked, zone) {
			return true
		}
	}
	return false
}

const bruteNode = "n1"

// places are all that a target may be before anything was committed to it.
func (w *bruteWorld) places(target string) []brutePlace {
	if target == bruteNode {
		return []brutePlace{{zone: w.zone}}
	}
	var places []brutePlace
	for _, t := range w.types {
		zones := t.zones
		if zones == nil {
			zones = []string{"a", "b", "c", "another", ""}
		}
		for _, zone := range zones {
			places = append(places, brutePlace{t.name, zone})
		}
	}
	return places
}

// left are the places that a target may still be.
func (w *bruteWorld) left(target string) []brutePlace {
	if state, ok := w.targets[target]; ok {
		return slices.DeleteFunc(w.places(target), func(p brutePlace) bool { _, ok := state[p]; return !ok })
	}
	return w.places(target)
}

// reached are the pools in the order in which they are tried.
func (w *bruteWorld) reached(target string, p brutePlace) []brutePool {
	var pools []brutePool
	for _, pool := range w.pools {
		if pool.node != "" && (target != bruteNode || pool.node != bruteNode) {
			continue
		}
		if pool.zones == nil || slices.Contains(pool.zones, p.zone) {
			pools = append(pools, pool)
		}
	}
	for _, t := range w.types {
		if t.name == p.instanceType {
			pools = append(pools, t.pool)
		}
	}
	return pools
}

// available says what a new share or claim may take of a device.
func (w *bruteWorld) available(target string, p brutePlace, pool string, d bruteDevice) int {
	left := d.memory
	if !d.shared {
		left = 1
	}
	take := func(t bruteTaken) int {
		switch {
		case t.pool != pool || t.device.name != d.name:
			return 0
		case d.shared:
			return t.consumed
		}
		return 1
	}
	sum := func(of []bruteTaken) (n int) {
		for _, t := range of {
			n += take(t)
		}
		return n
	}
	left -= sum(w.targets[target][p])
	if pool == "" {
		return left
	}
	left -= sum(w.held)
	for other, places := range w.targets {
		most := 0
		for _, taken := range places {
			most = max(most, sum(taken))
		}
		if other != target {
			left -= most
		}
	}
	return left
}

// allocate finds the first devices, nil if there are none.
func (w *bruteWorld) allocate(target string, p brutePlace, claims []bruteClaim) []bruteTaken {
	type slot struct {
		claim   *bruteClaim
		request *bruteRequest
		index   int
	}
	var slots []slot
	for i := range claims {
		for j := range claims[i].requests {
			for k := range claims[i].requests[j].count {
				slots = append(slots, slot{&claims[i], &claims[i].requests[j], k})
			}
		}
	}
	type candidate struct {
		pool brutePool
		d    bruteDevice
		left int
	}
	var candidates []candidate
	counters := make(map[string]int)
	for _, pool := range w.reached(target, p) {
		for _, d := range pool.devices {
			candidates = append(candidates, candidate{pool, d, w.available(target, p, pool.name, d)})
		}
		for set, n := range pool.sets {
			counters[pool.name+"/"+set] = n
		}
	}
	for _, t := range w.targets[target][p] {
		if t.device.set != "" {
			counters[t.pool+"/"+t.device.set] -= t.device.memory
		}
	}
	taken := make([]bruteTaken, 0, len(slots))
	var try func(i, from int) bool
	try = func(i, from int) bool {
		if i == len(slots) {
			return true
		}
		s := slots[i]
		if s.index == 0 {
			from = 0
		}
		for c := from; c < len(candidates); c++ {
			d, counter := candidates[c].d, candidates[c].pool.name+"/"+candidates[c].d.set
			need, consumed := 1, 0
			if d.shared {
				if need = s.request.memory; need == 0 {
					need = d.memory
				}
				consumed = need
			}
			switch {
			case s.request.model != "" && s.request.model != d.model, s.request.memory > d.memory, candidates[c].left < need:
				continue
			case d.set != "" && counters[counter] < d.memory:
				continue
			case s.claim.match && slices.ContainsFunc(taken, func(t bruteTaken) bool { return t.claim == s.claim.name && t.device.model != d.model }):
				continue
			}
			candidates[c].left -= need
			if d.set != "" {
				counters[counter] -= d.memory
			}
			taken = append(taken, bruteTaken{s.claim.name, candidates[c].pool.name, d, consumed})
			if try(i+1, c+1) {
				return true
			}
			taken = taken[:len(taken)-1]
			candidates[c].left += need
			if d.set != "" {
				counters[counter] += d.memory
			}
		}
		return false
	}
	if !try(0, 0) {
		return nil
	}
	return taken
}

// reachable says whether claims that are placed elsewhere can be used at a place.
func (w *bruteWorld) reachable(target string, p brutePlace, claims []bruteClaim) bool {
	for _, c := range claims {
		on, ok := w.placed[c.name]
		if !ok || on == target {
			continue
		}
		for _, taken := range w.targets[on] {
			for _, t := range taken {
				if t.claim != c.name {
					continue
				}
				i := slices.IndexFunc(w.pools, func(pool brutePool) bool { return pool.name == t.pool })
				if i < 0 || w.pools[i].node != "" || w.pools[i].zones != nil && !slices.Contains(w.pools[i].zones, p.zone) {
					return false
				}
			}
		}
	}
	return true
}

// answer is what each place that will do has.
func (w *bruteWorld) answer(target string, zones []string, claims []bruteClaim) map[brutePlace][]bruteTaken {
	open := slices.DeleteFunc(slices.Clone(claims), func(c bruteClaim) bool { _, ok := w.placed[c.name]; return ok })
	answer := make(map[brutePlace][]bruteTaken)
	for _, p := range w.left(target) {
		if w.outside(target, p.zone, zones) || !w.reachable(target, p, claims) {
			continue
		}
		if taken := w.allocate(target, p, open); taken != nil {
			answer[p] = taken
		}
	}
	return answer
}

func (w *bruteWorld) commit(target string, zones []string, answer map[brutePlace][]bruteTaken, claims []bruteClaim) {
	w.asked[target] = append(w.asked[target], zones)
	before := w.targets[target]
	w.targets[target] = make(map[brutePlace][]bruteTaken)
	for p, taken := range answer {
		w.targets[target][p] = slices.Concat(before[p], taken)
	}
	for _, c := range claims {
		if _, ok := w.placed[c.name]; !ok {
			w.placed[c.name] = target
		}
	}
}

func (w *bruteWorld) release(target, instanceType string) {
	if w.targets[target] == nil {
		return
	}
	maps.DeleteFunc(w.targets[target], func(p brutePlace, _ []bruteTaken) bool { return p.instanceType == instanceType })
	if len(w.targets[target]) == 0 {
		delete(w.targets, target)
		delete(w.asked, target)
		maps.DeleteFunc(w.placed, func(_, on string) bool { return on == target })
	}
}

// From here on the model becomes objects of the API, and results become the model's.

func (d bruteDevice) object() resourceapi.Device {
	o := rigModel(d.name, d.model)
	memory := resource.MustParse(fmt.Sprintf("%dGi", d.memory))
	o.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{rigMemory: {Value: memory}}
	if d.shared {
		o.AllowMultipleAllocations = new(true)
	}
	if d.set != "" {
		o.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: d.set, Counters: map[string]resourceapi.Counter{"memory": {Value: memory}}}}
	}
	return o
}

func (p brutePool) objects() (devices []resourceapi.Device, sets []resourceapi.CounterSet) {
	for _, d := range p.devices {
		devices = append(devices, d.object())
	}
	for _, name := range slices.Sorted(maps.Keys(p.sets)) {
		sets = append(sets, rigCounters(name, fmt.Sprintf("%dGi", p.sets[name])))
	}
	return devices, sets
}

func (p brutePool) slice() *resourceapi.ResourceSlice {
	devices, _ := p.objects()
	switch {
	case p.node != "":
		return rigSlice(p.name, rigOnNode(p.node), devices...)
	case p.zones != nil:
		return rigSlice(p.name, rigInZones(p.zones...), devices...)
	}
	return rigSlice(p.name, rigEverywhere, devices...)
}

func (t bruteType) object() *allocator.InstanceType {
	o := rigType(t.name, t.zones)
	devices, sets := t.pool.objects()
	template := allocator.Template{Driver: rigDriver, Slices: []allocator.TemplateSlice{{Devices: devices}}}
	if len(sets) > 0 {
		template.Slices = append(template.Slices, allocator.TemplateSlice{SharedCounters: sets})
	}
	o.Templates = []allocator.Template{template}
	return o
}

func (c bruteClaim) object() *resourceapi.ResourceClaim {
	o := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: c.name, UID: types.UID(c.name)}}
	for i, r := range c.requests {
		var change []func(*resourceapi.ExactDeviceRequest)
		if r.model != "" {
			change = append(change, rigOfModel(r.model))
		}
		if r.memory > 0 {
			change = append(change, rigWithMemory(fmt.Sprintf("%dGi", r.memory)))
		}
		request := rigClaim("", int64(r.count), change...).Spec.Devices.Requests[0]
		request.Name = fmt.Sprintf("r%d", i)
		o.Spec.Devices.Requests = append(o.Spec.Devices.Requests, request)
	}
	if c.match {
		o.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: new(resourceapi.FullyQualifiedName(rigDriver + "/model"))}}
	}
	return o
}

func (w *bruteWorld) rig() *inputs {
	r := newInputs()
	for _, p := range w.pools {
		r.slices(p.slice())
	}
	var held []*resourceapi.ResourceClaim
	for i, t := range w.held {
		text := t.pool + "/" + t.device.name
		if t.device.shared {
			text += fmt.Sprintf("=%dGi", t.consumed)
		}
		held = append(held, rigAllocated(rigClaim(fmt.Sprintf("held%d", i), 1), nil, text))
	}
	return r.allocated(held...)
}

// read turns a result into places, of which each may be in one placement only.
func (w *bruteWorld) read(t *testing.T, target string, zones []string, result *allocator.Result) map[brutePlace][]bruteTaken {
	t.Helper()
	answer := make(map[brutePlace][]bruteTaken)
	for _, p := range w.places(target) {
		if w.outside(target, p.zone, zones) {
			continue
		}
		for _, s := range result.Survivors {
			if s.InstanceType != p.instanceType {
				continue
			}
			for _, placement := range s.Placements {
				if !bruteMatches(t, placement.Requirements, p.zone) {
					continue
				}
				if _, ok := answer[p]; ok {
					t.Fatalf("two placements for %v:\n%s", p, strings.Join(rigLines(result), "\n"))
				}
				answer[p] = w.taken(t, target, p, placement.Claims)
			}
		}
	}
	return answer
}

// taken looks up the devices of claims.
func (w *bruteWorld) taken(t *testing.T, target string, p brutePlace, claims []allocator.ClaimAllocation) []bruteTaken {
	t.Helper()
	taken := []bruteTaken{}
	for _, c := range claims {
		for _, d := range c.Devices {
			of := bruteTaken{claim: c.Claim.Name, pool: d.Device.Pool.String()}
			for _, pool := range w.reached(target, p) {
				for _, device := range pool.devices {
					if pool.name == of.pool && device.name == d.Device.Device.String() && d.Template == (pool.name == "") {
						of.device = device
					}
				}
			}
			if of.device.name == "" {
				t.Fatalf("%v of %s does not reach device %s", p, target, d.Device)
			}
			if amount, ok := d.Consumed[rigMemory]; ok {
				of.consumed = int(amount.Value() >> 30)
			}
			taken = append(taken, of)
		}
	}
	return taken
}

// fits says what is wrong with devices that claims get at a place.
func (w *bruteWorld) fits(target string, p brutePlace, claims []bruteClaim, taken []bruteTaken) string {
	counters := make(map[string]int)
	for _, pool := range w.reached(target, p) {
		for set, n := range pool.sets {
			counters[pool.name+"/"+set] = n
		}
	}
	for _, t := range slices.Concat(w.targets[target][p], taken) {
		if t.device.set == "" {
			continue
		}
		if counters[t.pool+"/"+t.device.set] -= t.device.memory; counters[t.pool+"/"+t.device.set] < 0 {
			return "the counter of " + t.device.name + " is exhausted"
		}
	}
	used := make(map[string]int)
	for _, t := range taken {
		key := t.pool + "/" + t.device.name
		if used[key] += max(t.consumed, 1); t.device.shared {
			used[key] += t.consumed - max(t.consumed, 1)
		}
		if used[key] > w.available(target, p, t.pool, t.device) {
			return "there is not so much of " + key
		}
	}
	for _, c := range claims {
		models := make(map[string]bool)
		for _, r := range c.requests {
			seen := make(map[string]bool)
			for range r.count {
				if len(taken) == 0 || taken[0].claim != c.name {
					return "devices are missing"
				}
				d, consumed := taken[0].device, taken[0].consumed
				need := r.memory
				if need == 0 {
					need = d.memory
				}
				key := taken[0].pool + "/" + d.name
				if r.model != "" && r.model != d.model || r.memory > d.memory || d.shared && consumed != need || seen[key] {
					return "not what was asked for: " + key
				}
				models[d.model], seen[key] = true, true
				taken = taken[1:]
			}
		}
		if c.match && len(models) > 1 {
			return "several models"
		}
	}
	if len(taken) > 0 {
		return "too many devices"
	}
	return ""
}

func bruteMatches(t *testing.T, requirements []corev1.NodeSelectorRequirement, zone string) bool {
	t.Helper()
	if len(requirements) == 0 {
		return true
	}
	selector, err := nodeaffinity.NewNodeSelector(rigSelector(requirements...))
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{}
	if zone != "" {
		node.Labels = map[string]string{rigZone: zone}
	}
	return selector.Match(node)
}

func takenText(taken []bruteTaken) string {
	var words []string
	for _, t := range taken {
		word := fmt.Sprintf("%s:%s/%s", t.claim, t.pool, t.device.name)
		if t.device.shared {
			word += fmt.Sprintf("=%dGi", t.consumed)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

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
