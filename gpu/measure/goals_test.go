package main

import (
	"slices"
	"strings"
	"testing"
)

func TestGoals(t *testing.T) {
	steps := []result{
		{Part: "share", Name: "4 x 500µs", Figures: figures{"share_error_points": 0.6, "over_a_ceiling_points": 0.7, "device_busy_percent": 98.5}},
		{Part: "share", Name: "8 x mixed", Figures: figures{"share_error_points": 0.9, "over_a_ceiling_points": 0.1, "device_busy_percent": 99.}},
		{Part: "share", Name: "cost of a launch", Figures: figures{"gated_launch_p50_ns": 1540., "gated_launch_more_p50_ns": 40.}},
		{Part: "torch", Name: "training alone, graphs", Figures: figures{"bare_steps_per_s": 250.}},
		{Part: "torch", Name: "inference alone, graphs", Figures: figures{"bare": figures{"p99_ms": 1., "rate_per_s": 100., "service_ms": 2.}}},
		{Part: "torch", Name: "beside each other, graphs", Figures: figures{
			"shared_inference": figures{"p99_ms": 6.5}, "shared_training_percent_of_alone": 68.4, "switching_percent": 8.,
		}},
		{Part: "torch", Name: "training alone, eager", Figures: figures{"bare_steps_per_s": 500.}},
		{Part: "torch", Name: "inference alone, eager", Figures: figures{"bare": figures{"p99_ms": 4., "rate_per_s": 100., "service_ms": 2.}}},
		{Part: "torch", Name: "beside each other, eager", Figures: figures{
			"shared_inference": figures{"p99_ms": 8.5}, "shared_training_percent_of_alone": 68.4,
		}},
	}
	for name, want := range map[string]struct {
		value, goal float64
		ok          bool
	}{
		"share_error, saturating":        {0.9, 1, true},
		"ceiling_overshoot":              {0.7, 0.5, false},
		"device_busy":                    {98.5, 98, true},
		"a launch, gate open, over none": {40, 50, true},
		"its inference p99 beside training, over alone, graphs": {5.5, 6, true},  // a step is a launch of 4 ms
		"its inference p99 beside training, over alone, eager":  {4.5, 4, false}, // and here one of 2 ms at most
		"its training beside inference, graphs":                 {95, 90, true},  // 68.4 of the 72 that 100 requests of 2 ms and the changes leave
		"its training beside inference, eager":                  {85.5, 90, false},
	} {
		found := false
		for _, g := range goals(steps) {
			if g.Name != name {
				continue
			}
			found = true
			if g.Value == nil || g.OK == nil || *g.Value < want.value-1e-6 || *g.Value > want.value+1e-6 || *g.OK != want.ok || g.Goal != want.goal {
				t.Errorf("%s: %+v, want %v", name, g, want)
			}
		}
		if !found {
			t.Errorf("no goal %s", name)
		}
	}
	for _, g := range goals(slices.Delete(slices.Clone(steps), 6, 7)) { // without how long a step takes, what a request may wait for is not known
		if strings.HasSuffix(g.Name, "over alone, eager") && (g.Value != nil || g.OK != nil) {
			t.Errorf("%s was judged without a step: %+v", g.Name, g)
		}
	}
	for _, g := range goals(nil) {
		if g.Value != nil || g.OK != nil {
			t.Errorf("%s was judged without a figure", g.Name)
		}
	}
	if table := goalTable(goals(steps)); !strings.Contains(table, "missed") || !strings.Contains(table, "not measured") || !strings.Contains(table, "judged by the worst of 2: 8 x mixed") {
		t.Errorf("the table:\n%s", table)
	}
}
