package sim

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/aliquot-dev/aliquot/engine"
)

// openAction is a proposal of the second engine that the record answers.
type openAction struct {
	id     engine.ActionID
	job    *shadowJob
	evicts bool
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
			s.place(a, s.match(a, live))
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

// workloadIn is the workload that an action is about, and taskIn the task; -1: all of it.
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
	if _, begins := mine.(engine.Place); !begins && !j.together {
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
	s.answers[live] = openAction{mine.Action(), j, evicts}
	if _, starts := mine.(engine.Place); starts {
		j.placing = mine.Action()
	}
}

// place starts a job. What the record's engine did not start in the same step starts at once.
func (s *shadowing) place(a engine.Place, live engine.ActionID) {
	j := s.byMine[a.Workload]
	j.run++
	j.placing, j.together, j.evicted, j.ending = a.ID, live != 0, false, false
	j.tasks = make([]shadowTask, len(a.Tasks))
	for _, p := range a.Tasks {
		j.tasks[p.Task] = shadowTask{placing: p, live: true, since: s.now}
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

// runs has the tasks of a job start that have not, and each end once it has run for as long as it did in the record.
func (s *shadowing) runs(j *shadowJob) {
	for i := range j.tasks {
		t := &j.tasks[i]
		long := s.past.length(j, i)
		end := func(since engine.Time) {
			if long == engine.Never {
				return
			}
			s.ofRun(j, since+long, func() {
				if t.live {
					s.step(engine.Ended{At: s.at(), ID: j.mineID, Task: i, Used: s.past.usedBy(j, i)}, nil)
				}
			})
		}
		switch {
		case !t.live:
		case t.started:
			end(t.since)
		default:
			s.ofRun(j, s.now, func() {
				if t.live && !t.started {
					s.step(engine.Started{At: s.at(), ID: j.mineID, Task: i}, nil)
					end(s.now)
				}
			})
		}
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
		if open.evicts { // it was to end with the record's
			s.ends(j)
		}
	}
	s.runs(j)
}

// evict ends a task. What the record's engine does not end in the same step ends at once, and its job waits again.
func (s *shadowing) evict(a engine.Evict, live engine.ActionID) {
	j := s.byMine[a.Workload]
	if a.Code != engine.EvictCancelled && !j.evicted {
		j.evicted = true
		j.mine.evictions++
	}
	if live != 0 {
		return
	}
	if j.together {
		s.part(j)
	}
	s.ofRun(j, s.now, func() { s.step(engine.Done{At: s.at(), ID: a.ID}, nil) })
	s.ofRun(j, s.now, func() {
		if j.tasks[a.Task].live {
			s.step(engine.Ended{At: s.at(), ID: a.Workload, Task: a.Task, Used: s.past.usedBy(j, a.Task)}, nil)
		}
	})
}

// ends ends every task of a job at once.
func (s *shadowing) ends(j *shadowJob) {
	for i := range j.tasks {
		s.ofRun(j, s.now, func() {
			if j.tasks[i].live {
				s.step(engine.Ended{At: s.at(), ID: j.mineID, Task: i, Used: s.past.usedBy(j, i)}, nil)
			}
		})
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
		t := &s.byMine[e.ID].tasks[e.Task]
		t.started, t.since = true, s.now
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
		if j.placing != id || len(j.tasks) == 0 {
			continue
		}
		j.mine.refused(id)
		j.placing, j.together, j.tasks = 0, false, nil
		j.over = j.stopped
		return
	}
}

// toldEnd notes that a task is over. What was evicted, and not together with the record's, waits again under another name once nothing is left of it.
func (s *shadowing) toldEnd(j *shadowJob, task int) {
	j.tasks[task].live = false
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
			s.step(engine.Submit{At: s.at(), Workload: w, Was: was}, nil)
		})
	}
}
