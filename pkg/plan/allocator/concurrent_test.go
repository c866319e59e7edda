package allocator_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"apportion.dev/apportion/pkg/plan/allocator"
)

// busyRig has devices of zones, of nodes and for all, and instance types of all kinds.
func busyRig() (*inputs, []*allocator.InstanceType) {
	r := newInputs().slices(
		rigSlice("everywhere", rigEverywhere, rigModel("d0", "x"), rigModel("d1", "y")),
		rigSlice("in-a", rigInZones("a"), rigModel("a0", "x"), rigShared("a1", "40Gi")),
		rigSlice("in-b", rigInZones("b", "c"), rigModel("b0", "y")),
		rigSlice("n1", rigOnNode("n1"), rigGPUs(4)...),
	)
	var types []*allocator.InstanceType
	for i := range 12 {
		devices := rigGPUs(i % 5)
		for j := range devices {
			devices[j].Name = fmt.Sprintf("%c%d", 'a'+rune(i%3), j)
		}
		types = append(types, rigType(fmt.Sprintf("type-%02d", i), [][]string{{"a", "b"}, {"b", "c"}, nil}[i%3], devices...))
	}
	return r, types
}

func busyTargets(types []*allocator.InstanceType) []allocator.Target {
	var targets []allocator.Target
	for i := range 8 {
		target := allocator.Target{ID: fmt.Sprintf("nc%d", i), InstanceTypes: types}
		if i%2 == 0 {
			target.Selectors = []*corev1.NodeSelector{rigSelector(rigNotIn(rigZone, string(rune('a'+i/2))))}
		}
		targets = append(targets, target)
	}
	four := slices.IndexFunc(types, func(t *allocator.InstanceType) bool { return t.Name == "type-04" })
	return append(targets,
		allocator.Target{ID: "n1", Node: rigNode("n1", rigZone, "a")},
		allocator.Target{ID: "n2", Node: rigNode("n2", rigZone, "b"), InstanceTypes: types[four : four+1]})
}

// round asks all targets for a pod at the same time, commits the first that will do,
// and returns all answers.
func round(t *testing.T, a *allocator.Allocator, targets []allocator.Target, claims ...*resourceapi.ResourceClaim) []*allocator.Result {
	t.Helper()
	results := make([]*allocator.Result, len(targets))
	errs := make([]error, len(targets))
	var group sync.WaitGroup
	for i := range targets {
		group.Go(func() { results[i], errs[i] = a.Allocate(t.Context(), targets[i], claims) })
	}
	group.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("%s: %v", targets[i].ID, err)
		}
	}
	if i := slices.IndexFunc(results, func(r *allocator.Result) bool { return len(r.Survivors) > 0 }); i >= 0 {
		if err := a.Commit(results[i]); err != nil {
			t.Fatal(err)
		}
	}
	return results
}

func loop(t *testing.T, cache *allocator.Cache, policy allocator.Policy, order []int) []string {
	t.Helper()
	r, types := busyRig()
	r.Cache, r.Policy = cache, policy
	ordered := make([]*allocator.InstanceType, len(types))
	for i, j := range order {
		ordered[i] = types[j]
	}
	a := r.new(t)
	var lines []string
	for pod := range 6 {
		claims := []*resourceapi.ResourceClaim{rigClaim(fmt.Sprintf("c%d", pod), int64(1+pod%3))}
		if pod%4 == 3 {
			claims = append(claims, rigClaim(fmt.Sprintf("c%d", pod-2), int64(1+(pod-2)%3)))
		}
		for _, result := range round(t, a, busyTargets(ordered), claims...) {
			lines = append(lines, fmt.Sprintf("pod %d", pod))
			lines = append(lines, rigLines(result)...)
		}
	}
	return lines
}

func TestTheSameInputGivesTheSameOutput(t *testing.T) {
	for _, policy := range []allocator.Policy{allocator.Predict, allocator.BestFit} {
		t.Run(string(policy), func(t *testing.T) {
			cache := allocator.NewCache()
			order := make([]int, 12)
			for i := range order {
				order[i] = i
			}
			first := loop(t, cache, policy, order)
			for i := range 100 {
				if i%3 == 0 {
					cache = allocator.NewCache()
				}
				if again := loop(t, cache, policy, order); !reflect.DeepEqual(first, again) {
					t.Fatalf("run %d:\n\t%s\nfirst:\n\t%s", i, strings.Join(again, "\n\t"), strings.Join(first, "\n\t"))
				}
			}
		})
	}
}

func TestTheOrderOfInstanceTypesDoesNotMatter(t *testing.T) {
	forward, backward := make([]int, 12), make([]int, 12)
	for i := range forward {
		forward[i], backward[i] = i, 11-i
	}
	first, second := loop(t, nil, allocator.Predict, forward), loop(t, nil, allocator.Predict, backward)
	slices.Sort(first)
	slices.Sort(second)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("forward and backward:\n%s", diff)
	}
}

// Loops may share a cache at the same time.
func TestLoopsWithOneCache(t *testing.T) {
	cache := allocator.NewCache()
	order := make([]int, 12)
	for i := range order {
		order[i] = i
	}
	want := loop(t, nil, allocator.Predict, order)
	got := make([][]string, 4)
	var group sync.WaitGroup
	for i := range got {
		group.Go(func() { got[i] = loop(t, cache, allocator.Predict, order) })
	}
	group.Wait()
	for i := range got {
		if !slices.Equal(got[i], want) {
			t.Errorf("loop %d differs", i)
		}
	}
}
