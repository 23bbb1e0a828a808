package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node/page"
)

const (
	// stallLook is how often the devices' pages are asked for work that does not end and takes others' floors (native/arbiter/stall.h).
	stallLook = 500 * time.Millisecond

	// stallDoubt is how old such work must be: of what is late for less than that, programs that the machine had no time for may not have said yet that it has
	// ended, nor others launched.
	stallDoubt = time.Second

	// stallPatience is how long this agent must have read of the same such work before its task is to be ended, under
	// api.StopUnenforced: so long others have been without their floors, while the work itself may have begun long before.
	stallPatience = 10 * time.Second

	// stallWell is for how long there must have been none before a device is back.
	stallWell = 5 * time.Second

	// stallStale is how old a page's books may be for such work on it to be believed: an arbiter writes them every 80 ms.
	stallStale = time.Second
)

// watchStalls takes in what the arbiter says of such work, until ctx ends.
func (a *Agent) watchStalls(ctx context.Context) {
	again := time.NewTicker(stallLook)
	defer again.Stop()
	for {
		for _, d := range a.Devices() {
			a.lookForStall(d.UUID, monotonic())
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// lookForStall reads one device's page; now is a time of the pages' clock. A page that cannot be read says nothing new.
func (a *Agent) lookForStall(uuid string, now uint64) {
	a.mu.Lock()
	d := a.devices[uuid]
	a.mu.Unlock()
	var entry page.DeviceEntry
	ok := false
	if err := d.page.View(func(p *page.Device) error { entry, ok = p.Read(); return nil }); err != nil || !ok {
		return
	}
	a.telling.Lock()
	defer a.telling.Unlock()
	for _, notice := range a.takeStall(d, entry, now) {
		a.notify(notice)
	}
}

// takeStall changes a device's health by what its page says, and returns what is to be told: also whose work it is sick of, where that changes, but no
// more often than every stallPatience. A fault that its driver reported goes first. What nobody has written of late is no news of such work, and the
// time in which there was none does not count; what is in doubt is none.
func (a *Agent) takeStall(d *deviceState, entry page.DeviceEntry, now uint64) (notices []Notice) {
	a.mu.Lock()
	defer a.mu.Unlock()
	stall := entry.Stall
	if d.Health != api.Healthy && d.stall.Since == 0 {
		return nil
	}
	if stall.Since != 0 && now > entry.Updated && duration(now-entry.Updated) > stallStale {
		d.stallRead = now
		return nil
	}
	if duration(now-min(stall.Since, now)) < stallDoubt {
		stall = page.Stall{}
	}
	switch {
	case stall.Since == 0 && d.stall.Since == 0:
		return nil
	case stall.Since == 0:
		return d.wellAgain(now)
	case stall != d.stall || d.stallGone != 0:
		d.stall, d.stallRead, d.stallTold, d.stallGone = stall, now, false, 0
		d.Health, d.Reason = api.Draining, stallReason(stall, time.Now(), now)
	}
	if whose := (page.Stall{Task: stall.Task, PID: stall.PID}); d.stallSaidAt == 0 || whose != d.stallSaid && duration(now-d.stallSaidAt) >= stallPatience {
		d.stallSaid, d.stallSaidAt = whose, now
		notices = append(notices, Notice{Kind: DeviceSick, Stall: true, Device: d.UUID, Task: stall.Task, Reason: d.Reason, Message: fmt.Sprintf(
			"Device %s takes no new work: %s.", d.UUID, d.Reason)})
	}
	if a.rule == api.StopUnenforced && !d.stallTold && d.stallIsOver(now) {
		d.stallTold = true
		reason := fmt.Sprintf("none of its work has ended and others have not had their floors beside it for %s on device %s, and the server runs with --unenforced stop",
			stallPatience, d.UUID)
		notices = append(notices, Notice{Kind: Stalled, Device: d.UUID, Task: stall.Task, Reason: reason, Message: fmt.Sprintf(
			"Task %s is to be ended: %s.", stall.Task, reason)})
	}
	return notices
}

// wellAgain has a device back once nothing was read of such work for stallWell: on a busy machine its end is seen where there is none.
func (d *deviceState) wellAgain(now uint64) []Notice {
	if d.stallGone == 0 {
		d.stallGone = now
	}
	if duration(now-d.stallGone) < stallWell {
		return nil
	}
	d.forgetStall()
	d.Health, d.Reason = api.Healthy, ""
	return []Notice{{Kind: DeviceBack, Device: d.UUID, Message: fmt.Sprintf(
		"Device %s is back: no work that does not end takes others' floors any more.", d.UUID)}}
}

// forgetStall is for a device that is sick of no such work, or of something else.
func (d *deviceState) forgetStall() {
	d.stall, d.stallGone, d.stallSaid, d.stallSaidAt = page.Stall{}, 0, page.Stall{}, 0
}

// stallIsOver says whether a device has been sick of one process' work for so long that its task is to be ended. Where work of several does not
// end nobody knows whose is at fault; what a process has on the device may have ended long ago if that is stopped and cannot say so.
func (d *deviceState) stallIsOver(now uint64) bool {
	if d.stall.Since == 0 || d.stallGone != 0 || d.stall.Task == "" || d.stall.PID == 0 || now < d.stallRead || duration(now-d.stallRead) < stallPatience {
		return false
	}
	process, there := factsOf(d.stall.PID)
	return there && !process.stopped
}

// EndStalled ends the process whose work on a device does not end, if its notice Stalled was given: SIGTERM, after some seconds SIGKILL. It
// is for hosts that have no other way to end a task, and does not wait. A process that is not the task's is left alone.
func (a *Agent) EndStalled(ctx context.Context, uuid string) {
	a.mu.Lock()
	var stall page.Stall
	if d := a.devices[uuid]; d != nil && d.stallTold && d.stallIsOver(monotonic()) {
		stall = d.stall
	}
	a.mu.Unlock()
	fact, there := factsOf(stall.PID)
	if stall.Task == "" || !there {
		return
	}
	known := registered{}
	for _, t := range a.listTasks() {
		t.task.meter(t.asked, a.capacity, known)
	}
	if !slices.Contains(known.covering(stall.PID, fact.start, uuid), stall.Task) {
		return // it has ended, and its number is another's
	}
	a.enforce(ctx, []suspect{{stray{uuid, stall.PID, fact.start}, stall.Task, "its work has not ended and others did not get their floors"}})
}

// stallReason says what a device is sick of; it is then, and now by the pages' clock.
func stallReason(stall page.Stall, then time.Time, now uint64) string {
	whose := "task " + stall.Task
	switch {
	case stall.Task == "":
		whose = "several tasks"
	case stall.PID == 0:
		whose += " (several processes)"
	default:
		whose += fmt.Sprintf(" (process %d)", stall.PID)
	}
	return fmt.Sprintf("it is sick: work of %s has not ended since %s, and beside it others do not get their floors",
		whose, then.Add(-duration(now-min(stall.Since, now))).Format(time.TimeOnly))
}
