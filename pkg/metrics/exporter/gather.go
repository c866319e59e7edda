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

var _ prometheus.Gatherer = (*Exporter)(nil)

// Gather implements [prometheus.Gatherer]. Its result is immutable.
func (e *Exporter) Gather() ([]*dto.MetricFamily, error) {
	p, now := e.current.Load(), time.Now()
	families := e.ownFamilies(p, now)
	if now.Sub(p.taken) <= e.o.MaxSampleAge {
		families = append(families, p.families...)
	}
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return strings.Compare(*a.Name, *b.Name) })
	return families, nil
}

// ownFamilies are the exporter's state at the time of the scrape.
func (e *Exporter) ownFamilies(p *published, now time.Time) []*dto.MetricFamily {
	verified, taken := e.started, e.started
	if nanos := e.verified.Load(); nanos != 0 {
		verified = time.Unix(0, nanos)
	}
	if !p.taken.IsZero() {
		taken = p.taken
	}
	return []*dto.MetricFamily{
		ownershipAge.family(ownershipAge.series(nil, max(now.Sub(verified).Seconds(), 0))),
		ownershipErrors.family(ownershipErrors.series(nil, float64(e.errors.Load()))),
		ownershipGeneration.family(ownershipGeneration.series(nil, float64(p.generation))),
		sampleAge.family(sampleAge.series(nil, max(now.Sub(taken).Seconds(), 0))),
	}
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
	return compressed(promhttp.HandlerFor(e, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes, DisableCompression: true,
	})), nil
}
