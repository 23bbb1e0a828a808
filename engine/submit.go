package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// The most that one workload may ask for. Far over what any fleet has; they keep sums within their integers.
const (
	MaxTasks   = 1 << 16
	MaxDevices = 1 << 10 // per task

	maxPast   = Time(1) << 60      // µs (36,000 years) that may have passed since what a host tells of the past; no sum of times passes an integer
	maxMemory = api.Bytes(1) << 50 // of an adopted grant
	maxAmount = 1 << 50            // of a named resource
)

// validate says what is wrong with a workload by itself.
func validate(w *Workload) error {
	switch {
	case w.ID == "":
		return fmt.Errorf("a workload without an ID cannot be taken: give it one that was never used")
	case w.Tasks < 1 || w.Tasks > MaxTasks:
		return fmt.Errorf("workload %s has %d tasks: a workload has 1 to %d", w.ID, w.Tasks, MaxTasks)
	case w.Max != 0 && (w.Max < w.Tasks || w.Max > MaxTasks):
		return fmt.Errorf("workload %s has %d tasks and at most %d: give a most of %d to %d, or none", w.ID, w.Tasks, w.Max, w.Tasks, MaxTasks)
	case strings.ContainsRune(w.ID, 0):
		return fmt.Errorf("workload %q has a NUL character in its ID: give it one without", w.ID)
	case w.Devices < 1 || w.Devices > MaxDevices:
		return fmt.Errorf("workload %s wants %d devices a task: a task has 1 to %d", w.ID, w.Devices, MaxDevices)
	case w.Restart < 0 || w.Restart > maxPast:
		return fmt.Errorf("workload %s takes %d µs to go on after its start: give 0 to %d", w.ID, w.Restart, maxPast)
	case w.TimeLimit < 0:
		return fmt.Errorf("workload %s has a time limit of %d µs: give a positive one, or 0 for none", w.ID, w.TimeLimit)
	}
	for i, r := range w.Resources {
		if r.Name == "" || r.Amount < 0 || r.Amount > maxAmount {
			return fmt.Errorf("workload %s wants %d of resource %q: name it and give an amount from 0 to %d", w.ID, r.Amount, r.Name, int64(maxAmount))
		}
		if slices.ContainsFunc(w.Resources[:i], func(o Resource) bool { return o.Name == r.Name }) {
			return fmt.Errorf("workload %s names resource %s twice: give one amount", w.ID, r.Name)
		}
	}
	if err := w.Least.Check(); err != nil {
		return fmt.Errorf("workload %s: %w", w.ID, err)
	}
	if err := validShare(w.Share); err != nil {
		return fmt.Errorf("workload %s: %w", w.ID, err)
	}
	return ValidRoles(w)
}

// validShare says what is wrong with a share. What it lets through has an exact text form, so an event log can hold it.
func validShare(s api.Share) error {
	if err := validCompute(s.Compute); err != nil {
		return err
	}
	m := s.Memory
	for _, a := range [2]api.Amount{m.Floor, m.Ceiling} {
		if a.Bytes < 0 || a.Part < 0 || a.Part > api.WholeDevice || (a.Bytes > 0 && a.Part > 0) {
			return fmt.Errorf("a memory amount of %d bytes and %d thousandths is none: give bytes or a part of a device, not both", int64(a.Bytes), int32(a.Part))
		}
	}
	if m.Ceiling.IsZero() && !m.Floor.IsZero() || m.Floor.Part == 0 && m.Ceiling.Part == 0 && m.Floor.Bytes > m.Ceiling.Bytes ||
		m.Floor.Part > 0 && m.Ceiling.Part > 0 && m.Floor.Part > m.Ceiling.Part {
		return fmt.Errorf("the memory floor %s is over the ceiling %s: raise the ceiling or lower the floor", m.Floor, m.Ceiling)
	}
	if s.Weight < 0 {
		return fmt.Errorf("a weight of %d is less than nothing: give at least 1, or 0 for the default", s.Weight)
	}
	return nil
}

func validCompute(c api.Compute) error {
	if c.Floor < 0 || c.Ceiling > api.WholeDevice || c.Floor > c.Ceiling || c.Ceiling < 1 {
		return fmt.Errorf("compute of %d..%d thousandths is no share: it needs 0 ≤ floor ≤ ceiling ≤ 1000 and a ceiling of at least 1", int32(c.Floor), int32(c.Ceiling))
	}
	return nil
}

func (e *Engine) submit(ev Submit) bool {
	w := &workload{Workload: ev.Workload}
	w.Roles = cloneRoles(w.Roles) // its resources are copied when it joins
	if err := validate(&w.Workload); err != nil {
		return e.reject(w.ID, "invalid", "%v", err)
	}
	if ev.Waited < 0 || ev.Waited > maxPast {
		return e.reject(w.ID, "invalid", "workload %s cannot have waited for %d µs already: give 0 to %d", w.ID, ev.Waited, maxPast)
	}
	if err := w.setServed(ev.Served); err != nil {
		return e.reject(w.ID, "invalid", "%v", err)
	}
	if err := w.setDisrupted(ev.Disrupted, e.now); err != nil {
		return e.reject(w.ID, "invalid", "%v", err)
	}
	if _, ok := e.work[w.ID]; ok {
		return e.reject(w.ID, "duplicate", "workload %s is known already: submit it under an ID that was never used", w.ID)
	}
	// What was submitted before came before, however the host's clock went meanwhile.
	w.came = max(e.lastCame, e.now-ev.Waited)
	came := w.came
	if !e.join(w) {
		return false
	}
	e.comesBack(w, ev.Was)
	if e.ahead == nil {
		e.lastCame = came
	}
	for r := range w.shape.Each {
		if e.ahead != nil {
			r = new(*r) // it is marked as one that came
		}
		e.placer.Saw(r)
	}
	e.enqueue(w)
	if e.ahead != nil {
		e.ahead.submitted(w)
	}
	return true
}

// join makes a workload known, in its queue.
func (e *Engine) join(w *workload) bool {
	q, ok := e.queues.Get(w.Queue)
	if !ok {
		return e.reject(w.ID, "not_found", "workload %s names queue %s, which is not there: make the queue or name another", w.ID, w.Queue)
	}
	w.queue, w.Queue = q, q.Name
	w.shape = e.shapeOf(&w.Workload)
	w.shareNames()
	w.seq = e.seq
	e.seq++
	e.work[w.ID] = w
	e.noteLowest(w)
	return true
}

// noteLowest remembers the lowest priority that preemptible work has had.
func (e *Engine) noteLowest(w *workload) {
	if w.Preemptible {
		e.lowest = min(e.lowest, w.Priority)
	}
}

func (e *Engine) cancel(ev Cancel) bool {
	w, ok := e.work[ev.ID]
	if !ok {
		return e.reject(ev.ID, "not_found", "there is no workload %s to cancel", ev.ID)
	}
	if w.waiting() {
		e.dequeue(w)
		e.forget(w)
		return true
	}
	asked := 0
	for _, t := range w.allTasks() {
		if t.live() && !t.evicting {
			e.evict(t, EvictCancelled, ev.Reason)
			asked++
		}
	}
	if asked == 0 && w.cancelled {
		return e.reject(w.ID, "conflict", "workload %s is being ended already: wait for its end", w.ID)
	}
	w.cancelled = true
	for _, x := range w.more() {
		x.cancelled = true
	}
	return false // nothing came free
}

// adopt enters what runs already, over capacity and quota if need be.
func (e *Engine) adopt(ev Adopt) bool {
	w := &workload{Workload: ev.Workload}
	w.Roles = cloneRoles(w.Roles) // its resources are copied when it joins
	if err := validate(&w.Workload); err != nil {
		return e.reject(w.ID, "invalid", "%v", err)
	}
	if ev.Ran < 0 || ev.Ran > maxPast {
		return e.reject(w.ID, "invalid", "workload %s cannot have run for %d µs already: give 0 to %d", w.ID, ev.Ran, maxPast)
	}
	if err := w.setServed(ev.Served); err != nil {
		return e.reject(w.ID, "invalid", "%v", err)
	}
	if err := w.setDisrupted(ev.Disrupted, e.now); err != nil {
		return e.reject(w.ID, "invalid", "%v", err)
	}
	if ev.Due < 0 || ev.Due > maxPast || ev.Due > 0 && !w.Preemptible {
		return e.reject(w.ID, "invalid", "workload %s cannot be due at %d: give 0 to %d, and 0 for what is not preemptible", w.ID, ev.Due, maxPast)
	}
	old := e.work[w.ID]
	if old != nil && !old.waiting() {
		return e.reject(w.ID, "duplicate", "workload %s holds its grants already: adopt it only once", w.ID)
	}
	if err := e.checkAdopt(w, ev.Tasks); err != nil {
		return e.reject(w.ID, "invalid", "%v", err)
	}
	if q, ok := e.queues.Get(w.Queue); !ok {
		return e.reject(w.ID, "not_found", "workload %s names queue %s, which is not there: make the queue first, then adopt", w.ID, w.Queue)
	} else if old != nil {
		e.dequeue(old)
		e.forget(old)
		w.Queue = q.Name
	}
	e.join(w)
	w.queue.Holds++
	w.tasks = make([]*task, w.AllTasks())
	for i := range w.tasks {
		w.tasks[i] = &task{w: w, index: i, node: fleet.None, started: true, since: e.now - ev.Ran}
	}
	if ev.Due > 0 {
		e.letIn(w, ev.Due)
	}
	e.runs(w)
	e.noteRise(w)
	for _, p := range ev.Tasks {
		e.adoptTask(e.adoptedTask(w, p.Task, e.now-ev.Ran), p)
	}
	if w.replicas != nil && slices.ContainsFunc(w.tasks, func(t *task) bool { return !t.live() }) {
		w.replicas.final = true
	}
	for _, p := range ev.Tasks {
		for _, g := range p.Grants {
			if d, ok := e.fleet.DeviceOf(g.Device); ok && !e.fleet.DeviceGone(d) {
				e.evictIfDown(p.Node, e.fleet.Device(d))
			}
		}
	}
	return true
}

// adoptedTask is the task of a workload with this number, made where it is one of a further replica.
func (e *Engine) adoptedTask(w *workload, number int, since Time) *task {
	if number < len(w.tasks) {
		return w.tasks[number]
	}
	x := e.nextReplica(w)
	x.first, x.seq = int32(number), e.seq
	e.seq++
	x.tasks = []*task{{w: x, node: fleet.None, started: true, since: since}}
	e.enterReplica(x)
	return x.tasks[0]
}

func (e *Engine) adoptTask(t *task, p Placing) {
	for _, g := range p.Grants {
		d, _ := e.fleet.AdoptDevice(p.Node, g.Device) // checkAdopt saw to it that it can be
		e.fleet.Adjust(d, g.Compute.Floor, g.Floor, 1)
		t.grants = append(t.grants, grant{Grant: g, device: d, compute: g.Compute.Floor, busy: e.busyOf(t.w), memory: g.Floor})
	}
	t.node, _ = e.fleet.Node(p.Node)
	e.fleet.Take(t.node, t.request().Resources)
	e.settle(t)
}

// checkAdopt says what is wrong with the grants of an Adopt.
func (e *Engine) checkAdopt(w *workload, tasks []Placing) error {
	if len(tasks) == 0 {
		return fmt.Errorf("workload %s holds no grant: submit it instead of adopting it", w.ID)
	}
	seen := map[int]bool{}
	uids := map[string]bool{}
	at := map[string]string{}
	for _, p := range tasks {
		if p.Task < 0 || p.Task >= max(w.AllTasks(), w.Max) || seen[p.Task] {
			return fmt.Errorf("workload %s has %d tasks, and task %d is adopted wrongly or twice", w.ID, w.AllTasks(), p.Task)
		}
		seen[p.Task] = true
		if p.Node == "" || len(p.Grants) == 0 {
			return fmt.Errorf("workload %s: task %d has no node or no grant: name both", w.ID, p.Task)
		}
		devices := map[string]bool{}
		for _, g := range p.Grants {
			if err := validCompute(g.Compute); err != nil {
				return fmt.Errorf("grant %s: %w", g.UID, err)
			}
			known, on := e.deviceNode(g.Device)
			switch {
			case g.UID == "" || uids[g.UID] || e.grantOf(g.UID) != nil:
				return fmt.Errorf("workload %s: grant UID %q is missing or used twice", w.ID, g.UID)
			case g.Device == "" || devices[g.Device]:
				return fmt.Errorf("workload %s: task %d holds device %q without a name or twice", w.ID, p.Task, g.Device)
			case known && on != p.Node || at[g.Device] != "" && at[g.Device] != p.Node:
				return fmt.Errorf("workload %s: device %s is on node %s, not on %s", w.ID, g.Device, on+at[g.Device], p.Node)
			case g.Floor < 0 || g.Floor > maxMemory || g.Ceiling < g.Floor || g.Weight < 1:
				return fmt.Errorf("grant %s: it needs 0 ≤ memory floor ≤ ceiling, a floor of at most %s and a weight of at least 1", g.UID, maxMemory)
			}
			uids[g.UID], devices[g.Device] = true, true
			if !known {
				at[g.Device] = p.Node
			}
		}
	}
	return nil
}

func (e *Engine) deviceNode(uuid string) (known bool, node string) {
	d, ok := e.fleet.DeviceOf(uuid)
	if !ok {
		return false, ""
	}
	return true, e.fleet.NodeName(e.fleet.NodeOf(d))
}
