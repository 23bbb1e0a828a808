package sim

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/aliquot-dev/aliquot/engine"
)

// AsRecorded is the order of what a log says was, beside runs of what might have been.
const AsRecorded Order = "recorded"

// Recording is what an event log has: a day of a server, as it was and as a trace.
type Recording struct {
	Trace *Trace      // the jobs that started; those that still ran at the end of the log as long as they had run
	Was   *JobResult  // of the jobs that started and ended
	Start engine.Time // of the log, from which the trace counts
	Steps int
	// Differs is where this engine decides otherwise than the one that wrote the log, nil: nowhere.
	Differs *engine.DiffError
	Left    int // jobs that never started, and are in neither
}

// ReadLog reads an event log of a server, after holding every decision of the engine against those in it. A torn last record is passed over.
func ReadLog(path string) (*Recording, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the path is the user's own word
	if err != nil {
		return nil, fmt.Errorf("read the event log: %w", err)
	}
	out := &Recording{}
	replayed, err := engine.Replay(bytes.NewReader(text))
	switch {
	case errors.As(err, &out.Differs):
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	default:
		text = text[:replayed.Length]
		out.Steps = replayed.Steps
	}
	record, err := readRecords(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	snapshot, err := record.state()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	out.listen(snapshot, record.taken())
	return out, nil
}

// listener follows a log and notes what its workloads did.
type listener struct {
	run    jobRun
	start  engine.Time // of the log
	trace  *Trace
	known  map[string]*heard
	inTurn []*heard

	forgotten map[string]bool // classes, since they were last spoken of
}

// heard is a workload of a log.
type heard struct {
	member
	open  int                 // tasks that have not ended, without replicas above those that it is sure of
	going map[int]engine.Time // of an elastic one: since when its replicas run, by number
	did   engine.Time         // and what those did that are over
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

// took is for how long a workload has run: an elastic one as long as it takes with the replicas that it is sure of, for all that its replicas did.
func (l *listener) took(h *heard) engine.Time {
	if h.job.Max <= h.job.Tasks {
		return max(1, l.run.now-h.started)
	}
	did := h.did
	for _, since := range h.going {
		did += l.run.now - since
	}
	return max(1, did/engine.Time(h.job.Tasks))
}

// listen makes the trace and the figures of a log.
func (o *Recording) listen(snapshot *logSnapshot, events []engine.Event) {
	l := listener{trace: &Trace{}, known: map[string]*heard{}, forgotten: map[string]bool{}, start: snapshot.Now}
	if len(events) > 0 {
		l.start = max(l.start, events[0].When())
	}
	o.Start = l.start
	l.state(snapshot)
	for _, event := range events {
		l.setting(event)
	}
	l.run = jobRun{order: AsRecorded, capacity: l.trace.Capacity(), running: map[*member]bool{}}
	l.workloads(snapshot)
	for _, event := range events {
		l.hear(event)
	}
	for _, h := range l.inTurn {
		if h.started < 0 {
			o.Left++
			continue
		}
		if h.running {
			h.job.Duration = l.took(h)
		}
		l.trace.Jobs = append(l.trace.Jobs, *h.job)
	}
	o.Trace = l.trace // in the order of coming, as the log is
	if len(l.trace.Jobs) > 0 {
		l.run.figures(l.trace.Jobs[0].Submit)
	}
	o.Was = &l.run.out
	o.Was.Order, o.Was.Policy = AsRecorded, "as it was"
}

// state takes in nodes, classes, queues, pools and the order of the snapshot.
func (l *listener) state(s *logSnapshot) {
	for _, n := range s.Fleet.Nodes {
		if n.Gone {
			continue
		}
		set := engine.NodeSet{Node: n.Name, Domains: n.Domains}
		for _, d := range n.Devices {
			if !d.Gone {
				set.Devices = append(set.Devices, engine.Device{UUID: d.UUID, Index: d.Index, Model: d.Model, Memory: d.Memory, Health: d.Health, Reason: d.Reason, Traits: d.Traits, Link: d.Link, NUMA: d.NUMA})
			}
		}
		for _, r := range n.Resources {
			set.Resources = append(set.Resources, engine.Resource(r))
		}
		l.trace.Nodes = append(l.trace.Nodes, set)
	}
	for _, c := range s.Fleet.Classes {
		f := engine.Feasibility{Class: c.Name, Prefer: c.Prefer}
		for _, said := range c.Said {
			if said.Allowed {
				f.Allowed = append(f.Allowed, said.Node)
			} else {
				f.Barred = append(f.Barred, engine.NodeReason{Node: said.Node, Code: said.Code})
			}
		}
		l.trace.Classes = append(l.trace.Classes, f)
	}
	l.trace.Queues = s.Queues
	if p := s.Policy; p.OneLine || p.Predicted || p.HalfLife != 0 || len(p.Pools) > 0 { // of the window that held, until the next; the run has a placement of its own
		l.trace.Events = append(l.trace.Events, engine.PolicySet{Policy: engine.Policy{Window: p.Window, OneLine: p.OneLine, Predicted: p.Predicted, HalfLife: p.HalfLife, Pools: p.Pools}})
	}
}

// setting keeps what happened to nodes and queues, for what might have been is run among the same.
func (l *listener) setting(event engine.Event) {
	at := engine.At{At: max(0, event.When()-l.start)}
	switch e := event.(type) {
	case engine.NodeSet:
		e.At = at
		event = e
	case engine.NodeGone:
		e.At = at
		event = e
	case engine.DeviceHealth:
		e.At = at
		event = e
	case engine.QueueSet:
		e.At = at
		event = e
	case engine.PolicySet:
		e.At = at
		e.Policy.Placement = nil // the run has one of its own
		event = e
	case engine.Feasibility:
		if l.forgotten[e.Class] { // no sooner, for in the run its work may come at other times
			// All at once, for one that is not forgotten keeps those that it prefers.
			l.trace.Events = append(l.trace.Events, engine.FeasibilityGone{At: at, Classes: slices.Sorted(maps.Keys(l.forgotten))})
			clear(l.forgotten)
		}
		e.At = at
		event = e
	case engine.FeasibilityGone:
		for _, class := range e.Classes {
			l.forgotten[class] = true
		}
		return
	default:
		return
	}
	l.trace.Events = append(l.trace.Events, event)
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
		l.come(e.Workload)
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
			l.over(e.ID)
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

func (l *listener) begin(h *heard) {
	h.running, h.started = true, l.run.now
	l.run.usage = append(l.run.usage, change{l.run.now, h.job.Queue, h.job.Compute()})
}

// over ends a task, and the workload with its last one.
func (l *listener) over(id string) {
	h := l.known[id]
	if h.open--; h.open > 0 {
		return
	}
	l.run.wanted -= h.job.Compute()
	delete(l.known, id)
	if h.started < 0 {
		return
	}
	h.running = false
	h.job.Duration = l.took(h)
	for _, task := range slices.Sorted(maps.Keys(h.going)) { // which end with it
		l.stops(h, task)
	}
	l.run.usage = append(l.run.usage, change{l.run.now, h.job.Queue, -h.job.Compute()})
	l.run.end(&h.member)
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
