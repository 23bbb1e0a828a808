// Package policy reads policy files: who may hold how much, in which order and where, by day, by night and at weekends. What comes in is
// text that a person wrote; what goes out is what is wrong with it, in one sentence with its place, or a Policy, which says of any
// moment which of its windows holds, until when, and what the engine is to be told.
//
// A window is given in the local time of a zone. Here alone are clocks and zones known: the engine is told what holds from now on, and
// never why. The package reads no clock; the moment comes in.
package policy

import (
	"time"
	_ "time/tzdata" // a server need not have the zones installed

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// Policy is what a policy file says.
type Policy struct {
	Name string // of the file, for errors
	Zone string // of windows that name none
	Settings
	Windows []*Window // in the order of the file; no two hold at once
	Models  []string  // that it names, as it does
	Nodes   []string  // that its pools name
	text    string    // of the file
}

// Settings are what holds, always or in a window.
type Settings struct {
	Queues    []*Queue      // in the order of the file
	Pools     []*Pool       // in the order of the file: a device is in the first that it matches
	OneLine   *bool         // of the queues that are under none; nil: not said
	Predicted *bool         // preemptible work is let in before the first in line by predictions; nil: not said
	HalfLife  api.Duration  // after which use counts half; 0: not said
	Placement *place.Policy // nil: not said
	placed    int           // its line
	// Defragment is whether work is moved so that devices come free; nil: not said.
	Defragment *Defragment
}

// Queue is what is said of a queue. What is not said stays as it is.
type Queue struct {
	Name    string
	Line    int // of the file, from 1
	changes []change
}

// change is one word of a queue's line.
type change struct {
	key, value string
	more       []string // words that belong to it
	apply      func(*api.QueueSpec)
}

// Window is a time that comes again each week, and what holds in it beside what always does, and before it.
type Window struct {
	Name string
	Line int
	Settings
	zone  *time.Location
	spans []span
	when  string // as it was written
}

// Zone is the name of the zone whose local time the window is given in.
func (w *Window) Zone() string { return w.zone.String() }

// When is the time of the window, as it was written.
func (w *Window) When() string { return w.when }

// Names says whether anything is said of a queue.
func (p *Policy) Names(queue string) bool {
	for _, q := range p.Queues { // a window only says more of these
		if q.Name == queue {
			return true
		}
	}
	return false
}

// During is what the engine is to be told when a window begins, nil: when none holds, of a server whose queues by themselves are own: each
// queue of these and of the policy, whole.
func (p *Policy) During(w *Window, own []api.QueueSpec) engine.Policy {
	out := engine.Policy{Queues: queuesUnder(own, p.Queues)}
	all := []*Settings{&p.Settings}
	if w != nil {
		out.Window = w.Name
		out.Queues = queuesUnder(out.Queues, w.Queues)
		all = append(all, &w.Settings)
	}
	out.Pools = poolsIn(all)
	for _, s := range all {
		if s.OneLine != nil {
			out.OneLine = *s.OneLine
		}
		if s.Predicted != nil {
			out.Predicted = *s.Predicted
		}
		if s.HalfLife != 0 {
			out.HalfLife = engine.Time(s.HalfLife / 1000)
		}
		if s.Placement != nil {
			out.Placement = s.Placement
		}
		if s.Defragment != nil {
			out.Defragment = s.Defragment.rule
		}
	}
	return out
}

// queuesUnder are queues with what is said of them. Those that are new come last.
func queuesUnder(own []api.QueueSpec, said []*Queue) []api.QueueSpec {
	out := make([]api.QueueSpec, len(own), len(own)+len(said))
	at := make(map[string]int, len(own))
	for i, spec := range own {
		out[i], at[spec.Name] = spec, i
	}
	for _, q := range said {
		i, known := at[q.Name]
		if !known {
			i, at[q.Name] = len(out), len(out)
			out = append(out, api.QueueSpec{Name: q.Name, Quota: api.Unlimited})
		}
		for _, c := range q.changes {
			c.apply(&out[i])
		}
	}
	return out
}
