package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/aliquot-dev/aliquot/engine"
)

// state is where a workload is in its life.
type state int

const (
	inLine  state = iota // the engine decides
	placing              // it has, and that is being written
	placed               // its claims are allocated
)

// work is what the engine knows as a workload: the pods of a gang, a pod alone, or an allocated claim that was adopted.
type work struct {
	id     string
	state  state
	tasks  []*task
	roles  []*role         // of what waits or is being placed; nil: it was adopted, or runs: where it may run matters no more
	action engine.ActionID // its last Place; 0: it had none yet, or was adopted

	preemptible bool // as the engine was told when it was placed or found, for its whole life

	anew    bool  // while it is being placed: what it asked for, or its class, may be another by now
	gang    *gang // of its pods when it was put in line; nil: none
	leaving bool  // all its pods are being deleted, and the engine knows
	spared  int   // how often it could not be evicted
}

// task is one pod's part of a workload.
type task struct {
	work     *work
	index    int
	pod      *pod // nil: adopted
	ask      *ask
	claims   []*claim          // that it holds; none once it was placed: it is over
	requests []engine.Resource // of its node, as the engine was told
}

// role is a task's that waits, by its number.
func (t *task) role() int {
	return slices.IndexFunc(t.work.roles, func(r *role) bool { return slices.Contains(r.members, t.pod) })
}

// class is where a task may run that waits.
func (t *task) class() *class { return t.work.roles[t.role()].class }

// pods are those of a workload that waits, by their tasks.
func (w *work) pods() []*pod {
	all := make([]*pod, len(w.tasks))
	for i, t := range w.tasks {
		all[i] = t.pod
	}
	return all
}

// newWork makes a workload with an ID that was never used.
func (s *Scheduler) newWork(name string) *work {
	s.named++
	w := &work{id: fmt.Sprintf("%s#%d", name, s.named)}
	s.work[w.id] = w
	return w
}

// submit puts pods in line, which start together or not at all.
func (s *Scheduler) submit(roles []*role) {
	first := roles[0].members[0]
	s.knowLevels(roles[0].asks[0].same, roles[0].asks[0].prefer)
	w := s.newWork(first.name())
	w.roles, w.gang = roles, first.gang
	oldest := first.object.CreationTimestamp.Time
	for _, r := range roles {
		r.class = s.classOf(r.members[0], r.asks[0])
		requests := most(r.members)
		for i, p := range r.members {
			t := &task{work: w, index: len(w.tasks), pod: p, ask: r.asks[i], requests: requests}
			w.tasks = append(w.tasks, t)
			p.task, p.reason = t, ""
			s.keepNominated(p)
			s.tellSoon(p)
			for _, c := range t.ask.open {
				c.asked = t
			}
			if at := p.object.CreationTimestamp.Time; at.Before(oldest) {
				oldest = at
			}
		}
		r.class.enter(s)
	}
	s.startTogether(w)
	submitted := workloadOf(roles)
	submitted.ID = w.id
	describe(&submitted, w.pods())
	w.preemptible = submitted.Preemptible
	waited := engine.Time(max(0, s.config.Now().Sub(oldest).Microseconds()))
	s.step(engine.Submit{At: s.at(), Workload: submitted, Waited: waited})
}

// most is what a task of theirs requests of its node at most.
func most(members []*pod) []engine.Resource {
	all := slices.Clone(members[0].requests)
	for _, p := range members[1:] {
		for _, r := range p.requests {
			at := slices.IndexFunc(all, func(o engine.Resource) bool { return o.Name == r.Name })
			if at < 0 {
				all = append(all, r)
			} else {
				all[at].Amount = max(all[at].Amount, r.Amount)
			}
		}
	}
	return all
}

// withdraw takes a workload out of the line.
func (s *Scheduler) withdraw(w *work, reason string) {
	s.step(engine.Cancel{At: s.at(), ID: w.id, Reason: reason})
	s.dissolve(w, reason)
	s.release(w)
}

// released are claims and gangs whose workload has left the line.
type released struct {
	claims map[string]bool
	gangs  map[*gang]bool
}

// release has those looked at, once the loop comes to it, who followed a workload that has left the line: pods with a claim of it, and others of its gang.
func (s *Scheduler) release(w *work) {
	if s.released == nil {
		s.released = &released{claims: map[string]bool{}, gangs: map[*gang]bool{}}
		s.inbox.put(func() {
			all := s.released
			s.released = nil
			for _, key := range slices.Sorted(maps.Keys(all.claims)) {
				for _, p := range sortedPods(s.users[key]) {
					s.consider(p)
				}
			}
			for _, g := range slices.SortedFunc(maps.Keys(all.gangs), func(a, b *gang) int { return strings.Compare(a.key, b.key) }) {
				s.followers(g)
			}
		})
	}
	for _, t := range w.tasks {
		for _, c := range t.ask.open {
			s.released.claims[c.key] = true
		}
	}
	if w.gang != nil {
		s.released.gangs[w.gang] = true
	}
}

// dissolve forgets a workload that the engine does not know any more, before it was placed.
func (s *Scheduler) dissolve(w *work, reason string) {
	delete(s.work, w.id)
	for _, r := range w.roles {
		r.class.leave(s)
	}
	for _, t := range w.tasks {
		t.pod.task, t.pod.reason = nil, reason
		for _, c := range t.ask.open {
			c.asked = nil
		}
	}
}

// askAnew takes those out of the line of which this is so, and looks at their pods anew, the oldest first; those that are being placed are, if that fails.
// None of them is started meanwhile by what it asked for before: the engine's answer to the end of another finds it gone.
func (s *Scheduler) askAnew(why string, is func(*work) bool) {
	var all []*work
	var pods []*pod
	for _, id := range slices.Sorted(maps.Keys(s.work)) {
		w := s.work[id]
		switch {
		case w.state == placed || !is(w):
		case w.state == placing:
			w.anew = true
		default:
			all, pods = append(all, w), append(pods, w.pods()...)
		}
	}
	for _, w := range all {
		s.dissolve(w, why)
	}
	for _, w := range all {
		s.step(engine.Cancel{At: s.at(), ID: w.id, Reason: why})
		s.release(w)
	}
	slices.SortFunc(pods, byAge)
	for _, p := range pods {
		s.consider(p)
	}
}

// place checks the places that the engine chose, and has them written where all pass.
func (s *Scheduler) place(action engine.Place) {
	w := s.work[action.Workload]
	if w == nil || w.state != inLine {
		s.step(engine.Refused{At: s.at(), ID: action.ID, Reason: "the scheduler knows no such workload that waits"})
		return
	}
	w.action = action.ID
	if node, err := s.keptFrom(w.tasks[0].pod, action.Tasks, true); err != nil {
		s.refuse(w, node, err)
		return
	}
	j := make(job, len(w.tasks))
	for i, placing := range action.Tasks {
		t := w.tasks[placing.Task]
		one, node, err := s.placeTask(t, placing)
		if err != nil {
			for _, before := range action.Tasks[:i] {
				s.config.Filters.Forget(w.tasks[before.Task].pod.object)
			}
			s.refuse(w, node, err)
			return
		}
		j[t.index] = one
	}
	w.state = placing
	for _, r := range w.roles {
		r.class.leave(s)
	}
	for _, t := range w.tasks {
		for _, c := range t.ask.open {
			c.writing = true
		}
	}
	s.carryOut(j, func(out outcome) { s.written(w, j, out) })
}

// refuse tells the engine that a workload cannot have the places that it chose, and which node does not take it; empty: it is not a node.
func (s *Scheduler) refuse(w *work, node string, why error) {
	for _, r := range w.roles {
		r.class.refused = true
	}
	s.metrics.refused.Inc()
	s.step(engine.Refused{At: s.at(), ID: w.action, Node: node, Reason: why.Error()})
}

// placeTask is what is to be written for a task; it is assumed to run there. An error with a node is that node's refusal.
func (s *Scheduler) placeTask(t *task, where engine.Placing) (one jobTask, node string, err error) {
	if !s.stands(t) {
		return one, "", errors.New("its claims have changed, and it is looked at anew")
	}
	allocations, err := s.allocate(t.ask, where)
	if err != nil {
		return one, "", err
	}
	if c := t.class(); !c.selection.stands(s.node(where.Node)) {
		c.stale = true
		return one, where.Node, errors.New(judgeAnew)
	}
	if node, err = s.admit(t.pod, where.Node); err != nil {
		return one, node, err
	}
	one = jobTask{pod: t.pod.object, node: where.Node}
	for _, c := range t.ask.have {
		one.claims = append(one.claims, jobClaim{object: c.object})
	}
	for _, c := range t.ask.open {
		one.claims = append(one.claims, jobClaim{object: c.object, allocation: allocations[c]})
	}
	return one, "", nil
}

// admit has a pod assumed on a node that takes it. An error with a node is that node's refusal.
func (s *Scheduler) admit(p *pod, on string) (node string, err error) {
	why, err := s.config.Filters.Check(s.ctx, p.object, on)
	if err == nil && why != "" {
		return on, fmt.Errorf("node %s: %s", on, why)
	}
	if err == nil {
		err = s.config.Filters.Assume(p.object, on)
	}
	if err != nil {
		return "", fmt.Errorf("it is not known whether node %s takes it: %w", on, err)
	}
	return "", nil
}

// carryOut has a job written beside the loop, and the loop hear of its outcome.
func (s *Scheduler) carryOut(j job, then func(outcome)) {
	s.spawn(func(ctx context.Context) {
		w := s.write
		out, err := w.carryOut(ctx, j)
		if err != nil {
			return // it has ended: who comes next looks at what is written
		}
		s.inbox.put(func() { then(out) })
	})
}

// written takes in what became of a workload's placing.
func (s *Scheduler) written(w *work, j job, out outcome) {
	if out.refused != nil {
		s.notWritten(w, j, out)
		return
	}
	w.state, w.roles = placed, nil
	s.step(engine.Done{At: s.at(), ID: w.action})
	if most := highest(w.pods()); most != lowestOf(w.pods()) {
		s.step(engine.Change{At: s.at(), ID: w.id, Priority: &most})
	}
	for i, t := range w.tasks {
		s.step(engine.Started{At: s.at(), ID: w.id, Task: t.index})
		if out.gone[i] {
			s.config.Filters.Forget(j[i].pod)
		} else {
			t.pod.bound = j[i].node
			s.metrics.bound.Inc()
		}
		t.claims = slices.Clone(t.ask.open)
		t.pod.carried = true
		s.charge(t.pod)
		for k, c := range t.ask.open {
			c.asked, c.writing, c.task = nil, false, t
			if !out.gone[i] {
				c.update(out.claims[i][len(t.ask.have)+k])
			}
		}
	}
	s.learn(out.left)
	for i, t := range w.tasks {
		for _, c := range t.ask.open {
			if out.gone[i] {
				s.free(c)
			}
			s.claimSettled(c)
		}
	}
	for _, t := range w.tasks {
		s.hearSaved(t.pod) // it may have said so before it was known here that it starts
	}
	for _, t := range w.tasks {
		if g := t.pod.gang; g != nil {
			s.followers(g)
			break
		}
	}
}

// notWritten takes in that a workload could not be placed: it waits on, unless one of its pods does not any more.
func (s *Scheduler) notWritten(w *work, j job, out outcome) {
	refused := out.refused
	s.metrics.refused.Inc()
	s.config.Log.Warn("a placing was undone", "workload", w.id, "error", refused)
	w.state = inLine
	for _, r := range w.roles {
		r.class.enter(s)
	}
	s.learn(out.left)
	waits := !w.anew
	var open []*claim
	for i, t := range w.tasks {
		s.config.Filters.Forget(j[i].pod)
		waits = waits && s.mine(t.pod) && s.stands(t)
		for _, c := range t.ask.open {
			c.writing = false
			open = append(open, c)
		}
	}
	if !waits {
		s.step(engine.Cancel{At: s.at(), ID: w.id, Reason: refused.Error()})
	}
	s.step(engine.Refused{At: s.at(), ID: w.action, Reason: refused.Error()})
	if !waits {
		s.dissolve(w, refused.Error())
		s.release(w)
	}
	for _, c := range open {
		s.claimSettled(c)
	}
	for _, t := range w.tasks {
		s.consider(t.pod)
	}
}

// learn takes in claims as a job left them.
func (s *Scheduler) learn(left []*resourceapi.ResourceClaim) {
	for _, object := range left {
		if c := s.claims[object.Namespace+"/"+object.Name]; c != nil {
			c.update(object)
		}
	}
}
