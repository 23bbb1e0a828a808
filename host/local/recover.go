package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/host/policy"
	"github.com/aliquot-dev/aliquot/internal/point"
	"github.com/aliquot-dev/aliquot/node"
	"github.com/aliquot-dev/aliquot/store"
)

// recover builds the state anew from the store, the tasks' folders and the node. It runs before the loop does.
func (h *Host) recover(ctx context.Context) error {
	first, err := h.firstAction(ctx)
	if err != nil {
		return err
	}
	h.engine = engine.New(engine.Config{FirstAction: first})
	h.memory.fresh = true // until all that runs is known
	if err := h.openJournal(); err != nil {
		return err
	}
	if err := h.recoverQueues(ctx); err != nil {
		return err
	}
	h.learnDevices()
	if err := h.recoverPolicy(ctx); err != nil { // it names models of devices
		return err
	}
	live, err := h.store.Live(ctx)
	if err != nil {
		return err
	}
	if h.seq, err = h.store.LastSeq(ctx); err != nil {
		return err
	}
	if err := h.loadStarts(ctx); err != nil {
		return err
	}
	h.learnPast(ctx)
	known := map[string]bool{}
	for _, row := range live {
		var kept keep
		if err := json.Unmarshal(row.Host, &kept); err != nil {
			return fmt.Errorf("%w: what the server kept of workload %s cannot be read: %w", store.ErrDamaged, row.UID, err)
		}
		w := newWork(row.Seq, row.Workload, kept)
		h.work[row.UID], h.names[row.Spec.Name], known[row.UID] = w, w, true
		h.awaitDate(w)
		h.awaitTurn(w)
	}
	waiting, err := h.enterRunning(ctx, live)
	if err != nil {
		return err
	}
	if err := h.cleanOrphans(ctx, known); err != nil {
		return err
	}
	h.memory.fresh = false
	for _, w := range waiting {
		if w.now.Spec.Attach {
			h.expectClient(w)
		}
		if rejected := h.step(engine.Submit{At: h.time(), Workload: engineWorkload(w), Waited: micros(h.Now().Sub(w.now.Status.Submitted)), Served: micros(w.keep.Served), Disrupted: h.ago(w.keep.Disrupted)}); rejected != nil {
			h.conclude(w, verdict{outcome: api.Refused, reason: rejected.Reason})
		}
	}
	h.forgetOld(ctx)
	return nil
}

// enterRunning enters what runs, and what was held since the last server, and gives what waits. What runs, runs: that comes before anything that
// waits may be placed.
func (h *Host) enterRunning(ctx context.Context, live []store.Workload) (waiting []*work, err error) {
	h.entering = true
	defer func() { h.entering = false }()
	ended, last := map[*work]supervise.Exit{}, h.seq
	all := make([]*work, len(live))
	for i, row := range live {
		all[i] = h.work[row.UID]
	}
	several := func(w *work) bool { return w.now.Spec.Several() && w.keep.Placing != nil }
	// The others first: workloads of several replicas may grow once all is known that runs.
	gangs := slices.DeleteFunc(slices.Clone(all), func(w *work) bool { return !several(w) })
	all = append(slices.DeleteFunc(all, several), gangs...)
	begun := false
	var broken []string
	for _, w := range all {
		if !begun && several(w) {
			begun = true
			broken = h.adoptGangs(all)
		}
		if w.over {
			continue
		}
		if w.keep.Placing == nil || !h.takeUp(w, ended) {
			delete(ended, w)
			waiting = append(waiting, w)
		}
	}
	if err := h.resumeHours(ctx, ended); err != nil {
		return nil, err
	}
	if err := h.recallQueuesUsed(ctx, ended); err != nil {
		return nil, err
	}
	h.afterEntering(all, ended, broken)
	for _, w := range h.work { // what was put back into the line since; further replicas are placed already
		if w.seq > last && !w.over && w.keep.Placing == nil {
			waiting = append(waiting, w)
		}
	}
	slices.SortFunc(waiting, func(a, b *work) int { return cmp.Compare(a.seq, b.seq) })
	return waiting, nil
}

// afterEntering tells the engine what may have it place more than what runs, once it knows all that does: else a workload of several replicas grows onto
// devices that others hold.
func (h *Host) afterEntering(all []*work, ended map[*work]supervise.Exit, broken []string) {
	for _, w := range all {
		if !w.over && w.keep.Placing != nil {
			h.retellCheckpoint(w)
		}
	}
	for _, gang := range broken {
		h.step(engine.Cancel{At: h.time(), ID: gang, Reason: "the server restarted while its replicas were being started, and not all of them were"})
	}
	for _, w := range all {
		if _, has := ended[w]; !has && !w.over && w.keep.Placing != nil {
			h.evictFromLost(w)
		}
	}
}

func (h *Host) recoverQueues(ctx context.Context) error {
	queues, err := h.store.Queues(ctx)
	if err != nil {
		return err
	}
	h.ruling.own = []api.QueueSpec{{Name: api.DefaultQueue, Quota: api.Unlimited}}
	for _, queue := range queues {
		h.ruling.own = with(h.ruling.own, queue)
	}
	now := h.Now()
	h.reckon(now)
	// A parent comes before its children, whatever their names.
	for len(queues) > 0 {
		before := len(queues)
		queues = slices.DeleteFunc(queues, func(queue api.QueueSpec) bool {
			told, _ := policy.Holding([]api.QueueSpec{queue}, now)
			return h.step(engine.QueueSet{At: h.time(), Queue: told[0]}) == nil
		})
		if len(queues) == before {
			return fmt.Errorf("%w: queue %s cannot be restored, its parent %q is not there", store.ErrDamaged, queues[0].Name, queues[0].Parent)
		}
	}
	return nil
}

// learnDevices tells the engine what the node has.
func (h *Host) learnDevices() {
	set := engine.NodeSet{At: h.time(), Node: h.name}
	for _, device := range h.Agent.Devices() {
		h.devices[device.UUID] = &device
		h.order = append(h.order, device.UUID)
		one := engine.Device{
			UUID: device.UUID, Index: device.Index, Model: device.Model, Memory: device.Memory, Health: device.Health, Reason: device.Reason,
			Traits: h.traitsOf(&device), Link: linkOf(&device), NUMA: numaOf(&device),
		}
		set.Devices = append(set.Devices, one)
	}
	slices.SortStableFunc(h.order, func(a, b string) int { return h.devices[a].Index - h.devices[b].Index })
	h.step(set)
}

// takeUp finds out what became of a workload that had been placed, and notes how it ended if it did. False: it never ran, and waits again.
func (h *Host) takeUp(w *work, exits map[*work]supervise.Exit) bool {
	uid := w.now.UID
	found, err := h.folder(uid).Look()
	if found.Exit != nil {
		exits[w] = *found.Exit
	}
	if never := found.Exit == nil && !found.Begun || found.Exit != nil && found.Exit.NotStarted; err == nil && !found.Supervised && never {
		// Nothing of it can have run. It takes its place in line again; its order of submission is kept.
		if w.keep.Stop == nil || w.keep.Stop.Outcome == api.Evicted {
			point.Here("local.recover.again")
			_ = h.folder(uid).Remove()
			w.keep.Placing, w.keep.Stop, w.keep.Cut = nil, nil, nil
			w.now.Status.Phase, w.now.Status.Grants, w.now.Status.Reason = api.Waiting, nil, ""
			h.touch(w)
			h.note(w, "the server restarted before it was started; it waits again")
			return false
		}
		h.reenter(w, found.Exit)
		h.after(func() {
			h.spawn(func(ctx context.Context) { h.finish(ctx, w, verdict{outcome: api.Stopped}) })
		})
		return true
	}
	h.reenter(w, found.Exit)
	ended := err == nil && found.Exit != nil
	if w.keep.Stop != nil {
		h.stopWork(w) // it may not have been sent
	}
	h.after(func() {
		h.spawn(func(ctx context.Context) {
			if ended {
				h.adopt(ctx, w) // its devices may be others by now: it needs none
				return
			}
			lives := found.Supervised || found.Child != nil && found.Child.Alive()
			if err := h.restoreGrants(ctx, w, lives); errors.Is(err, node.ErrBroken) {
				h.tell(func() { h.endBroken(w, err.Error()) })
			} else if err != nil && ctx.Err() == nil {
				h.Log.Error("a running task's share could not be restored", "workload", uid, "error", err)
				h.tell(func() { h.addNotes(w, "its share is not held as granted: "+err.Error()) })
			}
			h.adopt(ctx, w)
		})
	})
	if others := h.others(w); w.now.Spec.Attach && (len(others) == 0 || others[0].number() > w.number()) { // who is that of the others, too
		h.expectClient(w)
	}
	return true
}

// reenter puts a workload that holds grants into the engine's books, having run until now or until its exit; nil: there was none.
func (h *Host) reenter(w *work, exit *supervise.Exit) {
	if w.adopted {
		return
	}
	placing := *w.keep.Placing
	placing.Node, placing.Task = h.name, 0
	adopted := h.adoption(w)
	adopted.Tasks = []engine.Placing{placing}
	if started := w.now.Status.Started; started != nil {
		until := h.Now()
		if exit != nil { // while no server ran: what it is predicted by must not be longer for that
			until = exit.At
		}
		adopted.Ran = micros(until.Sub(*started))
	}
	if rejected := h.step(adopted); rejected != nil {
		// Its queue may be gone, for one: what runs, runs, but someone must know.
		h.Log.Error("a running workload could not be entered in the books", "workload", w.now.UID, "error", rejected.Reason)
		h.addNotes(w, "it runs outside of the books: "+rejected.Reason)
	}
}

// adoption is what the engine is told of work that runs, but for where and for how long.
func (h *Host) adoption(w *work) engine.Adopt {
	a := engine.Adopt{At: h.time(), Workload: engineWorkload(w), Served: micros(w.keep.Served), Disrupted: h.ago(w.keep.Disrupted)}
	if w.keep.Due != nil {
		a.Due = a.At.At + micros(w.keep.Due.Sub(h.Now()))
	}
	return a
}

// evictFromLost ends a workload that runs on a device which is no longer there.
func (h *Host) evictFromLost(w *work) {
	for _, grant := range w.keep.Placing.Grants {
		if device := h.devices[grant.Device]; device == nil || device.Health == api.Down {
			reason := "its device " + grant.Device + " is gone"
			if device != nil {
				reason = fmt.Sprintf("its device %d is down: %s", device.Index, device.Reason)
			}
			h.step(engine.Cancel{At: h.time(), ID: w.gang(), Reason: reason})
			return
		}
	}
}

// endBroken ends a workload whose pages are damaged or lost: what it uses is neither held to its share nor in the books any more.
func (h *Host) endBroken(w *work, why string) {
	if w != nil && !w.over && w.keep.Placing != nil {
		h.step(engine.Cancel{At: h.time(), ID: w.gang(), Reason: why})
	}
}

// errPagesLost is a task that may run while its pages are gone: it has others mapped than any that could be made now.
var errPagesLost = fmt.Errorf("%w: its folder among the server's tasks is gone", node.ErrBroken)

// restoreGrants makes the node's pages say what the store says: they differ where a daemon died between the two. Lives says that
// the task has processes: then its pages were made before these were started.
func (h *Host) restoreGrants(ctx context.Context, w *work, lives bool) error {
	var task node.Task
	if err := h.look(ctx, func() { task = nodeTask(w) }); err != nil {
		return err
	}
	for _, prepared := range h.Agent.Prepared() {
		if prepared.UID == task.UID {
			return h.Agent.Update(ctx, task.UID, task.Grants, task.Flags)
		}
	}
	if lives {
		return errPagesLost
	}
	return nil // its end takes back nothing
}

// startPatience is how long a supervisor of a former daemon may take to start its program.
const startPatience = time.Minute

// adopt follows a task that a daemon before this one started.
func (h *Host) adopt(ctx context.Context, w *work) {
	folder := h.folder(w.now.UID)
	found, err := folder.Look()
	// A supervisor that was just being started says what it did in a moment.
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for waited := time.Duration(0); err == nil && found.Supervised && found.Child == nil && found.Exit == nil && waited < startPatience; waited += 5 * time.Millisecond {
		select {
		case <-again.C:
			found, err = folder.Look()
		case <-ctx.Done():
			return
		}
	}
	if err == nil && found.Child != nil {
		child := found.Child
		h.tell(func() {
			switch {
			case w.child != nil:
			case w.now.Status.Started == nil:
				h.runs(w, child, child.Notes)
			case found.Exit != nil:
				w.child = child // it ended while no server ran
			case !child.Alive():
				w.child = child // and so did its supervisor
			default:
				w.child = child
				h.note(w, "the server restarted; it ran on")
			}
		})
	}
	if err == nil && found.Supervised {
		err = found.Supervisor.Ended(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		h.Log.Error("a supervisor cannot be watched", "workload", w.now.UID, "error", err)
	}
	h.afterSupervisor(ctx, w, "")
}

// forgetOld keeps the number of ended workloads bounded, and their logs with them.
func (h *Host) forgetOld(ctx context.Context) {
	gone, err := h.store.Prune(ctx, h.KeepEnded)
	if err != nil {
		h.Log.Warn("workloads that ended long ago could not be forgotten", "error", err)
	}
	for _, uid := range gone {
		_ = os.Remove(h.logPath(uid)) // attached ones have none
	}
}

// watchNode passes on what the node sees.
func (h *Host) watchNode(ctx context.Context) {
	for {
		select {
		case notice, more := <-h.Agent.Notices():
			if !more {
				return
			}
			h.tell(func() { h.noticed(notice) })
		case <-ctx.Done():
			return
		}
	}
}
