package exporter

import (
	"time"

	dto "github.com/prometheus/client_model/go"
)

// frame is all series with their values, ready to be encoded. It is written while
// nobody reads it, and not changed while somebody does.
type frame struct {
	layout *layout
	// values and present are by slot.
	values  []float64
	present []bool
	metrics []dto.Metric
	// families are those of the layout; shown are those that have a series now.
	families []*dto.MetricFamily
	shown    []*dto.MetricFamily

	// taken is when the values were read.
	taken      time.Time
	generation uint64
	// readers counts those who have it.
	readers int
}

func newFrame(l *layout) *frame {
	f := &frame{
		layout: l, values: make([]float64, l.slots), present: make([]bool, l.slots), metrics: make([]dto.Metric, l.slots),
		shown: make([]*dto.MetricFamily, 0, len(l.families)),
	}
	for _, described := range l.families {
		f.families = append(f.families, &dto.MetricFamily{
			Name: &described.name, Help: &described.help, Type: described.kind.Enum(),
			Metric: make([]*dto.Metric, 0, len(described.labels)),
		})
		gauges, counters := make([]dto.Gauge, len(described.labels)), make([]dto.Counter, len(described.labels))
		for i, labels := range described.labels {
			slot := described.first + i
			m := &f.metrics[slot]
			m.Label = labels
			if described.kind == dto.MetricType_COUNTER {
				m.Counter = &counters[i]
				m.Counter.Value = &f.values[slot]
			} else {
				m.Gauge = &gauges[i]
				m.Gauge.Value = &f.values[slot]
			}
		}
	}
	return f
}

func (f *frame) set(s series, value float64) {
	if s.family != nil {
		slot := s.family.first + s.index
		f.values[slot], f.present[slot] = value, true
	}
}

// finish leaves the series that have a value.
func (f *frame) finish() {
	f.shown = f.shown[:0]
	for i, described := range f.layout.families {
		metrics := f.families[i].Metric[:0]
		for slot := described.first; slot < described.first+len(described.labels); slot++ {
			if f.present[slot] {
				metrics = append(metrics, &f.metrics[slot])
			}
		}
		f.families[i].Metric = metrics
		if len(metrics) > 0 {
			f.shown = append(f.shown, f.families[i])
		}
	}
}
