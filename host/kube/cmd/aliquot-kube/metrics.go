package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// serveMetrics serves metrics and whether the program is ready, which it is from now on, until what it returns is closed; and Go's profiles
// where that is asked for.
func serveMetrics(address string, profiles bool, ours prometheus.Collector, log *slog.Logger) (io.Closer, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve metrics at %s: %w", address, err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(ours, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	routes := http.NewServeMux()
	routes.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	routes.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	if profiles {
		routes.HandleFunc("GET /debug/pprof/", pprof.Index)
		routes.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	}
	server := &http.Server{Handler: routes, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics are not served any more", "error", err)
		}
	}()
	return server, nil
}
