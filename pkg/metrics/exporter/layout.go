package exporter

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"apportion.dev/apportion/pkg/metrics/gpumetrics"
	"apportion.dev/apportion/pkg/ownership"
)

// layout is which series there are and where their values go. It is made anew when the
// devices, their owners or the accounts change, and serves any number of frames.
type layout struct {
	families []*family
	// slots is how many series there are.
	slots int

	// What it was made of.
	devices  []deviceIdentity
	holdings *holdings
	accounts uint64

	views   []viewSeries
	infos   []series
	charged []accountSeries

	// known are the labels of the devices, for the next layout.
	known map[deviceIdentity]*viewLabels
	named map[string]*family
}

// family is a metric with its series, whose slots are from first on.
type family struct {
	metric
	labels [][]*dto.LabelPair
	first  int
	seen   map[string]bool
}

// series is the place of a value; the zero one has none.
type series struct {
	family *family
	index  int
}

// viewSeries are the series of one device.
type viewSeries struct {
	// fields are by field; a label has none.
	fields []series
	shares []shareSeries
}

// shareSeries are those of one container that uses a device.
type shareSeries struct {
	containerID  string
	memory, busy series
	limits       []limitSeries
}

type limitSeries struct {
	series
	bytes int64
}

type accountSeries struct {
	account      *account
	time, energy series
}

// family is that of a metric, which is made when it is first asked for.
func (l *layout) family(m metric) *family {
	if l.named[m.name] == nil {
		l.named[m.name] = &family{metric: m, seen: map[string]bool{}}
	}
	return l.named[m.name]
}

// add makes a series. One that is there already would spoil the whole scrape, and gets
// no place.
func (f *family) add(set labelSet) series {
	if f.seen[set.signature] {
		return series{}
	}
	f.seen[set.signature] = true
	f.labels = append(f.labels, set.pairs)
	return series{f, len(f.labels) - 1}
}

// arrange returns the layout for what is known now, the last one if it still fits.
func (e *Exporter) arrange() *layout {
	ids := make([]deviceIdentity, 0, len(e.views))
	for i := range e.views {
		ids = append(ids, e.identify(&e.views[i]))
	}
	before := e.layout
	if before.holdings == e.holdings && before.accounts == e.charger.version && slices.Equal(before.devices, ids) {
		return before
	}
	l := &layout{
		devices: ids, holdings: e.holdings, accounts: e.charger.version,
		known: map[deviceIdentity]*viewLabels{}, named: map[string]*family{},
	}
	for i, id := range ids {
		known := before.known[id]
		if known == nil {
			known = e.viewLabels(&e.views[i])
		}
		l.known[id] = known
		l.addView(e.o.Fields, &e.views[i], known)
	}
	l.addOthers(e)
	l.addAccounts(e)
	for _, name := range slices.Sorted(maps.Keys(l.named)) {
		f := l.named[name]
		f.first, f.seen = l.slots, nil
		l.slots += len(f.labels)
		l.families = append(l.families, f)
	}
	e.layout = l
	return l
}

func (l *layout) addView(fields []gpumetrics.Field, v *view, known *viewLabels) {
	s := viewSeries{fields: make([]series, len(fields))}
	for i, f := range fields {
		switch f.Type {
		case gpumetrics.Gauge:
			s.fields[i] = l.family(metric{f.Name, dto.MetricType_GAUGE, f.Help}).add(known.fields)
		case gpumetrics.Counter:
			s.fields[i] = l.family(metric{f.Name, dto.MetricType_COUNTER, f.Help}).add(known.fields)
		}
	}
	for i := range v.attribution.users {
		u, sets := &v.attribution.users[i], &known.users[i]
		share := shareSeries{
			containerID: u.container.ID,
			memory:      l.family(shareMemoryUsed).add(sets.measured), busy: l.family(shareSMUtil).add(sets.measured),
		}
		for n, o := range u.owners {
			if o.MemoryLimitBytes != nil {
				share.limits = append(share.limits, limitSeries{l.family(shareMemoryLimit).add(sets.limits[n]), *o.MemoryLimitBytes})
			}
		}
		s.shares = append(s.shares, share)
	}
	for _, set := range known.infos {
		l.infos = append(l.infos, l.family(ownerInfo).add(set))
	}
	l.views = append(l.views, s)
}

// addOthers adds the owners of devices that are not published, or not yet under their
// present owners. Of their GPU is known what it is if that is published.
func (l *layout) addOthers(e *Exporter) {
	if e.holdings == nil {
		return
	}
	published := map[ownership.Key]bool{}
	gpus := map[string]gpumetrics.GPUIdentity{}
	for i := range e.views {
		gpus[e.views[i].device.GPU.UUID] = e.views[i].device.GPU
		for _, o := range e.views[i].attribution.owners {
			published[o.Key()] = true
		}
	}
	for i := range e.holdings.owners {
		o := &e.holdings.owners[i]
		if published[o.Key()] {
			continue
		}
		var d *gpumetrics.Device
		if gpu, ok := gpus[o.Device.GPUUUID()]; ok {
			d = &gpumetrics.Device{GPU: gpu, Profile: o.Device.Profile, GPUInstanceID: o.Device.GPUInstanceID}
		}
		for _, set := range e.infoLabels(o, d) {
			l.infos = append(l.infos, l.family(ownerInfo).add(set))
		}
	}
}

func (l *layout) addAccounts(e *Exporter) {
	accounts := slices.SortedFunc(maps.Values(e.charger.accounts), func(a, b *account) int {
		return cmp.Or(strings.Compare(e.accountLabels(a).signature, e.accountLabels(b).signature), cmp.Compare(b.seconds, a.seconds))
	})
	for _, a := range accounts {
		set, of := e.accountLabels(a), allocatedTime
		if a.nobody() {
			of = unallocatedTime
		}
		l.charged = append(l.charged, accountSeries{a, l.family(of).add(set), l.family(energy).add(set)})
	}
}
