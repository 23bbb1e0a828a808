package sim

import (
	"cmp"
	"container/heap"
	"errors"
	"math"
	"slices"

	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/predict"
)

// Predictions say how well durations and use were predicted on a trace: each when its job came, from those that had ended by then, with every job
// running from its coming, alone on its devices.
type Predictions struct {
	Trace string      `json:"trace"`
	Jobs  int         `json:"jobs"`
	Rows  []Predictor `json:"predictors"` // all predictions; then by likeness; then what they are to be compared with

	Use []UsePredictor `json:"use,omitempty"` // the same of compute and of memory; none where nothing is known of what its jobs use
}

// Predictor is how one way to predict fared. How far off a prediction is, is the larger of predicted and real over the smaller: 1 is right,
// 2 is twice or half.
type Predictor struct {
	By      string  `json:"by"`
	Jobs    int     `json:"jobs"`           // that it predicted
	Off50   float64 `json:"medianOff"`      // half of them are off by no more
	Off90   float64 `json:"p90Off"`         // nine tenths
	Between float64 `json:"betweenPercent"` // of them between the low and the high tenth, where it should be eight tenths; -1: it has no interval
	Wide    float64 `json:"medianWidth"`    // half of the intervals reach no more times as far up as down: high over low; -1: it has no interval
	Order   float64 `json:"orderPercent"`   // of pairs of jobs that came one after the other and both are predicted, those that it puts in their order by duration; a tie is half right
}

// guess is one prediction and what came.
type guess struct {
	job             int
	low, mid, high  int64 // µs; low and high 0: no interval
	took            int64
	like            predict.Likeness
	overall, latest int64 // the median of all before, and the last of the same user; 0: there is none
}

// PredictJobs measures predictions on a trace of jobs. What they use is known by what they say themselves, and by the programs and services that they
// name, as far as these are among what is shared; nil: none is.
func PredictJobs(name string, t *Trace, of *Sharing, config predict.Config) (*Predictions, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	use := &usePredictions{uses: predict.NewUses(config)}
	if of != nil {
		use.of = *of
	}
	guesses := guessAll(t, config, use)
	if len(guesses) == 0 {
		return nil, errors.New("the trace has no job that came after enough others had ended: give one that is longer")
	}
	out := &Predictions{Trace: name, Jobs: len(t.Jobs), Use: use.rows()}
	mid := func(g *guess) int64 { return g.mid }
	out.add("all predictions", guesses, mid, true)
	for like := predict.SameName; like <= predict.All; like++ {
		of := slices.DeleteFunc(slices.Clone(guesses), func(g guess) bool { return g.like != like })
		out.add("by "+like.String(), of, mid, true)
	}
	out.add("the median of all before", guesses, func(g *guess) int64 { return g.overall }, false)
	out.add("the last of the same user", guesses, func(g *guess) int64 { return g.latest }, false)
	return out, nil
}

// guessAll predicts each job of a trace when it comes.
func guessAll(t *Trace, config predict.Config, use *usePredictions) []guess {
	p := predict.New(config)
	last, said := map[string]int64{}, map[int]predict.Quantiles{}
	var running ends
	var all []guess
	for i := range t.Jobs {
		j := &t.Jobs[i]
		for len(running) > 0 && running[0].at <= j.Submit {
			e := heap.Pop(&running).(end)
			ended := &t.Jobs[e.job]
			p.Learn(engine.PredictedBy(&ended.Workload), int64(ended.Duration), int64(e.at))
			use.ends(ended, e.at)
			if q, ok := said[e.job]; ok {
				p.Fared(q, int64(ended.Duration))
				delete(said, e.job)
			}
			if ended.User != "" {
				last[ended.User] = int64(ended.Duration)
			}
		}
		if j.Duration == 0 {
			continue // it never ends
		}
		heap.Push(&running, end{j.Submit + j.Duration, i})
		use.comes(j)
		q, ok := p.Predict(engine.PredictedBy(&j.Workload), -1, int64(j.Submit))
		if !ok {
			continue
		}
		said[i] = q
		overall, _ := p.Predict(predict.Work{}, -1, int64(j.Submit))
		all = append(all, guess{i, q.Low, q.Median, q.High, int64(j.Duration), q.Like, overall.Median, last[j.User]})
	}
	return all
}

// add sums up one way to predict; it is left out where it predicted nothing.
func (o *Predictions) add(by string, guesses []guess, of func(*guess) int64, interval bool) {
	row := Predictor{By: by, Between: -1, Wide: -1}
	var off, wide []float64
	within, pairs, right := 0, 0, 0.0
	for i := range guesses {
		g := &guesses[i]
		said := of(g)
		if said == 0 {
			continue
		}
		off = append(off, math.Exp(math.Abs(math.Log(float64(said)/float64(g.took)))))
		if g.low <= g.took && g.took <= g.high {
			within++
		}
		wide = append(wide, float64(g.high)/float64(max(1, g.low)))
		if i == 0 || guesses[i-1].job != g.job-1 || guesses[i-1].took == g.took || of(&guesses[i-1]) == 0 {
			continue
		}
		pairs++
		switch cmp.Compare(of(&guesses[i-1]), said) {
		case cmp.Compare(guesses[i-1].took, g.took):
			right++
		case 0:
			right += 0.5
		}
	}
	if len(off) == 0 {
		return
	}
	slices.Sort(off)
	row.Jobs, row.Off50, row.Off90 = len(off), quantile(off, 0.5), quantile(off, 0.9)
	if interval {
		slices.Sort(wide)
		row.Between, row.Wide = 100*float64(within)/float64(len(off)), quantile(wide, 0.5)
	}
	row.Order = 100 * right / float64(max(1, pairs))
	o.Rows = append(o.Rows, row)
}

// end is when a job of a trace ends.
type end struct {
	at  engine.Time
	job int
}

// ends is a heap, what ends first on top.
type ends []end

func (h ends) Len() int      { return len(h) }
func (h ends) Swap(i, k int) { h[i], h[k] = h[k], h[i] }
func (h ends) Less(i, k int) bool {
	return cmp.Or(cmp.Compare(h[i].at, h[k].at), cmp.Compare(h[i].job, h[k].job)) < 0
}
func (h *ends) Push(one any) { *h = append(*h, one.(end)) }
func (h *ends) Pop() any {
	last := len(*h) - 1
	one := (*h)[last]
	*h = (*h)[:last]
	return one
}
