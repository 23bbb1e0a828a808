package main

import (
	"cmp"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/bench/report"
)

// Everything is measured on a small cluster, as it is on a large one.
func TestMeasurements(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	b := &bench{
		size: size{nodes: 40, pods: 120, turns: 1, stockNodes: 10, stockPods: 30, stockLimit: time.Minute}, root: root, profiles: t.TempDir(),
		cache: cmp.Or(os.Getenv("ALIQUOT_KUBE_CACHE"), filepath.Join(root, "build", "kube")), state: "/var/lib/aliquot-e2e-placing",
	}
	if err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"bare_per_second", "bare_writers/1", "bare_writers/2", "bare_per_second/1", "bare_per_second/2", "bound_per_second", "bound_per_second/1", "bound_per_second_vs_bare", "bare_cpu_per_pod", "cpu_per_pod", "cpu_per_pod/scheduler", "bare_cpu_over_ours", "start_to_all_seen", "creation_to_bound_p50",
		"creation_to_bound_p99", "scheduler_memory_peak", "restart_to_first_decision", "killed_to_first_decision", "stock_bound_per_second@10_nodes",
		"stock_bound@10_nodes", "replayed_steps", "bound_per_second@10_nodes",
	} {
		i := slices.IndexFunc(b.Metrics, func(m report.Metric) bool { return m.Metric == name })
		if i < 0 || b.Metrics[i].Value <= 0 {
			t.Errorf("%s is not measured: %+v", name, b.Metrics)
		}
	}
	if i := slices.IndexFunc(b.Metrics, func(m report.Metric) bool { return m.Metric == "replay_differs" }); i < 0 || !b.Metrics[i].OK {
		t.Errorf("the simulator does not decide as the scheduler did: %+v", b.Metrics)
	}
	if b.Part == "" {
		t.Error("a small run says that it is the whole")
	}
	for _, name := range []string{"kube-cpu.pprof", "kube-heap.pprof"} {
		if kept, err := os.Stat(filepath.Join(b.profiles, name)); err != nil || kept.Size() == 0 {
			t.Errorf("the profile %s is not kept: %v", name, err)
		}
	}
}

// Each turn of our scheduler is compared with the mean of the bare loop before and after it.
func TestCompare(t *testing.T) {
	b := &bench{
		size: size{pods: 10}, bares: []written{{rate: 100, cpu: 8}, {rate: 300, cpu: 4}, {rate: 100, cpu: 8}},
		drains: []drained{{rate: 160, cpu: 100}, {rate: 200, cpu: 60}},
	}
	b.compare()
	for name, want := range map[string]float64{"bound_per_second_vs_bare": 0.9, "bare_cpu_over_ours": 0.8, "bound_per_second": 180} {
		i := slices.IndexFunc(b.Metrics, func(m report.Metric) bool { return m.Metric == name })
		if i < 0 || math.Abs(b.Metrics[i].Value-want) > 1e-9 {
			t.Errorf("%s should be %g: %+v", name, want, b.Metrics)
		}
	}
}
