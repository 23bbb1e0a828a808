package sim

import (
	"maps"
	"slices"

	"github.com/aliquot-dev/aliquot/engine"
)

// listener follows a log and notes what its workloads did.
type listener struct {
	run    jobRun
	start  engine.Time // of the log
	trace  *Trace
	known  map[string]*heard
	inTurn []*heard
	// Of evictions: what ended by one, under the name that it had, what comes again as what, and which open eviction is whose.
	gone     map[string]*heard
	past     *past
	evicting map[engine.ActionID]*heard

	forgotten map[string]bool // classes, since they were last spoken of
}

// heard is a workload of a log.
type heard struct {
	member
	open  int                 // tasks that have not ended, without replicas above those that it is sure of
	going map[int]engine.Time // of an elastic one: since when its replicas run, by number
	did   engine.Time         // and what those did that are over

	evicted bool        // its present run is ended by the engine, not for its user
	through bool        // it ended by itself, or for its user
	safe    engine.Time // what it had saved of running in its present run
	before  engine.Time // and in those before that
	most    engine.Time // that it ran from what it had saved by then to an eviction
	saves   int
}

// runs notes that a replica of an elastic workload runs.
func (l *listener) runs(h *heard, task int) {
	if _, already := h.going[task]; already || h.job.Max <= h.job.Tasks {
		return
	}
	if h.going == nil {
		h.going = map[int]engine.Time{}
	}
	h.going[task] = l.run.now
	if task >= h.job.Tasks {
		l.run.usage = append(l.run.usage, change{l.run.now, h.job.Queue, h.replicaCompute()})
	}
}

// stops notes that one is over.
func (l *listener) stops(h *heard, task int) {
	since, ran := h.going[task]
	if !ran {
		return
	}
	h.did += l.run.now - since
	delete(h.going, task)
	if task >= h.job.Tasks {
		l.run.usage = append(l.run.usage, change{l.run.now, h.job.Queue, -h.replicaCompute()})
	}
}

// holds is what a workload that runs takes with all its replicas, in thousandths of a device.
func (l *listener) holds(h *heard) int64 {
	held := h.job.Compute()
	for task := range h.going {
		if task >= h.job.Tasks {
			held += h.replicaCompute()
		}
	}
	return held
}

// took is for how long a workload had run by a time, in its present run and without what starting again took: an elastic one as long as it takes with the replicas that it is sure of,
// for all that its replicas did.
func (l *listener) took(h *heard, at engine.Time) engine.Time {
	ran := at - h.began
	if h.job.Max > h.job.Tasks {
		ran = h.did
		for _, since := range h.going {
			ran += max(0, at-since)
		}
		ran /= engine.Time(h.job.Tasks)
	}
	return max(0, ran-(h.resumed-h.began))
}

// workloads takes in what the snapshot has: what ran comes and starts with the log.
func (l *listener) workloads(s *logSnapshot) {
	for _, w := range s.Workloads {
		if w.Of != "" { // as a trace it grows again by itself
			if h := l.known[w.Workload.ID]; h != nil && w.Tasks[0].Started {
				l.runs(h, w.First)
			}
			continue
		}
		h := l.come(w.Workload)
		for i := range w.Tasks {
			if w.Tasks[i].Node == "" {
				h.open--
			}
		}
		for i := range w.Tasks {
			h.evicted = h.evicted || w.Tasks[i].Evicting && !w.Cancelled
		}
		if len(w.Tasks) > 0 && h.open > 0 {
			l.begin(h)
			for i := range w.Tasks {
				if w.Tasks[i].Started {
					l.runs(h, i)
				}
			}
		}
	}
}

func (l *listener) hear(event engine.Event) {
	l.run.advance(max(l.run.now, event.When()-l.start))
	switch e := event.(type) {
	case engine.Submit:
		if h := l.gone[l.past.was[e.Workload.ID]]; h != nil {
			l.comeAgain(h, e.Workload)
		} else {
			l.come(e.Workload)
		}
	case engine.Done: // what ended before that ended by itself
		if h := l.evicting[e.ID]; h != nil {
			h.evicted = true
		}
	case engine.Refused:
		if h := l.evicting[e.ID]; h != nil {
			h.evicted = false
		}
	case engine.Checkpoint:
		if h := l.known[e.ID]; h != nil && h.running {
			h.saves++
			h.safe = max(h.safe, l.took(h, l.run.now-e.Ago))
		}
	case engine.Adopt:
		h := l.come(e.Workload)
		h.open = 0
		for _, task := range e.Tasks {
			if task.Task < e.Workload.AllTasks() {
				h.open++
			}
		}
		l.begin(h)
		for _, task := range e.Tasks {
			l.runs(h, task.Task)
		}
	case engine.Change:
		l.change(e)
	case engine.Started:
		if h := l.known[e.ID]; h != nil {
			if !h.running {
				l.begin(h)
			}
			l.runs(h, e.Task)
		}
	case engine.Ended:
		h := l.known[e.ID]
		if h != nil {
			l.stops(h, e.Task)
		}
		if h != nil && e.Task < h.job.AllTasks() {
			if e.Used != nil {
				h.job.Used = e.Used
			}
			l.over(h, e.ID)
		}
	case engine.Cancel:
		if h := l.known[e.ID]; h != nil && !h.running {
			l.run.wanted -= h.job.Compute()
			delete(l.known, e.ID)
		}
	}
}

func (l *listener) come(w engine.Workload) *heard {
	if h := l.known[w.ID]; h != nil { // adopted where it waited
		return h
	}
	h := &heard{member: member{job: &Job{Workload: w, Submit: l.run.now}, started: -1, busy: l.run.busy}, open: w.AllTasks()}
	l.run.wanted += h.job.Compute()
	l.known[w.ID] = h
	l.inTurn = append(l.inTurn, h)
	return h
}

// comeAgain has a workload wait again that was evicted, under another name.
func (l *listener) comeAgain(h *heard, w engine.Workload) {
	delete(l.gone, l.past.was[w.ID])
	l.known[w.ID] = h
	h.job.Share, h.job.Queue = w.Share, w.Queue
	h.open, h.evicted = w.AllTasks(), false
	l.run.wanted += h.job.Compute()
}

// decided notes that a workload is to be evicted, not for its user, or starts: what was refused then is not evicted any more.
func (l *listener) decided(action engine.Action) {
	switch a := action.(type) {
	case engine.Evict:
		if h := l.known[a.Workload]; h != nil && a.Code != engine.EvictCancelled && a.Task < h.job.AllTasks() {
			l.evicting[a.ID] = h
		}
	case engine.Place:
		if h := l.known[a.Workload]; h != nil && taskIn(a) < h.job.AllTasks() {
			h.evicted = false
		}
	}
}

func (l *listener) begin(h *heard) {
	h.running, h.began, h.resumed = true, l.run.now, l.run.now
	if h.started < 0 {
		h.started = l.run.now
	} else {
		h.resumed += h.job.Restart
	}
	l.run.usage = append(l.run.usage, change{l.run.now, h.job.Queue, h.job.Compute()})
}

// over ends a task, and the workload, or its present run, with its last one.
func (l *listener) over(h *heard, id string) {
	if h.open--; h.open > 0 {
		return
	}
	l.run.wanted -= h.job.Compute()
	delete(l.known, id)
	if h.evicted = h.evicted && (!h.job.Requeue || l.past.heir[id] != ""); h.evicted { // else it was through before it could be ended
		l.gone[id] = h
	}
	if !h.running {
		return
	}
	h.running = false
	took := l.took(h, l.run.now)
	for _, task := range slices.Sorted(maps.Keys(h.going)) { // which end with it
		l.stops(h, task)
	}
	l.run.usage = append(l.run.usage, change{l.run.now, h.job.Queue, -h.job.Compute()})
	again := min(l.run.now, h.resumed) - h.began
	l.run.lost.Restart += float64(again) * float64(h.job.Compute()) / 1e9
	if !h.evicted {
		h.through = true
		h.job.Duration = max(1, h.before+took)
		l.run.end(&h.member)
		return
	}
	l.run.out.Preemptions++
	l.run.lost.Work += float64(max(0, took-h.safe)) * float64(h.job.Compute()) / 1e9
	h.most = max(h.most, h.before+took)
	h.before += h.safe
	h.safe, h.did = 0, 0
}

// finish says of a job that started how long it runs, where it did not end, and what evictions cost it: what its host puts back into the line begins anew, but for what
// it saves. How often it does that is known of one that did.
func (l *listener) finish(h *heard) {
	if h.running {
		h.most = max(h.most, h.before+l.took(h, l.run.now))
	}
	if !h.through {
		h.job.Duration = max(1, h.most)
	}
	if h.job.Requeue {
		h.job.Checkpoint = NeverSaves
		if h.saves > 0 {
			h.job.Checkpoint = max(1, h.job.Duration/engine.Time(h.saves+1))
		}
	}
}

// change gives a workload another share, priority or queue; what might have been is run with the last share and queue, and with the first priority until
// it was changed and the last one after that.
func (l *listener) change(e engine.Change) {
	h := l.known[e.ID]
	if h == nil {
		return
	}
	before, held, queue := h.job.Compute(), l.holds(h), h.job.Queue
	if e.Share != nil {
		h.job.Share = *e.Share
	}
	if e.Priority != nil {
		if h.job.PriorityUntil == 0 { // max: at the very beginning it is no date
			h.job.PriorityUntil = max(1, l.run.now)
		}
		h.job.PriorityAfter = *e.Priority
	}
	if e.Queue != nil {
		h.job.Queue = *e.Queue
	}
	l.run.wanted += h.job.Compute() - before
	if h.running {
		l.run.usage = append(l.run.usage, change{l.run.now, queue, -held}, change{l.run.now, h.job.Queue, l.holds(h)})
	}
}
