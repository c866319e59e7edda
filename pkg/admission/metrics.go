package admission

import (
	"time"

	"k8s.io/component-base/metrics"
)

// Metrics are what the webhook tells Prometheus about itself.
type Metrics struct {
	Registry metrics.KubeRegistry

	reviews    *metrics.HistogramVec
	expiry     *metrics.Gauge
	renewals   *metrics.Counter
	syncErrors *metrics.Counter
}

// NewMetrics returns a set of metrics with a registry of its own.
func NewMetrics() *Metrics {
	m := &Metrics{
		Registry: metrics.NewKubeRegistry(),
		reviews: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Name: "apportion_webhook_review_duration_seconds", Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .5, 1, 5},
			Help: "Time to answer a review, by resource and result (allowed, denied, invalid).",
		}, []string{"resource", "result"}),
		expiry: metrics.NewGauge(&metrics.GaugeOpts{
			Name: "apportion_webhook_certificate_expiry_timestamp_seconds",
			Help: "When the certificate that the webhook serves with ends, in seconds since 1970; 0 while there is none.",
		}),
		renewals: metrics.NewCounter(&metrics.CounterOpts{
			Name: "apportion_webhook_certificate_writes_total",
			Help: "How often this replica has written new certificates to the Secret.",
		}),
		syncErrors: metrics.NewCounter(&metrics.CounterOpts{
			Name: "apportion_webhook_certificate_errors_total",
			Help: "Failures to read, renew or publish certificates; each is tried again.",
		}),
	}
	m.Registry.MustRegister(m.reviews, m.expiry, m.renewals, m.syncErrors)
	return m
}

// observeReview records a review; one that cannot be read has no resource. The
// resource is one of those that the webhook knows, so that nobody who reaches it
// can make it keep any number of labels.
func (m *Metrics) observeReview(resource, result string, started time.Time) {
	m.reviews.WithLabelValues(resource, result).Observe(time.Since(started).Seconds())
}
