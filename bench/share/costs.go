package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
)

// measureIdle reports what the arbiter and the daemon use of a core while nothing runs on the device: first without any task,
// then with eight that hold grants and sleep. The worse counts.
func (b *bench) measureIdle(ctx context.Context, r *report) (err error) {
	arbiter, daemon, err := b.idle(ctx)
	if err != nil {
		return err
	}
	var uids []string
	defer func() { err = errors.Join(err, b.daemon.end(uids)) }()
	for range 8 {
		share := api.Share{Compute: api.Compute{Floor: 100, Ceiling: 1000}, Memory: memory}
		w, err := b.daemon.submit(ctx, share, api.Interactive, []string{"sleep", "infinity"})
		if err != nil {
			return err
		}
		uids = append(uids, w.UID)
		if _, err := b.daemon.running(ctx, w.UID); err != nil {
			return err
		}
	}
	arbiterHeld, daemonHeld, err := b.idle(ctx)
	if err != nil {
		return err
	}
	r.atMost("arbiter_idle", max(arbiter, arbiterHeld), 0.1, "% of a core")
	r.atMost("daemon_idle", max(daemon, daemonHeld), 1, "% of a core")
	return nil
}

// idle is the worst of the repeats, for the arbiter and for the daemon.
func (b *bench) idle(ctx context.Context) (arbiter, daemon float64, err error) {
	worker, err := b.daemon.arbiter()
	if err != nil {
		return 0, 0, err
	}
	if err := pause(ctx, settle); err != nil {
		return 0, 0, err
	}
	for range b.repeats {
		var wait sync.WaitGroup
		var use [2]float64
		var errs [2]error
		for i, pid := range []int{worker, b.daemon.pid} {
			wait.Go(func() { use[i], errs[i] = coreUse(ctx, pid, b.window) })
		}
		wait.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			return 0, 0, err
		}
		arbiter, daemon = max(arbiter, use[0]), max(daemon, use[1])
	}
	return arbiter, daemon, nil
}

// measureBurst submits tasks all at once and checks that each is accounted for: known by the name that was given, run once, ended
// well, its own words in its own log.
func (b *bench) measureBurst(ctx context.Context, r *report) error {
	began := time.Now()
	names := make([]string, b.burst)
	errs := make([]error, b.burst)
	var wait sync.WaitGroup
	for i := range names {
		wait.Go(func() {
			w, err := b.daemon.client.Submit(ctx, api.WorkloadSpec{
				Name: fmt.Sprintf("burst-%d", i), Command: []string{"echo", fmt.Sprintf("task %d", i)}, Dir: "/",
				Env:   map[string]string{"PATH": os.Getenv("PATH")},
				Share: api.Share{Compute: api.Compute{Floor: 10, Ceiling: 10}},
			})
			names[i], errs[i] = w.UID, err
		})
	}
	wait.Wait()
	submitted := time.Since(began)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	accounted := 0
	for i, uid := range names {
		said, err := b.daemon.ended(ctx, uid)
		if err != nil {
			return err
		}
		if said == fmt.Sprintf("task %d\n", i) {
			accounted++
		}
	}
	slices.Sort(names)
	if distinct := len(slices.Compact(names)); distinct != b.burst {
		return fmt.Errorf("%d tasks were submitted and %d have a UID of their own", b.burst, distinct)
	}
	r.atLeast("tasks_accounted", float64(accounted), float64(b.burst), "tasks")
	r.beside("tasks_submitted_in", submitted.Seconds(), "s")
	r.beside("tasks_ended_in", time.Since(began).Seconds(), "s")
	return nil
}

// measureRun reports what `aliquot run` adds to a program that does nothing: the difference of the medians, the worst repeat.
func (b *bench) measureRun(ctx context.Context, r *report) error {
	const times = 20
	median := func(start func() error) (time.Duration, error) {
		took := make([]time.Duration, times)
		for i := range took {
			began := time.Now()
			if err := start(); err != nil {
				return 0, err
			}
			took[i] = time.Since(began)
		}
		slices.Sort(took)
		return quantile(took, 0.5), nil
	}
	worst := time.Duration(0)
	for range b.repeats {
		alone, err := median(func() error { return exec.CommandContext(ctx, "true").Run() })
		if err != nil {
			return err
		}
		under, err := median(func() error {
			out, err := b.daemon.command(ctx, "run", "--gpu", "0.1", "--", "true")
			if err != nil {
				return fmt.Errorf("aliquot run true: %w: %s", err, strings.TrimSpace(out))
			}
			return nil
		})
		if err != nil {
			return err
		}
		worst = max(worst, under-alone)
	}
	r.atMost("run_true_adds", worst.Seconds()*1e3, 60, "ms")
	return nil
}

// measureTimer reports how late a timer of 1 ms is on this machine, without real-time priority: what no figure here can beat.
func (b *bench) measureTimer(ctx context.Context, r *report) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var late []time.Duration
	for range 1000 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			return err
		}
		due := unix.NsecToTimespec(now.Nano() + int64(time.Millisecond))
		for {
			err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &due, nil)
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EINTR) {
				return fmt.Errorf("sleep for a millisecond: %w", err)
			}
		}
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			return err
		}
		late = append(late, time.Duration(now.Nano()-due.Nano()))
	}
	slices.Sort(late)
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	r.beside("timer_late_p50", us(quantile(late, 0.5)), "µs")
	r.beside("timer_late_p99", us(quantile(late, 0.99)), "µs")
	r.beside("timer_late_max", us(late[len(late)-1]), "µs")
	return nil
}
