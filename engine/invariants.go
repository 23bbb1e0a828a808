package engine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/queue"
)

// CheckInvariants recomputes everything that the engine keeps up to date and says where the two differ: books against grants,
// quotas against what is held, the line against those that wait, proposals against what they are about. It costs the whole
// state: tests call it after every step, a host now and then.
func (e *Engine) CheckInvariants() error {
	for _, check := range []func() error{e.checkBooks, e.checkGrants, e.checkQueues, e.checkLine, e.checkProposals, e.checkPlans, e.checkGuests, e.checkMoves, e.checkElastic, e.checkEarly, e.checkClasses, e.placer.Check, e.fleet.CheckIndex} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkBooks holds the fleet's books against the grants: nothing is lost, nothing is booked twice.
func (e *Engine) checkBooks() error {
	books := map[fleet.DeviceID]fleet.Book{}
	taken := map[fleet.NodeID]map[fleet.ResourceID]int64{}
	tasks, foreign := 0, 0
	for _, w := range e.byID() {
		for _, t := range w.tasks {
			for i := range t.grants {
				g := &t.grants[i]
				b := books[g.device]
				books[g.device] = fleet.Book{Compute: b.Compute + g.compute, Busy: b.Busy + g.busy, Memory: b.Memory + g.taken(), Grants: b.Grants + 1}
				if !slices.Contains(e.held.on(g.device), t) || e.grantOf(g.UID) != g {
					return fmt.Errorf("grant %s is not listed on its device", g.UID)
				}
				if !t.isNamedBy(g.UID, i) {
					foreign++
				}
			}
			if !t.live() {
				continue
			}
			tasks += len(t.grants)
			for _, a := range t.request().Resources {
				if taken[t.node] == nil {
					taken[t.node] = map[fleet.ResourceID]int64{}
				}
				taken[t.node][a.Resource] += a.Amount
			}
		}
	}
	for n := range e.fleet.Nodes {
		for _, d := range e.fleet.DevicesOf(n) {
			if got := e.fleet.BookOf(d); got != books[d] {
				return fmt.Errorf("device %s: the books say %+v, its grants add up to %+v", e.fleet.Device(d).UUID, got, books[d])
			}
			delete(books, d)
			tasks -= len(e.held.on(d))
		}
		for r := range e.fleet.Resources() {
			id := fleet.ResourceID(r)
			if got := e.fleet.Taken(n, id); got != taken[n][id] {
				return fmt.Errorf("node %s: %d of %s is taken by the books, %d by its tasks", e.fleet.NodeName(n), got, e.fleet.ResourceName(id), taken[n][id])
			}
		}
	}
	if len(e.foreign) != foreign {
		return fmt.Errorf("%d grants are listed by name, and %d do not say by it where they are", len(e.foreign), foreign)
	}
	if len(books) > 0 || tasks != 0 {
		return fmt.Errorf("%d devices with grants are not in the fleet; devices list %d tasks too few", len(books), tasks)
	}
	return nil
}

// checkGrants holds each workload to its shape: all tasks or none, distinct devices on one node, UIDs of its own, and books that
// hold at least each floor.
func (e *Engine) checkGrants() error {
	uids := map[string]bool{}
	above := map[fleet.DeviceID]int{}
	for _, w := range e.byID() {
		for i, t := range w.tasks {
			if t.index != i || t.w != w {
				return fmt.Errorf("workload %s: task %d is entered as another", w.ID, i)
			}
			if w.placing != 0 && !t.started && t.live() && len(t.grants) != t.request().Devices {
				return fmt.Errorf("workload %s: task %d is placed with %d of %d grants", w.ID, i, len(t.grants), t.request().Devices)
			}
			for k := range t.grants {
				g := &t.grants[k]
				switch {
				case uids[g.UID]:
					return fmt.Errorf("grant %s exists twice", g.UID)
				case g.busy != 0 && !weighsUse(e.placement()):
					return fmt.Errorf("grant %s is predicted to use %d, which nobody weighs", g.UID, g.busy)
				case e.fleet.NodeOf(g.device) != t.node || e.fleet.Device(g.device).UUID != g.Device:
					return fmt.Errorf("grant %s is not on its task's node", g.UID)
				case slices.ContainsFunc(t.grants[:k], func(o grant) bool { return o.device == g.device }):
					return fmt.Errorf("task %d of workload %s holds device %s twice", i, w.ID, g.Device)
				case g.compute < g.Compute.Floor || g.memory < g.Floor || w.resize == nil && (g.compute != g.Compute.Floor || g.memory != g.Floor):
					return fmt.Errorf("grant %s: the books hold %d and %d for floors of %d and %d", g.UID, g.compute, g.memory, g.Compute.Floor, g.Floor)
				}
				uids[g.UID] = true
				if g.above() > 0 {
					above[g.device]++
				}
			}
			if t.evicting && t.live() && (t.evictCode() == "" || t.evict != 0 && e.pending[t.evict] == nil) {
				return fmt.Errorf("task %d of workload %s is being evicted without a reason or a proposal", i, w.ID)
			}
			if t.evicting && t.live() && !e.ending[t] {
				return fmt.Errorf("task %d of workload %s is being evicted and not among those that are being ended", i, w.ID)
			}
		}
		if !w.waiting() && !w.live() && len(w.more()) == 0 {
			return fmt.Errorf("workload %s holds nothing, does not wait and is still known", w.ID)
		}
	}
	if !maps.Equal(above, e.above) {
		return fmt.Errorf("grants hold memory above their floors on the devices %v and %v are listed", above, e.above)
	}
	return nil
}

// checkQueues holds what each queue holds and wants, overall and by model, against its workloads.
func (e *Engine) checkQueues() error {
	type sums struct {
		own, wants     queue.Amounts
		parts          int64
		holds, waiting int
	}
	type row struct {
		queue *queue.Node
		model string
	}
	held, firm, burst, all := map[row]queue.Amounts{}, map[row]queue.Amounts{}, map[row]queue.Amounts{}, map[*queue.Node]*sums{}
	wants, parts := map[row]queue.Amounts{}, map[row]int64{} // of what may go on one model alone
	for _, q := range e.queues.All() {
		all[q] = &sums{}
	}
	for _, w := range e.byID() {
		d := w.demand()
		if w.waiting() {
			all[w.queue].waiting++
		} else if w.base == nil {
			all[w.queue].holds++
		}
		for _, u := range w.uses(nil) {
			all[w.queue].own = all[w.queue].own.Plus(u.amounts, 1)
		}
		for q := w.queue; q != nil; q = q.Parent() {
			if w.waiting() {
				all[q].wants = all[q].wants.Plus(d.Amounts, 1)
				all[q].parts += d.Parts()
				if r := (row{q, d.Model}); d.Model != "" {
					wants[r], parts[r] = wants[r].Plus(d.Amounts, 1), parts[r]+d.Parts()
				}
			}
			for _, u := range w.uses(nil) {
				for _, r := range slices.Compact([]row{{q, ""}, {q, u.model}}) {
					held[r] = held[r].Plus(u.amounts, 1)
					if d.Firm {
						firm[r] = firm[r].Plus(u.amounts, 1)
					}
					if d.Burst {
						burst[r] = burst[r].Plus(u.amounts, 1)
					}
				}
			}
		}
	}
	for q, want := range all {
		if has, more := q.Wants(); q.Holds != want.holds || q.Waiting != want.waiting || q.Own.Held != want.own || has != want.wants || more != want.parts {
			return fmt.Errorf("queue %s counts %d workloads and %d waiting, holds %v itself and wants %v and %d; its workloads say %+v",
				q.Name, q.Holds, q.Waiting, q.Own.Held, has, more, *want)
		}
		for _, model := range append(q.Models(), "") {
			gotHeld, gotFirm := q.Count(model)
			if r := (row{q, model}); gotHeld != held[r] || gotFirm != firm[r] || q.Burst(model) != burst[r] || model == "" && q.All.Held != gotHeld {
				return fmt.Errorf("queue %s counts %v and %v of it firm on model %q; its workloads say %v and %v", q.Name, gotHeld, gotFirm, model, held[r], firm[r])
			}
			delete(held, row{q, model})
			if model == "" {
				continue
			}
			if has, more := q.WantsOn(model); has != wants[row{q, model}] || more != parts[row{q, model}] {
				return fmt.Errorf("queue %s counts %v and %d that waits for model %q; its workloads say %v and %d", q.Name, has, more, model, wants[row{q, model}], parts[row{q, model}])
			}
			delete(wants, row{q, model})
		}
	}
	if len(held) > 0 || len(wants) > 0 {
		return fmt.Errorf("%d queues do not count what they hold on a model, and %d what waits for it", len(held), len(wants))
	}
	return nil
}

// checkLine: everything that waits is in line and can be tried, now or at a time.
func (e *Engine) checkLine() error {
	users := map[*shape]int{}
	ending := 0
	for _, w := range e.byID() {
		users[w.shape]++
		if !w.waiting() {
			for _, t := range w.tasks {
				if t.live() && t.out() < Never {
					ending++
				}
			}
			continue
		}
		if c := e.line.Seek(func(o *workload) bool { return before(o, w) }); !c.Valid() || c.Value() != w {
			return fmt.Errorf("workload %s waits and is not in line", w.ID)
		}
		g := e.groups[e.groupKey(w)]
		if grouped := g != nil && slices.Contains(g.members, w); grouped == (w.retryAt > 0) {
			return fmt.Errorf("workload %s waits and may be tried both now and later, or never", w.ID)
		}
	}
	members := 0
	for w := range e.parked.All {
		if w.waiting() {
			members++
		} else if !e.elastics[w] || w.retryAt == 0 {
			return fmt.Errorf("workload %s neither waits nor grows and may be tried later", w.ID)
		}
	}
	for _, g := range e.groups {
		if len(g.members) == 0 || !slices.IsSortedFunc(g.members, compare) {
			return fmt.Errorf("a group of the line is empty or out of order")
		}
		members += len(g.members)
	}
	if members != e.line.Len() || e.outs.Len() != ending {
		return fmt.Errorf("%d of %d in line may be tried; %d of %d tasks are counted on to be over", members, e.line.Len(), e.outs.Len(), ending)
	}
	if err := e.outs.check(); err != nil {
		return err
	}
	for key, s := range e.shapes {
		if users[s] != s.users || s.users == 0 {
			return fmt.Errorf("shape %+v counts %d workloads and has %d", key, s.users, users[s])
		}
	}
	return nil
}

// checkClasses: nobody who is there names a class that is forgotten.
func (e *Engine) checkClasses() error {
	for _, w := range e.byID() {
		names := []string{w.Feasibility}
		for i := range w.Roles {
			names = append(names, w.feasibilityOf(&w.Roles[i]))
		}
		i := 0
		for r := range w.shape.Each {
			if !e.fleet.HasClass(r.Class) || e.fleet.ClassName(r.Class) != names[i] {
				return fmt.Errorf("workload %s is of class %q, which its shape does not have, or which is forgotten", w.ID, names[i])
			}
			i++
		}
	}
	return nil
}

// checkGuests: whoever holds something of a pool that is not for it is listed, and nobody who is gone.
func (e *Engine) checkGuests() error {
	for _, w := range e.byID() {
		if slices.ContainsFunc(w.tasks, e.isGuest) && !e.guests[w] {
			return fmt.Errorf("workload %s holds devices of a pool that is not for it and is not listed as a guest", w.ID)
		}
	}
	for w := range e.guests {
		if e.work[w.key()] != w {
			return fmt.Errorf("workload %s is listed as a guest and is not there", w.ID)
		}
	}
	return nil
}

// checkElastic: further replicas are those of elastic workloads that were placed, in number and numbers.
func (e *Engine) checkElastic() error {
	surplus := 0
	for _, w := range e.byID() {
		if w.lifted {
			return fmt.Errorf("workload %s was left out of the books by a trial", w.ID)
		}
		if grown := !w.waiting() && w.base == nil && w.elastic(); grown != e.elastics[w] || grown != (w.replicas != nil) {
			return fmt.Errorf("workload %s may or may not grow, and is listed otherwise", w.ID)
		}
		if w.base != nil {
			surplus++
			if w.base.replica(int(w.first)) != w || int(w.first) < w.base.Tasks || int(w.first) >= w.base.Max || !w.Preemptible || w.queue != w.base.queue || w.base.placing != 0 || !w.live() {
				return fmt.Errorf("replica %d of workload %s is none that it could have", w.first, w.ID)
			}
		}
		if len(w.more()) > max(0, w.Max-w.Tasks) || !slices.IsSortedFunc(w.more(), func(a, b *workload) int { return int(a.first - b.first) }) {
			return fmt.Errorf("workload %s has %d replicas above its %d and may have %d in all", w.ID, len(w.more()), w.Tasks, w.Max)
		}
	}
	if surplus != e.surplus {
		return fmt.Errorf("%d replicas above those that their workloads are sure of are counted, and there are %d", e.surplus, surplus)
	}
	return nil
}

func (e *Engine) checkProposals() error {
	for id, p := range e.pending {
		if e.work[p.w.key()] != p.w || id >= e.nextID {
			return fmt.Errorf("action %d is about a workload that is not there", id)
		}
		ok := false
		switch p.kind {
		case placeProposal:
			ok = p.w.placing == id
		case evictProposal:
			ok = p.w.tasks[p.task].evict == id && p.w.tasks[p.task].live()
		case resizeProposal:
			ok = p.w.resize != nil && p.w.resize.tasks[p.task].action == id
		}
		if !ok {
			return fmt.Errorf("action %d waits for an answer that its workload %s does not", id, p.w.ID)
		}
	}
	return nil
}

// byID are all workloads in the order in which they came.
func (e *Engine) byID() []*workload {
	all := make([]*workload, 0, len(e.work))
	for _, w := range e.work {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b *workload) int {
		if a.seq < b.seq {
			return -1
		}
		return 1
	})
	return all
}
