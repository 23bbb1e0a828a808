package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/aliquot-dev/aliquot/bench/report"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/sim"
)

// churnMoves are how many moves an hour are measured, and churnLoad what the pods that come and go want of all devices, in percent.
var churnMoves = []int32{0, 10, 30, 100}

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
	for _, moves := range churnMoves {
		start := time.Now()
		var held, moved, refused float64
		seeds := b.seeds[:min(len(b.seeds), churnSeeds)]
		for _, seed := range seeds {
			if err := b.ctx.Err(); err != nil {
				return err
			}
			weights, err := sim.Policy(policy, seed, o.Pods)
			if err != nil {
				return err
			}
			options := sim.Options{Config: engine.Config{Placement: weights}, GiveUp: true}
			if moves > 0 {
				options.Defragment = &engine.Defragment{MovesPerHour: moves}
			}
			r, err := sim.Run(o.Churned(seed, churnLoad, pods), options)
			if err != nil {
				return fmt.Errorf("%s with %d moves an hour: %w", name, moves, err)
			}
			n := float64(len(seeds))
			held, moved, refused = held+r.Held/n, moved+1000*float64(r.Moves)/float64(pods)/n, refused+100*float64(r.GivenUp)/float64(r.Jobs)/n
		}
		fmt.Fprintf(os.Stderr, "%s with %d moves an hour: %.2f %% allocated (%.1f s)\n", name, moves, held, time.Since(start).Seconds())
		for _, m := range []report.Metric{
			{Metric: fmt.Sprintf("%s@%d", name, moves), Value: held, Unit: "%"},
			{Metric: fmt.Sprintf("%s/moves@%d", name, moves), Value: moved, Unit: "per 1,000 pods"},
			{Metric: fmt.Sprintf("%s/refused@%d", name, moves), Value: refused, Unit: "% of pods"},
		} {
			b.Beside(m.Metric, m.Value, m.Unit)
		}
	}
	return nil
}
