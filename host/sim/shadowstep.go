package sim

import (
	"slices"
	"strconv"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// follow takes a step of the record again, and tells the second engine what of it is true there, too.
func (s *shadowing) follow(step *recordedStep) {
	s.live.Step(step.event)
	if step.rejected() {
		return
	}
	s.heardEvent(step.event)
	if event := s.translate(step.event); event != nil {
		s.step(event, step.actions)
	}
	for _, a := range step.actions {
		s.heardAction(a)
	}
	s.meter.look(s, step.event)
}

// heardEvent notes what an event of the record says of the record's own run.
func (s *shadowing) heardEvent(event engine.Event) {
	switch e := event.(type) {
	case engine.Done:
		delete(s.starts, e.ID)
	case engine.Refused:
		open, ok := s.answers[e.ID]
		start, starts := s.starts[e.ID]
		delete(s.starts, e.ID)
		switch {
		case starts && start.further:
			start.job.live.grown--
		case starts:
			start.job.live.refused(e.ID)
		case ok && open.evicts && open.job.further(open.task):
			open.job.live.shrunk--
		case ok && open.evicts:
			open.job.liveEvicted = false
		}
	}
}

// heardAction notes what the record's engine decided. Where the second one did not end what it ended, that runs on by itself.
func (s *shadowing) heardAction(action engine.Action) {
	switch a := action.(type) {
	case engine.Place:
		j := s.byLive[a.Workload]
		further := j.further(taskIn(a))
		s.starts[a.ID] = openStart{j, further}
		if further {
			j.live.grown++
			s.heardGrowth(j, a.ID)
			return
		}
		j.live.start(a, s.now)
		j.liveEvicted = false
	case engine.Evict:
		j := s.byLive[a.Workload]
		if a.Code == engine.EvictCancelled {
			return
		}
		if j.further(a.Task) {
			j.live.shrunk++
			s.heardGrowth(j, a.ID)
			return
		}
		if !j.liveEvicted {
			j.liveEvicted = true
			j.live.evictions++
		}
		if j.together && !j.evicted {
			s.part(j)
		}
	}
}

// translate is what an event of the record is to the second engine; nil: nothing.
func (s *shadowing) translate(event engine.Event) engine.Event {
	switch e := event.(type) {
	case engine.QueueSet, engine.PolicySet:
		return s.rules.under(event)
	case engine.QueueGone:
		s.rules.own = slices.DeleteFunc(slices.Clone(s.rules.own), func(q api.QueueSpec) bool { return q.Name == e.Queue })
		return unless(s.rules.Policy.Names(e.Queue), event)
	case engine.Usage:
		return s.usage(e)
	case engine.Submit:
		return s.submitted(e)
	case engine.Adopt:
		s.adopted(e)
	case engine.Change:
		j := s.byLive[e.ID]
		e.ID = j.mineID
		return unless(!s.mine.Known(e.ID), e)
	case engine.Checkpoint:
		j := s.byLive[e.ID]
		e.ID = j.mineID
		return unless(len(j.tasks) == 0 || j.ended(), e)
	case engine.Cancel:
		return s.cancelled(e)
	case engine.Started:
		j := s.byLive[e.ID]
		e.ID = j.mineID
		return unless(!j.together, e)
	case engine.Ended:
		j := s.byLive[e.ID]
		e.ID = j.mineID
		return unless(!j.together, e)
	case engine.Shrunk: // it may be on other devices, and holds all until it ends
		return nil
	case engine.Done:
		open, ok := s.answers[e.ID]
		delete(s.answers, e.ID)
		e.ID = open.id
		return unless(!ok, e)
	case engine.Refused:
		return s.refused(e)
	}
	return event
}

// unless is an event, or nothing.
func unless(nothing bool, event engine.Event) engine.Event {
	if nothing {
		return nil
	}
	return event
}

// come notes a job that is new, under one name in both.
func (s *shadowing) come(w engine.Workload, at engine.Time) *shadowJob {
	j := &shadowJob{work: w, liveID: w.ID, mineID: w.ID, came: at, live: fate{placed: -1}, mine: fate{placed: -1}}
	s.found = append(s.found, j)
	s.byLive[w.ID], s.byMine[w.ID] = j, j
	return j
}

// submitted is a workload that comes, or comes again after its eviction: that is nothing to the second engine if it was not evicted there.
func (s *shadowing) submitted(e engine.Submit) engine.Event {
	j := s.byLive[s.past.was[e.Workload.ID]]
	if j == nil {
		j = s.come(e.Workload, e.At.At-e.Waited)
		j.had = e.Served
		for _, ago := range e.Disrupted {
			j.disrupted = append(j.disrupted, e.At.At-ago)
		}
		return e
	}
	delete(s.byLive, j.liveID)
	j.liveID, j.liveEvicted = e.Workload.ID, false
	s.byLive[j.liveID] = j
	if !j.together || !j.evicted || !j.ended() {
		return nil
	}
	if e.Was != "" {
		e.Was = j.mineID
	}
	s.again(j, j.liveID)
	return e
}

// again has a job wait again under another name.
func (s *shadowing) again(j *shadowJob, id string) {
	delete(s.byMine, j.mineID)
	j.mineID, j.together, j.evicted, j.ending, j.tasks = id, false, false, false, nil
	s.byMine[id] = j
}

// adopted is a workload that a host tells of which runs already.
func (s *shadowing) adopted(e engine.Adopt) {
	j := s.byLive[e.Workload.ID]
	if j == nil {
		j = s.come(e.Workload, e.At.At-e.Ran)
	}
	j.ran, j.together = true, true
	j.tasks, j.done = make([]shadowTask, e.Workload.AllTasks()), 0
	for _, p := range e.Tasks {
		j.setTask(p.Task, shadowTask{placing: p, live: true, started: true, since: e.At.At - e.Ran})
	}
}

// cancelled is that a job's user ends it, or its host the rest of one that was evicted: that is nothing to the second engine if it was not evicted there.
func (s *shadowing) cancelled(e engine.Cancel) engine.Event {
	j := s.byLive[e.ID]
	e.ID = j.mineID
	if j.liveEvicted && !j.together {
		return nil
	}
	j.stopped = j.stopped || !j.liveEvicted
	return unless(!s.mine.Known(e.ID), e)
}

// usage is what grants hold, by the second engine's names of them; of what runs there and not in the record, nothing is known.
func (s *shadowing) usage(e engine.Usage) engine.Event {
	told := engine.Usage{At: e.At}
	for _, g := range e.Grants {
		name, _, _ := cutLast(g.UID, "-")
		rest, n, ok := cutLast(name, ".")
		id, task, more := cutLast(rest, ".")
		j := s.byLive[id]
		t, wrong := strconv.Atoi(task)
		k, no := strconv.Atoi(n)
		switch {
		case !ok || !more || wrong != nil || no != nil || j == nil:
			told.Grants = append(told.Grants, g) // adopted under a name of its host's
		case t < len(j.tasks) && j.tasks[t].live && k < len(j.tasks[t].placing.Grants):
			told.Grants = append(told.Grants, engine.GrantUsage{UID: j.tasks[t].placing.Grants[k].UID, Memory: g.Memory})
		}
	}
	return told
}

// cutLast cuts a text at the last of what separates it.
func cutLast(text, at string) (before, after string, found bool) {
	i := strings.LastIndex(text, at)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(at):], true
}

// refused is what a host could not do. What the second engine wanted to start on other nodes than the one that is to blame is done there.
func (s *shadowing) refused(e engine.Refused) engine.Event {
	open, ok := s.answers[e.ID]
	if !ok {
		return nil
	}
	j := open.job
	on := func(t shadowTask) bool { return t.action == open.id && t.placing.Node == e.Node }
	starts := func(t shadowTask) bool { return t.action == open.id }
	if e.Node != "" && slices.ContainsFunc(j.tasks, starts) && !slices.ContainsFunc(j.tasks, on) {
		s.part(j)
		return nil
	}
	switch {
	case open.evicts && j.further(open.task):
		j.mine.shrunk--
	case open.evicts:
		j.evicted = false
	}
	delete(s.answers, e.ID)
	e.ID = open.id
	return e
}
