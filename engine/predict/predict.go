// Package predict tells from work that has ended how long work runs, and what it uses (type Uses).
//
// What is learned is kept by likeness: of the same user, name and shape; of the same user and shape; of the same user; of the same
// queue; of all. A question is answered by the narrowest likeness of which enough is known. Of each the last Samples figures are kept,
// and each weighs half as much as one that came HalfLife later. A prediction is three quantiles of these figures: a tenth of the
// weight is at or below Low, half at or below Median, nine tenths at or below High. What ran before tells too little of how far off that
// is: Low and High are then moved until the durations of one in ten predictions come below and of one in ten above (type Wide).
//
// A prediction is a guess by what was. It may order, estimate and advise; no guarantee stands on it. Everything is in integers, there
// is no clock, and the same history gives the same answers on any machine.
package predict

import (
	"container/list"
	"fmt"
)

// Likeness is what workloads have in common, the narrowest first.
type Likeness uint8

// The likenesses.
const (
	SameName  Likeness = iota // user, name and shape
	SameShape                 // user and shape
	SameUser
	SameQueue
	All
	likenesses
)

// String is the likeness in words that follow "as".
func (l Likeness) String() string {
	return [...]string{"this user's work of that name and shape", "this user's work of that shape", "this user's work", "work of that queue", "all work"}[l]
}

// Work is what is known of a workload before it runs. User, Name, Shape and Queue may be empty: not known, and then the likenesses that
// they are part of say nothing.
type Work struct {
	User  string
	Name  string
	Shape string // what it asks for, in any words: equal for what asks for the same
	Queue string
}

// Quantiles are a prediction: of a duration, in µs from a start to its end, or of use.
type Quantiles struct {
	Low, Median, High int64    // Low ≤ Median ≤ High
	Like              Likeness // of the work that they are of
	Samples           int      // how many figures they are of
}

// Config bounds what is kept. The zero value means the defaults.
type Config struct {
	Samples  int   // figures kept of one likeness, 1 to 4,096; 64
	Enough   int   // figures that make a prediction, 1 to Samples; 4
	HalfLife int64 // in the unit of the times given, 1 to 2^43 (101 days of µs); 7 days of µs
	Keys     int   // how many different likenesses are kept, ≥ 1: those learned of last; 16,384
}

const (
	maxSamples  = 4096
	maxHalfLife = 1 << 43 // times half of unit it is below 2^63
	// unit is the weight of a figure that came just now.
	unit = 1 << 20
)

func (c Config) withDefaults() Config {
	set := func(to *int, otherwise int) {
		if *to == 0 {
			*to = otherwise
		}
	}
	set(&c.Samples, 64)
	set(&c.Enough, min(4, c.Samples))
	set(&c.Keys, 16384)
	if c.HalfLife == 0 {
		c.HalfLife = 7 * 24 * 3600 * 1_000_000
	}
	return c
}

// Validate says which bound is out of range.
func (c Config) Validate() error {
	c = c.withDefaults()
	switch {
	case c.Samples < 1 || c.Samples > maxSamples:
		return fmt.Errorf("predictions of %d samples: give 1 to %d", c.Samples, maxSamples)
	case c.Enough < 1 || c.Enough > c.Samples:
		return fmt.Errorf("a prediction needs %d of %d samples: give 1 to %d", c.Enough, c.Samples, c.Samples)
	case c.HalfLife < 1 || c.HalfLife > maxHalfLife:
		return fmt.Errorf("predictions with a half-life of %d: give 1 to %d", c.HalfLife, int64(maxHalfLife))
	case c.Keys < 1:
		return fmt.Errorf("predictions by %d likenesses: give at least 1", c.Keys)
	}
	return nil
}

// Predictor holds what was learned. It is not for several goroutines at once.
type Predictor struct {
	config Config
	known  map[key]*list.Element // of *ring
	recent list.List             // of *ring, the one learned of last in front
	sorted []weighed             // of Predict, for its array alone
	wide   Wide                  // of intervals
}

type key struct {
	like                     Likeness
	user, name, shape, queue string
}

type weighed struct{ value, weight int64 }

// New makes a predictor that knows nothing. The configuration must be valid.
func New(config Config) *Predictor {
	if err := config.Validate(); err != nil {
		panic("predict: " + err.Error()) // the caller's defect
	}
	return &Predictor{config: config.withDefaults(), known: map[key]*list.Element{}}
}

// keyOf is where the duration of a workload is kept by one likeness; false: nowhere, for too little is known of it.
func keyOf(w *Work, like Likeness) (key, bool) {
	k := key{like: like}
	switch like {
	case SameName:
		k.user, k.name, k.shape = w.User, w.Name, w.Shape
		return k, w.User != "" && w.Name != "" && w.Shape != ""
	case SameShape:
		k.user, k.shape = w.User, w.Shape
		return k, w.User != "" && w.Shape != ""
	case SameUser:
		k.user = w.User
		return k, w.User != ""
	case SameQueue:
		k.queue = w.Queue
		return k, w.Queue != ""
	default:
		return k, true
	}
}

// Learn takes in how long a workload ran (µs, ≥ 0) that ended at a time. Times that go back count as not gone back: what comes after
// something that ended later ended with it.
func (p *Predictor) Learn(w Work, ran, at int64) {
	for like := range likenesses {
		k, ok := keyOf(&w, like)
		if !ok {
			continue
		}
		e := p.known[k]
		if e == nil {
			e = p.recent.PushFront(&ring{key: k})
			p.known[k] = e
			p.bound()
		}
		p.recent.MoveToFront(e)
		e.Value.(*ring).add(ran, at, p.config.Samples)
	}
}

// bound forgets what was learned of longest ago where there is too much.
func (p *Predictor) bound() {
	for len(p.known) > p.config.Keys {
		last := p.recent.Back()
		delete(p.known, last.Value.(*ring).key)
		p.recent.Remove(last)
	}
}

// Predict tells how long a workload runs at a time, not before that of the last Learn, from those durations that are above a bound: what
// has run for an hour already runs for longer than that. Without a bound give -1; at most 2^62. False: not enough is known by any likeness.
func (p *Predictor) Predict(w Work, above, at int64) (Quantiles, bool) {
	for like := range likenesses {
		k, ok := keyOf(&w, like)
		if !ok {
			continue
		}
		e := p.known[k]
		if e == nil {
			continue
		}
		r := e.Value.(*ring)
		from, _ := r.find(above + 1)
		if len(r.order)-from < p.config.Enough {
			continue
		}
		sorted, total := p.sorted[:0], int64(0)
		for _, place := range r.order[from:] {
			s := r.samples[place]
			weight := p.weight(at - s.at)
			sorted, total = append(sorted, weighed{s.value, weight}), total+weight
		}
		p.sorted = sorted
		return p.widen(Quantiles{
			Low: quantile(sorted, total, 1), Median: quantile(sorted, total, 5), High: quantile(sorted, total, 9),
			Like: like, Samples: len(sorted),
		}, above), true
	}
	return Quantiles{}, false
}

// weight is what a figure of some age weighs, at least 1: halved each half-life, in a straight line between.
func (p *Predictor) weight(age int64) int64 {
	age = max(age, 0)
	halves, rest := age/p.config.HalfLife, age%p.config.HalfLife
	if halves >= 20 {
		return 1
	}
	full := int64(unit) >> halves
	return max(1, full-full/2*rest/p.config.HalfLife)
}

// quantile is the least of the sorted values that so many tenths of the weight are not above.
func quantile(sorted []weighed, total, tenths int64) int64 {
	var sum int64
	for _, s := range sorted {
		if sum += s.weight; sum*10 >= total*tenths {
			return s.value
		}
	}
	return sorted[len(sorted)-1].value
}
