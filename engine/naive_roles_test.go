package engine

import (
	"cmp"
	"maps"
	"slices"
)

// parts are the roles of a workload as workloads of their own, its own tasks first.
func (w *Workload) parts() []*Workload {
	own := *w
	own.Roles = nil
	all := []*Workload{&own}
	for _, r := range w.Roles {
		one := own
		one.Tasks, one.Devices, one.Share, one.Model, one.Resources = r.Tasks, r.Devices, r.Share, r.Model, r.Resources
		one.Feasibility = cmp.Or(r.Feasibility, w.Feasibility)
		all = append(all, &one)
	}
	return all
}

// anyPart says that something is so of some role.
func (w *Workload) anyPart(is func(*Workload) bool) bool { return slices.ContainsFunc(w.parts(), is) }

// cpu says that a workload wants CPU.
func (w *Workload) cpu() bool {
	return w.anyPart(func(one *Workload) bool { return len(one.Resources) > 0 })
}

// parted says that memory floors of it are parts of devices.
func (w *Workload) parted() bool {
	return w.anyPart(func(one *Workload) bool { return one.Share.Memory.Floor.Part > 0 })
}

// onModel is the model that all roles are to be on; empty: there is none.
func (w *Workload) onModel() string {
	if w.anyPart(func(one *Workload) bool { return one.Model != w.Model }) {
		return ""
	}
	return w.Model
}

// asks is what a task asks for.
func (w *naiveWork) asks(t *naiveTask) *Workload {
	at := slices.Index(w.tasks, t)
	for _, one := range w.parts() {
		if at < one.Tasks {
			return one
		}
		at -= one.Tasks
	}
	panic("no such task")
}

// classes are those of all its tasks.
func (w *naiveWork) classes() (all []string) {
	for _, one := range w.parts() {
		all = append(all, one.Feasibility)
	}
	return all
}

// unclass has those that run and are not placed again name no class any more, if they name one of these.
func (n *naive) unclass(named []string) {
	for _, w := range n.work {
		runs := w.tasks != nil && w.placing == 0 && w.base == nil && w.Max <= w.Tasks && !w.Requeue
		if !runs || !slices.ContainsFunc(w.classes(), func(class string) bool { return class != "" && slices.Contains(named, class) }) {
			continue
		}
		w.Feasibility, w.Roles = "", slices.Clone(w.Roles)
		for i := range w.Roles {
			w.Roles[i].Feasibility = ""
		}
	}
}

// classesOn are the classes of the tasks that are on a node; the workload's where none is.
func (w *naiveWork) classesOn(node string) (all []string) {
	for _, t := range w.tasks {
		if t.node == node {
			all = append(all, w.asks(t).Feasibility)
		}
	}
	if all == nil {
		all = []string{w.Feasibility}
	}
	return all
}

// fitRoles fits the roles in one order after another, the largest first to begin with, and takes the first that does.
func (r room) fitRoles(w *Workload, avoid func(string, Device, left) bool) ([]naiveSpot, bool) {
	parts := w.parts()
	var line []int
	for i := range parts {
		parts[i].Same, parts[i].Prefer = "", ""
		line = append(line, i)
	}
	slices.SortStableFunc(line, func(a, b int) int {
		return cmp.Or(cmp.Compare(parts[b].Share.Compute.Floor, parts[a].Share.Compute.Floor), cmp.Compare(parts[b].Devices, parts[a].Devices))
	})
	for _, order := range ordersOf(line) {
		try, found := r.copy(), map[int][]naiveSpot{}
		for _, i := range order {
			if spots, ok := try.fit(parts[i], avoid); ok {
				found[i] = spots
			}
		}
		if len(found) < len(parts) {
			continue
		}
		maps.Copy(r.left, try.left)
		maps.Copy(r.cpu, try.cpu)
		var all []naiveSpot
		for i := range parts {
			all = append(all, found[i]...)
		}
		return all, true
	}
	return nil, false
}

// ordersOf are all orders of a line, as in a dictionary whose alphabet it is.
func ordersOf(line []int) [][]int {
	if len(line) == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for i, first := range line {
		for _, rest := range ordersOf(slices.Delete(slices.Clone(line), i, i+1)) {
			all = append(all, append([]int{first}, rest...))
		}
	}
	return all
}
