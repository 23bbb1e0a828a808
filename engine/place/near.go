package place

import (
	"cmp"
	"slices"
)

// nearness is memory to find devices that are near each other.
type nearness struct {
	of     [][]int64 // by two places in the view's list: what the pair counts
	among  []int64   // by place: the sum over all that fit
	fits   []int     // all that fit, those with the fewest near them first
	taken  []int
	left   []int
	chosen []int
}

// counts says that it counts at all which devices are near each other.
func (n *nearness) counts(w *Weights) bool { return w[Linked] != 0 || w[SameNUMA] != 0 }

// ofPairs is the part of the score that rests on how near the devices in s.fits are to each other.
func (s *scored) ofPairs(v *view) int64 {
	w, pairs := &s.policy.Weights, int64(len(s.fits)*(len(s.fits)-1)/2)
	if pairs == 0 || !s.near.counts(w) {
		return 0
	}
	var linked, local int64
	for k, i := range s.fits {
		for _, j := range s.fits[:k] {
			link, numa := s.fleet.Near(v.units[i].device, v.units[j].device)
			if link {
				linked++
			}
			if numa {
				local++
			}
		}
	}
	return int64(w[Linked])*(linked*1000/pairs) + int64(w[SameNUMA])*(local*1000/pairs)
}

// nearest takes as many of the devices in s.fits as are wanted and scores them together. It begins with each in turn and adds the one that is
// nearest to those taken, once the loneliest and once the least lonely of those that are equally near; what scores best is taken. So a
// group that just suffices is taken before a part of a larger one, and groups are taken whole where none suffices.
func (s *scored) nearest(w *want, v *view) int64 {
	n := &s.near
	n.measure(s, v)
	best, found := int64(0), false
	for _, first := range n.fits {
		for _, sociable := range [...]bool{false, true} {
			n.gather(first, w.devices, sociable)
			s.fits = append(s.fits[:0], n.taken...)
			if score := s.quantised(s.together(w, v)); !found || score > best {
				best, found = score, true
				n.chosen = append(n.chosen[:0], n.taken...)
			}
		}
	}
	s.fits = append(s.fits[:0], n.chosen...)
	return best
}

// measure works out how near the devices in s.fits are to each other.
func (n *nearness) measure(s *scored, v *view) {
	w := &s.policy.Weights
	n.fits = append(n.fits[:0], s.fits...)
	for len(n.of) < len(v.units) {
		n.of = append(n.of, nil)
	}
	n.among = slices.Grow(n.among[:0], len(v.units))[:len(v.units)]
	for _, i := range n.fits {
		n.of[i] = slices.Grow(n.of[i][:0], len(v.units))[:len(v.units)]
		n.among[i] = 0
		for _, j := range n.fits {
			link, numa := s.fleet.Near(v.units[i].device, v.units[j].device)
			n.of[i][j] = 0
			if link && i != j {
				n.of[i][j] += int64(w[Linked])
			}
			if numa && i != j {
				n.of[i][j] += int64(w[SameNUMA])
			}
			n.among[i] += n.of[i][j]
		}
	}
	slices.SortStableFunc(n.fits, func(a, b int) int { return cmp.Compare(n.among[a], n.among[b]) })
}

// gather takes so many devices, beginning with one.
func (n *nearness) gather(first, devices int, sociable bool) {
	n.taken = append(n.taken[:0], first)
	n.left = append(n.left[:0], n.fits...)
	n.left = slices.DeleteFunc(n.left, func(i int) bool { return i == first })
	for len(n.taken) < devices {
		at, most := 0, int64(0)
		for k, i := range n.left {
			var near int64
			for _, j := range n.taken {
				near += n.of[i][j]
			}
			if k == 0 || near > most || near == most && sociable && n.among[i] > n.among[n.left[at]] {
				at, most = k, near
			}
		}
		n.taken = append(n.taken, n.left[at])
		n.left = slices.Delete(n.left, at, at+1)
	}
}
