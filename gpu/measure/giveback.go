package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/bench/judge"
)

// mostExplained is how many outliers are told one by one; log.txt has what is said of the others.
const mostExplained = 20

// giveBack measures how long an owner that wakes up waits for its lease and at the gate, beside two tenants that borrow all it leaves,
// and until its work is done; then the last by the driver's time-slicing.
func (s *suite) giveBack(ctx context.Context, kernel time.Duration, wakes int) (figures, error) {
	found := figures{"neighbour_kernel_ms": ms(kernel)}
	shared, err := s.wakes(ctx, kernel, wakes, true)
	if err != nil {
		return found, err
	}
	if slices.ContainsFunc(shared, func(w judge.WakeUp) bool { return w.Lease < 0 }) {
		return found, errors.New("the waker found no page of its task, and so does not know its leases")
	}
	var g judge.GiveBack
	g.Add(shared, kernel)
	found["wakes"] = float64(g.Wakes)
	found["lease_p99_ms"], found["lease_max_ms"] = ms(g.LeaseP99), ms(g.LeaseMost)
	found["gate_p50_ms"], found["gate_p99_ms"], found["gate_max_ms"] = ms(g.P50), ms(g.P99), ms(g.Most)
	found["done_p99_ms"], found["outliers"] = ms(g.DoneP99), float64(g.Outliers)
	explained := judge.ExplainAll(shared, kernel)
	for _, text := range explained {
		s.log.printf("%s", text)
	}
	if len(explained) > 0 {
		found["explained"] = explained[:min(len(explained), mostExplained)]
	}
	if s.noDriver {
		return found, nil
	}
	bare, err := s.wakes(ctx, kernel, min(wakes, 400), false)
	if err != nil {
		return found, err
	}
	var by judge.GiveBack
	by.Add(bare, kernel)
	found["by_the_driver_wakes"], found["by_the_driver_done_p99_ms"] = float64(by.Wakes), ms(by.DoneP99)
	return found, nil
}

// wakes runs waker beside two tenants that work.
func (s *suite) wakes(ctx context.Context, kernel time.Duration, wakes int, shared bool) (woke []judge.WakeUp, err error) {
	neighbour := judge.Tenant{Compute: api.Compute{Floor: 200, Ceiling: 1000}, Kernel: kernel, Demand: api.WholeDevice}
	owner := []string{s.program("waker"), "--wakes", strconv.Itoa(wakes), "--pause-ms", "5", "--kernel-us", "200"}
	var names []string
	var lines []line
	for range 2 {
		s.named++
		name := fmt.Sprintf("borrower-%d", s.named)
		l, err := s.bare(s.tenantLine(neighbour)...)
		if shared {
			l, err = s.shared(share{name: name, gpu: written(neighbour.Compute), mem: "1Gi"}, s.tenantLine(neighbour)...)
		}
		if err != nil {
			return nil, err
		}
		names, lines = append(names, name), append(lines, l)
	}
	c, err := s.together(ctx, names, lines)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.leave()) }()
	l, err := s.bare(owner...)
	if err == nil && shared {
		l, err = s.ownerLine(ctx, owner, names)
	}
	if err != nil {
		return nil, err
	}
	out, err := s.output(ctx, l)
	if err != nil {
		return nil, err
	}
	if err := c.still(); err != nil {
		return nil, err
	}
	return judge.ParseWakeUps(out, wakes)
}

// ownerLine is the owner under its share, told of the processes whose waits explain its own.
func (s *suite) ownerLine(ctx context.Context, owner, neighbours []string) (line, error) {
	pids, err := s.onOneDevice(ctx, neighbours)
	if err != nil {
		return line{}, err
	}
	arbiter, err := judge.Process(s.server.run, "aliquot-arbiter")
	if err != nil {
		return line{}, err
	}
	owner = append(owner, "--arbiter", strconv.Itoa(arbiter), "--neighbour", strconv.Itoa(pids[0]), "--neighbour-2", strconv.Itoa(pids[1]))
	return s.shared(share{gpu: "0.5..1", mem: "1Gi"}, owner...)
}

// arbiterIdle is what the arbiter uses of a core while nothing runs.
func (s *suite) arbiterIdle(ctx context.Context) (figures, error) {
	if s.server == nil {
		return nil, notRun("there is no server: see the first step")
	}
	arbiter, err := judge.Process(s.server.run, "aliquot-arbiter")
	if err != nil {
		return nil, err
	}
	use, err := judge.CoreUse(ctx, arbiter, s.scale.alone)
	return figures{"percent_of_a_core": use, "over_s": s.scale.alone.Seconds()}, err
}
