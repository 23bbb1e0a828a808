package place

import "math/bits"

// ladder finds how many of some amounts are no more than a value without a search: it begins at the step of the value's leading bits.
type ladder struct {
	amounts []int64 // rising
	shift   int
	first   []uint16 // by a value's leading bits: how many amounts are below all such values
}

const ladderSteps = 1024 // at most

func newLadder(amounts []int64) ladder {
	l := ladder{amounts: amounts}
	if len(amounts) == 0 || amounts[len(amounts)-1] < 0 {
		return l
	}
	last := amounts[len(amounts)-1]
	l.shift = max(0, bits.Len64(uint64(last))-bits.Len64(ladderSteps-1))
	l.first = make([]uint16, last>>l.shift+1)
	for i := range l.first {
		l.first[i] = uint16(rankOf(amounts, int64(i)<<l.shift-1))
	}
	return l
}

// rank is how many amounts are no more than a value.
func (l *ladder) rank(value int64) int {
	if value < 0 {
		return rankOf(l.amounts, value)
	}
	step := value >> l.shift
	if step >= int64(len(l.first)) {
		return len(l.amounts)
	}
	at := int(l.first[step])
	for at < len(l.amounts) && l.amounts[at] <= value {
		at++
	}
	return at
}

// rankOf is rank by a search.
func rankOf(amounts []int64, free int64) int {
	low, high := 0, len(amounts)
	for low < high {
		if mid := int(uint(low+high) >> 1); amounts[mid] <= free {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}
