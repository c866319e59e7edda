// Package measure times functions against each other on a machine that does not keep
// still.
//
// Contenders take turns, a batch of calls each, for many rounds. What is compared is
// what they took in the same round, and the median of that over the rounds. The package
// must not know what is measured.
package measure

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"time"
)

// Func is called many times. Its error stops the measurement, unless it is that of the
// context.
type Func func(ctx context.Context) error

// Plan says how long to measure.
type Plan struct {
	// Rounds is how often each takes its turn.
	Rounds int
	// Batch is how long a turn shall take at least.
	Batch time.Duration
	// Deadline cuts calls short. Who needs longer is not measured further.
	Deadline time.Duration
	// Slow is the time of a call from which one is enough.
	Slow time.Duration
}

// Result is what one call took.
type Result struct {
	// Over says that a call was cut by the deadline; then Median is the deadline, and the
	// rest is 0.
	Over bool
	// Median is that over the rounds, Times are those of the rounds.
	Median time.Duration
	Times  []time.Duration
	// Allocs and Bytes are how many objects of how much memory were allocated.
	Allocs, Bytes uint64
}

// Compare measures all functions.
func Compare(ctx context.Context, plan Plan, funcs ...Func) ([]Result, error) {
	results := make([]Result, len(funcs))
	batches := make([]int, len(funcs))
	for i, f := range funcs {
		var err error
		if results[i], batches[i], err = first(ctx, plan, f); err != nil {
			return nil, err
		}
	}
	for range plan.Rounds {
		for i, f := range funcs {
			if batches[i] == 0 {
				continue
			}
			took, err := batch(ctx, plan, f, batches[i])
			switch {
			case err == nil:
				results[i].add(took)
			case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
				// It was fast enough before: somebody else had the machine.
				results[i].Times = append(results[i].Times, plan.Deadline)
			default:
				return nil, err
			}
		}
	}
	for i := range results {
		if !results[i].Over {
			results[i].Median = Median(results[i].Times)
		}
	}
	return results, nil
}

// cost is what one call took, the mean of a batch.
type cost struct {
	time          time.Duration
	allocs, bytes uint64
}

func (r *Result) add(c cost) {
	r.Times = append(r.Times, c.time)
	r.Allocs, r.Bytes = c.allocs, c.bytes
}

// first calls once to fill caches, once to see whether a call is slow, and if not a few
// times to find out how many make a batch. The batch is 0 if nothing is left to measure.
func first(ctx context.Context, plan Plan, f Func) (Result, int, error) {
	var took cost
	for i, calls := range []int{1, 1, warmup} {
		var err error
		took, err = batch(ctx, plan, f, calls)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil || err == nil && took.time >= plan.Deadline {
			return Result{Over: true, Median: plan.Deadline}, 0, nil
		}
		if err != nil {
			return Result{}, 0, err
		}
		if i > 0 && took.time >= plan.Slow {
			var result Result
			result.add(took)
			return result, 0, nil
		}
	}
	return Result{}, max(1, int(math.Ceil(float64(plan.Batch)/float64(max(took.time, 1))))), nil
}

// warmup is how many calls find out how many are needed.
const warmup = 5

// batch gives what each of the calls took. It starts without the garbage of others; what
// the calls themselves leave behind is collected at their cost.
func batch(ctx context.Context, plan Plan, f Func, calls int) (cost, error) {
	ctx, cancel := context.WithTimeout(ctx, plan.Deadline*time.Duration(calls))
	defer cancel()
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	for range calls {
		if err := f(ctx); err != nil {
			return cost{}, err
		}
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	return cost{
		time:   took / time.Duration(calls),
		allocs: (after.Mallocs - before.Mallocs) / uint64(calls),
		bytes:  (after.TotalAlloc - before.TotalAlloc) / uint64(calls),
	}, nil
}

// Ratio is the median of how many times longer a took than b in the same round. If one
// was measured once, it is that of the medians.
func Ratio(a, b Result) float64 {
	if a.Over || b.Over || len(a.Times) != len(b.Times) {
		return float64(a.Median) / float64(b.Median)
	}
	ratios := make([]float64, len(a.Times))
	for i := range ratios {
		ratios[i] = float64(a.Times[i]) / float64(b.Times[i])
	}
	return Median(ratios)
}

// Median is the middle of some values, the mean of both middle ones if their number is
// even, and 0 of none.
func Median[T ~int64 | ~float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
