package local

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/internal/point"
)

// stopWork has a workload that holds grants ended, as its stop order says. It may be called again, with another order.
func (h *Host) stopWork(w *work) {
	if w.now.Status.Started != nil || w.keep.Stop.Outcome != api.Evicted { // else it is to wait again
		w.now.Status.Phase = api.Stopping
	}
	w.now.Status.Reason = w.keep.Stop.Reason
	h.touch(w)
	grace := w.keep.Stop.Grace
	w.orders++
	w.ordering++
	number := w.orders
	h.after(func() {
		point.Here("local.stop.stored")
		if !w.isStopping() {
			close(w.stopping)
		} else if w.alone { // who looks after it heard the first order; another may be more urgent
			h.endUnsupervised(w, w.child, grace)
		}
		h.spawn(func(ctx context.Context) { h.orderStop(ctx, w, number, supervise.Order{Grace: grace}) })
	})
}

// sendOrder tells a task's supervisor to stop it, but not of an order that a later one has overtaken, which counts.
func (h *Host) sendOrder(w *work, number int, order supervise.Order) error {
	w.sending.Lock()
	defer w.sending.Unlock()
	if number < w.sent {
		return nil
	}
	w.sent = number
	return h.folder(w.now.UID).Order(order)
}

// orderStop tells a task's supervisor to stop it, until that works, the task is over or another order is given.
func (h *Host) orderStop(ctx context.Context, w *work, number int, order supervise.Order) {
	defer h.tell(func() {
		if w.ordering--; w.ordering == 0 && w.ordered != nil {
			w.ordered()
		}
	})
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := h.sendOrder(w, number, order)
		point.Here("local.stop.sent")
		if err == nil {
			return
		}
		h.Log.Error("the order to stop did not reach a task's supervisor, and is given again", "workload", w.now.UID, "error", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		done := true
		if h.look(ctx, func() { done = w.over || w.orders != number }) != nil || done {
			return
		}
	}
}

// afterSupervisor finds out what became of a task whose supervisor has ended.
func (h *Host) afterSupervisor(ctx context.Context, w *work, how string) {
	found, err := h.folder(w.now.UID).Look()
	switch {
	case err != nil:
		h.finishUnknown(ctx, w, nil, fmt.Sprintf("its exit status cannot be read: %v", err))
	case found.Exit != nil:
		point.Here("local.exit.seen")
		if err := supervise.EndLeftover(ctx, taskOf(w, found.Child), 0); err != nil && ctx.Err() == nil {
			h.Log.Error("what a task left behind could not be ended", "workload", w.now.UID, "error", err)
		}
		h.finishExit(ctx, w, *found.Exit)
	case !found.Begun:
		h.finish(ctx, w, verdict{never: true, outcome: api.Refused, reason: orElse("its supervisor ended before it started the program", how, h.folder(w.now.UID).Words())})
	default:
		if found.Child == nil && found.Supervisor.PID > 0 {
			if found.Child, err = supervise.First(taskOf(w, nil), found.Supervisor); err != nil {
				h.Log.Error("the program of a task without a supervisor could not be looked for", "workload", w.now.UID, "error", err)
			}
		}
		h.unsupervised(ctx, w, found.Child, orElse("its supervisor ended without an exit status", how, h.folder(w.now.UID).Words()))
	}
}

// taskOf is what processes of a workload are known by.
func taskOf(w *work, child *supervise.Child) supervise.Task {
	return supervise.Task{UID: w.now.UID, User: w.now.UserID, Child: child}
}

// orElse puts the details that there are behind a sentence.
func orElse(text string, details ...string) string {
	for _, detail := range details {
		if detail != "" {
			text += " (" + detail + ")"
		}
	}
	return text
}

// unsupervised looks after a task whose supervisor is gone: its time limit, its log, the order to stop, its exit status if it can
// be had. Nothing of it is stopped for its supervisor's sake.
func (h *Host) unsupervised(ctx context.Context, w *work, child *supervise.Child, why string) {
	if child == nil || !child.Alive() {
		h.finishUnknown(ctx, w, child, why)
		return
	}
	limit := make(chan time.Duration, 1)
	h.tell(func() {
		if w.child == nil {
			h.runs(w, child, nil)
		}
		w.alone = true
		h.note(w, why)
		h.addNotes(w, "it runs on without its supervisor, which was lost")
		limit <- h.timeLimitLeft(w)
	})
	var expired <-chan time.Time
	select {
	case left := <-limit:
		if left > 0 {
			timer := time.NewTimer(left)
			defer timer.Stop()
			expired = timer.C
		}
	case <-ctx.Done():
		return
	}
	ended := make(chan error, 1)
	h.spawn(func(ctx context.Context) { ended <- child.Ended(ctx) })
	log := supervise.Trimmer{Path: h.logPath(w.now.UID), Limit: h.LogLimit}
	trim := time.NewTimer(supervise.TrimSoon)
	defer trim.Stop()
	for stopping := (<-chan struct{})(w.stopping); ; {
		select {
		case err := <-ended:
			if ctx.Err() == nil {
				if err != nil {
					why += fmt.Sprintf(", and it cannot be watched: %v", err)
				}
				h.finishUnknown(ctx, w, child, why)
			}
			return
		case <-expired:
			h.tell(func() {
				if w.keep.Stop == nil {
					w.keep.Stop = &order{Outcome: api.TimedOut, Reason: timedOut(w.now.Spec.TimeLimit)}
					h.touch(w)
				}
			})
			h.endUnsupervised(w, child, supervise.DefaultGrace)
		case <-stopping:
			stopping = nil
			grace := make(chan time.Duration, 1)
			h.tell(func() { grace <- w.keep.Stop.Grace })
			select {
			case patience := <-grace:
				h.endUnsupervised(w, child, patience)
			case <-ctx.Done():
				return
			}
		case <-trim.C:
			trim.Reset(log.Look())
			if err := supervise.Reap(); err != nil {
				h.Log.Warn("what tasks without a supervisor left behind could not be reaped", "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (h *Host) endUnsupervised(w *work, child *supervise.Child, grace time.Duration) {
	h.spawn(func(ctx context.Context) {
		if err := supervise.EndLeftover(ctx, taskOf(w, child), grace); err != nil && ctx.Err() == nil {
			h.Log.Error("a task could not be ended", "workload", w.now.UID, "error", err)
		}
	})
}

// finishUnknown ends what is left of a task without an exit status. If its first process has become ours, that has one after all.
func (h *Host) finishUnknown(ctx context.Context, w *work, child *supervise.Child, why string) {
	var status syscall.WaitStatus
	known := false
	if child != nil {
		status, known = child.Status()
		known = known && !child.Guessed
	}
	point.Here("local.exit.lost")
	if err := supervise.EndLeftover(ctx, taskOf(w, child), 0); err != nil {
		if ctx.Err() != nil {
			return
		}
		h.Log.Error("what a task left behind could not be ended", "workload", w.now.UID, "error", err)
	}
	_ = supervise.Trim(h.logPath(w.now.UID), h.LogLimit) // an attached one has none
	if !known {
		h.finish(ctx, w, verdict{outcome: api.Unknown, reason: "its exit status is unknown: " + why})
		return
	}
	exit := supervise.Exit{Code: status.ExitStatus(), At: h.Now()}
	if status.Signaled() {
		exit.Code, exit.Signal = 128+int(status.Signal()), unix.SignalName(status.Signal())
	}
	h.tell(func() {
		exit.Stopped = w.keep.Stop != nil
		h.spawn(func(ctx context.Context) { h.finishExit(ctx, w, exit) })
	})
}

func timedOut(limit api.Duration) string {
	return fmt.Sprintf("it ran for its time limit of %s", limit)
}

// finishExit takes up an exit status.
func (h *Host) finishExit(ctx context.Context, w *work, exit supervise.Exit) {
	how := verdict{code: &exit.Code, signal: exit.Signal, reason: exit.Note, at: exit.At}
	switch {
	case exit.NotStarted:
		how.outcome, how.code, how.never = api.Stopped, nil, true
	case exit.Refused != "":
		how.outcome, how.reason = api.Refused, exit.Refused
	case exit.TimedOut:
		how.outcome, how.reason = api.TimedOut, timedOut(w.now.Spec.TimeLimit)
	case exit.Stopped:
		how.outcome = api.Stopped // refined by the order, which the loop knows
	case exit.Code == 0:
		how.outcome = api.Succeeded
	default:
		how.outcome = api.Failed
	}
	h.finish(ctx, w, how)
}

// finish takes the grants back and then the workload out of the books. It is tried until it works: a grant whose pages could not
// be taken back is not free.
func (h *Host) finish(ctx context.Context, w *work, how verdict) {
	how.used = h.Agent.Used(ctx, w.now.UID) // what it used goes with its pages
	if !h.unprepare(ctx, w.now.UID) {
		return
	}
	h.groups.Remove(w.now.UID)
	point.Here("local.task.unprepared")
	h.tell(func() { h.conclude(w, how) })
}

// unprepare takes the grants of a task back, and tries that until it works; false: the host is closing.
func (h *Host) unprepare(ctx context.Context, uid string) bool {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := h.Agent.Unprepare(ctx, uid)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		h.Log.Warn("a task's grants could not be taken back, and are tried again", "workload", uid, "error", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return false
		}
	}
}

// conclude writes down how a workload ended and frees what it held.
func (h *Host) conclude(w *work, how verdict) {
	if w.over || how.never && h.lineUp(w, how) {
		return
	}
	w.over = true
	delete(h.dates.work, w)
	delete(h.dates.again, w)
	w.dropStreams() // nobody will take them
	if w.spare != nil {
		w.spare.close()
		w.spare = nil
	}
	how = how.underOrder(w.keep.Stop)
	if how.at.IsZero() {
		how.at = h.Now()
	}
	status := &w.now.Status
	if how.outcome == api.Failed && how.reason == "" {
		how.reason = cmp.Or(h.ailing(status.Grants), w.keep.StoppedNote)
	}
	at := how.at.UTC()
	status.Phase, status.Outcome, status.ExitCode, status.Signal, status.Reason = api.Ended, how.outcome, how.code, how.signal, how.reason
	status.Ended, status.PID, status.Place, status.Replicas = &at, 0, 0, 0
	whole := w.now.Whole()
	w.now.Spec.Env = nil // it may hold secrets, and is of no more use: what has ended is never started again
	status.Usage = usageInAll(w.now, how.used, !w.evaded())
	held := w.keep.Placing != nil
	w.keep.Placing = nil
	h.remember(w)
	h.touch(w)
	h.noteAt(w, at, sentence(*status))
	// Until its end is stored it is shown as it was, and found here; from then on in the store.
	h.after(func() {
		delete(h.work, w.now.UID)
		if h.names[w.now.Spec.Name] == w {
			delete(h.names, w.now.Spec.Name)
		}
	})
	if held {
		h.placed(w)
		h.step(engine.Ended{At: h.time(), ID: w.gang(), Task: w.number(), Used: usedBy(w.now)})
		h.endUnseen(w)
	}
	if h.goesBack(w, how) {
		h.requeue(w, whole)
	}
	waiting := w.resizing
	w.resizing = nil
	h.after(func() {
		point.Here("local.ended.stored")
		if !w.isStopping() {
			close(w.stopping)
		}
		for _, answer := range waiting {
			answer(refuse(api.CodeConflict, "%s has ended", w.now.Spec.Name))
		}
		if err := h.folder(w.now.UID).Remove(); err != nil {
			h.Log.Warn("a task's folder could not be removed; the next start removes it", "workload", w.now.UID, "error", err)
		}
	})
}

// underOrder is the verdict in the light of the order to stop, if there was one.
func (how verdict) underOrder(stop *order) verdict {
	switch {
	case stop == nil:
	case how.outcome == api.Stopped:
		how.outcome, how.reason = stop.Outcome, stop.Reason
	case how.outcome == api.Failed && how.reason == "" && stop.Outcome == api.Evicted: // of the same, before it could be told to end
		how.reason = stop.Reason
	case how.outcome == api.Unknown: // why it ended is known all the same
		how.outcome, how.reason = stop.Outcome, stop.Reason+"; "+how.reason
	}
	return how
}

// sentence says how a workload ended.
func sentence(status api.WorkloadStatus) string {
	switch {
	case status.Outcome == api.Unknown && status.Reason != "":
		return "ended: " + status.Reason // which says what is unknown
	case status.Outcome == api.Stopped && strings.HasPrefix(status.Reason, stoppedBy):
		if status.Signal != "" {
			return "ended: " + status.Reason + ", with " + status.Signal
		}
		return "ended: " + status.Reason
	}
	text := "ended: " + string(status.Outcome)
	switch {
	case status.Signal != "":
		text += " by " + status.Signal
	case status.ExitCode != nil && *status.ExitCode != 0:
		text += fmt.Sprintf(" with status %d", *status.ExitCode)
	}
	if status.Reason != "" {
		text += ": " + status.Reason
	}
	return text
}
