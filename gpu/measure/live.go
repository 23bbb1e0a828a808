package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// mostLooks is how often a short run looks whether a rate has followed: what a program got of a busy machine in one such moment tells nothing.
const mostLooks = 20

// resize changes a ceiling while a tenant works and finds out how soon its rate follows.
func (s *suite) resize(ctx context.Context) (found figures, err error) {
	alone, err := s.alone(ctx, standard)
	if err != nil {
		return nil, err
	}
	const name = "resized"
	l, err := s.shared(share{name: name, gpu: "0.2..0.3", mem: "1Gi"}, s.tenantLine(standard)...)
	if err != nil {
		return nil, err
	}
	c, err := s.together(ctx, []string{name}, []line{l})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.leave()) }()
	before, err := s.watch(ctx, c, s.scale.alone)
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
	points := func(rates []float64) float64 { return 100 * rates[0] / alone }
	var after []float64
	for looks := 0; looks == 0 || s.short && looks < mostLooks && points(after) < points(before)+5; looks++ {
		if after, err = s.watch(ctx, c, s.scale.alone); err != nil {
			return nil, err
		}
	}
	found = figures{"ceiling_30_points": points(before), "ceiling_60_points": points(after), "follows_after_ms": follows(c.loads[0].read(), from, 0.45*alone)}
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
