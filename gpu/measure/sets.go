package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/bench/judge"
)

// setStep is one set of tenants, and whether it is also left to the driver's own time-slicing.
type setStep struct {
	judge.Set
	bare bool
}

// sets are the hardest of each kind, the most important first.
func sets() []setStep {
	two, four, eight := judge.Shares[0], judge.Shares[1], judge.Shares[2]
	return []setStep{
		{judge.Equal(four, judge.Kernels[1]), true},
		{judge.Mixed(eight), true},
		{judge.GraphsOf10ms(four), false},
		{judge.Equal(two, judge.Kernels[3]), false},
		{judge.Equal(eight, judge.Kernels[0]), false},
		{judge.HalfIdle(four, judge.Kernels[1]), false},
		{judge.OneWaits(four, judge.Kernels[1]), false},
		{judge.Capped(), false},
		{judge.Weighted(four), false},
		{judge.Equal(four, judge.Kernels[2]), false},
	}
}

// readEvery is how far apart the moments are for which what tenants had done is reckoned.
const readEvery = 10 * time.Millisecond

// beside measures tenants beside each other: under their shares, and where it is asked for left to the driver's own time-slicing.
func (s *suite) beside(ctx context.Context, set setStep) (figures, error) {
	for _, t := range set.Tenants {
		if _, err := s.alone(ctx, t); err != nil {
			return nil, err
		}
	}
	o, found, err := s.besideShared(ctx, set.Set)
	if err != nil {
		return found, err
	}
	if err := s.judged(set.Set, o, s.scale.slide, found); err != nil || !set.bare || s.noDriver || s.short && len(set.Tenants) > 4 { // short: one will do
		return found, err
	}
	var lines []line
	for _, t := range set.Tenants {
		l, err := s.bare(s.tenantLine(t)...)
		if err != nil {
			return found, err
		}
		lines = append(lines, l)
	}
	c, err := s.together(ctx, numbered("bare tenant", len(lines)), lines)
	if err != nil {
		return found, err
	}
	o, err = s.observe(ctx, c, set.Set, s.scale.window/2)
	if err = errors.Join(err, c.leave()); err != nil {
		return found, err
	}
	bare := figures{}
	err = s.judged(set.Set, o, s.scale.slide/2, bare)
	found["by_the_driver"] = bare
	return found, err
}

func numbered(word string, n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s %d", word, i+1))
	}
	return names
}

// besideShared runs a set under its shares; found has what the arbiter used meanwhile, and what NVML makes of it.
func (s *suite) besideShared(ctx context.Context, set judge.Set) (o judge.Observation, found figures, err error) {
	var names []string
	var lines []line
	for i, t := range set.Tenants {
		s.named++
		name := fmt.Sprintf("tenant-%d-%d", i+1, s.named)
		l, err := s.shared(share{name: name, gpu: written(t.Compute), mem: "1Gi", weight: t.Weight}, s.tenantLine(t)...)
		if err != nil {
			return o, nil, err
		}
		names, lines = append(names, name), append(lines, l)
	}
	c, err := s.together(ctx, names, lines)
	if err != nil {
		return o, nil, err
	}
	defer func() { err = errors.Join(err, c.leave()) }()
	pids, err := s.onOneDevice(ctx, names)
	if err != nil {
		return o, nil, err
	}
	arbiter, err := judge.Process(s.server.run, "aliquot-arbiter")
	if err != nil {
		return o, nil, err
	}
	before, err := judge.CPUTime(arbiter)
	if err != nil {
		return o, nil, err
	}
	was, err := s.readBooks()
	if err != nil {
		return o, nil, err
	}
	began := time.Now()
	if o, err = s.observe(ctx, c, set, s.scale.window); err != nil {
		return o, nil, err
	}
	is, err := s.readBooks()
	if err != nil {
		return o, nil, err
	}
	after, err := judge.CPUTime(arbiter)
	if err != nil {
		return o, nil, err
	}
	found = s.nvmlTells(ctx, pids)
	if found == nil {
		found = figures{}
	}
	s.logCharges(was, is)
	perSecond := changes(was, is)
	found["lease_changes_per_s"] = perSecond
	if s.change > 0 && len(o.Readings) > 0 {
		found["switching_percent"] = 100 * perSecond * s.change.Seconds()
		for i, r := range o.Readings {
			o.Readings[i].Switching = time.Duration((r.At - o.Readings[0].At).Seconds() * perSecond * float64(s.change))
		}
	}
	found["arbiter_percent_of_a_core"] = 100 * float64(after-before) / float64(time.Since(began))
	return o, found, nil
}

// observe lets a set work and reckons the device time of each tenant: what it completed, each kernel as long as one takes alone.
func (s *suite) observe(ctx context.Context, c *crew, set judge.Set, window time.Duration) (judge.Observation, error) {
	o := judge.Observation{Tenants: set.Tenants}
	from, to, err := s.span(ctx, c, window)
	if err != nil {
		return o, err
	}
	for i := range set.Tenants {
		o.PIDs = append(o.PIDs, i+1) // no window is of other processes
	}
	samples := make([][]sample, len(c.loads))
	for i, l := range c.loads {
		samples[i] = l.read()
	}
	for at := from; at <= to; at += readEvery {
		r := judge.Reading{At: at, Busy: map[int]time.Duration{}}
		for i, t := range set.Tenants {
			done, ok := doneBy(samples[i], at)
			if !ok {
				return o, fmt.Errorf("%s said too seldom how far it was", c.loads[i].name)
			}
			r.Busy[i+1] = time.Duration(done / s.rates[kind(t)] * 1e9)
		}
		o.Readings = append(o.Readings, r)
	}
	o.Asked = make([][]judge.Asked, len(set.Tenants))
	for i, t := range set.Tenants {
		if t.Demand >= api.WholeDevice {
			continue
		}
		if o.Asked[i], err = c.loads[i].askedBy(ctx, to); err != nil {
			return o, err
		}
		for k, a := range o.Asked[i] { // it asks for kernels, and says how long each is meant to be
			o.Asked[i][k].Total = time.Duration(float64(a.Total) / float64(t.Kernel) / s.rates[kind(t)] * 1e9)
		}
	}
	return o, nil
}

// askedBy waits until a program has said what it had asked for by a moment, and returns all that it said of that.
func (l *load) askedBy(ctx context.Context, at time.Duration) ([]judge.Asked, error) {
	bounded, cancel := context.WithTimeout(ctx, 2*grace)
	defer cancel()
	for {
		asked, err := judge.ParseAsked(strings.Join(l.other(), "\n") + "\n")
		if n := len(asked); err != nil || n > 0 && asked[n-1].At >= at {
			return asked, err
		}
		select {
		case <-l.more: // it says both in turns
		case <-bounded.Done():
			return nil, fmt.Errorf("%s did not say what it asked for: %w", l.name, bounded.Err())
		}
	}
}

// judged holds what a set did to what it was due, over the worst window: of all of the device, and of what is left of it when each change of
// leases has taken what the probe found a switch to take.
func (s *suite) judged(set judge.Set, o judge.Observation, window time.Duration, found figures) error {
	apart, _ := o.Judge(window)
	o.Readings = slices.Clone(o.Readings)
	for i := range o.Readings {
		o.Readings[i].Switching = 0
	}
	v, ok := o.Judge(window)
	if !ok {
		return fmt.Errorf("%d readings hold no window of %v", len(o.Readings), window)
	}
	found["window_s"] = window.Seconds()
	found["got_points"], found["due_points"] = rounded(v.Got), rounded(v.Due)
	found["over_a_ceiling_points"] = v.Overshoot
	known := apart.Switching > 0
	switch {
	case set.Waits():
		found["floor_missed_points"], found["neighbour_lost_points"] = v.Missed, v.Lost
		if known {
			found["neighbour_lost_switches_apart_points"] = apart.Lost
		}
	case set.Partial():
		found["share_error_of_demand_points"], found["device_busy_percent"] = v.MeasuredError, v.MeasuredBusy
		if known {
			found["share_error_of_demand_switches_apart_points"], found["device_busy_switches_apart_percent"] = apart.MeasuredError, apart.MeasuredBusy
		}
	default:
		found["share_error_points"], found["device_busy_percent"] = v.ShareError, v.Busy
		if known {
			found["share_error_switches_apart_points"], found["device_busy_switches_apart_percent"] = apart.ShareError, apart.Busy
		}
	}
	var coarsest time.Duration
	for _, t := range set.Tenants {
		coarsest = max(coarsest, resolution(t))
	}
	found["resolution_points"] = 100 * coarsest.Seconds() / window.Seconds()
	if b, ok := o.Beyond(); ok {
		found["burst_percent_of_stated"], found["burst_ms"], found["burst_window_ms"] = b.Part(), ms(b.Used), ms(b.Window)
		found["burst_allowed_ms"], found["burst_resolution_ms"] = ms(b.Allowed), ms(coarsest)
	}
	return nil
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

func rounded(points []float64) []float64 {
	var all []float64
	for _, p := range points {
		all = append(all, math.Round(p*100)/100)
	}
	return all
}

// nvmlTells is what NVML makes of these processes, if it can tell: its figures are percents of a sampling period and coarse.
func (s *suite) nvmlTells(ctx context.Context, pids []int) figures {
	l, err := s.bare(s.program("probe"), "watch")
	if err != nil {
		return nil
	}
	told, err := s.json(ctx, l)
	if err != nil {
		return figures{"nvml": "cannot tell: " + err.Error()}
	}
	sum, count := map[int]float64{}, map[int]float64{}
	samples, _ := told["utilization"].([]any)
	for _, each := range samples {
		entry, _ := each.(map[string]any)
		pid, _ := entry["pid"].(float64)
		sm, _ := entry["sm"].(float64)
		sum[int(pid)] += sm
		count[int(pid)]++
	}
	var points []string
	for _, pid := range pids {
		if count[pid] == 0 {
			return figures{"nvml": "cannot tell: it has no samples of these processes (it may number them as another pid namespace does)"}
		}
		points = append(points, strconv.FormatFloat(sum[pid]/count[pid], 'f', 1, 64))
	}
	return figures{"nvml_points": strings.Join(points, ", ")}
}
