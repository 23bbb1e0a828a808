package sim

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// Case is a trace that weights are judged on: what it came to under a policy is compared with what FGD came to on the same.
type Case struct {
	List  string
	Trace *Trace
	FGD   Figure
}

// Figure is what was allocated, in percent of capacity, when 100 and 130 percent of it had arrived.
type Figure struct {
	At100 float64 `json:"at100"`
	At130 float64 `json:"at130"`
}

// figureOf runs a trace by FGD's protocol.
func figureOf(t *Trace, p *place.Policy) (Figure, error) {
	r, err := Run(t, Options{Config: engine.Config{Placement: p}, GiveUp: true})
	if err != nil {
		return Figure{}, err
	}
	return Figure{r.At(100), r.At(130)}, nil
}

// NewCase makes a case of a pod list and a seed.
func NewCase(o *Openb, list string, seed uint64) (*Case, error) {
	c := &Case{List: list, Trace: o.Inflated(seed, 130)}
	c.Trace.Name = fmt.Sprintf("%s/%d", list, seed)
	fgd, err := Policy("fgd", seed, o.Pods)
	if err != nil {
		return nil, err
	}
	c.FGD, err = figureOf(c.Trace, fgd)
	return c, err
}

// Tuning is how weights are looked for: a (1+1) evolution strategy with the one-fifth rule (Rechenberg, 1973), which steps in the
// logarithm of each weight's size and now and then turns one off, on, or around.
type Tuning struct {
	Cases       []*Case
	Start       place.Policy
	Seed        uint64
	Evaluations int
	// Told is called after each evaluation that is better than all before.
	Told func(evaluation int, score float64, weights place.Weights)
}

// Score is what weights come to: the mean over the cases of how far they are ahead of FGD in points, at 100 and at 130 alike, and
// once more the worst list's lead at the worse of the two, for weights that win on average and lose somewhere are not wanted.
func (t *Tuning) Score(p *place.Policy) (float64, error) {
	var sum float64
	leads, count := map[string]float64{}, map[string]float64{}
	for _, c := range t.Cases {
		f, err := figureOf(c.Trace, p)
		if err != nil {
			return 0, err
		}
		at100, at130 := f.At100-c.FGD.At100, f.At130-c.FGD.At130
		sum += (at100 + at130) / 2
		leads[c.List] += min(at100, at130)
		count[c.List]++
	}
	worst := math.Inf(1)
	for list, lead := range leads {
		worst = min(worst, lead/count[list])
	}
	return sum/float64(len(t.Cases)) + worst, nil
}

// Run looks for weights until the evaluations are spent or ctx ends, and returns the best found with its score.
func (t *Tuning) Run(ctx context.Context) (place.Policy, float64, error) {
	r := newRandom(t.Seed)
	best := t.Start
	score, err := t.Score(&best)
	if err != nil {
		return best, 0, err
	}
	t.told(0, score, best.Weights)
	size := 1.0
	for i := 1; i <= t.Evaluations && ctx.Err() == nil; i++ {
		next := best
		next.Weights = mutate(r, best.Weights, size)
		if next.Weights == best.Weights {
			continue
		}
		s, err := t.Score(&next)
		if err != nil {
			return best, score, err
		}
		if s <= score {
			size = max(0.1, size*math.Pow(1.5, -0.25))
			continue
		}
		best, score = next, s
		size = min(2, size*1.5)
		t.told(i, score, best.Weights)
	}
	return best, score, nil
}

func (t *Tuning) told(i int, score float64, w place.Weights) {
	if t.Told != nil {
		t.Told(i, score, w)
	}
}

// scale is about how large one unit of weight makes each feature differ between places: it lets weights start alike. What is not in it is not tuned: in runs
// that are judged by what is allocated nothing is known of use, and nothing of what devices cost is told.
var scale = map[place.Feature]float64{
	place.FragmentationStep: 3000, place.Fragmentation: 10, place.Remainder: 30, place.Exact: 100, place.Untouched: 100, place.Outlook: 50,
	place.PatientOutlook: 50, place.NodeDevices: 30, place.NodeCPU: 30, place.NodeMemory: 30, place.StrandedDevice: 100,
	place.StrandedCPU: 100, place.Fitness: 100, place.Whole: 1000, place.HastyOutlook: 50, place.DistantOutlook: 200, place.StrandedMemory: 100,
}

// mutate changes about three weights.
func mutate(r *random, w place.Weights, size float64) place.Weights {
	features := slices.DeleteFunc(place.Features(), func(f place.Feature) bool { return scale[f] == 0 })
	for _, f := range features {
		if r.unit() > 3/float64(len(features)) {
			continue
		}
		switch v := float64(w[f]); {
		case v == 0 || r.unit() < 0.1:
			v = scale[f] * math.Exp(r.normal())
			if r.unit() < 0.5 {
				v = -v
			}
			if w[f] != 0 && r.unit() < 0.5 {
				v = 0
			}
			w[f] = clampWeight(v)
		default:
			w[f] = clampWeight(v * math.Exp(size*r.normal()))
		}
	}
	return w
}

func clampWeight(v float64) int32 {
	return int32(max(-place.MaxWeight, min(place.MaxWeight, math.Round(v))))
}

// normal draws from the normal distribution (Box and Muller, 1958).
func (r *random) normal() float64 {
	return math.Sqrt(-2*math.Log(1-r.unit())) * math.Cos(2*math.Pi*r.unit())
}

// Lists are the names of the lists of cases, each once.
func Lists(cases []*Case) []string {
	var lists []string
	for _, c := range cases {
		if !slices.Contains(lists, c.List) {
			lists = append(lists, c.List)
		}
	}
	return lists
}
