package sim

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/aliquot-dev/aliquot/engine"
)

// outage is a node's being away for a while.
type outage struct {
	node string
	at   engine.Time
	long engine.Time
}

// Fail lets every node of a trace fail at random while jobs come: between being back and failing again lies mean on average, exponentially
// distributed, and a repair takes as long as it takes. Both are above 0. The same seed gives the same failures.
func (t *Trace) Fail(mean, repair engine.Time, seed uint64) {
	if len(t.Jobs) == 0 {
		return
	}
	r := newRandom(seed)
	last := t.Jobs[len(t.Jobs)-1].Submit
	var all []outage
	for i := range t.Nodes {
		for at := engine.Time(0); ; at += repair {
			at += max(1, engine.Time(-math.Log(1-r.unit())*float64(mean)))
			if at > last {
				break
			}
			all = append(all, outage{t.Nodes[i].Node, at, repair})
		}
	}
	t.add(all)
}

// add makes events of outages, together with those that the trace has already. Where those of one node overlap it is away until the end of the last.
func (t *Trace) add(more []outage) {
	had := map[string]bool{}
	for _, o := range t.outages {
		had[o.node] = true
	}
	t.Events = slices.DeleteFunc(slices.Clone(t.Events), func(event engine.Event) bool {
		switch e := event.(type) {
		case engine.NodeGone:
			return had[e.Node]
		case engine.NodeSet:
			return had[e.Node]
		}
		return false
	})
	all := append(slices.Clone(t.outages), more...)
	t.outages = all
	slices.SortStableFunc(all, func(a, b outage) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.at, b.at)) })
	nodes := map[string]engine.NodeSet{}
	for _, n := range t.Nodes {
		nodes[n.Node] = n
	}
	for i := 0; i < len(all); {
		from, until := all[i].at, all[i].at+all[i].long
		node := nodes[all[i].node]
		for i++; i < len(all) && all[i].node == node.Node && all[i].at <= until; i++ {
			until = max(until, all[i].at+all[i].long)
		}
		t.Events = append(t.Events, engine.NodeGone{At: engine.At{At: from}, Node: node.Node})
		node.At = engine.At{At: until}
		t.Events = append(t.Events, node)
	}
	slices.SortStableFunc(t.Events, func(a, b engine.Event) int { return cmp.Compare(a.When(), b.When()) })
}

// nodeChanged keeps account of what devices there are, for orders that choose by what fits.
func (r *jobRun) nodeChanged(event engine.Event) {
	switch e := event.(type) {
	case engine.NodeSet:
		r.there[e.Node] = int64(len(e.Devices)) * 1000
	case engine.NodeGone:
		delete(r.there, e.Node)
	default:
		return
	}
	r.room = 0
	for devices := range maps.Values(r.there) {
		r.room += devices
	}
}
