package solver

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// mixed is a rig in which a search has to go back.
func mixed(t *testing.T) *rig {
	t.Helper()
	var pool []resourceapi.Device
	for i := range 8 {
		set := fmt.Sprintf("s%d", i)
		root := attribute("root", i/2)
		pool = append(pool,
			gpu("gpu-"+set, root, shared, capacityOf("memory", "40Gi", everything("40Gi", "1Gi")), consumes(set, "n=2")),
			device("part-a-"+set, attribute("type", "part"), root, consumes(set, "n=1")),
			device("part-b-"+set, attribute("type", "part"), root, consumes(set, "n=1")))
	}
	pool = append(pool, nic("n", attribute("root", 3)))
	sets := make([]resourceapi.CounterSet, 8)
	for i := range sets {
		sets[i] = counterSet(fmt.Sprintf("s%d", i), "n=2")
	}
	part := selecting(typeIs + `"part"`)
	return newRig(
		claimOf("parts", exactly("part", 3, part)),
		claimOf("pair", exactly("gpu", 2, selecting(isGPU)), exactly("nic", 1, selecting(isNIC)), matchAll("gpu.example.com/root")),
		claimOf("share", exactly("share", 1, selecting(isGPU), asking("memory=3Gi"))),
	).pool("p", pool, sets...).inUse("p/part-a-s0")
}

var mixedWant = [][]string{
	{"part=p/part-b-s0", "part=p/part-a-s1", "part=p/part-b-s1"},
	{"gpu=p/gpu-s6 memory=40Gi", "gpu=p/gpu-s7 memory=40Gi", "nic=p/n"},
	{"share=p/gpu-s2 memory=3Gi"},
}

func TestTheSameInputGivesTheSameAnswer(t *testing.T) {
	first := mixed(t).check(t, mixedWant...)
	p, err := mixed(t).problem()
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		again, err := Solve(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if again.Nodes != first.Nodes || !reflect.DeepEqual(describeChoices(again.Choices), mixedWant) {
			t.Fatalf("after %d nodes, not %d, %v", again.Nodes, first.Nodes, describeChoices(again.Choices))
		}
	}
}

func TestManyMaySolveAtOnce(t *testing.T) {
	r := mixed(t)
	p, err := r.problem()
	if err != nil {
		t.Fatal(err)
	}
	snapshot := NewSnapshot(r.cache, r.slices)
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			own := p
			own.BestFit = i%4 == 1
			if i%4 == 2 {
				var err error
				if own.Pools, err = snapshot.Pools(r.node()); err != nil {
					t.Error(err)
					return
				}
			}
			if i%4 == 3 {
				claims, err := Compile(r.cache, r.claims, r.classes)
				if err != nil {
					t.Error(err)
					return
				}
				own.Claims = claims
			}
			for range 10 {
				solution, err := Solve(context.Background(), own)
				if err != nil || !solution.Found {
					t.Errorf("found: %v, error %v", solution.Found, err)
				} else if got := describeChoices(solution.Choices); !own.BestFit && !reflect.DeepEqual(got, mixedWant) {
					t.Errorf("got %v", got)
				}
			}
		})
	}
	group.Wait()
}

func TestTheBudgetCountsNodes(t *testing.T) {
	r := mixed(t)
	nodes := r.check(t, mixedWant...).Nodes
	r.budget = nodes
	r.check(t, mixedWant...)
	r.budget = nodes - 1
	solution, err := r.solve()
	if err != nil || !solution.OutOfBudget || solution.Found || solution.Reason == "" {
		t.Errorf("%+v, error %v", solution, err)
	}
}

func TestAContextEndsTheSearch(t *testing.T) {
	p, err := mixed(t).problem()
	if err != nil {
		t.Fatal(err)
	}
	because := errors.New("no more time")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(because)
	if _, err := Solve(ctx, p); !errors.Is(err, because) {
		t.Errorf("error %v, want %v", err, because)
	}
}

func TestAFullCacheIsEmptied(t *testing.T) {
	c := NewCache()
	for i := range 3 * cachedExpressions {
		c.expression(fmt.Sprint(i))
	}
	if len(c.expressions) > cachedExpressions {
		t.Errorf("%d expressions", len(c.expressions))
	}
	c.results.Store(cachedResults)
	d := device("d")
	of := c.content(testDriver, &d)
	f := c.filter(nil, nil, nil, nil)
	before := f.judge(of)
	if again := f.judge(of); again != before {
		t.Error("a verdict is not remembered")
	}
	c.results.Store(cachedResults)
	c.filter(nil, []resourceapi.DeviceSelector{celSelector("true")}, nil, nil).judge(of)
	if again := f.judge(of); again == before {
		t.Error("a full cache remembers everything")
	}
}
