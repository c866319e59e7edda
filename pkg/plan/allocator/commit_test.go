package allocator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/pkg/plan/allocator"
)

// nodeClaim is a target with instance types.
func nodeClaim(id string, types ...*allocator.InstanceType) allocator.Target {
	return allocator.Target{ID: id, InstanceTypes: types}
}

func TestTemplateDevicesAreOfOneTarget(t *testing.T) {
	two := rigType("two", nil, rigGPUs(2)...)
	a := newInputs().new(t)
	rigWant(t, rigCommit(t, a, nodeClaim("first", two), rigClaim("c1", 1)), "two {}: c1:r=gpu-0")
	rigWant(t, rigCommit(t, a, nodeClaim("second", two), rigClaim("c2", 1)), "two {}: c2:r=gpu-0")
	rigWant(t, rigCommit(t, a, nodeClaim("first", two), rigClaim("c3", 1)), "two {}: c3:r=gpu-1")
	rigWant(t, rigAsk(t, a, nodeClaim("first", two), rigClaim("c4", 1)), "two - request r of claim c4...")
	rigWant(t, rigAsk(t, a, nodeClaim("second", two), rigClaim("c4", 1)), "two {}: c4:r=gpu-1")
}

func TestOnlySurvivorsOfACommitAreLeft(t *testing.T) {
	one, two, three := rigType("one", nil, rigGPUs(1)...), rigType("two", nil, rigGPUs(2)...), rigType("three", nil, rigGPUs(3)...)
	a := newInputs().new(t)
	rigCommit(t, a, nodeClaim("n", one, two, three), rigClaim("c1", 1), rigClaim("c2", 1))
	rigWant(t, rigCommit(t, a, nodeClaim("n", one, two, three), rigClaim("c3", 1)),
		"three {}: c3:r=gpu-2",
		"one - claims that were placed there before cannot be met on it, or it was released",
		"two - request r of claim c3...")
	rigWant(t, rigAsk(t, a, nodeClaim("n", one, two, three)),
		"three {}:",
		"one - claims that were placed there before cannot be met on it, or it was released",
		"two - claims that were placed there before cannot be met on it, or it was released")
}

func TestOtherTargetsCannotHaveWhatAnyAlternativeTook(t *testing.T) {
	// Of the cluster there are d and e. "none" needs both, "one" just d.
	none, one := rigType("none", nil), rigType("one", nil, rigModel("g", "x"))
	pool := rigSlice("p", rigEverywhere, rigModel("d", "x"), rigModel("e", "x"))
	a := newInputs().slices(pool).new(t)
	rigWant(t, rigCommit(t, a, nodeClaim("n1", none, one), rigClaim("c1", 1)), "none {}: c1:r=p/d", "one {}: c1:r=p/d")
	rigWant(t, rigCommit(t, a, nodeClaim("n1", none, one), rigClaim("c2", 1)), "none {}: c2:r=p/e", "one {}: c2:r=p/e")
	rigWant(t, rigAsk(t, a, nodeClaim("n1", none, one), rigClaim("c3", 1)), "one {}: c3:r=g", "none - request r of claim c3...")
	rigWant(t, rigAsk(t, a, nodeClaim("n2", none, one), rigClaim("c3", 1)), "one {}: c3:r=g", "none - request r of claim c3...")
	// It is enough that one alternative took it.
	a.Release("n1", "one")
	rigWant(t, rigAsk(t, a, nodeClaim("n2", none), rigClaim("c3", 1)), "none - request r of claim c3...")
	a.Release("n1", "none")
	rigWant(t, rigAsk(t, a, nodeClaim("n2", none), rigClaim("c3", 1)), "none {}: c3:r=p/d")
}

func TestADeviceThatTwoAlternativesShareIsReleasedWithTheLast(t *testing.T) {
	small, large := rigType("small", nil, rigModel("s", "x")), rigType("large", nil, rigModel("l", "x"), rigModel("m", "x"))
	none := rigType("none", nil)
	a := newInputs().slices(rigSlice("p", rigEverywhere, rigModel("d", "x"))).new(t)
	rigWant(t, rigCommit(t, a, nodeClaim("n1", small, large), rigClaim("c1", 2, rigOfModel("x"))), "small {}: c1:r=p/d,r=s", "large {}: c1:r=p/d,r=l")
	rigWant(t, rigAsk(t, a, nodeClaim("n2", none), rigClaim("c2", 1)), "none - request r of claim c2...")
	a.Release("n1", "small")
	rigWant(t, rigAsk(t, a, nodeClaim("n2", none), rigClaim("c2", 1)), "none - request r of claim c2...")
	a.Release("n1", "large")
	rigWant(t, rigAsk(t, a, nodeClaim("n2", none), rigClaim("c2", 1)), "none {}: c2:r=p/d")
}

func TestSharesOfTheClusterAddUpByTheWorst(t *testing.T) {
	// 40Gi of p/s. n1 takes 30Gi if it becomes "none", 10Gi (after a template's device
	// gave the 20Gi) if it becomes "own".
	none, own := rigType("none", nil), rigType("own", nil)
	own.Templates = []allocator.Template{{Driver: "a." + rigDriver, Slices: []allocator.TemplateSlice{{Devices: []resourceapi.Device{rigShared("t", "20Gi")}}}}}
	a := newInputs().slices(rigSlice("p", rigEverywhere, rigShared("s", "40Gi"))).new(t)
	rigWant(t, rigCommit(t, a, nodeClaim("n1", none, own), rigClaim("c1", 1, rigWithMemory("20Gi")), rigClaim("c2", 1, rigWithMemory("10Gi"))),
		"none {}: c1:r=p/s(20Gi) c2:r=p/s(10Gi)", "own {}: c1:r=t(20Gi) c2:r=p/s(10Gi)")
	rigWant(t, rigAsk(t, a, nodeClaim("n2", none), rigClaim("c3", 1, rigWithMemory("10Gi"))), "none {}: c3:r=p/s(10Gi)")
	rigWant(t, rigAsk(t, a, nodeClaim("n2", none), rigClaim("c3", 1, rigWithMemory("11Gi"))), "none - request r of claim c3...")
	a.Release("n1", "none")
	rigWant(t, rigAsk(t, a, nodeClaim("n2", none), rigClaim("c3", 1, rigWithMemory("30Gi"))), "none {}: c3:r=p/s(30Gi)")
}

func TestAdminAccessReservesNothing(t *testing.T) {
	one := rigType("one", nil, rigGPUs(1)...)
	a := newInputs().new(t)
	rigWant(t, rigCommit(t, a, nodeClaim("n", one), rigClaim("watch", 1, rigAdmin)), "one {}: watch:r=gpu-0(admin)")
	rigWant(t, rigCommit(t, a, nodeClaim("n", one), rigClaim("c", 1)), "one {}: c:r=gpu-0")
}

func TestClaimsPlacedInThisLoop(t *testing.T) {
	zones := []string{"a", "b"}
	t.Run("on the same target it keeps its devices", func(t *testing.T) {
		one := rigType("one", zones, rigGPUs(1)...)
		a := newInputs().new(t)
		rigCommit(t, a, nodeClaim("n", one), rigClaim("c", 1))
		rigWant(t, rigCommit(t, a, nodeClaim("n", one), rigClaim("c", 1)), "one {}:")
	})
	t.Run("with a template's device no other target will do", func(t *testing.T) {
		one := rigType("one", zones, rigGPUs(2)...)
		a := newInputs().new(t)
		rigCommit(t, a, nodeClaim("n", one), rigClaim("c", 1))
		rigWant(t, rigAsk(t, a, nodeClaim("m", one), rigClaim("c", 1), rigClaim("d", 1)),
			"one - claim default/c was placed on n, with devices that only that node reaches")
		rigWant(t, rigAsk(t, a, allocator.Target{ID: "m", Node: rigNode("m")}, rigClaim("c", 1)),
			" - claim default/c was placed on n, with devices that only that node reaches")
	})
	t.Run("with a device of a zone other targets have to be there", func(t *testing.T) {
		none := rigType("none", zones)
		a := newInputs().slices(rigSlice("p", rigInZones("b"), rigGPU("d"))).new(t)
		rigWant(t, rigCommit(t, a, nodeClaim("n", none), rigClaim("c", 1)), "none {zone In b}: c:r=p/d")
		rigWant(t, rigAsk(t, a, nodeClaim("m", none), rigClaim("c", 1)), "none {zone In b}:")
		rigWant(t, rigAsk(t, a, allocator.Target{ID: "x", Node: rigNode("x", rigZone, "b")}, rigClaim("c", 1)), " {}:")
		rigWant(t, rigAsk(t, a, allocator.Target{ID: "x", Node: rigNode("x", rigZone, "a")}, rigClaim("c", 1)),
			" - claim default/c, placed on n, can only be used on nodes with topology.kubernetes.io/zone in [b]")
	})
	t.Run("with devices of different zones none will do, until it is known which", func(t *testing.T) {
		a := newInputs().slices(rigSlice("p", rigInZones("a"), rigGPU("d")), rigSlice("q", rigInZones("b"), rigGPU("e"))).new(t)
		inA, inB := rigType("in-a", []string{"a"}), rigType("in-b", []string{"b"})
		rigWant(t, rigCommit(t, a, nodeClaim("n", inA, inB), rigClaim("c", 1)), "in-a {}: c:r=p/d", "in-b {}: c:r=q/e")
		rigWant(t, rigAsk(t, a, nodeClaim("m", inA, inB), rigClaim("c", 1)),
			"in-a - claim default/c, placed on n, cannot be used on nodes with label topology.kubernetes.io/zone: a",
			"in-b - claim default/c, placed on n, cannot be used on nodes with label topology.kubernetes.io/zone: b")
		a.Release("n", "in-a")
		rigWant(t, rigAsk(t, a, nodeClaim("m", inA, inB), rigClaim("c", 1)),
			"in-b {}:",
			"in-a - claim default/c, placed on n, cannot be used on nodes with label topology.kubernetes.io/zone: a")
	})
	t.Run("with a device of a node only this node", func(t *testing.T) {
		a := newInputs().slices(rigSlice("n1", rigOnNode("n1"), rigGPU("d"))).new(t)
		n1 := allocator.Target{ID: "n1", Node: rigNode("n1")}
		rigCommit(t, a, n1, rigClaim("c", 1))
		rigWant(t, rigAsk(t, a, n1, rigClaim("c", 1)), " {}:")
		rigWant(t, rigAsk(t, a, allocator.Target{ID: "n2", Node: rigNode("n2")}, rigClaim("c", 1)),
			" - claim default/c was placed on n1, with devices that only that node reaches")
	})
}

func TestForgottenTargetsForgetTheirClaims(t *testing.T) {
	one, two := rigType("one", nil, rigGPUs(2)...), rigType("two", nil, rigGPUs(2)...)
	for name, release := range map[string]func(*allocator.Allocator){
		"released": func(a *allocator.Allocator) { a.Release("n", "one", "two") },
		"one by one": func(a *allocator.Allocator) {
			a.Release("n", "two")
			a.Release("n", "one", "unknown")
		},
		"forgotten": func(a *allocator.Allocator) { a.Forget("n") },
	} {
		t.Run(name, func(t *testing.T) {
			a := newInputs().new(t)
			rigCommit(t, a, nodeClaim("n", one, two), rigClaim("c", 2))
			if on, ok := a.PlacedOn(types.NamespacedName{Namespace: "default", Name: "c"}); !ok || on != "n" {
				t.Errorf("placed on %q, %t", on, ok)
			}
			release(a)
			if on, ok := a.PlacedOn(types.NamespacedName{Namespace: "default", Name: "c"}); ok {
				t.Errorf("still placed on %q", on)
			}
			rigWant(t, rigCommit(t, a, nodeClaim("m", one), rigClaim("c", 2)), "one {}: c:r=gpu-0,r=gpu-1")
			rigWant(t, rigCommit(t, a, nodeClaim("n", one), rigClaim("d", 2)), "one {}: d:r=gpu-0,r=gpu-1")
		})
	}
}

func TestNarrow(t *testing.T) {
	zones := []string{"a", "b", "c"}
	r := newInputs().slices(rigSlice("p", rigInZones("a"), rigGPU("d")), rigSlice("q", rigInZones("b"), rigGPU("e")))
	one, none := rigType("one", zones, rigGPUs(1)...), rigType("none", zones)
	placed := func(t *testing.T) *allocator.Allocator {
		a := r.new(t)
		rigWant(t, rigCommit(t, a, nodeClaim("n", one, none), rigClaim("c", 1)),
			"one {zone In a}: c:r=p/d", "one {zone In b}: c:r=q/e", "one {zone In c}: c:r=gpu-0",
			"none {zone In a}: c:r=p/d", "none {zone In b}: c:r=q/e")
		rigWant(t, rigAsk(t, a, nodeClaim("m", none), rigClaim("x", 1)), "none - ...")
		return a
	}
	t.Run("placements elsewhere are released", func(t *testing.T) {
		a := placed(t)
		if err := a.Narrow("n", rigSelector(rigNotIn(rigZone, "a"))); err != nil {
			t.Fatal(err)
		}
		rigWant(t, rigAsk(t, a, nodeClaim("m", none), rigClaim("x", 1)), "none {zone In a}: x:r=p/d")
		rigWant(t, rigAsk(t, a, nodeClaim("n", one, none)), "one {zone In b}:", "one {zone In c}:", "none {zone In b}:")
	})
	t.Run("and instance types without placements", func(t *testing.T) {
		a := placed(t)
		if err := a.Narrow("n", rigSelector(rigIn(rigZone, "c"))); err != nil {
			t.Fatal(err)
		}
		rigWant(t, rigAsk(t, a, nodeClaim("n", one, none)), "one {}:", "none - claims that were placed there before cannot be met on it, or it was released")
	})
	t.Run("nothing is left", func(t *testing.T) {
		a := placed(t)
		if err := a.Narrow("n", rigSelector(rigIn(rigZone, "x"))); err != nil {
			t.Fatal(err)
		}
		rigWant(t, rigAsk(t, a, nodeClaim("n", one), rigClaim("c", 1)), "one {zone In a}: c:r=p/d", "one {zone In b}: c:r=q/e", "one {zone In c}: c:r=gpu-0")
	})
	t.Run("a target that is not known", func(t *testing.T) {
		if err := r.new(t).Narrow("x", rigSelector(rigIn(rigZone, "x"))); err != nil {
			t.Error(err)
		}
	})
	t.Run("a selector that cannot be parsed", func(t *testing.T) {
		if err := placed(t).Narrow("n", rigSelector(rigIn(rigZone))); err == nil || !strings.HasPrefix(err.Error(), "narrowing n: ") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a node that does not match", func(t *testing.T) {
		a := r.new(t)
		node := allocator.Target{ID: "x", Node: rigNode("x", rigZone, "a")}
		rigCommit(t, a, node, rigClaim("c", 1))
		if err := a.Narrow("x", rigSelector(rigIn(rigZone, "b"))); err != nil {
			t.Fatal(err)
		}
		rigWant(t, rigAsk(t, a, node, rigClaim("d", 1)), " {}: d:r=p/d")
	})
}

// What a pod asked of the labels of a node claim holds for those that come after it.
func TestSelectorsOfEarlierPodsStay(t *testing.T) {
	zones := []string{"a", "b"}
	none := rigType("none", zones)
	a := newInputs().slices(rigSlice("p", rigInZones("a"), rigGPU("d")), rigSlice("q", rigInZones("b"), rigGPU("e"), rigGPU("f"))).new(t)
	first := nodeClaim("n", none)
	first.Selectors = []*corev1.NodeSelector{rigSelector(rigIn(rigZone, "b"))}
	rigWant(t, rigCommit(t, a, first, rigClaim("c", 1)), "none {}: c:r=q/e")
	rigWant(t, rigCommit(t, a, nodeClaim("n", none), rigClaim("d", 1)), "none {}: d:r=q/f")
}

func TestPlacementsOfEarlierPodsStay(t *testing.T) {
	zones := []string{"a", "b", "c"}
	one := rigType("one", zones, rigGPUs(1)...)
	a := newInputs().slices(rigSlice("p", rigInZones("a"), rigGPU("d"), rigGPU("d2")), rigSlice("q", rigInZones("b"), rigGPU("e"))).new(t)
	rigWant(t, rigCommit(t, a, nodeClaim("n", one), rigClaim("c", 1)),
		"one {zone In a}: c:r=p/d", "one {zone In b}: c:r=q/e", "one {zone In c}: c:r=gpu-0")
	rigWant(t, rigCommit(t, a, nodeClaim("n", one), rigClaim("d", 1)),
		"one {zone In a}: d:r=p/d2", "one {zone In b}: d:r=gpu-0")
	rigWant(t, rigCommit(t, a, nodeClaim("n", one), rigClaim("e", 1)), "one {zone In a}: e:r=gpu-0")
}

func TestCommitRefuses(t *testing.T) {
	one := rigType("one", nil, rigGPUs(1)...)
	a, other := newInputs().new(t), newInputs().new(t)
	for want, result := range map[string]*allocator.Result{
		"committing: the result is not of this allocator":                       nil,
		"committing:  the result is not of this allocator":                      {},
		"committing:   the result is not of this allocator":                     rigAsk(t, other, nodeClaim("n", one), rigClaim("c", 1)),
		"committing to n: the claims can be met on none of its instance types":  rigAsk(t, a, nodeClaim("n", one), rigClaim("c", 2)),
		"committing to n:  the claims can be met on none of its instance types": rigAsk(t, a, allocator.Target{ID: "n", Node: rigNode("n")}, rigClaim("c", 2)),
	} {
		if err := a.Commit(result); err == nil || err.Error() != strings.Join(strings.Fields(want), " ") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	first, second := rigAsk(t, a, nodeClaim("n", one), rigClaim("c", 1)), rigAsk(t, a, nodeClaim("m", one), rigClaim("c", 1))
	if err := a.Commit(first); err != nil {
		t.Fatal(err)
	}
	if err := a.Commit(first); err == nil || err.Error() != "committing to n: the result was committed before" {
		t.Errorf("got %v", err)
	}
	if err := a.Commit(second); err == nil || err.Error() != "committing to m: something was committed or released since: allocate again" {
		t.Errorf("got %v", err)
	}
	third := rigAsk(t, a, nodeClaim("m", one), rigClaim("d", 1))
	a.Release("n", "unknown") // changes nothing
	a.Forget("unknown")
	if err := a.Commit(third); err != nil {
		t.Error(err)
	}
	fourth := rigAsk(t, a, nodeClaim("o", one), rigClaim("e", 1))
	a.Release("n", "one")
	if err := a.Commit(fourth); err == nil || err.Error() != "committing to o: something was committed or released since: allocate again" {
		t.Errorf("got %v", err)
	}
	_, err := a.Allocate(t.Context(), allocator.Target{ID: "m", Node: rigNode("m")}, nil)
	if want := "target m: claims were placed on it as a node claim or as a node: it cannot be both, use another ID"; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestAlternatives(t *testing.T) {
	one, two := rigType("one", []string{"a", "b"}, rigGPUs(2)...), rigType("two", []string{"a", "b"}, rigGPUs(2)...)
	a := newInputs().slices(rigSlice("p", rigInZones("a"), rigGPU("d"))).new(t)
	rigCommit(t, a, nodeClaim("n", one, two), rigClaim("c", 1))
	rigCommit(t, a, nodeClaim("n", one, two), rigClaim("d", 1))
	var got []string
	for _, alternative := range a.Alternatives("n") {
		got = append(got, fmt.Sprintf("%s {%s}:%s", alternative.InstanceType, rigRequirements(alternative.Requirements), rigClaims(alternative.Claims)))
	}
	want := []string{
		"one {zone In a}: c:r=p/d d:r=gpu-0", "one {zone In b}: c:r=gpu-0 d:r=gpu-1",
		"two {zone In a}: c:r=p/d d:r=gpu-0", "two {zone In b}: c:r=gpu-0 d:r=gpu-1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n\t%s", strings.Join(got, "\n\t"))
	}
	if got := a.Alternatives("m"); got != nil {
		t.Errorf("got %v", got)
	}
}
