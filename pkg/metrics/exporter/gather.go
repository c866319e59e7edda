package exporter

import (
	"compress/gzip"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzhttp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

var _ prometheus.TransactionalGatherer = (*Exporter)(nil)

// frame returns a frame to write to, for publish. Both are called with mu held, so by
// one at a time.
func (e *Exporter) frame(l *layout) *frame {
	e.publishing.Lock()
	defer e.publishing.Unlock()
	f := e.spare
	e.spare = nil
	if f == nil || f.layout != l {
		return newFrame(l)
	}
	clear(f.present)
	return f
}

func (e *Exporter) publish(f *frame) {
	e.publishing.Lock()
	defer e.publishing.Unlock()
	before := e.current
	e.current = f
	e.reuse(before)
}

// reuse keeps a frame that nobody reads any more, if it is still of use.
func (e *Exporter) reuse(f *frame) {
	if f != e.current && f.readers == 0 && f.layout == e.current.layout {
		e.spare = f
	}
}

// Gather implements [prometheus.TransactionalGatherer]: nothing that it returns is
// changed before done is called. Nobody waits for a slow reader.
func (e *Exporter) Gather() (families []*dto.MetricFamily, done func(), err error) {
	e.publishing.Lock()
	f := e.current
	f.readers++
	e.publishing.Unlock()

	now := time.Now()
	own := e.ownFamilies(f, now)
	families = make([]*dto.MetricFamily, 0, len(f.shown)+len(own))
	if now.Sub(f.taken) <= e.o.MaxSampleAge {
		families = append(families, f.shown...)
	}
	families = append(families, own...)
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return strings.Compare(*a.Name, *b.Name) })
	return families, func() {
		e.publishing.Lock()
		defer e.publishing.Unlock()
		f.readers--
		e.reuse(f)
	}, nil
}

// ownFamilies are the exporter's state at the time of the scrape.
func (e *Exporter) ownFamilies(f *frame, now time.Time) []*dto.MetricFamily {
	verified, taken := e.started, e.started
	if nanos := e.verified.Load(); nanos != 0 {
		verified = time.Unix(0, nanos)
	}
	if !f.taken.IsZero() {
		taken = f.taken
	}
	return []*dto.MetricFamily{
		ownershipAge.alone(max(now.Sub(verified).Seconds(), 0)),
		ownershipErrors.alone(float64(e.errors.Load())),
		ownershipGeneration.alone(float64(f.generation)),
		sampleAge.alone(max(now.Sub(taken).Seconds(), 0)),
	}
}

// alone is the metric with one series without labels.
func (m *metric) alone(value float64) *dto.MetricFamily {
	series := &dto.Metric{}
	if m.kind == dto.MetricType_COUNTER {
		series.Counter = &dto.Counter{Value: &value}
	} else {
		series.Gauge = &dto.Gauge{Value: &value}
	}
	return &dto.MetricFamily{Name: &m.name, Help: &m.help, Type: m.kind.Enum(), Metric: []*dto.Metric{series}}
}

// maxScrapes is how many scrapes are answered at a time. Each that lasts holds memory.
const maxScrapes = 8

// Handler answers scrapes, in Prometheus' text format or OpenMetrics. They are
// compressed at the lowest level, which costs a third of promhttp's and makes them as
// small: most of the text repeats itself.
func (e *Exporter) Handler() (http.Handler, error) {
	compressed, err := gzhttp.NewWrapper(gzhttp.CompressionLevel(gzip.BestSpeed))
	if err != nil {
		return nil, fmt.Errorf("compression of scrapes: %w", err)
	}
	return compressed(promhttp.HandlerForTransactional(e, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes, DisableCompression: true,
	})), nil
}
