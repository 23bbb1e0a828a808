package sim

import (
	"slices"

	"github.com/aliquot-dev/aliquot/engine"
)

// An elastic job that is the same in both has the replicas of the record. Once it has another one more or less with the candidate it goes on by itself:
// it ends when its replicas have been there for as long together as they were in the record, or at their time limit. So it is where replicas
// share work evenly and lose nothing by changes, as the simulator has it of its own jobs (elastic.go).

// elastic says that a job may have more replicas than it is sure of.
func (j *shadowJob) elastic() bool { return j.work.Max > j.work.Tasks }

// further says that a task is a replica above those that its job is sure of.
func (j *shadowJob) further(task int) bool { return task >= j.work.AllTasks() }

// setTask has a task of this number.
func (j *shadowJob) setTask(number int, t shadowTask) {
	if missing := number + 1 - len(j.tasks); missing > 0 {
		j.tasks = append(j.tasks, make([]shadowTask, missing)...)
	}
	j.tasks[number] = t
}

// grow starts one more replica of a job that runs. What the record's engine did not start in the same step starts at once.
func (s *shadowing) grow(j *shadowJob, a engine.Place, live engine.ActionID) {
	p := a.Tasks[0]
	j.setTask(p.Task, shadowTask{placing: p, action: a.ID, live: true, since: s.now})
	j.mine.grown++
	if live != 0 {
		return
	}
	s.ofTask(j, p.Task, s.now, func() { s.step(engine.Done{At: s.at(), ID: a.ID}, nil) })
	if j.together {
		s.part(j)
		return
	}
	s.runsTask(j, p.Task)
}

// heardGrowth notes that a job of the record got one more replica, or gives one back. Where the second engine does not do so in the same step, its
// job goes on by itself.
func (s *shadowing) heardGrowth(j *shadowJob, action engine.ActionID) {
	if _, same := s.answers[action]; j.together && !same {
		s.part(j)
	}
}

// expect has an elastic job that goes on by itself end when its replicas have done as much together as in the record, as many as there are now.
func (s *shadowing) expect(j *shadowJob) {
	work := s.past.workOf(j)
	if j.together || !j.elastic() || work == engine.Never {
		return
	}
	left, going := work-j.done, engine.Time(0)
	for _, t := range j.tasks {
		if t.live && t.started {
			left -= s.now - t.since
			going++
		}
	}
	j.pace++
	if going == 0 {
		return
	}
	pace := j.pace
	s.ofRun(j, s.now+(max(0, left)+going-1)/going, func() {
		if j.pace == pace {
			s.through(j)
		}
	})
}

// through ends the replicas of a job that has done its work, those first that it was not sure of.
func (s *shadowing) through(j *shadowJob) {
	for i := range slices.Backward(j.tasks) {
		if i < len(j.tasks) && j.tasks[i].live && j.tasks[i].started {
			s.step(engine.Ended{At: s.at(), ID: j.mineID, Task: i, Used: s.past.usedBy(j, i)}, nil)
		}
	}
}

// did notes what an elastic workload's replica did that is over, and with the last one how much all did together, if that is its work.
func (r *liveRun) did(p *past, task int, long engine.Time, byItself bool) {
	if r.work.Max <= r.work.Tasks {
		return
	}
	r.done += long
	r.limited = r.limited || byItself && r.work.TimeLimit > 0 && long >= r.work.TimeLimit && task < r.work.AllTasks()
	if len(r.started) == 0 && byItself && !r.limited {
		p.work[r.work.ID] = r.done
	}
}

// workOf is for how long the replicas of an elastic workload run together, by the last of its runs that ended by itself; Never: that is not known.
func (p *past) workOf(j *shadowJob) engine.Time {
	for id := p.last(j); id != ""; id = p.was[id] {
		if work, ok := p.work[id]; ok {
			return work
		}
	}
	return engine.Never
}
