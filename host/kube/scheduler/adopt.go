package scheduler

import (
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

// found are the tasks of all claims that are allocated when a scheduler begins, those of a gang together: the pods that a gang needs are one
// workload, those beyond are one each.
func (s *Scheduler) found() (works [][]*task) {
	for _, p := range s.pods {
		if s.serves(p.object) {
			s.joinGang(p) // its Job is known by now
		}
	}
	gangs := map[*gang][]*task{}
	for _, key := range slices.Sorted(maps.Keys(s.claims)) {
		c := s.claims[key]
		if c.object == nil { // it went meanwhile
			delete(s.claims, key)
			continue
		}
		if c.task != nil || !s.allocatedHere(c.object) {
			continue
		}
		if t := s.taskOf(c); t.pod != nil && t.pod.gang != nil {
			gangs[t.pod.gang] = append(gangs[t.pod.gang], t)
		} else {
			works = append(works, []*task{t})
		}
	}
	for _, g := range slices.SortedFunc(maps.Keys(gangs), func(a, b *gang) int { return strings.Compare(a.key, b.key) }) {
		tasks := gangs[g]
		slices.SortFunc(tasks, func(a, b *task) int { return strings.Compare(a.pod.name(), b.pod.name()) })
		_, least, _ := s.gangOf(tasks[0].pod.object)
		var goes, stays []*task // which were never one workload
		for _, t := range tasks {
			if s.taskPreemptible(t) {
				goes = append(goes, t)
			} else {
				stays = append(stays, t)
			}
		}
		works = append(append(works, apartBeyond(stays, least)...), apartBeyond(goes, least)...)
	}
	return works
}

// apartBeyond are tasks of a gang as workloads: as many as start together as one, the others one each.
func apartBeyond(tasks []*task, least int) (works [][]*task) {
	together := min(max(least, 1), len(tasks))
	if together > 0 {
		works = append(works, tasks[:together])
	}
	for _, t := range tasks[together:] {
		works = append(works, []*task{t})
	}
	return works
}

// adopt enters what a claim holds that was allocated by another.
func (s *Scheduler) adopt(c *claim) {
	if s.allocatedHere(c.object) {
		s.adoptTasks([]*task{s.taskOf(c)})
		for _, p := range s.reservedFor(c) {
			s.hearSaved(p)
		}
	}
}

// taskOf is the task of an allocated claim of which nothing is known yet: with the pod that runs with it, if there is one, and what else that holds.
func (s *Scheduler) taskOf(c *claim) *task {
	t := &task{claims: []*claim{c}}
	c.task = t
	holders := s.holders(c)
	if len(holders) == 0 || holders[0].task != nil {
		return t
	}
	p := holders[0]
	t.pod, t.requests, p.task, p.carried = p, p.requests, t, true
	s.charge(p)
	for _, key := range p.claims {
		other := s.claims[key]
		if other == nil || other.task != nil || other.writing || !s.allocatedHere(other.object) {
			continue
		}
		if first := s.holders(other); len(first) > 0 && first[0] == p && nodeOf(other.object.Status.Allocation) == nodeOf(c.object.Status.Allocation) {
			t.claims = append(t.claims, other)
			other.task = t
		}
	}
	return t
}

// adoptTasks enters a workload that runs already.
func (s *Scheduler) adoptTasks(tasks []*task) {
	first := tasks[0].claims[0]
	w := s.newWork(first.key)
	w.state, w.tasks = placed, make([]*task, len(tasks))
	adopted := engine.Adopt{At: s.at(), Workload: engine.Workload{
		ID: w.id, User: first.object.Namespace, Name: first.object.Name, Queue: s.queueOfClaim(first), Class: s.classOfClaim(first.object), Preemptible: true,
	}}
	asked := &adopted.Workload
	placings, held := make([]engine.Placing, len(tasks)), make([][]engine.Grant, len(tasks))
	var pods []*pod // for which its claims were allocated
	for i, t := range tasks {
		placing := &placings[i]
		asked.Preemptible = asked.Preemptible && s.taskPreemptible(t)
		for _, c := range t.claims {
			node, grants := s.grantsOf(c.object)
			placing.Node, placing.Grants = node, merge(placing.Grants, grants)
			users := s.reservedFor(c)
			for _, p := range users {
				restart, _ := annotation.Restart(p.object.Annotations)
				asked.Restart = max(asked.Restart, engine.Time(restart.Microseconds()))
			}
			if len(users) > 0 {
				pods = append(pods, users[0])
			}
			if i == 0 && len(users) > 0 {
				if at := users[0].object.Status.StartTime; at != nil {
					adopted.Ran = engine.Time(max(0, s.config.Now().Sub(at.Time).Microseconds()))
				}
			}
		}
		held[i] = placing.Grants
	}
	for index, at := range adoptRoles(asked, tasks, held) {
		t := tasks[at]
		t.work, t.index, w.tasks[index] = w, index, t
		placings[at].Task = index
		adopted.Tasks = append(adopted.Tasks, placings[at])
	}
	if len(pods) > 0 {
		describe(asked, pods)
		asked.Priority = highest(pods) // they all go when it does
	}
	w.preemptible = asked.Preemptible
	s.step(adopted)
	for _, t := range tasks {
		if t.pod != nil {
			s.charge(t.pod) // the engine may count more of it, as of those beside it
		}
	}
}

// taskPreemptible says whether what holds claims that another scheduler allocated, or one before this, is preemptible: whether the pods are that they were
// allocated for, or those that came first of whom is there. Who came to a claim later has no say.
func (s *Scheduler) taskPreemptible(t *task) bool {
	return !slices.ContainsFunc(t.claims, func(c *claim) bool {
		for _, r := range c.object.Status.ReservedFor {
			if p := s.pods[r.UID]; p != nil {
				may, _ := s.preemptible(p.object)
				return !may
			}
		}
		return true // nobody is known who has it
	})
}

// reservedFor are the known pods that a claim is reserved for, by name; none where it has gone.
func (s *Scheduler) reservedFor(c *claim) []*pod {
	if c.object == nil {
		return nil
	}
	var all []*pod
	for p := range s.users[c.key] {
		if slices.ContainsFunc(c.object.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID == p.object.UID }) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *pod) int { return strings.Compare(a.name(), b.name()) })
	return all
}

// describe says of a workload that waits what its pods do: it goes before others as the one of the lowest priority would, nobody is evicted for it if for one of them nobody is to be,
// and it ends with the last of them.
func describe(asked *engine.Workload, pods []*pod) {
	asked.User, asked.Name, asked.Priority = pods[0].object.Namespace, pods[0].kin(), lowestOf(pods)
	ends, unlimited := int64(0), false
	for _, p := range pods {
		asked.Patient = asked.Patient || neverEvicts(p)
		if limit := p.object.Spec.ActiveDeadlineSeconds; limit != nil {
			ends = max(ends, *limit)
		} else {
			unlimited = true
		}
	}
	if !unlimited {
		asked.TimeLimit = engine.Time(min(ends, 1<<40) * 1_000_000)
	}
}

// classOfClaim is the class of the work that has an allocated claim, as far as it says one.
func (s *Scheduler) classOfClaim(object *resourceapi.ResourceClaim) api.Class {
	for _, r := range object.Status.Allocation.Devices.Results {
		if r.Driver != driver.Name {
			continue
		}
		if config, err := driver.ConfigOf(object.Status.Allocation.Devices.Config, r.Request); err == nil && config.Class != "" {
			return config.Class
		}
	}
	return api.Batch
}
