package local

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/local/internal/exact"
	"github.com/aliquot-dev/aliquot/internal/point"
	"github.com/aliquot-dev/aliquot/node"
)

// A workload of several replicas is one workload of the engine, by the UID of its first replica, and here one work for each replica: each has a UID,
// a name, a supervisor, a log and an end of its own. The first is what was submitted and waits in line. The others are made once all that start
// together are prepared, or when the engine has the workload grow, and are over when they end.

// gang is the UID by which the engine knows the workload that this is a replica of.
func (w *work) gang() string {
	if r := w.now.Status.Replica; r != nil {
		return r.Of
	}
	return w.now.UID
}

// number is which replica it is, from 0.
func (w *work) number() int {
	if r := w.now.Status.Replica; r != nil {
		return r.Number
	}
	return 0
}

// replica is the live replica of a workload with this number; nil: there is none.
func (h *Host) replica(gang string, number int) *work {
	if w := h.work[gang]; w != nil && number == 0 {
		return w
	}
	for _, w := range h.work {
		if w.gang() == gang && w.number() == number && !w.over {
			return w
		}
	}
	return nil
}

// others are the live replicas of a workload beside one, in order.
func (h *Host) others(w *work) []*work {
	if w.now.Spec.Replicas.Most() == 1 {
		return nil
	}
	var all []*work
	for _, o := range h.work {
		if o != w && o.gang() == w.gang() && !o.over {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b *work) int { return a.number() - b.number() })
	return all
}

// newReplica makes a further replica of the workload whose first one is given, placed already.
func (h *Host) newReplica(first *work, uid string, placing engine.Placing) *work {
	spec := first.now.Spec
	spec.Name = h.replicaName(spec.Name, placing.Task)
	h.seq++
	w := newWork(h.seq, api.Workload{
		UID: uid, User: first.now.User, UserID: first.now.UserID, Spec: spec,
		Status: api.WorkloadStatus{
			Phase: api.Starting, Submitted: h.Now().UTC(), PriorityOver: first.now.Status.PriorityOver, Notes: slices.Clone(first.now.Status.Notes),
			Replica: &api.Replica{Of: first.gang(), Number: placing.Task}, Grants: h.shownGrants(placing.Grants),
		},
	}, keep{Program: exact.Text(first.keep.Program), User: first.keep.User, Placing: &placing})
	h.work[uid], h.names[spec.Name] = w, w
	h.touch(w)
	h.awaitDate(w)
	h.note(w, fmt.Sprintf("replica %d of %s, placed on %s", placing.Task, first.now.Spec.Name, h.deviceNames(placing.Grants)))
	return w
}

// replicaName is the name of a further replica: that of the workload with its number, and more where somebody has that.
func (h *Host) replicaName(base string, number int) string {
	tail := "-" + strconv.Itoa(number)
	for {
		name := strings.TrimRight(base[:min(len(base), api.MaxNameLength-len(tail))], "-") + tail
		if h.names[name] == nil {
			return name
		}
		tail = "-" + strconv.Itoa(number) + "-" + randomHex(2)
	}
}

// grow starts one more replica.
func (h *Host) grow(first *work, action engine.Place) {
	w := h.newReplica(first, newUID(), action.Tasks[0])
	w.place = action.ID
	h.after(func() {
		point.Here("local.place.stored")
		h.start(w)
	})
}

// startAll prepares all replicas that start together, and then starts each; if one cannot be prepared, none is started.
func (h *Host) startAll(first *work, placings []engine.Placing) {
	one := startingOf(first, nodeTask(first))
	tasks := []node.Task{one.task}
	for _, placing := range placings[1:] {
		task := one.task
		task.UID, task.Grants = newUID(), nodeGrants(placing.Grants)
		tasks = append(tasks, task)
	}
	h.spawn(func(ctx context.Context) {
		launches := make([]node.Launch, len(tasks))
		for i, task := range tasks {
			var err error
			if launches[i], err = h.Agent.Prepare(ctx, task); err != nil {
				for _, made := range tasks[:i] {
					h.unprepare(ctx, made.UID)
				}
				h.notPrepared(ctx, first, err)
				return
			}
		}
		point.Here("local.task.prepared")
		h.tell(func() {
			first.joined = true
			h.after(func() { h.spawn(func(ctx context.Context) { h.run(ctx, first, one, launches[0]) }) })
			for i, placing := range placings[1:] {
				w := h.newReplica(first, tasks[i+1].UID, placing)
				if stop := first.keep.Stop; stop != nil { // it was told to end meanwhile
					same := *stop
					w.keep.Stop = &same
					close(w.stopping)
				}
				next := startingOf(w, tasks[i+1])
				h.after(func() { h.spawn(func(ctx context.Context) { h.run(ctx, w, next, launches[i+1]) }) })
			}
			h.countReplicas(first.gang())
		})
	})
}

// growthFailed ends a further replica that could not be prepared: the engine tries again, with another.
func (h *Host) growthFailed(w *work, err error) {
	place := w.place
	w.place, w.keep.Placing = 0, nil
	h.memory.fresh = false
	if place != 0 {
		h.step(engine.Refused{At: h.time(), ID: place, Reason: err.Error()})
	}
	h.conclude(w, verdict{outcome: api.Refused, reason: err.Error()})
}

// countAll has replicas show how many there are, after what an event may have changed of it.
func (h *Host) countAll(event engine.Event, actions []engine.Action) {
	switch event := event.(type) {
	case engine.Ended:
		h.countReplicas(event.ID)
	case engine.Adopt:
		h.countReplicas(event.Workload.ID)
	}
	for _, action := range actions {
		if place, ok := action.(engine.Place); ok {
			h.countReplicas(place.Workload)
		}
	}
}

// countReplicas has all replicas of a workload show how many of them there are.
func (h *Host) countReplicas(gang string) {
	now, _, most := h.engine.Replicas(gang)
	if most < 2 {
		return
	}
	for _, w := range h.work {
		if w.gang() == gang && !w.over && w.now.Status.Replicas != now {
			w.now.Status.Replicas = now
			h.touch(w)
		}
	}
}

// endUnseen has what the engine placed for a workload, and no replica was made of, be over with its first replica.
func (h *Host) endUnseen(w *work) {
	if w.number() > 0 || w.now.Spec.Replicas.Most() == 1 {
		return
	}
	for _, placing := range h.engine.Grants(w.gang()) {
		if h.replica(w.gang(), placing.Task) == nil {
			h.step(engine.Ended{At: h.time(), ID: w.gang(), Task: placing.Task})
		}
	}
}

// environmentOf is what a replica is told of itself and the others.
func environmentOf(w api.Workload) []string {
	r := w.Spec.Replicas
	if r.Most() == 1 {
		return nil
	}
	number, of := 0, w.UID
	if w.Status.Replica != nil {
		number, of = w.Status.Replica.Number, w.Status.Replica.Of
	}
	return []string{
		"ALIQUOT_REPLICA=" + strconv.Itoa(number), "ALIQUOT_REPLICA_OF=" + of,
		"ALIQUOT_REPLICAS_MIN=" + strconv.Itoa(r.Least()), "ALIQUOT_REPLICAS_MAX=" + strconv.Itoa(r.Most()),
	}
}

// replicasText says how many replicas a workload has.
func replicasText(now int, of api.Replicas) string { return fmt.Sprintf("%d of %s replicas", now, of) }

// whyReplicas puts how many replicas a running workload has, and why not more, behind a sentence.
func (h *Host) whyReplicas(work api.Workload, why *api.Why) {
	if work.Spec.Replicas.Most() == 1 {
		return
	}
	gang := work.UID
	if work.Status.Replica != nil {
		gang = work.Status.Replica.Of
	}
	engines := h.engine.Why(gang)
	now, _, _ := h.engine.Replicas(gang)
	text := replicasText(now, work.Spec.Replicas)
	if _, reason, ok := strings.Cut(engines.Message, " replicas"); ok {
		text += reason
	}
	why.Message += "; " + text
	why.Unblock, why.Counts = engines.Unblock, engines.Counts
}

// adoptGang enters all replicas of a workload that run in the engine's books together, and says which of them never ran.
func (h *Host) adoptGang(all []*work) (never []*work) {
	adopted := engine.Adopt{At: h.time(), Workload: engineWorkload(all[0])}
	for _, w := range all {
		if w.keep.Placing == nil || h.neverRan(w) {
			never = append(never, w)
			continue
		}
		placing := *w.keep.Placing
		placing.Node, placing.Task = h.name, w.number()
		adopted.Tasks = append(adopted.Tasks, placing)
		if started := w.now.Status.Started; started != nil {
			adopted.Ran = max(adopted.Ran, micros(h.Now().Sub(*started)))
		}
		w.adopted = true
	}
	if len(adopted.Tasks) == 0 {
		return never
	}
	if rejected := h.step(adopted); rejected != nil {
		for _, w := range all {
			if w.adopted {
				h.Log.Error("a running workload could not be entered in the books", "workload", w.now.UID, "error", rejected.Reason)
				h.addNotes(w, "it runs outside of the books: "+rejected.Reason)
			}
		}
		return never
	}
	for _, w := range all {
		if w.adopted {
			h.retellCheckpoint(w)
		}
	}
	return never
}

// neverRan says that nothing of a workload that was placed can have run.
func (h *Host) neverRan(w *work) bool {
	found, err := h.folder(w.now.UID).Look()
	return err == nil && !found.Supervised && (found.Exit == nil && !found.Begun || found.Exit != nil && found.Exit.NotStarted)
}

// adoptGangs does so for all workloads of several replicas one of which runs. A workload that was being started when the last server ended, and not
// all of which began, ends as a whole; further replicas that never began are over.
func (h *Host) adoptGangs(rows []*work) {
	gangs := map[string][]*work{}
	var order []string
	for _, w := range rows {
		if w.now.Spec.Replicas.Most() > 1 && w.keep.Placing != nil {
			if gangs[w.gang()] == nil {
				order = append(order, w.gang())
			}
			gangs[w.gang()] = append(gangs[w.gang()], w)
		}
	}
	var broken []string
	for _, gang := range order {
		all := gangs[gang]
		never := h.adoptGang(all)
		some := false
		for _, w := range never {
			if w.number() == 0 && len(never) == len(all) {
				continue // it waits again
			}
			some = some || w.number() < w.now.Spec.Replicas.Least()
			w.keep.Placing = nil
			_ = h.folder(w.now.UID).Remove()
			h.conclude(w, verdict{outcome: api.Refused, reason: "the server restarted before it was started"})
		}
		if some && len(never) < len(all) {
			broken = append(broken, gang)
		}
	}
	for _, gang := range broken { // once all are adopted
		h.step(engine.Cancel{At: h.time(), ID: gang, Reason: "the server restarted while its replicas were being started, and not all of them were"})
	}
}
