package judge

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

func TestParseAsked(t *testing.T) {
	got, err := ParseAsked("trainer: 3 kernels queued after 0.1 s\nasked 1000 0\nasked 3000 500\nasked 40")
	if err != nil || !slices.Equal(got, []Asked{{1000, 0}, {3000, 500}}) {
		t.Errorf("%v, %v", got, err)
	}
	for at, want := range map[time.Duration]time.Duration{1000: 0, 2000: 250, 3000: 500} {
		if total, ok := Until(got, at); !ok || total != want {
			t.Errorf("by %v: %v, %v", at, total, ok)
		}
	}
	for _, at := range []time.Duration{0, 999, 3001} {
		if total, ok := Until(got, at); ok {
			t.Errorf("by %v: %v", at, total)
		}
	}
	for _, printed := range []string{"asked x 1\n", "asked 1\n", "asked 1 5\nasked 1 6\n", "asked 1 5\nasked 2 4\n"} {
		if got, err := ParseAsked(printed); err == nil {
			t.Errorf("%q is taken for %v", printed, got)
		}
	}
}

func TestParseWakeUps(t *testing.T) {
	got, err := ParseWakeUps("1 2 3 4 5 6 7\n7 8 9 -1 0 0 0\n", 2)
	if err != nil || !slices.Equal(got, []WakeUp{{1, 2, 3, 4, 5, 6, 7}, {7, 8, 9, -1, 0, 0, 0}}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, printed := range []string{"", "1 2 3 4 5 6 7\n", "1 2 3 4 5 6\n1 2 3 4 5 6 7\n", "1 2 3 4 5 6 7\nstopped\n"} {
		if got, err := ParseWakeUps(printed, 2); err == nil {
			t.Errorf("%q is taken for %v", printed, got)
		}
	}
}

// The worst repeat stands, for each figure.
func TestGiveBack(t *testing.T) {
	var g GiveBack
	wakes := func(gate, lease time.Duration) []WakeUp {
		all := make([]WakeUp, 100)
		for i := range all {
			all[i] = WakeUp{Gate: gate, Lease: lease, Done: gate + ms}
		}
		all[99] = WakeUp{Gate: 30 * ms, Lease: 5 * ms, Done: 31 * ms}
		return all
	}
	g.Add(wakes(3*ms, ms), ms)
	g.Add(wakes(2*ms, 2*ms), ms)
	want := GiveBack{Wakes: 200, P50: 3 * ms, P99: 3 * ms, Most: 30 * ms, LeaseP99: 2 * ms, LeaseMost: 5 * ms, DoneP99: 4 * ms, Outliers: 2}
	if g != want {
		t.Errorf("got %+v, want %+v", g, want)
	}
}

func TestExplain(t *testing.T) {
	const kernel = ms / 2
	for because, w := range map[string]WakeUp{
		"the machine stood still":                        {Gate: 15 * ms, Lease: 15 * ms, Still: 13 * ms, Arbiter: 13 * ms},
		"the arbiter waited for a CPU":                   {Gate: 15 * ms, Lease: 15 * ms, Still: ms, Arbiter: 12 * ms},
		"the lease was there, and the program waited":    {Gate: 15 * ms, Lease: ms, Still: ms, Arbiter: ms},
		"a neighbour or the simulated driver waited":     {Gate: 10 * ms, Lease: 10 * ms, Still: ms, Arbiter: ms, Others: 9 * ms},
		"nothing of that says why: the arbiter chose":    {Gate: 15 * ms, Lease: 14 * ms, Still: ms, Arbiter: ms},
		"14.5ms of it beyond a kernel of 500µs; 14ms to": {Gate: 15 * ms, Lease: 14 * ms},
	} {
		if got := w.explain(kernel); !strings.Contains(got, because) {
			t.Errorf("%+v: %s; want %s", w, got, because)
		}
	}
	wakes := []WakeUp{{Gate: 9 * ms}, {Gate: 21 * ms}, {Gate: 22 * ms}, {Gate: 23 * ms, Lease: 23 * ms}}
	got := ExplainAll(wakes, 20*ms)
	if len(got) != 2 || !strings.HasPrefix(got[0], "wake-up 4: 23ms") || !strings.HasPrefix(got[1], "2 wake-ups took more than 10ms") {
		t.Errorf("%q", got)
	}
	if got := ExplainAll(wakes, kernel); len(got) != 3 {
		t.Errorf("%q", got)
	}
}

func TestParseRaced(t *testing.T) {
	if got, err := ParseRaced("a word\nracer: 20000 tries by 8 processes, 312 refused, at most 3221225472 bytes at once\n"); err != nil || got != (Raced{20000, 312, 3 << 30}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, printed := range []string{"", "racer: 20000 tries by 7 processes, 312 refused, at most 3221225472 bytes at once\n", "racer: 20000 tries by 8 processes, 312 refused\n", "racer: x tries by 8 processes, 312 refused, at most 3221225472 bytes at once\n"} {
		if got, err := ParseRaced(printed); err == nil {
			t.Errorf("%q is taken for %+v", printed, got)
		}
	}
}

func TestParseCalls(t *testing.T) {
	const printed = "a launch: 37.2 ns without the shim, +41.5 ns with the gate open, -0.4 ns ungated (on average 37.5, +44.0, +0.1)\na launch into a stream: +33.1 ns with the gate open\na launch by a driver that fills the nearest caches with other things: 84.0 ns without the shim, +34.2 ns with it\nan allocation with its free: 80.1 ns without the shim, +113.0 ns with it\nmedians\n"
	if got, err := ParseCalls(printed); err != nil || got != (Calls{37.2, 41.5, -0.4, 84, 34.2, 80.1, 113}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, printed := range []string{"", "a launch: 37 ns\n", strings.Replace(printed, "+113.0", "x", 1), strings.Replace(printed, "a launch by", "one by", 1)} {
		if got, err := ParseCalls(printed); err == nil {
			t.Errorf("%q is taken for %+v", printed, got)
		}
	}
}
