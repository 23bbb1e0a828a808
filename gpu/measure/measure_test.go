package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/bench/judge"
)

func TestRate(t *testing.T) {
	samples := []sample{{1 * time.Second, 0}, {2 * time.Second, 100}, {4 * time.Second, 500}}
	for _, c := range []struct {
		from, to time.Duration
		want     float64
		ok       bool
	}{
		{1 * time.Second, 2 * time.Second, 100, true},
		{1500 * time.Millisecond, 3 * time.Second, 250 / 1.5, true},
		{1 * time.Second, 4 * time.Second, 500. / 3, true},
		{500 * time.Millisecond, 2 * time.Second, 0, false}, // before the first
		{2 * time.Second, 5 * time.Second, 0, false},        // behind the last
		{2 * time.Second, 2 * time.Second, 0, false},
	} {
		if got, ok := rate(samples, c.from, c.to); ok != c.ok || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("from %v to %v: %v, %t; want %v, %t", c.from, c.to, got, ok, c.want, c.ok)
		}
	}
}

// What tenants completed becomes device time by what each kind does alone, and is judged by the rule.
func TestObserve(t *testing.T) {
	s := newSuite(t)
	set := judge.Equal([]api.Compute{{Floor: 250, Ceiling: 300}, {Floor: 500, Ceiling: 1000}}, 500*time.Microsecond)
	set.Tenants[1].Kernel = 5 * time.Millisecond
	s.rates = map[string]float64{"500µs": 2000, "5ms": 200}
	c := &crew{}
	now, err := monotonic()
	if err != nil {
		t.Fatal(err)
	}
	for _, perSecond := range []float64{640, 130} { // 32 and 65 points
		l := &load{more: make(chan struct{}, 1), ended: make(chan error, 1)}
		for at := now - time.Second; at <= now+5*time.Second; at += 20 * time.Millisecond {
			l.samples = append(l.samples, sample{at, 100 + perSecond*(at-now).Seconds()})
		}
		c.loads = append(c.loads, l)
	}
	o, err := s.observe(t.Context(), c, set, 300*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	found := figures{}
	if err := s.judged(set, o, 200*time.Millisecond, found); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"share_error_points": 5, "over_a_ceiling_points": 2, "device_busy_percent": 97, "burst_allowed_ms": 50.5} {
		if got, _ := found[name].(float64); math.Abs(got-want) > 0.01 {
			t.Errorf("%s %v, want %v", name, got, want)
		}
	}
	if got, _ := found["got_points"].([]float64); len(got) != 2 || math.Abs(got[0]-32) > 0.01 || math.Abs(got[1]-65) > 0.01 {
		t.Errorf("got %v", got)
	}
	if err := s.judged(set, o, time.Second, found); err == nil {
		t.Error("0.3 s were judged as a second")
	}
}

// What changes of leases take is nobody's: apart from it, each kind of set is judged against what is left of the device.
func TestJudgedSwitchesApart(t *testing.T) {
	set := func(change func(*judge.Tenant), more ...api.Compute) judge.Set {
		set := judge.Equal(append([]api.Compute{{Floor: 250, Ceiling: 1000}, {Floor: 250, Ceiling: 1000}}, more...), 500*time.Microsecond)
		change(&set.Tenants[0])
		return set
	}
	for name, c := range map[string]struct {
		set  judge.Set
		got  []float64 // of the device
		want map[string]float64
	}{
		"saturating": {set(func(*judge.Tenant) {}), []float64{0.47, 0.48}, map[string]float64{
			"share_error_points": 3, "share_error_switches_apart_points": 1, // due 50 each, and 48 of what is left
			"device_busy_percent": 95, "device_busy_switches_apart_percent": 100 * 95. / 96,
		}},
		"of partial demand": {set(func(t *judge.Tenant) { t.Demand = 200 }), []float64{0.2, 0.75}, map[string]float64{
			"share_error_of_demand_points": 5, "share_error_of_demand_switches_apart_points": 1, // the second is due 80, and 76
			"device_busy_percent": 95, "device_busy_switches_apart_percent": 100 * 95. / 96,
		}},
		"beside one that waits": {
			set(func(t *judge.Tenant) { t.Batch = 1 }, api.Compute{Floor: 250, Ceiling: 250}),
			[]float64{0.24, 0.345, 0.25},
			// The second is due 37.5, and 35.5; the third has all that it may have, and what the first leaves of its floor is its own.
			map[string]float64{"neighbour_lost_points": 3, "neighbour_lost_switches_apart_points": 1, "floor_missed_points": 1},
		},
	} {
		o := judge.Observation{Tenants: c.set.Tenants}
		for at := time.Second; at <= 2*time.Second; at += 10 * time.Millisecond {
			r := judge.Reading{At: at, Switching: at / 25, Busy: map[int]time.Duration{}}
			for i, part := range c.got {
				r.Busy[i+1] = time.Duration(part * float64(at))
			}
			o.Readings = append(o.Readings, r)
		}
		for i := range c.got {
			o.PIDs = append(o.PIDs, i+1)
		}
		found := figures{}
		if err := newSuite(t).judged(c.set, o, 500*time.Millisecond, found); err != nil {
			t.Fatal(err)
		}
		for figure, want := range c.want {
			if got, ok := found[figure].(float64); !ok || math.Abs(got-want) > 0.001 {
				t.Errorf("%s: %s %v, want %v", name, figure, found[figure], want)
			}
		}
		for i := range o.Readings {
			o.Readings[i].Switching = 0
		}
		unknown := figures{}
		if err := newSuite(t).judged(c.set, o, 500*time.Millisecond, unknown); err != nil {
			t.Fatal(err)
		}
		for figure := range unknown {
			if strings.Contains(figure, "apart") {
				t.Errorf("%s: %s, and it is not known what a switch takes", name, figure)
			}
		}
	}
}

// What a tenant asks for is in kernels of the length that it means; what it is due is in those of the length they have.
func TestObserveDemand(t *testing.T) {
	s := newSuite(t)
	set := judge.HalfIdle(judge.Shares[0], 500*time.Microsecond)
	s.rates = map[string]float64{"500µs": 1000} // a kernel takes a whole millisecond on this device
	c := &crew{}
	now, err := monotonic()
	if err != nil {
		t.Fatal(err)
	}
	for range set.Tenants {
		l := &load{more: make(chan struct{}, 1), ended: make(chan error, 1)}
		l.samples = []sample{{now - time.Second, 0}, {now + time.Hour, 600}}
		c.loads = append(c.loads, l)
	}
	c.loads[0].text = []string{"loops 7", fmt.Sprintf("asked %d 0", now-time.Second), fmt.Sprintf("asked %d 500000", now+time.Hour)}
	o, err := s.observe(t.Context(), c, set, 100*time.Millisecond)
	if err != nil || len(o.Asked[0]) != 2 || o.Asked[0][1].Total != time.Millisecond || o.Asked[1] != nil {
		t.Errorf("%v, %v", o.Asked, err)
	}
	c.loads[0].text = c.loads[0].text[:2]
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.loads[0].askedBy(over, now); err == nil || !strings.Contains(err.Error(), "did not say what it asked for") {
		t.Errorf("of one that fell silent: %v", err)
	}
}

// A program that says no more how far it is fails what waits for it.
func TestSaidBy(t *testing.T) {
	l := &load{name: "silent", more: make(chan struct{}, 1), ended: make(chan error, 1), samples: []sample{{time.Second, 1}}}
	c := &crew{loads: []*load{l}}
	if err := c.saidBy(t.Context(), time.Second); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := c.saidBy(ctx, 2*time.Second); err == nil || !strings.Contains(err.Error(), "silent says no more") {
		t.Errorf("of a silent program: %v", err)
	}
	l.ended <- errors.New("killed")
	if err := c.saidBy(t.Context(), 2*time.Second); err == nil || !strings.Contains(err.Error(), "ended too early") {
		t.Errorf("of one that ended: %v", err)
	}
}

func TestCompareExports(t *testing.T) {
	found := compareExports("libcuda.so.1", map[string]bool{"cuInit": true, "cuNew": true}, []string{"cuInit", "cuOld"})
	if found["without_an_entry"] != 1. || found["not_exported"] != 1. || found["exported"] != 2. {
		t.Errorf("%v", found)
	}
	if got, _ := found["exported_without_an_entry"].([]string); len(got) != 1 || got[0] != "cuNew" {
		t.Errorf("%v", found)
	}
}

func TestFollows(t *testing.T) {
	// 100 a second, and 300 from the fifth second on.
	var samples []sample
	done := 0.
	for at := time.Duration(0); at <= 10*time.Second; at += 50 * time.Millisecond {
		samples = append(samples, sample{at, done})
		if at < 5*time.Second {
			done += 5
		} else {
			done += 15
		}
	}
	if got := follows(samples, 4900*time.Millisecond, 200); math.Abs(got-100) > 11 {
		t.Errorf("it followed after %v ms, want 100", got)
	}
	if got := follows(samples, 4900*time.Millisecond, 301); got != -1 {
		t.Errorf("a rate that was never reached was reached after %v ms", got)
	}
}

func TestHogFound(t *testing.T) {
	line := func(total, got, refused string) string {
		return "hog: was shown 2816 MiB free of " + total + "; got " + got + " MiB in 176 blocks, then " + refused + " with 0 MiB shown free\n"
	}
	if found, err := hogFound(line("3072", "2816", "CUDA_ERROR_OUT_OF_MEMORY"), 3072); err != nil || found["got_mib"] != 2816. {
		t.Errorf("%v, %v", found, err)
	}
	for name, text := range map[string]string{
		"the whole device shown": line("143771", "2816", "CUDA_ERROR_OUT_OF_MEMORY"),
		"over the ceiling":       line("3072", "3088", "CUDA_ERROR_OUT_OF_MEMORY"),
		"never refused":          line("3072", "2816", "nothing"),
		"something else":         "hog: cuInit failed\n",
	} {
		if _, err := hogFound(text, 3072); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// What the processes of a share hold together is held against its ceiling; what no process has is told beside it.
func TestNVMLHeld(t *testing.T) {
	seen := figures{
		"first_bytes": 100., "most_bytes": 1150., "looks": 7., "look_us": 20., "processes_result": 0., "processes_looks": 3., "processes_look_us": 90.,
		"processes_first_bytes": 40., "processes_most_bytes": 1030., "nobody_bytes": 55., "nobody_looks": 2.,
	}
	found := figures{}
	nvmlHeld(seen, 1000, found)
	for name, want := range map[string]float64{
		"nvml_most_bytes": 1050, "nvml_processes_most_bytes": 990, "nvml_processes_over_ceiling_bytes": -10, "nvml_held_by_nobody_bytes": 55,
		"nvml_held_by_nobody_looks": 2, "nvml_looks": 7, "nvml_processes_looks": 3,
	} {
		if found[name] != want {
			t.Errorf("%s %v, want %v", name, found[name], want)
		}
	}
	found = figures{}
	nvmlHeld(figures{"first_bytes": 100., "most_bytes": 1150., "looks": 7., "processes_result": 3., "processes_looks": 0.}, 1000, found)
	_, judged := found["nvml_processes_over_ceiling_bytes"]
	if judged || found["nvml_most_bytes"] != 1050. || !strings.Contains(fmt.Sprint(found["nvml_processes"]), "cannot tell: it says 3") {
		t.Errorf("of one that does not tell processes apart: %v", found)
	}
}

func TestSamplesFromLines(t *testing.T) {
	l := load{counts: make(chan struct{}), more: make(chan struct{}, 1)}
	pump(strings.NewReader("loops 99\n1000 8\n2000 16\nwords and more\n3000 "), l.take)
	if got := l.read(); len(got) != 2 || got[1] != (sample{2000, 16}) {
		t.Errorf("samples %v", got)
	}
	if got := l.other(); len(got) != 2 || got[0] != "loops 99" {
		t.Errorf("other lines %v", got)
	}
	select {
	case <-l.counts:
	default:
		t.Error("nobody was told of the first sample")
	}
}

// What becomes of a step says why, keeps what it had found, and stops no other.
func TestTake(t *testing.T) {
	s := suite{}
	var err error
	if s.log, err = openLog(filepath.Join(t.TempDir(), "log.txt")); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.log.close() }()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name   string
		ctx    context.Context
		run    func(context.Context) (figures, error)
		status string
		why    string
	}{
		{"well", t.Context(), func(context.Context) (figures, error) { return figures{"a": 1}, nil }, doneStatus, ""},
		{"badly", t.Context(), func(context.Context) (figures, error) { return figures{"a": 1}, errors.New("no device") }, failedStatus, "no device"},
		{"not", t.Context(), func(context.Context) (figures, error) { return nil, notRun("no nvcc") }, notRunStatus, "no nvcc"},
		{"too long", t.Context(), func(ctx context.Context) (figures, error) { <-ctx.Done(); return nil, ctx.Err() }, failedStatus, "not done after"},
		{"too late", ended, func(context.Context) (figures, error) { return nil, nil }, notRunStatus, "no time"},
	} {
		got := s.take(c.ctx, step{"probe", c.name, 50 * time.Millisecond, 0, c.run})
		if got.Status != c.status || !strings.Contains(got.Why, c.why) {
			t.Errorf("%s: %+v", c.name, got)
		}
		if c.name == "well" {
			bounded, cancel := context.WithTimeout(c.ctx, 30*time.Second)
			if late := s.take(bounded, step{"probe", c.name, time.Second, time.Minute, c.run}); late.Status != notRunStatus || !strings.Contains(late.Why, "it takes about 1m0s") {
				t.Errorf("a step that there is no time for: %+v", late)
			}
			cancel()
		}
		if c.name == "badly" && got.Figures["a"] != 1 {
			t.Errorf("what was found before the failure is lost: %+v", got)
		}
	}
}

// Programs that will not end hold nothing up, and neither do those that have closed their output.
func TestOutputIsBounded(t *testing.T) {
	s := suite{}
	var err error
	if s.log, err = openLog(filepath.Join(t.TempDir(), "log.txt")); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.log.close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.output(ctx, line{[]string{"sh", "-c", "trap '' TERM; while :; do sleep 1; done"}, nil}); err == nil {
		t.Error("a program that was killed counts as done")
	}
}
