package judge

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
func steady(span time.Duration, parts map[int]float64) []Reading {
	var all []Reading
	for at := time.Duration(0); at <= span; at += 100 * time.Millisecond {
		busy := map[int]time.Duration{}
		for pid, part := range parts {
			busy[pid] = time.Duration(part * float64(at))
		}
		all = append(all, Reading{At: 5*time.Second + at, Busy: busy})
	}
	return all
}

func near(a, b float64) bool { return math.Abs(a-b) < 0.001 }

func TestJudge(t *testing.T) {
	greedy := func(floor, ceiling api.Milli) Tenant {
		return Tenant{Compute: api.Compute{Floor: floor, Ceiling: ceiling}, Demand: api.WholeDevice}
	}
	idle := greedy(500, 1000)
	idle.Demand = 100
	for name, c := range map[string]struct {
		tenants []Tenant
		parts   map[int]float64
		want    Verdict
	}{
		"as the rule says": {
			[]Tenant{greedy(250, 300), greedy(500, 1000)},
			map[int]float64{1: 0.30, 2: 0.70},
			Verdict{ShareError: 0, Overshoot: 0, Busy: 100},
		},
		"one over its ceiling at the other's cost": {
			[]Tenant{greedy(250, 300), greedy(500, 1000)},
			map[int]float64{1: 0.35, 2: 0.65},
			Verdict{ShareError: 5, Overshoot: 5, Busy: 100},
		},
		"time lost": {
			[]Tenant{greedy(250, 300), greedy(500, 1000)},
			map[int]float64{1: 0.30, 2: 0.60},
			Verdict{ShareError: 10, Overshoot: 0, Busy: 90},
		},
		"an idle floor is lent, and the judge knows the demand": {
			[]Tenant{idle, greedy(100, 600)},
			map[int]float64{1: 0.10, 2: 0.60},
			Verdict{ShareError: 0, Overshoot: 0, Busy: 100},
		},
		"others on the device count for nobody": {
			[]Tenant{greedy(1000, 1000)},
			map[int]float64{1: 0.90, 7: 0.10},
			Verdict{ShareError: 10, Overshoot: -10, Busy: 90},
		},
	} {
		pids := []int{1, 2}[:len(c.tenants)]
		got, ok := Observation{Tenants: c.tenants, PIDs: pids, Readings: steady(12*time.Second, c.parts)}.Judge(10 * time.Second)
		if !ok || !near(got.ShareError, c.want.ShareError) || !near(got.Overshoot, c.want.Overshoot) || !near(got.Busy, c.want.Busy) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

// The worst window counts, not the mean.
func TestJudgeTakesTheWorstWindow(t *testing.T) {
	tenants := []Tenant{{Compute: api.Compute{Floor: 500, Ceiling: 500}, Demand: api.WholeDevice}}
	readings := steady(20*time.Second, map[int]float64{1: 0.5})
	for i := range readings {
		if i > 150 { // a burst of half a second after 15 s
			readings[i].Busy[1] += 500 * time.Millisecond
		}
	}
	o := Observation{Tenants: tenants, PIDs: []int{1}, Readings: readings}
	got, ok := o.Judge(10 * time.Second)
	if !ok || !near(got.Overshoot, 5) || !near(got.ShareError, 5) {
		t.Errorf("got %+v, %v", got, ok)
	}
	o.Readings = readings[:50]
	if _, ok := o.Judge(10 * time.Second); ok {
		t.Error("five seconds were judged as ten")
	}
}

// What a device takes to change between contexts is nobody's: the rest of the time is what is divided.
func TestJudgeSetsSwitchingApart(t *testing.T) {
	tenants := []Tenant{
		{Compute: api.Compute{Floor: 250, Ceiling: 300}, Demand: api.WholeDevice},
		{Compute: api.Compute{Floor: 500, Ceiling: 1000}, Demand: api.WholeDevice},
	}
	readings := steady(12*time.Second, map[int]float64{1: 0.3, 2: 0.66})
	for i := range readings {
		readings[i].Switching = time.Duration(0.04 * float64(readings[i].At))
	}
	got, ok := Observation{Tenants: tenants, PIDs: []int{1, 2}, Readings: readings}.Judge(10 * time.Second)
	if !ok || !near(got.ShareError, 0) || !near(got.Busy, 100) || !near(got.Switching, 4) || !near(got.Missed, 0) {
		t.Errorf("got %+v, %v", got, ok)
	}
}

// A tenant that asked for less than it declared, because the machine woke it late, is not owed what it did not ask for.
func TestJudgeByWhatWasAskedFor(t *testing.T) {
	tenants := []Tenant{
		{Compute: api.Compute{Floor: 500, Ceiling: 1000}, Demand: 200},
		{Compute: api.Compute{Floor: 250, Ceiling: 1000}, Demand: api.WholeDevice},
	}
	o := Observation{Tenants: tenants, PIDs: []int{1, 2}, Readings: steady(12*time.Second, map[int]float64{1: 0.17, 2: 0.82})}
	for at := 4 * time.Second; at <= 20*time.Second; at += time.Second {
		o.Asked = [][]Asked{append(append([]Asked{}, first(o.Asked)...), Asked{at, at * 18 / 100}), nil}
	}
	got, ok := o.Judge(10 * time.Second)
	if !ok || !near(got.ShareError, 3) || !near(got.MeasuredError, 1) || !near(got.Busy, 99) || !near(got.Missed, 1) {
		t.Errorf("got %+v, %v", got, ok)
	}
	o.Asked[0] = o.Asked[0][:3] // it fell silent: what it declared counts
	if got, ok = o.Judge(10 * time.Second); !ok || !near(got.MeasuredError, 3) {
		t.Errorf("got %+v, %v", got, ok)
	}
}

func first(all [][]Asked) []Asked {
	if len(all) == 0 {
		return nil
	}
	return all[0]
}

// What one that waits after each launch does not use is its own loss; what its neighbours lose by it is counted.
func TestJudgeBesideOneThatWaits(t *testing.T) {
	tenants := []Tenant{
		{Compute: api.Compute{Floor: 250, Ceiling: 1000}, Demand: api.WholeDevice, Batch: 1},
		{Compute: api.Compute{Floor: 250, Ceiling: 1000}, Demand: api.WholeDevice},
		{Compute: api.Compute{Floor: 250, Ceiling: 250}, Demand: api.WholeDevice},
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
		o := Observation{Tenants: tenants, PIDs: []int{1, 2, 3}, Readings: steady(12*time.Second, c.parts)}
		if got, ok := o.Judge(10 * time.Second); !ok || !near(got.Missed, c.missed) || !near(got.Lost, c.lost) {
			t.Errorf("%s: got %+v, want missed %v, lost %v", name, got, c.missed, c.lost)
		}
	}
}

func TestBeyond(t *testing.T) {
	capped := Tenant{Compute: api.Compute{Floor: 100, Ceiling: 200}, Demand: api.WholeDevice, Kernel: 5 * time.Millisecond}
	free := Tenant{Compute: api.Compute{Floor: 100, Ceiling: 1000}, Demand: api.WholeDevice, Kernel: 5 * time.Millisecond}
	o := Observation{Tenants: []Tenant{free, capped}, PIDs: []int{1, 2}}
	used := time.Duration(0)
	for k := range 2000 { // every 10 ms: 2 ms of each 10, but all of 40 ms in a row once
		if k >= 1000 && k < 1004 {
			used += 10 * time.Millisecond
		} else {
			used += 2 * time.Millisecond
		}
		o.Readings = append(o.Readings, Reading{At: time.Duration(k) * 10 * time.Millisecond, Busy: map[int]time.Duration{1: time.Duration(k) * 8 * time.Millisecond, 2: used}})
	}
	got, ok := o.Beyond()
	if !ok || got.Used != 32*time.Millisecond || got.Allowed != 55*time.Millisecond || got.Window != 40*time.Millisecond {
		t.Errorf("got %+v, %v", got, ok)
	}
	o.Tenants[1].Graph, o.Tenants[1].Batch = true, 9 // nine kernels in one launch
	if got, ok = o.Beyond(); !ok || got.Allowed != 95*time.Millisecond || !near(got.Part(), 100*32.0/95) {
		t.Errorf("got %+v, %v", got, ok)
	}
	o.Tenants = []Tenant{free, free}
	if got, ok = o.Beyond(); ok {
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
	if want := StatedBurst * 2 / 5; err != nil || time.Duration(burst) != want {
		t.Errorf("the arbiter's burst is %s ns, and %v is judged by", found[1], want)
	}
}

func TestDelivered(t *testing.T) {
	o := Observation{PIDs: []int{1, 2}, Readings: steady(4*time.Second, map[int]float64{1: 0.3, 2: 0.5, 3: 0.1})}
	if got := o.Delivered(); !near(got, 0.8) {
		t.Errorf("got %v", got)
	}
}

func TestQuantile(t *testing.T) {
	values := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for q, want := range map[float64]int{0: 1, 0.1: 1, 0.5: 5, 0.9: 9, 0.91: 10, 0.99: 10, 1: 10} {
		if got := Quantile(values, q); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
	if Quantile([]int(nil), 0.5) != 0 {
		t.Error("nothing has a quantile")
	}
}
