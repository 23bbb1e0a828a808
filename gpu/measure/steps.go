package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// step is one part of a run.
type step struct {
	part  string // probe, share or torch
	name  string
	limit time.Duration
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

// steps are all of a run in their order. Those that need the server say so when there is none.
func (s *suite) steps() []step {
	all := []step{{"share", "server", 40 * time.Second, s.startServer}}
	for _, name := range []string{"symbols", "capture", "vmm", "events", "launch", "alloc", "switch", "processes"} {
		all = append(all, step{"probe", name, 30 * time.Second, func(ctx context.Context) (figures, error) { return s.probe(ctx, name) }})
	}
	all = append(all,
		step{"probe", "libcudart", 60 * time.Second, s.libcudart},
		step{"probe", "pytorch", 45 * time.Second, s.pytorch},
		step{"share", "doctor", 30 * time.Second, s.doctor},
		step{"share", "devices", 10 * time.Second, s.devices},
		step{"share", "run true", 15 * time.Second, s.runTrue},
		step{"share", "nvidia-smi", 20 * time.Second, s.nvidiaSMI},
		step{"share", "memory ceiling", 20 * time.Second, s.memoryCeiling},
	)
	for _, name := range []string{"symbols", "capture", "vmm", "launch", "alloc", "processes"} {
		all = append(all, step{"share", "probe " + name, 20 * time.Second, func(ctx context.Context) (figures, error) { return s.probeShared(ctx, name) }})
	}
	all = append(all,
		step{"share", "alone", 30 * time.Second, s.tenantAlone},
		step{"share", "2 tenants", 40 * time.Second, func(ctx context.Context) (figures, error) { return s.beside(ctx, pair, false) }},
		step{"share", "4 tenants", 40 * time.Second, func(ctx context.Context) (figures, error) { return s.beside(ctx, four, false) }},
		step{"share", "2 tenants, graphs", 40 * time.Second, func(ctx context.Context) (figures, error) { return s.beside(ctx, pair, true) }},
		step{"share", "live resize", 30 * time.Second, s.resize},
		step{"share", "give-back", 45 * time.Second, s.giveBack},
	)
	return slices.Concat(all, s.torchSteps())
}
