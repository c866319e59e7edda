package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"apportion.dev/apportion/bench/allocator/internal/measure"
)

func result(times ...time.Duration) measure.Result {
	return measure.Result{Median: measure.Median(times), Times: times}
}

func TestRowMissed(t *testing.T) {
	r := row{name: "r", under: 20, kubeScheduler: 1.2, karpenter: 50}
	cut := measure.Result{Over: true, Median: 5 * time.Second}
	for _, tc := range []struct {
		name                           string
		ours, kubeScheduler, karpenter measure.Result
		want                           []string
	}{
		{
			name: "all met, just",
			ours: result(12, 19, 19), kubeScheduler: result(10, 19, 19), karpenter: result(600, 950, 950),
		},
		{
			name: "peers cut",
			ours: result(19), kubeScheduler: cut, karpenter: cut,
		},
		{
			name: "all missed",
			ours: result(20), kubeScheduler: result(16), karpenter: result(980),
			want: []string{
				"r: 20 ns, and not under 20 ns",
				"r: 1.25 times as long as kube-scheduler, and not at most 1.2",
				"r: 49.0 times as fast as Karpenter, and not at least 50",
			},
		},
		{
			name: "ours cut",
			ours: cut, kubeScheduler: cut, karpenter: cut,
			want: []string{
				"r: not decided in 5 s",
				"r: 5 s, and not under 20 ns",
				"r: 1.0 times as fast as Karpenter, and not at least 50",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := r.missed([]measure.Result{tc.ours, tc.kubeScheduler, tc.karpenter})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := (row{name: "r"}).missed([]measure.Result{result(90), result(1), result(1)}); got != nil {
		t.Errorf("without targets: %v", got)
	}
}

func TestRowTarget(t *testing.T) {
	r := row{under: 20 * time.Microsecond, kubeScheduler: 1.2, karpenter: 50}
	if want, got := "< 20 us, <= 1.2 x kube-scheduler, 50 x faster than Karpenter", r.target(); got != want {
		t.Errorf("got %q", got)
	}
}

func TestShapesMissed(t *testing.T) {
	for _, tc := range []struct {
		one, all time.Duration
		missed   bool
	}{
		{0, 10, false},
		{5, 10, false},
		{6, 10, true},
	} {
		if got := shapesMissed(map[string]time.Duration{oneShape: tc.one, allShapes: tc.all}); len(got) > 0 != tc.missed {
			t.Errorf("%d and %d: %v", tc.one, tc.all, got)
		}
	}
}

func TestNodesMissed(t *testing.T) {
	for _, tc := range []struct {
		name string
		n    nodes
		want string
	}{
		{"good", nodes{pods: 9, bound: 2, predict: 3, best: 3}, ""},
		{"worse than predict", nodes{pods: 9, bound: 2, predict: 3, best: 4}, "trace 7: best fit takes 4 nodes, and not at most the 3 of predict"},
		{"a bound that is none", nodes{pods: 9, bound: 4, predict: 3, best: 3}, "trace 7: 3 nodes are less than the lower bound of 4"},
		{"pods left", nodes{pods: 9, bound: 2, predict: 3, best: 3, leftByPredict: 1}, "trace 7: predict leaves 1 pods and best fit 0, and not all have a place"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := strings.Join(tc.n.missed(7), "; "); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestTable(t *testing.T) {
	table := newTable("warm", "ours", "ratio")
	var out strings.Builder
	if err := table.write(&out, "Nothing."); err != nil || out.Len() > 0 {
		t.Errorf("without lines: %q, %v", out.String(), err)
	}
	table.add("a longer name", "1.5 us", "2x")
	table.add("b", "failed")
	if err := table.write(&out, "A sentence."); err != nil {
		t.Fatal(err)
	}
	want := `A sentence.

| warm          |   ours | ratio |
|---------------|-------:|------:|
| a longer name | 1.5 us |    2x |
| b             | failed |       |

`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnits(t *testing.T) {
	for got, want := range map[string]string{
		duration(999):                     "999 ns",
		duration(2320):                    "2.32 us",
		duration(48400):                   "48.4 us",
		duration(5 * time.Millisecond):    "5 ms",
		duration(1234 * time.Millisecond): "1.23 s",
		memory(900):                       "900 B",
		memory(1536):                      "1.50 KiB",
		memory(16 << 20):                  "16 MiB",
		memory(200 << 20):                 "200 MiB",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	over := measure.Result{Over: true, Median: 5 * time.Second}
	if got := ratioOf(over, result(2*time.Second)); got != ">2.50x" {
		t.Errorf("ratio: %s", got)
	}
	if got := cellsOf(over); !slices.Equal(got, []string{">5 s", "", ""}) {
		t.Errorf("cells: %q", got)
	}
}

// Rows are chosen and compared by their names.
func TestRowNames(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rows() {
		if seen[r.name] {
			t.Errorf("row %q is there twice", r.name)
		}
		seen[r.name] = true
	}
	if !seen[oneShape] || !seen[allShapes] {
		t.Error("the rows of shapes are missing")
	}
}
