package main

import (
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/host/sim"
)

// Shared devices have goals, those of jobs of their own stand beside; and the same jobs do at least twice as much of use on shared ones.
func TestSharingMetrics(t *testing.T) {
	b := bench{ctx: t.Context()}
	if err := b.shared(sim.MadeSharing(1), 1, "made", true); err != nil {
		t.Fatal(err)
	}
	value := map[string]float64{}
	var goals []string
	for _, m := range b.Metrics {
		value[m.Metric] = m.Value
		if m.Goal != "" {
			goals = append(goals, m.Metric)
		}
	}
	if got := strings.Join(goals, " "); got != "made/useful made/useful_worst made/floors_missed made/slowed made/serving/useful made/serving/useful_worst made/serving/floors_missed made/serving/slowed" {
		t.Errorf("goals have %s", got)
	}
	if value["made/useful"] < 2*value["made/own/useful"] || value["made/serving/served"] < value["made/served"] || value["made/useful_worst"] > value["made/useful"] || value["made/useful_worst"] == 0 || value["made/ended"] < value["made/own/ended"] {
		t.Errorf("the figures are %v", value)
	}
}
