package exporter

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"apportion.dev/apportion/pkg/metrics/gpumetrics"
	"apportion.dev/apportion/pkg/ownership"
)

// published is what scrapes get of the last sample. It is never changed.
type published struct {
	// families are sorted by name; each has a series.
	families []*dto.MetricFamily
	// taken is when the values were read, zero if they never were.
	taken      time.Time
	generation uint64
}

// seriesSet collects series by the name of their metric.
type seriesSet map[string]*family

// family is a metric with its series; seen has the signatures of their labels.
type family struct {
	published *dto.MetricFamily
	seen      map[string]bool
}

// add adds a series. One with the same labels as another would spoil the whole scrape,
// and is left out.
func (s seriesSet) add(m metric, set labelSet, value float64) {
	f := s[m.name]
	if f == nil {
		f = &family{m.family(), map[string]bool{}}
		s[m.name] = f
	}
	if !f.seen[set.signature] {
		f.seen[set.signature] = true
		f.published.Metric = append(f.published.Metric, m.series(set.pairs, value))
	}
}

// series makes the series of all that is known now.
func (e *Exporter) series() []*dto.MetricFamily {
	e.labels.turn()
	s := seriesSet{}
	inPartitions := e.inPartitions()
	for i := range e.views {
		e.addView(s, &e.views[i], inPartitions)
	}
	e.addOthers(s)
	e.addAccounts(s)
	var families []*dto.MetricFamily
	for _, name := range slices.Sorted(maps.Keys(s)) {
		families = append(families, s[name].published)
	}
	return families
}

// addView adds the series of one device.
func (e *Exporter) addView(s seriesSet, v *view, inPartitions map[fieldOfGPU]bool) {
	d := &v.device
	set := e.deviceLabels(d, v.attribution).set()
	ofOthers := d.MeasuredSince.Round(0).Before(v.attribution.aloneSince)
	for n, f := range e.o.Fields {
		switch {
		case f.Type == gpumetrics.Label, n >= len(d.Values), !d.Values[n].Present:
			continue
		case ofOthers && f.OverTime: // Part of it belongs to whoever had the device before.
			continue
		case d.Kind == gpumetrics.GPU && inPartitions[fieldOfGPU{d.UUID, n}]:
			continue
		}
		kind := dto.MetricType_GAUGE
		if f.Type == gpumetrics.Counter {
			kind = dto.MetricType_COUNTER
		}
		s.add(metric{f.Name, kind, f.Help}, set, d.Values[n].Number)
	}
	for i := range v.attribution.users {
		e.addUser(s, v, &v.attribution.users[i])
	}
	for _, o := range v.attribution.owners {
		e.addInfo(s, o, d)
	}
}

// addUser adds what a container uses of a device, and its limits by its claims.
func (e *Exporter) addUser(s seriesSet, v *view, u *user) {
	d := &v.device
	labelsBy := func(o *ownership.Owner) labelSet {
		key := labelKey{gpu: d.GPU, uuid: d.UUID, profile: d.Profile, instance: instanceText(d.GPUInstanceID), owner: o, consumer: u.consumer, container: u.container.Name}
		return e.labels.of(key, func() labels {
			l := e.gpuLabels(&d.GPU)
			if o != nil {
				l.hold(o)
			}
			l[labelDeviceUUID] = d.UUID
			l.place(d.Profile, d.GPUInstanceID)
			e.consumerLabels(l, u.consumer)
			l[labelContainer] = u.container.Name
			return l
		})
	}
	var limits []labelSet
	for _, o := range u.owners {
		limits = append(limits, labelsBy(o))
		if o.MemoryLimitBytes != nil {
			s.add(shareMemoryLimit, limits[len(limits)-1], float64(*o.MemoryLimitBytes))
		}
	}
	used, ok := v.usage.of(u.container.ID)
	if !ok {
		return
	}
	measured := limits[0]
	if len(limits) > 1 {
		measured = labelsBy(nil) // What a container uses by several claims cannot be told apart.
	}
	s.add(shareMemoryUsed, measured, float64(used.bytes))
	if used.measured {
		s.add(shareSMUtil, measured, used.busy)
	}
}

// addInfo adds a series for each container that uses a device by a claim, or one for a
// claim that no pod uses.
func (e *Exporter) addInfo(s seriesSet, o *ownership.Owner, d *gpumetrics.Device) {
	used := false
	add := func(c *ownership.Consumer, container string) {
		key := labelKey{gpu: d.GPU, profile: d.Profile, instance: instanceText(d.GPUInstanceID), owner: o, consumer: c, container: container}
		s.add(ownerInfo, e.labels.of(key, func() labels {
			l := e.gpuLabels(&d.GPU)
			l.place(d.Profile, d.GPUInstanceID)
			l.hold(o)
			if c != nil {
				e.consumerLabels(l, c)
			}
			l[labelContainer] = container
			return l
		}), 1)
		used = true
	}
	for i := range o.Consumers {
		c := &o.Consumers[i]
		if c.State == ownership.Gone {
			continue
		}
		for _, container := range c.Containers {
			add(c, container.Name)
		}
		if len(c.Containers) == 0 {
			add(c, "")
		}
	}
	if !used {
		add(nil, "")
	}
}

// addOthers adds the owners of devices that are not published, or not yet under their
// present owners. They have fewer labels unless another device of their GPU is published.
func (e *Exporter) addOthers(s seriesSet) {
	if e.holdings == nil {
		return
	}
	shown := map[ownership.Key]bool{}
	gpus := map[string]gpumetrics.GPUIdentity{}
	for i := range e.views {
		gpus[e.views[i].device.GPU.UUID] = e.views[i].device.GPU
		for _, o := range e.views[i].attribution.owners {
			shown[o.Key()] = true
		}
	}
	for i := range e.holdings.owners {
		o := &e.holdings.owners[i]
		if shown[o.Key()] {
			continue
		}
		gpu, ok := gpus[o.Device.GPUUUID()]
		if !ok {
			gpu.UUID = o.Device.GPUUUID()
		}
		e.addInfo(s, o, &gpumetrics.Device{GPU: gpu, Profile: o.Device.Profile, GPUInstanceID: o.Device.GPUInstanceID})
	}
}

// addAccounts adds the counters of time and energy. Of accounts with the same labels the
// one with the most time is published.
func (e *Exporter) addAccounts(s seriesSet) {
	type labeled struct {
		*account
		set labelSet
	}
	var accounts []labeled
	for _, a := range e.charger.accounts {
		accounts = append(accounts, labeled{a, e.accountLabels(a)})
	}
	slices.SortFunc(accounts, func(a, b labeled) int {
		return cmp.Or(strings.Compare(a.set.signature, b.set.signature), cmp.Compare(b.seconds, a.seconds))
	})
	for _, a := range accounts {
		of := allocatedTime
		if a.nobody() {
			of = unallocatedTime
		}
		if a.timed {
			s.add(of, a.set, a.seconds)
		}
		if a.metered {
			s.add(energy, a.set, a.joules)
		}
	}
}

func (e *Exporter) accountLabels(a *account) labelSet {
	return e.labels.of(labelKey{gpu: a.gpu, account: a, device: a.device}, func() labels {
		l := e.gpuLabels(&a.gpu)
		if a.nobody() {
			return l
		}
		l.place(a.device.Profile, a.device.GPUInstanceID)
		l.hold(&ownership.Owner{Device: a.device, Claim: a.key.claim, Request: a.key.owner.Request})
		if p := a.key.pod; p != (podKey{}) {
			l.pod(p.namespace, p.name, p.uid, nil)
		}
		l[labelWorkloadKind], l[labelWorkload] = a.key.workload.Kind, a.key.workload.Name
		return l
	})
}
