package sim

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"

	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/place"
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

// ChurnOptions are how pods come and go.
type ChurnOptions struct {
	Percent int     // of all devices that they want at a time
	Pods    int     // that come after those that are there at the beginning
	Moves   []int32 // an hour that are allowed: a run with each; 0: none is moved
	Seeds   []uint64
}

// Churn is what a placement policy keeps allocated of the devices while pods come and go, against how many are moved: means over the seeds.
type Churn struct {
	Policy string       `json:"policy"`
	Load   int          `json:"loadPercent"` // what pods want at a time, of all devices
	Pods   int          `json:"pods"`        // that come after those that are there at the beginning
	Points []ChurnPoint `json:"points"`      // as the moves that are allowed were given
}

// ChurnPoint is one point of the curve.
type ChurnPoint struct {
	Allowed   int32   `json:"movesPerHour"`       // at the most
	Moved     float64 `json:"movesPer1000Pods"`   // that came
	Allocated float64 `json:"allocatedPercent"`   // of all devices, on average over the second half of the time
	GivenUp   float64 `json:"givenUpPercent"`     // of all pods, which did not fit when they came
	Unplaced  int     `json:"unplaced,omitempty"` // of those that were moved: did not go on at once
	Deviation float64 `json:"allocatedDeviation"` // over the seeds, of what was allocated
}

// RunChurn runs pods that come and go under a policy, which policyFor makes for each seed, with each number of moves. A pod that does not fit when it comes, nor can
// be made room for, is given up. Where it is not nil, told is called after each pod that came.
func RunChurn(ctx context.Context, o *Openb, name string, with ChurnOptions, told func(moves int32, seed uint64, of Progress), policyFor func(uint64) (*place.Policy, error)) (*Churn, error) {
	out := &Churn{Policy: name, Load: with.Percent, Pods: with.Pods}
	for _, moves := range with.Moves {
		p := ChurnPoint{Allowed: moves}
		var held []float64
		for _, seed := range with.Seeds {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			policy, err := policyFor(seed)
			if err != nil {
				return nil, err
			}
			options := Options{Config: engine.Config{Placement: policy}, GiveUp: true}
			if moves > 0 {
				options.Defragment = &engine.Defragment{MovesPerHour: moves}
			}
			if told != nil {
				options.Told = func(p Progress) { told(moves, seed, p) }
			}
			r, err := Run(o.Churned(seed, with.Percent, with.Pods), options)
			if err != nil {
				return nil, fmt.Errorf("%s with %d moves an hour, seed %d: %w", name, moves, seed, err)
			}
			n := float64(len(with.Seeds))
			held = append(held, r.Held)
			p.Moved += 1000 * float64(r.Moves) / float64(with.Pods) / n
			p.GivenUp += 100 * float64(r.GivenUp) / float64(r.Jobs) / n
			p.Unplaced += r.Unplaced
		}
		p.Allocated, p.Deviation = mean(held), deviation(held)
		out.Points = append(out.Points, p)
	}
	return out, nil
}

// Figures are the figures of a curve, as they are shown.
func (c *Churn) Figures() []Named {
	var all []Named
	for _, p := range c.Points {
		of := fmt.Sprintf(" with %d moves an hour", p.Allowed)
		all = append(all, Named{"allocated" + of, p.Allocated, "%"}, Named{"moved of 1,000 pods" + of, p.Moved, ""}, Named{"given up" + of, p.GivenUp, "%"})
	}
	return all
}
