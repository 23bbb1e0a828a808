package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
)

// naive decides as the engine should, written to be read: no index, no memo, no undo. It looks at everything each time and works
// on copies. It knows submitting, elastic workloads, answers, ends, nodes, health, classes, quotas and changes of what waits.
type naive struct {
	now       Time
	nodes     map[string]*naiveNode
	queues    map[string]api.QueueSpec
	oneLine   bool
	predicted bool // policies let work in by predictions
	halfLife  Time // of use; 0: a week
	pools     []Pool
	lending   bool               // what is looked for is what pools lend
	wanting   []*naiveWork       // what waits for room
	wishes    []*naiveWork       // what workloads would grow by
	said      map[[2]string]bool // class and node: allowed or barred
	refused   map[[2]string]bool
	work      []*naiveWork // in the order they came
	came      int
	ungrown   bool
	first     *naiveWork                   // the first in line, behind which what is looked for is to start; nil: it is that
	guarded   Time                         // when a plan may be there that time alone keeps from being; 0: none is
	plans     []*naivePlan                 // under way, in the order they were made
	likely    func(*Workload) (Time, bool) // how long nine in ten of the same user's work of a shape run, as the engine learned that; false: it is not known
	turn      func(id string) Time         // of what waits, as the engine found it when that came: TestTurn tests how
	used      func(queue string) int64     // decayed use now, as the engine found it; of the work of a queue itself with a / behind its name
	lived     map[string]float64           // the same, found anew
}

type naiveNode struct {
	devices []Device
	cpu     int64
	rack    string
	gone    bool
}

type naiveWork struct {
	Workload
	coming    int
	disrupted []Time       // when it was evicted for others before
	had       Time         // µs of a device that it was served before
	tasks     []*naiveTask // nil: waiting
	placing   ActionID
	placed    ActionID // the last one, part of its grants' UIDs
	retryAt   Time
	refusals  int
	cancelled bool
	plan      *naivePlan // under way, that lets it start
	base      *naiveWork // of a replica above the first ones
	first     int        // its number
	final     bool       // it grows no more
	saved     *Time      // what it had done by then is
	due       Time       // by which it is to be over that was let in by a prediction; 0: it was not
}

type naiveTask struct {
	node     string
	devices  []string
	over     bool
	evicting bool
	since    Time
	used     map[string]api.Bytes // memory held, by device
	plan     *naivePlan           // that it is ended by
}

func newNaive() *naive {
	return &naive{
		nodes: map[string]*naiveNode{}, queues: map[string]api.QueueSpec{"default": {Name: "default", Quota: api.Unlimited}},
		said: map[[2]string]bool{}, refused: map[[2]string]bool{}, lived: map[string]float64{},
	}
}

func (n *naive) find(id string) *naiveWork {
	for _, w := range n.work {
		if w.ID == id {
			return w
		}
	}
	return nil
}

func (n *naive) step(event Event) string {
	last := n.now
	n.now = max(n.now, event.When())
	n.live(n.now - last)
	var out strings.Builder
	might := true // something might start
	switch ev := event.(type) {
	case NodeSet:
		n.nodes[ev.Node] = &naiveNode{devices: ev.Devices, cpu: ev.Resources[0].Amount, rack: rackOf(ev)}
		n.unbar(ev.Node)
	case NodeGone:
		n.nodes[ev.Node].gone = true
		n.unbar(ev.Node)
		n.evict(&out, func(t *naiveTask) bool { return t.node == ev.Node })
	case DeviceHealth:
		for i := range n.nodes[ev.Node].devices {
			if d := &n.nodes[ev.Node].devices[i]; d.UUID == ev.UUID {
				d.Health = ev.Health
			}
		}
		n.unbar(ev.Node)
		if ev.Health == api.Down {
			n.evict(&out, func(t *naiveTask) bool { return slices.Contains(t.devices, ev.UUID) })
		}
	case Feasibility:
		for _, node := range ev.Allowed {
			n.said[[2]string{ev.Class, node}] = true
		}
		for _, b := range ev.Barred {
			n.said[[2]string{ev.Class, b.Node}] = false
		}
		maps.DeleteFunc(n.refused, func(k [2]string, _ bool) bool { return k[0] == ev.Class })
	case FeasibilityGone:
		might = false
		n.unclass(ev.Classes)
		for _, class := range ev.Classes {
			if class != "" && !slices.ContainsFunc(n.work, func(w *naiveWork) bool { return slices.Contains(w.classes(), class) }) {
				maps.DeleteFunc(n.said, func(k [2]string, _ bool) bool { return k[0] == class })
				maps.DeleteFunc(n.refused, func(k [2]string, _ bool) bool { return k[0] == class })
			}
		}
	case QueueSet:
		might = n.setQueues(&out, ev.Queue)
	case PolicySet:
		if might = n.setQueues(&out, ev.Policy.Queues...); might {
			n.oneLine, n.pools, n.predicted, n.halfLife = ev.Policy.OneLine, ev.Policy.Pools, ev.Policy.Predicted, ev.Policy.HalfLife
		}
	case Submit:
		n.came++
		n.work = append(n.work, &naiveWork{Workload: ev.Workload, coming: n.came, had: ev.Served, disrupted: n.before(ev.Disrupted)})
	case Change:
		w := n.find(ev.ID)
		if ev.Priority != nil {
			w.Priority = *ev.Priority
		}
		if ev.Share != nil {
			w.Share = *ev.Share
		}
	case Cancel:
		if w := n.find(ev.ID); w.tasks == nil {
			n.forget(w)
		} else {
			w.cancelled, might = true, false
			for _, x := range n.more(w) {
				x.cancelled = true
			}
			n.evict(&out, func(t *naiveTask) bool { return slices.Contains(w.tasks, t) })
			for _, x := range n.more(w) {
				n.evict(&out, func(t *naiveTask) bool { return t == x.tasks[0] })
			}
		}
	case Started:
		_, t := n.task(ev.ID, ev.Task)
		t.since = n.now
	case Ended:
		n.ended(ev)
	case Checkpoint:
		might = false
		if w, at := n.find(ev.ID), n.now-ev.Ago; w.saved == nil || at > *w.saved {
			w.saved = &at
		}
	case Usage:
		might = false
		for _, u := range ev.Grants {
			might = n.use(u) || might
		}
	case Done:
		might = false
		for _, w := range n.work {
			if w.placing == ev.ID {
				w.placing, w.refusals = 0, 0
				if w.base != nil {
					w.base.refusals = 0
				}
				might = w.Max > w.Tasks
			}
		}
	case Refused:
		n.refuse(ev)
	case Learn:
		might = false
	case QueuesUsed:
		might = false
		n.recall(ev)
	}
	for _, w := range n.work {
		if w.retryAt > 0 && w.retryAt <= n.now {
			w.retryAt, might = 0, true
		}
	}
	for _, w := range n.work {
		might = might || w.due > last && w.due <= n.now
		now := n.now
		level := n.level(w)
		n.now = last
		might = might || w.base == nil && w.tasks != nil && w.Preemptible && n.level(w) != level
		n.now = now
	}
	if n.guarded > 0 && n.guarded <= n.now {
		n.guarded, might = 0, true
	}
	_, entering := event.(QueuesUsed) // elastic work grows with the next event
	if might || n.ungrown {
		n.schedule(&out, !entering)
	}
	n.ungrown = entering
	return out.String()
}

// setQueues takes queues in, or none of them where something then would not add up.
func (n *naive) setQueues(out *strings.Builder, specs ...api.QueueSpec) bool {
	before := maps.Clone(n.queues)
	for _, spec := range specs {
		n.queues[spec.Name] = spec
	}
	if n.wrong() {
		n.queues = before
		out.WriteString("reject\n")
		return false
	}
	return true
}

// rank is what counts of a workload's priority before all else.
func (n *naive) rank(w *naiveWork) int64 {
	if o := n.ruler(w.Queue).Order; o.NoPriority || o.PriorityWorth > 0 {
		return 0
	}
	sum := int64(w.Priority)
	for _, q := range n.above(w.Queue) {
		sum += int64(n.queues[q].Priority)
	}
	return sum
}

// level is how often what a workload was served passes the first level of its line, twice that, and so on.
func (n *naive) level(w *naiveWork) (level int) {
	first := int64(n.ruler(w.Queue).Order.Served) / 1000
	if first == 0 {
		return 0
	}
	floors, devices := int64(w.Share.Compute.Floor)*int64(w.Devices)*int64(w.Tasks), int64(w.Devices)*int64(w.Tasks)
	for _, r := range w.Roles {
		floors += int64(r.Share.Compute.Floor) * int64(r.Devices) * int64(r.Tasks)
		devices += int64(r.Devices) * int64(r.Tasks)
	}
	if n.ruler(w.Queue).Order.Held {
		floors = 1000 * devices
	}
	served := int64(w.had)
	if w.tasks != nil {
		served += max(1, floors) * int64(max(0, n.now-w.tasks[0].since)) / 1000
	}
	for ; served >= first && level < 20; first *= 2 {
		level++
	}
	return level
}

// ruler is the topmost of a queue and those above it that is one line; without any it is the queue.
func (n *naive) ruler(queue string) api.QueueSpec {
	for _, q := range slices.Backward(n.above(queue)) {
		if n.queues[q].Order.OneLine {
			return n.queues[q]
		}
	}
	return n.queues[queue]
}

// use says whether a grant holds more or less than before, of memory that counts.
func (n *naive) use(u GrantUsage) (changed bool) {
	for _, w := range n.work {
		for i, t := range w.tasks {
			for k, uuid := range t.devices {
				if u.UID == fmt.Sprintf("%s.%d.%d-%d", w.ID, w.first+i, k, w.placed) {
					floor := w.asks(t).Share.Memory.Floor.Of(n.device(t.node, uuid).Memory)
					changed = max(floor, u.Memory) != max(floor, t.used[uuid])
					t.used[uuid] = u.Memory
				}
			}
		}
	}
	return changed
}

func (n *naive) unbar(node string) {
	maps.DeleteFunc(n.refused, func(k [2]string, _ bool) bool { return k[1] == node })
}

func (n *naive) forget(w *naiveWork) {
	n.work = slices.DeleteFunc(n.work, func(o *naiveWork) bool { return o == w })
}

func (n *naive) evict(out *strings.Builder, which func(*naiveTask) bool) {
	for _, w := range n.work {
		for i, t := range w.tasks {
			if which(t) && !t.over && !t.evicting {
				t.evicting = true
				fmt.Fprintf(out, "evict %s %d\n", w.ID, w.first+i)
			}
		}
	}
}

func (n *naive) ended(ev Ended) {
	w, t := n.task(ev.ID, ev.Task)
	delete(n.refused, [2]string{"", t.node})
	t.over = true
	n.leavePlan(t)
	n.taskOver(w, !t.evicting)
	n.sweep()
}

// sweep forgets nodes that are gone and hold nothing.
func (n *naive) sweep() {
	for name, node := range n.nodes {
		holds := slices.ContainsFunc(n.work, func(w *naiveWork) bool {
			return slices.ContainsFunc(w.tasks, func(t *naiveTask) bool { return !t.over && t.node == name })
		})
		if node.gone && !holds {
			delete(n.nodes, name)
			n.unbar(name)
		}
	}
}

// refuseReplica takes a further replica back.
func (n *naive) refuseReplica(x *naiveWork, ev Refused) {
	if _, ok := n.nodes[ev.Node]; x.ending() || x.base.cancelled {
	} else if ok {
		n.refused[[2]string{x.Feasibility, ev.Node}] = true
	} else {
		x.base.refusals++
		x.base.retryAt = n.now + 1_000_000<<min(x.base.refusals-1, 6)
	}
	for _, t := range x.tasks {
		n.leavePlan(t)
	}
	n.taskOver(x, false)
}

func (n *naive) refuse(ev Refused) {
	for _, w := range slices.Clone(n.work) {
		if w.placing != ev.ID || w.placing == 0 {
			continue
		}
		if w.base != nil {
			n.refuseReplica(w, ev)
			continue
		}
		if slices.ContainsFunc(w.tasks, func(t *naiveTask) bool { return t.evicting }) {
			w.retryAt = 0
		} else if _, ok := n.nodes[ev.Node]; ok {
			for _, class := range w.classesOn(ev.Node) {
				n.refused[[2]string{class, ev.Node}] = true
			}
		} else {
			w.refusals++
			w.retryAt = n.now + 1_000_000<<min(w.refusals-1, 6)
		}
		w.placing, w.tasks, w.due = 0, nil, 0
		if w.cancelled {
			n.forget(w)
		}
	}
	n.sweep()
}
