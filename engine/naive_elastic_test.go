package engine

import (
	"cmp"
	"slices"
	"strings"
)

// more are the further replicas of a workload.
func (n *naive) more(w *naiveWork) []*naiveWork {
	var all []*naiveWork
	for _, x := range n.work {
		if x.base == w {
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(a, b *naiveWork) int { return cmp.Compare(a.first, b.first) })
	return all
}

// task is the task of a workload with this number, and whose it is.
func (n *naive) task(id string, number int) (*naiveWork, *naiveTask) {
	w := n.find(id)
	for _, x := range n.more(w) {
		if x.first == number {
			return x, x.tasks[0]
		}
	}
	return w, w.tasks[number]
}

func (w *naiveWork) live() bool {
	return slices.ContainsFunc(w.tasks, func(t *naiveTask) bool { return !t.over })
}

func (w *naiveWork) ending() bool {
	return slices.ContainsFunc(w.tasks, func(t *naiveTask) bool { return !t.over && t.evicting })
}

// taskOver forgets what is over with a task.
func (n *naive) taskOver(w *naiveWork, willing bool) {
	base := w
	if w.base != nil {
		base = w.base
		n.forget(w)
	}
	base.final = base.final || willing || base == w
	if !base.live() && len(n.more(base)) == 0 {
		n.forget(base)
	}
}

// burst is what replicas above those that their workloads are sure of hold.
func (n *naive) burst(queue, model string) (sum naiveAmounts) {
	all := n.held(queue, model, false, true)
	kept := n.work
	n.work = slices.DeleteFunc(slices.Clone(kept), func(w *naiveWork) bool { return w.base != nil })
	sure := n.held(queue, model, false, true)
	n.work = kept
	for r := range sum {
		sum[r] = all[r] - sure[r]
	}
	return sum
}

// lastStartedFirst is the order in which replicas go.
func lastStartedFirst(a, b *naiveWork) int {
	return cmp.Or(cmp.Compare(b.tasks[0].since, a.tasks[0].since), cmp.Compare(b.coming, a.coming))
}

// shed ends replicas while a limit is passed.
func (n *naive) shed(out *strings.Builder) {
	var all, gone []*naiveWork
	for _, x := range n.work {
		if x.base != nil && x.ending() {
			gone = append(gone, x)
		} else if x.base != nil {
			all = append(all, x)
		}
	}
	slices.SortFunc(all, lastStartedFirst)
	for _, x := range all {
		over := false
		n.without(gone, func() { over = n.passesLimit(x) })
		if over {
			n.evict(out, func(t *naiveTask) bool { return t == x.tasks[0] })
			gone = append(gone, x)
		}
	}
}

func (n *naive) passesLimit(x *naiveWork) bool {
	t := x.tasks[0]
	for _, uuid := range t.devices {
		d := n.device(t.node, uuid)
		one := x.Workload
		one.Devices, one.Tasks = 1, 1
		uses := naiveDemand(&one, d.Model, d.Memory)
		for _, b := range n.bounds(x.Queue, d.Model) {
			if b.limit && uses[b.resource] > 0 && n.held(b.queue, b.model, false, true)[b.resource] > b.amount {
				return true
			}
		}
	}
	return false
}

// grow starts further replicas one by one.
func (p *naivePass) grow() {
	for p.growOne() {
	}
}

func (p *naivePass) growOne() bool {
	n, fair := p.naive, map[string]naiveAmounts{}
	var line []*naiveWork
	for _, w := range n.work {
		more := n.more(w)
		if w.base != nil || w.tasks == nil || w.Max <= w.Tasks || w.final || w.placing != 0 || w.cancelled || w.retryAt > 0 || w.ending() ||
			slices.ContainsFunc(more, (*naiveWork).ending) || w.Tasks+len(more) >= w.Max {
			continue
		}
		x := &naiveWork{Workload: w.Workload, base: w, first: w.Tasks, coming: w.coming}
		for _, o := range more {
			if o.first == x.first {
				x.first++
			}
		}
		x.Tasks, x.Max, x.Preemptible = 1, 0, true
		line = append(line, x)
		for range w.Max - w.Tasks - len(more) {
			n.wishes = append(n.wishes, x)
		}
	}
	n.allFair(fair)
	n.wishes = nil
	for len(line) > 0 {
		x := n.next("", line, fair)
		line = slices.DeleteFunc(line, func(o *naiveWork) bool { return o == x })
		if n.refusal(x, "", 0, nil, false) != nil || slices.ContainsFunc(p.closed, func(b *naiveBound) bool { return n.concerns(b, x) }) {
			continue
		}
		wanted, kept, rack := p.wantedBy(x), n.kept(x, nil), ""
		for _, o := range append([]*naiveWork{x.base}, n.more(x.base)...) {
			for _, t := range o.tasks {
				if !t.over && rack == "" {
					rack = n.nodes[t.node].rack + "/"
				}
			}
		}
		spots, ok := n.full().fit(&x.Workload, func(node string, d Device, l left) bool {
			return x.Same != "" && n.nodes[node].rack+"/" != rack || wanted(node, d) || kept != nil && kept(node, d, l)
		})
		if ok {
			n.came++
			x.coming = n.came
			n.work = append(n.work, x)
			n.start(p.out, x, spots)
			return true
		}
	}
	return false
}

// wantedBy tells the devices that could serve somebody who waits for room or has a plan.
func (p *naivePass) wantedBy(x *naiveWork) func(string, Device) bool {
	n := p.naive
	waiting := slices.Clone(n.wanting)
	for _, pl := range n.plans {
		if pl.w.plan == pl && slices.Contains(n.work, pl.w) {
			waiting = append(waiting, pl.w)
		}
	}
	return func(node string, d Device) bool {
		return slices.ContainsFunc(waiting, func(h *naiveWork) bool {
			if h.tasks != nil {
				return false
			}
			return n.runsOn(h, node) && (x.cpu() && h.cpu() || h.anyPart(func(one *Workload) bool { return n.serves(one, node, d) }))
		})
	}
}
