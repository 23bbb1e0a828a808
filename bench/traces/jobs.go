package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/bench/report"
	"github.com/aliquot-dev/aliquot/host/sim"
)

// plain is what a simulator without overheads makes of Muri's traces, mean JCT in seconds, and within how much ours is to repeat it.
var plain = map[string]map[sim.Order]float64{
	"trace1": {sim.ShortestTime: 1_334_000, sim.ShortestService: 952_000},
	"trace3": {sim.ShortestTime: 180_000, sim.ShortestService: 173_000},
}

const plainWithin = 0.05

// themis is the mean JCT, in seconds, that Muri's paper gives for Themis, which knows no duration either.
var themis = map[string]float64{"trace1": 1_823_000, "trace3": 397_000}

// own is the order of the engine that jobs are measured with: it knows no duration.
const own = sim.Held

// others are the orders that Philly's jobs, and made ones, are measured with beside it.
var others = []sim.Order{sim.FirstCome, sim.Predicted, sim.Fair, sim.Tiresias, sim.LeastService}

// philly's load is what is asked of its devices, and its goals are those of fairness.
const (
	phillyLoad     = 0.9
	fairnessGoal   = 1.2
	unfairGoal     = 1.0
	generatedNodes = 8
)

// runJobs runs the jobs of a trace in an order and says on standard error how far the whole is.
func (b *bench) runJobs(t *sim.Trace, name string, order sim.Order) (*sim.JobResult, error) {
	return b.runJobsWith(t, name, sim.JobOptions{Order: order})
}

func (b *bench) runJobsWith(t *sim.Trace, name string, o sim.JobOptions) (*sim.JobResult, error) {
	start, order := time.Now(), o.Order
	r, err := sim.RunJobs(b.ctx, t, o)
	if err != nil {
		return nil, fmt.Errorf("%s under %s: %w", name, order, err)
	}
	if n := len(r.NeverRun); n > 0 {
		return nil, fmt.Errorf("%s under %s: %d jobs never ran, first %s: %s", name, order, n, r.NeverRun[0].Job, r.NeverRun[0].Reason)
	}
	fmt.Fprintf(os.Stderr, "%s under %s: mean JCT %.0f s (%.1f s)\n", name, order, r.MeanJCT, time.Since(start).Seconds())
	return r, nil
}

// muri measures one of Muri's traces: the orders that know the durations against the plain figures, then the engine's own, to which
// they are hidden, with jobs that share devices by their stages.
func (b *bench) muri(trace string) error {
	t, err := sim.ReadMuri(filepath.Join(b.folder, "muri", trace+".csv"))
	if err != nil {
		return err
	}
	name := "muri/" + trace
	for _, order := range []sim.Order{sim.ShortestTime, sim.ShortestService, sim.FirstCome, sim.Predicted, sim.Fair, sim.Tiresias, sim.LeastService, own} {
		r, err := b.runJobs(t, name, order)
		if err != nil {
			return err
		}
		m := report.Metric{Metric: fmt.Sprintf("%s/%s/jct", name, order), Value: r.MeanJCT / 1000, Unit: "ks", OK: true}
		if want, ok := plain[trace][order]; ok {
			m.Goal = fmt.Sprintf("%g ± %g %%", want/1000, plainWithin*100)
			m.OK = r.MeanJCT >= want*(1-plainWithin) && r.MeanJCT <= want*(1+plainWithin)
		}
		b.Add(m)
	}
	shared, sharing, err := t.Interleave()
	if err != nil {
		return err
	}
	placement, err := sim.Policy(sharingPolicy, firstSharingSeed, nil)
	if err != nil {
		return err
	}
	r, err := b.runJobsWith(shared, name+" interleaved", sim.JobOptions{Order: own, Placement: placement, Sharing: sharing})
	if err != nil {
		return err
	}
	b.Beside(name+"/at_once", r.Sharing.AtOnce, "jobs")
	b.Add(report.Metric{
		Metric: name + "/jct", Value: r.MeanJCT / 1000, Unit: "ks", Goal: fmt.Sprintf("< %g (Themis)", themis[trace]/1000), OK: r.MeanJCT < themis[trace],
	})
	return nil
}

// philly measures Microsoft's trace: the engine's own order, and others beside it.
func (b *bench) philly() error {
	t, err := sim.ReadPhilly(filepath.Join(b.folder, "sia", "philly.csv"), phillyLoad)
	if err != nil {
		return err
	}
	b.Beside("philly/devices", float64(t.Capacity()/1000), "")
	return b.fairness(t, "philly", true)
}

// fairness measures how long jobs take and how fair that is, under the engine's own order and beside it others.
func (b *bench) fairness(t *sim.Trace, name string, goals bool) error {
	for _, order := range append(slices.Clone(others), own) {
		r, err := b.runJobs(t, name, order)
		if err != nil {
			return err
		}
		at := name
		if order != own {
			at += "/" + string(order)
		}
		b.Beside(at+"/jct", r.MeanJCT/1000, "ks")
		b.Beside(at+"/p99_jct", r.P99JCT/1000, "ks")
		if order == own && goals {
			b.AtMost(at+"/fairness_p99", r.Fairness, fairnessGoal, "")
			b.Add(report.Metric{Metric: at + "/unfair", Value: r.Unfair, Unit: "%", Goal: fmt.Sprintf("< %g", unfairGoal), OK: r.Unfair < unfairGoal})
		} else {
			b.Beside(at+"/fairness_p99", r.Fairness, "")
			b.Beside(at+"/unfair", r.Unfair, "%")
		}
		b.Beside(at+"/fairness_worst", r.FairnessWorst, "")
	}
	return nil
}

// parts are what -only may name beside the openb lists.
var parts = []string{"muri", "philly", "churn", "sharing"}

// wants says that a part of the benchmark is to be measured.
func (b *bench) wants(part string) bool { return b.only == "" || b.only == part }

// part says by what this run is less than the whole; empty: it is whole.
func (b *bench) part(seeds string) string {
	var less []string
	if b.only != "" {
		less = append(less, "-only "+b.only)
	}
	if seeds != wholeSeeds {
		less = append(less, "-seeds "+seeds)
	}
	return strings.Join(less, ", ")
}
