package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/divide"
)

const (
	wholeDevice = 1000 // thousandths
	kernelUs    = "500"
)

// Shares of tenants that saturate: a ceiling that binds, a tenant that may have all, floors that leave something to divide.
var (
	pair = []divide.Share{{Floor: 250, Ceiling: 300}, {Floor: 500, Ceiling: 1000}}
	four = []divide.Share{{Floor: 400, Ceiling: 1000}, {Floor: 200, Ceiling: 250}, {Floor: 100, Ceiling: 1000}, {Floor: 50, Ceiling: 800}}
)

// due is what the rule gives tenants that want all there is, in points (hundredths of a device).
func due(shares []divide.Share) []float64 {
	asked := slices.Clone(shares)
	for i := range asked {
		asked[i].Demand = wholeDevice
	}
	var points []float64
	for _, got := range divide.Divide(wholeDevice, asked) {
		points = append(points, float64(got)/10)
	}
	return points
}

func written(s divide.Share) string {
	return fmt.Sprintf("%g..%g", float64(s.Floor)/wholeDevice, float64(s.Ceiling)/wholeDevice)
}

func monotonic() (time.Duration, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano()), err
}

// tenantLine is the command of a tenant that counts its own work, without the share.
func (s *suite) tenantLine(graph bool) []string {
	args := []string{s.program("tenant"), "--kernel-us", kernelUs, "--seconds", "0"}
	if s.loops != "" {
		args = append(args, "--loops", s.loops)
	}
	if graph {
		args = append(args, "--graph")
	}
	return args
}

// tenantAlone measures what one tenant does alone: bare, with the whole device as its share, and gated. The bare rate is what all parts are
// parts of.
func (s *suite) tenantAlone(ctx context.Context) (figures, error) {
	found := figures{}
	bare, err := s.bare(s.tenantLine(false)...)
	if err != nil {
		return nil, err
	}
	first, loops, err := s.rateAlone(ctx, bare)
	if err != nil {
		return nil, err
	}
	s.loops, s.alone = loops, first
	found["loops"] = loops
	for name, gpu := range map[string]string{"whole": "1", "gated": "0.5..1"} {
		l, err := s.shared(share{gpu: gpu, mem: "2Gi"}, s.tenantLine(false)...)
		if err != nil {
			return found, err
		}
		under, _, err := s.rateAlone(ctx, l)
		if err != nil {
			return found, err
		}
		found[name+"_kernels_per_s"] = under
		found[name+"_part_of_bare_percent"] = 100 * under / first
	}
	// Once more, with the loops of the first: how far two runs of the same differ says how far the figures above can be trusted.
	if bare, err = s.bare(s.tenantLine(false)...); err != nil {
		return found, err
	}
	second, _, err := s.rateAlone(ctx, bare)
	if err != nil {
		return found, err
	}
	s.alone = (first + second) / 2
	found["bare_kernels_per_s"], found["bare_again_kernels_per_s"] = first, second
	return found, nil
}

func (s *suite) rateAlone(ctx context.Context, l line) (perSecond float64, loops string, err error) {
	c, err := s.together(ctx, []string{"a tenant alone"}, []line{l})
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, c.leave()) }()
	rates, err := s.watch(ctx, c, s.scale.alone, s.scale.alone)
	if err != nil {
		return 0, "", err
	}
	for _, text := range c.loads[0].other() {
		if found, ok := strings.CutPrefix(text, "loops "); ok {
			loops = found
		}
	}
	return rates[0][0], loops, nil
}

const slideEvery = 250 * time.Millisecond

// watch lets programs work for so long and returns, for every stretch of the length of slide in it, what each did per second.
func (s *suite) watch(ctx context.Context, c *crew, window, slide time.Duration) ([][]float64, error) {
	if err := pause(ctx, s.scale.settle); err != nil {
		return nil, err
	}
	from, err := monotonic()
	if err != nil {
		return nil, err
	}
	// A little more, so that a sample lies behind the end.
	if err := pause(ctx, window+slideEvery); err != nil {
		return nil, err
	}
	if err := c.still(); err != nil {
		return nil, err
	}
	var all [][]float64
	for at := from; at+slide <= from+window; at += slideEvery {
		var rates []float64
		for _, l := range c.loads {
			r, ok := rate(l.read(), at, at+slide)
			if !ok {
				return nil, fmt.Errorf("%s said too seldom how far it was", l.name)
			}
			rates = append(rates, r)
		}
		all = append(all, rates)
	}
	return all, nil
}

// beside measures tenants beside each other: under their shares, and left to the driver's own time-slicing.
func (s *suite) beside(ctx context.Context, shares []divide.Share, graph bool) (figures, error) {
	if s.alone == 0 {
		return nil, notRun("what one tenant does alone is not known: see that step")
	}
	rates, nvml, err := s.besideShared(ctx, shares, graph)
	if err != nil {
		return nil, err
	}
	owed := due(shares)
	found := judge(rates, s.alone, owed, shares)
	found["due_points"], found["window_s"] = owed, s.scale.slide.Seconds()
	for key, value := range nvml {
		found[key] = value
	}
	var names []string
	var lines []line
	for i := range shares {
		l, err := s.bare(s.tenantLine(graph)...)
		if err != nil {
			return found, err
		}
		names, lines = append(names, fmt.Sprintf("bare tenant %d", i+1)), append(lines, l)
	}
	c, err := s.together(ctx, names, lines)
	if err != nil {
		return found, err
	}
	rates, err = s.watch(ctx, c, s.scale.window/2, s.scale.slide/2)
	if err = errors.Join(err, c.leave()); err != nil {
		return found, err
	}
	for key, value := range judge(rates, s.alone, owed, shares) {
		found["by_the_driver_"+key] = value
	}
	return found, nil
}

func (s *suite) besideShared(ctx context.Context, shares []divide.Share, graph bool) (rates [][]float64, nvml figures, err error) {
	var names []string
	var lines []line
	for i, asked := range shares {
		name := fmt.Sprintf("tenant-%d-%d-%t", len(shares), i+1, graph)
		l, err := s.shared(share{name: name, gpu: written(asked), mem: "1Gi"}, s.tenantLine(graph)...)
		if err != nil {
			return nil, nil, err
		}
		names, lines = append(names, name), append(lines, l)
	}
	c, err := s.together(ctx, names, lines)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, c.leave()) }()
	pids, err := s.onOneDevice(ctx, names)
	if err != nil {
		return nil, nil, err
	}
	if rates, err = s.watch(ctx, c, s.scale.window, s.scale.slide); err != nil {
		return nil, nil, err
	}
	return rates, s.nvmlTells(ctx, pids), nil
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
	var points []float64
	for _, pid := range pids {
		if count[pid] == 0 {
			return figures{"nvml": "cannot tell: it has no samples of these processes (it may number them as another pid namespace does)"}
		}
		points = append(points, math.Round(10*sum[pid]/count[pid])/10)
	}
	return figures{"nvml_points": points}
}

// judge holds what tenants did to what they were due, over the worst stretch.
func judge(rates [][]float64, alone float64, owed []float64, shares []divide.Share) figures {
	worst, over, least := -1.0, math.Inf(-1), math.Inf(1)
	var got []float64
	for _, each := range rates {
		var points []float64
		furthest, total := 0.0, 0.0
		for i, r := range each {
			part := 100 * r / alone
			points = append(points, math.Round(part*100)/100)
			furthest = max(furthest, math.Abs(part-owed[i]))
			over = max(over, part-float64(shares[i].Ceiling)/10)
			total += part
		}
		least = min(least, total)
		if furthest > worst {
			worst, got = furthest, points
		}
	}
	return figures{"share_error_points": worst, "over_a_ceiling_points": over, "least_sum_points": least, "got_points": got}
}
