package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/bench/judge"
)

// Requests of examples/inference: 40 kernels of 0.5 ms, at random, at 40 % of a floor of half the device.
const requestKernels = 40

// inference measures those requests alone in their share, beside a trainer with kernels of 0.2 ms, and the same by the driver.
func (s *suite) inference(ctx context.Context) (figures, error) {
	trainer := judge.Tenant{Compute: api.Compute{Floor: 500, Ceiling: 1000}, Kernel: 200 * time.Microsecond, Demand: api.WholeDevice}
	if _, err := s.alone(ctx, standard); err != nil {
		return nil, err
	}
	if _, err := s.alone(ctx, trainer); err != nil {
		return nil, err
	}
	found := figures{}
	var p99 [2]float64 // alone, beside
	for i, name := range []string{"alone", "beside", "by_the_driver"} {
		took := s.scale.requests
		if i == 2 {
			if s.noDriver {
				break
			}
			took /= 2
		}
		served, rest, err := s.serve(ctx, trainer, i > 0, i < 2, took)
		if err != nil {
			return found, fmt.Errorf("%s: %w", name, err)
		}
		found[name+"_requests"], found[name+"_p50_ms"], found[name+"_p99_ms"] = float64(served.Requests), served.P50, served.P99
		if i > 0 {
			found[name+"_trainer_percent_of_the_rest"] = rest
		}
		if i < 2 {
			p99[i] = served.P99
		}
	}
	found["p99_over_alone"] = p99[1] / p99[0]
	return found, nil
}

// serve runs the server once; rest is what the trainer beside it got of what the requests left, in percent.
func (s *suite) serve(ctx context.Context, trainer judge.Tenant, beside, shared bool, took time.Duration) (served judge.Served, rest float64, err error) {
	args := []string{s.example("inference"), "--seconds", fmt.Sprint(took.Seconds()), "--load", "0.2", "--loops", strconv.FormatInt(s.loops, 10)}
	server, err := s.bare(args...)
	other, err2 := s.bare(s.tenantLine(trainer)...)
	if shared {
		server, err = s.shared(share{gpu: "0.5..1", mem: "1Gi", class: "inference"}, args...)
		other, err2 = s.shared(share{gpu: written(trainer.Compute), mem: "1Gi"}, s.tenantLine(trainer)...)
	}
	if err = errors.Join(err, err2); err != nil {
		return served, 0, err
	}
	c := &crew{cancel: func() {}}
	if beside {
		if c, err = s.together(ctx, []string{"the trainer"}, []line{other}); err != nil {
			return served, 0, err
		}
	}
	defer func() { err = errors.Join(err, c.leave()) }()
	from, err := monotonic()
	if err != nil {
		return served, 0, err
	}
	out, err := s.output(ctx, server)
	if err != nil {
		return served, 0, err
	}
	to, err := monotonic()
	if err != nil {
		return served, 0, err
	}
	if served, err = judge.ParseServed(out); err != nil || !beside {
		return served, 0, err
	}
	if err := c.saidBy(ctx, to); err != nil {
		return served, 0, err
	}
	did, ok := rate(c.loads[0].read(), from, to)
	if !ok {
		return served, 0, errors.New("the trainer said too seldom how far it was")
	}
	// Each request as long as its kernels are alone.
	requests := float64(served.Requests*requestKernels) / s.rates[kind(standard)] / (to - from).Seconds()
	return served, 100 * did / s.rates[kind(trainer)] / (1 - requests), nil
}
