package main

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
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
		got, ok := observation{tenants: c.tenants, pids: pids, readings: steady(12*time.Second, c.parts)}.judge(10 * time.Second)
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
	o := observation{tenants: tenants, pids: []int{1}, readings: readings}
	got, ok := o.judge(10 * time.Second)
	if !ok || !near(got.overshoot, 5) || !near(got.shareError, 5) {
		t.Errorf("got %+v, %v", got, ok)
	}
	o.readings = readings[:50]
	if _, ok := o.judge(10 * time.Second); ok {
		t.Error("five seconds were judged as ten")
	}
}

// What a device takes to change between contexts is nobody's: the rest of the time is what is divided.
func TestJudgeSetsSwitchingApart(t *testing.T) {
	tenants := []tenant{
		{compute: api.Compute{Floor: 250, Ceiling: 300}, demand: api.WholeDevice},
		{compute: api.Compute{Floor: 500, Ceiling: 1000}, demand: api.WholeDevice},
	}
	readings := steady(12*time.Second, map[int]float64{1: 0.3, 2: 0.66})
	for i := range readings {
		readings[i].switching = time.Duration(0.04 * float64(readings[i].at))
	}
	got, ok := observation{tenants: tenants, pids: []int{1, 2}, readings: readings}.judge(10 * time.Second)
	if !ok || !near(got.shareError, 0) || !near(got.busy, 100) || !near(got.switching, 4) || !near(got.missed, 0) {
		t.Errorf("got %+v, %v", got, ok)
	}
}

// A tenant that asked for less than it declared, because the machine woke it late, is not owed what it did not ask for.
func TestJudgeByWhatWasAskedFor(t *testing.T) {
	tenants := []tenant{
		{compute: api.Compute{Floor: 500, Ceiling: 1000}, demand: 200},
		{compute: api.Compute{Floor: 250, Ceiling: 1000}, demand: api.WholeDevice},
	}
	o := observation{tenants: tenants, pids: []int{1, 2}, readings: steady(12*time.Second, map[int]float64{1: 0.17, 2: 0.82})}
	for at := 4 * time.Second; at <= 20*time.Second; at += time.Second {
		o.asked = [][]asked{append(append([]asked{}, first(o.asked)...), asked{at, at * 18 / 100}), nil}
	}
	got, ok := o.judge(10 * time.Second)
	if !ok || !near(got.shareError, 3) || !near(got.measuredError, 1) || !near(got.busy, 99) || !near(got.missed, 1) {
		t.Errorf("got %+v, %v", got, ok)
	}
	o.asked[0] = o.asked[0][:3] // it fell silent: what it declared counts
	if got, ok = o.judge(10 * time.Second); !ok || !near(got.measuredError, 3) {
		t.Errorf("got %+v, %v", got, ok)
	}
}

func first(all [][]asked) []asked {
	if len(all) == 0 {
		return nil
	}
	return all[0]
}

// What one that waits after each launch does not use is its own loss; what its neighbours lose by it is counted.
func TestJudgeBesideOneThatWaits(t *testing.T) {
	tenants := []tenant{
		{compute: api.Compute{Floor: 250, Ceiling: 1000}, demand: api.WholeDevice, batch: 1},
		{compute: api.Compute{Floor: 250, Ceiling: 1000}, demand: api.WholeDevice},
		{compute: api.Compute{Floor: 250, Ceiling: 250}, demand: api.WholeDevice},
	}
	for name, c := range map[string]struct {
		parts        map[int]float64
		missed, lost float64
	}{
		"it waits, others have the rest": {map[int]float64{1: 0.25, 2: 0.5, 3: 0.25}, 0, 0},
		"a neighbour's loss":             {map[int]float64{1: 0.4, 2: 0.345, 3: 0.25}, 0, 3},
		"its own floor":                  {map[int]float64{1: 0.23, 2: 0.5, 3: 0.25}, 2, 0},
		"a neighbour's floor":            {map[int]float64{1: 0.4, 2: 0.375, 3: 0.21}, 4, 4},
	} {
		o := observation{tenants: tenants, pids: []int{1, 2, 3}, readings: steady(12*time.Second, c.parts)}
		if got, ok := o.judge(10 * time.Second); !ok || !near(got.missed, c.missed) || !near(got.lost, c.lost) {
			t.Errorf("%s: got %+v, want missed %v, lost %v", name, got, c.missed, c.lost)
		}
	}
}

func TestBeyond(t *testing.T) {
	capped := tenant{compute: api.Compute{Floor: 100, Ceiling: 200}, demand: api.WholeDevice, kernel: 5 * time.Millisecond}
	free := tenant{compute: api.Compute{Floor: 100, Ceiling: 1000}, demand: api.WholeDevice, kernel: 5 * time.Millisecond}
	o := observation{tenants: []tenant{free, capped}, pids: []int{1, 2}}
	used := time.Duration(0)
	for k := range 2000 { // every 10 ms: 2 ms of each 10, but all of 40 ms in a row once
		if k >= 1000 && k < 1004 {
			used += 10 * time.Millisecond
		} else {
			used += 2 * time.Millisecond
		}
		o.readings = append(o.readings, reading{at: time.Duration(k) * 10 * time.Millisecond, busy: map[int]time.Duration{1: time.Duration(k) * 8 * time.Millisecond, 2: used}})
	}
	got, ok := o.beyond()
	if !ok || got.used != 32*time.Millisecond || got.allowed != 55*time.Millisecond || got.window != 40*time.Millisecond {
		t.Errorf("got %+v, %v", got, ok)
	}
	o.tenants[1].graph, o.tenants[1].batch = true, 9 // nine kernels in one launch
	if got, ok = o.beyond(); !ok || got.allowed != 95*time.Millisecond || !near(got.part(), 100*32.0/95) {
		t.Errorf("got %+v, %v", got, ok)
	}
	o.tenants = []tenant{free, free}
	if got, ok = o.beyond(); ok {
		t.Errorf("without a ceiling: %+v", got)
	}
}

// What is stated is what the arbiter does: its burst, and the 2.5 of them that core.h speaks of.
func TestStatedBurst(t *testing.T) {
	stated, err := os.ReadFile("../../native/arbiter/core.h")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(stated), "ceiling·T + 2.5·burst +") {
		t.Error("core.h states another bound")
	}
	source, err := os.ReadFile("../../native/arbiter/core.c")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`\.burst_ns = (\d+),`).FindSubmatch(source)
	if found == nil {
		t.Fatal("core.c has no burst_ns")
	}
	burst, err := strconv.Atoi(string(found[1]))
	if want := statedBurst * 2 / 5; err != nil || time.Duration(burst) != want {
		t.Errorf("the arbiter's burst is %s ns, and %v is judged by", found[1], want)
	}
}

func TestDelivered(t *testing.T) {
	o := observation{pids: []int{1, 2}, readings: steady(4*time.Second, map[int]float64{1: 0.3, 2: 0.5, 3: 0.1})}
	if got := o.delivered(); !near(got, 0.8) {
		t.Errorf("got %v", got)
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
