package solver_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"apportion.dev/apportion/pkg/plan/allocator/internal/solver"
)

var (
	differentialCases = flag.Int("cases", defaultCases, "how many cases TestAgainstKubeScheduler compares")
	differentialFirst = flag.Uint64("seed", 0, "the first seed of TestAgainstKubeScheduler")
)

// budget is more than any generated case needs.
const budget = 1_000_000

// comparer compares the solver with kube-scheduler's allocator. It may be used by many
// goroutines.
type comparer struct {
	scheduler *Scheduler
	checker   *Checker
	cache     *solver.Cache
}

func newComparer() comparer {
	return comparer{newScheduler(), newChecker(), solver.NewCache()}
}

// solve asks the solver, without or with best fit.
func solve(cache *solver.Cache, c Case, node *corev1.Node, bestFit ...bool) []Answer {
	problem := solver.Problem{Node: node, Usage: solver.NewUsage(c.Allocated()), Budget: budget}
	var err error
	problem.Pools, err = solver.NewSnapshot(cache, c.Slices).Pools(node)
	if err == nil {
		problem.Claims, err = solver.Compile(cache, c.Claims, c.ClassMap())
	}
	answers := make([]Answer, len(bestFit))
	for i := range bestFit {
		if err != nil {
			answers[i] = answerOf(solver.Solution{}, err)
			continue
		}
		problem.BestFit = bestFit[i]
		answers[i] = answerOf(solver.Solve(context.Background(), problem))
	}
	return answers
}

func answerOf(solution solver.Solution, err error) Answer {
	answer := Answer{Steps: int64(solution.Nodes)}
	switch {
	case err != nil:
		answer.Verdict, answer.Err = Errors, err
	case solution.OutOfBudget:
		answer.Verdict = Cut
	case !solution.Found:
		answer.Verdict = Cannot
	default:
		answer.Verdict, answer.Claims = Allocates, pickedOf(solution.Choices)
	}
	return answer
}

func pickedOf(choices [][]solver.Choice) [][]Picked {
	claims := make([][]Picked, len(choices))
	for i := range choices {
		for _, choice := range choices[i] {
			claims[i] = append(claims[i], Picked{
				Request: choice.RequestName, Device: choice.Device.ID, Admin: choice.AdminAccess, Consumed: choice.Consumed,
			})
		}
	}
	return claims
}

// difference says in words what the solver does otherwise than it should on a node,
// empty if nothing. The verdict is kube-scheduler's.
func (p comparer) difference(c Case, node *corev1.Node) (string, Verdict) {
	want := p.scheduler.Allocate(c, node)
	if want.Verdict == Cut {
		return "", want.Verdict
	}
	answers := solve(p.cache, c, node, false, true)
	got, best := answers[0], answers[1]
	if text := Difference(want, got); text != "" {
		return fmt.Sprintf("%s\nkube-scheduler: %s\nsolver: %s", text, want, got), want.Verdict
	}
	if best.Verdict != want.Verdict {
		return fmt.Sprintf("best fit: verdict %q, want %q\nkube-scheduler: %s\nsolver: %s", best.Verdict, want.Verdict, want, best), want.Verdict
	}
	if best.Verdict == Allocates {
		if broken := p.checker.Check(c, node, best); len(broken) > 0 {
			return fmt.Sprintf("best fit breaks rules: %s\nkube-scheduler: %s\nsolver: %s", strings.Join(broken, "; "), want, best), want.Verdict
		}
	}
	return "", want.Verdict
}

// nodes are the nodes of a case.
func nodes(c Case) []*corev1.Node {
	return append([]*corev1.Node{c.Node}, c.OtherNodes...)
}

// describe makes a difference as small as it gets and prints it.
func (p comparer) describe(c Case, node *corev1.Node) string {
	name := node.Name
	find := func(c Case) string {
		for _, node := range nodes(c) {
			if node.Name == name {
				text, _ := p.difference(c, node)
				return text
			}
		}
		return ""
	}
	c = Shrink(c, func(c Case) bool { return find(c) != "" })
	return fmt.Sprintf("node %s: %s\n%s", name, find(c), c.YAML())
}

// tally is what a run of many cases found.
type tally struct {
	verdicts    map[Verdict]int
	differences map[uint64]string
}

// TestAgainstKubeScheduler compares many generated cases: the verdicts are the same, and
// without best fit the devices, requests and amounts, too.
func TestAgainstKubeScheduler(t *testing.T) {
	const mostDifferences = 5
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // nearly all that it takes is short-lived
	var next atomic.Uint64
	next.Store(*differentialFirst)
	end := *differentialFirst + uint64(*differentialCases)
	var found atomic.Int32
	tallies := make([]tally, runtime.GOMAXPROCS(0))
	var workers sync.WaitGroup
	for i := range tallies {
		workers.Go(func() {
			tallies[i] = tally{map[Verdict]int{}, map[uint64]string{}}
			p := newComparer()
			for seed := next.Add(1) - 1; seed < end && found.Load() < mostDifferences; seed = next.Add(1) - 1 {
				if seed%2000 == 0 {
					p.cache = solver.NewCache()
				}
				c := Generate(Seeded(seed))
				for _, node := range nodes(c) {
					text, verdict := p.difference(c, node)
					if node == c.Node {
						tallies[i].verdicts[verdict]++
					}
					if text != "" {
						found.Add(1)
						tallies[i].differences[seed] = p.describe(c, node)
						break
					}
				}
			}
		})
	}
	workers.Wait()
	report(t, tallies)
}

func report(t *testing.T, tallies []tally) {
	t.Helper()
	total := tally{map[Verdict]int{}, map[uint64]string{}}
	cases := 0
	for _, one := range tallies {
		for verdict, n := range one.verdicts {
			total.verdicts[verdict] += n
			cases += n
		}
		for seed, text := range one.differences {
			total.differences[seed] = text
		}
	}
	seeds := make([]uint64, 0, len(total.differences))
	for seed := range total.differences {
		seeds = append(seeds, seed)
	}
	slices.Sort(seeds)
	for _, seed := range seeds {
		t.Errorf("seed %d: %s", seed, total.differences[seed])
	}
	t.Logf("%d cases, kube-scheduler's verdicts: %v", cases, total.verdicts)
	if cut := total.verdicts[Cut]; cut > 10 {
		t.Errorf("%d cases were too large for kube-scheduler's allocator", cut)
	}
	if t.Failed() || cases < 1000 {
		return
	}
	for _, verdict := range []Verdict{Allocates, Cannot, Errors} {
		if total.verdicts[verdict] < cases/10 {
			t.Errorf("only %d of %d cases have the verdict %q", total.verdicts[verdict], cases, verdict)
		}
	}
}

// TestInputIsOnlyRead solves generated cases twice, from slices in two orders, and looks
// whether anything of the input changed.
func TestInputIsOnlyRead(t *testing.T) {
	cache := solver.NewCache()
	for seed := range uint64(defaultCases / 50) {
		c := Generate(Seeded(seed))
		before := c.DeepCopy()
		first := solve(cache, c, c.Node, seed%2 == 0)[0]
		if !equality.Semantic.DeepEqual(before, c) {
			t.Fatalf("seed %d: the input changed from\n%s\nto\n%s", seed, before.YAML(), c.YAML())
		}
		if disagree(c.Slices) {
			continue // then the order of the list decides which one is believed
		}
		slices.SortFunc(c.Slices, func(a, b *resourceapi.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
		second := solve(solver.NewCache(), c, c.Node, seed%2 == 0)[0]
		if text := Difference(first, second); text != "" {
			t.Fatalf("seed %d: another order of slices gives %s\n%s", seed, text, c.YAML())
		}
	}
}

// disagree says whether slices of one pool and generation give different numbers of
// slices.
func disagree(all []*resourceapi.ResourceSlice) bool {
	type key struct {
		driver, pool string
		generation   int64
	}
	counts := map[key]int64{}
	for _, slice := range all {
		id := key{slice.Spec.Driver, slice.Spec.Pool.Name, slice.Spec.Pool.Generation}
		if count, found := counts[id]; found && count != slice.Spec.Pool.ResourceSliceCount {
			return true
		}
		counts[id] = slice.Spec.Pool.ResourceSliceCount
	}
	return false
}
