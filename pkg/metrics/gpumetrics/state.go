package gpumetrics

import "time"

// deviceState is what is remembered of a GPU or a partition between readings.
type deviceState struct {
	// driver is the driver's version at the time.
	driver string
	// used is true if the device is in the reading that is under way.
	used bool
	// fixed are values that do not change, rates what counters grow by; both by the field's index.
	fixed     []Value
	rates     []rate
	sampler   gpmSampler
	processes processUtilization
	// reportsXIDs says whether the GPU reports critical errors, nil before it was asked.
	reportsXIDs *bool
	// xids are the errors at the last reading, lastXID the last that was new, or 0.
	xids    map[inventoryXID]bool
	lastXID int
}

// shortest is the least time over which anything is measured: the counters behind
// NVML's values are no fresher than that (nvmlGpmSampleGet). A Read that comes sooner
// has the value of the one before.
const shortest = 100 * time.Millisecond

// rate is what a counter grows by in a second.
type rate struct {
	at    time.Time
	count float64
	// perSecond is what it last was, since a time, if ok.
	perSecond float64
	since     time.Time
	ok        bool
}

// add notes the counter at a time, and gives its growth since the last but for one that
// is too near. There is none at first, and where the counter started again.
func (r *rate) add(count float64, at time.Time) (float64, bool) {
	elapsed := at.Sub(r.at)
	if !r.at.IsZero() && elapsed >= 0 && elapsed < shortest {
		return r.perSecond, r.ok
	}
	r.ok = !r.at.IsZero() && elapsed > 0 && count >= r.count
	if r.ok {
		r.perSecond = (count - r.count) / elapsed.Seconds()
	}
	r.since, r.at, r.count = r.at, at, count
	return r.perSecond, r.ok
}
