package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/bench/judge"
	"github.com/aliquot-dev/aliquot/bench/report"
)

// The inference server: requests of 40 kernels of 0.5 ms that come at random (Poisson) and ask for 40 % of its floor of half the device.
const (
	requestTime   = 20 * time.Millisecond
	requestsLast  = 40 * time.Second
	requestsLoad  = 0.2 // of the device
	trainerKernel = 200 * time.Microsecond
)

// measureInference lets the server answer the same requests alone in its share and beside a trainer, and reports how much longer they took.
func (b *bench) measureInference(ctx context.Context, r *report.Report) error {
	share := api.Share{Compute: api.Compute{Floor: 500, Ceiling: 1000}, Memory: judge.Memory}
	trainer := []judge.Tenant{{Compute: api.Compute{Floor: 500, Ceiling: 1000}, Kernel: trainerKernel, Demand: api.WholeDevice}}
	slower, median, rest := 0.0, 0.0, math.Inf(1)
	for range b.repeats {
		alone, err := b.serve(ctx, nil, share)
		if err != nil {
			return err
		}
		beside, err := b.serve(ctx, trainer, share)
		if err != nil {
			return err
		}
		b.say("  %d requests: p50 %.2f (alone %.2f) ms, p99 %.2f (%.2f) ms; the trainer %.1f %% of the rest", beside.Requests, beside.P50,
			alone.P50, beside.P99, alone.P99, 100*beside.rest)
		slower, median, rest = max(slower, beside.P99/alone.P99), max(median, beside.P50/alone.P50), min(rest, beside.rest)
	}
	r.AtMost("inference_p99_over_alone", slower, 1.05, "times")
	r.Beside("inference_p50_over_alone", median, "times")
	r.AtLeast("trainer_of_the_rest", 100*rest, 90, "%")
	return nil
}

// answered is one run of the server.
type answered struct {
	judge.Served
	rest float64 // part that the others got of the device time that the requests left
}

func (b *bench) serve(ctx context.Context, others []judge.Tenant, share api.Share) (answered, error) {
	line := []string{b.server, "--seconds", fmt.Sprint(requestsLast.Seconds()), "--load", fmt.Sprint(requestsLoad)}
	ran, err := b.beside(ctx, others, share, api.Inference, func([]int) []string { return line })
	if err != nil {
		return answered{}, err
	}
	s, err := judge.ParseServed(ran.printed)
	left := ran.window - time.Duration(s.Requests)*requestTime
	return answered{s, ran.others.Seconds() / left.Seconds()}, err
}
