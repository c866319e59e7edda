package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"

	"apportion.dev/apportion/bench/allocator/internal/measure"
)

// table is printed as Markdown, in columns for the eye.
type table struct{ lines [][]string }

func newTable(header ...string) *table { return &table{lines: [][]string{header}} }

// add adds a line, the last cells of which may be missing.
func (t *table) add(cells ...string) {
	t.lines = append(t.lines, append(cells, make([]string, len(t.lines[0])-len(cells))...))
}

// write prints the table under a sentence. Without lines it prints nothing.
func (t *table) write(out io.Writer, sentence string) error {
	if len(t.lines) == 1 {
		return nil
	}
	widths := make([]int, len(t.lines[0]))
	for _, line := range t.lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	b.WriteString(sentence + "\n\n")
	for n, line := range t.lines {
		for i, cell := range line {
			if i == 0 {
				fmt.Fprintf(&b, "| %-*s |", widths[i], cell)
			} else {
				fmt.Fprintf(&b, " %*s |", widths[i], cell)
			}
		}
		b.WriteString("\n")
		if n == 0 {
			b.WriteString("|" + strings.Repeat("-", widths[0]+2) + "|")
			for _, w := range widths[1:] {
				b.WriteString(strings.Repeat("-", w+1) + ":|")
			}
			b.WriteString("\n")
		}
	}
	b.WriteString("\n")
	_, err := io.WriteString(out, b.String())
	return err
}

func cellsOf(r measure.Result) []string {
	if r.Over {
		return []string{">" + duration(r.Median), "", ""}
	}
	return []string{duration(r.Median), fmt.Sprint(r.Allocs), memory(r.Bytes)}
}

// rowOf starts a row: its name, what ours takes, and of each peer what it takes and the
// ratio to ours.
func rowOf(name string, results []measure.Result) []string {
	cells := append([]string{name}, cellsOf(results[0])...)
	for _, peer := range results[1:] {
		cells = append(cells, cellsOf(peer)...)
		cells = append(cells, ratioOf(peer, results[0]))
	}
	return cells
}

func ratioOf(peer, ours measure.Result) string {
	mark := ""
	if peer.Over {
		mark = ">"
	}
	return mark + digits(measure.Ratio(peer, ours)) + "x"
}

// duration prints three digits and a unit.
func duration(d time.Duration) string {
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "us"}} {
		if d >= unit.size {
			return digits(float64(d)/float64(unit.size)) + " " + unit.name
		}
	}
	return fmt.Sprintf("%d ns", d)
}

// memory prints bytes in a unit that suits them.
func memory(bytes uint64) string {
	switch {
	case bytes >= 1<<20:
		return digits(float64(bytes)/(1<<20)) + " MiB"
	case bytes >= 1<<10:
		return digits(float64(bytes)/(1<<10)) + " KiB"
	}
	return fmt.Sprintf("%d B", bytes)
}

// digits prints a number with three digits, or more if they stand before the point.
func digits(f float64) string {
	switch {
	case f < 10:
		return strings.TrimSuffix(fmt.Sprintf("%.2f", f), ".00")
	case f < 100:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0")
	}
	return fmt.Sprintf("%.0f", f)
}

// machine describes what this runs on.
func machine() string {
	return fmt.Sprintf("Machine: %s, %d cores, %s/%s, %s", cpuModel(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// cpuModel is what Linux calls the processor.
func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}
