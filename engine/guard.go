package engine

import (
	"fmt"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
)

// Work is not evicted for others, or moved, before it has run for as long as its queues say (MinRun), nor more often than they say (Disruptions): until then
// it is guarded, and plans are made without it. The engine knows how often it was by what its host tells when it comes again.

// ForOthers says of the code of an eviction that it is for the sake of other work, or a move: such are counted against disruption budgets.
func ForOthers(code string) bool {
	return slices.Contains([]string{EvictReclaim, EvictPreempt, EvictPool, EvictBackfill, EvictMove}, code)
}

// setDisrupted takes in what a host says of when a workload was evicted for others, under the IDs that it had: so many µs ago.
func (w *workload) setDisrupted(ago []Time, now Time) error {
	if len(ago) > api.MaxDisruptions {
		return fmt.Errorf("workload %s was evicted %d times: tell the last %d at the most", w.ID, len(ago), api.MaxDisruptions)
	}
	for _, one := range ago {
		if one < 0 || one > maxPast {
			return fmt.Errorf("workload %s cannot have been evicted %d µs ago: give 0 to %d", w.ID, one, maxPast)
		}
	}
	if len(ago) > 0 {
		w.setRarely(func(r *rare) {
			r.disrupted = make([]Time, len(ago))
			for i := range ago {
				r.disrupted[i] = now - ago[i]
			}
			slices.Sort(r.disrupted)
			slices.Reverse(r.disrupted)
		})
	}
	return nil
}

// longAgo is before all times.
const longAgo = -Never

// guardedUntil is until when a workload is not evicted for others.
func (w *workload) guardedUntil() Time {
	until := longAgo
	if w.base != nil {
		return until
	}
	if least := Time(w.queue.MinRun()); least > 0 {
		for _, t := range w.tasks {
			if t.stays() {
				until = max(until, after(t.since, least))
			}
		}
	}
	if disrupted := w.rarely().disrupted; len(disrupted) > 0 {
		for most, per := range w.queue.Disruptions {
			if most <= len(disrupted) {
				until = max(until, after(disrupted[most-1], Time(per)))
			}
		}
	}
	return until
}
