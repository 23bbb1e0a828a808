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
)

const (
	sampleEvery = 250 * time.Millisecond
	settle      = 2 * time.Second // between the first work of the last program and the first reading that counts
	slack       = 2 * time.Second // readings go on so much longer than one window: every 10 s counts, not one
)

// outcome is what one scenario came to, the worst of its repeats.
type outcome struct {
	scenario scenario
	with     verdict
	without  verdict
	arbiter  float64 // percent of a core
}

// measureShares runs a scenario under Aliquot so many times and then without, and keeps the worst of each.
func (b *bench) measureShares(ctx context.Context, s scenario) (outcome, error) {
	out := outcome{scenario: s}
	for i := range b.repeats {
		v, arbiter, err := b.runShared(ctx, s)
		if err != nil {
			return out, fmt.Errorf("%s: %w", s.name, err)
		}
		if i == 0 {
			out.with = v
		}
		out.with, out.arbiter = out.with.worse(v), max(out.arbiter, arbiter)
	}
	for i := range b.bare {
		v, err := b.runBare(ctx, s)
		if err != nil {
			return out, fmt.Errorf("%s without Aliquot: %w", s.name, err)
		}
		if i == 0 {
			out.without = v
		}
		out.without = out.without.worse(v)
	}
	return out, nil
}

// runShared runs a scenario once under Aliquot; arbiter is what that used of a core meanwhile.
func (b *bench) runShared(ctx context.Context, s scenario) (v verdict, arbiter float64, err error) {
	var uids []string
	defer func() { err = errors.Join(err, b.daemon.end(uids)) }()
	for _, t := range s.tenants {
		w, err := b.daemon.submit(ctx, t.share(), api.Training, t.line(b.trainer))
		if err != nil {
			return v, 0, err
		}
		uids = append(uids, w.UID)
	}
	pids := make([]int, len(uids))
	for i, uid := range uids {
		w, err := b.daemon.running(ctx, uid)
		if err != nil {
			return v, 0, err
		}
		pids[i] = w.Status.PID
	}
	worker, err := b.daemon.arbiter()
	if err != nil {
		return v, 0, err
	}
	var before time.Duration
	var began time.Time
	v, err = b.observe(ctx, s, pids, func() error {
		began = time.Now()
		before, err = cpuTime(worker)
		return err
	})
	if err != nil {
		return v, 0, err
	}
	after, err := cpuTime(worker)
	return v, 100 * float64(after-before) / float64(time.Since(began)), err
}

// runBare runs the same programs with the driver's own library and no one between them.
func (b *bench) runBare(ctx context.Context, s scenario) (v verdict, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var programs []*exec.Cmd
	defer func() {
		cancel()
		for _, program := range programs {
			_ = program.Wait() // it was told to end, and says so
		}
	}()
	pids := make([]int, len(s.tenants))
	for i, t := range s.tenants {
		program := b.daemon.bare(ctx, t.line(b.trainer))
		if err := program.Start(); err != nil {
			return v, err
		}
		programs = append(programs, program)
		pids[i] = program.Process.Pid
	}
	return b.observe(ctx, s, pids, func() error { return nil })
}

// observe waits until all programs work, calls begin, reads the record over a window and some slack, and judges.
func (b *bench) observe(ctx context.Context, s scenario, pids []int, begin func() error) (verdict, error) {
	if err := b.allWork(ctx, pids); err != nil {
		return verdict{}, err
	}
	if err := pause(ctx, settle); err != nil {
		return verdict{}, err
	}
	helpers, err := childrenOf(pids)
	if err != nil {
		return verdict{}, err
	}
	if err := begin(); err != nil {
		return verdict{}, err
	}
	var readings []reading
	for {
		r, err := b.daemon.record.read(ctx, 0)
		if err != nil {
			return verdict{}, err
		}
		for pid, of := range helpers {
			r.busy[of] += r.busy[pid]
		}
		readings = append(readings, r)
		if r.at-readings[0].at >= b.window+slack {
			break
		}
		if err := pause(ctx, sampleEvery); err != nil {
			return verdict{}, err
		}
	}
	for i, pid := range pids {
		last, before := readings[len(readings)-1].busy[pid], readings[0].busy[pid]
		if last == before && due(s.tenants[i]) {
			return verdict{}, fmt.Errorf("program %d (pid %d) got no device time: did it end?", i+1, pid)
		}
	}
	v, ok := judge(s.tenants, pids, readings, b.window)
	if !ok {
		return v, fmt.Errorf("%d readings hold no window of %v", len(readings), b.window)
	}
	return v, nil
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
func due(t tenant) bool { return t.compute.Floor > 0 && t.demand > 0 }

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
			if r.busy[pid] == 0 {
				idle++
			}
		}
		if idle == 0 {
			return nil
		}
		if err := pause(ctx, sampleEvery); err != nil {
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
