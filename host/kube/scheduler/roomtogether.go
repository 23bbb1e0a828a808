package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"

	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// chooseMost is how many choices of nodes are looked at for a gang at a time.
const chooseMost = 32

// gangRoom is the search for nodes on which room is to be made for all pods of a gang. The engine chooses them by what pods of lower priority could leave
// there at the most, and the filters say whom of these to evict; where one of its pods has no room, whoever goes, the engine chooses anew without.
type gangRoom struct {
	work     *work
	openings []engine.Opening // where others would have to go: those that weigh least first
	as       []engine.Opening // of other nodes, where the engine takes it that more may run than can
	nodes    []string         // chosen, by task
	tries    int
	breaches int          // how many pods would have had to go whom disruption budgets do not let go
	spared   []nomination // for whom
}

// startsWith are the pods that start together with a pod, itself among them.
func (p *pod) startsWith() []*pod {
	if p.task == nil || p.task.work.state != inLine {
		return []*pod{p}
	}
	return p.task.work.pods()
}

// speaks says whether a pod is in line and where it may run is where all may that ask for the same as it and start with it.
func (s *Scheduler) speaks(p *pod) bool {
	return s.mine(p) && p.task != nil && p.task.work.state == inLine && p.task.work.roles[p.task.role()].members[0] == p
}

// startTogether has the filters know of a gang for which room is made.
func (s *Scheduler) startTogether(w *work) {
	pods := w.pods()
	if len(pods) > 1 && slices.ContainsFunc(pods, nominated) {
		s.config.Filters.Together(objectsOf(pods))
	}
}

func objectsOf(pods []*pod) []*corev1.Pod {
	objects := make([]*corev1.Pod, len(pods))
	for i, p := range pods {
		objects[i] = p.object
	}
	return objects
}

// seekTogether has room looked for of a gang, by its first pod: where its pods are nominated, as long as that helps them.
func (s *Scheduler) seekTogether(p *pod) {
	if !s.firstInLine(p) {
		s.lookedForRoom(p, nil)
		s.seeks = false
		s.seekNext()
		return
	}
	c := s.choiceFor(p.task.work)
	if nodes := c.nominated(); nodes != nil {
		if c.nodes = nodes; s.stillRoom(c) {
			s.judgeChoice(c)
			return
		}
	}
	s.choose(c)
}

// choiceFor begins to look for room for a gang.
func (s *Scheduler) choiceFor(w *work) *gangRoom {
	c, first := &gangRoom{work: w}, w.tasks[0].pod
	lower := s.lower(lowest(first))
	seen := map[string]bool{}
	for o, k := range s.keeps {
		if (o.task == nil || o.task.work != w) && !k.until.IsZero() && lowest(o) >= lowest(first) && !seen[k.node] {
			seen[k.node] = true
			c.as = append(c.as, engine.Opening{Node: k.node, Tasks: make([]int, len(w.roles))}) // what is free there is kept for that one
		}
	}
	slices.SortFunc(c.as, func(a, b engine.Opening) int { return cmp.Compare(a.Node, b.Node) })
	names := c.nominated()
	for _, r := range w.roles {
		names = append(names, r.class.held...)
	}
	for _, name := range names {
		if there := lower[name]; !seen[name] && (there.pods > 0 || slices.Contains(c.nominated(), name)) {
			seen[name] = true
			c.openings = append(c.openings, engine.Opening{Node: name, Tasks: w.mayRun(name), Freed: there.requests})
		}
	}
	slices.SortFunc(c.openings, func(a, b engine.Opening) int {
		x, y := lower[a.Node], lower[b.Node]
		return cmp.Or(cmp.Compare(x.highest, y.highest), cmp.Compare(x.pods, y.pods), cmp.Compare(a.Node, b.Node))
	})
	return c
}

// nominated are the nodes that the pods of a gang are nominated for, by task; nil: not all are.
func (c *gangRoom) nominated() (nodes []string) {
	for _, p := range c.work.pods() {
		if !nominated(p) {
			return nil
		}
		nodes = append(nodes, p.object.Status.NominatedNodeName)
	}
	return nodes
}

// stillRoom says whether the engine would start the pods of a gang on the nodes that are chosen, each on its own, if others went from there.
func (s *Scheduler) stillRoom(c *gangRoom) bool {
	wants := map[string][]int{} // by node: tasks of each role
	for i, t := range c.work.tasks {
		if wants[c.nodes[i]] == nil {
			wants[c.nodes[i]] = make([]int, len(c.work.roles))
		}
		wants[c.nodes[i]][t.role()]++
	}
	bounds := map[string]engine.Opening{}
	for _, o := range slices.Concat(c.openings, c.as) {
		bounds[o.Node] = o
	}
	none := make([]int, len(c.work.roles))
	var exactly []engine.Opening
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		tasks := wants[name]
		if tasks == nil {
			exactly = append(exactly, engine.Opening{Node: name, Tasks: none})
			continue
		}
		bound, is := bounds[name]
		if !is {
			bound.Tasks = c.work.mayRun(name)
		}
		for role := range tasks {
			tasks[role] = min(tasks[role], bound.Tasks[role])
		}
		exactly = append(exactly, engine.Opening{Node: name, Tasks: tasks, Freed: bound.Freed})
	}
	return s.engine.RoomTogether(c.work.id, exactly) != nil
}

// mayRun is how many tasks of each role of a workload may run on a node, if others go from there.
func (w *work) mayRun(node string) []int {
	tasks := make([]int, len(w.roles))
	for i, r := range w.roles {
		if why, known := r.class.answer[node]; known && why == "" || slices.Contains(r.class.held, node) {
			tasks[i] = len(r.members)
		}
	}
	return tasks
}

// lesser is what pods have on a node that might be evicted.
type lesser struct {
	highest  int32 // priority
	pods     int
	requests []engine.Resource
}

// lower is what pods without devices have of lower priority than this, by node. The filters know better which of them may go.
func (s *Scheduler) lower(priority int32) map[string]lesser {
	all := map[string]lesser{}
	for _, p := range s.pods {
		if p.charged == nil || p.carried || priorityOf(p.object) >= priority {
			continue
		}
		if goes, err := annotation.IsPreemptible(p.object.Annotations); err != nil || !goes {
			continue
		}
		there := all[p.charged.name]
		if there.pods == 0 {
			there.highest = priorityOf(p.object)
		}
		there.highest, there.pods = max(there.highest, priorityOf(p.object)), there.pods+1
		there.requests = plus(there.requests, p.requests)
		all[p.charged.name] = there
	}
	return all
}

// plus adds resources up.
func plus(all, more []engine.Resource) []engine.Resource {
	for _, r := range more {
		if at := slices.IndexFunc(all, func(o engine.Resource) bool { return o.Name == r.Name }); at >= 0 {
			all[at].Amount += r.Amount
		} else {
			all = append(all, r)
		}
	}
	return all
}

// minus is what there is of some resources beyond others: nothing of those of which there is as much, and less than nothing where there is less.
func minus(all, others []engine.Resource) []engine.Resource {
	others = slices.Clone(others)
	for i := range others {
		others[i].Amount = -others[i].Amount
	}
	return slices.DeleteFunc(plus(slices.Clone(all), others), func(r engine.Resource) bool { return r.Amount == 0 })
}

// choose has the engine choose nodes for a gang: those on which its pods would be started at once, with as few as will do of the openings that weigh most.
func (s *Scheduler) choose(c *gangRoom) {
	on := func(openings int) []string {
		return s.engine.RoomTogether(c.work.id, slices.Concat(c.as, c.openings[:openings]))
	}
	few := sort.Search(len(c.openings)+1, func(openings int) bool { return on(openings) != nil })
	if c.nodes = nil; few <= len(c.openings) && c.tries < chooseMost {
		c.nodes = on(few)
	}
	if c.nodes == nil {
		s.soughtTogether(c, Rooms{}, nil)
		return
	}
	c.tries++
	s.judgeChoice(c)
}

// judgeChoice has the filters say who would have to go from the nodes that are chosen for a gang.
func (s *Scheduler) judgeChoice(c *gangRoom) {
	objects, nodes := objectsOf(c.work.pods()), slices.Clone(c.nodes)
	s.spawn(func(ctx context.Context) {
		rooms, err := s.config.Filters.MakeRoomTogether(ctx, objects, nodes)
		s.inbox.put(func() {
			if err != nil || len(rooms.Lacking) == 0 || !s.stillInLine(c.work) {
				s.soughtTogether(c, rooms, err)
				return
			}
			if rooms.Breaches > 0 {
				c.breaches, c.spared = rooms.Breaches, c.where()
			}
			c.without(rooms.Lacking)
			s.choose(c)
		})
	})
}

// without has no more tasks of a role run on a node than had room there.
func (c *gangRoom) without(lacking []int) {
	for _, i := range lacking {
		node, role := c.nodes[i], c.work.tasks[i].role()
		fit := 0
		for k, t := range c.work.tasks {
			if c.nodes[k] == node && t.role() == role && !slices.Contains(lacking, k) {
				fit++
			}
		}
		all := &c.openings
		at := slices.IndexFunc(*all, func(o engine.Opening) bool { return o.Node == node })
		if at < 0 {
			all = &c.as
			at = slices.IndexFunc(*all, func(o engine.Opening) bool { return o.Node == node })
		}
		if at < 0 {
			*all = append(*all, engine.Opening{Node: node, Tasks: c.work.mayRun(node)})
			at = len(*all) - 1
		}
		(*all)[at].Tasks[role] = min((*all)[at].Tasks[role], fit)
	}
}

// where are the nodes that are chosen, with the pods.
func (c *gangRoom) where() (where []nomination) {
	for i, node := range c.nodes {
		where = append(where, nomination{c.work.tasks[i].pod, node})
	}
	return where
}

// stillInLine says whether a workload waits for the engine, as it did.
func (s *Scheduler) stillInLine(w *work) bool { return s.work[w.id] == w && w.state == inLine }

// soughtTogether takes in what room there is for a gang: its pods are nominated for their nodes, and those in their way are evicted.
func (s *Scheduler) soughtTogether(c *gangRoom, rooms Rooms, err error) {
	first := c.work.tasks[0].pod
	if c.tries == 0 && c.nodes == nil {
		first.seeking.tries = 0 // that took little
	}
	s.lookedForRoom(first, err)
	s.seeks = false
	defer s.seekNext()
	if err != nil || !s.stillInLine(c.work) || s.engine.Rests(c.work.id) {
		return
	}
	switch {
	case c.nodes == nil:
		s.unnominate(c.work.pods()...)
		if c.breaches > 0 {
			s.spared(c.spared, &notEvicted{cause: causeBudget, why: fmt.Sprintf("the disruption budgets of %d pods of lower priority that would have to go do not allow it", c.breaches)})
		}
	case len(rooms.Pods) == 0:
	case !s.stillRoom(c): // it is of no use any more
	default:
		s.config.Filters.Together(objectsOf(c.work.pods()))
		s.makeRoom(c.where(), rooms.Pods)
	}
}
