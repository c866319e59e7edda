// Command allocator measures Apportion's allocator beside kube-scheduler's and
// Karpenter's, all in one run and in turns, so that a loud neighbour on the machine
// disturbs all alike. It prints what a call takes with ratios, what the first call of a
// loop takes, and how many nodes a plan needs with each policy. It exits with 1 if a
// target is missed, and names it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"apportion.dev/apportion/bench/allocator/internal/contender"
	"apportion.dev/apportion/bench/allocator/internal/measure"
)

// options are the flags, and what follows from them.
type options struct {
	short bool
	run   *regexp.Regexp
}

func (o options) plan() measure.Plan {
	if o.short {
		return measure.Plan{Rounds: 5, Batch: 2 * time.Millisecond, Deadline: time.Second, Slow: 100 * time.Millisecond}
	}
	return measure.Plan{Rounds: 31, Batch: 10 * time.Millisecond, Deadline: 5 * time.Second, Slow: 300 * time.Millisecond}
}

func (o options) traces() int {
	if o.short {
		return 3
	}
	return 20
}

func main() {
	// Karpenter logs by way of controller-runtime, which complains if nobody says where.
	ctrllog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "bench-allocator: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("allocator", flag.ContinueOnError)
	short := flags.Bool("short", false, "measure in seconds what otherwise takes minutes, less exactly: peers are cut after 1 s, and there are 3 traces")
	only := flags.String("run", "", "measure only rows whose name matches this regular expression")
	if err := flags.Parse(args); err != nil {
		return err
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	o := options{short: *short, run: pattern}
	if _, err := fmt.Fprintf(out, "%s\nCommand: %s\n\n", machine(), strings.TrimSpace("cd bench/allocator && go run . "+strings.Join(args, " "))); err != nil {
		return err
	}
	var missed []string
	for _, part := range []func(context.Context, options, io.Writer, io.Writer) ([]string, error){warm, cold, bestFit} {
		m, err := part(ctx, o, out, progress)
		if err != nil {
			return fmt.Errorf("measuring: %w", err)
		}
		missed = append(missed, m...)
	}
	if len(missed) > 0 {
		return fmt.Errorf("%d targets missed:\n  %s", len(missed), strings.Join(missed, "\n  "))
	}
	_, err = fmt.Fprintln(out, "All targets are met.")
	return err
}

// warm measures calls of a loop that has seen the like before.
func warm(ctx context.Context, o options, out, progress io.Writer) ([]string, error) {
	t := newTable("warm", "Apportion", "allocs", "memory", "kube-scheduler", "allocs", "memory", "ratio", "Karpenter", "allocs", "memory", "ratio", "target")
	var missed []string
	took := make(map[string]time.Duration)
	for _, r := range rows() {
		if !o.run.MatchString(r.name) {
			continue
		}
		if _, err := fmt.Fprintln(progress, r.name); err != nil {
			return nil, err
		}
		results, err := r.measure(ctx, o.plan())
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			t.add(r.name, "failed")
			missed = append(missed, fmt.Sprintf("%s: %v", r.name, err))
			continue
		}
		took[r.name] = results[0].Median
		missed = append(missed, r.missed(results)...)
		t.add(append(rowOf(r.name, results), r.target())...)
	}
	missed = append(missed, shapesMissed(took)...)
	return missed, t.write(out, "One call for one pod, median of batches; ratio: how many times ours the peer takes.")
}

// measure gives the result of each contender, ours first.
func (r row) measure(ctx context.Context, plan measure.Plan) ([]measure.Result, error) {
	s := r.setting()
	var funcs []measure.Func
	for _, c := range contender.All() {
		start, err := c.Prepare(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		call, err := start(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		funcs = append(funcs, checked(c.Name, call, s.Fit))
	}
	// Ours keeps more from the first call on, so that may take longer than the deadline. The
	// table of cold calls has it.
	if err := funcs[0](ctx); err != nil {
		return nil, err
	}
	return measure.Compare(ctx, plan, funcs...)
}

// checked complains about a wrong answer: who errs needs no time.
func checked(name string, call contender.Call, want int) measure.Func {
	return func(ctx context.Context) error {
		fit, err := call(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if fit != want {
			return fmt.Errorf("%s: claims can be met on %d, and not on %d", name, want, fit)
		}
		return nil
	}
}
