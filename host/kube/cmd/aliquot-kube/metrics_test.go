package main

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A program is ready once it says so, works until it says what it is stuck at, and its metrics are there all the while.
func TestMonitor(t *testing.T) {
	m := newMonitor(false, slog.New(slog.DiscardHandler))
	answers := func(path string, want int, words string) {
		t.Helper()
		said := httptest.NewRecorder()
		m.server.Handler.ServeHTTP(said, httptest.NewRequest(http.MethodGet, path, nil))
		if said.Code != want || !strings.Contains(said.Body.String(), words) {
			t.Errorf("%s answers %d: %s; want %d: %s", path, said.Code, said.Body, want, words)
		}
	}
	answers("/readyz", http.StatusServiceUnavailable, "it starts")
	answers("/livez", http.StatusOK, "ok")
	answers("/metrics", http.StatusOK, "go_goroutines")
	answers("/metrics", http.StatusOK, `aliquot_build_info{version="unknown"} 1`)
	answers("/debug/pprof/", http.StatusNotFound, "")
	m.ready.Store(true)
	answers("/readyz", http.StatusOK, "ok")
	stuck := func() error { return errors.New("a call has not been answered for 1h") }
	m.alive.Store(&stuck)
	answers("/livez", http.StatusServiceUnavailable, "not been answered for 1h")
	m.renews() // a scheduler or controller that does not lead is not stuck
	answers("/livez", http.StatusOK, "ok")
}
