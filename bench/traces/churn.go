package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/aliquot-dev/aliquot/bench/report"
	"github.com/aliquot-dev/aliquot/engine/place"
	"github.com/aliquot-dev/aliquot/host/sim"
)

// churnMoves are how many moves an hour are measured, and churnLoad what the pods that come and go want of all devices, in percent.
var churnMoves = []int32{0, 3, 10, 20, 30, 60, 100}

const (
	churnLoad = 130
	churnPods = 10_000
	// Of the generated trace, which stay for a minute to a day.
	generatedPods = 1_500
	churnSeeds    = 2 // of those that are asked for, the first
)

// churn measures what policies keep allocated while pods come and leave by their recorded times, against how many are moved. A
// pod that does not fit when it comes, nor can be made room for, is given up.
func (b *bench) churn() error {
	o, err := sim.ReadOpenb(filepath.Join(b.folder, "openb"), "default")
	if err != nil {
		return err
	}
	for _, policy := range []string{"default", "best_fit"} {
		if err := b.churned(o, "openb/churn/"+policy, policy, churnPods); err != nil {
			return err
		}
	}
	return nil
}

// churned measures one placement policy.
func (b *bench) churned(o *sim.Openb, name, policy string, pods int) error {
	with := sim.ChurnOptions{Percent: churnLoad, Pods: pods, Moves: churnMoves, Seeds: b.seeds[:min(len(b.seeds), churnSeeds)]}
	start := time.Now()
	told := func(moves int32, seed uint64, of sim.Progress) {
		if of.Done == of.All {
			fmt.Fprintf(os.Stderr, "%s with %d moves an hour, seed %d: over after %.1f s\n", name, moves, seed, time.Since(start).Seconds())
		}
	}
	curve, err := sim.RunChurn(b.ctx, o, policy, with, told, func(seed uint64) (*place.Policy, error) { return sim.Policy(policy, seed, o.Pods) })
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	b.curves = append(b.curves, curve)
	for _, p := range curve.Points {
		for _, m := range []report.Metric{
			{Metric: fmt.Sprintf("%s@%d", name, p.Allowed), Value: p.Allocated, Unit: "%"},
			{Metric: fmt.Sprintf("%s/moves@%d", name, p.Allowed), Value: p.Moved, Unit: "per 1,000 pods"},
			{Metric: fmt.Sprintf("%s/refused@%d", name, p.Allowed), Value: p.GivenUp, Unit: "% of pods"},
		} {
			b.Beside(m.Metric, m.Value, m.Unit)
		}
	}
	return nil
}

// plot draws the curves of pods that come and go, if there are some, into a page beside the report.
func (b *bench) plot(out string) error {
	if len(b.curves) == 0 {
		return nil
	}
	trace := "generated pods that come and go"
	if b.folder != "" {
		trace = "pods of openb's default list that come and go"
	}
	out = b.Path(out)
	return sim.WriteHTML(out[:len(out)-len(filepath.Ext(out))]+".html", &sim.File{Trace: trace, Churn: b.curves})
}
