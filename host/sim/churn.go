package sim

import (
	"math"
	"slices"
	"sort"
	"strconv"

	"github.com/aliquot-dev/aliquot/engine"
)

// The durations of pods of a trace that has none: between these, each length of time as often as one twice as long, in µs.
const (
	shortestPod = 60 * 1_000_000
	longestPod  = 86_400 * 1_000_000
)

// Churned is a protocol for pods that leave: so many pods drawn from the list at random come evenly, so often that they want percent of all GPUs
// at a time, and each leaves once it was there for as long as in the trace. It begins with those that are there at any one moment of such a coming and going: a pod is among them
// the more likely the longer it stays, and has a random part of that left. They come at time 0, the first of the others at time 1 or later.
func (o *Openb) Churned(seed uint64, percent, pods int) *Trace {
	t := &Trace{Nodes: o.Nodes, Classes: o.classes()}
	r := newRandom(seed)
	list := slices.Clone(o.Pods)
	sums := make([]float64, len(list)) // of durations, up to each
	total, work := 0.0, 0.0
	for i := range list {
		p := &list[i]
		if p.Duration == 0 {
			p.Duration = shortestPod * engine.Time(math.Exp2(r.unit()*math.Log2(longestPod/shortestPod)))
		}
		total += float64(p.Duration)
		work += float64(p.Duration) * float64(p.Compute())
		sums[i] = total
	}
	want := float64(t.Capacity()) * float64(percent) / 100
	add := func(p Job, at, stays engine.Time) {
		p.ID, p.Submit, p.Duration = strconv.Itoa(len(t.Jobs)), at, max(1, stays)
		p.Preemptible, p.Requeue = true, true
		t.Jobs = append(t.Jobs, p)
	}
	for held := 0.0; held < want && work > 0; {
		p := list[sort.SearchFloat64s(sums, r.unit()*total)]
		held += float64(p.Compute())
		add(p, 0, engine.Time(r.unit()*float64(p.Duration)))
	}
	apart := work / float64(len(list)) / want // µs
	for i := range pods {
		p := list[r.below(len(list))]
		add(p, 1+engine.Time(float64(i)*apart), p.Duration)
	}
	return t
}
