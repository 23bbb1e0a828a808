package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/bench/judge"
	"github.com/aliquot-dev/aliquot/bench/report"
)

func wholeRun() bench {
	return bench{repeats: wholeRepeats, wakes: wholeWakes, tries: wholeTries, burst: wholeBurst, window: wholeWindow, bare: wholeBare, only: regexp.MustCompile("")}
}

// A run that measures less of anything is one of a part, and says by what.
func TestPart(t *testing.T) {
	for want, less := range map[string]func(*bench){
		"":                            func(*bench) {},
		"-only idle":                  func(b *bench) { b.only = regexp.MustCompile("idle") },
		"-repeats 1 of 5":             func(b *bench) { b.repeats = 1 },
		"-wakes 300 of 2000":          func(b *bench) { b.wakes = 300 },
		"-tries 8 of 20000":           func(b *bench) { b.tries = 8 },
		"-burst 10 of 1000":           func(b *bench) { b.burst = 10 },
		"-bare 0 of 1":                func(b *bench) { b.bare = 0 },
		"-window 1s of 10s":           func(b *bench) { b.window = time.Second },
		"-only run$, -repeats 2 of 5": func(b *bench) { b.only, b.repeats = regexp.MustCompile("run$"), 2 },
	} {
		b := wholeRun()
		less(&b)
		if got := b.part(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	more := wholeRun()
	more.repeats, more.bare = 7, 5
	if got := more.part(); got != "" {
		t.Errorf("more than the whole is %q", got)
	}
}

// Every set of saturating tenants is measured with kernels of every length and graphs, on both devices, and no two have one name.
func TestScenarios(t *testing.T) {
	names := map[string]bool{}
	count := map[string]int{}
	for _, s := range scenarios() {
		if names[s.Name] {
			t.Errorf("two are called %s", s.Name)
		}
		names[s.Name] = true
		count[s.device]++
		switch {
		case s.first:
			count["first"]++
		case s.Waits():
			count["waits"]++
		case s.Partial():
			count["partial"]++
		}
		floors := 0
		for _, tenant := range s.Tenants {
			floors += int(tenant.Compute.Floor)
			if tenant.Demand < 1 || tenant.Launch() <= 0 {
				t.Errorf("%s: %+v", s.Name, tenant)
			}
		}
		if floors > 1000 {
			t.Errorf("%s: floors of %d", s.Name, floors)
		}
	}
	if count[switchingDevice] != 18 || count["first"] != 20 || count["waits"] != 4 || count["partial"] != 4 || count[plainDevice] != 33 {
		t.Errorf("%v", count)
	}
	for _, want := range []string{"8 x graphs of 10ms", "8 x graphs of 10ms, switches of 100µs", "2 x mixed, switches of 100µs", "8 x 500µs, weights"} {
		if !names[want] {
			t.Errorf("there is no %s", want)
		}
	}
	if got := judge.GraphsOf10ms(judge.Shares[0]).Tenants[0].Launch(); got != 10*time.Millisecond {
		t.Errorf("a graph of %v", got)
	}
}

// Each goal is held against the scenarios that it is about, and the worst of them stands.
func TestReportShares(t *testing.T) {
	good := judge.Verdict{ShareError: 0.5, MeasuredError: 0.5, Overshoot: 0.1, Busy: 99.5, MeasuredBusy: 99.5}
	bad := judge.Verdict{ShareError: 1.5, MeasuredError: 1.6, Overshoot: 0.7, Busy: 97.5, MeasuredBusy: 97.5, Missed: 0.6, Lost: 0.7, Switching: 3}
	saturated := scenario{Set: judge.Equal(judge.Shares[0], judge.Kernels[1])}
	saturated.first = true
	for name, c := range map[string]struct {
		outcomes []outcome
		missed   []string
	}{
		"all well": {[]outcome{{scenario: saturated, with: good}}, nil},
		"the strict goals are missed": {
			[]outcome{{scenario: saturated, with: good}, {scenario: saturated, with: bad, arbiter: 5.5}},
			[]string{"share_error_strict", "ceiling_overshoot_strict", "device_busy_strict", "arbiter_contended_strict"},
		},
		"of demand that is measured": {
			[]outcome{{scenario: scenario{Set: judge.HalfIdle(judge.Shares[0], judge.Kernels[1])}, with: bad}},
			[]string{"share_error_partial", "ceiling_overshoot_strict", "device_busy_strict"},
		},
		"beside one that waits": {
			[]outcome{{scenario: scenario{Set: judge.OneWaits(judge.Shares[0], judge.Kernels[1])}, with: bad}},
			[]string{"floor_missed", "neighbours_lost", "ceiling_overshoot_strict"},
		},
		"of a burst": {
			[]outcome{
				{scenario: saturated, with: good},
				{scenario: saturated, with: good, beyond: judge.Beyond{Used: 51 * time.Millisecond, Allowed: 50 * time.Millisecond, Window: time.Second}},
				{scenario: saturated, with: good, beyond: judge.Beyond{Used: time.Millisecond, Allowed: 50 * time.Millisecond, Window: time.Second}},
			},
			[]string{"burst_used"},
		},
		"all": {
			[]outcome{{scenario: saturated, with: judge.Verdict{ShareError: 3, Overshoot: 2, Busy: 90, MeasuredBusy: 99}, arbiter: 7}},
			[]string{"share_error", "ceiling_overshoot", "device_busy", "arbiter_contended", "share_error_strict", "ceiling_overshoot_strict", "arbiter_contended_strict"},
		},
	} {
		b := wholeRun()
		b.outcomes = c.outcomes
		var r report.Report
		b.reportShares(&r)
		var missed []string
		for _, m := range r.Metrics {
			if !m.OK {
				word, _, _ := strings.Cut(m.Metric, ",")
				word, _, _ = strings.Cut(word, " ")
				missed = append(missed, word)
			}
		}
		if !slices.Equal(missed, c.missed) {
			t.Errorf("%s: missed %v, want %v", name, missed, c.missed)
		}
	}
	var r report.Report
	b := wholeRun()
	if b.reportShares(&r); len(r.Metrics) != 0 {
		t.Errorf("of nothing: %v", r.Metrics)
	}
}
