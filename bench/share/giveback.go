package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/bench/report"
)

// wakeUps are an owner's: from the call of a launch to its return, and to the end of its kernel; sorted.
type wakeUps struct{ gate, done []time.Duration }

// measureGiveBack lets an owner with a floor of half the device, and with credit because it is idle nearly always, wake beside two
// borrowers that saturate the device with kernels of one length, and reports how long it stood at the gate.
func (b *bench) measureGiveBack(ctx context.Context, r *report.Report, kernel time.Duration) error {
	var gate, worst, most time.Duration
	var doneWith, doneWithout time.Duration
	for range b.repeats {
		shared, err := b.wakeShared(ctx, kernel)
		if err != nil {
			return err
		}
		gate = max(gate, quantile(shared.gate, 0.5))
		worst = max(worst, quantile(shared.gate, 0.99))
		most = max(most, shared.gate[len(shared.gate)-1])
		doneWith = max(doneWith, quantile(shared.done, 0.99))
	}
	for range b.bare {
		bare, err := b.wakeBare(ctx, kernel)
		if err != nil {
			return err
		}
		doneWithout = max(doneWithout, quantile(bare.done, 0.99))
	}
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	name := fmt.Sprintf("beside %v kernels", kernel)
	r.AtMost("give_back_p99, "+name, ms(worst), 5+ms(kernel), "ms")
	r.Beside("give_back_p50, "+name, ms(gate), "ms")
	r.Beside("give_back_max, "+name, ms(most), "ms")
	r.Beside("wake_to_done_p99, "+name, ms(doneWith), "ms")
	if b.bare > 0 {
		r.Beside("wake_to_done_p99 without Aliquot, "+name, ms(doneWithout), "ms")
	}
	return nil
}

// borrowers is the load beside which the owner wakes.
func borrowers(kernel time.Duration) []tenant {
	borrower := tenant{compute: api.Compute{Floor: 200, Ceiling: 1000}, kernel: kernel, demand: api.WholeDevice}
	return []tenant{borrower, borrower}
}

func (b *bench) wakerLine() []string {
	return []string{b.waker, "--wakes", fmt.Sprint(b.wakes), "--pause-ms", "15", "--kernel-us", "200"}
}

func (b *bench) wakeShared(ctx context.Context, kernel time.Duration) (wakeUps, error) {
	share := api.Share{Compute: api.Compute{Floor: 500, Ceiling: 1000}, Memory: memory}
	ran, err := b.beside(ctx, borrowers(kernel), share, api.Interactive, b.wakerLine())
	if err != nil {
		return wakeUps{}, err
	}
	return parseWakeUps(ran.printed, b.wakes)
}

// wakeBare is the same without Aliquot.
func (b *bench) wakeBare(ctx context.Context, kernel time.Duration) (wakeUps, error) {
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
			return wakeUps{}, err
		}
		programs = append(programs, program)
		pids = append(pids, program.Process.Pid)
	}
	if err := b.allWork(ctx, pids); err != nil {
		return wakeUps{}, err
	}
	printed, err := b.daemon.bare(ctx, b.wakerLine()).Output()
	if err != nil {
		return wakeUps{}, fmt.Errorf("run the owner without Aliquot: %w", err)
	}
	return parseWakeUps(string(printed), b.wakes)
}

// parseWakeUps reads what the waker printed: two figures in ns for each time.
func parseWakeUps(printed string, want int) (wakeUps, error) {
	var w wakeUps
	for line := range strings.Lines(printed) {
		var gate, done int64
		if _, err := fmt.Sscan(line, &gate, &done); err != nil {
			return w, fmt.Errorf("the waker printed %q: %w", line, err)
		}
		w.gate, w.done = append(w.gate, time.Duration(gate)), append(w.done, time.Duration(done))
	}
	if len(w.gate) != want {
		return w, fmt.Errorf("the waker told of %d wake-ups, not %d", len(w.gate), want)
	}
	slices.Sort(w.gate)
	slices.Sort(w.done)
	return w, nil
}
