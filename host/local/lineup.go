package local

import (
	"fmt"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// lineUp puts a workload that was evicted before its program was started back at its place in the line: it has not run, so nothing of it is
// over. False: it was not evicted, or its user wants its end, or it is one of several replicas that are there.
func (h *Host) lineUp(w *work, how verdict) bool {
	stop := w.keep.Stop
	if stop == nil || stop.Outcome != api.Evicted || w.joined || w.number() > 0 || len(h.others(w)) > 0 {
		return false
	}
	if w.ordering > 0 { // an order to stop that is late must not meet its next start
		w.ordered = func() { h.conclude(w, how) }
		return true
	}
	if err := h.folder(w.now.UID).Remove(); err != nil { // its next start would find the order to stop
		h.Log.Error("the folder of a task that was evicted before it started could not be removed, so that it is over", "workload", w.now.UID, "error", err)
		return false
	}
	place := w.place
	w.place, w.ordered = 0, nil
	w.keep.Placing, w.keep.Stop, w.keep.Cut = nil, nil, nil
	w.stopping = make(chan struct{})
	w.now.Status.Phase, w.now.Status.Grants, w.now.Status.Reason, w.now.Status.Replicas = api.Waiting, nil, "", 0
	h.touch(w)
	h.note(w, "it was evicted before it was started, and waits again: "+stop.Reason)
	h.memory.fresh = false
	if place != 0 {
		h.step(engine.Refused{At: h.time(), ID: place, Reason: stop.Reason})
	} else { // a daemon before this one had it placed
		h.step(engine.Ended{At: h.time(), ID: w.now.UID})
	}
	if w.now.Spec.Attach {
		h.expectClient(w)
	}
	if _, known := h.engine.Workload(w.now.UID); known || w.keep.Placing != nil {
		return true
	}
	if rejected := h.step(engine.Submit{At: h.time(), Workload: engineWorkload(w)}); rejected != nil { // its queue may be gone
		h.conclude(w, verdict{outcome: api.Refused, reason: fmt.Sprintf("it was evicted before it was started, and cannot wait again: %s", rejected.Reason)})
	}
	return true
}
