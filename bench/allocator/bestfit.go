package main

import (
	"context"
	"fmt"
	"io"

	"apportion.dev/apportion/bench/allocator/internal/trace"
	"apportion.dev/apportion/pkg/plan/allocator"
	"apportion.dev/apportion/pkg/plan/simulate"
)

// bestFit plans for traces of pods with both policies.
func bestFit(ctx context.Context, o options, out, progress io.Writer) ([]string, error) {
	const name = "best fit"
	if !o.run.MatchString(name) {
		return nil, nil
	}
	t := newTable("trace", "pods", "lower bound", "predict", "best fit", "predict / bound", "best fit / bound")
	var missed []string
	var bound, predict, best int
	for seed := range uint64(o.traces()) {
		if _, err := fmt.Fprintf(progress, "%s: trace %d\n", name, seed); err != nil {
			return nil, err
		}
		n, err := nodesFor(ctx, seed)
		if err != nil {
			return nil, fmt.Errorf("%s: trace %d: %w", name, seed, err)
		}
		missed = append(missed, n.missed(seed)...)
		t.add(fmt.Sprint(seed), fmt.Sprint(n.pods), fmt.Sprint(n.bound), fmt.Sprint(n.predict), fmt.Sprint(n.best), over(n.predict, n.bound), over(n.best, n.bound))
		bound, predict, best = bound+n.bound, predict+n.predict, best+n.best
	}
	t.add("all", "", fmt.Sprint(bound), fmt.Sprint(predict), fmt.Sprint(best), over(predict, bound), over(best, bound))
	return missed, t.write(out, "Nodes of 8 H100 for pods with whole GPUs, partitions and shares; target: best fit never takes more than predict.")
}

// nodes is how many a trace needs.
type nodes struct{ pods, bound, predict, best, leftByPredict, leftByBest int }

func nodesFor(ctx context.Context, seed uint64) (nodes, error) {
	in, err := trace.New(seed)
	if err != nil {
		return nodes{}, err
	}
	predict, err := simulate.Make(ctx, in, simulate.Options{Policy: allocator.Predict})
	if err != nil {
		return nodes{}, fmt.Errorf("policy predict: %w", err)
	}
	best, err := simulate.Make(ctx, in, simulate.Options{Policy: allocator.BestFit})
	if err != nil {
		return nodes{}, fmt.Errorf("policy best-fit: %w", err)
	}
	return nodes{
		pods: len(in.Pods), bound: best.LowerBound.Nodes,
		predict: predict.Totals.NodeClaims, best: best.Totals.NodeClaims,
		leftByPredict: predict.Totals.NotPlaced, leftByBest: best.Totals.NotPlaced,
	}, nil
}

func (n nodes) missed(seed uint64) []string {
	var missed []string
	complain := func(format string, args ...any) {
		missed = append(missed, fmt.Sprintf("trace %d: ", seed)+fmt.Sprintf(format, args...))
	}
	if n.leftByPredict > 0 || n.leftByBest > 0 {
		complain("predict leaves %d pods and best fit %d, and not all have a place", n.leftByPredict, n.leftByBest)
	}
	if n.best > n.predict {
		complain("best fit takes %d nodes, and not at most the %d of predict", n.best, n.predict)
	}
	if n.bound < 1 || n.bound > n.best {
		complain("%d nodes are less than the lower bound of %d", n.best, n.bound)
	}
	return missed
}

func over(n, bound int) string {
	if bound == 0 {
		return ""
	}
	return digits(float64(n) / float64(bound))
}
