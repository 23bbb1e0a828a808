package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/tools/leaderelection"
)

// monitor is what others see of a program: its metrics (/metrics), whether it is ready (/readyz) and whether it still works (/livez).
type monitor struct {
	registry *prometheus.Registry
	ready    atomic.Bool
	alive    atomic.Pointer[func() error] // says what the program is stuck at; nil: that it answers is all there is to know
	server   *http.Server
	log      *slog.Logger
}

// newMonitor is one with Go's and the process' own metrics, and Go's profiles where these are asked for. Its program is not ready.
func newMonitor(profiles bool, log *slog.Logger) *monitor {
	m := &monitor{registry: prometheus.NewRegistry(), log: log}
	m.add(collectors.NewGoCollector())
	m.add(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "aliquot_build_info", Help: "1, with the version of Aliquot that this program is of.", ConstLabels: prometheus.Labels{"version": version}})
	build.Set(1)
	m.add(build)
	routes := http.NewServeMux()
	routes.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	routes.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !m.ready.Load() {
			http.Error(w, "it starts", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	routes.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		if alive := m.alive.Load(); alive != nil {
			if err := (*alive)(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		fmt.Fprintln(w, "ok")
	})
	if profiles {
		routes.HandleFunc("GET /debug/pprof/", pprof.Index)
		routes.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	}
	m.server = &http.Server{Handler: routes, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	return m
}

// add has it serve more metrics.
func (m *monitor) add(more prometheus.Collector) { m.registry.MustRegister(more) }

// serve serves at an address until Close; an empty one: nowhere.
func (m *monitor) serve(address string) error {
	if address == "" {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve metrics at %s: %w", address, err)
	}
	go func() {
		if err := m.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			m.log.Error("metrics are not served any more", "error", err)
		}
	}()
	return nil
}

// renews watches a leader: one that does not lead any more and has not noticed for a while is stuck.
func (m *monitor) renews() *leaderelection.HealthzAdaptor {
	watched := leaderelection.NewLeaderHealthzAdaptor(20 * time.Second)
	alive := func() error { return watched.Check(nil) }
	m.alive.Store(&alive)
	return watched
}

// Close ends it.
func (m *monitor) Close() error { return m.server.Close() }
