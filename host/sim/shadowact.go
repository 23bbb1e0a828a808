package sim

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// openAction is a proposal of the second engine that the record answers.
type openAction struct {
	id     engine.ActionID
	job    *shadowJob
	task   int // as taskIn has it
	evicts bool
}

// openStart is a start of the record that is not answered.
type openStart struct {
	job     *shadowJob
	further bool // of a replica above those that the job is sure of
}

// step tells the second engine what happened, and carries out what it decides; live is what the record's engine decided in the same step.
func (s *shadowing) step(event engine.Event, live []engine.Action) {
	s.rules.hours.Count(s.now, s.mine.Held)
	actions := s.mine.Step(event)
	if slices.ContainsFunc(actions, func(a engine.Action) bool { _, no := a.(engine.Reject); return no }) {
		s.out.Refused++
	} else {
		s.told(event)
	}
	for _, a := range actions {
		switch a := a.(type) {
		case engine.Place:
			if j := s.byMine[a.Workload]; j.further(taskIn(a)) {
				s.grow(j, a, s.match(a, live))
			} else {
				s.place(a, s.match(a, live))
			}
		case engine.Evict:
			s.evict(a, s.match(a, live))
		case engine.Resize:
			if as := s.match(a, live); as == 0 {
				s.later(s.now, func() { s.step(engine.Done{At: s.at(), ID: a.ID}, nil) })
			}
		}
	}
	s.meter.look(s, event)
}

func (s *shadowing) at() engine.At { return engine.At{At: s.now} }

// advance lets time pass.
func (s *shadowing) advance(to engine.Time) {
	s.meter.pass(to - s.now)
	s.now = to
}

// workloadIn is the workload that an action is about, and taskIn the task, of a start the first; -1: there is none.
func workloadIn(action engine.Action) string {
	switch a := action.(type) {
	case engine.Place:
		return a.Workload
	case engine.Evict:
		return a.Workload
	case engine.Resize:
		return a.Workload
	}
	return ""
}

func taskIn(action engine.Action) int {
	switch a := action.(type) {
	case engine.Place:
		for _, p := range a.Tasks {
			return p.Task
		}
	case engine.Evict:
		return a.Task
	case engine.Resize:
		return a.Task
	}
	return -1
}

// sameKind says that two actions are of one kind.
func sameKind(a, b engine.Action) bool {
	switch a.(type) {
	case engine.Place:
		_, is := b.(engine.Place)
		return is
	case engine.Evict:
		_, is := b.(engine.Evict)
		return is
	case engine.Resize:
		_, is := b.(engine.Resize)
		return is
	}
	return false
}

// match finds among the record's actions of the same step the one that a proposal of the second engine is the same as, so that the
// record answers it; 0: none. What is about a run is the same only if that run is.
func (s *shadowing) match(mine engine.Action, live []engine.Action) engine.ActionID {
	j := s.byMine[workloadIn(mine)]
	if _, starts := mine.(engine.Place); !j.together && (!starts || j.further(taskIn(mine))) {
		return 0
	}
	for _, a := range live {
		if sameKind(a, mine) && s.byLive[workloadIn(a)] == j && taskIn(a) == taskIn(mine) {
			s.same(j, mine, a.Action())
			return a.Action()
		}
	}
	return 0
}

// same notes that the record answers a proposal of the second engine.
func (s *shadowing) same(j *shadowJob, mine engine.Action, live engine.ActionID) {
	_, evicts := mine.(engine.Evict)
	s.answers[live] = openAction{mine.Action(), j, taskIn(mine), evicts}
	if a, starts := mine.(engine.Place); starts {
		if !j.further(taskIn(a)) {
			j.placing = a.ID
		}
		for _, p := range a.Tasks {
			if p.Task < len(j.tasks) {
				j.tasks[p.Task].action = a.ID
			}
		}
	}
}

// place starts a job. What the record's engine did not start in the same step starts at once.
func (s *shadowing) place(a engine.Place, live engine.ActionID) {
	j := s.byMine[a.Workload]
	j.run++
	j.placing, j.together, j.evicted, j.ending = a.ID, live != 0, false, false
	j.tasks, j.done = make([]shadowTask, len(a.Tasks)), 0
	for _, p := range a.Tasks {
		j.tasks[p.Task] = shadowTask{placing: p, action: a.ID, live: true, since: s.now}
	}
	j.mine.start(a, s.now)
	if !j.together {
		s.ofRun(j, s.now, func() { s.step(engine.Done{At: s.at(), ID: a.ID}, nil) })
		s.runs(j)
	}
}

// ofRun has something done later if the job is still in the same run then.
func (s *shadowing) ofRun(j *shadowJob, at engine.Time, do func()) {
	run := j.run
	s.later(at, func() {
		if j.run == run && len(j.tasks) > 0 {
			do()
		}
	})
}

// ofTask has something done later if the job is still in the same run then and this task of it, not another of its number, has not ended.
func (s *shadowing) ofTask(j *shadowJob, task int, at engine.Time, do func()) {
	action := j.tasks[task].action
	s.ofRun(j, at, func() {
		if t := j.tasks[task]; t.live && t.action == action {
			do()
		}
	})
}

// endsTask ends a task at a time, if it has not ended by then.
func (s *shadowing) endsTask(j *shadowJob, task int, at engine.Time) {
	s.ofTask(j, task, at, func() {
		s.step(engine.Ended{At: s.at(), ID: j.mineID, Task: task, Used: s.past.usedBy(j, task)}, nil)
	})
}

// runs has the tasks of a job start that have not, and each end once it has run for as long as it did in the record.
func (s *shadowing) runs(j *shadowJob) {
	for i := range j.tasks {
		s.runsTask(j, i)
	}
	s.expect(j)
}

// runsTask does so with one task.
func (s *shadowing) runsTask(j *shadowJob, task int) {
	end := func() {
		if long := s.past.length(j, task); long != engine.Never {
			s.endsTask(j, task, j.tasks[task].since+long)
		}
	}
	switch t := j.tasks[task]; {
	case !t.live:
	case t.started:
		end()
	default:
		s.ofTask(j, task, s.now, func() {
			if !j.tasks[task].started {
				s.step(engine.Started{At: s.at(), ID: j.mineID, Task: task}, nil)
				end()
			}
		})
	}
}

// part has a job go on without the record: what is open is done, and it runs for as long as it does.
func (s *shadowing) part(j *shadowJob) {
	j.together = false
	for _, live := range slices.SortedFunc(maps.Keys(s.answers), func(a, b engine.ActionID) int { return cmp.Compare(s.answers[a].id, s.answers[b].id) }) {
		open := s.answers[live]
		if open.job != j {
			continue
		}
		delete(s.answers, live)
		s.ofRun(j, s.now, func() { s.step(engine.Done{At: s.at(), ID: open.id}, nil) })
		switch { // it was to end with the record's
		case open.evicts && j.further(open.task):
			s.endsTask(j, open.task, s.now)
		case open.evicts:
			s.ends(j)
		}
	}
	s.runs(j)
}

// evict ends a task. What the record's engine does not end in the same step ends at once, and its job waits again.
func (s *shadowing) evict(a engine.Evict, live engine.ActionID) {
	j := s.byMine[a.Workload]
	switch {
	case a.Code == engine.EvictCancelled:
	case j.further(a.Task):
		j.mine.shrunk++
	case !j.evicted:
		j.evicted = true
		j.mine.evictions++
		if engine.ForOthers(a.Code) {
			j.disrupted = append(j.disrupted, s.now)
		}
	}
	if live != 0 {
		return
	}
	if j.together {
		s.part(j)
	}
	s.ofTask(j, a.Task, s.now, func() { s.step(engine.Done{At: s.at(), ID: a.ID}, nil) })
	s.endsTask(j, a.Task, s.now)
}

// ends ends every task of a job at once.
func (s *shadowing) ends(j *shadowJob) {
	for i := range j.tasks {
		s.endsTask(j, i, s.now)
	}
}

// ended says that nothing of a run is left.
func (j *shadowJob) ended() bool {
	return len(j.tasks) > 0 && !slices.ContainsFunc(j.tasks, func(t shadowTask) bool { return t.live })
}

// told notes what the second engine was told.
func (s *shadowing) told(event engine.Event) {
	switch e := event.(type) {
	case engine.Started:
		j := s.byMine[e.ID]
		t := &j.tasks[e.Task]
		t.started, t.since = true, s.now
		s.expect(j)
	case engine.Ended:
		s.toldEnd(s.byMine[e.ID], e.Task)
	case engine.Change:
		changeWork(&s.byMine[e.ID].work, e)
	case engine.Cancel:
		if j := s.byMine[e.ID]; len(j.tasks) == 0 {
			j.over = true
		}
	case engine.Refused:
		s.toldRefused(e.ID)
	}
}

// toldRefused has what could not start wait again, and what could not be ended run on.
func (s *shadowing) toldRefused(id engine.ActionID) {
	for _, j := range s.byMine {
		if len(j.tasks) == 0 {
			continue
		}
		if j.placing != id {
			if i := slices.IndexFunc(j.tasks, func(t shadowTask) bool { return t.action == id && t.live }); i >= 0 {
				j.mine.grown--
				s.toldEnd(j, i)
				return
			}
			continue
		}
		j.mine.refused(id)
		j.placing, j.together, j.tasks = 0, false, nil
		j.over = j.stopped
		return
	}
}

// disruptedAgo is when it was evicted for others, as the engine is told, the last times.
func (j *shadowJob) disruptedAgo(now engine.Time) (ago []engine.Time) {
	for _, at := range j.disrupted[max(0, len(j.disrupted)-api.MaxDisruptions):] {
		ago = append(ago, now-at)
	}
	return ago
}

// toldEnd notes that a task is over. What was evicted, and not together with the record's, waits again under another name once nothing is left of it.
func (s *shadowing) toldEnd(j *shadowJob, task int) {
	t := &j.tasks[task]
	if t.started {
		j.done += s.now - t.since
		if task == 0 {
			j.had += s.mine.ServedIn(&j.work, s.now-t.since)
		}
	}
	t.live = false
	s.expect(j)
	switch {
	case !j.ended():
		if j.evicted && !j.together && !j.ending {
			j.ending = true
			s.ofRun(j, s.now, func() {
				if s.mine.Known(j.mineID) {
					s.step(engine.Cancel{At: s.at(), ID: j.mineID, Reason: "another of its tasks is over"}, nil)
				}
			})
		}
	case !j.evicted || j.stopped:
		j.over = true
	case !j.together:
		s.ofRun(j, s.now, func() {
			j.tries++
			was := j.mineID
			s.again(j, j.work.ID+"+"+strconv.Itoa(j.tries))
			w := j.work
			w.ID = j.mineID
			s.step(engine.Submit{At: s.at(), Workload: w, Was: was, Served: j.had, Disrupted: j.disruptedAgo(s.now)}, nil)
		})
	}
}
