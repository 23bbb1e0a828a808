package local

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// A workload of several replicas goes back into the line as one, with all of its roles and between the same bounds, once the last replica of it has
// ended. Each that ends before that leaves word with the others, so that whichever is the last, under whichever daemon, knows.

// cutShort is that replicas of a workload were evicted with all of it, and ended.
type cutShort struct {
	How   order      `json:"how"`
	Began *time.Time `json:"began,omitempty"` // when the first of it started; nil: none did
}

// goesBack says that a workload which has ended is to be put back into the line: evicted, and not over by itself before. Of a workload of several
// replicas it is so of the last one to end, if any of those with which it started was evicted with all of it.
func (h *Host) goesBack(w *work, how verdict) bool {
	if !w.now.Spec.Requeue {
		return false
	}
	stop := w.keep.Stop
	evicted := stop != nil && stop.Outcome == api.Evicted && (how.outcome == api.Evicted || how.outcome == api.Failed)
	if !w.now.Spec.Several() {
		return evicted
	}
	if evicted && stop.Whole && w.keep.Cut == nil {
		w.keep.Cut = &cutShort{How: *stop}
	}
	if w.keep.Cut == nil {
		return false
	}
	cut := *w.keep.Cut
	cut.Began = earlier(cut.Began, w.now.Status.Started)
	w.keep.Cut = &cut
	others := h.others(w)
	for _, o := range others {
		o.keep.Cut = new(cut)
		h.touch(o)
	}
	return len(others) == 0
}

// earlier is the earlier of two times; nil is none.
func earlier(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.Before(*a) {
		return b
	}
	return a
}

// evictRest has the others of a workload that goes back into the line evicted with one that it started with, which is evicted alone: for a device that is
// lost, or memory that others want back. One that its user is stopping is not evicted, and the others go on.
func (h *Host) evictRest(w *work) {
	least, _ := w.now.Whole().Tasks()
	if !w.now.Spec.Requeue || !w.now.Spec.Several() || w.number() >= least || w.keep.Stop.Outcome != api.Evicted {
		return
	}
	why := *w.keep.Stop
	why.Reason = "its replica " + w.now.Spec.Name + " was evicted: " + why.Reason
	for _, o := range h.others(w) {
		if o.keep.Stop == nil {
			o.keep.Stop = new(why)
			h.note(o, "evicted: "+why.Reason)
		}
	}
	h.step(engine.Cancel{At: h.time(), ID: w.gang(), Reason: why.Reason})
}

// noRequeue has a workload not be put back into the line that a user stops while it is being evicted. Where another replica than the first is stopped, and
// that is there, it goes back all the same.
func (h *Host) noRequeue(w *work, why string) {
	if first := h.work[w.gang()]; w.number() > 0 && first != nil && !first.over {
		return
	}
	for _, one := range append(h.others(w), w) {
		if one.now.Spec.Requeue {
			one.now.Spec.Requeue = false
			h.touch(one)
			h.note(one, "it does not go back into the line: "+why)
		}
	}
}

// requeue puts a workload that was evicted back into the line as a new one, stored together with the end of the old one: there is
// always one of them, and never both.
func (h *Host) requeue(old *work, spec api.WorkloadSpec) {
	h.seq++
	spec.Name = h.nameAgain(cmp.Or(old.keep.Base, spec.Name))
	program, how, began := old.keep.Program, old.keep.Stop, old.now.Status.Started
	if cut := old.keep.Cut; cut != nil {
		how, began = &cut.How, cut.Began
	}
	if own, ok := old.keep.Programs[api.MainRole]; ok {
		program = own
	}
	w := newWork(h.seq, api.Workload{
		UID: newUID(), User: old.now.User, UserID: old.now.UserID, Spec: spec,
		Status: api.WorkloadStatus{Phase: api.Waiting, Submitted: h.Now().UTC(), Requeued: old.now.Status.Requeued + 1, PriorityOver: old.now.Status.PriorityOver},
	}, keep{Program: program, Programs: old.keep.Programs, User: old.keep.User, Disrupted: h.disruptions(old, how)})
	w.keep.Served = old.keep.Served + h.served(w, began)
	h.holdBack(old, w, how, began)
	h.work[w.now.UID], h.names[spec.Name] = w, w
	h.touch(w)
	h.awaitDate(w)
	h.awaitTurn(w)
	h.note(w, fmt.Sprintf("back in the line, since it was evicted as %s: %s", old.gang(), how.Reason))
	if h.entering { // it comes behind those that wait already
		return
	}
	if rejected := h.step(engine.Submit{At: h.time(), Workload: engineWorkload(w), Was: old.gang(), Served: micros(w.keep.Served), Disrupted: h.ago(w.keep.Disrupted)}); rejected != nil { // its queue may be gone
		h.conclude(w, verdict{outcome: api.Refused, reason: rejected.Reason})
	}
}

// disruptions are when a workload that has ended, and those that it was before, were evicted for others, the last times.
func (h *Host) disruptions(old *work, how *order) []time.Time {
	all := slices.Clone(old.keep.Disrupted)
	if how.ForOthers {
		all = append(all, h.Now().UTC())
	}
	return all[max(0, len(all)-api.MaxDisruptions):]
}

// ago are times as the engine is told of them.
func (h *Host) ago(times []time.Time) (all []engine.Time) {
	for _, at := range times {
		all = append(all, micros(h.Now().Sub(at)))
	}
	return all
}

// served is what a workload like this one that began then was served until now, with what it starts with and as its queue counts it.
func (h *Host) served(w *work, began *time.Time) time.Duration {
	if began == nil {
		return 0
	}
	one := engineWorkload(w)
	return time.Duration(h.engine.ServedIn(&one, micros(h.Now().Sub(*began)))) * time.Microsecond
}

// nameAgain is the name of a workload that comes again: the one that it had, and more where somebody took that since its first replica ended.
func (h *Host) nameAgain(base string) string {
	if other := h.names[base]; other == nil || other.over {
		return base
	}
	return h.replicaName(base, randomHex(2))
}
