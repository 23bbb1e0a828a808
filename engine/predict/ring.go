package predict

import (
	"cmp"
	"slices"
)

// ring is the last figures of one likeness. They are also kept in order, so that a prediction need not sort them.
type ring struct {
	key     key
	samples []sample // when it is full, oldest is where the oldest one stands, which the next one takes
	oldest  int
	order   []uint16 // their places in samples, by value
}

type sample struct{ value, at int64 }

// add takes in a figure, in place of the oldest where there are so many already. A time before that of the last one counts as that.
func (r *ring) add(value, at int64, most int) {
	if n := len(r.samples); n > 0 {
		at = max(at, r.samples[(r.oldest+n-1)%n].at)
	}
	place := len(r.samples)
	if place == most {
		place = r.oldest
		r.oldest = (r.oldest + 1) % most
		i, _ := r.find(r.samples[place].value)
		for r.order[i] != uint16(place) { // of equal ones any may come first
			i++
		}
		r.order = slices.Delete(r.order, i, i+1)
		r.samples[place] = sample{value, at}
	} else {
		r.samples = append(r.samples, sample{value, at})
	}
	i, _ := r.find(value)
	r.order = slices.Insert(r.order, i, uint16(place))
}

// find is where in order the first figure of at least a value is.
func (r *ring) find(value int64) (int, bool) {
	return slices.BinarySearchFunc(r.order, value, func(place uint16, v int64) int { return cmp.Compare(r.samples[place].value, v) })
}

// each yields the figures, the oldest first.
func (r *ring) each(yield func(sample) bool) {
	for i := range r.samples {
		if !yield(r.samples[(r.oldest+i)%len(r.samples)]) {
			return
		}
	}
}
