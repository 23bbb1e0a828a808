package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/bench/judge"
)

// step is one part of a run.
type step struct {
	part  string // probe, share or torch
	name  string
	limit time.Duration
	needs time.Duration // as a rule, at full length: with less left it does not begin
	run   func(context.Context) (figures, error)
}

// figures are what a step found, by name. A name ends in its unit.
type figures map[string]any

// How a step ended.
const (
	doneStatus   = "done"
	failedStatus = "failed"
	notRunStatus = "not run"
)

// result is what became of a step.
type result struct {
	Part    string  `json:"part"`
	Name    string  `json:"name"`
	Status  string  `json:"status"`
	Why     string  `json:"why,omitempty"`
	Seconds float64 `json:"seconds"`
	Figures figures `json:"figures,omitempty"`
}

// notRun is the error of a step that cannot be taken here, with why: that is no failure.
type notRun string

func (n notRun) Error() string { return string(n) }

// take takes one step within its time. Figures that were found before it failed are kept.
func (s *suite) take(ctx context.Context, step step) result {
	r := result{Part: step.part, Name: step.name, Status: notRunStatus}
	if err := ctx.Err(); err != nil {
		r.Why = "no time was left"
		return r
	}
	if until, ok := ctx.Deadline(); ok && time.Until(until) < step.needs {
		r.Why = fmt.Sprintf("no time was left: it takes about %v, and %v were left", step.needs, time.Until(until).Round(time.Second))
		return r
	}
	fmt.Fprintf(os.Stderr, "%s %s %s\n", time.Now().Format(time.TimeOnly), step.part, step.name)
	s.log.printf("=== %s %s", step.part, step.name)
	bounded, cancel := context.WithTimeout(ctx, step.limit)
	defer cancel()
	began := time.Now()
	found, err := step.run(bounded)
	r.Seconds, r.Figures = time.Since(began).Seconds(), found
	var why notRun
	switch {
	case err == nil:
		r.Status = doneStatus
	case errors.As(err, &why):
		r.Why = why.Error()
	default:
		r.Status, r.Why = failedStatus, err.Error()
		if bounded.Err() != nil {
			r.Why = fmt.Sprintf("not done after %.0f s: %s", r.Seconds, r.Why)
		}
	}
	s.log.printf("=== %s %s", r.Status, r.Why)
	return r
}

// steps are all of a run, what matters most first: what there is no time for is what matters least. Those that need the server say so when
// there is none.
func (s *suite) steps() []step {
	const sec = time.Second
	all := []step{{"share", theServer, 40 * sec, 0, s.startServer}}
	for _, name := range []string{"symbols", "capture", "vmm", "events", "alloc", "processes"} {
		all = append(all, step{"probe", name, 30 * sec, 0, func(ctx context.Context) (figures, error) { return s.probe(ctx, name) }})
	}
	all = append(all,
		step{"probe", "processor", 20 * sec, 0, s.processor},
		step{"probe", "switch", 30 * sec, 0, s.switches},
		step{"probe", "exports", 20 * sec, 0, s.exports},
		step{"share", "doctor", 30 * sec, 0, s.doctor},
		step{"share", "devices", 10 * sec, 0, s.devices},
		step{"share", "run true", 15 * sec, 0, s.runTrue},
		step{"share", "nvidia-smi", 20 * sec, 0, s.nvidiaSMI},
		step{"share", "memory ceiling", 20 * sec, 0, s.memoryCeiling},
	)
	for _, name := range []string{"symbols", "capture", "vmm", "alloc", "processes"} {
		all = append(all, step{"share", "probe " + name, 20 * sec, 0, func(ctx context.Context) (figures, error) { return s.probeShared(ctx, name) }})
	}
	all = append(all,
		step{"share", "cost of a launch", 40 * sec, 0, func(ctx context.Context) (figures, error) { return s.cost(ctx, "launch") }},
		step{"share", "cost of an allocation", 40 * sec, 0, func(ctx context.Context) (figures, error) { return s.cost(ctx, "alloc") }},
	)
	var first, again []step
	for _, set := range sets() {
		needs := s.long(18 * sec)
		if set.bare {
			needs = s.long(28 * sec)
		}
		run := func(ctx context.Context) (figures, error) { return s.beside(ctx, set) }
		first = append(first, step{"share", set.Name, 60 * sec, needs, run})
		if s.scale.again {
			again = append(again, step{"share", set.Name + secondRound, 60 * sec, needs, run})
		}
	}
	giveBack := func(name string, kernel time.Duration, wakes int) step {
		run := func(ctx context.Context) (figures, error) { return s.giveBack(ctx, kernel, wakes) }
		return step{"share", name, 80 * sec, s.long(40 * sec), run}
	}
	const most = 3 // of the sets, before anything else
	return slices.Concat(all,
		[]step{{"share", "arbiter idle", 15 * sec, 0, s.arbiterIdle}, {"share", "alone", 40 * sec, s.long(20 * sec), s.tenantAlone}},
		first[:most],
		[]step{
			giveBack(giveBackShort, judge.Kernels[1], s.scale.wakes),
			{"share", "inference beside a trainer", 90 * sec, s.long(62 * sec), s.inference},
			{"share", "memory race", 40 * sec, s.long(16 * sec), s.race},
			{"probe", "pytorch", 45 * sec, 0, s.pytorch},
			{"torch", "frameworks", 90 * sec, s.long(35 * sec), s.frameworks},
		},
		s.torchSteps(graphs),
		first[most:most+2],
		[]step{giveBack(giveBackLong, judge.Kernels[3], s.scale.longWakes)},
		first[most+2:],
		s.torchSteps(eager),
		[]step{
			{"share", "live resize", 30 * sec, s.long(9 * sec), s.resize},
			{"probe", "libcudart", 60 * sec, s.long(20 * sec), s.libcudart},
		},
		again,
	)
}

// The names of steps that other parts know.
const (
	theServer     = "server" // without which there are no shares
	giveBackShort = "give-back beside kernels of 500µs"
	giveBackLong  = "give-back beside kernels of 20ms"
	secondRound   = ", again"
)

// long is a time that a step needs at full length; a short run is not held to it.
func (s *suite) long(needs time.Duration) time.Duration {
	if s.short {
		return 0
	}
	return needs
}
