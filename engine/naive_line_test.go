package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
)

func (w *naiveWork) demand() int64 {
	return int64(w.Share.Compute.Floor) * int64(w.Devices*w.Tasks)
}

func (w *naiveWork) takesNothing() bool {
	return w.Share.Compute.Floor == 0 && w.Share.Memory.Floor.IsZero() && len(w.Resources) == 0
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

func (n *naive) heldBy(queue string) int64 {
	var sum int64
	for _, w := range n.work {
		if slices.Contains(n.above(w.Queue), queue) {
			for _, t := range w.tasks {
				if !t.over {
					sum += int64(w.Share.Compute.Floor) * int64(len(t.devices))
				}
			}
		}
	}
	return sum
}

// over is the first quota that would be passed with so much more held, beside what others are to hold.
func (n *naive) over(w *naiveWork, beside *naiveWork) string {
	for _, q := range n.above(w.Queue) {
		held := n.heldBy(q)
		if beside != nil && slices.Contains(n.above(beside.Queue), q) {
			held += beside.demand()
		}
		if quota := n.queues[q].Quota; quota != api.Unlimited && w.demand() > 0 && held+w.demand() > int64(quota) {
			return q
		}
	}
	return ""
}

// reserved is the head's reservation.
type reserved struct {
	known bool
	at    Time
	then  room // what is free at that time, beside the head
	spots []naiveSpot
}

func (n *naive) schedule(out *strings.Builder) {
	line := slices.Clone(n.work)
	slices.SortFunc(line, func(a, b *naiveWork) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.coming, b.coming))
	})
	var head *naiveWork
	var reserve *reserved
	closed := map[string]bool{}
	for _, w := range line {
		if w.tasks != nil || w.retryAt > n.now || !n.possible(w) {
			continue
		}
		alone, blocked := false, false
		for _, q := range n.above(w.Queue) {
			quota := n.queues[q].Quota
			alone = alone || quota != api.Unlimited && w.demand() > 0 && w.demand() > int64(quota)
			blocked = blocked || closed[q] && w.demand() > 0
		}
		if alone || blocked {
			continue
		}
		if q := n.over(w, nil); q != "" {
			closed[q] = true
			continue
		}
		now := n.full()
		spots, ok := now.fit(&w.Workload, nil)
		switch {
		case head == nil && !ok:
			head = w
		case head == nil:
			n.start(out, w, spots)
		case ok && w.takesNothing():
			n.start(out, w, spots)
		case ok:
			if reserve == nil {
				reserve = n.reserve(head)
			}
			if spots := n.backfill(w, head, reserve, spots); spots != nil {
				n.start(out, w, spots)
			}
		}
	}
}

func (n *naive) possible(w *naiveWork) bool {
	_, ok := n.empty().fit(&w.Workload, nil)
	return ok
}

// reserve lets running work end in the order of its time limits until the head fits.
func (n *naive) reserve(head *naiveWork) *reserved {
	type end struct {
		at           Time
		coming, task int
		w            *naiveWork
	}
	var ends []end
	for _, w := range n.work {
		for i, t := range w.tasks {
			if !t.over && w.TimeLimit > 0 {
				ends = append(ends, end{t.since + w.TimeLimit, w.coming, i, w})
			}
		}
	}
	slices.SortFunc(ends, func(a, b end) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.coming, b.coming), cmp.Compare(a.task, b.task))
	})
	then := n.full()
	for _, e := range ends {
		t := e.w.tasks[e.task]
		then.hold(e.w, t, -1)
		if spots, ok := then.fit(&head.Workload, nil); ok {
			return &reserved{true, max(n.now, e.at), then, spots}
		}
	}
	return &reserved{}
}

func (n *naive) backfill(w, head *naiveWork, r *reserved, spots []naiveSpot) []naiveSpot {
	if r.known && w.TimeLimit > 0 && n.now+w.TimeLimit <= r.at {
		return spots
	}
	if n.over(w, head) != "" {
		return nil
	}
	now := n.full()
	if !r.known {
		spots, _ := now.fit(&w.Workload, func(node string, d Device) bool {
			shared := len(w.Resources) > 0 && len(head.Resources) > 0
			alone := head.Workload
			alone.Tasks = 1
			there := n.empty()
			_, ok := there.fit(&alone, func(other string, _ Device) bool { return other != node })
			return ok && (shared || n.serves(&head.Workload, node, d))
		})
		return spots
	}
	for _, s := range r.spots {
		for _, uuid := range s.devices {
			a, b := now.left[uuid], r.then.left[uuid]
			if b.compute < a.compute || b.memory < a.memory {
				now.left[uuid] = left{min(a.compute, b.compute), min(a.memory, b.memory), a.grants + 1}
			}
		}
		now.cpu[s.node] = min(now.cpu[s.node], r.then.cpu[s.node])
	}
	spots, ok := now.fit(&w.Workload, nil)
	if !ok {
		return nil
	}
	for _, s := range spots {
		r.then.take(&w.Workload, s.node, s.devices, 1)
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
	w.placing = 1 // until the test says which
}

// placedAs tells the naive engine the ID under which the engine proposed what both decided.
func (n *naive) placedAs(actions []Action) {
	for _, a := range actions {
		if p, ok := a.(Place); ok {
			n.find(p.Workload).placing, n.find(p.Workload).placed = p.ID, p.ID
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
