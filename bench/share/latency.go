package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/bench/report"
)

// The inference server: requests of 40 kernels of 0.5 ms that come at random (Poisson) and ask for 40 % of its floor of half the device.
const (
	requestTime   = 20 * time.Millisecond
	requestsLast  = 40 * time.Second
	requestsLoad  = 0.2 // of the device
	trainerKernel = 200 * time.Microsecond
)

// served is what the inference server says that it did.
type served struct {
	requests int
	p50, p99 float64 // ms, from when a request was due
}

// measureInference lets the server answer the same requests alone in its share and beside a trainer, and reports how much longer they took.
func (b *bench) measureInference(ctx context.Context, r *report.Report) error {
	share := api.Share{Compute: api.Compute{Floor: 500, Ceiling: 1000}, Memory: memory}
	trainer := []tenant{{compute: api.Compute{Floor: 500, Ceiling: 1000}, kernel: trainerKernel, demand: api.WholeDevice}}
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
		b.say("  %d requests: p50 %.2f (alone %.2f) ms, p99 %.2f (%.2f) ms; the trainer %.1f %% of the rest", beside.requests, beside.p50,
			alone.p50, beside.p99, alone.p99, 100*beside.rest)
		slower, median, rest = max(slower, beside.p99/alone.p99), max(median, beside.p50/alone.p50), min(rest, beside.rest)
	}
	r.AtMost("inference_p99_over_alone", slower, 1.05, "times")
	r.Beside("inference_p50_over_alone", median, "times")
	r.AtLeast("trainer_of_the_rest", 100*rest, 90, "%")
	return nil
}

// answered is one run of the server.
type answered struct {
	served
	rest float64 // part that the others got of the device time that the requests left
}

func (b *bench) serve(ctx context.Context, others []tenant, share api.Share) (answered, error) {
	line := []string{b.server, "--seconds", fmt.Sprint(requestsLast.Seconds()), "--load", fmt.Sprint(requestsLoad)}
	ran, err := b.beside(ctx, others, share, api.Inference, func([]int) []string { return line })
	if err != nil {
		return answered{}, err
	}
	s, err := parseServed(ran.printed)
	left := ran.window - time.Duration(s.requests)*requestTime
	return answered{s, ran.others.Seconds() / left.Seconds()}, err
}

// parseServed reads the line that the server prints in the end.
func parseServed(printed string) (s served, err error) {
	fields := strings.Fields(printed)
	find := func(name string, offset int, to any) {
		for i, field := range fields {
			if at := i + offset; field == name && at >= 0 && at < len(fields) {
				if _, bad := fmt.Sscan(fields[at], to); bad == nil {
					return
				}
			}
		}
		err = fmt.Errorf("the inference server printed %q, without %s", printed, name)
	}
	find("requests", -1, &s.requests)
	find("p50", 1, &s.p50)
	find("p99", 1, &s.p99)
	if err == nil && (s.requests == 0 || s.p99 <= 0) {
		err = fmt.Errorf("the inference server printed %q: no request was answered", printed)
	}
	return s, err
}
