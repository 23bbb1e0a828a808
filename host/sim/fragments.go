package sim

import (
	"cmp"
	"math"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// fragments is how much of what is free is of no use to work like that of the trace, as FGD has it (Weng et al., USENIX ATC'23): of a node, for each of
// the kinds that make up 95 % of all tasks, what is free on devices that have less free than it needs of one, or all that is free where the kind cannot run there at all,
// weighed by how often the kind comes. Memory of devices does not count.
type fragments struct {
	kinds   []fragmentKind
	nodes   map[string]*fragmentNode
	held    map[taskOf]fragmentHold
	changes []change // of the sum over all nodes, in millionths of a device
	sum     int64    // of these
}

// fragmentKind is a kind of task that comes often.
type fragmentKind struct {
	place.Popular
	part float64 // of all tasks of such kinds
	cpu  int64
	may  map[string]bool // of its class: the nodes of which something was said; others are for the empty class alone
}

type fragmentNode struct {
	name    string
	may     []bool // by kind
	devices []fragmentDevice
	cpu     int64 // free; counts where counted
	counted bool
	now     int64 // its part of the sum
}

type fragmentDevice struct {
	uuid, model string
	free        api.Milli
}

// fragmentHold is what a task holds, on a node that it is to be given back to.
type fragmentHold struct {
	node   *fragmentNode
	grants []engine.Grant
	cpu    int64
}

// popularPart is which part of the tasks the kinds that count make up.
const popularPart = 0.95

func newFragments(t *Trace) *fragments {
	f := &fragments{nodes: map[string]*fragmentNode{}, held: map[taskOf]fragmentHold{}}
	kinds := popular(t.Jobs)
	slices.SortStableFunc(kinds, func(a, b place.Popular) int { return cmp.Compare(b.Count, a.Count) })
	var all, taken int64
	for _, k := range kinds {
		all += k.Count
	}
	for _, k := range kinds {
		if float64(taken) >= popularPart*float64(all) {
			break
		}
		taken += k.Count
		one := fragmentKind{Popular: k}
		for _, r := range k.Resources {
			one.cpu += r.Amount
		}
		one.may = map[string]bool{}
		for _, c := range t.Classes {
			if c.Class != k.Class {
				continue
			}
			for _, n := range c.Allowed {
				one.may[n] = true
			}
			for _, n := range c.Barred {
				one.may[n.Node] = false
			}
		}
		f.kinds = append(f.kinds, one)
	}
	for i := range f.kinds {
		f.kinds[i].part = float64(f.kinds[i].Count) / float64(taken)
	}
	return f
}

// event takes note of what the engine is told of nodes and of tasks that end.
func (f *fragments) event(event engine.Event) {
	if f == nil {
		return
	}
	switch ev := event.(type) {
	case engine.NodeSet:
		if f.nodes[ev.Node] != nil { // it has what it had
			return
		}
		n := &fragmentNode{name: ev.Node}
		for i := range f.kinds {
			may, said := f.kinds[i].may[ev.Node]
			n.may = append(n.may, may || !said && f.kinds[i].Class == "")
		}
		for _, r := range ev.Resources {
			if r.Name == "cpu" {
				n.cpu, n.counted = r.Amount, true
			}
		}
		for _, d := range ev.Devices {
			n.devices = append(n.devices, fragmentDevice{d.UUID, d.Model, api.WholeDevice})
		}
		f.nodes[ev.Node] = n
		f.update(n, ev.When())
	case engine.NodeGone:
		if n := f.nodes[ev.Node]; n != nil {
			f.add(-n.now, ev.When())
			n.now = 0
			delete(f.nodes, ev.Node)
		}
	case engine.Ended:
		of := taskOf{ev.ID, ev.Task}
		h, ok := f.held[of]
		if !ok {
			return
		}
		delete(f.held, of)
		f.give(h, 1)
		if f.nodes[h.node.name] == h.node { // else it went with what was there
			f.update(h.node, ev.When())
		}
	}
}

// place takes note of tasks of a job that start.
func (f *fragments) place(j *Job, a engine.Place, now engine.Time) {
	if f == nil {
		return
	}
	for _, t := range a.Tasks {
		n := f.nodes[t.Node]
		if n == nil {
			continue
		}
		h := fragmentHold{node: n, grants: t.Grants, cpu: cpuOf(j, t.Task)}
		f.held[taskOf{a.Workload, t.Task}] = h
		f.give(h, -1)
		f.update(n, now)
	}
}

// cpuOf is what a task of a job takes of its node's CPU.
func cpuOf(j *Job, task int) (cpu int64) {
	resources := j.Resources
	task -= j.Tasks
	for i := range j.Roles {
		if r := &j.Roles[i]; task >= 0 && task < r.Tasks {
			resources = r.Resources
		}
		task -= j.Roles[i].Tasks
	}
	for _, r := range resources {
		if r.Name == "cpu" {
			cpu += r.Amount
		}
	}
	return cpu
}

// give gives a task's node back what the task holds, or takes it.
func (f *fragments) give(h fragmentHold, sign int) {
	h.node.cpu += h.cpu * int64(sign)
	for i := range h.grants {
		for k := range h.node.devices {
			if d := &h.node.devices[k]; d.uuid == h.grants[i].Device {
				d.free += h.grants[i].Compute.Floor * api.Milli(sign)
			}
		}
	}
}

// update works out a node's part anew.
func (f *fragments) update(n *fragmentNode, now engine.Time) {
	is := int64(math.Round(f.of(n) * 1000))
	f.add(is-n.now, now)
	n.now = is
}

func (f *fragments) add(amount int64, now engine.Time) {
	f.sum += amount
	if amount != 0 {
		f.changes = append(f.changes, change{at: now, amount: amount})
	}
}

// of is a node's fragmentation, in thousandths of a device.
func (f *fragments) of(n *fragmentNode) float64 {
	var sum float64
	for i := range f.kinds {
		k := &f.kinds[i]
		var all, small api.Milli
		enough := 0
		for _, d := range n.devices {
			free := max(0, d.free)
			all += free
			if free < k.Compute || k.Model != "" && d.model != k.Model {
				small += free
			} else {
				enough++
			}
		}
		if k.Compute <= 0 || k.Devices < 1 || enough < k.Devices || n.counted && n.cpu < k.cpu || !n.may[i] {
			small = all
		}
		sum += k.part * float64(small)
	}
	return sum
}

// percent is the sum now, in percent of a capacity in thousandths of a device.
func (f *fragments) percent(capacity int64) float64 {
	return float64(f.sum) / 10 / float64(max(1, capacity))
}
