package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

func TestParseAsked(t *testing.T) {
	got, err := parseAsked("trainer: 3 kernels queued after 0.1 s\nasked 1000 0\nasked 3000 500\nasked 40")
	if err != nil || !slices.Equal(got, []asked{{1000, 0}, {3000, 500}}) {
		t.Errorf("%v, %v", got, err)
	}
	for at, want := range map[time.Duration]time.Duration{1000: 0, 2000: 250, 3000: 500} {
		if total, ok := until(got, at); !ok || total != want {
			t.Errorf("by %v: %v, %v", at, total, ok)
		}
	}
	for _, at := range []time.Duration{0, 999, 3001} {
		if total, ok := until(got, at); ok {
			t.Errorf("by %v: %v", at, total)
		}
	}
	for _, printed := range []string{"asked x 1\n", "asked 1\n", "asked 1 5\nasked 1 6\n", "asked 1 5\nasked 2 4\n"} {
		if got, err := parseAsked(printed); err == nil {
			t.Errorf("%q is taken for %v", printed, got)
		}
	}
}

func TestParseWakeUps(t *testing.T) {
	got, err := parseWakeUps("1 2 3 4 5 6 7\n7 8 9 -1 0 0 0\n", 2)
	if err != nil || !slices.Equal(got, []wakeUp{{1, 2, 3, 4, 5, 6, 7}, {7, 8, 9, -1, 0, 0, 0}}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, printed := range []string{"", "1 2 3 4 5 6 7\n", "1 2 3 4 5 6\n1 2 3 4 5 6 7\n", "1 2 3 4 5 6 7\nstopped\n"} {
		if got, err := parseWakeUps(printed, 2); err == nil {
			t.Errorf("%q is taken for %v", printed, got)
		}
	}
}

// The worst repeat stands, for each figure.
func TestGiveBack(t *testing.T) {
	var g giveBack
	wakes := func(gate, lease time.Duration) []wakeUp {
		all := make([]wakeUp, 100)
		for i := range all {
			all[i] = wakeUp{gate: gate, lease: lease, done: gate + ms}
		}
		all[99] = wakeUp{gate: 30 * ms, lease: 5 * ms, done: 31 * ms}
		return all
	}
	g.add(wakes(3*ms, ms), ms)
	g.add(wakes(2*ms, 2*ms), ms)
	want := giveBack{wakes: 200, p50: 3 * ms, p99: 3 * ms, most: 30 * ms, leaseP99: 2 * ms, leaseMost: 5 * ms, doneP99: 4 * ms, outliers: 2}
	if g != want {
		t.Errorf("got %+v, want %+v", g, want)
	}
}

func TestExplain(t *testing.T) {
	const kernel = ms / 2
	for because, w := range map[string]wakeUp{
		"the machine stood still":                        {gate: 15 * ms, lease: 15 * ms, still: 13 * ms, arbiter: 13 * ms},
		"the arbiter waited for a CPU":                   {gate: 15 * ms, lease: 15 * ms, still: ms, arbiter: 12 * ms},
		"the lease was there, and the program waited":    {gate: 15 * ms, lease: ms, still: ms, arbiter: ms},
		"a neighbour or the simulated driver waited":     {gate: 10 * ms, lease: 10 * ms, still: ms, arbiter: ms, others: 9 * ms},
		"nothing of that says why: the arbiter chose":    {gate: 15 * ms, lease: 14 * ms, still: ms, arbiter: ms},
		"14.5ms of it beyond a kernel of 500µs; 14ms to": {gate: 15 * ms, lease: 14 * ms},
	} {
		if got := w.explain(kernel); !strings.Contains(got, because) {
			t.Errorf("%+v: %s; want %s", w, got, because)
		}
	}
	wakes := []wakeUp{{gate: 9 * ms}, {gate: 21 * ms}, {gate: 22 * ms}, {gate: 23 * ms, lease: 23 * ms}}
	got := explainAll(wakes, 20*ms)
	if len(got) != 2 || !strings.HasPrefix(got[0], "wake-up 4: 23ms") || !strings.HasPrefix(got[1], "2 wake-ups took more than 10ms") {
		t.Errorf("%q", got)
	}
	if got := explainAll(wakes, kernel); len(got) != 3 {
		t.Errorf("%q", got)
	}
}

func TestParseCalls(t *testing.T) {
	const printed = "a launch: 37.2 ns without the shim, +41.5 ns with the gate open, -0.4 ns ungated (on average 37.5, +44.0, +0.1)\nan allocation with its free: 80.1 ns without the shim, +113.0 ns with it\nmedians\n"
	if got, err := parseCalls(printed); err != nil || got != (callCosts{37.2, 41.5, -0.4, 80.1, 113}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, printed := range []string{"", "a launch: 37 ns\n", strings.Replace(printed, "+113.0", "x", 1)} {
		if got, err := parseCalls(printed); err == nil {
			t.Errorf("%q is taken for %+v", printed, got)
		}
	}
}

func TestParseRaced(t *testing.T) {
	if got, err := parseRaced("a word\nracer: 20000 tries by 8 processes, 312 refused\n"); err != nil || got != (raced{20000, 312}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, printed := range []string{"", "racer: 20000 tries by 7 processes, 312 refused\n", "racer: x tries by 8 processes, 312 refused\n"} {
		if got, err := parseRaced(printed); err == nil {
			t.Errorf("%q is taken for %+v", printed, got)
		}
	}
}
