package controller

import (
	"crypto/tls"

	"github.com/prometheus/client_golang/prometheus"
)

// What the controller sees to, as metrics have it.
const (
	ofTemplates   = "templates"
	ofCertificate = "certificate"
	ofConditions  = "conditions" // of queues and the policy
)

// Metrics are what the controller counts; nil counts nothing. Of several controllers the one that works has the certificate.
type Metrics struct {
	leading   prometheus.Gauge
	failures  *prometheus.CounterVec // by what it sees to
	templates *prometheus.CounterVec // by what became of them
	ends      *prometheus.GaugeVec   // without a value until it has seen the certificate
}

// NewMetrics are those of a controller that does not work yet.
func NewMetrics() *Metrics {
	counts := func(name, label, help string, values ...string) *prometheus.CounterVec {
		all := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		for _, value := range values {
			all.WithLabelValues(value)
		}
		return all
	}
	return &Metrics{
		leading:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "aliquot_controller_leading", Help: "1 where this controller is the one of several that works."}),
		failures:  counts("aliquot_controller_failures_total", "of", "What could not be seen to, and was tried again.", ofTemplates, ofCertificate, ofConditions),
		templates: counts("aliquot_controller_templates_total", "done", "Templates of claims, by what was done with them.", "made", "replaced", "removed"),
		ends: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "aliquot_controller_certificate_end_timestamp_seconds", Help: "When the certificate ends that the webhook is to show.",
		}, nil),
	}
}

// Leads says whether this controller is the one that works.
func (m *Metrics) Leads(it bool) {
	m.leading.Set(0)
	if it {
		m.leading.Set(1)
	}
}

func (m *Metrics) failed(of string) {
	if m != nil {
		m.failures.WithLabelValues(of).Inc()
	}
}

func (m *Metrics) did(done string) {
	if m != nil {
		m.templates.WithLabelValues(done).Inc()
	}
}

// shown takes note of the certificate that the webhook is to show.
func (m *Metrics) shown(one identity) {
	if m == nil {
		return
	}
	if pair, err := tls.X509KeyPair(one.certificate, one.key); err == nil {
		m.ends.WithLabelValues().Set(float64(pair.Leaf.NotAfter.Unix()))
	}
}

// Describe and Collect make it one collector of all of them.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, one := range []prometheus.Collector{m.leading, m.failures, m.templates, m.ends} {
		one.Describe(to)
	}
}

func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, one := range []prometheus.Collector{m.leading, m.failures, m.templates, m.ends} {
		one.Collect(to)
	}
}
