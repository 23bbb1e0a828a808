package place

import "slices"

const (
	fan   = 16 // how many values each value above stands for: two cache lines of them
	width = 16 // kinds of a page: their scores of a node are two cache lines
)

// page keeps the scores of a few kinds, those of a node side by side: a node that was touched is scored anew for all of them at
// once, where scores of one kind are far apart.
type page struct {
	epoch  uint64
	kinds  []*cache
	scores []int64 // by rank, then by kind
}

// reset makes room for so many nodes, all barred.
func (p *page) reset(nodes int, epoch uint64) {
	size := (nodes + fan - 1) / fan * fan * width
	p.epoch, p.scores = epoch, slices.Grow(p.scores[:0], size)[:size]
	for i := range p.scores {
		p.scores[i] = barred
	}
}

// peaks are the scores of nodes by rank for one kind, in a column of a page, and above them the largest of each fan of them, up to a
// single fan. So the best node is found in a walk down, the first of those that are equal, and a score is changed at the cost of a
// few values beside it.
type peaks struct {
	page   *page
	column int
	levels [][]int64
}

// reset makes room above so many scores; build must follow once they are set.
func (p *peaks) reset(n int) {
	for k := 0; ; k++ {
		n = (n + fan - 1) / fan
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
	}
}

// score is where a score is kept.
func (p *peaks) score(i int) *int64 { return &p.page.scores[i*width+p.column] }

// build works all levels out from the scores.
func (p *peaks) build() {
	for i := range len(p.page.scores) / (width * fan) {
		p.levels[0][i] = p.most(i)
	}
	for k := 1; k < len(p.levels); k++ {
		below := p.levels[k-1]
		for i := range len(below) / fan {
			p.levels[k][i] = slices.Max(below[i*fan : (i+1)*fan])
		}
	}
}

// most is the largest score of a fan.
func (p *peaks) most(i int) int64 {
	scores := p.page.scores[i*fan*width : (i+1)*fan*width]
	best := int64(barred)
	for at := p.column; at < len(scores); at += width {
		best = max(best, scores[at])
	}
	return best
}

// set changes one score.
func (p *peaks) set(i int, score int64) {
	at := p.score(i)
	before := *at
	if before == score {
		return
	}
	*at = score
	i /= fan
	switch above := p.levels[0][i]; {
	case score > above: // the new largest
	case before == above: // it was the largest
		score = p.most(i)
	default:
		return
	}
	p.raise(i, score)
}

// raise changes a value of the first level, up or down.
func (p *peaks) raise(i int, score int64) {
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
		case score > above:
		case before == above:
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
	for at *= fan; *p.score(at) != best; at++ {
	}
	return at, true
}
