// Package main measures what decisions of the engine cost, on one thread, with the default placement weights: decisions a second with
// few and many shapes, a step that changes nothing, a gang that cannot fit, giving back, a long line, memory, and how all of it
// grows with the fleet. What goes out are a table and build/bench/engine.json. It needs no trace: fleets and work are made from
// fixed seeds. It ends with status 1 if a goal was missed, 2 if it could not measure.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/bench/report"
)

func main() {
	out := flag.String("out", "build/bench/engine.json", "where to write the report")
	only := flag.String("only", "", "measure this alone: "+strings.Join(names(), ", "))
	profile := flag.String("cpuprofile", "", "write a CPU profile to this file")
	flag.Parse()
	b := &bench{size: full}
	err := profiled(*profile, func() error { return b.run(*only) })
	if err == nil {
		err = errors.Join(b.Table(os.Stdout), b.Write(*out))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-engine:", err)
		os.Exit(2)
	}
	if b.Missed() > 0 {
		os.Exit(1)
	}
}

// profiled runs do under the CPU profiler where a file is named.
func profiled(path string, do func() error) error {
	if path == "" {
		return do()
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return fmt.Errorf("write the profile: %w", err)
	}
	err = do()
	pprof.StopCPUProfile()
	return errors.Join(err, f.Close())
}

// bench is one run of the benchmark.
type bench struct {
	size
	report.Report
}

// size is how large everything is that is measured.
type size struct {
	nodes, shapes  int
	decisions      int // that are timed, for each figure
	gang           int // tasks
	gangTimes      int // that it is refused
	reclaimNodes   int
	reclaimDevices int
	waiting        int
	submits        int   // that are timed before a long line
	growth         []int // nodes
	perNodes       []int // devices on each of nodes
	growthSteps    int
	backlogs       []int
}

// full is what the goals are for.
var full = size{
	nodes: 5000, shapes: 127, decisions: 60_000, gang: 512, gangTimes: 100, reclaimNodes: 1000, reclaimDevices: 512,
	waiting: 100_000, submits: 500, growth: []int{100, 1000, 20_000}, perNodes: []int{1, 4, 16}, growthSteps: 20_000, backlogs: []int{1000, 10_000},
}

type measurement struct {
	name string
	run  func(*bench) error
}

func measurements() []measurement {
	return []measurement{
		{"decisions", (*bench).decisionsPerSecond},
		{"idle", (*bench).idleStep},
		{"gang", (*bench).impossibleGang},
		{"reclaim", (*bench).reclaim},
		{"waiting", (*bench).longLine},
		{"memory", (*bench).memory},
		{"growth", (*bench).growthOfAll},
	}
}

func names() []string {
	var all []string
	for _, m := range measurements() {
		all = append(all, m.name)
	}
	return all
}

// run measures everything, or one measurement alone, and says on standard error how far it is.
func (b *bench) run(only string) error {
	if only != "" {
		b.Part = "-only " + only
	}
	found := false
	for _, m := range measurements() {
		if only != "" && only != m.name {
			continue
		}
		found = true
		start := time.Now()
		if err := m.run(b); err != nil {
			return fmt.Errorf("measure %s: %w", m.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s: measured in %.1f s\n", m.name, time.Since(start).Seconds())
	}
	if !found {
		return fmt.Errorf("there is no measurement %q: give one of %s", only, strings.Join(names(), ", "))
	}
	return nil
}
