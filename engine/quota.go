package engine

import (
	"fmt"
	"strconv"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/queue"
)

// demand is what the workload holds of quotas and limits when it runs.
func (w *Workload) demand() queue.Demand {
	d := queue.NewDemand(w.Share, int64(w.Devices)*int64(w.Tasks))
	d.Model, d.Firm = w.Model, !w.Preemptible
	for i := range w.Roles {
		r := &w.Roles[i]
		d = d.And(queue.NewDemand(r.Share, int64(r.Devices)*int64(r.Tasks)))
		if r.Model != w.Model {
			d.Model = "" // some of it may be on any
		}
	}
	return d
}

// demand is what it holds, or would.
func (w *workload) demand() queue.Demand {
	d := w.Workload.demand()
	d.Burst = w.base != nil
	return d
}

// kind is what bounds count what a workload holds against.
func (w *workload) kind() queue.Kind {
	switch {
	case w.base != nil:
		return queue.Burst
	case w.Preemptible:
		return queue.Soft
	}
	return queue.Firm
}

// amounts is what a grant holds in its queue.
func (g *grant) amounts() queue.Amounts { return queue.Amounts{int64(g.compute), int64(g.memory), 1} }

// use is what a workload holds on devices of one model.
type use struct {
	model   string
	amounts queue.Amounts
}

// uses are what a workload's grants hold now, or would hold at the most during a resize.
func (w *workload) uses(plan *resize) []use {
	var all []use
	for i, t := range w.tasks {
		for k := range t.grants {
			g := &t.grants[k]
			amounts := g.amounts()
			if plan != nil && len(plan.tasks[i].grants) > 0 {
				next := &plan.tasks[i].grants[k]
				amounts[queue.Compute] = max(amounts[queue.Compute], int64(next.Compute.Floor))
				amounts[queue.Memory] = max(amounts[queue.Memory], int64(next.Floor))
			}
			all = addUse(all, use{g.model, amounts})
		}
	}
	return all
}

// staying are what the tasks of a workload hold that are not being ended.
func (w *workload) staying() (all []use) {
	for _, t := range w.tasks {
		if t.stays() {
			all = t.addUses(all)
		}
	}
	return all
}

func (t *task) addUses(all []use) []use {
	for i := range t.grants {
		all = addUse(all, use{t.grants[i].model, t.grants[i].amounts()})
	}
	return all
}

func addUse(all []use, more use) []use {
	for i := range all {
		if all[i].model == more.model {
			all[i].amounts = all[i].amounts.Plus(more.amounts, 1)
			return all
		}
	}
	return append(all, more)
}

func pretend(q *queue.Node, all []use, kind queue.Kind, times int64) {
	for _, u := range all {
		q.Pretend(u.model, u.amounts, kind, times)
	}
}

// checkQuota says which quota or limit a change of a running workload would pass.
func (e *Engine) checkQuota(w *workload, q *queue.Node, plan *resize) error {
	held, want := w.uses(nil), w.uses(plan)
	kind := w.kind()
	pretend(w.queue, held, kind, -1)
	defer pretend(w.queue, held, kind, 1)
	for i, u := range want {
		d := queue.Demand{Amounts: u.amounts, Model: u.model, Firm: kind == queue.Firm}
		r, over := q.Over(d)
		more := u.amounts[r.Resource] > held[i].amounts[r.Resource]
		if over && (more || !w.queue.Within(r.Queue)) { // else nothing more is held under that bound than before
			if r.Spent() {
				return fmt.Errorf("workload %s cannot hold more in queue %s, which has used its device-hours up: ask again when the next period begins", w.ID, r.Queue.Name)
			}
			bound := boundName(&r)
			return fmt.Errorf("workload %s would hold %s in queue %s, which has a %s of %s and %s held by others: ask for less or raise the %s",
				w.ID, queue.Format(r.Resource, u.amounts[r.Resource]), r.Queue.Name, bound, plain(&r, r.Bound()), plain(&r, r.Held()), bound)
		}
		q.Pretend(u.model, u.amounts, kind, 1)
		defer q.Pretend(u.model, u.amounts, kind, -1)
	}
	return nil
}

func boundName(r *queue.Refusal) string {
	if r.Limit {
		return "limit"
	}
	return "quota"
}

// plain writes an amount without its unit, after one with it.
func plain(r *queue.Refusal, amount int64) string {
	on := ""
	if r.Model != "" {
		on = " on " + r.Model
	}
	switch r.Resource {
	case queue.Memory:
		return api.Bytes(amount).String() + on
	case queue.Devices:
		return strconv.FormatInt(amount, 10) + on
	}
	return api.Quota(amount).String() + on
}

// remodel books grants anew whose devices are said to be of another model, and notes who is a guest there by what is said.
func (e *Engine) remodel(n fleet.NodeID) {
	for _, d := range e.fleet.DevicesOf(n) {
		model := e.fleet.Device(d).Model
		for _, t := range e.held.on(d) {
			for i := range t.grants {
				g := &t.grants[i]
				if g.device != d || g.model == model {
					continue
				}
				t.w.queue.Hold(g.model, g.amounts(), t.w.kind(), -1)
				g.model = model
				t.w.queue.Hold(g.model, g.amounts(), t.w.kind(), 1)
			}
		}
		e.noteGuests(e.held.on(d)...)
	}
}

// size is what the fleet has: devices that are not gone or down. Fair shares are parts of it.
func (e *Engine) size() queue.Amounts {
	if e.sizedAt == e.fleet.Changes()+1 {
		return e.sized
	}
	e.sized, e.sizedOf, e.sizedAt = queue.Amounts{}, map[string]queue.Amounts{}, e.fleet.Changes()+1
	for n := range e.fleet.Nodes {
		for _, d := range e.fleet.DevicesOf(n) {
			if dev := e.fleet.Device(d); !e.fleet.DeviceGone(d) && dev.Health != api.Down {
				one := queue.Amounts{int64(api.WholeDevice), int64(dev.Memory), 1}
				e.sized, e.sizedOf[dev.Model] = e.sized.Plus(one, 1), e.sizedOf[dev.Model].Plus(one, 1)
			}
		}
	}
	return e.sized
}

// divide finds what queues are due now.
func (e *Engine) divide() {
	e.queues.Divide(e.size(), func(model string) queue.Amounts { return e.sizedOf[model] })
}
