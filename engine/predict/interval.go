package predict

import (
	"fmt"
	"math/bits"
)

// Wide is how much wider the interval of a prediction is than the tenth and the nine tenths of the figures that it is of, by likeness. It is
// learned from how predictions fared. Each that work ran for longer than moves the High of its likeness up by nine steps, and each other one moves it
// down by one, so that over time one in ten is passed, however durations are spread and whatever they do: what is bounded cannot go up or
// down forever (adaptive conformal inference: Gibbs and Candès, NeurIPS 2021; of a bound itself instead of a level: Angelopoulos, Candès
// and Tibshirani, NeurIPS 2023). Low is moved the same way by what ran for less. Steps are large at first and get smaller, as one over the root of
// how many there were (Angelopoulos, Barber and Bates, ICML 2024), but never so small that a change is not followed.
type Wide [likenesses]Width

// Width is how often Low is halved and High is doubled, in thousand-and-twenty-fourths; less than 0 where the interval is narrower.
type Width struct {
	Low  int32 `json:"low"`
	High int32 `json:"high"`
	Of   int64 `json:"of"` // how many predictions this was learned from
}

const (
	doubling = 1 << 10
	widest   = 16 * doubling
	tightest = -doubling / 2
	// longest is the longest duration that an interval is widened to, in µs.
	longest = 1 << 60

	firstStep, leastStep = doubling / 16, doubling / 256
)

// Validate says which width is out of range.
func (w *Wide) Validate() error {
	for like, of := range w {
		if min(of.Low, of.High) < tightest || max(of.Low, of.High) > widest || of.Of < 0 {
			return fmt.Errorf("predictions by %s are widened by %d and %d of %d after %d: give %d to %d after 0 or more", Likeness(like), of.Low, of.High, doubling, of.Of, tightest, widest)
		}
	}
	return nil
}

// Fared takes in how long work ran (µs, ≥ 0) for which that was predicted before it ran.
func (p *Predictor) Fared(said Quantiles, ran int64) {
	of := &p.wide[said.Like]
	step := of.step()
	of.Of++
	follow := func(width *int32, missed bool) {
		if missed {
			*width += 9 * step
		} else {
			*width -= step
		}
		*width = min(max(*width, tightest), widest)
	}
	follow(&of.Low, ran < said.Low)
	follow(&of.High, ran > said.High)
}

// step halves each time that four times as many predictions were seen, from 64 on.
func (w *Width) step() int32 {
	return max(leastStep, int32(firstStep)>>((bits.Len64(uint64(w.Of/64))+1)/2))
}

// Wide is how much intervals are widened.
func (p *Predictor) Wide() Wide { return p.wide }

// widen makes the interval of a prediction as wide as its likeness needs; Low stays above a bound.
func (p *Predictor) widen(q Quantiles, above int64) Quantiles {
	of := p.wide[q.Like]
	q.Low = max(min(scaled(q.Low, -of.Low), q.Median), above+1)
	q.High = max(scaled(q.High, of.High), q.Median)
	return q
}

// scaled is a duration doubled so many times, in thousand-and-twenty-fourths: in a straight line between two doublings, at most longest.
func scaled(duration int64, by int32) int64 {
	whole, part := by>>10, int64(by&(doubling-1))
	duration = min(duration, longest)
	duration += duration/doubling*part + duration%doubling*part/doubling
	switch {
	case whole < 0:
		return duration >> -whole
	case duration > longest>>whole:
		return longest
	}
	return duration << whole
}
