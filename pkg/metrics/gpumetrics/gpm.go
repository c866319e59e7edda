package gpumetrics

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// gpmSymbols are the functions of NVML's GPM, which measures between two samples.
var gpmSymbols = []string{"nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmSampleGet", "nvmlGpmMetricsGet"}

// symbolGPMInstance is the one for partitions, which is younger.
const symbolGPMInstance = "nvmlGpmMigSampleGet"

// highestPercentage is the highest that is taken for a percentage that was measured a
// little late, not for nonsense from counters that started again.
const highestPercentage = 105

// gpmSampler holds the sample buffers of a device. They are memory that the library
// allocates when it is first needed, and that must be freed. It outlasts the library's
// initialisation: nothing in nvml.h makes a buffer depend on it.
type gpmSampler struct {
	// unsupported is true if NVML said that the device has no GPM.
	unsupported bool
	// asked is true if NVML was asked whether it has.
	asked bool
	// last is the latest sample, taken at a time, if taken; spare is for the next.
	last, spare nvml.GpmSample
	taken       bool
	at          time.Time
	// values are those of the reader's metrics between the last two samples, the first
	// of which was taken at since.
	values []Value
	since  time.Time
}

// free gives the buffers back.
func (s *gpmSampler) free(lib nvml.Interface) error {
	var errs []error
	for _, sample := range []nvml.GpmSample{s.last, s.spare} {
		if sample == nil {
			continue
		}
		if ret := lib.GpmSampleFree(sample); ret != nvml.SUCCESS {
			errs = append(errs, fmt.Errorf("free an NVML GPM sample: %w", ret))
		}
	}
	*s = gpmSampler{}
	return errors.Join(errs...)
}

// allocate makes the buffers.
func (s *gpmSampler) allocate(lib nvml.Interface) nvml.Return {
	for _, sample := range []*nvml.GpmSample{&s.last, &s.spare} {
		if *sample != nil {
			continue
		}
		buffer, ret := lib.GpmSampleAlloc()
		if ret != nvml.SUCCESS {
			return ret
		}
		*sample = buffer
	}
	return nvml.SUCCESS
}

// metric is the value of a field that GPM measures.
func (r *reading) metric(f *field) Value {
	values := r.metrics()
	if values == nil {
		return Value{}
	}
	r.measuredSince(r.state.sampler.since)
	value := values[r.reader.metricIndex[f.metric.id]]
	value.Number /= f.metric.divisor
	return value
}

// metrics are the values of the reader's metrics in NVML's units, nil if there are
// none.
func (r *reading) metrics() []Value {
	values, _ := r.profiled.get(func() ([]Value, nvml.Return) { return r.measure(), nvml.SUCCESS })
	return values
}

// measure takes a sample and compares it with the one before.
func (r *reading) measure() []Value {
	s := &r.state.sampler
	if r.lost || !r.reader.gpmUsable || r.instance != nil && !r.reader.has(symbolGPMInstance) || !r.supportsGPM(s) {
		return nil
	}
	if elapsed := r.now.Sub(s.at); s.taken && elapsed >= 0 && elapsed < shortest {
		return s.values
	}
	s.values = nil
	if !r.ok("GPM sample buffer", s.allocate(r.reader.lib)) || !r.ok("GPM sample", r.sample(s.spare)) {
		s.taken = false
		return nil
	}
	before := s.taken
	s.since = s.at
	s.last, s.spare = s.spare, s.last
	s.taken, s.at = true, r.now
	if before {
		s.values = r.compare(s.spare, s.last)
	}
	return s.values
}

// supportsGPM asks NVML once whether the device has GPM.
func (r *reading) supportsGPM(s *gpmSampler) bool {
	if !s.asked {
		support, ret := r.reader.lib.GpmQueryDeviceSupport(r.gpuDev)
		switch ret {
		case nvml.SUCCESS, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND:
			s.asked, s.unsupported = true, ret != nvml.SUCCESS || support.IsSupportedDevice == 0
		default:
			r.ok("support of GPM", ret)
			return false
		}
	}
	return !s.unsupported
}

func (r *reading) sample(buffer nvml.GpmSample) nvml.Return {
	if r.instance != nil {
		return r.reader.lib.GpmMigSampleGet(r.gpuDev, r.instance.ID, buffer)
	}
	return r.reader.lib.GpmSampleGet(r.dev, buffer)
}

// compare gives the metrics between two samples.
func (r *reading) compare(before, after nvml.GpmSample) []Value {
	get := &r.reader.metricsGet
	get.NumMetrics, get.Sample1, get.Sample2 = uint32(len(r.reader.metricIDs)), before, after
	for i, id := range r.reader.metricIDs {
		get.Metrics[i] = nvml.GpmMetric{MetricId: uint32(id)}
	}
	ret := r.reader.lib.GpmMetricsGet(get)
	get.Sample1, get.Sample2 = nil, nil
	if !r.ok("GPM metrics", ret) {
		return nil
	}
	values := make([]Value, len(r.reader.metricIDs))
	for i, id := range r.reader.metricIDs {
		if m := get.Metrics[i]; r.ok("GPM metric", nvml.Return(m.NvmlReturn)) {
			values[i] = measured(id, m.Value)
		}
	}
	return values
}

// measured is a metric's value, unless it cannot be true.
func measured(id nvml.GpmMetricId, value float64) Value {
	if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
		return Value{}
	}
	if isPercentage(id) {
		if value > highestPercentage {
			return Value{}
		}
		value = min(value, 100)
	}
	return Value{Number: value, Present: true}
}

// isPercentage tells percentages from rates (nvml.h).
func isPercentage(id nvml.GpmMetricId) bool { return id < nvml.GPM_METRIC_PCIE_TX_PER_SEC }
