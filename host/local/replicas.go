package local

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/internal/point"
	"github.com/aliquot-dev/aliquot/node"
	"github.com/aliquot-dev/aliquot/server"
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
	if !w.now.Spec.Several() {
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

// leftOf are the live replicas that a caller may have changed of a workload, by its name or UID, whose first one has ended; in order.
func (h *Host) leftOf(who server.Caller, name string) (left []*work) {
	if w := h.find(name); w != nil && !w.over {
		return nil
	}
	for _, uid := range h.byOrder() {
		if o := h.work[uid]; !o.over && o.number() > 0 && (o.keep.Base == name || o.gang() == name) && h.may(who.UID, o.now.UserID) {
			left = append(left, o)
		}
	}
	return left
}

// newReplica makes a further replica of the workload whose first one is given, placed already.
func (h *Host) newReplica(first *work, uid string, placing engine.Placing) *work {
	role, rank := first.now.Spec.RoleOf(placing.Task)
	spec, program := first.now.Spec, first.keep.Program
	if role == "" || role == api.MainRole {
		spec.Name = h.replicaName(spec.Name, strconv.Itoa(placing.Task))
	} else {
		spec, program = spec.InRole(role), first.keep.Programs[role]
		spec.Name = h.replicaName(spec.Name, role+"-"+strconv.Itoa(rank))
	}
	h.seq++
	w := newWork(h.seq, api.Workload{
		UID: uid, User: first.now.User, UserID: first.now.UserID, Spec: spec,
		Status: api.WorkloadStatus{
			Phase: api.Starting, Submitted: h.Now().UTC(), Requeued: first.now.Status.Requeued, PriorityOver: first.now.Status.PriorityOver, Notes: slices.Clone(first.now.Status.Notes),
			Replica: &api.Replica{Of: first.gang(), Number: placing.Task, Role: role, InRole: rank}, Grants: h.shownGrants(placing.Grants),
		},
	}, keep{
		Program: program, Programs: first.keep.Programs, User: first.keep.User, Placing: &placing, Base: first.now.Spec.Name,
		Served: first.keep.Served, Disrupted: first.keep.Disrupted, Reclaimed: first.keep.Reclaimed, Due: first.keep.Due,
	})
	h.work[uid], h.names[spec.Name] = w, w
	h.touch(w)
	h.awaitDate(w)
	h.feed(first, w)
	what := fmt.Sprintf("replica %d", placing.Task)
	if role != "" {
		what = fmt.Sprintf("%s %d", role, rank)
	}
	h.note(w, fmt.Sprintf("%s of %s, placed on %s", what, first.now.Spec.Name, h.deviceNames(placing.Grants)))
	return w
}

// replicaName is the name of a further replica: that of the workload with its number, or its role and its number in that, and more where somebody
// has that.
func (h *Host) replicaName(base, which string) string {
	tail := "-" + which
	for {
		name := strings.TrimRight(base[:min(len(base), api.MaxNameLength-len(tail))], "-") + tail
		if h.names[name] == nil {
			return name
		}
		tail = "-" + which + "-" + randomHex(2)
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
	if w.number() > 0 || !w.now.Spec.Several() {
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
	if !w.Spec.Several() {
		return nil
	}
	one := api.Replica{Of: w.UID}
	if w.Status.Replica != nil {
		one = *w.Status.Replica
	}
	least, most := w.Whole().Tasks()
	told := []string{
		"ALIQUOT_REPLICA=" + strconv.Itoa(one.Number), "ALIQUOT_REPLICA_OF=" + one.Of,
		"ALIQUOT_REPLICAS_MIN=" + strconv.Itoa(least), "ALIQUOT_REPLICAS_MAX=" + strconv.Itoa(most),
	}
	if one.Role != "" {
		var all []string
		for _, r := range w.AllRoles() {
			all = append(all, r.Name+"="+strconv.Itoa(r.Replicas.Least()))
		}
		told = append(told, "ALIQUOT_ROLE="+one.Role, "ALIQUOT_ROLE_NUMBER="+strconv.Itoa(one.InRole), "ALIQUOT_ROLES="+strings.Join(all, ","))
	}
	return told
}

// replicasText says how many replicas a workload has.
func replicasText(now int, w api.Workload) string {
	if roles := w.RolesText(); roles != "" {
		return fmt.Sprintf("%d of its processes (%s)", now, roles)
	}
	return fmt.Sprintf("%d of %s replicas", now, w.Spec.Replicas)
}

// holdingAll says what the processes of a workload hold where they were placed: of each role, where it has some.
func (h *Host) holdingAll(w api.Workload, placings []engine.Placing) string {
	if len(w.Spec.Roles) == 0 {
		return h.holding(w)
	}
	var all []string
	for i, r := range w.AllRoles() {
		one := w
		if i > 0 {
			one.Spec = w.Spec.InRole(r.Name)
		}
		one.Status.Grants = nil
		for _, placing := range placings {
			if role, _ := w.Spec.RoleOf(placing.Task); role == r.Name {
				one.Status.Grants = append(one.Status.Grants, h.shownGrants(placing.Grants)...)
			}
		}
		all = append(all, r.Name+" "+h.holding(one))
	}
	return "with " + strings.Join(all, "; ")
}

// whyReplicas puts how many replicas a running workload has, and why not more, behind a sentence.
func (h *Host) whyReplicas(work api.Workload, why *api.Why) {
	if !work.Spec.Several() {
		return
	}
	gang := work.UID
	if work.Status.Replica != nil {
		gang = work.Status.Replica.Of
	}
	engines := h.engine.Why(gang)
	now, _, _ := h.engine.Replicas(gang)
	text := replicasText(now, work)
	if _, reason, ok := strings.Cut(engines.Message, " replicas"); ok {
		text += reason
	}
	why.Message += "; " + text
	why.Unblock, why.Counts = engines.Unblock, engines.Counts
}

// adoptGang enters all replicas of a workload that run in the engine's books together, and says which of them never ran.
func (h *Host) adoptGang(all []*work) (never []*work) {
	adopted := h.adoption(all[0])
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
func (h *Host) adoptGangs(rows []*work) (broken []string) {
	gangs := map[string][]*work{}
	var order []string
	for _, w := range rows {
		if w.now.Spec.Several() && w.keep.Placing != nil {
			if gangs[w.gang()] == nil {
				order = append(order, w.gang())
			}
			gangs[w.gang()] = append(gangs[w.gang()], w)
		}
	}
	nevers := map[string][]*work{}
	for _, gang := range order { // all are entered before any of them ends
		nevers[gang] = h.adoptGang(gangs[gang])
	}
	for _, gang := range order {
		all, never := gangs[gang], nevers[gang]
		some := false
		least, _ := all[0].now.Whole().Tasks()
		for _, w := range never {
			if w.number() == 0 && len(never) == len(all) {
				continue // it waits again
			}
			some = some || w.number() < least
			w.keep.Placing = nil
			_ = h.folder(w.now.UID).Remove()
			h.conclude(w, verdict{outcome: api.Refused, reason: "the server restarted before it was started"})
		}
		if some && len(never) < len(all) {
			broken = append(broken, gang)
		}
	}
	return broken
}
