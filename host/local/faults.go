package local

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/node"
)

// blamed is how long before a fault is told of a program may have failed of it: the driver is asked twice a second.
const blamed = 3 * time.Second

// remember keeps a workload that has failed for as long as a fault that explains it may still be told of.
func (h *Host) remember(w *work) {
	now := h.Now()
	h.failed = slices.DeleteFunc(h.failed, func(one *work) bool { return one.now.Status.Ended.Before(now.Add(-blamed)) })
	if w.now.Status.Outcome == api.Failed && len(w.now.Status.Grants) > 0 {
		h.failed = append(h.failed, w)
	}
}

// faulted tells the workloads on a device what it reported, also those that have just failed. Lost: the device has lost their work,
// so that is why they failed, where no other reason is known.
func (h *Host) faulted(notice node.Notice, lost bool) {
	device := h.devices[notice.Device]
	if device == nil {
		return
	}
	reason := fmt.Sprintf("device %d (%s): %s", device.Index, device.Model, cmp.Or(notice.Reason, notice.Message))
	holds := func(w *work) bool {
		return slices.ContainsFunc(w.now.Status.Grants, func(grant api.Grant) bool { return grant.Device == notice.Device })
	}
	for _, uid := range h.byOrder() {
		if w := h.work[uid]; w.running() && holds(w) {
			h.note(w, reason)
		}
	}
	after := h.Now().Add(-blamed)
	for _, w := range h.failed {
		if w.now.Status.Ended.Before(after) || !holds(w) {
			continue
		}
		h.note(w, "just after it ended, "+reason)
		if lost && w.now.Status.Reason == "" {
			w.now.Status.Reason = reason
			h.touch(w)
		}
	}
}

// stalls is the reason of a device that is sick, in the words of who uses this server: with the name of the workload whose work does not
// end, and what can be done about it.
func (h *Host) stalls(notice node.Notice) string {
	w := h.work[notice.Task]
	if w == nil {
		return notice.Reason
	}
	name := w.now.Spec.Name
	return fmt.Sprintf("%s; stop it with `aliquot stop %s`", strings.ReplaceAll(notice.Reason, "task "+notice.Task, name), name)
}

// stopStalled ends a workload whose work does not end and takes others' floors, as a user's stop does: what is put back into the line
// would do it again.
func (h *Host) stopStalled(notice node.Notice) {
	w := h.work[notice.Task]
	h.say("alert", w, h.named(notice.Message))
	if w == nil || w.over {
		return
	}
	h.stop(w, order{Outcome: api.Stopped, Reason: "stopped by the server: " + h.named(notice.Reason), Grace: supervise.DefaultGrace})
}

// ailing says what a device among these grants is out of service for; empty: none is.
func (h *Host) ailing(grants []api.Grant) string {
	for _, grant := range grants {
		if device := h.devices[grant.Device]; device != nil && device.Health != api.Healthy {
			return fmt.Sprintf("device %d (%s) is %s: %s", device.Index, device.Model, device.Health, device.Reason)
		}
	}
	return ""
}

// shownNow is a live workload as it is shown: one that runs on a device that is out of service is told so first.
func (h *Host) shownNow(w *work) api.Workload {
	shown := w.shown
	if shown.Status.Phase == api.Running && shown.Status.Reason == "" {
		shown.Status.Reason = h.ailing(shown.Status.Grants)
	}
	return shown
}

// mostTold is how many processes of one workload are told of one by one: a program can begin them without end.
const mostTold = 16

// evades notes that a process of a workload uses a device around its share.
func (h *Host) evades(w *work, message string) {
	if !slices.Contains(w.keep.Evasions, message) { // else known from before a restart
		w.keep.Evasions = append(slices.Clone(w.keep.Evasions), message)
	}
	if more := len(w.keep.Evasions) - mostTold; more > 0 {
		h.forgetNotes(w, w.keep.Evasions[:more])
		w.keep.Evasions = w.keep.Evasions[more:]
	}
	h.addNotes(w, message)
}

// forgetNotes takes sentences from a workload's notes; its history keeps them.
func (h *Host) forgetNotes(w *work, over []string) {
	w.now.Status.Notes = slices.DeleteFunc(slices.Clone(w.now.Status.Notes), func(note string) bool { return slices.Contains(over, note) })
	h.touch(w)
}

// stoppedProcess notes that a process of a workload was ended because it used a device around its share. Its notes have one sentence of all
// of them.
func (h *Host) stoppedProcess(w *work, message string) {
	w.keep.Stopped++
	h.forgetNotes(w, []string{w.keep.StoppedNote})
	w.keep.StoppedNote = message
	if n := w.keep.Stopped; n > 1 {
		w.keep.StoppedNote = fmt.Sprintf("%d processes of it were ended because they used devices around its share. The last: %s", n, message)
	}
	if n := w.keep.Stopped; n <= mostTold || n&(n-1) == 0 {
		h.note(w, w.keep.StoppedNote)
	}
	w.now.Status.Notes = append(w.now.Status.Notes, w.keep.StoppedNote)
}

// heldAgain notes that no process of a workload does so any more: what is said of it in its notes is over, and stays in its history.
func (h *Host) heldAgain(w *work) {
	over := w.keep.Evasions
	w.keep.Evasions = nil
	h.forgetNotes(w, over)
	h.note(w, "every process of it that computes is held to its share again")
}
