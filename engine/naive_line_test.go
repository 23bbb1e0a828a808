package engine

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
)

func (w *naiveWork) takesNothing() bool {
	return !w.anyPart(func(one *Workload) bool {
		return one.Share.Compute.Floor > 0 || !one.Share.Memory.Floor.IsZero() || len(one.Resources) > 0
	})
}

// above are a queue and those over it.
func (n *naive) above(queue string) []string {
	var all []string
	for queue != "" {
		all = append(all, queue)
		queue = n.queues[queue].Parent
	}
	return all
}

// reserved is the head's reservation.
type reserved struct {
	known bool
	at    Time
	then  room // what is free at that time, beside the head
	spots []naiveSpot
	over  int // tasks for which there is room then, beyond those that there are
}

// schedule makes passes until one starts nothing; with work of one queue only, one. Elastic work may grow then.
func (n *naive) schedule(out *strings.Builder, grow bool) {
	n.shed(out)
	p := naivePass{naive: n, out: out}
	for p.walkAll() {
		p = naivePass{naive: n, out: out}
	}
	if grow {
		p.grow()
	}
}

func (p *naivePass) walkAll() (again bool) {
	n := p.naive
	var line []*naiveWork
	for _, w := range n.work {
		if w.tasks == nil && w.retryAt <= n.now {
			line = append(line, w)
		}
	}
	n.wanting = nil
	for part := range len(n.pools) + 1 {
		p.head, p.reserve, p.soons = nil, nil, nil
		mine := slices.DeleteFunc(slices.Clone(line), func(w *naiveWork) bool { return n.part(w.Class) != part })
		again = p.walk(mine) || again
		if p.head != nil {
			p.heads = append(p.heads, p.head)
		}
	}
	for p.lend() {
		p.began = true
	}
	return again || p.held && p.began
}

// walk tries one after the other, and says whether what started may change whose turn it is.
func (p *naivePass) walk(line []*naiveWork) (again bool) {
	n, fair := p.naive, map[string]naiveAmounts{}
	n.allFair(fair)
	several := slices.ContainsFunc(line, func(w *naiveWork) bool { return w.Queue != line[0].Queue })
	for len(line) > 0 {
		w := n.next("", line, fair)
		if p.try(w) {
			again = several
			line = slices.DeleteFunc(line, func(o *naiveWork) bool { return o == w })
			continue
		}
		// What is the same may not start, either.
		line = slices.DeleteFunc(line, func(o *naiveWork) bool { return n.alike(o, w) })
	}
	return again
}

// part is the first pool of those that have classes in common with those that the class is in, directly or through others; without any it is
// the number of pools.
func (n *naive) part(class api.Class) int {
	with := map[api.Class]bool{class: true}
	first := len(n.pools)
	for range n.pools {
		for i, p := range n.pools {
			if slices.ContainsFunc(p.Classes, func(c api.Class) bool { return with[c] }) {
				first = min(first, i)
				for _, c := range p.Classes {
					with[c] = true
				}
			}
		}
	}
	return first
}

// lend starts the first in line that may be preempted, is held back by no bound and fits on what pools lend.
func (p *naivePass) lend() bool {
	n := p.naive
	fair := map[string]naiveAmounts{}
	n.allFair(fair)
	var line []*naiveWork
	for _, w := range n.work {
		if w.tasks == nil && w.retryAt <= n.now {
			line = append(line, w)
		}
	}
	for len(line) > 0 {
		w := n.next("", line, fair)
		line = slices.DeleteFunc(line, func(o *naiveWork) bool { return o == w })
		if !w.Preemptible || n.holds(w) || w.plan != nil && len(w.plan.tasks) > 0 || n.refusal(w, "", 0, nil, false) != nil ||
			slices.ContainsFunc(p.closed, func(b *naiveBound) bool { return n.concerns(b, w) }) {
			continue
		}
		crowded, kept := p.crowded(w), n.kept(w, nil)
		n.lending = true
		spots, ok := n.full().fit(&w.Workload, func(node string, d Device, l left) bool { return crowded[node] || kept != nil && kept(node, d, l) })
		n.lending = false
		if ok {
			n.start(p.out, w, spots)
			return true
		}
	}
	return false
}

// alike says that two workloads are the same in all that decides whether they may start.
func (n *naive) alike(a, b *naiveWork) bool {
	x, y := a.Workload, b.Workload
	if n.predicted && x.Preemptible && (len(a.disrupted) > 0) != (len(b.disrupted) > 0) {
		return false
	}
	if x.Max = y.Max; !n.predicted || !x.Preemptible {
		x.User, x.Name = y.User, y.Name
	}
	if len(n.pools) == 0 {
		x.Class = y.Class
	}
	x.ID, x.Priority, x.Share.Compute.Ceiling, x.Share.Weight = y.ID, y.Priority, y.Share.Compute.Ceiling, y.Share.Weight
	if x.Share.Memory.Bound() == y.Share.Memory.Bound() { // else their ceilings rule out other devices
		x.Share.Memory.Ceiling = y.Share.Memory.Ceiling
	}
	return reflect.DeepEqual(x, y)
}

// naivePass is one pass.
type naivePass struct {
	*naive
	out     *strings.Builder
	head    *naiveWork
	reserve *reserved
	soons   []*naiveSoon // those behind the head that start when what is being ended is over
	closed  []*naiveBound
	heads   []*naiveWork // of the parts of the line
	held    bool         // a patient one left room to another's plan
	began   bool
}

// holds says that one would take what comes free for another.
func (n *naive) holds(w *naiveWork) bool {
	return w.Patient && slices.ContainsFunc(n.work, func(o *naiveWork) bool { return o.tasks == nil && o.plan != nil })
}

// crowded are the nodes on which a first in line could run that wants CPU as a workload does.
func (p *naivePass) crowded(w *naiveWork) map[string]bool {
	nodes := map[string]bool{}
	for _, h := range p.heads {
		if h == w || h.tasks != nil || !h.cpu() || !w.cpu() {
			continue
		}
		for node := range p.nodes {
			if p.runsOn(h, node) {
				nodes[node] = true
			}
		}
	}
	return nodes
}

func (n *naivePass) try(w *naiveWork) bool {
	if !n.possible(w) || n.refusal(w, "", 0, nil, true) != nil ||
		slices.ContainsFunc(n.closed, func(b *naiveBound) bool { return n.concerns(b, w) }) {
		return false
	}
	if b := n.refusal(w, "", 0, nil, false); b != nil {
		n.closed = append(n.closed, b)
		if b.limit || w.plan != nil {
			n.first = n.head
			n.reclaim(n.out, w)
			n.first = nil
			n.keepsRoom(w)
		}
		return false
	}
	if n.holds(w) {
		n.held, n.wanting = true, append(n.wanting, w)
		return false
	}
	now := n.full()
	spots, ok := now.fit(&w.Workload, n.kept(w, nil))
	switch {
	case n.head == nil && !ok:
		n.wanting = append(n.wanting, w)
		if !n.closedByModel(w) && !w.Patient {
			n.head = w
			n.reclaim(n.out, w)
		}
		return false
	case n.head != nil && !w.takesNothing():
		if ok {
			if n.reserve == nil {
				n.reserve = n.naive.reserve(n.head)
			}
			spots = n.backfill(w, n.head, n.reserve, spots)
			ok = spots != nil
		}
		for _, s := range n.soons {
			ok = ok && s.spares(w, spots)
		}
		if !ok {
			n.wanting, w.due = append(n.wanting, w), 0
			n.planHolds(w)
			return false
		}
	case !ok:
		n.wanting = append(n.wanting, w)
		return false
	}
	n.start(n.out, w, spots)
	n.began = true
	return true
}

// naiveSoon is a workload for which there is a plan, behind the first in line, and what it leaves once what is being ended is over.
type naiveSoon struct {
	w *naiveWork
	reserved
}

// planHolds has a workload keep its room while a plan for it is under way, or was carried out and is enough.
func (n *naivePass) planHolds(w *naiveWork) {
	if w.plan == nil {
		return
	}
	if len(w.plan.tasks) == 0 {
		ok := false
		n.first = n.head
		n.assumingPlans(func() { _, ok = n.fitsWithout(w, nil) })
		n.first = nil
		if !ok {
			w.plan = nil
		}
	}
	n.keepsRoom(w)
}

// keepsRoom has a workload for which there is a plan hold others back.
func (n *naivePass) keepsRoom(w *naiveWork) {
	switch {
	case w.plan == nil:
		return
	case n.head == nil:
		n.head = w
		return
	}
	then := n.full()
	for _, v := range n.work {
		for _, t := range v.tasks {
			if !t.over && t.evicting {
				then.hold(v, t, -1)
			}
		}
	}
	take := func(o *naiveWork) []naiveSpot {
		spots, _ := then.fit(&o.Workload, n.kept(o, nil))
		return spots
	}
	take(n.head)
	for _, s := range n.soons {
		take(s.w)
	}
	if spots := take(w); spots != nil {
		n.soons = append(n.soons, &naiveSoon{w, reserved{true, n.now, then, spots, 0}})
	}
}

// closedByModel says that a workload would fit, but for bounds, and has these waited for.
func (n *naivePass) closedByModel(w *naiveWork) bool {
	if _, ok := n.full().fit(&w.Workload, nil); !ok || !n.depends(w) {
		return false
	}
	for name, node := range n.nodes {
		for _, d := range node.devices {
			b := n.refusal(w, d.Model, d.Memory, nil, false)
			if b != nil && n.refusal(w, d.Model, d.Memory, nil, true) == nil && n.serves(&w.Workload, name, d) {
				n.closed = append(n.closed, b)
			}
		}
	}
	return true
}

func (n *naive) possible(w *naiveWork) bool {
	_, ok := n.empty().fit(&w.Workload, nil)
	return ok
}

// reserve lets running work end, what is being ended first and then in the order of its time limits, until the head fits.
func (n *naive) reserve(head *naiveWork) *reserved {
	type end struct {
		at           Time
		coming, task int
		w            *naiveWork
	}
	var ends []end
	for _, w := range n.work {
		for i, t := range w.tasks {
			switch {
			case t.over:
			case t.evicting:
				ends = append(ends, end{0, w.coming, i, w})
			case w.TimeLimit > 0 && (w.due == 0 || t.since+w.TimeLimit < w.due):
				ends = append(ends, end{t.since + w.TimeLimit, w.coming, i, w})
			case w.due > 0:
				ends = append(ends, end{w.due, w.coming, i, w})
			}
		}
	}
	slices.SortFunc(ends, func(a, b end) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.coming, b.coming), cmp.Compare(a.task, b.task))
	})
	then := n.full()
	_, atOnce := then.copy().fit(&head.Workload, n.kept(head, nil))
	alone := head.Tasks == 1 || len(head.Roles) > 0 || n.depends(head) || atOnce
	for _, e := range ends {
		t := e.w.tasks[e.task]
		then.hold(e.w, t, -1)
		before := then.copy()
		if spots, ok := then.fit(&head.Workload, n.kept(head, nil)); ok {
			over := 0
			if !alone {
				then = before
				spots, over = then.gather(&head.Workload, t.node)
			}
			return &reserved{true, max(n.now, e.at), then, spots, over}
		}
	}
	return &reserved{}
}

// gather takes all that several tasks can have, but for what is left over on the node on which the last of it came free.
func (r room) gather(w *Workload, last string) (spots []naiveSpot, over int) {
	one, count, sum := *w, map[string]int{}, 0
	one.Same, one.Prefer = "", ""
	for name := range r.n.nodes {
		if w.Same != "" && r.n.nodes[name].rack != r.n.nodes[last].rack {
			continue
		}
		for one.Tasks = 1; one.Tasks <= w.Tasks; one.Tasks++ {
			if r.copy().spread(&one, func(node string, _ Device, _ left) bool { return node != name }) == nil {
				break
			}
			count[name] = one.Tasks
		}
		sum += count[name]
	}
	over = sum - w.Tasks
	count[last] -= over
	for _, name := range slices.Sorted(maps.Keys(count)) {
		for range count[name] {
			here := r.candidates(w, func(node string, _ Device, _ left) bool { return node != name })
			slots := func(c candidate) (k int) {
				for k < w.Tasks && api.Milli(k+1)*w.Share.Compute.Floor <= c.left.compute && api.Bytes(k+1)*w.Share.Memory.Floor.Of(c.device.Memory) <= c.left.memory {
					k++
				}
				return k
			}
			slices.SortFunc(here, func(a, b candidate) int {
				if w.Devices == 1 || w.Share.Compute.Floor > api.WholeDevice/2 {
					return cmp.Or(cmp.Compare(a.left.compute, b.left.compute), cmp.Compare(a.left.memory, b.left.memory), cmp.Compare(a.device.Index, b.device.Index))
				}
				return cmp.Or(cmp.Compare(slots(b), slots(a)), cmp.Compare(a.device.Index, b.device.Index))
			})
			s := spotOf(here[:w.Devices])
			r.take(w, s.node, s.devices, 1)
			spots = append(spots, s)
		}
	}
	return spots, over
}

// runsOn says that a task of a workload could run on a node where nothing else is.
func (n *naive) runsOn(w *naiveWork, node string) bool {
	return w.anyPart(func(one *Workload) bool {
		one.Tasks = 1
		_, ok := n.empty().fit(one, func(other string, _ Device, _ left) bool { return other != node })
		return ok
	})
}

func (n *naive) backfill(w, head *naiveWork, r *reserved, spots []naiveSpot) []naiveSpot {
	if r.known && w.TimeLimit > 0 && n.now+w.TimeLimit <= r.at {
		return spots
	}
	if beside := n.besideHead(w, head, r, spots); beside != nil {
		return beside
	}
	if n.mayLetIn(w, r) {
		w.due = r.at
		return spots
	}
	return nil
}

// mayLetIn says that a workload is predicted to be over when the first in line starts, and can be taken back where it is not.
func (n *naive) mayLetIn(w *naiveWork, r *reserved) bool {
	if !n.predicted || !r.known || r.at <= n.now || !w.Preemptible || len(w.disrupted) > 0 {
		return false
	}
	for _, q := range n.above(w.Queue) {
		if n.now+Time(n.queues[q].MinRun/1000) > r.at {
			return false
		}
	}
	long, ok := n.likely(&w.Workload)
	return ok && n.now+long <= r.at
}

// overdue says that one runs on that was to be over by now.
func (n *naive) overdue(w *naiveWork) bool { return w.due > 0 && w.due <= n.now }

// spares takes a workload off what the first in line leaves free, if there is so much.
func (r *reserved) spares(w *naiveWork, spots []naiveSpot) bool {
	then, rest := r.then.copy(), spots
	for _, one := range w.parts() {
		for _, s := range rest[:one.Tasks] {
			then.take(one, s.node, s.devices, 1)
			for _, h := range r.spots {
				if h.node == s.node && len(one.Resources) > 0 && one.Resources[0].Amount > 0 && then.cpu[s.node] < 0 {
					return false
				}
				for _, uuid := range h.devices {
					if l := then.left[uuid]; slices.Contains(s.devices, uuid) && (l.compute < 0 || l.memory < 0) {
						return false
					}
				}
			}
		}
		rest = rest[one.Tasks:]
	}
	r.then = then
	return true
}

// keeps says that a task has no room beside the first in line.
func (r *reserved) keeps(w *Workload, node string, d Device) bool {
	for _, h := range r.spots {
		if h.node == node && len(w.Resources) > 0 && w.Resources[0].Amount > 0 && r.then.cpu[node] < w.Resources[0].Amount {
			return true
		}
		if l := r.then.left[d.UUID]; slices.Contains(h.devices, d.UUID) && (l.compute < w.Share.Compute.Floor || l.memory < w.Share.Memory.Floor.Of(d.Memory)) {
			return true
		}
	}
	return false
}

// besideHead is where a workload fits beside the first in line: on these spots, where it would start without that one, or else on others.
func (n *naive) besideHead(w, head *naiveWork, r *reserved, spots []naiveSpot) []naiveSpot {
	if n.refusal(w, "", 0, head, false) != nil {
		return nil
	}
	now, kept := n.full(), n.kept(w, head)
	if !r.known {
		spots, _ := now.fit(&w.Workload, func(node string, d Device, l left) bool {
			if kept != nil && kept(node, d, l) {
				return true
			}
			shared := w.cpu() && head.cpu()
			if !n.runsOn(head, node) || !shared && !head.anyPart(func(one *Workload) bool { return n.serves(one, node, d) }) {
				return false
			}
			// Where all of the head fits beside it, it keeps nothing from the head.
			var compute, takes api.Milli
			var memory, takesMemory api.Bytes
			for _, one := range head.parts() {
				compute += api.Milli(one.Tasks) * one.Share.Compute.Floor
				memory += api.Bytes(one.Tasks) * one.Share.Memory.Floor.Of(d.Memory)
			}
			for _, one := range w.parts() {
				takes, takesMemory = max(takes, one.Share.Compute.Floor), max(takesMemory, one.Share.Memory.Floor.Of(d.Memory))
			}
			return shared || l.compute-takes < min(compute, api.WholeDevice) || l.memory-takesMemory < min(memory, d.Memory)
		})
		return spots
	}
	closed := kept != nil && slices.ContainsFunc(spots, func(s naiveSpot) bool {
		return slices.ContainsFunc(s.devices, func(uuid string) bool { return kept(s.node, n.device(s.node, uuid), left{}) })
	})
	if !closed && r.spares(w, spots) {
		return spots
	}
	var ok bool
	if w.Tasks == 1 && len(w.Roles) == 0 {
		spots, ok = now.fit(&w.Workload, func(node string, d Device, l left) bool {
			return r.keeps(&w.Workload, node, d) || kept != nil && kept(node, d, l)
		})
	} else {
		for _, s := range r.spots {
			for _, uuid := range s.devices {
				a, b := now.left[uuid], r.then.left[uuid]
				if b.compute < a.compute || b.memory < a.memory {
					now.left[uuid] = left{min(a.compute, b.compute), min(a.memory, b.memory), a.grants + 1}
				}
			}
			now.cpu[s.node] = min(now.cpu[s.node], r.then.cpu[s.node])
		}
		spots, ok = now.fit(&w.Workload, kept)
	}
	if !ok || !r.spares(w, spots) {
		return nil
	}
	return spots
}

func (n *naive) start(out *strings.Builder, w *naiveWork, spots []naiveSpot) {
	fmt.Fprintf(out, "place %s", w.ID)
	for _, s := range spots {
		fmt.Fprintf(out, " %s%v", s.node, s.devices)
		w.tasks = append(w.tasks, &naiveTask{node: s.node, devices: s.devices, since: n.now, used: map[string]api.Bytes{}})
	}
	out.WriteString("\n")
	w.plan = nil
	w.placing = 1 // until the test says which
}

// placedAs tells the naive engine the ID under which the engine proposed what both decided.
func (n *naive) placedAs(actions []Action) {
	for _, a := range actions {
		if p, ok := a.(Place); ok {
			w, _ := n.task(p.Workload, p.Tasks[0].Task)
			w.placing, w.placed = p.ID, p.ID
		}
	}
}

// brief writes the actions that the naive engine knows in its words.
func brief(actions []Action) string {
	var b strings.Builder
	for _, a := range actions {
		switch a := a.(type) {
		case Place:
			fmt.Fprintf(&b, "place %s", a.Workload)
			for _, p := range a.Tasks {
				var devices []string
				for _, g := range p.Grants {
					devices = append(devices, g.Device)
				}
				fmt.Fprintf(&b, " %s%v", p.Node, devices)
			}
		case Evict:
			fmt.Fprintf(&b, "evict %s %d", a.Workload, a.Task)
		case Resize:
			fmt.Fprintf(&b, "resize %s", a.Workload)
		case Reject:
			fmt.Fprintf(&b, "reject %s", a.Reason)
		}
		b.WriteString("\n")
	}
	return b.String()
}
