package local

import (
	"context"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/server"
)

// maxGrace bounds how long a workload may take to end.
const maxGrace = 24 * time.Hour

// stoppedBy begins the reason of a workload that a user stopped.
const stoppedBy = "stopped by "

// Stop ends a workload: SIGTERM to all its processes, after grace SIGKILL. One that waits leaves the line. Of one whose first replica has ended those
// that are left are ended, the first of which is returned. While
// nothing can be stored it is decided and its processes are ended all the same, and the error says that the rest follows.
func (h *Host) Stop(ctx context.Context, who server.Caller, name string, grace api.Duration) (api.Workload, error) {
	if grace < 0 || time.Duration(grace) > maxGrace {
		return api.Workload{}, api.Invalid("a grace of %s was asked for; give 0s to %s", grace, api.Duration(maxGrace))
	}
	var uid string
	err := h.ask(ctx, message{anyway: true, request: func() error {
		w, err := h.owned(ctx, who, name, "stop")
		all := []*work{w}
		if err != nil {
			if all = h.leftOf(who, name); len(all) == 0 {
				return err
			}
		}
		uid = all[0].now.UID
		for _, one := range all {
			h.stop(one, order{Outcome: api.Stopped, Reason: stoppedBy + who.Name, Grace: time.Duration(grace)})
		}
		return nil
	}})
	if err != nil && uid != "" {
		err = h.stopUnstored(ctx, uid, err)
	}
	if err != nil {
		return api.Workload{}, err
	}
	return h.Workload(ctx, uid)
}

// stopUnstored has the processes of a workload ended whose stop was decided but cannot be stored. Should the daemon die before it can,
// the next one finds the exit status, which says that it was stopped.
func (h *Host) stopUnstored(ctx context.Context, uid string, cause error) error {
	err := h.look(ctx, func() {
		w := h.work[uid]
		if w == nil || h.broken == nil || w.over || w.keep.Stop == nil {
			return
		}
		cause = refuse(api.CodeUnavailable, "the processes of %s are told to end; the rest is done as soon as it can be stored: %v", w.now.Spec.Name, h.broken)
		grace, number := w.keep.Stop.Grace, w.orders
		if w.alone {
			h.endUnsupervised(w, w.child, grace)
			return
		}
		w.ordering++
		h.spawn(func(ctx context.Context) { h.orderStop(ctx, w, number, supervise.Order{Grace: grace}) })
	})
	if err != nil {
		return err
	}
	return cause
}

// stop ends a workload. Another order while it is being ended changes only its grace, and that it is not put back into the line.
func (h *Host) stop(w *work, how order) {
	if w.keep.Stop != nil {
		if w.now.Status.Started == nil && w.keep.Stop.Outcome == api.Evicted { // else what is evicted before it has started would wait again, and start after all
			w.keep.Stop.Outcome, w.keep.Stop.Reason = how.Outcome, how.Reason
		}
		w.keep.Stop.Grace = how.Grace
		if how.Outcome == api.Stopped {
			h.noRequeue(w, how.Reason)
		}
		h.stopWork(w)
		return
	}
	w.keep.Stop = &how
	h.note(w, how.Reason)
	if w.number() > 0 { // the others go on
		h.stopWork(w)
		return
	}
	rejected := h.step(engine.Cancel{At: h.time(), ID: w.now.UID, Reason: how.Reason})
	switch {
	case !w.running():
		h.conclude(w, verdict{outcome: api.Stopped})
	case rejected != nil: // outside of the books; it is ended all the same
		h.stopWork(w)
	}
}
