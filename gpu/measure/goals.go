package main

import (
	"fmt"
	"strings"
)

// goal is one of the goals that Aliquot is held to, and what this run found. It is judged once, from one run; a figure that is to be
// quoted is the worst of several.
type goal struct {
	Name  string   `json:"name"`
	Unit  string   `json:"unit"`
	Goal  float64  `json:"goal"`
	Least bool     `json:"least"`           // the goal is the least that will do, not the most
	Value *float64 `json:"value,omitempty"` // nil: not measured
	OK    *bool    `json:"ok,omitempty"`
}

// number finds a figure of a step by its names, one within the other.
func number(steps []result, step string, names ...string) *float64 {
	for _, s := range steps {
		if s.Part+" "+s.Name != step {
			continue
		}
		var at any = map[string]any(s.Figures)
		for _, name := range names {
			switch within := at.(type) {
			case map[string]any:
				at = within[name]
			case figures:
				at = within[name]
			default:
				return nil
			}
		}
		if value, ok := at.(float64); ok {
			return &value
		}
	}
	return nil
}

// combine computes with figures that were all measured.
func combine(f func(...float64) float64, of ...*float64) *float64 {
	var values []float64
	for _, each := range of {
		if each == nil {
			return nil
		}
		values = append(values, *each)
	}
	value := f(values...)
	return &value
}

func difference(v ...float64) float64 { return v[0] - v[1] }
func ratio(v ...float64) float64      { return v[0] / v[1] }

// goals judges a run.
func goals(steps []result) []goal {
	var all []goal
	add := func(name, unit string, least bool, bound float64, value *float64) {
		g := goal{Name: name, Unit: unit, Goal: bound, Least: least, Value: value}
		if value != nil {
			ok := *value <= bound
			if least {
				ok = *value >= bound
			}
			g.OK = &ok
		}
		all = append(all, g)
	}
	for _, name := range []string{"2 tenants", "4 tenants", "2 tenants, graphs"} {
		step := "share " + name
		add("share_error, "+name, "points", false, 1, number(steps, step, "share_error_points"))
		add("ceiling_overshoot, "+name, "points", false, 0.5, number(steps, step, "over_a_ceiling_points"))
		add("sum of all, "+name, "% of one alone", true, 98, number(steps, step, "least_sum_points"))
	}
	add("give_back_p99 beside kernels of 500 µs", "ms", false, 2.5, number(steps, "share give-back", "shared_gate_p99_ms"))
	bare := number(steps, "probe launch", "launch_p50_ns")
	add("a launch, gate open, over none", "ns", false, 50, combine(difference, number(steps, "share probe launch", "launch_p50_ns"), bare))
	add("an allocation over none", "ns", false, 200,
		combine(difference, number(steps, "share probe alloc", "alloc_ns"), number(steps, "probe alloc", "alloc_ns")))
	add("throughput alone", "% of bare", true, 99.5, number(steps, "share alone", "gated_part_of_bare_percent"))
	for _, mode := range []string{eager, graphs} {
		add("training alone, "+mode, "% of bare", true, 99.5, number(steps, "torch training alone, "+mode, "share_0.5..1_percent_of_bare"))
		alone, beside := "torch inference alone, "+mode, "torch beside each other, "+mode
		add("inference p99 beside training, "+mode, "× alone", false, 1.05,
			combine(ratio, number(steps, beside, "shared_inference", "p99_ms"), number(steps, alone, "bare", "p99_ms")))
		// What inference leaves: its requests, each as long as it takes alone.
		rest := combine(func(v ...float64) float64 { return 100 * v[0] / (100 * (1 - v[1]*v[2]/1e3)) },
			number(steps, beside, "shared_training_percent_of_alone"), number(steps, alone, "bare", "rate_per_s"), number(steps, alone, "bare", "service_ms"))
		add("training beside inference, "+mode, "% of the rest", true, 90, rest)
	}
	return all
}

// goalTable is the goals as text.
func goalTable(all []goal) string {
	var b strings.Builder
	for _, g := range all {
		sign, verdict, value := "≤", "not measured", "-"
		if g.Least {
			sign = "≥"
		}
		if g.Value != nil {
			value, verdict = fmt.Sprintf("%.2f", *g.Value), "reached"
		}
		if g.OK != nil && !*g.OK {
			verdict = "missed"
		}
		fmt.Fprintf(&b, "    %-42s %10s  %s %-6g %-16s %s\n", g.Name, value, sign, g.Goal, g.Unit, verdict)
	}
	return b.String()
}
