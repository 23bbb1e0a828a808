package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/bench/judge"
)

const (
	lookEvery   = 250 * time.Millisecond
	sampleEvery = 50 * time.Millisecond
	fineEvery   = 10 * time.Millisecond // at first, for the short windows: each reading takes CPU time from what is measured
	fine        = 3 * time.Second
	settle      = 2 * time.Second // between the first work of the last program and the first reading that counts
	slack       = 2 * time.Second // readings go on so much longer than one window: every 10 s counts, not one
	mostAgain   = 4               // a scenario is run so many times as often as it is to count, at the most
)

// outcome is what one scenario came to, the worst of its repeats.
type outcome struct {
	scenario scenario
	with     judge.Verdict
	without  judge.Verdict
	beyond   judge.Beyond // its window is 0 where no tenant has a ceiling below the device
	arbiter  float64      // percent of a core
	again    int          // runs that were not counted, since too much CPU time was taken from the machine
	taken    float64      // of the runs that count, percent of the machine's CPU time, the most
}

// shared is a scenario that was run once under Aliquot.
type shared struct {
	judge.Observation
	arbiter float64 // what it used of a core meanwhile, percent
	taken   float64 // what was taken of the machine's CPU time meanwhile, percent
}

// span is for how long a scenario is observed under Aliquot.
func (b *bench) span() time.Duration {
	if b.minute {
		return max(time.Minute, b.window+slack)
	}
	return b.window + slack
}

// measureShares runs a scenario under Aliquot so many times and then without, and keeps the worst of each.
func (b *bench) measureShares(ctx context.Context, s scenario) (outcome, error) {
	out := outcome{scenario: s}
	for counted := 0; counted < b.repeats; {
		o, err := b.runShared(ctx, s, b.span())
		if err != nil {
			return out, fmt.Errorf("%s: %w", s.Name, err)
		}
		v, err := b.judge(o.Observation)
		if err != nil {
			return out, fmt.Errorf("%s: %w", s.Name, err)
		}
		if o.taken > b.taken && out.again < (mostAgain-1)*b.repeats {
			out.again++
			b.say("  not counted: %.2f %% of the machine's CPU time was taken from it; error %.2f points, busy %.1f %%", o.taken, v.ShareError, v.Busy)
			continue
		}
		if counted == 0 {
			out.with = v
		}
		counted++
		out.with, out.arbiter, out.taken = out.with.Worse(v), max(out.arbiter, o.arbiter), max(out.taken, o.taken)
		if one, ok := o.Beyond(); ok && (out.beyond.Window == 0 || one.Part() > out.beyond.Part()) {
			out.beyond = one
		}
	}
	for i := range b.bare {
		o, err := b.runBare(ctx, s)
		if err != nil {
			return out, fmt.Errorf("%s without Aliquot: %w", s.Name, err)
		}
		v, err := b.judge(o)
		if err != nil {
			return out, fmt.Errorf("%s without Aliquot: %w", s.Name, err)
		}
		if i == 0 {
			out.without = v
		}
		out.without = out.without.Worse(v)
	}
	return out, nil
}

// judge is judge.Observation.judge over the benchmark's window.
func (b *bench) judge(o judge.Observation) (judge.Verdict, error) {
	v, ok := o.Judge(b.window)
	if !ok {
		return v, fmt.Errorf("%d readings hold no window of %v", len(o.Readings), b.window)
	}
	return v, nil
}

// runShared runs a scenario once under Aliquot and observes it for a span.
func (b *bench) runShared(ctx context.Context, s scenario, span time.Duration) (o shared, err error) {
	var uids []string
	defer func() { err = errors.Join(err, b.daemon.end(uids)) }()
	for _, t := range s.Tenants {
		w, err := b.daemon.submit(ctx, t.Share(), api.Training, t.Line(b.trainer))
		if err != nil {
			return o, err
		}
		uids = append(uids, w.UID)
	}
	pids := make([]int, len(uids))
	for i, uid := range uids {
		w, err := b.daemon.running(ctx, uid)
		if err != nil {
			return o, err
		}
		pids[i] = w.Status.PID
	}
	worker, err := b.daemon.arbiter()
	if err != nil {
		return o, err
	}
	var before time.Duration
	var machine cpuTime
	var began time.Time
	o.Observation, err = b.observe(ctx, s, pids, span, func() error {
		began = time.Now()
		before, err = judge.CPUTime(worker)
		if err == nil {
			machine, err = readCPUTime()
		}
		return err
	})
	if err != nil {
		return o, err
	}
	after, err := judge.CPUTime(worker)
	if err != nil {
		return o, err
	}
	o.arbiter = 100 * float64(after-before) / float64(time.Since(began))
	now, err := readCPUTime()
	if err != nil {
		return o, err
	}
	o.taken = now.takenSince(machine)
	o.Asked, err = b.askedBy(ctx, s, uids, o.Readings[len(o.Readings)-1].At)
	return o, err
}

// askedBy waits until those tenants that want less than there is have said what they asked for up to a moment.
func (b *bench) askedBy(ctx context.Context, s scenario, uids []string, at time.Duration) ([][]judge.Asked, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	all := make([][]judge.Asked, len(uids))
	for i, t := range s.Tenants {
		if t.Demand >= api.WholeDevice {
			continue
		}
		for {
			printed, err := b.daemon.said(ctx, uids[i])
			if err != nil {
				return nil, err
			}
			if all[i], err = judge.ParseAsked(printed); err != nil {
				return nil, err
			}
			if _, ok := judge.Until(all[i], at); ok {
				break
			}
			if err := pause(ctx, lookEvery); err != nil {
				return nil, fmt.Errorf("tenant %d did not say what it asked for: %w", i+1, err)
			}
		}
	}
	return all, nil
}

// runBare runs the same programs with the driver's own library and no one between them.
func (b *bench) runBare(ctx context.Context, s scenario) (o judge.Observation, err error) {
	pids, end, err := b.startBare(ctx, s.Tenants)
	defer end()
	if err != nil {
		return o, err
	}
	return b.observe(ctx, s, pids, b.window+slack, func() error { return nil })
}

// startBare starts a program for each tenant with the driver's own library and no one between them. end ends those that it started, also
// where it failed.
func (b *bench) startBare(ctx context.Context, tenants []judge.Tenant) (pids []int, end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var programs []*exec.Cmd
	end = func() {
		cancel()
		for _, program := range programs {
			_ = program.Wait() // it was told to end, and says so
		}
	}
	for _, t := range tenants {
		program := b.daemon.bare(ctx, t.Line(b.trainer))
		if err := program.Start(); err != nil {
			return nil, end, err
		}
		programs = append(programs, program)
		pids = append(pids, program.Process.Pid)
	}
	return pids, end, nil
}

// observe waits until all programs work, calls begin, and reads the record over a span: every fineEvery at
// first, then every sampleEvery.
func (b *bench) observe(ctx context.Context, s scenario, pids []int, span time.Duration, begin func() error) (judge.Observation, error) {
	o := judge.Observation{Tenants: s.Tenants, PIDs: pids}
	if err := b.allWork(ctx, pids); err != nil {
		return o, err
	}
	if err := pause(ctx, settle); err != nil {
		return o, err
	}
	helpers, err := childrenOf(pids)
	if err != nil {
		return o, err
	}
	if err := begin(); err != nil {
		return o, err
	}
	for {
		r, err := b.daemon.record.read(ctx, 0)
		if err != nil {
			return o, err
		}
		for pid, of := range helpers {
			r.Busy[of] += r.Busy[pid]
		}
		o.Readings = append(o.Readings, r)
		every, passed := sampleEvery, r.At-o.Readings[0].At
		if passed >= span {
			break
		}
		if passed < fine {
			every = fineEvery
		}
		if err := pause(ctx, every); err != nil {
			return o, err
		}
	}
	for i, pid := range pids {
		last, before := o.Readings[len(o.Readings)-1].Busy[pid], o.Readings[0].Busy[pid]
		if last <= before && due(s.Tenants[i]) {
			return o, fmt.Errorf("program %d (pid %d) got no device time: did it end?", i+1, pid)
		}
	}
	return o, nil
}

// childrenOf returns the parent of each child of the processes.
func childrenOf(pids []int) (map[int]int, error) {
	parent := map[int]int{}
	for _, pid := range pids {
		list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			return nil, fmt.Errorf("children of process %d: %w", pid, err)
		}
		for _, field := range strings.Fields(string(list)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("children of process %d: %w", pid, err)
			}
			parent[child] = pid
		}
	}
	return parent, nil
}

// due says whether a tenant must have got something: a floor above zero, or a ceiling that leaves room to borrow.
func due(t judge.Tenant) bool { return t.Compute.Floor > 0 && t.Demand > 0 }

// allWork waits until every program has used the device.
func (b *bench) allWork(ctx context.Context, pids []int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		r, err := b.daemon.record.read(ctx, 0)
		if err != nil {
			return err
		}
		idle := 0
		for _, pid := range pids {
			if r.Busy[pid] == 0 {
				idle++
			}
		}
		if idle == 0 {
			return nil
		}
		if err := pause(ctx, lookEvery); err != nil {
			return fmt.Errorf("%d of %d programs never used the device: %w", idle, len(pids), err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
