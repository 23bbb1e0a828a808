package scheduler

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/aliquot-dev/aliquot/engine"
)

// metrics are what the scheduler counts.
type metrics struct {
	all       []prometheus.Collector
	decisions prometheus.Counter
	bound     prometheus.Counter
	refused   prometheus.Counter
	evicted   *prometheus.CounterVec // by reason
	spared    *prometheus.CounterVec // by cause
	deciding  prometheus.Histogram
	waits     atomic.Int64
	classes   atomic.Int64
	stuck     atomic.Int64
	leads     atomic.Int64 // 1 while it schedules
}

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "aliquot", Subsystem: "scheduler", Name: name, Help: help})
	}
	by := func(name, label, help string, values ...string) *prometheus.CounterVec {
		all := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "aliquot", Subsystem: "scheduler", Name: name, Help: help}, []string{label})
		for _, value := range values {
			all.WithLabelValues(value)
		}
		return all
	}
	m := &metrics{
		evicted:   by("evicted_total", "reason", "Pods that were evicted for others.", engine.EvictReclaim, engine.EvictPreempt, engine.EvictPool, engine.EvictBackfill, evictPriority),
		spared:    by("evictions_refused_total", "cause", "Workloads that were to be evicted and were not.", causePod, causeBudget, causeGang, causeAPI, causeGone),
		decisions: counter("decisions_total", "Places that the engine has chosen for workloads."),
		bound:     counter("bound_total", "Pods that were bound."),
		refused:   counter("refused_total", "Places that were not taken, because the node refused them or they could not be written."),
		deciding: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "aliquot", Subsystem: "scheduler", Name: "decision_seconds", Help: "How long the engine took for an event and what follows from it.",
			Buckets: prometheus.ExponentialBuckets(1e-6, 4, 12),
		}),
	}
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "aliquot", Subsystem: "scheduler", Name: "waiting", Help: "Pods that are to be placed and were not yet.",
	}, func() float64 { return float64(m.waits.Load()) })
	classes := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "aliquot", Subsystem: "scheduler", Name: "classes", Help: "Classes of pods by the nodes that they may use, of which it is known which these are.",
	}, func() float64 { return float64(m.classes.Load()) })
	stuck := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "aliquot", Subsystem: "scheduler", Name: "stuck",
		Help: "Pods for which a write that must be done is refused again and again: their binding, where others of their gang run already, or that their claims are taken back.",
	}, func() float64 { return float64(m.stuck.Load()) })
	leading := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "aliquot", Subsystem: "scheduler", Name: "leading", Help: "1 where this scheduler is the one of several that schedules, and has seen what there is in the cluster.",
	}, func() float64 { return float64(m.leads.Load()) })
	m.all = []prometheus.Collector{m.decisions, m.bound, m.refused, m.evicted, m.spared, m.deciding, waiting, classes, stuck, leading}
	return m
}

// Describe and Collect make it one collector of all of them.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, one := range m.all {
		one.Describe(to)
	}
}

func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, one := range m.all {
		one.Collect(to)
	}
}

// Metrics are what the scheduler counts.
func (s *Scheduler) Metrics() prometheus.Collector { return s.metrics }
