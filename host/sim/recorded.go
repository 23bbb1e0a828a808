package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/aliquot-dev/aliquot/engine"
)

// AsRecorded is the order of what a log says was, beside runs of what might have been.
const AsRecorded Order = "recorded"

// Recording is what an event log has: a day of a server, as it was and as a trace.
type Recording struct {
	// Trace has the jobs that started, each once however often it was evicted and came again: as long as it ran in the end, from what it had saved by then. Those that
	// still ran at the end of the log, or were evicted and never ran again, run as long as they had.
	Trace *Trace
	Was   *JobResult  // of the jobs that started and ended, not by an eviction
	Start engine.Time // of the log, from which the trace counts
	Steps int
	// Differs is where this engine decides otherwise than the one that wrote the log, nil: nowhere.
	Differs *engine.DiffError
	Left    int // jobs that never started, and are in neither
}

// ReadLog reads an event log of a server, or of a folder of such the files from the last start of the server on, after holding every decision of the
// engine against those in it. A torn last record is passed over.
func ReadLog(path string) (*Recording, error) {
	record, err := openRecord(path)
	if err != nil {
		return nil, err
	}
	out := &Recording{Differs: record.differs}
	if out.Differs == nil {
		out.Steps = len(record.steps)
	}
	snapshot, err := record.state()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	out.listen(snapshot, record.taken())
	return out, nil
}

// listen makes the trace and the figures of a log.
func (o *Recording) listen(snapshot *logSnapshot, steps []recordedStep) {
	l := listener{trace: &Trace{}, known: map[string]*heard{}, forgotten: map[string]bool{}, start: snapshot.Now}
	l.gone, l.past, l.evicting = map[string]*heard{}, pastOf(steps, snapshot), map[engine.ActionID]*heard{}
	if len(steps) > 0 {
		l.start = max(l.start, steps[0].event.When())
	}
	o.Start = l.start
	l.state(snapshot)
	for i := range steps {
		l.setting(steps[i].event)
	}
	l.run = jobRun{order: AsRecorded, capacity: l.trace.Capacity(), running: map[*member]bool{}, lost: &LostResult{}}
	l.workloads(snapshot)
	for i := range steps {
		l.hear(steps[i].event)
		for _, a := range steps[i].actions {
			l.decided(a)
		}
	}
	for _, h := range l.inTurn {
		if h.started < 0 {
			o.Left++
			continue
		}
		l.finish(h)
		l.trace.Jobs = append(l.trace.Jobs, *h.job)
	}
	if !l.trace.keepsAccount() {
		l.run.lost = nil
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
