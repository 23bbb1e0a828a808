package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/place"
	"github.com/aliquot-dev/aliquot/engine/queue"
)

// DeviceBook is what is known and taken of one device.
type DeviceBook struct {
	Node string
	Device
	Gone        bool      // no longer on its node, and still held
	ComputeFree api.Milli // not under any floor; less than nothing where more was adopted than there is
	MemoryFree  api.Bytes
	Grants      []string // UIDs, in order
}

// Devices are the books of all devices, by node and index.
func (e *Engine) Devices() []DeviceBook {
	var books []DeviceBook
	for n := range e.fleet.Nodes {
		for _, d := range e.fleet.DevicesOf(n) {
			b := DeviceBook{Node: e.fleet.NodeName(n), Device: Device(e.fleet.Device(d)), Gone: e.fleet.DeviceGone(d)}
			b.ComputeFree, b.MemoryFree = e.fleet.Free(d)
			for _, t := range e.held.on(d) {
				for i := range t.grants {
					if t.grants[i].device == d {
						b.Grants = append(b.Grants, t.grants[i].UID)
					}
				}
			}
			slices.Sort(b.Grants)
			books = append(books, b)
		}
	}
	return books
}

// Waiting are the IDs of all that wait, in their order: the first is first in line.
func (e *Engine) Waiting() []string {
	ids := make([]string, 0, e.line.Len())
	for w := range e.inOrder {
		ids = append(ids, w.ID)
	}
	return ids
}

// Waits says whether any workload waits.
func (e *Engine) Waits() bool { return e.line.Len() > 0 }

// Queues are all queues by name, with what they hold, are due, borrow and lend.
func (e *Engine) Queues() []api.Queue {
	all := e.queues.All()
	e.divide() // changes no decision: fair shares follow from the rest of the state
	queues := make([]api.Queue, len(all))
	for i, n := range all {
		queues[i] = api.Queue{QueueSpec: n.Spec(), Held: api.Milli(n.All.Held[queue.Compute])}
		for _, m := range all {
			if m.Within(n) {
				queues[i].Running += m.Holds
				queues[i].Waiting += m.Waiting
			}
		}
		queues[i].Use, queues[i].Fair = queueUse(n.All.Held), queueUse(n.All.Fair)
		queues[i].Borrowed, queues[i].AtRisk = queueUse(n.Borrowed()), queueUse(n.AtRisk())
		queues[i].Lent, queues[i].Burst = queueUse(n.Lent()), queueUse(n.Burst(""))
		for _, model := range n.WeighedBeside() {
			held, fair := n.On(model)
			queues[i].OnModels = append(queues[i].OnModels, api.QueueOnModel{Model: model, Use: queueUse(held), Fair: queueUse(fair)})
		}
	}
	return queues
}

func queueUse(a queue.Amounts) api.QueueUse {
	return api.QueueUse{Compute: api.Milli(a[queue.Compute]), Memory: api.Bytes(a[queue.Memory]), Devices: a[queue.Devices]}
}

// Known says whether a workload waits or holds anything.
func (e *Engine) Known(id string) bool {
	_, ok := e.work[id]
	return ok
}

// Workload is a workload as the engine knows it, with the changes made since it was submitted.
func (e *Engine) Workload(id string) (Workload, bool) {
	w, ok := e.work[id]
	if !ok {
		return Workload{}, false
	}
	return w.Workload, true
}

// Phase is where a workload is in its life: Waiting, Starting, Running, Stopping, or Ended when it is not known (any more).
func (e *Engine) Phase(id string) api.Phase {
	w, ok := e.work[id]
	switch {
	case !ok:
		return api.Ended
	case w.waiting():
		return api.Waiting
	}
	phase, started := api.Stopping, true
	for _, t := range w.allTasks() {
		if t.live() && !t.evicting {
			phase = api.Running
		}
		started = started && (t.started || !t.live() || t.w.base != nil)
	}
	if phase == api.Running && !started {
		return api.Starting
	}
	return phase
}

// Grants are where the tasks of a workload are that are not over; none while it waits.
func (e *Engine) Grants(id string) []Placing {
	w, ok := e.work[id]
	if !ok {
		return nil
	}
	var placings []Placing
	for _, t := range w.allTasks() {
		if t.live() {
			placings = append(placings, e.placing(t))
		}
	}
	return placings
}

// Unanswered are the proposals that the host has not answered, oldest first: after a crash they are what may or may not have been
// carried out.
func (e *Engine) Unanswered() []Action {
	ids := make([]ActionID, 0, len(e.pending))
	for id := range e.pending {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	actions := make([]Action, len(ids))
	for i, id := range ids {
		p := e.pending[id]
		switch p.kind {
		case placeProposal:
			a := Place{ID: id, Workload: p.w.ID}
			for _, t := range p.w.tasks {
				if t.live() {
					a.Tasks = append(a.Tasks, e.placing(t))
				}
			}
			actions[i] = a
		case evictProposal:
			t := p.w.tasks[p.task]
			actions[i] = Evict{ID: id, Workload: p.w.ID, Task: t.number(), Code: t.evictCode(), Reason: t.evictReason()}
		case resizeProposal:
			actions[i] = Resize{ID: id, Workload: p.w.ID, Task: p.task, Grants: slices.Clone(p.w.resize.tasks[p.task].grants)}
		}
	}
	return actions
}

// Fits says that a workload, with all its roles together, would fit if nothing else ran. It changes nothing.
func (e *Engine) Fits(w Workload) (fits bool) {
	e.lookAhead(e.now, func(*ahead) {
		one := &workload{Workload: w}
		one.shape = e.shapeOf(&one.Workload)
		fits = e.possible(one.shape)
		e.dropShape(one)
	})
	return fits
}

// Check says why a workload could never run on the fleet as it is, whatever ended: what it asks and the most there is. It
// changes nothing, and takes devices that are draining or down for ones that will be back. Roles are looked at one by one.
func (e *Engine) Check(w Workload) error {
	if err := validate(&w); err != nil {
		return err
	}
	for i, one := range w.inRoles() {
		if err := e.checkOne(one); err != nil {
			if i > 0 {
				return fmt.Errorf("role %s: %w", w.Roles[i-1].Name, err)
			}
			return err
		}
	}
	return nil
}

// checkOne is Check for a workload without roles.
func (e *Engine) checkOne(w Workload) error {
	var models []string
	most := struct {
		devices, model, least, memory, serving int
		largest                                api.Bytes
	}{}
	for n := range e.fleet.Nodes {
		serving := 0
		for _, d := range e.fleet.DevicesOf(n) {
			dev := e.fleet.Device(d)
			if e.fleet.DeviceGone(d) {
				continue
			}
			most.devices++
			if w.Model != "" && w.Model != dev.Model {
				if !slices.Contains(models, dev.Model) {
					models = append(models, dev.Model)
				}
				continue
			}
			most.model++
			if !w.Least.Met(dev.Traits) {
				continue
			}
			most.least++
			most.largest = max(most.largest, dev.Memory)
			if w.Share.Memory.Floor.Of(dev.Memory) <= dev.Memory {
				most.memory++
				if w.Share.Memory.Fits(dev.Memory) {
					serving++
				}
			}
		}
		most.serving = max(most.serving, serving)
	}
	kind := "device"
	if w.Model != "" {
		kind = w.Model
	}
	switch {
	case most.devices == 0:
		return fmt.Errorf("there is no device that workload %s could run on: add a node with devices first", w.ID)
	case most.model == 0:
		slices.Sort(models)
		return fmt.Errorf("workload %s wants a device of model %s and there is none: ask for one of the models there are (%s), or for any", w.ID, w.Model, strings.Join(models, ", "))
	case most.least == 0:
		return fmt.Errorf("workload %s wants a %s with %s, and none is known to have it: ask for less, or for a device by its model", w.ID, kind, w.Least)
	case most.memory == 0:
		return fmt.Errorf("workload %s wants a memory floor of %s and no %s has more than %s: ask for less memory", w.ID, w.Share.Memory.Floor, kind, most.largest)
	case most.serving == 0:
		return fmt.Errorf("workload %s wants a memory floor of %s with a ceiling of %s, and on no %s with so much is that floor within the ceiling: ask for a lower floor or a higher ceiling",
			w.ID, w.Share.Memory.Floor, w.Share.Memory.Ceiling, kind)
	case most.serving < w.Devices:
		return fmt.Errorf("workload %s wants %d devices on one node and no node has more than %d that would do: ask for fewer", w.ID, w.Devices, most.serving)
	}
	return e.checkNodes(&w)
}

// CheckQuota says why a workload could never hold its floors in its queue, whatever ended there. It changes nothing.
// A queue that has used its device-hours up will have some again.
func (e *Engine) CheckQuota(w Workload) error {
	err := checkQuota(e.queues, w)
	specs := slices.Clone(e.queues.Specs())
	if err == nil || !slices.ContainsFunc(specs, func(q api.QueueSpec) bool { return q.HoursSpent }) {
		return err
	}
	for i := range specs {
		specs[i].HoursSpent = false
	}
	quotas, err := QuotasOf(Policy{Queues: specs})
	if err != nil {
		return err
	}
	return quotas.Check(w)
}

// Held is the compute that a queue and those under it hold as floors that are their own, in thousandths of a device: without replicas above those that
// their workloads are sure of. 0 for a queue that is not there.
func (e *Engine) Held(name string) api.Milli {
	q, ok := e.queues.Get(name)
	if !ok {
		return 0
	}
	return api.Milli(q.All.Held[queue.Compute] - q.Burst("")[queue.Compute])
}

// HeldAll is Held with the replicas above those that their workloads are sure of.
func (e *Engine) HeldAll(name string) api.Milli {
	q, ok := e.queues.Get(name)
	if !ok {
		return 0
	}
	return api.Milli(q.All.Held[queue.Compute])
}

// Quotas are the quotas and limits of queues under a policy that may hold at another time.
type Quotas struct{ queues *queue.Tree }

// QuotasOf are the quotas and limits of a policy whose queues are all there are, or what does not add up with them.
func QuotasOf(p Policy) (*Quotas, error) {
	tree := queue.New()
	return &Quotas{tree}, tree.SetAll(p.Queues)
}

// Check is CheckQuota for when they hold.
func (q *Quotas) Check(w Workload) error { return checkQuota(q.queues, w) }

func checkQuota(queues *queue.Tree, w Workload) error {
	q, ok := queues.Get(w.Queue)
	if !ok {
		return fmt.Errorf("workload %s names queue %s, which is not there: make the queue or name another", w.ID, w.Queue)
	}
	demand := w.demand()
	if r, over := q.Smaller(demand); over {
		return fmt.Errorf("workload %s asks for %s and queue %s may never hold more than %s: ask for less, use another queue or raise that %s",
			w.ID, queue.Format(r.Resource, demand.Amounts[r.Resource]), r.Queue.Name, queue.Format(r.Resource, r.Bound()), boundName(&r))
	}
	return nil
}

// checkNodes says whether the tasks together could find room on empty nodes.
func (e *Engine) checkNodes(w *Workload) error {
	request := e.requestOf(w)
	if err := e.checkTogether(w, &request); err != nil {
		return err
	}
	total := 0
	for n := range e.fleet.Nodes {
		total += e.placer.NodeHolds(&request, n, w.Tasks-total)
		if total >= w.Tasks {
			return nil
		}
	}
	for _, r := range w.Resources {
		id, known := e.fleet.LookupResource(r.Name)
		var most int64
		for n := range e.fleet.Nodes {
			if known {
				most = max(most, e.fleet.Capacity(n, id))
			}
		}
		if most < r.Amount {
			return fmt.Errorf("workload %s wants %d of resource %s for each task and no node has more than %d: ask for less", w.ID, r.Amount, r.Name, most)
		}
	}
	return fmt.Errorf("workload %s has %d tasks and the whole fleet, empty, would hold %d of them: ask for fewer tasks or smaller shares", w.ID, w.Tasks, total)
}

// requestOf is the request of a workload, made without interning a name: a query leaves no trace.
func (e *Engine) requestOf(w *Workload) place.Request {
	request := place.Request{
		Compute: w.Share.Compute.Floor, Memory: w.Share.Memory.Floor, Model: w.Model, Least: w.Least, Devices: w.Devices, Tasks: w.Tasks, Same: w.Same, Prefer: w.Prefer,
	}
	for _, r := range w.Resources {
		id, ok := e.fleet.LookupResource(r.Name)
		if !ok {
			id = fleet.ResourceID(e.fleet.Resources()) // one that no node has
		}
		request.Resources = append(request.Resources, fleet.Amount{Resource: id, Amount: r.Amount})
	}
	return request
}

// EvictedFor is the plan that the eviction of a task is a part of, and the ID of the workload that waits for it; 0 and empty: of none.
func (e *Engine) EvictedFor(id string, task int) (plan ActionID, waits string) {
	t := e.task(id, task)
	if t == nil || e.plans[t.plan] == nil {
		return 0, ""
	}
	return t.plan, e.plans[t.plan].w.ID
}
