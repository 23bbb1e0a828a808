package sim

import (
	"fmt"
	"strconv"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

func (r *jobRun) arrive(j *Job, index int) error {
	if j.Duration <= 0 {
		return fmt.Errorf("job %s never ends: give it a duration", j.ID)
	}
	if r.rules != nil {
		whole := j.Duration
		if j = r.rules.bounded(j); j.Duration < whole {
			r.out.TimedOut++
		}
	}
	if r.byID[j.ID] != nil {
		return fmt.Errorf("there are two jobs %s at once: give each an ID of its own", j.ID)
	}
	m := &member{job: j, index: index, id: j.ID, left: j.Duration, started: -1, busy: r.busy, kept: engine.Never}
	r.toCome--
	r.awaitDate(m)
	if !r.order.chooses() {
		if r.fitsFleet(m) {
			r.want(m)
		} else {
			r.aside = append(r.aside, m)
		}
		return r.submit(m)
	}
	r.byID[m.id] = m // under none of the engine's IDs yet: keeps it among those that have not ended
	r.lineUp(m)
	return nil
}

// submit hands a job to the engine under an ID of its own.
func (r *jobRun) submit(m *member) error {
	delete(r.byID, m.id)
	w, was := m.job.Workload, ""
	w.Priority = m.job.PriorityAt(r.now)
	if m.starts++; m.starts > 1 {
		w.ID += "~" + strconv.Itoa(m.starts)
		was = m.id
	}
	if r.order != Fair {
		w.Queue = ""
	}
	if r.order.chooses() || r.beside != nil { // it counts what it starts by itself; what shares devices has a speed by these
		w.Max = 0
	}
	m.id = w.ID
	r.byID[m.id] = m
	submit := engine.Submit{At: engine.At{At: r.now}, Was: was}
	for _, at := range m.disrupted {
		submit.Disrupted = append(submit.Disrupted, r.now-at)
	}
	submit.Served = r.engine.ServedIn(&w, m.ran)
	if r.order == Served || r.order == Held { // what comes again is as old as it is
		submit.Waited = r.now - m.job.Submit
	}
	w.Requeue = w.Preemptible // as evict has it
	submit.Workload = w
	return r.step(submit)
}

// stop ends a job that runs, which goes on later.
func (r *jobRun) stop(m *member) error {
	r.stopping = true
	defer func() { r.stopping = false }()
	return r.step(engine.Cancel{At: engine.At{At: r.now}, ID: m.id, Reason: "another job comes first"})
}

// step feeds the engine an event and carries out what it proposes.
func (r *jobRun) step(event engine.Event) error {
	if r.rules != nil {
		r.rules.hours.Count(r.now, r.engine.Held)
	}
	r.told++
	r.pieces.event(event)
	r.energy.event(event, r.now)
	actions := r.engine.Step(event)
	if r.log != nil {
		if err := r.log.Append(event, actions); err != nil {
			return err
		}
	}
	for _, a := range actions {
		var err error
		switch a := a.(type) {
		case engine.Place:
			if m := r.byID[a.Workload]; m != nil {
				r.pieces.place(m.job, a, r.now)
			}
			r.energy.place(a, r.now)
			err = r.start(a)
		case engine.Evict:
			err = r.evict(a)
		case engine.Reject:
			if s, ok := event.(engine.Submit); ok {
				r.refused(r.byID[s.Workload.ID], a)
				continue
			}
			err = fmt.Errorf("the engine rejects an event of the trace: %s", a.Reason)
		default:
			err = fmt.Errorf("the simulator does not carry out %T: action %d", a, a.Action())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *jobRun) start(a engine.Place) error {
	m := r.byID[a.Workload]
	if m == nil {
		return fmt.Errorf("the engine places workload %s, which is not in the trace", a.Workload)
	}
	if m.running {
		return r.grow(m, a)
	}
	r.want(m)
	r.begin(m)
	r.expect(m)
	r.occupy(m, a.Tasks)
	r.usage = append(r.usage, change{r.now, m.job.Queue, m.job.Compute()})
	at := engine.At{At: r.now}
	if err := r.step(engine.Done{At: at, ID: a.ID}); err != nil {
		return err
	}
	for _, t := range a.Tasks {
		if err := r.step(engine.Started{At: at, ID: a.Workload, Task: t.Task}); err != nil {
			return err
		}
	}
	return nil
}

// evict ends a task at once. When the first task of a job goes, the others go, too, and the job waits again with what it has left.
func (r *jobRun) evict(a engine.Evict) error {
	m := r.byID[a.Workload]
	if m == nil {
		return fmt.Errorf("the engine evicts workload %s, which does not run", a.Workload)
	}
	if m.running && a.Task >= m.job.AllTasks() {
		return r.shrink(m, a)
	}
	first := m.running
	if first {
		m.settle(r.now)
		if err := r.lose(m); err != nil {
			return err
		}
		r.release(m)
		m.more = nil
		r.out.Preemptions++
		if engine.ForOthers(a.Code) {
			m.disrupted = append(m.disrupted[max(0, len(m.disrupted)+1-api.MaxDisruptions):], r.now)
		}
	}
	at := engine.At{At: r.now}
	if err := r.step(engine.Done{At: at, ID: a.ID}); err != nil {
		return err
	}
	if err := r.step(engine.Ended{At: at, ID: a.Workload, Task: a.Task, Used: r.usedBy(m)}); err != nil {
		return err
	}
	if first && !r.stopping && r.engine.Known(a.Workload) {
		return r.step(engine.Cancel{At: at, ID: a.Workload, Reason: "another of its tasks is over"})
	}
	switch {
	case r.stopping || r.engine.Known(a.Workload):
		return nil
	case r.order.chooses():
		return r.queueUp([]*member{m}, nil)
	}
	return r.submit(m)
}
