package place

import "slices"

// none is no rank.
const none = -1

// recent are the nodes by rank in the order in which they were last touched, the newest first. So those touched since any moment are
// found, each once, at the cost of as many.
type recent struct {
	clock  uint64 // counts touches
	newest int32
	stamp  []uint64 // of the last touch
	links  []link
}

type link struct{ newer, older int32 }

// reset enters so many nodes, none of them touched from now on.
func (r *recent) reset(n int) {
	r.stamp = slices.Grow(r.stamp[:0], n)[:n]
	r.links = slices.Grow(r.links[:0], n)[:n]
	r.newest = none
	for i := range int32(n) {
		r.links[i] = link{none, none}
		r.stamp[i] = 0
	}
}

// touch makes a node the newest.
func (r *recent) touch(i int32) {
	r.clock++
	if r.newest == i {
		r.stamp[i] = r.clock
		return
	}
	if r.stamp[i] > 0 { // it is in the list, and not the first
		l := r.links[i]
		r.links[l.newer].older = l.older
		if l.older != none {
			r.links[l.older].newer = l.newer
		}
	}
	r.stamp[i] = r.clock
	r.links[i] = link{none, r.newest}
	if r.newest != none {
		r.links[r.newest].newer = i
	}
	r.newest = i
}
