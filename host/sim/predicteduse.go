package sim

import (
	"math"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/predict"
)

// UsePredictor is how one way to predict use fared. How far off a prediction is, is in percent: of compute of a device, of memory of what the job held.
type UsePredictor struct {
	Of      string  `json:"of"` // compute, or memory: the most that a job holds at once
	By      string  `json:"by"`
	Jobs    int     `json:"jobs"`           // that it predicted
	Off50   float64 `json:"medianOff"`      // half of them are off by no more
	Off90   float64 `json:"p90Off"`         // nine tenths
	Between float64 `json:"betweenPercent"` // of them between the low and the high tenth; -1: it has no interval
}

// use is what a job uses of each of its devices where it is alone, as far as that is known: without a program or service nothing is of memory.
func (s *Sharing) use(j *Job) (predict.Use, bool) {
	used := predict.Use{Memory: int64(s.memory(j))}
	switch {
	case j.Service != "":
		if s.Duty == nil || s.Duty.index(j.Service) < 0 {
			return predict.Use{}, false
		}
		used.Compute = int64(s.Duty.meanOf(s.Duty.index(j.Service), j.FirstSample, j.Submit, j.Submit+j.Duration))
	case j.Busy == 0 && (s.Interference == nil || s.Interference.index(j.Program) < 0):
		return predict.Use{}, false
	default:
		used.Compute = int64(s.alone(j))
	}
	return used, true
}

// memory is the most that a job holds on a device, as its program or service was seen to; 0: not known.
func (s *Sharing) memory(j *Job) api.Bytes {
	if s.Duty != nil && j.Service != "" {
		if at := s.Duty.index(j.Service); at >= 0 {
			return s.Duty.Services[at].Memory
		}
	}
	if s.Interference != nil {
		if at := s.Interference.index(j.Program); at >= 0 {
			return s.Interference.programs[at].Memory
		}
	}
	return 0
}

// meanOf is what a service keeps busy on average between two times, over its samples from that at the first to that at the last.
func (d *Duty) meanOf(service, first int, from, to engine.Time) api.Milli {
	busy := d.Services[service].Busy
	begin, end := int64(from/d.Step), int64(max(from, to-1)/d.Step)
	var all int64
	for _, one := range busy {
		all += int64(one)
	}
	samples := end - begin + 1
	sum := samples / int64(len(busy)) * all
	for i := range samples % int64(len(busy)) {
		sum += int64(d.at(service, first, engine.Time(begin+i)*d.Step))
	}
	return api.Milli(sum / samples)
}

// useGuess is one prediction of use and what came.
type useGuess struct {
	said, overall predict.Expected // overall: of all that ended before
	used          predict.Use
}

// usePredictions predict what jobs use, one after the other.
type usePredictions struct {
	of      Sharing
	uses    *predict.Uses
	guesses []useGuess
}

// comes predicts what a job uses that comes.
func (u *usePredictions) comes(j *Job) {
	used, ok := u.of.use(j)
	if !ok {
		return
	}
	if said, ok := u.uses.Predict(engine.PredictedBy(&j.Workload), int64(j.Submit)); ok {
		overall, _ := u.uses.Predict(predict.Work{}, int64(j.Submit))
		u.guesses = append(u.guesses, useGuess{said, overall, used})
	}
}

// ends learns what a job used that ended.
func (u *usePredictions) ends(j *Job, at engine.Time) {
	if used, ok := u.of.use(j); ok {
		u.uses.Learn(engine.PredictedBy(&j.Workload), used, int64(at))
	}
}

// rows sum up how the predictions fared; nil where nothing is known of what jobs use.
func (u *usePredictions) rows() []UsePredictor {
	var rows []UsePredictor
	for _, part := range []struct {
		name string
		said func(predict.Expected) predict.Quantiles
		used func(predict.Use) int64
		off  func(said, used int64) float64
	}{
		{"compute", func(e predict.Expected) predict.Quantiles { return e.Compute }, func(u predict.Use) int64 { return u.Compute }, func(said, used int64) float64 {
			return math.Abs(float64(said-used)) / float64(api.WholeDevice) * 100
		}},
		{"memory", func(e predict.Expected) predict.Quantiles { return e.Memory }, func(u predict.Use) int64 { return u.Memory }, func(said, used int64) float64 {
			return math.Abs(float64(said-used)) / float64(used) * 100
		}},
	} {
		known := slices.DeleteFunc(slices.Clone(u.guesses), func(g useGuess) bool { return part.name == "memory" && g.used.Memory == 0 })
		add := func(by string, guesses []useGuess, of func(useGuess) predict.Expected, interval bool) {
			row := UsePredictor{Of: part.name, By: by, Jobs: len(guesses), Between: -1}
			var off []float64
			within := 0
			for _, g := range guesses {
				said, used := part.said(of(g)), part.used(g.used)
				off = append(off, part.off(said.Median, used))
				if said.Low <= used && used <= said.High {
					within++
				}
			}
			if len(off) == 0 {
				return
			}
			slices.Sort(off)
			if row.Off50, row.Off90 = quantile(off, 0.5), quantile(off, 0.9); interval {
				row.Between = 100 * float64(within) / float64(len(off))
			}
			rows = append(rows, row)
		}
		said := func(g useGuess) predict.Expected { return g.said }
		add("all predictions", known, said, true)
		for like := predict.SameName; like <= predict.All; like++ {
			add("by "+like.String(), slices.DeleteFunc(slices.Clone(known), func(g useGuess) bool { return g.said.Compute.Like != like }), said, true)
		}
		add("the median of all before", known, func(g useGuess) predict.Expected { return g.overall }, false)
	}
	return rows
}
