package engine

import (
	"fmt"

	"github.com/aliquot-dev/aliquot/engine/predict"
)

// Where a policy says so (Policy.Predicted), preemptible work behind the first in line is let in on its room not only by its time limit but by how
// long nine in ten of the same user's work of that shape ran: if that is over when the first in line starts at the latest. That time is when it is
// due. A prediction guarantees nothing, so what runs on from then on is overdue: it is evicted for whoever is first in line and fits without it, before
// anything but surplus replicas, whatever its queue holds and its priority is. What was evicted for others before is not let in so any more, so that nothing that is
// predicted wrongly starts again and again.
//
// Reservations count what was let in as over when it is due; so the first in line starts no later for it than the host takes to end it.

// EvictBackfill is the code of evictions of work that was let in before the first in line, and was not over when it was due.
const EvictBackfill = "backfill"

// mayLetIn says that a workload may be started behind the head, whose start is known, by what is predicted of it.
func (p *pass) mayLetIn(w *workload) bool {
	at := p.reserve.at
	if !p.policy.Predicted || !p.reserve.known || at <= p.now || !w.Preemptible || len(w.rarely().disrupted) > 0 {
		return false
	}
	if after(p.now, Time(w.queue.MinRun())) > at { // nobody could take it back then
		return false
	}
	q, ok := p.predictor.Predict(w.predictedBy(), -1, int64(p.now))
	return ok && q.Like <= predict.SameShape && after(p.now, Time(q.High)) <= at
}

// due is when a workload that was let in by a prediction is to be over; Never: it was not.
func (w *workload) due() Time {
	if w.rare == nil || w.rare.due == 0 {
		return Never
	}
	return w.rare.due
}

// overdue says that a workload runs on that was to be over by now.
func (e *Engine) overdue(w *workload) bool { return w.due() <= e.now }

// someOverdue says that there is such a workload.
func (e *Engine) someOverdue() bool {
	for w := range e.early {
		if e.overdue(w) {
			return true
		}
	}
	return false
}

// letIn notes until when a workload that was placed is to be over.
func (e *Engine) letIn(w *workload, due Time) {
	next := e.due
	w.setRarely(func(r *rare) { r.due = due })
	e.early[w] = true
	e.nextDue()
	if e.ahead != nil {
		e.ahead.later(func() {
			w.setRarely(func(r *rare) { r.due = 0 })
			delete(e.early, w)
			e.due = next
		})
	}
}

// notEarly forgets that a workload was let in, for it holds nothing any more.
func (e *Engine) notEarly(w *workload) {
	if e.early[w] {
		delete(e.early, w)
		w.rare.due = 0
		e.nextDue()
	}
}

// nextDue finds when the next is due of those that were let in.
func (e *Engine) nextDue() {
	e.due = Never
	for w := range e.early {
		if w.due() > e.now {
			e.due = min(e.due, w.due())
		}
	}
}

// checkEarly holds what is known of those that were let in against the workloads.
func (e *Engine) checkEarly() error {
	early, next := 0, Never
	for _, w := range e.byID() {
		due := w.due()
		if due == Never && !e.early[w] {
			continue
		}
		if due == Never || !e.early[w] || w.waiting() || w.base != nil || !w.Preemptible {
			return fmt.Errorf("workload %s is due at %d, and waits, may not be preempted or is not listed so", w.ID, due)
		}
		early++
		if due > e.now {
			next = min(next, due)
		}
	}
	if early != len(e.early) || next != e.due {
		return fmt.Errorf("%d workloads are due, the next at %d, and %d are listed, the next at %d", early, next, len(e.early), e.due)
	}
	return nil
}

// setPredicted has policies let work in by predictions from now on, or no more: then other work is the same in all that decides whether it may start.
func (e *Engine) setPredicted(on bool) {
	if e.policy.Predicted == on {
		return
	}
	var grouped []*workload
	for w := range e.line.All {
		if w.retryAt == 0 {
			e.ungroup(w)
			grouped = append(grouped, w)
		}
	}
	e.policy.Predicted = on
	for _, w := range grouped {
		e.regroup(w)
	}
}

// toldApartBy is what else decides whether a workload may start, where predictions do: whose it is, and whether it was let in in vain.
func (e *Engine) toldApartBy(w *workload) string {
	if !e.policy.Predicted || !w.Preemptible {
		return ""
	}
	who := w.User + "\x00" + w.Name
	if len(w.rarely().disrupted) > 0 {
		who += "\x00"
	}
	return who
}
