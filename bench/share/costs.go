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
	"github.com/aliquot-dev/aliquot/bench/judge"
	"github.com/aliquot-dev/aliquot/bench/report"
)

// measureIdle reports what the arbiter and the daemon use of a core while nothing runs on the device: first without any task,
// then with eight that hold grants and sleep. The worse counts.
func (b *bench) measureIdle(ctx context.Context, r *report.Report) (err error) {
	arbiter, daemon, err := b.idle(ctx)
	if err != nil {
		return err
	}
	var uids []string
	defer func() { err = errors.Join(err, b.daemon.end(uids)) }()
	for range 8 {
		share := api.Share{Compute: api.Compute{Floor: 100, Ceiling: 1000}, Memory: judge.Memory}
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
	r.AtMost("arbiter_idle", max(arbiter, arbiterHeld), 0.1, "% of a core")
	r.AtMost("daemon_idle", max(daemon, daemonHeld), 1, "% of a core")
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
			wait.Go(func() { use[i], errs[i] = judge.CoreUse(ctx, pid, b.window) })
		}
		wait.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			return 0, 0, err
		}
		arbiter, daemon = max(arbiter, use[0]), max(daemon, use[1])
	}
	return arbiter, daemon, nil
}

// measureBurst submits tasks all at once and checks that each is accounted for; the worst of the repeats counts.
func (b *bench) measureBurst(ctx context.Context, r *report.Report) error {
	accounted := b.burst
	var submitted, ended time.Duration
	for repeat := range b.repeats {
		one, err := b.submitBurst(ctx, repeat)
		if err != nil {
			return err
		}
		accounted = min(accounted, one.accounted)
		submitted, ended = max(submitted, one.submitted), max(ended, one.ended)
	}
	r.AtLeast("tasks_accounted", float64(accounted), float64(b.burst), "tasks")
	r.Beside("tasks_submitted_in", submitted.Seconds(), "s")
	r.Beside("tasks_ended_in", ended.Seconds(), "s")
	return nil
}

// burst is what became of tasks that were submitted at once: how many are accounted for, and after how long all were handed in and
// had ended.
type burst struct {
	accounted        int
	submitted, ended time.Duration
}

// submitBurst is one repeat. A task is accounted for if it is known by the name that was given, ran once, ended well, and has its own
// words in its own log.
func (b *bench) submitBurst(ctx context.Context, repeat int) (out burst, err error) {
	began := time.Now()
	uids := make([]string, b.burst)
	errs := make([]error, b.burst)
	var wait sync.WaitGroup
	for i := range uids {
		wait.Go(func() {
			w, err := b.daemon.client.Submit(ctx, api.WorkloadSpec{
				Name: fmt.Sprintf("burst-%d-%d", repeat, i), Command: []string{"echo", fmt.Sprintf("task %d", i)}, Dir: "/",
				Env:   map[string]string{"PATH": os.Getenv("PATH")},
				Share: api.Share{Compute: api.Compute{Floor: 10, Ceiling: 10}},
			})
			uids[i], errs[i] = w.UID, err
		})
	}
	wait.Wait()
	out.submitted = time.Since(began)
	if err := errors.Join(errs...); err != nil {
		return out, err
	}
	for i, uid := range uids {
		said, err := b.daemon.ended(ctx, uid)
		if err != nil {
			return out, err
		}
		if said == fmt.Sprintf("task %d\n", i) {
			out.accounted++
		}
	}
	out.ended = time.Since(began)
	slices.Sort(uids)
	if distinct := len(slices.Compact(uids)); distinct != b.burst {
		return out, fmt.Errorf("%d tasks were submitted and %d have a UID of their own", b.burst, distinct)
	}
	return out, nil
}

// measureRun reports what `aliquot run` adds to a program that does nothing: the difference of the medians, the worst repeat.
func (b *bench) measureRun(ctx context.Context, r *report.Report) error {
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
		return judge.Quantile(took, 0.5), nil
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
	r.AtMost("run_true_adds", worst.Seconds()*1e3, 60, "ms")
	return nil
}

// measureTimer reports how late a timer of 1 ms is on this machine, without real-time priority: what no figure here can beat. The
// worst of the repeats counts.
func (b *bench) measureTimer(ctx context.Context, r *report.Report) error {
	var half, most, worst time.Duration
	for range b.repeats {
		late, err := timers(ctx)
		if err != nil {
			return err
		}
		half, most = max(half, judge.Quantile(late, 0.5)), max(most, judge.Quantile(late, 0.99))
		worst = max(worst, late[len(late)-1])
	}
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	r.Beside("timer_late_p50", us(half), "µs")
	r.Beside("timer_late_p99", us(most), "µs")
	r.Beside("timer_late_max", us(worst), "µs")
	return nil
}

// timers is by how much 1,000 sleeps of 1 ms were late, sorted.
func timers(ctx context.Context) ([]time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var late []time.Duration
	for range 1000 {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			return nil, err
		}
		due := unix.NsecToTimespec(now.Nano() + int64(time.Millisecond))
		for {
			err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &due, nil)
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EINTR) {
				return nil, fmt.Errorf("sleep for a millisecond: %w", err)
			}
		}
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			return nil, err
		}
		late = append(late, time.Duration(now.Nano()-due.Nano()))
	}
	slices.Sort(late)
	return late, nil
}
