package measure

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		values []time.Duration
		want   time.Duration
	}{
		{nil, 0},
		{[]time.Duration{7}, 7},
		{[]time.Duration{9, 1, 5}, 5},
		{[]time.Duration{9, 1, 5, 3}, 4},
	} {
		if got := Median(tc.values); got != tc.want {
			t.Errorf("median of %v: %d, want %d", tc.values, got, tc.want)
		}
	}
}

func TestRatio(t *testing.T) {
	ours := Result{Median: 2, Times: []time.Duration{1, 2, 10}}
	for _, tc := range []struct {
		name string
		peer Result
		want float64
	}{
		// In each round twice as slow, and once five times.
		{"paired", Result{Median: 5, Times: []time.Duration{2, 10, 20}}, 2},
		{"measured once", Result{Median: 8, Times: []time.Duration{8}}, 4},
		{"cut", Result{Over: true, Median: 100}, 50},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Ratio(tc.peer, ours); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// takes is a function that takes so long, or until it is stopped.
func takes(d time.Duration, calls *int) Func {
	return func(ctx context.Context) error {
		*calls++
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestCompare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := Plan{Rounds: 3, Batch: 10 * time.Millisecond, Deadline: time.Minute, Slow: time.Second}
		var fast, slow, over int
		results, err := Compare(t.Context(), plan, takes(2*time.Millisecond, &fast), takes(2*time.Second, &slow), takes(time.Hour, &over))
		if err != nil {
			t.Fatal(err)
		}
		// Two calls to warm up, five to see how many make a batch, and three batches of five.
		if got := results[0]; got.Median != 2*time.Millisecond || len(got.Times) != 3 || fast != 22 {
			t.Errorf("fast: %+v after %d calls", got, fast)
		}
		if got := results[1]; got.Median != 2*time.Second || got.Over || slow != 2 {
			t.Errorf("slow: %+v after %d calls", got, slow)
		}
		if got := results[2]; got.Median != time.Minute || !got.Over || over != 1 {
			t.Errorf("cut: %+v after %d calls", got, over)
		}
	})
}

func TestCompareStops(t *testing.T) {
	plan := Plan{Rounds: 1, Batch: 1, Deadline: time.Minute, Slow: time.Second}
	broken := errors.New("broken")
	if _, err := Compare(t.Context(), plan, func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var calls int
	if _, err := Compare(ctx, plan, takes(time.Hour, &calls)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
