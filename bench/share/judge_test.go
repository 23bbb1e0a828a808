package main

import (
	"math"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// steady makes readings every 100 ms in which each process gets a fixed part of the device.
func steady(span time.Duration, parts map[int]float64) []reading {
	var all []reading
	for at := time.Duration(0); at <= span; at += 100 * time.Millisecond {
		busy := map[int]time.Duration{}
		for pid, part := range parts {
			busy[pid] = time.Duration(part * float64(at))
		}
		all = append(all, reading{at: 5*time.Second + at, busy: busy})
	}
	return all
}

func near(a, b float64) bool { return math.Abs(a-b) < 0.001 }

func TestJudge(t *testing.T) {
	greedy := func(floor, ceiling api.Milli) tenant {
		return tenant{compute: api.Compute{Floor: floor, Ceiling: ceiling}, demand: api.WholeDevice}
	}
	idle := greedy(500, 1000)
	idle.demand = 100
	for name, c := range map[string]struct {
		tenants []tenant
		parts   map[int]float64
		want    verdict
	}{
		"as the rule says": {
			[]tenant{greedy(250, 300), greedy(500, 1000)},
			map[int]float64{1: 0.30, 2: 0.70},
			verdict{shareError: 0, overshoot: 0, busy: 100},
		},
		"one over its ceiling at the other's cost": {
			[]tenant{greedy(250, 300), greedy(500, 1000)},
			map[int]float64{1: 0.35, 2: 0.65},
			verdict{shareError: 5, overshoot: 5, busy: 100},
		},
		"time lost": {
			[]tenant{greedy(250, 300), greedy(500, 1000)},
			map[int]float64{1: 0.30, 2: 0.60},
			verdict{shareError: 10, overshoot: 0, busy: 90},
		},
		"an idle floor is lent, and the judge knows the demand": {
			[]tenant{idle, greedy(100, 600)},
			map[int]float64{1: 0.10, 2: 0.60},
			verdict{shareError: 0, overshoot: 0, busy: 100},
		},
		"others on the device count for nobody": {
			[]tenant{greedy(1000, 1000)},
			map[int]float64{1: 0.90, 7: 0.10},
			verdict{shareError: 10, overshoot: -10, busy: 90},
		},
	} {
		pids := []int{1, 2}[:len(c.tenants)]
		got, ok := judge(c.tenants, pids, steady(12*time.Second, c.parts), 10*time.Second)
		if !ok || !near(got.shareError, c.want.shareError) || !near(got.overshoot, c.want.overshoot) || !near(got.busy, c.want.busy) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

// The worst window counts, not the mean.
func TestJudgeTakesTheWorstWindow(t *testing.T) {
	tenants := []tenant{{compute: api.Compute{Floor: 500, Ceiling: 500}, demand: api.WholeDevice}}
	readings := steady(20*time.Second, map[int]float64{1: 0.5})
	for i := range readings {
		if i > 150 { // a burst of half a second after 15 s
			readings[i].busy[1] += 500 * time.Millisecond
		}
	}
	got, ok := judge(tenants, []int{1}, readings, 10*time.Second)
	if !ok || !near(got.overshoot, 5) || !near(got.shareError, 5) {
		t.Errorf("got %+v, %v", got, ok)
	}
	if _, ok := judge(tenants, []int{1}, readings[:50], 10*time.Second); ok {
		t.Error("five seconds were judged as ten")
	}
}

func TestQuantile(t *testing.T) {
	values := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for q, want := range map[float64]int{0: 1, 0.1: 1, 0.5: 5, 0.9: 9, 0.91: 10, 0.99: 10, 1: 10} {
		if got := quantile(values, q); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
	if quantile([]int(nil), 0.5) != 0 {
		t.Error("nothing has a quantile")
	}
}
