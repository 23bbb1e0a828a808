// Package main measures on traces: how much of the devices each policy allocates by FGD's protocol on the openb lists, how long
// jobs take and how fair that is on Muri's and Philly's, and how much of the devices is of use where jobs share them, from what Lucid and
// Alibaba measured. What comes in are the traces in the folder that ALIQUOT_TRACES names (without it a generated
// ones); what goes out are a table and build/bench/traces.json, or traces-part.json where less than the whole was measured, and a page of plots beside it. It ends with status 1 if a goal was missed, 2 if it could not
// measure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/bench/report"
	"github.com/aliquot-dev/aliquot/engine/place"
	"github.com/aliquot-dev/aliquot/host/sim"
)

func main() {
	out := flag.String("out", "build/bench/traces.json", "where to write the report")
	only := flag.String("only", "", "measure a part: an openb list, or one of "+strings.Join(parts, ", "))
	seeds := flag.String("seeds", wholeSeeds, "of the openb lists, one run for each")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b := &bench{ctx: ctx, folder: os.Getenv("ALIQUOT_TRACES"), only: *only}
	b.Part = b.part(*seeds)
	var err error
	if b.seeds, err = sim.ParseSeeds(*seeds); err == nil {
		err = b.run()
	}
	if err == nil {
		err = errors.Join(b.Table(os.Stdout), b.Write(*out), b.plot(*out))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-traces:", err)
		os.Exit(2)
	}
	if b.Missed() > 0 {
		os.Exit(1)
	}
}

type bench struct {
	ctx    context.Context //nolint:containedctx // of one run of a program
	folder string
	only   string
	seeds  []uint64
	curves []*sim.Churn
	report.Report
}

// wholeSeeds are those that the published figures are the mean of.
const wholeSeeds = "42..51"

func (b *bench) run() error {
	if b.folder == "" && b.only == "" {
		fmt.Fprintln(os.Stderr, "ALIQUOT_TRACES is not set: generated traces are measured, for which there are no goals")
		return b.generated()
	}
	if b.folder == "" {
		return fmt.Errorf("-only %s needs traces, and ALIQUOT_TRACES names no folder of them: set it", b.only)
	}
	if b.wants("muri") {
		for _, trace := range []string{"trace1", "trace3"} {
			if err := b.muri(trace); err != nil {
				return err
			}
		}
	}
	if b.wants("philly") {
		if err := b.philly(); err != nil {
			return err
		}
	}
	if b.wants("churn") {
		if err := b.churn(); err != nil {
			return err
		}
	}
	if b.wants("sharing") {
		if err := b.sharing(); err != nil {
			return err
		}
	}
	if !slices.Contains(parts, b.only) {
		return b.openb()
	}
	return nil
}

// series runs one policy and says on standard error how far the whole is.
func (b *bench) series(o *sim.Openb, list, policy string) (*sim.Series, error) {
	start := time.Now()
	s, err := sim.RunSeries(b.ctx, o, policy, b.seeds, nil, nil, func(seed uint64) (*place.Policy, error) { return sim.Policy(policy, seed, o.Pods) })
	if err == nil {
		fmt.Fprintf(os.Stderr, "%s under %s: %.2f at 130 %% (%.1f s)\n", list, policy, s.MeanAt(130), time.Since(start).Seconds())
	}
	return s, err
}

func (b *bench) generated() error {
	o := sim.Generate(200, 1)
	for _, policy := range sim.Policies() {
		s, err := b.series(o, "generated", policy)
		if err != nil {
			return err
		}
		for _, at := range []int{130, 100} {
			b.Beside(fmt.Sprintf("generated/%s@%d", policy, at), s.MeanAt(at), "%")
		}
	}
	if err := b.churned(sim.Generate(12, 1), "generated/churn/default", "default", generatedPods); err != nil {
		return err
	}
	if err := b.fairness(sim.GenerateJobs(generatedNodes, phillyLoad, 1), "generated-jobs", false); err != nil {
		return err
	}
	return b.sharing()
}

// goals are what the default policy is to reach at 130 beyond what FGD reaches.
var goals = map[string]float64{"default": 96.0, "gpushare100": 87.5}

func (b *bench) openb() error {
	folder := filepath.Join(b.folder, "openb")
	published, err := sim.ReadPublished(filepath.Join(b.folder, "fgd", "published_allocation.csv"))
	if err != nil {
		return err
	}
	lists, err := sim.OpenbLists(folder)
	if err != nil {
		return err
	}
	if len(lists) == 0 {
		return fmt.Errorf("ALIQUOT_TRACES is %s, and there are no pod lists in %s", b.folder, folder)
	}
	if b.only != "" && !slices.Contains(lists, b.only) {
		return fmt.Errorf("-only %s: there is no such part; use %s or one of the lists %s", b.only, strings.Join(parts, ", "), strings.Join(lists, ", "))
	}
	for _, list := range lists {
		if b.only != "" && b.only != list {
			continue
		}
		o, err := sim.ReadOpenb(folder, list)
		if err != nil {
			return err
		}
		if err := b.list(o, list, published); err != nil {
			return err
		}
	}
	return nil
}

// list measures one list: the baselines against what was published, then the default policy against FGD.
func (b *bench) list(o *sim.Openb, list string, published sim.Published) error {
	const within = 0.3
	best := map[int]float64{}
	for _, policy := range []string{"random", "best_fit", "fgd"} {
		s, err := b.series(o, list, policy)
		if err != nil {
			return err
		}
		m := report.Metric{Metric: "openb/" + list + "/" + policy + "@130", Value: s.MeanAt(130), Unit: "%", OK: true}
		if want, ok := published.At(list, policy, 130); ok {
			m.Goal = fmt.Sprintf("%.2f ± %.1f", want, within)
			m.OK = m.Value >= want-within && m.Value <= want+within
		}
		b.Add(m)
		if policy == "fgd" {
			for _, at := range []int{130, 100} {
				best[at] = s.MeanAt(at)
				if want, ok := published.At(list, policy, at); ok {
					best[at] = max(best[at], want)
				}
			}
		}
	}
	s, err := b.series(o, list, "default")
	if err != nil {
		return err
	}
	for _, at := range []int{130, 100} {
		m := report.Metric{Metric: fmt.Sprintf("openb/%s@%d", list, at), Value: s.MeanAt(at), Unit: "%", Goal: fmt.Sprintf("> %.2f (FGD)", best[at])}
		m.OK = m.Value > best[at]
		if goal := goals[list]; at == 130 && goal > best[at] {
			m.Goal, m.OK = fmt.Sprintf("≥ %.1f", goal), m.Value >= goal
		}
		b.Add(m)
	}
	return nil
}
