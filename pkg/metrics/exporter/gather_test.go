package exporter

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"apportion.dev/apportion/pkg/ownership"
)

func TestScrapesAreTextOrOpenMetricsAndCompressed(t *testing.T) {
	e, _ := fullNode(2)
	handler := handlerOf(t, e)
	for _, test := range []struct{ accept, encoding, contentType string }{
		{"", "", "text/plain"},
		{accepts["prometheus-3"], "", "application/openmetrics-text"},
		{accepts["prometheus-2"], "gzip", "application/openmetrics-text"},
		{"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", "", "application/vnd.google.protobuf"},
	} {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, scrape(test.accept, test.encoding))
		if got := recorder.Header().Get("Content-Type"); recorder.Code != http.StatusOK || !strings.HasPrefix(got, test.contentType) {
			t.Errorf("%q: status %d, %s", test.accept, recorder.Code, got)
		}
		if got := recorder.Header().Get("Content-Encoding"); got != test.encoding {
			t.Errorf("%q: encoding %q", test.accept, got)
		}
		var body io.Reader = recorder.Body
		if test.encoding == "gzip" {
			unpacked, err := gzip.NewReader(body)
			if err != nil {
				t.Fatal(err)
			}
			body = unpacked
		}
		content, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(content, []byte("apportion_device_owner_info")) {
			t.Errorf("%q: no owners in\n%s", test.accept, content)
		}
		if strings.Contains(test.contentType, "openmetrics") && !bytes.HasSuffix(content, []byte("# EOF\n")) {
			t.Errorf("%q: OpenMetrics without an end", test.accept)
		}
	}
}

// All series of a scrape are well-formed, and none is there twice.
func TestAScrapeCanBeParsed(t *testing.T) {
	r := newRig(t)
	r.owners(0, since(0, whole(0, "a", "a"), share(1, "b", 0.5, "b"), share(1, "c", 0.5, "c"), partition(2, 1, "p", "d", 0.125, "d"))...)
	for i := range 2 {
		parent := drawn(2, float64(i))
		r.Update(sample(float64(i), drawn(0, float64(i)), drawn(1, float64(i)), parent, instance(parent, 1, "p")))
	}
	recorder := httptest.NewRecorder()
	handlerOf(t, r.Exporter).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(recorder.Body)
	if err != nil {
		t.Fatal(err)
	}
	for name, family := range families {
		seen := map[string]bool{}
		for _, m := range family.Metric {
			labels := fmt.Sprint(m.Label)
			if seen[labels] {
				t.Errorf("%s has two series %s", name, labels)
			}
			seen[labels] = true
		}
	}
	if got := families["apportion_energy_joules_total"]; got.GetType() != dto.MetricType_COUNTER || len(got.Metric) != 7 {
		t.Errorf("energy: %v", got)
	}
}

// A scraper that reads slowly holds nobody up, and what it reads does not change.
func TestASlowScraperSeesOneMoment(t *testing.T) {
	r := newRig(t)
	r.owners(0, whole(0, "a", "a"))
	r.Update(sample(1, gpu(0, values(40, 0)...)))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	show := func() string {
		i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == temperature })
		return fmt.Sprint(families[i].Metric)
	}
	before := show()
	for i := range 5 {
		r.Update(sample(2+float64(i), gpu(0, values(50+float64(i), 0)...)))
	}
	r.owners(8)
	r.Update(sample(9, gpu(0, values(60, 0)...)))
	if got := show(); got != before || !strings.Contains(got, "value:40") {
		t.Errorf("%s, was %s", got, before)
	}
	r.expect([]string{temperature}, temp("60", ""))
}

func TestScrapesSamplesAndOwnersAtOnce(t *testing.T) {
	r := newRig(t)
	handler := handlerOf(t, r.Exporter)
	pods := []string{"a", "b"}
	r.owners(0, whole(0, "c0", "a"))
	r.Update(sample(0, gpu(0, values(0, 0)...)))
	var wg sync.WaitGroup
	defer wg.Wait()
	for range 3 {
		wg.Go(func() {
			for range 100 {
				// The value of a pod is even or odd, as its number is.
				for _, line := range linesOf(t, handler, temperature) {
					_, value, _ := strings.Cut(line, "} ")
					odd := strings.ContainsAny(value[len(value)-1:], "13579")
					if odd != strings.Contains(line, `pod="b"`) {
						t.Errorf("a value of another pod: %s", line)
						return
					}
				}
			}
		})
	}
	for i := range 200 {
		seconds := float64(i + 1)
		r.owners(seconds, whole(0, fmt.Sprintf("c%d", i), pods[i%2]))
		r.Update(sample(seconds-0.5, gpu(0, values(1000, 0)...)))
		r.Update(sample(seconds, gpu(0, values(float64(i), 0)...)))
	}
}

func TestAttributionThatIsStaleIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Options{Fields: testFields, Hostname: "node-a"})
		own := []string{"apportion_ownership_age_seconds", "apportion_ownership_errors_total", "apportion_ownership_generation", "apportion_exporter_sample_age_seconds"}
		show := func(want ...string) {
			t.Helper()
			recorder := httptest.NewRecorder()
			handlerOf(t, e).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			var got []string
			for line := range strings.Lines(recorder.Body.String()) {
				if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && slices.Contains(own, name) {
					got = append(got, value)
				}
			}
			// By name: sample age, ownership age, errors, generation.
			if !slices.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		}
		begin := time.Now()
		time.Sleep(3 * time.Second)
		show("3", "3", "0", "0")
		e.SetOwners(ownership.Snapshot{Instance: "i", Generation: 7, Time: begin, Verified: time.Now().Add(-time.Second), Owners: []ownership.Owner{whole(0, "a", "a")}}, time.Now())
		e.Update(sampleAt(time.Now(), gpu(0, values(40, 0)...)))
		show("0", "1", "0", "7")
		// The driver is away; samples go on, with the last owners.
		for range 20 {
			time.Sleep(time.Second)
			e.SetOwnership(time.Time{}, 4)
			e.Update(sampleAt(time.Now(), gpu(0, values(40, 0)...)))
		}
		time.Sleep(time.Second / 2)
		show("0.5", "21.5", "4", "7")
		if got := linesOf(t, handlerOf(t, e), temperature); len(got) != 1 || !strings.Contains(got[0], `pod="a"`) {
			t.Errorf("%v", got)
		}
	})
}

// NVML may hang for as long as a GPU is being reset, or for good.
func TestValuesThatAreNotReadAnewAreNotShownForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Options{Fields: testFields, Hostname: "node-a"})
		e.SetOwners(ownership.Snapshot{Instance: "i", Generation: 1, Time: time.Now(), Owners: []ownership.Owner{whole(0, "a", "a")}}, time.Now())
		e.Update(sampleAt(time.Now(), gpu(0, values(40, 0)...)))
		time.Sleep(10 * time.Second)
		if got := linesOf(t, handlerOf(t, e), temperature, ownerInfo.name); len(got) != 2 {
			t.Errorf("after 10 s: %v", got)
		}
		time.Sleep(time.Second)
		if got := linesOf(t, handlerOf(t, e), temperature, ownerInfo.name); len(got) != 0 {
			t.Errorf("after 11 s: %v", got)
		}
		if err := e.Healthy(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if err := e.Healthy(); err == nil || !strings.Contains(err.Error(), "1m11s") {
			t.Errorf("after 71 s: %v", err)
		}
	})
}
