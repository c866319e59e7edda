// Command bench measures how long the driver takes to prepare and unprepare
// claims: the real plugin, a process of its own, called over its socket as the
// kubelet does, on a fake machine of 8 GPUs. The API server is a small one in this
// process, so that the figures are the driver's.
//
//	go run ./cmd/bench --plugin ../bin/apportion-kubelet-plugin
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	plugin := flag.String("plugin", "", "the apportion-kubelet-plugin program to measure")
	rounds := flag.Int("rounds", 200, "how many claims are prepared one at a time, and how many times 8 at once")
	dir := flag.String("dir", os.TempDir(), "where the plugin's folders are made; its disk is part of what is measured")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *plugin, *dir, *rounds)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, program, dir string, rounds int) (err error) {
	if program == "" {
		return fmt.Errorf("--plugin is missing: build one with \"make build\" and give its path")
	}
	p, err := startPlugin(ctx, program, dir, 8)
	if err != nil {
		return err
	}
	defer func() { err = join(err, p.stop()) }()

	fmt.Printf("apportion-kubelet-plugin, %d rounds, %s/%s, %d CPUs, %s; records in %s, CDI specs in memory as on a node\n\n",
		rounds, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), cpuModel(), dir)
	alone, err := p.measure(ctx, rounds, 1)
	if err != nil {
		return err
	}
	together, err := p.measure(ctx, rounds, 8)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tp50\tp90\tp99\tmax\t")
	for _, row := range []struct {
		name string
		took []time.Duration
	}{
		{"prepare, one at a time", alone.prepare}, {"unprepare, one at a time", alone.unprepare},
		{"prepare, 8 claims on 8 GPUs at once", together.prepare}, {"unprepare, 8 at once", together.unprepare},
	} {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t\n", row.name, percentile(row.took, 50), percentile(row.took, 90), percentile(row.took, 99), percentile(row.took, 100))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Printf("\n8 at once / one alone, at p50: prepare %.2f, unprepare %.2f\n", ratio(together.prepare, alone.prepare), ratio(together.unprepare, alone.unprepare))
	return publishing(ctx, program, dir)
}

// publishing restarts a plugin with 16 GPUs and counts what it writes.
func publishing(ctx context.Context, program, dir string) (err error) {
	p, err := startPlugin(ctx, program, dir, 16)
	if err != nil {
		return err
	}
	defer func() { err = join(err, p.stop()) }()
	first := p.api.writes()
	if err := p.restart(ctx); err != nil {
		return err
	}
	fmt.Printf("publishing 16 GPUs: %d API writes at first, %d after a restart with nothing changed\n", first, p.api.writes()-first)
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
