// Package truth compares what was scraped of GPUs with what a test knows about who
// used them.
//
// A test knows some things for sure, such as that a pod that it saw running and has
// not deleted uses its GPU, and of others only that they are possible: a pod that was
// just made may have its GPU already. What was scraped must show all that is sure, and
// nothing that is not possible.
//
// The package is pure. It knows the labels of the series, and nothing of how they come
// about.
package truth

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"apportion.dev/apportion/e2e/promtest"
)

// Span is a time from From to To, with both; a zero To has not come yet.
type Span struct{ From, To time.Time }

// covers says whether all from one time to another lies in the span, meets whether
// anything does.
func (s Span) covers(from, to time.Time) bool {
	return !from.Before(s.From) && (s.To.IsZero() || !to.After(s.To))
}

func (s Span) meets(from, to time.Time) bool {
	return !to.Before(s.From) && (s.To.IsZero() || !from.After(s.To))
}

// overlaps says whether two spans have a time in common, or are as near as lag.
func (s Span) overlaps(o Span, lag time.Duration) bool {
	before := func(a, b Span) bool { return !a.To.IsZero() && a.To.Add(lag).Before(b.From) }
	return !before(s, o) && !before(o, s)
}

// Times are when something was so for sure, and when it can have been so.
type Times struct{ Sure, Possible []Span }

func (t Times) surely(from, to time.Time) bool {
	return slices.ContainsFunc(t.Sure, func(s Span) bool { return s.covers(from, to) })
}

func (t Times) possibly(from, to time.Time) bool {
	return slices.ContainsFunc(t.Possible, func(s Span) bool { return s.meets(from, to) })
}

// Use is a container's use of one device by one claim.
type Use struct {
	// Labels are all that a series of apportion_device_owner_info has of InfoLabels.
	Labels map[string]string
	// Held is when the pod holds the device, Used when the container uses it: an init
	// container does so until it has ended.
	Held, Used Times
	// Bytes is the device's memory that the container has whenever it uses it for sure.
	Bytes int64
}

// InfoLabels are the labels by which a use is told apart from all others.
var InfoLabels = []string{
	"UUID", "GPU_I_ID", "GPU_I_PROFILE", "Hostname", "uuid", "device", "share_id", "claim", "claim_uid", "request",
	"namespace", "pod", "pod_uid", "container", "workload_kind", "workload", "admin_access",
}

// podLabels are those of InfoLabels that a claim has not whose pods are not known.
var podLabels = []string{"pod", "pod_uid", "container"}

// Device is what series of one device have in common: the GPU's UUID, and of a
// partition its GPU instance.
type Device struct{ UUID, Instance string }

func deviceOf(labels map[string]string) Device { return Device{labels["UUID"], labels["GPU_I_ID"]} }

// Owner is whom a series names; the zero one is nobody.
type Owner struct{ Namespace, Pod, Container string }

func ownerOf(labels map[string]string) Owner {
	return Owner{labels["namespace"], labels["pod"], labels["container"]}
}

func (o Owner) String() string {
	if o == (Owner{}) {
		return "nobody"
	}
	return o.Namespace + "/" + o.Pod + "/" + o.Container
}

// Target is what is known of the devices of one target.
type Target struct {
	// Scrapes are the times of all scrapes that succeeded, in order.
	Scrapes []time.Time
	// Lag is how old the state may be that a scrape shows.
	Lag  time.Duration
	Uses []Use
}

// Result is what a comparison found.
type Result struct {
	// Problems are what is not as it should be, in words.
	Problems []string
	// Sure is how many samples could be only one thing, and were looked at for it.
	Sure int
	// Flaps is how often the owner of a series changed although nobody came or went.
	Flaps int
}

func (r *Result) problem(at time.Time, format string, values ...any) {
	r.Problems = append(r.Problems, at.UTC().Format("15:04:05.000")+": "+fmt.Sprintf(format, values...))
}

// window is the time whose state a scrape may show.
func (t *Target) window(at time.Time) (from, to time.Time) { return at.Add(-t.Lag), at }

// on are the uses of a device.
func (t *Target) on(d Device) []*Use {
	var uses []*Use
	for i := range t.Uses {
		if deviceOf(t.Uses[i].Labels) == d {
			uses = append(uses, &t.Uses[i])
		}
	}
	return uses
}

// users are the uses that are sure, and all that are possible, at a scrape.
func (t *Target) users(uses []*Use, at time.Time) (sure, possible []*Use) {
	from, to := t.window(at)
	for _, u := range uses {
		switch {
		case u.Used.surely(from, to):
			sure, possible = append(sure, u), append(possible, u)
		case u.Used.possibly(from, to):
			possible = append(possible, u)
		}
	}
	return sure, possible
}

// Devices looks at the series of devices, those of DCGM's fields: there is one for
// each metric, device and scrape, which names the container that uses the device
// alone, or nobody. present is a metric that every device in use must have.
func (t *Target) Devices(series []promtest.Series, present string) Result {
	var r Result
	lines := linesOf(&r, series)
	for key, line := range lines {
		uses := t.on(key.device)
		for _, at := range line.times() {
			t.lookAt(&r, key, uses, at, line[at])
		}
		r.Flaps += t.flaps(uses, line)
	}
	for i := range t.Uses {
		u := &t.Uses[i]
		line := lines[lineKey{present, deviceOf(u.Labels)}]
		for _, at := range t.Scrapes {
			if _, there := line[at.UnixMilli()]; !there && u.Used.surely(t.window(at)) {
				r.problem(at, "%s of %v is missing, which %v uses", present, deviceOf(u.Labels), ownerOf(u.Labels))
			}
		}
	}
	slices.Sort(r.Problems)
	return r
}

// lineKey is a metric of a device; a line is its owner by time, in milliseconds.
type lineKey struct {
	metric string
	device Device
}

type line map[int64]Owner

func (l line) times() []int64 { return slices.Sorted(maps.Keys(l)) }

func linesOf(r *Result, series []promtest.Series) map[lineKey]line {
	lines := map[lineKey]line{}
	for _, s := range series {
		key := lineKey{s.Labels["__name__"], deviceOf(s.Labels)}
		if lines[key] == nil {
			lines[key] = line{}
		}
		for _, sample := range s.Samples {
			at := sample.Time.UnixMilli()
			if other, twice := lines[key][at]; twice {
				r.problem(sample.Time, "%s of %v is there twice, of %v and of %v", key.metric, key.device, other, ownerOf(s.Labels))
			}
			lines[key][at] = ownerOf(s.Labels)
		}
	}
	return lines
}

func (t *Target) lookAt(r *Result, key lineKey, uses []*Use, milliseconds int64, named Owner) {
	at := time.UnixMilli(milliseconds)
	sure, possible := t.users(uses, at)
	var want Owner
	switch {
	case len(sure) == 1 && len(possible) == 1:
		want = ownerOf(sure[0].Labels)
	case len(sure) < 2 && len(possible) > 0:
		if named != (Owner{}) && !slices.ContainsFunc(possible, func(u *Use) bool { return ownerOf(u.Labels) == named }) {
			r.problem(at, "%s of %v names %v, which cannot be", key.metric, key.device, named)
		}
		return
	}
	r.Sure++
	if named != want {
		r.problem(at, "%s of %v names %v, want %v", key.metric, key.device, named, want)
	}
}

// flaps is how many more times than it can be an owner came to a device. One comes
// each time it begins to be possible, and again after somebody else was there too.
func (t *Target) flaps(uses []*Use, l line) int {
	came := map[Owner]int{}
	var last Owner
	for _, at := range l.times() {
		if now := l[at]; now != last {
			came[now]++
			last = now
		}
	}
	delete(came, Owner{})
	flaps := 0
	for owner, n := range came {
		flaps += max(0, n-t.arrivals(uses, owner))
	}
	return flaps
}

func (t *Target) arrivals(uses []*Use, owner Owner) int {
	n := 0
	for _, u := range uses {
		if ownerOf(u.Labels) != owner {
			continue
		}
		for _, span := range u.Used.Possible {
			n++
			for _, other := range uses {
				if ownerOf(other.Labels) == owner {
					continue
				}
				for _, s := range other.Used.Possible {
					if span.overlaps(s, t.Lag) {
						n++
					}
				}
			}
		}
	}
	return n
}

// Infos looks at the series of apportion_device_owner_info: there is one with value 1
// for every use while the device is held, and none for anything else. A claim whose
// pods are not there yet, or not any more, has one without a pod.
func (t *Target) Infos(series []promtest.Series) Result {
	var r Result
	shown := map[string]map[int64]bool{}
	for _, s := range series {
		signature := sign(s.Labels, nil)
		if shown[signature] == nil {
			shown[signature] = map[int64]bool{}
		}
		for _, sample := range s.Samples {
			t.lookAtInfo(&r, s.Labels, sample)
			shown[signature][sample.Time.UnixMilli()] = true
		}
	}
	for i := range t.Uses {
		u := &t.Uses[i]
		seen := shown[sign(u.Labels, nil)]
		before, runs := false, 0
		for _, at := range t.Scrapes {
			now := seen[at.UnixMilli()]
			if u.Held.surely(t.window(at)) {
				r.Sure++
				if !now {
					r.problem(at, "no owner info of %s", describe(u.Labels))
				}
			}
			if now && !before {
				runs++
			}
			before = now
		}
		r.Flaps += max(0, runs-len(u.Held.Possible))
	}
	slices.Sort(r.Problems)
	return r
}

func (t *Target) lookAtInfo(r *Result, labels map[string]string, sample promtest.Sample) {
	from, to := t.window(sample.Time)
	if sample.Value != 1 {
		r.problem(sample.Time, "owner info of %s is %v", describe(labels), sample.Value)
	}
	without := podLabels
	if labels["pod"] != "" || labels["container"] != "" {
		without = nil
	}
	possible, sure := false, false
	for i := range t.Uses {
		u := &t.Uses[i]
		if sign(u.Labels, without) != sign(labels, nil) {
			continue
		}
		possible = possible || u.Held.possibly(from, to)
		sure = sure || u.Held.surely(from, to)
	}
	switch {
	case !possible:
		r.problem(sample.Time, "there is owner info of %s, which cannot be", describe(labels))
	case sure && without != nil:
		r.problem(sample.Time, "owner info of %s lacks the pod", describe(labels))
	}
}

// sign tells sets of InfoLabels apart, without some of them.
func sign(labels map[string]string, without []string) string {
	var text strings.Builder
	for _, name := range InfoLabels {
		if value := labels[name]; value != "" && !slices.Contains(without, name) {
			fmt.Fprintf(&text, "%s=%q ", name, value)
		}
	}
	return text.String()
}

func describe(labels map[string]string) string {
	return "{" + strings.TrimSpace(sign(labels, nil)) + "}"
}
