package main

import (
	"context"
	"fmt"
	"io"

	"apportion.dev/apportion/bench/allocator/internal/contender"
	"apportion.dev/apportion/bench/allocator/internal/measure"
)

// cold measures the start of a loop with empty caches and its first call.
func cold(ctx context.Context, o options, out, progress io.Writer) ([]string, error) {
	t := newTable("cold", "Apportion", "allocs", "memory", "kube-scheduler", "allocs", "memory", "ratio", "Karpenter", "allocs", "memory", "ratio")
	plan := o.plan()
	plan.Rounds = (plan.Rounds + 1) / 2
	for _, r := range rows() {
		if !r.cold || !o.run.MatchString(r.name) {
			continue
		}
		if _, err := fmt.Fprintln(progress, "cold: "+r.name); err != nil {
			return nil, err
		}
		results, err := r.measureCold(ctx, plan)
		if err != nil {
			return nil, fmt.Errorf("cold: %s: %w", r.name, err)
		}
		t.add(rowOf(r.name, results)...)
	}
	return nil, t.write(out, "The first call of a loop with empty caches: making the allocator, compiling CEL, one pod. There is no target.")
}

func (r row) measureCold(ctx context.Context, plan measure.Plan) ([]measure.Result, error) {
	s := r.setting()
	var funcs []measure.Func
	for _, c := range contender.All() {
		start, err := c.Prepare(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		funcs = append(funcs, func(ctx context.Context) error {
			call, err := start(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
			return checked(c.Name, call, s.Fit)(ctx)
		})
	}
	return measure.Compare(ctx, plan, funcs...)
}
