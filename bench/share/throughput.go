package main

import (
	"context"
	"fmt"
	"math"
	"os/exec"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/bench/judge"
	"github.com/aliquot-dev/aliquot/bench/report"
)

// measureThroughput reports what programs do under Aliquot in percent of what they do without, the two in turns: one alone with a whole device,
// one alone with a gate, and four that saturate a device together. The worst of the repeats counts.
func (b *bench) measureThroughput(ctx context.Context, r *report.Report) error {
	kernel := judge.Kernels[1]
	alone := func(compute api.Compute) scenario {
		return scenario{Set: judge.Set{Tenants: []judge.Tenant{{Compute: compute, Kernel: kernel, Demand: api.WholeDevice}}}}
	}
	four := scenario{Set: judge.Equal(judge.Shares[1], kernel)}
	for _, one := range []struct {
		name  string
		least float64 // 0: it only stands beside
		scenario
	}{
		{"throughput_alone", 99.5, alone(api.Compute{Floor: 1000, Ceiling: 1000})},
		{"throughput_alone, 0.5..1.0", 0, alone(api.Compute{Floor: 500, Ceiling: 1000})},
		{"throughput_of_four", 98, four},
	} {
		part := math.Inf(1)
		for range b.repeats {
			with, err := b.runShared(ctx, one.scenario, b.window)
			if err != nil {
				return err
			}
			bare, err := b.runBare(ctx, one.scenario)
			if err != nil {
				return err
			}
			b.say("  %s: %.3f of the device, %.3f without", one.name, with.Delivered(), bare.Delivered())
			part = min(part, 100*with.Delivered()/bare.Delivered())
		}
		if one.least > 0 {
			r.AtLeast(one.name, part, one.least, "% of the same without Aliquot")
		} else {
			r.Beside(one.name, part, "% of the same without Aliquot")
		}
	}
	return nil
}

// measureCalls reports what a launch through the open gate and an allocation cost over the driver's own (native/shim/test/gate_cost.c). The
// worst of the repeats counts.
func (b *bench) measureCalls(ctx context.Context, r *report.Report) error {
	worst := judge.Calls{Gated: math.Inf(-1), Ungated: math.Inf(-1), Counted: math.Inf(-1)}
	for range b.repeats {
		printed, err := exec.CommandContext(ctx, b.calls).Output()
		if err != nil {
			return fmt.Errorf("measure what calls cost: %w", err)
		}
		c, err := judge.ParseCalls(string(printed))
		if err != nil {
			return err
		}
		worst.Gated, worst.Ungated, worst.Counted = max(worst.Gated, c.Gated), max(worst.Ungated, c.Ungated), max(worst.Counted, c.Counted)
		worst.Launch, worst.Pair = max(worst.Launch, c.Launch), max(worst.Pair, c.Pair)
	}
	r.AtMost("launch_adds, gate open", worst.Gated, 50, "ns")
	r.Beside("launch_adds, no gate", worst.Ungated, "ns")
	r.AtMost("allocation_adds", worst.Counted, 200, "ns")
	r.Beside("launch without the shim", worst.Launch, "ns")
	r.Beside("allocation and free without the shim", worst.Pair, "ns")
	return nil
}
