package node

import (
	"context"
	"fmt"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node/page"
)

const (
	// stallLook is how often the devices' pages are asked for work that does not end and takes others' floors (native/arbiter/stall.h).
	stallLook = 500 * time.Millisecond

	// stallPatience is how long none of such work may have ended before its task is to be ended, under api.StopUnenforced.
	stallPatience = 10 * time.Second
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
	for _, notice := range a.takeStall(d, entry.Stall, now) {
		a.notify(notice)
	}
}

// takeStall changes a device's health by what its page says, and returns what is to be told. A fault that its driver reported goes first.
func (a *Agent) takeStall(d *deviceState, stall page.Stall, now uint64) (notices []Notice) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d.Health != api.Healthy && d.stall.Since == 0 {
		return nil
	}
	if stall != d.stall {
		d.stall, d.stallTold = stall, false
		if stall.Since == 0 {
			d.Health, d.Reason = api.Healthy, ""
			return []Notice{{Kind: DeviceBack, Device: d.UUID, Message: fmt.Sprintf(
				"Device %s is back: the work that did not end has ended.", d.UUID)}}
		}
		d.Health, d.Reason = api.Draining, stallReason(stall, time.Now(), now)
		notices = append(notices, Notice{Kind: DeviceSick, Device: d.UUID, Task: stall.Task, Reason: d.Reason, Message: fmt.Sprintf(
			"Device %s takes no new work: %s.", d.UUID, d.Reason)})
	}
	if a.rule == api.StopUnenforced && stall.Since != 0 && !d.stallTold && now > stall.Since && duration(now-stall.Since) >= stallPatience {
		d.stallTold = true
		reason := fmt.Sprintf("none of its work has ended for %s on device %s, beside which others do not get their floors, and the server runs with --unenforced stop",
			stallPatience, d.UUID)
		notices = append(notices, Notice{Kind: Stalled, Device: d.UUID, Task: stall.Task, Reason: reason, Message: fmt.Sprintf(
			"Task %s is to be ended: %s.", stall.Task, reason)})
	}
	return notices
}

// stallReason says what a device is sick of; it is then, and now by the pages' clock.
func stallReason(stall page.Stall, then time.Time, now uint64) string {
	whose := ""
	if stall.PID != 0 {
		whose = fmt.Sprintf(" (process %d)", stall.PID)
	}
	return fmt.Sprintf("it is sick: work of task %s%s has not ended since %s, and beside it others do not get their floors",
		stall.Task, whose, then.Add(-duration(now-min(stall.Since, now))).Format(time.TimeOnly))
}
