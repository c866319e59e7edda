package exporter

import (
	"slices"
	"time"

	"apportion.dev/apportion/pkg/metrics/gpumetrics"
	"apportion.dev/apportion/pkg/ownership"
)

// reading is what charging needs of a sample of one GPU.
type reading struct {
	gpu gpumetrics.GPUIdentity
	// millijoules is the GPU's counter, nil if it has none.
	millijoules *uint64
	// busyShare is the part of the GPU's time in which it worked for a share's
	// processes, 0 to 1; not ok if that was not measured.
	busyShare func(*ownership.Owner) (float64, bool)
	// busyPartition is how busy a partition was, 0 to 1; not ok if that was not
	// measured.
	busyPartition func(*ownership.Owner) (float64, bool)
}

// span is a hold's part of the time since the GPU was charged last, from 0 to 1.
type span struct {
	hold     *hold
	fraction float64
	from, to float64
}

// maxGap is for how long a GPU may be unreadable and is charged for afterwards all the
// same. It may not have been there for longer than that.
const maxGap = time.Minute

// charge charges the time and energy between the last reading and this one.
func (c *charger) charge(r *reading, now time.Time) {
	g := c.gpu(r.gpu.UUID)
	if now.Sub(g.timed) > maxGap {
		g.timed = time.Time{}
	}
	if now.Sub(g.metered) > maxGap {
		g.metered = time.Time{}
	}
	if g.rest == nil {
		g.rest = c.account(accountKey{gpu: g.uuid}, ownership.Device{})
	}
	g.rest.holds, g.rest.ended = 1, time.Time{}
	g.rest.gpu = r.gpu
	for i := range g.holds {
		g.holds[i].account.gpu = r.gpu
	}
	if elapsed := now.Sub(g.timed).Seconds(); elapsed > 0 {
		g.chargeTime(g.spans(g.timed, now), elapsed, !g.timed.IsZero())
	}
	g.timed = now
	// Where the counter cannot be read, its growth is charged when it can again.
	if r.millijoules != nil {
		joules, counted := g.drawn(*r.millijoules)
		g.chargeEnergy(r, g.spans(g.metered, now), joules, counted)
		g.metered, g.millijoules = now, *r.millijoules
	}
	g.settle()
}

// drawn is the energy in joules since the last reading that had it. A counter that
// went back started again at 0.
func (g *gpuCharge) drawn(millijoules uint64) (joules float64, counted bool) {
	if g.metered.IsZero() {
		return 0, false
	}
	if millijoules >= g.millijoules {
		millijoules -= g.millijoules
	}
	return float64(millijoules) / 1000, true
}

// spans are where the holds lie between a reading and now; those that go on have all
// of it if there was none before. The times of changes are the wall clock's, which may
// have been set meanwhile: only their order is taken from it, and how long it was from
// the monotonic clock.
func (g *gpuCharge) spans(start, now time.Time) []span {
	start, now = start.Round(0), now.Round(0)
	length := now.Sub(start)
	place := func(t time.Time) float64 {
		if length <= 0 {
			return 0
		}
		return min(max(float64(t.Round(0).Sub(start))/float64(length), 0), 1)
	}
	spans := make([]span, 0, len(g.holds))
	for i := range g.holds {
		h := &g.holds[i]
		s := span{hold: h, fraction: h.owner.Device.PartOfGPU(), to: 1}
		if !start.IsZero() {
			s.from = place(h.from)
			if !h.to.IsZero() {
				s.to = max(place(h.to), s.from)
			}
		} else if !h.to.IsZero() {
			continue
		}
		spans = append(spans, s)
	}
	return spans
}

// chargeTime shares the time out. Holds that together are more than the GPU, which
// nobody should see, get less, so that the parts add up.
func (g *gpuCharge) chargeTime(spans []span, elapsed float64, counted bool) {
	g.rest.timed = true
	edges := []float64{0, 1}
	for _, s := range spans {
		s.hold.account.timed = true
		edges = append(edges, s.from, s.to)
	}
	if !counted {
		return
	}
	slices.Sort(edges)
	for i, to := range edges[1:] {
		from := edges[i]
		if to <= from {
			continue
		}
		total := 0.0
		for _, s := range spans {
			if s.from <= from && to <= s.to {
				total += s.fraction
			}
		}
		seconds := (to - from) * elapsed
		for _, s := range spans {
			if s.from <= from && to <= s.to {
				s.hold.account.seconds += seconds * s.fraction / max(total, 1)
			}
		}
		g.rest.seconds += seconds * max(1-total, 0)
	}
}

// chargeEnergy shares the energy out: all of it to who holds the GPU as a whole; to a
// share the part of the time in which the GPU worked for it; to a partition its slices
// of that in which it worked, or just its slices where that was not measured. The rest,
// and what was not measured, is nobody's.
func (g *gpuCharge) chargeEnergy(r *reading, spans []span, joules float64, counted bool) {
	g.rest.metered = true
	parts := make([]float64, len(spans))
	total := 0.0
	for i := range spans {
		part, ok := spans[i].energyPart(r)
		if ok {
			spans[i].hold.account.metered = true
			parts[i] = part
			total += part
		}
	}
	if !counted {
		return
	}
	for i := range spans {
		spans[i].hold.account.joules += joules * parts[i] / max(total, 1)
	}
	g.rest.joules += joules * max(1-total, 0)
}

// energyPart is the part of the GPU's energy that is charged to a hold, 0 to 1; not ok
// if it cannot be told.
func (s *span) energyPart(r *reading) (float64, bool) {
	held := s.to - s.from
	switch {
	case held == 0, s.fraction == 0:
		return 0, false
	case s.hold.owner.Device.IsPartition():
		busy, ok := r.busyPartition(s.hold.owner)
		if !ok {
			busy = 1
		}
		return s.fraction * busy * held, true
	case s.fraction == 1:
		return held, true
	case !s.hold.to.IsZero():
		// Its processes have ended, and what they did was not read.
		return 0, false
	}
	// It is of all the time since the last reading, whenever in that the share began.
	return r.busyShare(s.hold.owner)
}
