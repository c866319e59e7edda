package truth

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"apportion.dev/apportion/e2e/promtest"
)

// second is a time of day of the tests, of which each has twenty seconds.
func second(n int) time.Time { return time.Date(2027, 3, 1, 12, 0, n, 0, time.UTC) }

func span(from, to int) Span { return Span{second(from), second(to)} }

// use is one of a GPU by a pod that was made at a second, seen running and deleted at
// others, and gone at the last.
func use(gpu, pod, container string, made, runs, deleted, gone int) Use {
	times := Times{Sure: []Span{span(runs, deleted)}, Possible: []Span{span(made, gone)}}
	return Use{
		Labels: map[string]string{"UUID": gpu, "namespace": "team", "pod": pod, "container": container, "claim": pod + "-claim"},
		Held:   times, Used: times, Bytes: 2 << 30,
	}
}

// series is one with a sample in each of the seconds.
func series(name string, labels map[string]string, value float64, seconds ...int) promtest.Series {
	s := promtest.Series{Labels: maps.Clone(labels)}
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	s.Labels["__name__"] = name
	for _, n := range seconds {
		s.Samples = append(s.Samples, promtest.Sample{Time: second(n), Value: value})
	}
	return s
}

func owned(name, gpu, pod, container string, seconds ...int) promtest.Series {
	labels := map[string]string{"UUID": gpu}
	if pod != "" {
		labels["namespace"], labels["pod"], labels["container"] = "team", pod, container
	}
	return series(name, labels, 7, seconds...)
}

// between are the seconds from one to another, with both.
func between(from, to int) []int {
	var seconds []int
	for n := from; n <= to; n++ {
		seconds = append(seconds, n)
	}
	return seconds
}

func target(uses ...Use) *Target {
	t := &Target{Lag: time.Second, Uses: uses}
	for _, n := range between(0, 19) {
		t.Scrapes = append(t.Scrapes, second(n))
	}
	return t
}

// check compares a result with texts of the problems wanted, each of which must be in
// one of those found, and all found ones must have one.
func check(t *testing.T, r Result, sure, flaps int, problems ...string) {
	t.Helper()
	if r.Sure != sure || r.Flaps != flaps {
		t.Errorf("%d samples were sure, and there were %d flaps; want %d and %d", r.Sure, r.Flaps, sure, flaps)
	}
	for _, want := range problems {
		if !slices.ContainsFunc(r.Problems, func(p string) bool { return strings.Contains(p, want) }) {
			t.Errorf("no problem %q among %q", want, r.Problems)
		}
	}
	for _, p := range r.Problems {
		if !slices.ContainsFunc(problems, func(want string) bool { return strings.Contains(p, want) }) {
			t.Errorf("found %q", p)
		}
	}
}

const fb = "DCGM_FI_DEV_FB_USED"

func TestDevices(t *testing.T) {
	// The pod is made at 2, seen running at 5, deleted at 10 and gone at 13. So it must
	// be seen from 6 to 10, and nobody until 1 and from 15 on.
	one := []Use{use("GPU-1", "a", "work", 2, 5, 10, 13)}
	// Another shares the GPU: it is surely shared from 8 to 10.
	two := append(slices.Clone(one), use("GPU-1", "b", "work", 5, 7, 11, 14))
	tests := map[string]struct {
		uses     []Use
		series   []promtest.Series
		sure     int
		flaps    int
		problems []string
	}{
		"right": {one, []promtest.Series{
			owned(fb, "GPU-1", "", "", slices.Concat(between(0, 3), between(13, 19))...),
			owned(fb, "GPU-1", "a", "work", between(4, 12)...),
		}, 2 + 5 + 5, 0, nil},
		"shown as late as it may be": {one, []promtest.Series{
			owned(fb, "GPU-1", "", "", slices.Concat(between(0, 5), between(15, 19))...),
			owned(fb, "GPU-1", "a", "work", between(6, 14)...),
		}, 12, 0, nil},
		"too late": {one, []promtest.Series{
			owned(fb, "GPU-1", "", "", slices.Concat(between(0, 6), between(16, 19))...),
			owned(fb, "GPU-1", "a", "work", between(7, 15)...),
		}, 12, 0, []string{
			"12:00:06.000: DCGM_FI_DEV_FB_USED of {GPU-1 } names nobody, want team/a/work",
			"12:00:15.000: DCGM_FI_DEV_FB_USED of {GPU-1 } names team/a/work, want nobody",
		}},
		"another pod": {one, []promtest.Series{
			owned(fb, "GPU-1", "", "", slices.Concat(between(0, 3), between(13, 19))...),
			owned(fb, "GPU-1", "b", "work", between(4, 12)...),
		}, 12, 1, []string{"names team/b/work, want team/a/work", "names team/b/work, which cannot be"}},
		"another container": {one, []promtest.Series{
			owned(fb, "GPU-1", "", "", slices.Concat(between(0, 5), between(13, 19))...),
			owned(fb, "GPU-1", "a", "helper", between(6, 10)...), owned(fb, "GPU-1", "", "", 11, 12),
		}, 12, 1, []string{"names team/a/helper, want team/a/work"}},
		"flaps while it comes": {one, []promtest.Series{
			owned(fb, "GPU-1", "", "", slices.Concat(between(0, 2), []int{4}, between(13, 19))...),
			owned(fb, "GPU-1", "a", "work", slices.Concat([]int{3}, between(5, 12))...),
		}, 12, 1, nil},
		"twice": {one, []promtest.Series{
			owned(fb, "GPU-1", "", "", between(0, 19)...),
			owned(fb, "GPU-1", "a", "work", between(6, 10)...),
		}, 12, 0, []string{"is there twice, of nobody and of team/a/work"}},
		"missing": {one, []promtest.Series{
			owned(fb, "GPU-1", "a", "work", between(6, 9)...),
		}, 4, 0, []string{"12:00:10.000: DCGM_FI_DEV_FB_USED of {GPU-1 } is missing, which team/a/work uses"}},
		"another metric may be missing, and is looked at": {one, []promtest.Series{
			owned(fb, "GPU-1", "a", "work", between(6, 10)...), owned("other", "GPU-1", "b", "work", 7),
		}, 6, 1, []string{"other of {GPU-1 } names team/b/work, want team/a/work"}},
		"shared": {two, []promtest.Series{
			owned(fb, "GPU-1", "", "", slices.Concat(between(0, 3), between(7, 10), between(15, 19))...),
			owned(fb, "GPU-1", "a", "work", between(4, 6)...), owned(fb, "GPU-1", "b", "work", between(11, 14)...),
		}, 2 + 3 + 4, 0, nil},
		"a shared one names one": {two, []promtest.Series{
			owned(fb, "GPU-1", "a", "work", between(4, 11)...),
		}, 3, 0, []string{"names team/a/work, want nobody"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			check(t, target(test.uses...).Devices(test.series, fb), test.sure, test.flaps, test.problems...)
		})
	}
}

func TestInfos(t *testing.T) {
	one := use("GPU-1", "a", "work", 2, 5, 10, 13)
	claimOnly := map[string]string{"UUID": "GPU-1", "namespace": "team", "claim": "a-claim"}
	other := maps.Clone(one.Labels)
	other["claim"] = "other"
	info := func(labels map[string]string, value float64, seconds ...int) promtest.Series {
		return series("apportion_device_owner_info", labels, value, seconds...)
	}
	tests := map[string]struct {
		series   []promtest.Series
		flaps    int
		problems []string
	}{
		"right":          {[]promtest.Series{info(one.Labels, 1, between(4, 12)...)}, 0, nil},
		"without a pod":  {[]promtest.Series{info(claimOnly, 1, 3, 4, 11, 12), info(one.Labels, 1, between(5, 10)...)}, 0, nil},
		"lacks the pod":  {[]promtest.Series{info(claimOnly, 1, 7), info(one.Labels, 1, between(6, 10)...)}, 0, []string{"12:00:07.000: owner info of {UUID=\"GPU-1\" claim=\"a-claim\" namespace=\"team\"} lacks the pod"}},
		"a gap":          {[]promtest.Series{info(one.Labels, 1, 4, 5, 6, 7, 9, 10)}, 1, []string{"12:00:08.000: no owner info of"}},
		"too long":       {[]promtest.Series{info(one.Labels, 1, between(4, 15)...)}, 0, []string{"12:00:15.000: there is owner info of"}},
		"another claim":  {[]promtest.Series{info(one.Labels, 1, between(4, 12)...), info(other, 1, 8)}, 0, []string{`claim="other"`}},
		"another number": {[]promtest.Series{info(one.Labels, 2, between(6, 10)...)}, 0, []string{"is 2"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			check(t, target(one).Infos(test.series), 5, test.flaps, test.problems...)
		})
	}
}

func TestMemory(t *testing.T) {
	a, b := use("GPU-1", "a", "work", 2, 5, 10, 13), use("GPU-1", "b", "work", 2, 5, 10, 13)
	b.Bytes = 1 << 30
	used := func(u Use, value float64, seconds ...int) promtest.Series {
		return series("apportion_share_memory_used_bytes", u.Labels, value, seconds...)
	}
	device := owned(fb, "GPU-1", "", "", between(0, 19)...)
	for i := range device.Samples {
		device.Samples[i].Value = 3072
	}
	tests := map[string]struct {
		used     []promtest.Series
		problems []string
	}{
		"right":       {[]promtest.Series{used(a, 2<<30, between(4, 12)...), used(b, 1<<30, between(4, 12)...)}, nil},
		"swapped":     {[]promtest.Series{used(a, 1<<30, between(6, 10)...), used(b, 2<<30, between(6, 10)...)}, []string{`pod="a" container="work"} is 1073741824 bytes, want 2147483648`, `pod="b" container="work"} is 2147483648 bytes, want 1073741824`}},
		"one missing": {[]promtest.Series{used(a, 2<<30, between(6, 10)...)}, []string{`pod="b" container="work"} is 0 bytes, want 1073741824`, "the users of {GPU-1 } have 2147483648 bytes of memory, the device 3221225472"}},
		"of nobody":   {[]promtest.Series{used(a, 2<<30, between(6, 15)...), used(b, 1<<30, between(6, 10)...)}, []string{"12:00:15.000: there is memory of"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			check(t, target(a, b).Memory(test.used, []promtest.Series{device}), 5+5+5, 0, test.problems...)
		})
	}
}

func TestGrowth(t *testing.T) {
	counter := func(gpu, claim string, first int, values ...float64) promtest.Series {
		s := series("seconds", map[string]string{"UUID": gpu, "claim": claim}, 0)
		for i, v := range values {
			s.Samples = append(s.Samples, promtest.Sample{Time: second(first + i), Value: v})
		}
		return s
	}
	times := &Target{Scrapes: []time.Time{second(0), second(1), second(2), second(3)}}
	grew, r := times.Growth([]promtest.Series{
		counter("GPU-1", "", 0, 100, 101, 101, 101), counter("GPU-1", "a", 2, 0.5, 1.5), counter("GPU-1", "b", 0, 1, 2),
		counter("GPU-2", "", 0, 10, 11, 12, 13),
	})
	check(t, r, 0, 0)
	if want := map[string]float64{"GPU-1": 3.5, "GPU-2": 3}; !maps.Equal(grew, want) {
		t.Errorf("the counters grew by %v, want %v", grew, want)
	}
	_, r = times.Growth([]promtest.Series{counter("GPU-1", "", 0, 100, 101, 100, 102)})
	check(t, r, 0, 0, `12:00:02.000: seconds of {UUID="GPU-1"} went down`)
}
