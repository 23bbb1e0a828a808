package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/bench/report"
)

// wakeUp is one of an owner's, by its own clock but for the lease.
type wakeUp struct {
	gate    time.Duration // from the call of a launch to its return
	done    time.Duration // to the end of its kernel
	late    time.Duration // by so much it slept too long before
	lease   time.Duration // from the call to the lease, by the arbiter's clock; below 0 without Aliquot
	still   time.Duration // the longest time in which a CPU stood still before the launch returned
	arbiter time.Duration // so long the arbiter waited for a CPU before the launch returned
	others  time.Duration // so long a thread of the neighbours or the simulated driver waited for one, up to the next wake-up and no longer than gate
}

// giveBack is what the wake-ups of all repeats came to, each figure that of the worst repeat.
type giveBack struct {
	wakes                        int
	p50, p99, most               time.Duration // of gate
	leaseP99, leaseMost, doneP99 time.Duration
	outliers                     int // of gate
}

// outlier is what is longer than that and is explained one by one.
const outlier = 10 * time.Millisecond

// measureGiveBack lets an owner with a floor of half the device, and with credit because it is idle nearly always, wake beside two
// borrowers that saturate the device with kernels of one length, and reports how long it stood at the gate.
func (b *bench) measureGiveBack(ctx context.Context, r *report.Report, kernel time.Duration) error {
	var all giveBack
	for range b.repeats {
		wakes, err := b.wakeShared(ctx, kernel)
		if err != nil {
			return err
		}
		all.add(wakes, kernel)
		for _, line := range explainAll(wakes, kernel) {
			b.say("  %s", line)
		}
	}
	var doneWithout time.Duration
	for range b.bare {
		bare, err := b.wakeBare(ctx, kernel)
		if err != nil {
			return err
		}
		doneWithout = max(doneWithout, quantile(each(bare, func(w wakeUp) time.Duration { return w.done }), 0.99))
	}
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	name := fmt.Sprintf("beside %v kernels", kernel)
	r.AtMost("give_back_p99, "+name, ms(all.p99), 5+ms(kernel), "ms")
	r.Beside("give_back_p50, "+name, ms(all.p50), "ms")
	r.Beside("give_back_max, "+name, ms(all.most), "ms")
	r.AtMost("give_back_p99_strict, "+name, ms(all.leaseP99), 2+ms(kernel), "ms")
	r.Beside("give_back_max_strict, "+name, ms(all.leaseMost), "ms")
	r.Beside("give_back_wakes, "+name, float64(all.wakes), "wake-ups")
	r.Beside(fmt.Sprintf("give_back_over_%v, %s", max(outlier, kernel+allowance), name), float64(all.outliers), "wake-ups")
	r.Beside("wake_to_done_p99, "+name, ms(all.doneP99), "ms")
	if b.bare > 0 {
		r.Beside("wake_to_done_p99 without Aliquot, "+name, ms(doneWithout), "ms")
	}
	return nil
}

// add counts one repeat.
func (g *giveBack) add(wakes []wakeUp, kernel time.Duration) {
	gate := each(wakes, func(w wakeUp) time.Duration { return w.gate })
	lease := each(wakes, func(w wakeUp) time.Duration { return w.lease })
	done := each(wakes, func(w wakeUp) time.Duration { return w.done })
	g.wakes += len(wakes)
	g.p50, g.p99, g.most = max(g.p50, quantile(gate, 0.5)), max(g.p99, quantile(gate, 0.99)), max(g.most, quantile(gate, 1))
	g.leaseP99, g.leaseMost = max(g.leaseP99, quantile(lease, 0.99)), max(g.leaseMost, quantile(lease, 1))
	g.doneP99 = max(g.doneP99, quantile(done, 0.99))
	for _, w := range wakes {
		if w.out(kernel) {
			g.outliers++
		}
	}
}

// each is one figure of all wake-ups, sorted.
func each(wakes []wakeUp, figure func(wakeUp) time.Duration) []time.Duration {
	all := make([]time.Duration, len(wakes))
	for i, w := range wakes {
		all[i] = figure(w)
	}
	slices.Sort(all)
	return all
}

// borrowers is the load beside which the owner wakes.
func borrowers(kernel time.Duration) []tenant {
	borrower := tenant{compute: api.Compute{Floor: 200, Ceiling: 1000}, kernel: kernel, demand: api.WholeDevice}
	return []tenant{borrower, borrower}
}

func (b *bench) wakerLine() []string {
	return []string{b.waker, "--wakes", fmt.Sprint(b.wakes), "--pause-ms", "15", "--kernel-us", "200"}
}

func (b *bench) wakeShared(ctx context.Context, kernel time.Duration) ([]wakeUp, error) {
	share := api.Share{Compute: api.Compute{Floor: 500, Ceiling: 1000}, Memory: memory}
	arbiter, err := b.daemon.arbiter()
	if err != nil {
		return nil, err
	}
	driver, err := b.daemon.driver()
	if err != nil {
		return nil, err
	}
	ran, err := b.beside(ctx, borrowers(kernel), share, api.Interactive, func(others []int) []string {
		return append(b.wakerLine(), "--arbiter", fmt.Sprint(arbiter), "--driver", fmt.Sprint(driver), "--neighbour", fmt.Sprint(others[0]),
			"--neighbour-2", fmt.Sprint(others[1]))
	})
	if err != nil {
		return nil, err
	}
	wakes, err := parseWakeUps(ran.printed, b.wakes)
	if err == nil && slices.ContainsFunc(wakes, func(w wakeUp) bool { return w.lease < 0 }) {
		err = errors.New("the waker found no page of its task, and so does not know its leases")
	}
	return wakes, err
}

// wakeBare is the same without Aliquot.
func (b *bench) wakeBare(ctx context.Context, kernel time.Duration) ([]wakeUp, error) {
	ctx, cancel := context.WithCancel(ctx)
	var programs []*exec.Cmd
	defer func() {
		cancel()
		for _, program := range programs {
			_ = program.Wait() // it was told to end, and says so
		}
	}()
	var pids []int
	for _, t := range borrowers(kernel) {
		program := b.daemon.bare(ctx, t.line(b.trainer))
		if err := program.Start(); err != nil {
			return nil, err
		}
		programs = append(programs, program)
		pids = append(pids, program.Process.Pid)
	}
	if err := b.allWork(ctx, pids); err != nil {
		return nil, err
	}
	printed, err := b.daemon.bare(ctx, b.wakerLine()).Output()
	if err != nil {
		return nil, fmt.Errorf("run the owner without Aliquot: %w", err)
	}
	return parseWakeUps(string(printed), b.wakes)
}

// parseWakeUps reads what the waker printed: seven figures in ns for each time.
func parseWakeUps(printed string, want int) ([]wakeUp, error) {
	var wakes []wakeUp
	for line := range strings.Lines(printed) {
		var w wakeUp
		if _, err := fmt.Sscanf(line, "%d %d %d %d %d %d %d\n", &w.gate, &w.done, &w.late, &w.lease, &w.still, &w.arbiter, &w.others); err != nil {
			return nil, fmt.Errorf("the waker printed %q: %w", line, err)
		}
		wakes = append(wakes, w)
	}
	if len(wakes) != want {
		return nil, fmt.Errorf("the waker told of %d wake-ups, not %d", len(wakes), want)
	}
	return wakes, nil
}
