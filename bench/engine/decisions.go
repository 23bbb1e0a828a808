package main

import (
	"fmt"
	"time"

	"github.com/aliquot-dev/aliquot/bench/report"
	"github.com/aliquot-dev/aliquot/engine"
)

// Percent of the fleet taken, between which it goes up and down while decisions are timed.
const (
	least = 60
	most  = 95
)

// one in so many submissions does not fit.
const oneIn = 10

// decisionsPerSecond measures decisions with many shapes and with one, a tenth of them refusals; beside that with none, and with time limits,
// by which a refusal's reason says when it starts at the latest.
func (b *bench) decisionsPerSecond() error {
	for _, shapes := range []int{b.shapes, 1} {
		rate, err := sweep(newWorld(b.nodes, shapes), b.decisions, oneIn)
		if err != nil {
			return err
		}
		name := "decisions_per_second"
		if shapes == 1 {
			name += "/1_shape"
		}
		b.AtLeast(name, rate, 50_000, "1/s")
	}
	rate, err := sweep(newWorld(b.nodes, b.shapes), b.decisions, 0)
	if err != nil {
		return err
	}
	b.Beside("decisions_per_second/all_placed", rate, "1/s")
	limited := newWorld(b.nodes, b.shapes)
	limited.limits = true
	rate, err = sweep(limited, b.decisions, oneIn)
	if err != nil {
		return err
	}
	b.Beside("decisions_per_second/time_limits", rate, "1/s")
	rate, err = behindGang(b.nodes, b.shapes, b.growthSteps)
	b.Beside("decisions_per_second/behind_gang", rate, "1/s")
	return err
}

// behindGang measures decisions about work with time limits behind a gang on a tenth of the nodes that waits in front: what starts must leave that
// gang its place. Before each one workload ends.
func behindGang(nodes, shapes, decisions int) (float64, error) {
	x := newWorld(nodes, shapes)
	x.limits = true
	if err := x.fillTo(most); err != nil {
		return 0, err
	}
	gang := whole("gang", "default", max(2, nodes/10), perNode)
	gang.Model = "h100"
	if err := x.step(engine.Submit{At: engine.At{At: x.now}, Workload: gang}); err != nil {
		return 0, err
	}
	placed, begin := x.placed, time.Now()
	for range decisions {
		x.now += 1000
		if err := x.depart(); err != nil {
			return 0, err
		}
		if err := x.decide(x.work(), false); err != nil {
			return 0, err
		}
	}
	if x.placed == placed {
		return 0, fmt.Errorf("nothing of %d workloads starts behind a gang", decisions)
	}
	return float64(decisions) / time.Since(begin).Seconds(), nil
}

// sweep fills a fleet to 60 %, then times decisions while it goes to 95 % and back to 60 %: with each fifth decision one workload
// ends, and as many more as the way down asks for. Everything counts: what the host answers, the ends, and the reasons of those
// refused, which are one in so many (0: none).
func sweep(x *world, decisions, refused int) (float64, error) {
	if err := x.pin(); err != nil {
		return 0, err
	}
	if err := x.fillTo(least); err != nil {
		return 0, err
	}
	begin := time.Now()
	for i := range decisions {
		x.now += 1000
		up := float64(i) / float64(decisions) * 2
		goal := x.full(least + (most-least)*min(up, 2-up))
		for n := 0; x.taken > goal || n == 0 && x.random.IntN(5) == 0; n++ {
			if err := x.depart(); err != nil {
				return 0, err
			}
		}
		w := x.work()
		if refused > 0 && i%refused == 0 {
			w = x.large()
		}
		if err := x.decide(w, true); err != nil {
			return 0, err
		}
	}
	rate := float64(decisions) / time.Since(begin).Seconds()
	if want := decisions / max(1, refused); refused > 0 && x.refused < want {
		return 0, fmt.Errorf("%d decisions are refusals instead of at least %d", x.refused, want)
	}
	return rate, nil
}

// growthOfAll measures fleets of other sizes, nodes with other numbers of devices, as much filled and emptied as those of 8 by decisionsPerSecond, and lines of
// other lengths.
func (b *bench) growthOfAll() error {
	for _, nodes := range b.growth {
		rate, err := sweep(newWorld(nodes, b.shapes), b.growthSteps, oneIn)
		if err != nil {
			return err
		}
		b.Add(report.Metric{Metric: fmt.Sprintf("growth/decisions_per_second@%d_nodes", nodes), Value: rate, Unit: "1/s", OK: true})
	}
	for _, devices := range b.perNodes {
		rate, err := sweep(newWorldOf(b.nodes, devices, b.shapes), b.decisions*devices/perNode, oneIn)
		if err != nil {
			return err
		}
		b.Beside(fmt.Sprintf("growth/decisions_per_second@%d_devices", devices), rate, "1/s")
	}
	for _, waiting := range b.backlogs {
		took, _, err := b.before(waiting, false)
		if err != nil {
			return err
		}
		b.Beside(fmt.Sprintf("growth/submit_p99@%d_waiting", waiting), milliseconds(quantile(took, 99)), "ms")
	}
	return nil
}
