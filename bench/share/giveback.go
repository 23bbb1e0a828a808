package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/bench/judge"
	"github.com/aliquot-dev/aliquot/bench/report"
)

// measureGiveBack lets an owner with a floor of half the device, and with credit because it is idle nearly always, wake beside two
// borrowers that saturate the device with kernels of one length, and reports how long it stood at the gate.
func (b *bench) measureGiveBack(ctx context.Context, r *report.Report, kernel time.Duration) error {
	var all judge.GiveBack
	for range b.repeats {
		wakes, err := b.wakeShared(ctx, kernel)
		if err != nil {
			return err
		}
		all.Add(wakes, kernel)
		for _, line := range judge.ExplainAll(wakes, kernel) {
			b.say("  %s", line)
		}
	}
	var doneWithout time.Duration
	for range b.bare {
		bare, err := b.wakeBare(ctx, kernel)
		if err != nil {
			return err
		}
		doneWithout = max(doneWithout, judge.Quantile(judge.Each(bare, func(w judge.WakeUp) time.Duration { return w.Done }), 0.99))
	}
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	name := fmt.Sprintf("beside %v kernels", kernel)
	r.AtMost("give_back_p99, "+name, ms(all.P99), 5+ms(kernel), "ms")
	r.Beside("give_back_p50, "+name, ms(all.P50), "ms")
	r.Beside("give_back_max, "+name, ms(all.Most), "ms")
	r.AtMost("give_back_p99_strict, "+name, ms(all.LeaseP99), 2+ms(kernel), "ms")
	r.Beside("give_back_max_strict, "+name, ms(all.LeaseMost), "ms")
	r.Beside("give_back_wakes, "+name, float64(all.Wakes), "wake-ups")
	r.Beside(fmt.Sprintf("give_back_over_%v, %s", max(judge.Outlier, kernel+judge.Allowance), name), float64(all.Outliers), "wake-ups")
	r.Beside("wake_to_done_p99, "+name, ms(all.DoneP99), "ms")
	if b.bare > 0 {
		r.Beside("wake_to_done_p99 without Aliquot, "+name, ms(doneWithout), "ms")
	}
	return nil
}

// borrowers is the load beside which the owner wakes.
func borrowers(kernel time.Duration) []judge.Tenant {
	borrower := judge.Tenant{Compute: api.Compute{Floor: 200, Ceiling: 1000}, Kernel: kernel, Demand: api.WholeDevice}
	return []judge.Tenant{borrower, borrower}
}

func (b *bench) wakerLine() []string {
	return []string{b.waker, "--wakes", fmt.Sprint(b.wakes), "--pause-ms", "15", "--kernel-us", "200"}
}

func (b *bench) wakeShared(ctx context.Context, kernel time.Duration) ([]judge.WakeUp, error) {
	share := api.Share{Compute: api.Compute{Floor: 500, Ceiling: 1000}, Memory: judge.Memory}
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
	wakes, err := judge.ParseWakeUps(ran.printed, b.wakes)
	if err == nil && slices.ContainsFunc(wakes, func(w judge.WakeUp) bool { return w.Lease < 0 }) {
		err = errors.New("the waker found no page of its task, and so does not know its leases")
	}
	return wakes, err
}

// wakeBare is the same without Aliquot.
func (b *bench) wakeBare(ctx context.Context, kernel time.Duration) ([]judge.WakeUp, error) {
	pids, end, err := b.startBare(ctx, borrowers(kernel))
	defer end()
	if err != nil {
		return nil, err
	}
	if err := b.allWork(ctx, pids); err != nil {
		return nil, err
	}
	printed, err := b.daemon.bare(ctx, b.wakerLine()).Output()
	if err != nil {
		return nil, fmt.Errorf("run the owner without Aliquot: %w", err)
	}
	return judge.ParseWakeUps(string(printed), b.wakes)
}
