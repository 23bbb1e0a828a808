package main

import (
	"fmt"
	"strings"

	"github.com/aliquot-dev/aliquot/bench/judge"
)

// goal is one of the goals that Aliquot is held to, and what this run found: the worst of all measurements that are about it.
type goal struct {
	Name  string   `json:"name"`
	Unit  string   `json:"unit"`
	Goal  float64  `json:"goal"`
	Least bool     `json:"least"`           // the goal is the least that will do, not the most
	Value *float64 `json:"value,omitempty"` // nil: not measured
	OK    *bool    `json:"ok,omitempty"`
	Of    int      `json:"measurements"`    // that the worst was found in
	Where string   `json:"where,omitempty"` // that was, of several
}

// figure is what was measured, and how often.
type figure struct {
	value *float64
	of    int
	where string
}

// worst is the worst of a figure over all steps of a part that have it: the least where a goal is the least that will do.
func worst(steps []result, part string, least bool, names ...string) figure {
	var f figure
	for _, s := range steps {
		if s.Part != part {
			continue
		}
		value := number([]result{s}, s.Part+" "+s.Name, names...)
		if value == nil {
			continue
		}
		f.of++
		if f.value == nil || least && *value < *f.value || !least && *value > *f.value {
			f.value, f.where = value, s.Name
		}
	}
	return f
}

// once is a figure that is measured once, in a step of its own.
func once(value *float64) figure {
	if value == nil {
		return figure{}
	}
	return figure{value: value, of: 1}
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

// goals judges a run.
func goals(steps []result) []goal {
	var all []goal
	add := func(name, unit string, least bool, bound float64, f figure) {
		g := goal{Name: name, Unit: unit, Goal: bound, Least: least, Value: f.value, Of: f.of}
		if f.of > 1 {
			g.Where = f.where
		}
		if f.value != nil {
			ok := *f.value <= bound
			if least {
				ok = *f.value >= bound
			}
			g.OK = &ok
		}
		all = append(all, g)
	}
	atMost := func(name, unit string, bound float64, f figure) { add(name, unit, false, bound, f) }
	atLeast := func(name, unit string, bound float64, f figure) { add(name, unit, true, bound, f) }
	sets := func(least bool, name string) figure { return worst(steps, "share", least, name) }

	atMost("share_error, saturating", "points", 1, sets(false, "share_error_points"))
	atMost("share_error, of partial demand", "points", 1.5, sets(false, "share_error_of_demand_points"))
	atMost("floor missed beside one that waits", "points", 0.5, sets(false, "floor_missed_points"))
	atMost("neighbours lost beside one that waits", "points", 0.5, sets(false, "neighbour_lost_points"))
	atMost("ceiling_overshoot", "points", 0.5, sets(false, "over_a_ceiling_points"))
	atMost("burst over any window", "% of the stated + a launch", 100, sets(false, "burst_percent_of_stated"))
	atLeast("device_busy", "% of demand", 98, sets(true, "device_busy_percent"))
	atMost("share_error, switches apart", "points", 1, sets(false, "share_error_switches_apart_points"))
	atMost("share_error of partial demand, switches apart", "points", 1.5, sets(false, "share_error_of_demand_switches_apart_points"))
	atMost("neighbours lost beside one that waits, switches apart", "points", 0.5, sets(false, "neighbour_lost_switches_apart_points"))
	atLeast("device_busy, switches apart", "% of demand", 98, sets(true, "device_busy_switches_apart_percent"))
	atMost("arbiter, contended", "% of a core", 5, sets(false, "arbiter_percent_of_a_core"))
	atMost("arbiter, idle", "% of a core", 0.1, once(number(steps, "share arbiter idle", "percent_of_a_core")))
	atMost("give_back_p99 to the lease, 500 µs kernels", "ms", 2.5, once(number(steps, "share "+giveBackShort, "lease_p99_ms")))
	atMost("give_back_p99 to the lease, 20 ms kernels", "ms", 22, once(number(steps, "share "+giveBackLong, "lease_p99_ms")))
	atMost("inference p99 beside a trainer", "× alone", 1.05, once(number(steps, "share inference beside a trainer", "p99_over_alone")))
	atLeast("that trainer", "% of the rest", 90, once(number(steps, "share inference beside a trainer", "beside_trainer_percent_of_the_rest")))
	atMost("memory over a ceiling, pieces", "bytes", 0, once(number(steps, "share memory race", "pieces_over_ceiling_bytes")))
	atMost("memory over a ceiling, by NVML", "bytes", 0, once(number(steps, "share memory race", "nvml_processes_over_ceiling_bytes")))
	atMost("a launch, gate open, over none", "ns", 50, once(number(steps, "share cost of a launch", "gated_launch_more_p50_ns")))
	atMost("an allocation over none", "ns", 200, once(number(steps, "share cost of an allocation", "gated_alloc_more_p50_ns")))
	atLeast("throughput alone", "% of bare", 99.5, once(number(steps, "share alone", "gated_part_of_bare_percent")))
	for _, mode := range []string{graphs, eager} {
		atLeast("PyTorch training alone, "+mode, "% of bare", 99.5, once(number(steps, "torch training alone, "+mode, "gated_percent_of_bare")))
		alone, beside := "torch inference alone, "+mode, "torch beside each other, "+mode
		bound, waited := waiting(number(steps, "torch training alone, "+mode, "bare_steps_per_s"),
			number(steps, beside, "shared_inference", "p99_ms"), number(steps, alone, "bare", "p99_ms"))
		atMost("its inference p99 beside training, over alone, "+mode, "ms: 2 and a launch", bound, once(waited))
		rest := ofTheRest(number(steps, beside, "shared_training_percent_of_alone"), number(steps, alone, "bare", "rate_per_s"),
			number(steps, alone, "bare", "service_ms"), number(steps, beside, "switching_percent"))
		atLeast("its training beside inference, "+mode, "% of the rest", 90, once(rest))
	}
	return all
}

// waiting is what a request may take longer beside training than alone, in ms, and what it did at p99: a launch that runs is waited for, and it is
// given back within 2 ms then. With graphs a step is one launch; eager it is many, so that a step is more than the longest of them, and the bound
// too high rather than too low.
func waiting(stepsPerSecond, beside, alone *float64) (bound float64, waited *float64) {
	bound = judge.Allowance.Seconds() * 1e3
	if stepsPerSecond == nil {
		return bound, nil
	}
	return bound + 1e3 / *stepsPerSecond, combine(func(v ...float64) float64 { return v[0] - v[1] }, beside, alone)
}

// ofTheRest is what training got, in percent of what inference leaves of the device: its requests take as long as they do alone, and where it is
// known what part of the device the changes of leases took, that is nobody's.
func ofTheRest(training, requestsPerSecond, serviceMS, switching *float64) *float64 {
	if switching == nil {
		switching = new(float64)
	}
	return combine(func(v ...float64) float64 { return v[0] / (1 - v[1]*v[2]/1e3 - v[3]/100) }, training, requestsPerSecond, serviceMS, switching)
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("by the worst of %d", n)
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
		if g.Of > 0 {
			verdict += fmt.Sprintf(", judged %s", times(g.Of))
		}
		if g.Where != "" {
			verdict += ": " + g.Where
		}
		fmt.Fprintf(&b, "    %-54s %10s  %s %-5.4g %-26s %s\n", g.Name, value, sign, g.Goal, g.Unit, verdict)
	}
	return b.String()
}
