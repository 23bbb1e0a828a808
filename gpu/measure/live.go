package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// resize changes a ceiling while a tenant works and finds out how soon its rate follows.
func (s *suite) resize(ctx context.Context) (found figures, err error) {
	if s.alone == 0 {
		return nil, notRun("what one tenant does alone is not known: see that step")
	}
	const name = "resized"
	l, err := s.shared(share{name: name, gpu: "0.2..0.3", mem: "1Gi"}, s.tenantLine(false)...)
	if err != nil {
		return nil, err
	}
	c, err := s.together(ctx, []string{name}, []line{l})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.leave()) }()
	before, err := s.watch(ctx, c, s.scale.alone, s.scale.alone)
	if err != nil {
		return nil, err
	}
	from, err := monotonic()
	if err != nil {
		return nil, err
	}
	if _, err := s.aliquot(ctx, "resize", name, "--gpu", "0.2..0.6"); err != nil {
		return nil, err
	}
	after, err := s.watch(ctx, c, s.scale.alone, s.scale.alone)
	if err != nil {
		return nil, err
	}
	points := func(rates [][]float64) float64 { return 100 * rates[0][0] / s.alone }
	found = figures{"ceiling_30_points": points(before), "ceiling_60_points": points(after), "follows_after_ms": follows(c.loads[0].read(), from, 0.45*s.alone)}
	if points(after) < points(before)+5 {
		return found, fmt.Errorf("with its ceiling raised from 30 to 60 points it got %.1f", points(after))
	}
	return found, nil
}

// follows is how long after a moment the rate over 200 ms is first above a bound, to its middle; -1: never.
func follows(samples []sample, from time.Duration, bound float64) float64 {
	const over, step = 200 * time.Millisecond, 10 * time.Millisecond
	for at := from - over/2; ; at += step {
		r, ok := rate(samples, at, at+over)
		if !ok {
			return -1
		}
		if r >= bound {
			return float64(at+over/2-from) / 1e6
		}
	}
}

// giveBack measures how long an owner that wakes up waits at the gate beside a tenant that borrows all it leaves, and until its work is
// done; then the same by the driver's time-slicing.
func (s *suite) giveBack(ctx context.Context) (figures, error) {
	found := figures{"wakes": s.scale.wakes, "neighbour_kernel_us": kernelUs}
	wake := []string{s.program("waker"), "--wakes", strconv.Itoa(s.scale.wakes), "--pause-ms", "15"}
	for _, kind := range []string{"shared", "by_the_driver"} {
		owner, err := s.bare(wake...)
		if err != nil {
			return found, err
		}
		neighbour, err := s.bare(s.tenantLine(false)...)
		if err != nil {
			return found, err
		}
		if kind == "shared" {
			if owner, err = s.shared(share{name: "owner", gpu: "0.5..1", mem: "1Gi"}, wake...); err != nil {
				return found, err
			}
			if neighbour, err = s.shared(share{name: "borrower", gpu: "0.1..1", mem: "1Gi"}, s.tenantLine(false)...); err != nil {
				return found, err
			}
		}
		waits, done, err := s.wakes(ctx, owner, neighbour)
		if err != nil {
			return found, err
		}
		for name, values := range map[string][]float64{"gate": waits, "done": done} {
			for part, of := range map[string]float64{"p50": 0.5, "p99": 0.99, "max": 1} {
				found[kind+"_"+name+"_"+part+"_ms"] = quantile(values, of)
			}
		}
	}
	return found, nil
}

// wakes runs waker beside a neighbour that works, and returns in ms how long its launches took and when they were done, sorted.
func (s *suite) wakes(ctx context.Context, owner, neighbour line) (waits, done []float64, err error) {
	c, err := s.together(ctx, []string{"the neighbour"}, []line{neighbour})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, c.leave()) }()
	out, err := s.output(ctx, owner)
	if err != nil {
		return nil, nil, err
	}
	if err := c.still(); err != nil {
		return nil, nil, err
	}
	for each := range strings.Lines(out) {
		var waited, took int64
		if _, err := fmt.Sscan(each, &waited, &took); err != nil {
			return nil, nil, fmt.Errorf("waker printed %q: %w", each, err)
		}
		waits, done = append(waits, float64(waited)/1e6), append(done, float64(took)/1e6)
	}
	if len(waits) != s.scale.wakes {
		return nil, nil, fmt.Errorf("waker was to wake %d times and did %d times", s.scale.wakes, len(waits))
	}
	slices.Sort(waits)
	slices.Sort(done)
	return waits, done, nil
}
