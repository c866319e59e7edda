package promtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"apportion.dev/apportion/e2e/cluster"
)

// binary builds Prometheus, which takes minutes the first time.
func binary(t *testing.T) string {
	t.Helper()
	path, err := cluster.BuildPrometheus(t.Context(), cluster.Options{Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// target serves the number of the scrape, under another pod from the third one on.
func target(t *testing.T) (address string) {
	t.Helper()
	var scrapes atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		n, pod := scrapes.Add(1), "first"
		if n > 2 {
			pod = "second"
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = fmt.Fprintf(w, "scrape{pod=%q,job=\"kept\"} %d\n", pod, n)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func start(t *testing.T, o Options) *Server {
	t.Helper()
	o.Binary, o.Dir, o.Interval = binary(t), t.TempDir(), 100*time.Millisecond
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestEverySampleIsFoundAsItWasScraped(t *testing.T) {
	from := time.Now()
	address := target(t)
	s := start(t, Options{Targets: []Target{{Job: "test", Address: address}}})
	if err := s.WaitScrapes(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	series, err := s.Scraped(t.Context(), "scrape", from, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	values := map[string][]float64{}
	for _, one := range series {
		for i, sample := range one.Samples {
			if sample.Time.Before(from.Truncate(time.Millisecond)) || i > 0 && !sample.Time.After(one.Samples[i-1].Time) {
				t.Errorf("samples have the times %v", one.Samples)
			}
			values[one.Labels["pod"]] = append(values[one.Labels["pod"]], sample.Value)
		}
		if one.Labels["__name__"] != "scrape" || one.Labels["job"] != "kept" || one.Labels["instance"] != address {
			t.Errorf("labels are %v", one.Labels)
		}
	}
	first, second := values["first"], values["second"]
	if len(series) != 2 || len(first) != 2 || first[0] != 1 || first[1] != 2 || len(second) < 3 || second[0] != 3 {
		t.Errorf("scraped was %v, want 1 and 2 of the first pod, and 3 and more of the second", values)
	}
}

func TestQueries(t *testing.T) {
	s := start(t, Options{Targets: []Target{{Job: "test", Address: target(t)}}})
	if err := s.WaitScrapes(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	for expression, want := range map[string]struct {
		series int
		value  float64
	}{
		"sum(up)":                {1, 1},
		"scalar(sum(up)) + 1":    {1, 2},
		"count(scrape) > 1":      {0, 0},
		`scrape{pod="second"}>0`: {1, -1},
	} {
		series, err := s.Query(t.Context(), expression, time.Now())
		if err != nil {
			t.Error(err)
			continue
		}
		if len(series) != want.series {
			t.Errorf("%s gives %v, want %d series", expression, series, want.series)
			continue
		}
		if want.series == 1 && want.value >= 0 && series[0].Samples[0].Value != want.value {
			t.Errorf("%s gives %v, want %v", expression, series, want.value)
		}
	}
	if _, err := s.Query(t.Context(), "sum(", time.Now()); err == nil || !strings.Contains(err.Error(), "unclosed left parenthesis") {
		t.Errorf("a wrong expression gives %v", err)
	}
}

func TestStopEndsItAndKeepsItsFiles(t *testing.T) {
	s := start(t, Options{})
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Query(t.Context(), "1", time.Now()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("it still answers: %v", err)
	}
	for _, name := range []string{"data/wal", "prometheus.log"} {
		if _, err := os.Stat(filepath.Join(s.options.Dir, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestWhatKeepsItFromStartingIsSaid(t *testing.T) {
	program := binary(t)
	tests := map[string]struct {
		options Options
		want    string
	}{
		"no program":   {Options{Binary: filepath.Join(t.TempDir(), "none"), Interval: time.Second}, "no such file"},
		"wrong config": {Options{Binary: program, Interval: time.Second, Targets: []Target{{Job: "", Address: "a:1"}}}, "job_name is empty"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.options.Dir = t.TempDir()
			if _, err := Start(t.Context(), test.options); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("it says %v, want %q", err, test.want)
			}
		})
	}
}

func TestATargetThatIsAwayIsNamed(t *testing.T) {
	s := start(t, Options{Targets: []Target{{Job: "test", Address: "127.0.0.1:1"}}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := s.WaitScrapes(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting says %v", err)
	}
}
