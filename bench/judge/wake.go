package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// WakeUp is one of an owner's, by its own clock but for the lease.
type WakeUp struct {
	Gate    time.Duration // from the call of a launch to its return
	Done    time.Duration // to the end of its kernel
	Late    time.Duration // by so much it slept too long before
	Lease   time.Duration // from the call to the lease, by the arbiter's clock; below 0 without Aliquot
	Still   time.Duration // the longest time in which a CPU stood still before the launch returned
	Arbiter time.Duration // so long the arbiter waited for a CPU before the launch returned
	Others  time.Duration // so long a thread of the neighbours or the simulated driver waited for one, up to the next wake-up and no longer than Gate
}

// GiveBack is what the wake-ups of all repeats came to, each figure that of the worst repeat.
type GiveBack struct {
	Wakes                        int
	P50, P99, Most               time.Duration // of Gate
	LeaseP99, LeaseMost, DoneP99 time.Duration
	Outliers                     int // of Gate
}

// Outlier is what is longer than that and is explained one by one.
const Outlier = 10 * time.Millisecond

// Allowance is what a lease may take besides the kernel that runs when its owner wakes.
const Allowance = 2 * time.Millisecond

// Add counts one repeat, beside neighbours with kernels of this length.
func (g *GiveBack) Add(wakes []WakeUp, kernel time.Duration) {
	gate := Each(wakes, func(w WakeUp) time.Duration { return w.Gate })
	lease := Each(wakes, func(w WakeUp) time.Duration { return w.Lease })
	done := Each(wakes, func(w WakeUp) time.Duration { return w.Done })
	g.Wakes += len(wakes)
	g.P50, g.P99, g.Most = max(g.P50, Quantile(gate, 0.5)), max(g.P99, Quantile(gate, 0.99)), max(g.Most, Quantile(gate, 1))
	g.LeaseP99, g.LeaseMost = max(g.LeaseP99, Quantile(lease, 0.99)), max(g.LeaseMost, Quantile(lease, 1))
	g.DoneP99 = max(g.DoneP99, Quantile(done, 0.99))
	for _, w := range wakes {
		if w.Out(kernel) {
			g.Outliers++
		}
	}
}

// Each is one figure of all wake-ups, sorted.
func Each(wakes []WakeUp, figure func(WakeUp) time.Duration) []time.Duration {
	all := make([]time.Duration, len(wakes))
	for i, w := range wakes {
		all[i] = figure(w)
	}
	slices.Sort(all)
	return all
}

// ParseWakeUps reads what the waker printed: seven figures in ns for each time. It is an error if those are not as many times as wanted.
func ParseWakeUps(printed string, want int) ([]WakeUp, error) {
	var wakes []WakeUp
	for line := range strings.Lines(printed) {
		var w WakeUp
		if _, err := fmt.Sscanf(line, "%d %d %d %d %d %d %d\n", &w.Gate, &w.Done, &w.Late, &w.Lease, &w.Still, &w.Arbiter, &w.Others); err != nil {
			return nil, fmt.Errorf("the waker printed %q: %w", line, err)
		}
		wakes = append(wakes, w)
	}
	if len(wakes) != want {
		return nil, fmt.Errorf("the waker told of %d wake-ups, not %d", len(wakes), want)
	}
	return wakes, nil
}
