package exporter

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/metrics/gpumetrics"
	"apportion.dev/apportion/pkg/ownership"
)

// Options are what an Exporter must be told.
type Options struct {
	// Fields are those of the samples, in the order of their values.
	Fields []gpumetrics.Field
	// Hostname is the name of the node, for the label of all series.
	Hostname string
	// Interval is how often Run takes a sample, 1 second if zero.
	Interval time.Duration
	// RetainEnded is how long the counters of an owner that has gone are still
	// published, so that their last values are scraped; 5 minutes if zero.
	RetainEnded time.Duration
	// MaxSampleAge is for how long values stay published when no new ones are read, because
	// reading them hangs; 10 intervals and at least 10 seconds if zero.
	MaxSampleAge time.Duration
	// OwnershipGrace is for how long after its start an Exporter waits for the first
	// owners before it publishes devices without any, 10 seconds if zero. Series would
	// change their labels otherwise whenever it starts.
	OwnershipGrace time.Duration
	// PodLabels are the labels of pods that their series get, as label_NAME.
	PodLabels []string
	// ContainerOf finds the container that a process runs in, see [ContainerOf]. If nil,
	// nothing is known of any process.
	ContainerOf func(pid int) (containerID string, ok bool)
}

const (
	defaultInterval    = time.Second
	defaultRetainEnded = 5 * time.Minute
	defaultGrace       = 10 * time.Second
	minMaxSampleAge    = 10 * time.Second
)

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	def(&o.Interval, defaultInterval)
	def(&o.RetainEnded, defaultRetainEnded)
	def(&o.MaxSampleAge, max(10*o.Interval, minMaxSampleAge))
	def(&o.OwnershipGrace, defaultGrace)
	if o.ContainerOf == nil {
		o.ContainerOf = func(int) (string, bool) { return "", false }
	}
	return o
}

// Exporter makes series of samples and owners. Its methods may be called concurrently.
type Exporter struct {
	o       Options
	started time.Time

	// mu is held while samples and owners are brought together, not while hardware is
	// read or a scrape is answered.
	mu sync.Mutex
	// holdings are nil before the first owners.
	holdings   *holdings
	generation uint64
	views      []view
	charger    *charger
	labels     labelCache

	// errors is the number of the ownership service's errors, verified when the owners
	// were last known to be right, in nanoseconds since 1970, or 0.
	errors   atomic.Uint64
	verified atomic.Int64

	// current is what scrapes get.
	current atomic.Pointer[published]
}

// view is what is published of a device: values, and who held it when they were read.
type view struct {
	device      gpumetrics.Device
	usage       deviceUsage
	attribution *attribution
	taken       time.Time
}

// New returns an Exporter that publishes nothing but its own state yet.
func New(o Options) *Exporter {
	o = o.withDefaults()
	e := &Exporter{o: o, started: time.Now(), charger: newCharger(o.RetainEnded)}
	e.current.Store(&published{})
	return e
}

// SetOwners takes owners, which must not change afterwards, and says when they
// were learned. They are published with the next sample that was taken since they
// became what they are.
func (e *Exporter) SetOwners(s ownership.Snapshot, now time.Time) {
	// The clock may have been set back since.
	at := earliest(s.Time, now).Round(0)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.generation = s.Generation
	if h := newHoldings(e.holdings, s, at); h != e.holdings {
		e.holdings = h
		e.charger.setOwners(h.owners, at)
	}
	e.SetOwnership(s.Verified, e.errors.Load())
}

// SetOwnership says when the owners were last known to be right, and how often that
// could not be found out.
func (e *Exporter) SetOwnership(verified time.Time, errors uint64) {
	if !verified.IsZero() {
		e.verified.Store(verified.UnixNano())
	}
	e.errors.Store(errors)
}

// Update publishes a sample. The values of a device whose owners have changed since it
// was taken may be theirs or those of the owners before: what was published of it stays
// until the next sample.
func (e *Exporter) Update(sample gpumetrics.Sample) {
	usages := make([]deviceUsage, len(sample.Devices))
	for i := range sample.Devices {
		usages[i] = measure(&sample.Devices[i], e.o.ContainerOf)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.look(sample, usages)
	e.charge(sample, usages)
	e.current.Store(&published{families: e.series(), taken: sample.Time, generation: e.generation})
}

// look makes the views of a sample.
func (e *Exporter) look(sample gpumetrics.Sample, usages []deviceUsage) {
	before := make(map[string]*view, len(e.views))
	for i := range e.views {
		before[e.views[i].device.UUID] = &e.views[i]
	}
	views := make([]view, 0, len(sample.Devices))
	if e.holdings == nil && sample.Time.Sub(e.started) < e.o.OwnershipGrace {
		e.views = views
		return
	}
	for i, d := range sample.Devices {
		a := e.holdings.of(&d)
		if !a.changed.After(sample.Time.Round(0)) {
			views = append(views, view{device: d, usage: usages[i], attribution: a, taken: sample.Time})
		} else if old := before[d.UUID]; old != nil && sample.Time.Sub(old.taken) <= e.o.MaxSampleAge {
			views = append(views, *old)
		}
	}
	e.views = views
}

// charge charges time and energy to owners, once they are known.
func (e *Exporter) charge(sample gpumetrics.Sample, usages []deviceUsage) {
	if e.holdings == nil {
		return
	}
	there := map[string]bool{}
	partitions := map[string]*float64{}
	for i := range sample.Devices {
		d := &sample.Devices[i]
		if d.GPUInstanceID != nil {
			partitions[d.UUID] = d.SMUtil
			partitions[placeOf(d.GPU.UUID, *d.GPUInstanceID)] = d.SMUtil
		}
	}
	for i := range sample.Devices {
		d := &sample.Devices[i]
		if d.Kind != gpumetrics.GPU {
			continue
		}
		there[d.UUID] = true
		a := e.holdings.of(d)
		e.charger.charge(&reading{
			gpu: d.GPU, millijoules: d.EnergyMillijoules,
			busyShare: func(o *ownership.Owner) (float64, bool) { return usages[i].busyOwner(a, o.Key()) },
			busyPartition: func(o *ownership.Owner) (float64, bool) {
				busy := partitions[deviceOfOwner(o)]
				return ptr.Deref(busy, 0), busy != nil
			},
		}, sample.Time)
	}
	e.charger.sweep(there, sample.Time)
}

type fieldOfGPU struct {
	gpu   string
	field int
}

// inPartitions are the fields that partitions of a GPU have a value of. They are not
// published of the GPU as well: a sum would count them twice.
func (e *Exporter) inPartitions() map[fieldOfGPU]bool {
	in := map[fieldOfGPU]bool{}
	for i := range e.views {
		d := &e.views[i].device
		if d.Kind != gpumetrics.Instance {
			continue
		}
		for n, f := range e.o.Fields {
			if f.PerInstance && n < len(d.Values) && d.Values[n].Present {
				in[fieldOfGPU{d.GPU.UUID, n}] = true
			}
		}
	}
	return in
}
