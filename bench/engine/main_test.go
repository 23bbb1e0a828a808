package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/bench/report"
)

// small is the same on a fleet that any machine decides about in no time.
var small = size{
	nodes: 30, shapes: 127, decisions: 400, gang: 48, gangTimes: 10, reclaimNodes: 20, reclaimDevices: 16,
	waiting: 300, submits: 50, growth: []int{15}, perNodes: []int{1, 16}, growthSteps: 200, backlogs: []int{100},
}

// Every measurement goes through on a small fleet and gives its figures: the fleets, lines and gangs are what they are said to be, or
// it would end with an error.
func TestMeasurements(t *testing.T) {
	b := &bench{size: small}
	if err := b.run(""); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"decisions_per_second", "decisions_per_second/1_shape", "decisions_per_second/all_placed", "idle_step", "idle_step@1000_waiting",
		"impossible_gang_48/fragments", "impossible_gang_48/class", "impossible_gang_48/priority", "reclaim_16@20_nodes",
		"submit_to_decision_p99", "submit_to_decision_p50", "end_to_decision_p99", "memory_per_running_task",
		"growth/decisions_per_second@15_nodes", "growth/decisions_per_second@1_devices", "growth/decisions_per_second@16_devices", "growth/submit_p99@100_waiting",
	} {
		i := slices.IndexFunc(b.Metrics, func(m report.Metric) bool { return m.Metric == name })
		if i < 0 || b.Metrics[i].Value <= 0 || b.Metrics[i].Unit == "" {
			t.Errorf("%s is not measured: %+v", name, b.Metrics)
		}
	}
	if b.Part != "" {
		t.Errorf("the whole benchmark says that it is a part: %s", b.Part)
	}
}

func TestOneMeasurementAlone(t *testing.T) {
	b := &bench{size: small}
	if err := b.run("reclaim"); err != nil || len(b.Metrics) != 1 || b.Part == "" {
		t.Errorf("reclaim alone: %v, part %q, %+v", err, b.Part, b.Metrics)
	}
	if err := b.run("luck"); err == nil || !strings.Contains(err.Error(), "luck") {
		t.Errorf("a measurement that there is not: %v", err)
	}
}
