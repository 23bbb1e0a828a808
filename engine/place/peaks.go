package place

import "slices"

// fan is how many values each value above stands for: two cache lines of them.
const fan = 16

// peaks are the scores of nodes by rank, and above them the largest of each fan of them, up to a single one. So the best node is
// found in a walk down, the first of those that are equal, and a score is changed at the cost of a few values beside it. The zero
// peaks have no scores.
type peaks struct {
	levels [][]int64
}

// reset makes room for so many scores, all barred; build must follow once they are set.
func (p *peaks) reset(n int) {
	for k := 0; ; k++ {
		size := max(1, (n+fan-1)/fan) * fan
		if k == len(p.levels) {
			p.levels = append(p.levels, nil)
		}
		p.levels[k] = slices.Grow(p.levels[k][:0], size)[:size]
		for i := range p.levels[k] {
			p.levels[k][i] = barred
		}
		if size == fan {
			p.levels = p.levels[:k+1]
			return
		}
		n = size / fan
	}
}

// leaves are the scores themselves.
func (p *peaks) leaves() []int64 { return p.levels[0] }

// build works all levels out from the scores.
func (p *peaks) build() {
	for k := 1; k < len(p.levels); k++ {
		below := p.levels[k-1]
		for i := range len(below) / fan {
			p.levels[k][i] = slices.Max(below[i*fan : (i+1)*fan])
		}
	}
}

// set changes one score.
func (p *peaks) set(i int, score int64) {
	for k := 0; ; k++ {
		level := p.levels[k]
		before := level[i]
		if before == score {
			return
		}
		level[i] = score
		if k+1 == len(p.levels) {
			return
		}
		i /= fan
		switch above := p.levels[k+1][i]; {
		case score > above: // the new largest
		case before == above: // it was the largest
			score = slices.Max(level[i*fan : (i+1)*fan])
		default:
			return
		}
	}
}

// first is where the largest score is, the first of those that are equal; false: all are barred.
func (p *peaks) first() (int, bool) {
	top := len(p.levels) - 1
	best := slices.Max(p.levels[top])
	if best == barred {
		return 0, false
	}
	at := 0
	for k := top; k >= 0; k-- {
		at *= fan
		at += slices.Index(p.levels[k][at:at+fan], best)
	}
	return at, true
}
