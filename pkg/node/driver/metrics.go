package driver

import (
	"context"
	"net/url"
	"time"

	clientmetrics "k8s.io/client-go/tools/metrics"
	"k8s.io/component-base/metrics"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
)

// Metrics are what the driver tells Prometheus about itself.
type Metrics struct {
	Registry metrics.KubeRegistry

	operations    *metrics.HistogramVec
	phases        *metrics.HistogramVec
	devices       *metrics.GaugeVec
	publishErrors *metrics.CounterVec
	repairs       *metrics.CounterVec
	throttled     *metrics.Histogram
}

// durationBuckets are seconds, from 1 ms to the kubelet's 45 s.
var durationBuckets = []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 45}

// Label values.
const (
	reasonDroppedFields = "dropped_fields"
	reasonOther         = "other"
	kindDamagedRecord   = "damaged_record"
	kindRepaired        = "repaired"
)

// NewMetrics returns a set of metrics with a registry of its own.
func NewMetrics() *Metrics {
	m := &Metrics{
		Registry: metrics.NewKubeRegistry(),
		operations: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Name: "apportion_operation_duration_seconds", Buckets: durationBuckets,
			Help: "Time to prepare or unprepare one claim, by operation (prepare, unprepare) and result (success, error).",
		}, []string{"operation", "result"}),
		phases: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Name: "apportion_operation_phase_duration_seconds", Buckets: durationBuckets,
			Help: "Time of one phase of an operation (prepare, unprepare, repair), by result (success, error): lock (waiting for the claim and its GPUs), record (writing the claim's record), steps (what is done for the claim), undo (taking it back).",
		}, []string{"operation", "phase", "result"}),
		devices: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "apportion_devices",
			Help: "Devices of this node by type (gpu, mig) and state (healthy, unhealthy), and GPUs that are not offered (state skipped).",
		}, []string{"type", "state"}),
		publishErrors: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "apportion_publish_errors_total",
			Help: "Errors while publishing ResourceSlices, by reason (dropped_fields, other).",
		}, []string{"reason"}),
		repairs: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "apportion_journal_repairs_total",
			Help: "Claims whose record or CDI spec was put right, by kind (damaged_record, repaired).",
		}, []string{"kind"}),
		throttled: metrics.NewHistogram(&metrics.HistogramOpts{
			Name: "apportion_client_throttle_duration_seconds", Buckets: durationBuckets,
			Help: "Time that requests to the API server waited in the client's own rate limiter.",
		}),
	}
	m.Registry.MustRegister(m.operations, m.phases, m.devices, m.publishErrors, m.repairs, m.throttled)
	// Counters exist before the first event, so that a rate sees it.
	for _, reason := range []string{reasonDroppedFields, reasonOther} {
		m.publishErrors.WithLabelValues(reason)
	}
	for _, kind := range []string{kindDamagedRecord, kindRepaired} {
		m.repairs.WithLabelValues(kind)
	}
	return m
}

// ObserveClient makes client-go report the time its rate limiter costs. It
// affects the whole process.
func (m *Metrics) ObserveClient() {
	clientmetrics.Register(clientmetrics.RegisterOpts{RateLimiterLatency: throttle{m}})
}

type throttle struct{ *Metrics }

func (t throttle) Observe(_ context.Context, _ string, _ url.URL, d time.Duration) {
	t.throttled.Observe(d.Seconds())
}

func (m *Metrics) observeOperation(operation string, started time.Time, err error) {
	m.operations.WithLabelValues(operation, resultOf(err)).Observe(time.Since(started).Seconds())
}

func (m *Metrics) observePhase(operation, phase string, took time.Duration, err error) {
	m.phases.WithLabelValues(operation, phase, resultOf(err)).Observe(took.Seconds())
}

func resultOf(err error) string {
	if err != nil {
		return "error"
	}
	return "success"
}

func (m *Metrics) setDevices(model *devicemodel.Model) {
	m.devices.Reset()
	for _, state := range []string{"healthy", "unhealthy", "skipped"} {
		m.devices.WithLabelValues(devicemodel.TypeGPU, state).Set(0)
	}
	for _, d := range model.Devices {
		kind, state := devicemodel.TypeGPU, "healthy"
		if d.Name.IsPartition() {
			kind = devicemodel.TypeMIG
		}
		if d.Problem != "" {
			state = "unhealthy"
		}
		m.devices.WithLabelValues(kind, state).Inc()
	}
	m.devices.WithLabelValues(devicemodel.TypeGPU, "skipped").Set(float64(len(model.Skipped)))
}
