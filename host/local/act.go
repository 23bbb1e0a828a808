package local

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/internal/point"
	"github.com/aliquot-dev/aliquot/node"
)

// step shows the engine an event and carries out what it answers. It returns why the event was rejected, or nil.
func (h *Host) step(event engine.Event) *engine.Reject {
	if _, told := event.(engine.Usage); !told && !h.memory.fresh {
		h.measure()
	}
	h.hours.Count(h.time().At, h.engine.Held)
	actions := h.engine.Step(event)
	h.starts.forecast = nil
	h.journal.append(event, actions)
	defer h.countAll(event, actions)
	var rejected *engine.Reject
	for _, action := range actions {
		switch action := action.(type) {
		case engine.Place:
			h.doPlace(action)
		case engine.Evict:
			h.doEvict(action)
		case engine.Resize:
			h.doResize(action)
		case engine.Reject:
			rejected = &action
			if w := h.work[action.Workload]; w != nil {
				rejected.Reason = h.named(strings.ReplaceAll(rejected.Reason, "workload "+w.now.UID, w.now.Spec.Name))
			}
		}
	}
	if rejected == nil {
		h.toldHours(event)
	}
	return rejected
}

// named says with a device's UUID, which is all that the engine knows of it, also its index and its model.
func (h *Host) named(text string) string {
	for uuid, device := range h.devices {
		text = strings.ReplaceAll(text, "device "+uuid, fmt.Sprintf("device %d (%s, %s)", device.Index, device.Model, uuid))
	}
	return text
}

// worded says what the engine says with the names that users know.
func (h *Host) worded(text string) string {
	text = strings.ReplaceAll(h.named(text), " on node "+h.name, "") // there is only this one
	for uid, o := range h.work {                                     // that it is for
		text = strings.ReplaceAll(text, "workload "+uid, o.now.Spec.Name)
	}
	return text
}

func (h *Host) doPlace(action engine.Place) {
	w := h.work[action.Workload]
	if w == nil {
		h.step(engine.Refused{At: h.time(), ID: action.ID, Reason: "the host knows no such workload"})
		return
	}
	if action.Tasks[0].Task > 0 {
		h.grow(w, action)
		return
	}
	placing := action.Tasks[0]
	w.place, w.keep.Placing = action.ID, &placing
	w.now.Status.Phase, w.now.Status.Reason, w.now.Status.Place = api.Starting, "", 0
	w.now.Status.Grants = h.shownGrants(placing.Grants)
	h.touch(w)
	h.note(w, "placed on "+h.deviceNames(placing.Grants))
	w.keep.Due = nil // of a start that was not possible
	if action.Due != 0 {
		due := h.wall(action.Due)
		w.keep.Due = &due
		h.note(w, "let in before the first in line, as work like it was over by "+h.shown(action.Due).Local().Format("2006-01-02 15:04:05")+": it is evicted for that if it runs longer")
	}
	if w.now.Spec.Several() {
		role, _ := w.now.Spec.RoleOf(0)
		w.now.Status.Replica = &api.Replica{Of: w.now.UID, Role: role}
	}
	h.after(func() {
		point.Here("local.place.stored")
		if len(action.Tasks) > 1 {
			h.startAll(w, action.Tasks)
			return
		}
		h.start(w)
	})
}

func (h *Host) doEvict(action engine.Evict) {
	h.step(engine.Done{At: h.time(), ID: action.ID})
	w := h.replica(action.Workload, action.Task)
	if w == nil {
		return
	}
	if first := h.work[w.gang()]; w.keep.Stop == nil && action.Code == engine.EvictCancelled && first != nil && first.keep.Stop != nil {
		same := *first.keep.Stop
		w.keep.Stop = &same
		h.note(w, same.Reason)
	}
	if w.keep.Stop == nil { // else a user stops it, and the engine only agrees
		reason := h.worded(action.Reason)
		least, _ := w.now.Whole().Tasks()
		w.keep.Stop = &order{Outcome: api.Evicted, Reason: reason, Grace: supervise.DefaultGrace, ForOthers: engine.ForOthers(action.Code), Whole: w.number() < least}
		h.note(w, "evicted: "+reason)
	}
	h.stopWork(w)
	if slices.Contains([]string{engine.EvictDeviceDown, engine.EvictDeviceGone, engine.EvictNodeGone}, action.Code) {
		h.evictRest(w)
	}
}

// doResize changes the pages in place, beside the loop, and tells the engine whether that went well.
func (h *Host) doResize(action engine.Resize) {
	w := h.replica(action.Workload, action.Task)
	if w == nil {
		h.step(engine.Refused{At: h.time(), ID: action.ID, Reason: "the host knows no such workload"})
		return
	}
	uid, grants, flags := w.now.UID, nodeGrants(action.Grants), flagsOf(w.now.Spec)
	waiting := w.resizing
	w.resizing = nil
	h.after(func() {
		point.Here("local.resize.begun")
		h.running.Add(1)
		go func() {
			defer h.running.Done()
			err := h.Agent.Update(h.ctx, uid, grants, flags)
			point.Here("local.resize.updated")
			h.tell(func() { h.resized(w, action, waiting, err) })
		}()
	})
}

func (h *Host) resized(w *work, action engine.Resize, waiting []func(error), err error) {
	h.memory.fresh = false // a lower floor leaves what is held above it
	if w.over {            // the engine forgot the change with the workload
		err = refuse(api.CodeConflict, "%s has ended meanwhile", w.now.Spec.Name)
	} else if err != nil {
		h.step(engine.Refused{At: h.time(), ID: action.ID, Reason: err.Error()})
		h.note(w, "not resized: "+err.Error())
		err = refuse(api.CodeConflict, "%s keeps its share: %v", w.now.Spec.Name, err)
	} else {
		h.step(engine.Done{At: h.time(), ID: action.ID})
		placing := *w.keep.Placing
		placing.Grants = action.Grants
		w.keep.Placing = &placing
		w.now.Status.Grants = h.shownGrants(action.Grants)
		if known, ok := h.engine.Workload(w.gang()); ok {
			w.now.Spec.Share = known.Share
		}
		h.touch(w)
		h.note(w, "resized to "+describeGrants(w.now.Spec.Share, action.Grants)+describeWeight(w.now.Spec.Share))
	}
	for _, answer := range waiting {
		h.after(func() { answer(err) })
	}
}

// nodeTask is what the node makes real for a workload.
func nodeTask(w *work) node.Task {
	return node.Task{
		UID: w.now.UID, UserID: w.now.UserID, Grants: nodeGrants(w.keep.Placing.Grants), Flags: flagsOf(w.now.Spec),
	}
}

func nodeGrants(grants []engine.Grant) []node.Grant {
	list := make([]node.Grant, len(grants))
	for i, grant := range grants {
		list[i] = node.Grant{
			UID: grant.UID, Device: grant.Device, Floor: grant.Compute.Floor, Ceiling: grant.Compute.Ceiling,
			Weight: max(1, grant.Weight), MemFloor: grant.Floor, MemCeiling: grant.Ceiling,
		}
	}
	return list
}

func flagsOf(spec api.WorkloadSpec) node.Flags {
	return node.Flags{
		LatencyClass: spec.Class == api.Interactive || spec.Class == api.Inference, Revocable: spec.OnReclaim == api.ReclaimStop,
	}
}

// shownGrants are grants as the API shows them.
func (h *Host) shownGrants(grants []engine.Grant) []api.Grant {
	list := make([]api.Grant, len(grants))
	for i, grant := range grants {
		list[i] = api.Grant{
			UID: grant.UID, Device: grant.Device, ComputeFloor: grant.Compute.Floor, ComputeLimit: grant.Compute.Ceiling,
			MemoryFloor: grant.Floor, MemoryCeiling: grant.Ceiling, Weight: grant.Weight,
		}
		if device := h.devices[grant.Device]; device != nil {
			list[i].DeviceIndex = device.Index
		}
	}
	return list
}

func (h *Host) deviceNames(grants []engine.Grant) string {
	names := make([]string, len(grants))
	for i, grant := range grants {
		names[i] = grant.Device
		if device := h.devices[grant.Device]; device != nil {
			names[i] = fmt.Sprintf("device %d (%s)", device.Index, device.Model)
		}
	}
	return strings.Join(names, " and ")
}

func describe(share api.Share) string {
	return fmt.Sprintf("%s of a device with %s of memory", share.Compute, share.Memory)
}

// healthChanged tells the engine of a device, and everyone else.
func (h *Host) healthChanged(uuid string, health api.DeviceHealth, reason string) {
	device := h.devices[uuid]
	if device == nil || device.Health == health && device.Reason == reason {
		return
	}
	device.Health, device.Reason = health, reason
	h.say("device", nil, fmt.Sprintf("device %d (%s) is %s: %s", device.Index, device.Model, health, reason))
	h.step(engine.DeviceHealth{At: h.time(), Node: h.name, UUID: uuid, Health: health, Reason: reason})
}

// noticed acts on what the node saw.
func (h *Host) noticed(notice node.Notice) {
	switch notice.Kind {
	case node.DeviceDown:
		h.faulted(notice, true)
		h.healthChanged(notice.Device, api.Down, cmp.Or(notice.Reason, notice.Message))
	case node.DeviceSick:
		notice.Reason = h.stalls(notice)
		h.faulted(notice, !notice.Stall)
		h.healthChanged(notice.Device, api.Draining, cmp.Or(notice.Reason, notice.Message))
	case node.Stalled:
		h.stopStalled(notice)
	case node.MemoryWanted:
		h.reclaim(notice.Reclaim)
	case node.DeviceBack:
		h.healthChanged(notice.Device, api.Healthy, "")
	case node.DeviceFault:
		h.say("device", nil, notice.Message)
		h.faulted(notice, false)
	case node.Enforced:
		if w := h.work[notice.Task]; w != nil && !w.over && w.evaded() {
			h.heldAgain(w)
		}
	case node.Unenforced:
		h.say("alert", h.work[notice.Task], notice.Message)
		if w := h.work[notice.Task]; w != nil && !w.over {
			h.evades(w, notice.Message)
		}
	case node.Stopped:
		h.say("alert", h.work[notice.Task], notice.Message)
		if w := h.work[notice.Task]; w != nil && !w.over {
			h.stoppedProcess(w, notice.Message)
		}
	case node.Broken:
		h.say("alert", h.work[notice.Task], notice.Message)
		h.endBroken(h.work[notice.Task], notice.Reason)
	case node.Doubted, node.UnknownCalls:
		h.say("alert", h.work[notice.Task], notice.Message)
		if w := h.work[notice.Task]; w != nil && !w.over {
			h.note(w, notice.Message)
		}
	case node.ArbiterGone:
		h.alarms[notice.Kind] = notice.Message
		h.say("alert", nil, notice.Message)
	case node.ArbiterBack:
		delete(h.alarms, node.ArbiterGone)
		h.say("node", nil, notice.Message)
	}
}

// addNotes puts sentences on a workload that are not there yet.
func (h *Host) addNotes(w *work, notes ...string) {
	have := append([]string(nil), w.now.Status.Notes...)
	for _, note := range notes {
		known := false
		for _, one := range have {
			known = known || one == note
		}
		if !known {
			have = append(have, note)
			h.note(w, note)
		}
	}
	w.now.Status.Notes = have
	h.touch(w)
}

// timeLimitLeft is what a running workload has left of its time limit; 0: it has none.
func (h *Host) timeLimitLeft(w *work) time.Duration {
	limit := time.Duration(w.now.Spec.TimeLimit)
	if limit == 0 || w.now.Status.Started == nil {
		return limit
	}
	return max(limit-h.Now().Sub(*w.now.Status.Started), time.Microsecond)
}

var errStopping = errors.New("it is being stopped")
