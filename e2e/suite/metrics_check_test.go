package suite

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"apportion.dev/apportion/e2e/promtest"
	"apportion.dev/apportion/e2e/promtest/truth"
)

// target is what is known of a node, with all scrapes of its exporter since the start.
// Those that failed are counted, and those of an exporter that has just started and
// does not say that it knows who holds what.
func (m *measured) target(nodeName string, until time.Time) (target *truth.Target, failed int) {
	m.t.Helper()
	target = &truth.Target{Lag: scrapeLag}
	knows := map[time.Time]bool{}
	for _, generation := range m.scraped(nodeName, "apportion_ownership_generation", until) {
		for _, sample := range generation.Samples {
			knows[sample.Time] = sample.Value > 0
		}
	}
	for _, up := range m.scraped(nodeName, "up", until) {
		for _, sample := range up.Samples {
			if sample.Value == 1 && knows[sample.Time] {
				target.Scrapes = append(target.Scrapes, sample.Time)
			} else {
				failed++
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.lives)) {
		for _, life := range m.lives[name] {
			for _, use := range life.uses {
				if use.Labels["Hostname"] == nodeName {
					target.Uses = append(target.Uses, *use)
				}
			}
		}
	}
	return target, failed
}

// scraped are the samples of metrics (a name, or a regular expression of names) of a
// node since the start.
func (m *measured) scraped(nodeName, metric string, until time.Time) []promtest.Series {
	m.t.Helper()
	selector := fmt.Sprintf("{__name__=~%q,instance=%q}", metric, m.addresses[nodeName])
	series, err := m.prometheus.Scraped(m.t.Context(), selector, m.from, until)
	if err != nil {
		m.t.Fatal(err)
	}
	return series
}

// check compares all that was scraped with what is known.
func (m *measured) check() {
	m.t.Helper()
	until := time.Now()
	for _, nodeName := range slices.Sorted(maps.Keys(m.addresses)) {
		target, failed := m.target(nodeName, until)
		m.t.Logf("%s: %d scrapes, and %d failed", nodeName, len(target.Scrapes), failed)
		const fbUsed, memoryUsed = "DCGM_FI_DEV_FB_USED", "apportion_share_memory_used_bytes"
		m.report(nodeName+", devices", target.Devices(m.scraped(nodeName, "DCGM_.*", until), fbUsed))
		m.report(nodeName+", owner info", target.Infos(m.scraped(nodeName, "apportion_device_owner_info", until)))
		m.report(nodeName+", memory", target.Memory(m.scraped(nodeName, memoryUsed, until), m.scraped(nodeName, fbUsed, until)))
	}
}

// report fails the test if something is wrong, or nothing was to be looked at.
func (m *measured) report(what string, r truth.Result) {
	m.t.Helper()
	m.t.Logf("%s: %d samples were sure, %d flaps", what, r.Sure, r.Flaps)
	const most = 10
	if n := len(r.Problems); n > 0 {
		m.t.Errorf("%s: %d samples are wrong, the first:\n%s", what, n, strings.Join(r.Problems[:min(n, most)], "\n"))
	}
	if r.Flaps > 0 {
		m.t.Errorf("%s: owners flapped %d times", what, r.Flaps)
	}
	if r.Sure == 0 {
		m.t.Errorf("%s: nothing was sure", what)
	}
}

// wantEveryScrape fails the test unless scrapes succeeded, and there were as many as the
// time since the start has room for, both nearly: a machine that is at its limits lets a
// scrape of one second fail now and then.
func (m *measured) wantEveryScrape() {
	m.t.Helper()
	until := time.Now()
	possible := int(until.Sub(m.from) / scrapeInterval)
	for nodeName := range m.addresses {
		if target, failed := m.target(nodeName, until); failed > possible/50 || len(target.Scrapes) < possible*8/10 {
			m.t.Errorf("%s: %d scrapes of at most %d, and %d failed", nodeName, len(target.Scrapes), possible, failed)
		}
	}
}

// checkCharges checks that time and energy add up to those of the GPUs.
func (m *measured) checkCharges() {
	m.t.Helper()
	until := time.Now()
	for nodeName := range m.addresses {
		target, _ := m.target(nodeName, until)
		length := target.Scrapes[len(target.Scrapes)-1].Sub(target.Scrapes[0]).Seconds()
		seconds, r := target.Growth(m.scraped(nodeName, "apportion_(un)?allocated_gpu_seconds_total", until))
		for _, p := range r.Problems {
			m.t.Error(p)
		}
		joules, r := target.Growth(m.scraped(nodeName, "apportion_energy_joules_total", until))
		for _, p := range r.Problems {
			m.t.Error(p)
		}
		drawn := drawnBy(m.scraped(nodeName, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", until))
		_, machine := node(m.t, nodeName)
		for _, g := range summary(m.t, machine).GPUs {
			// The first and the last sample were taken up to a scrape before.
			if got := seconds[g.UUID]; math.Abs(got-length) > 1.5*scrapeInterval.Seconds() {
				m.t.Errorf("%s: %.1f s of GPU %s were charged, want %.1f", nodeName, got, g.UUID, length)
			}
			if got, want := joules[g.UUID], drawn[g.UUID]; want == 0 || math.Abs(got-want) > 1 {
				m.t.Errorf("%s: %.1f J of GPU %s were charged, it has drawn %.1f", nodeName, got, g.UUID, want)
			}
		}
	}
}

// drawnBy is the energy in joules that GPUs have drawn, by UUID. DCGM counts it in
// millijoules, and in a new series whenever the owner changes.
func drawnBy(series []promtest.Series) map[string]float64 {
	least, most, drawn := map[string]float64{}, map[string]float64{}, map[string]float64{}
	for _, s := range series {
		uuid := s.Labels["UUID"]
		for _, sample := range s.Samples {
			if _, known := most[uuid]; !known {
				least[uuid] = sample.Value
			}
			least[uuid], most[uuid] = min(least[uuid], sample.Value), max(most[uuid], sample.Value)
			drawn[uuid] = (most[uuid] - least[uuid]) / 1000
		}
	}
	return drawn
}
