// Command bench measures how long the driver takes to prepare and unprepare
// claims for whole GPUs and for MIG partitions: the real plugin, a process of its own,
// called over its socket as the kubelet does, on a fake machine of 8 GPUs. The API
// server is a small one in this process, so that the figures are the driver's.
//
//	go run ./cmd/bench --plugin ../bin/apportion-kubelet-plugin
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"apportion.dev/apportion/e2e/standalone"
)

func main() {
	plugin := flag.String("plugin", "", "the apportion-kubelet-plugin program to measure")
	rounds := flag.Int("rounds", 200, "how many claims of each kind are prepared one at a time, and how many times all at once")
	atOnce := flag.Int("at-once", 8, "how many claims are prepared at the same time, and how many GPUs there are for them, 1 to 16")
	dir := flag.String("dir", os.TempDir(), "where the plugin's folders are made; its disk is part of what is measured")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *plugin, *dir, *rounds, *atOnce)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, program, dir string, rounds, atOnce int) (err error) {
	if program == "" {
		return fmt.Errorf("--plugin is missing: build one with \"make build\" and give its path")
	}
	if rounds < 1 {
		return fmt.Errorf("--rounds is %d: at least one is needed to measure anything", rounds)
	}
	p, err := standalone.Start(ctx, standalone.Options{Program: program, Parent: dir, GPUs: fmt.Sprintf("h100-sxm5-80gb:%d", atOnce)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()

	fmt.Printf("apportion-kubelet-plugin, %d rounds, %s/%s, %d CPUs, %s; records in %s, CDI specs in memory as on a node\n\n",
		rounds, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), cpuModel(), dir)
	b := &bench{Plugin: p}
	var rows []row
	var ratios, bounds []string
	for _, kind := range []struct {
		name, many string
		devices    []resourceapi.Device
	}{
		{"GPU", fmt.Sprintf("%d GPUs", atOnce), b.wholeGPUs()},
		{"partition", fmt.Sprintf("%d partitions on as many GPUs", atOnce), b.partitions()},
	} {
		if len(kind.devices) != atOnce {
			return fmt.Errorf("the plugin published a %s for %d GPUs, want it for %d", kind.name, len(kind.devices), atOnce)
		}
		alone, err := b.measure(ctx, rounds, kind.devices[:1])
		if err != nil {
			return fmt.Errorf("one %s at a time: %w", kind.name, err)
		}
		together, err := b.measure(ctx, rounds, kind.devices)
		if err != nil {
			return fmt.Errorf("%s at once: %w", kind.many, err)
		}
		rows = append(rows,
			row{"prepare, one " + kind.name + " at a time", alone.prepare},
			row{"unprepare, one " + kind.name + " at a time", alone.unprepare},
			row{"prepare, " + kind.many + " at once", together.prepare},
			row{"unprepare, " + kind.many + " at once", together.unprepare})
		ratios = append(ratios, fmt.Sprintf("%ss: prepare %.2f, unprepare %.2f", kind.name, ratio(together.prepare, alone.prepare), ratio(together.unprepare, alone.unprepare)))
		bounds = append(bounds, bound(kind.many, atOnce, together))
	}
	if err := show(rows); err != nil {
		return err
	}
	fmt.Printf("\n%d at once / one alone, at p50: %s\n", atOnce, strings.Join(ratios, "; "))
	fmt.Println(strings.Join(bounds, "\n"))
	if err := publishing(ctx, program, dir); err != nil {
		return err
	}
	return memory(ctx, filepath.Dir(program), dir)
}

// bound says how long the processors of this machine take for claims at once at least,
// whatever waits for what.
func bound(what string, atOnce int, t timings) string {
	plugin, caller := t.busy(t.plugin), t.busy(t.caller)
	cpus := min(runtime.NumCPU(), atOnce)
	return fmt.Sprintf("%s: each claim prepared takes %s of a processor, and %s for the caller and the API server; %d of them take %d CPUs %s",
		what, plugin, caller, atOnce, cpus, (plugin+caller)*time.Duration(atOnce)/time.Duration(cpus))
}

// row is a line of the table of results.
type row struct {
	name string
	took []time.Duration
}

func show(rows []row) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tp50\tp90\tp99\tmax\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t\n", r.name, percentile(r.took, 50), percentile(r.took, 90), percentile(r.took, 99), percentile(r.took, 100))
	}
	return w.Flush()
}

// publishing restarts a plugin with 16 GPUs and counts what it writes.
func publishing(ctx context.Context, program, dir string) (err error) {
	p, err := standalone.Start(ctx, standalone.Options{Program: program, Parent: dir, GPUs: "h100-sxm5-80gb:16"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	first := p.Writes()
	if err := p.Restart(ctx); err != nil {
		return err
	}
	fmt.Printf("publishing 16 GPUs: %d API writes at first, %d after a restart with nothing changed\n", first, p.Writes()-first)
	return nil
}

func percentile(took []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	i := (len(sorted)*p + 99) / 100
	return sorted[max(i, 1)-1].Round(10 * time.Microsecond)
}

func ratio(a, b []time.Duration) float64 {
	return float64(percentile(a, 50)) / float64(percentile(b, 50))
}

func cpuModel() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown CPU"
	}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown CPU"
}
