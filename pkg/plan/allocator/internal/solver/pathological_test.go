package solver_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"apportion.dev/apportion/pkg/plan/allocator/internal/solver"
)

// mostNodes is what a search may cost that is told in advance what cannot be. Trying all
// combinations costs from a million nodes to more than can be counted.
const mostNodes = 2000

// row is an input that takes a plain search too long.
type row struct {
	name   string
	slices []*resourceapi.ResourceSlice
	claims []*resourceapi.ResourceClaim
	want   Verdict
}

func (r row) input() Case {
	return Case{
		Node:    &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: map[string]string{"zone": "a"}}},
		Slices:  r.slices,
		Classes: []*resourceapi.DeviceClass{{ObjectMeta: metav1.ObjectMeta{Name: "any"}}},
		Claims:  r.claims,
	}
}

func claims(c ...*resourceapi.ResourceClaim) []*resourceapi.ResourceClaim { return c }

func one(int) int     { return 0 }
func index(i int) int { return i }

// impossible is 32 identical GPUs, wanted in several ways, beside something that cannot
// be met.
func impossible() []row {
	gpus := published("node-a", nil, devices("gpu", 32))
	withNICs := published("node-a", nil, devices("gpu", 32, intAttribute("numa", one)), devices("nic", 4, intAttribute("numa", index)))
	missing := claim(wants(1, "nic"))
	apart := matching("gpu.example.com/numa", claim(wants(2, "nic")))
	alternatives := claim(resourceapi.DeviceRequest{FirstAvailable: []resourceapi.DeviceSubRequest{
		{Name: "two", DeviceClassName: "any", Selectors: wants(1, "nic").Exactly.Selectors, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 2},
		{Name: "one", DeviceClassName: "any", Selectors: wants(1, "nic").Exactly.Selectors, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1},
	}})
	var single []*resourceapi.ResourceClaim
	for range 32 {
		single = append(single, claim(wants(1, "gpu")))
	}
	return []row{
		{"one request, then a device that is not there", gpus, claims(claim(wants(32, "")), missing), Cannot},
		{"a device that is not there, then one request", gpus, claims(missing, claim(wants(32, ""))), Cannot},
		{"half, then a device that is not there", gpus, claims(claim(wants(16, "")), missing), Cannot},
		{"16 requests, then a device that is not there", gpus, claims(claim(times(16, wants(1, ""))...), missing), Cannot},
		{"32 requests, then a device that is not there", gpus, claims(claim(times(32, wants(1, ""))...), missing), Cannot},
		{"32 claims, then a device that is not there", gpus, append(single, missing), Cannot},
		{"31 of 32, then two", gpus, claims(claim(wants(31, "")), claim(wants(2, ""))), Cannot},
		{"31 requests of 32, then two", gpus, claims(claim(times(31, wants(1, ""))...), claim(wants(2, ""))), Cannot},
		{"half, then alternatives that are not there", gpus, claims(claim(wants(16, "")), alternatives), Cannot},
		{"half, then devices that do not match", withNICs, claims(claim(wants(16, "gpu")), apart), Cannot},
		{"16 requests, then devices that do not match", withNICs, claims(claim(times(16, wants(1, "gpu"))...), apart), Cannot},
		{"half of any, then devices that do not match", withNICs, claims(claim(wants(16, "")), apart), Cannot},
		{"8 requests of two of 16, and one more", published("node-a", nil, devices("gpu", 16)), claims(claim(times(8, wants(2, "gpu"))...), claim(wants(1, ""))), Cannot},
		{"32 requests for all", gpus, claims(claim(times(32, wants(1, ""))...)), Allocates},
	}
}

// oneMore wants one device more than there are.
func oneMore() []row {
	var nine []*resourceapi.ResourceClaim
	for range 9 {
		nine = append(nine, claim(wants(1, "")))
	}
	shares := published("node-a", nil, devices("gpu", 8, shareable("40Gi")))
	return []row{
		{"9 of 8", published("node-a", nil, devices("gpu", 8)), claims(claim(wants(9, ""))), Cannot},
		{"11 of 10", published("node-a", nil, devices("gpu", 10)), claims(claim(wants(11, ""))), Cannot},
		{"32 of 31", published("node-a", nil, devices("gpu", 31)), claims(claim(wants(32, ""))), Cannot},
		{"9 requests of 8", published("node-a", nil, devices("gpu", 8)), claims(claim(times(9, wants(1, ""))...)), Cannot},
		{"32 requests of 31", published("node-a", nil, devices("gpu", 31)), claims(claim(times(32, wants(1, ""))...)), Cannot},
		{"9 claims of 8", published("node-a", nil, devices("gpu", 8)), nine, Cannot},
		{"33 shares of a quarter of 8", shares, claims(claim(times(32, wantsMemory(1, "10Gi"))...), claim(wantsMemory(1, "10Gi"))), Cannot},
		{"32 shares of a quarter of 8", shares, claims(claim(times(32, wantsMemory(1, "10Gi"))...)), Allocates},
		{"9 of 8 of one NUMA node", published("node-a", nil, devices("gpu", 16, intAttribute("numa", func(i int) int { return i / 8 }))),
			claims(matching("gpu.example.com/numa", claim(wants(9, "")))), Cannot},
	}
}

// short has partitions, the counter of which lacks one unit.
func short() []row {
	partitions := func(sets []resourceapi.CounterSet, set func(int) int) []*resourceapi.ResourceSlice {
		return published("node-a", sets, devices("mig", 32, consumes(set, "1")))
	}
	single := partitions(counterSets("15"), one)
	eights := func(i int) int { return i / 8 }
	mixed := published("node-a", counterSets("31"), devices("big", 16, consumes(one, "2")), devices("small", 16, consumes(one, "1")))
	return []row{
		{"16 of 32", single, claims(claim(wants(16, ""))), Cannot},
		{"16 requests of 32", single, claims(claim(times(16, wants(1, ""))...)), Cannot},
		{"16 of 32, enough", partitions(counterSets("16"), one), claims(claim(wants(16, ""))), Allocates},
		{"16 of 4 GPUs", partitions(counterSets("4", "4", "3", "4"), eights), claims(claim(wants(16, ""))), Cannot},
		{"16 requests of 4 GPUs", partitions(counterSets("4", "4", "3", "4"), eights), claims(claim(times(16, wants(1, ""))...)), Cannot},
		{"16 of 4 GPUs, enough", partitions(counterSets("4", "4", "3", "5"), eights), claims(claim(wants(16, ""))), Allocates},
		{"16 of 2 and one of 1", mixed, claims(claim(wants(15, "big"), wants(2, "small"))), Cannot},
		{"15 of 2 and one of 1", mixed, claims(claim(wants(15, "big"), wants(1, "small"))), Allocates},
	}
}

func check(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			c := r.input()
			answers := solve(solver.NewCache(), c, c.Node, false, true)
			for i, answer := range answers {
				bestFit := i == 1
				t.Logf("best fit %v: %s in %d search nodes", bestFit, answer.Verdict, answer.Steps)
				if answer.Verdict != r.want {
					t.Errorf("best fit %v: want %q, got %s", bestFit, r.want, answer)
				}
				if answer.Steps > mostNodes {
					t.Errorf("best fit %v: %d search nodes, want at most %d", bestFit, answer.Steps, mostNodes)
				}
			}
		})
	}
}

func TestStaysFastIdenticalDevicesBesideSomethingImpossible(t *testing.T) { check(t, impossible()) }

func TestStaysFastOneMoreThanThereIs(t *testing.T) { check(t, oneMore()) }

// overlapping is 16 requests for one GPU each of 15, whose selectors accept different
// GPUs, so that the requests are not alike.
func overlapping() []row {
	const numa = `device.attributes["gpu.example.com"].numa`
	var requests []resourceapi.DeviceRequest
	for i := range 16 {
		selector := fmt.Sprintf(`(%s * 7 + %d) %% 3 != 0 || %s == %d`, numa, i*5, numa, i)
		if i%2 == 0 {
			selector = fmt.Sprintf(`(%s * %d) %% 5 < 3`, numa, i/2+1)
		}
		request := where(selector, wants(1, ""))
		request.Name = fmt.Sprintf("r%d", i)
		requests = append(requests, request)
	}
	return []row{{"16 requests of 15 with different selectors", published("node-a", nil, devices("gpu", 15, intAttribute("numa", index))), claims(claim(requests...)), Cannot}}
}

func TestStaysFastRequestsThatOverlap(t *testing.T) { check(t, overlapping()) }

func TestStaysFastPartitionsOneUnitShort(t *testing.T) { check(t, short()) }

// template makes what an instance type publishes, of devices of which the names are its
// own.
func template(t testing.TB, cache *solver.Cache, instanceType string, groups ...[]resourceapi.Device) *solver.Template {
	t.Helper()
	var slices []solver.TemplateSlice
	for _, group := range groups {
		for i := range group {
			group[i].Name = instanceType + "-" + group[i].Name
		}
		slices = append(slices, solver.TemplateSlice{Devices: group})
	}
	made, err := solver.NewTemplate(cache, "gpu.example.com", "", slices, nil)
	if err != nil {
		t.Fatalf("template of %s: %v", instanceType, err)
	}
	return made
}

// solveTemplates searches each template once for each shape, and returns the verdicts,
// the search nodes of all, and how many shapes there are.
func solveTemplates(t testing.TB, cache *solver.Cache, templates []*solver.Template, r row) (verdicts []Verdict, nodes int64, shapes int) {
	t.Helper()
	c := r.input()
	inCluster, err := solver.NewSnapshot(cache, c.Slices).Pools(c.Node)
	if err != nil {
		t.Fatalf("pools: %v", err)
	}
	compiled, err := solver.Compile(cache, c.Claims, c.ClassMap())
	if err != nil {
		t.Fatalf("compile: %v", err)
	}
	known := map[solver.Shape]Verdict{}
	for _, one := range templates {
		pools := inCluster.WithTemplates(one)
		verdict, found := known[pools.Shape()]
		if !found {
			answer := answerOf(solver.Solve(t.Context(), solver.Problem{
				Pools: pools, Node: c.Node, Usage: solver.NewUsage(c.Allocated()), Claims: compiled, Budget: budget,
			}))
			verdict, nodes = answer.Verdict, nodes+answer.Steps
			known[pools.Shape()] = verdict
		}
		verdicts = append(verdicts, verdict)
	}
	return verdicts, nodes, len(known)
}

func fiftyTypes(t testing.TB, cache *solver.Cache) []*solver.Template {
	var templates []*solver.Template
	for i := range 50 {
		groups := [][]resourceapi.Device{devices("gpu", 8)}
		if i == 49 {
			groups = append(groups, devices("nic", 1))
		}
		templates = append(templates, template(t, cache, fmt.Sprintf("type-%d", i), groups...))
	}
	return templates
}

func sevenHundredTypes(t testing.TB, cache *solver.Cache) []*solver.Template {
	var templates []*solver.Template
	for i := range 700 {
		gpus := devices("gpu", 8, intAttribute("generation", func(int) int { return i % 7 }))
		templates = append(templates, template(t, cache, fmt.Sprintf("type-%d", i), gpus))
	}
	return templates
}

func TestStaysFastOnlyTheLastOf50TypesHasTheNIC(t *testing.T) {
	cache := solver.NewCache()
	verdicts, nodes, shapes := solveTemplates(t, cache, fiftyTypes(t, cache), row{claims: claims(claim(wants(8, "gpu")), claim(wants(1, "nic")))})
	for i, verdict := range verdicts {
		want := Cannot
		if i == 49 {
			want = Allocates
		}
		if verdict != want {
			t.Errorf("type %d: %q, want %q", i, verdict, want)
		}
	}
	if shapes != 2 || nodes > mostNodes {
		t.Errorf("%d shapes and %d search nodes, want 2 and at most %d", shapes, nodes, mostNodes)
	}
}

func TestStaysFast700TypesOf8GPUs(t *testing.T) {
	cache := solver.NewCache()
	verdicts, nodes, shapes := solveTemplates(t, cache, sevenHundredTypes(t, cache), row{claims: claims(claim(wants(8, "gpu")))})
	for i, verdict := range verdicts {
		if verdict != Allocates {
			t.Errorf("type %d: %q", i, verdict)
		}
	}
	if shapes != 7 || nodes > mostNodes {
		t.Errorf("%d shapes and %d search nodes, want 7 and at most %d", shapes, nodes, mostNodes)
	}
}

// manyNodes is what 5,000 nodes of 8 GPUs in three zones publish. The devices are those
// of one node each, or can be reached from all of a zone.
func manyNodes(zoned bool) []*resourceapi.ResourceSlice {
	var out []*resourceapi.ResourceSlice
	for i := range 5000 {
		zone := string(rune('a' + (i+1)%3))
		slice := published(fmt.Sprintf("node-%d", i), nil, devices("gpu", 8, intAttribute("zone", func(int) int { return i % 3 })))[0]
		if i == 4999 {
			*slice.Spec.NodeName = "node-a"
		}
		if zoned {
			slice.Spec.NodeName = nil
			slice.Spec.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
			}}}
		}
		out = append(out, slice)
	}
	return out
}

func thousands() []row {
	own, zoned := manyNodes(false), manyNodes(true)
	same := func(count int) *resourceapi.ResourceClaim {
		return matching("gpu.example.com/zone", claim(wants(count, "gpu")))
	}
	return []row{
		{"8 of the own", own, claims(same(8)), Allocates},
		{"9 of the own", own, claims(same(9)), Cannot},
		{"32 of the zone's", zoned, claims(same(32)), Allocates},
		{"32 of the zone's beside something impossible", zoned, claims(same(32), claim(wants(1, "nic"))), Cannot},
	}
}

func TestStaysFast5000NodesOf8GPUs(t *testing.T) { check(t, thousands()) }

// BenchmarkPathological measures the same inputs, warm: the slices are read and the
// selectors compiled once.
func BenchmarkPathological(b *testing.B) {
	for _, r := range slices.Concat(impossible(), oneMore(), short(), partitions(), topology(), thousands()) {
		b.Run(r.name, func(b *testing.B) { benchmark(b, r) })
	}
	types := func(make func(testing.TB, *solver.Cache) []*solver.Template) func(*testing.B) {
		return func(b *testing.B) {
			cache := solver.NewCache()
			templates := make(b, cache)
			b.ReportAllocs()
			for b.Loop() {
				solveTemplates(b, cache, templates, row{claims: claims(claim(wants(8, "gpu")), claim(wants(1, "nic")))})
			}
		}
	}
	b.Run("50 types", types(fiftyTypes))
	b.Run("700 types", types(sevenHundredTypes))
}

func benchmark(b *testing.B, r row) {
	c := r.input()
	cache := solver.NewCache()
	snapshot, usage := solver.NewSnapshot(cache, c.Slices), solver.NewUsage(c.Allocated())
	b.ReportAllocs()
	for b.Loop() {
		pools, err := snapshot.Pools(c.Node)
		if err != nil {
			b.Fatal(err)
		}
		compiled, err := solver.Compile(cache, c.Claims, c.ClassMap())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := solver.Solve(b.Context(), solver.Problem{Pools: pools, Node: c.Node, Usage: usage, Claims: compiled, Budget: budget}); err != nil {
			b.Fatal(err)
		}
	}
}
