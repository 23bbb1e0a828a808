// Package ordered keeps a sorted list that is cheap to change anywhere: a list of short sorted runs. What comes in are distinct
// values and the order they have among themselves; what goes out is that order, from any place on. Two lists with the same
// values read the same, whatever was inserted and deleted on the way there.
//
// The order of two values must not change while they are in the list: take a value out before changing what its order rests on.
package ordered

import (
	"slices"
	"sort"
)

// run is how long a run may grow before it is split. Short enough that shifting one is cheap beside a comparison's cache miss.
const run = 128

// List is a sorted list. The zero List is not usable: New gives one its order.
type List[T any] struct {
	less func(a, b T) bool
	runs [][]T
	n    int
}

// New returns an empty list in the order of less, which must be strict and total.
func New[T any](less func(a, b T) bool) *List[T] {
	return &List[T]{less: less}
}

// Len is the number of values.
func (l *List[T]) Len() int { return l.n }

// Insert adds v, which must not be in the list.
func (l *List[T]) Insert(v T) {
	l.n++
	if len(l.runs) == 0 {
		l.runs = append(l.runs, append(make([]T, 0, 8), v))
		return
	}
	// The last run whose first value is not after v; the first run if there is none.
	i := max(0, sort.Search(len(l.runs), func(i int) bool { return l.less(v, l.runs[i][0]) })-1)
	r := l.runs[i]
	j := sort.Search(len(r), func(j int) bool { return l.less(v, r[j]) })
	r = slices.Insert(r, j, v)
	if len(r) < run {
		l.runs[i] = r
		return
	}
	half := len(r) / 2
	upper := append(make([]T, 0, run), r[half:]...)
	l.runs[i] = slices.Delete(r, half, len(r))
	l.runs = slices.Insert(l.runs, i+1, upper)
}

// Delete takes v out and says whether it was there.
func (l *List[T]) Delete(v T) bool {
	i := sort.Search(len(l.runs), func(i int) bool { return l.less(v, l.runs[i][0]) }) - 1
	if i < 0 {
		return false
	}
	r := l.runs[i]
	j := sort.Search(len(r), func(j int) bool { return !l.less(r[j], v) })
	if j == len(r) || l.less(v, r[j]) {
		return false
	}
	l.n--
	if len(r) == 1 {
		l.runs = slices.Delete(l.runs, i, i+1)
		return true
	}
	l.runs[i] = slices.Delete(r, j, j+1)
	return true
}

// Rank is how many values come before v.
func (l *List[T]) Rank(v T) int {
	last := sort.Search(len(l.runs), func(i int) bool { return l.less(v, l.runs[i][0]) }) - 1
	if last < 0 {
		return 0
	}
	n := sort.Search(len(l.runs[last]), func(j int) bool { return !l.less(l.runs[last][j], v) })
	for _, r := range l.runs[:last] {
		n += len(r)
	}
	return n
}

// Cursor is a place in a list. It is good until the list changes.
type Cursor[T any] struct {
	list *List[T]
	i, j int
}

// Begin is the place of the first value.
func (l *List[T]) Begin() Cursor[T] { return Cursor[T]{list: l} }

// Seek is the place of the first value of which before is false; before must be true of a beginning of the list and of nothing
// after it.
func (l *List[T]) Seek(before func(T) bool) Cursor[T] {
	i := sort.Search(len(l.runs), func(i int) bool { r := l.runs[i]; return !before(r[len(r)-1]) })
	if i == len(l.runs) {
		return Cursor[T]{list: l, i: i}
	}
	r := l.runs[i]
	return Cursor[T]{list: l, i: i, j: sort.Search(len(r), func(j int) bool { return !before(r[j]) })}
}

// Valid says whether there is a value at c.
func (c Cursor[T]) Valid() bool { return c.list != nil && c.i < len(c.list.runs) }

// Value is the value at c, which must be valid.
func (c Cursor[T]) Value() T { return c.list.runs[c.i][c.j] }

// Next moves on to the next value.
func (c *Cursor[T]) Next() {
	if c.j++; c.j == len(c.list.runs[c.i]) {
		c.i, c.j = c.i+1, 0
	}
}

// All calls yield for each value in order until it returns false.
func (l *List[T]) All(yield func(T) bool) {
	for _, r := range l.runs {
		for _, v := range r {
			if !yield(v) {
				return
			}
		}
	}
}
