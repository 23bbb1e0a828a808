package webhook

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What became of a review, as metrics have it.
const (
	asItIs  = "unchanged"
	patched = "changed"
	refused = "refused"
	failed  = "failed" // it could not be found out, and the pod is not made
)

// Why pods are refused, as metrics have it.
const (
	badAnnotations = "annotations" // they ask for nothing that can be had
	badLimits      = "limits"      // of whole devices
	badWays        = "ways"        // devices asked for in two of them
	badNode        = "node"        // that the pod names itself
	badClaims      = "claims"      // that its containers cannot be held to
	badQueue       = "queue"       // that it may not use, or asks more of than it gives
	badPod         = "pod"         // that cannot be read
)

// metrics are what the webhook counts.
type metrics struct {
	reviews  *prometheus.CounterVec // by result
	refusals *prometheus.CounterVec // by reason
	taking   prometheus.Histogram
}

func newMetrics() *metrics {
	counts := func(name, label, help string, values ...string) *prometheus.CounterVec {
		all := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		for _, value := range values {
			all.WithLabelValues(value)
		}
		return all
	}
	return &metrics{
		reviews:  counts("aliquot_webhook_reviews_total", "result", "Pods that the API server asked about, by what became of them.", asItIs, patched, refused, failed),
		refusals: counts("aliquot_webhook_refused_total", "reason", "Pods that were refused.", badAnnotations, badLimits, badWays, badNode, badClaims, badQueue, badPod),
		taking: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "aliquot_webhook_review_seconds", Help: "How long an answer to the API server took.", Buckets: prometheus.ExponentialBuckets(1e-4, 4, 9),
		}),
	}
}

// took counts one answer.
func (m *metrics) took(result, reason string, since time.Time) {
	m.reviews.WithLabelValues(result).Inc()
	if reason != "" {
		m.refusals.WithLabelValues(reason).Inc()
	}
	m.taking.Observe(time.Since(since).Seconds())
}

// Describe and Collect make it one collector of all of them.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	m.reviews.Describe(to)
	m.refusals.Describe(to)
	m.taking.Describe(to)
}

func (m *metrics) Collect(to chan<- prometheus.Metric) {
	m.reviews.Collect(to)
	m.refusals.Collect(to)
	m.taking.Collect(to)
}

// Metrics are what the webhook counts.
func (w *Webhook) Metrics() prometheus.Collector { return w.metrics }
