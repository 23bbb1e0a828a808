package place

import "slices"

const (
	fan   = 16 // how many values each value above stands for
	width = 16 // kinds of a page: their scores of a node are two cache lines
)

// page keeps the scores of a few kinds, those of a node side by side: a node that was touched is scored anew for all of them at
// once, where scores of one kind are far apart. Beside them it keeps, for each fan of nodes, a bound of their scores.
type page struct {
	epoch  uint64
	size   int     // kinds of which it keeps scores
	scores []int64 // by rank, then by kind
	bounds []int64 // by fan of ranks, then by kind
	from   []uint8 // by fan of ranks, then by kind: no score before this one of the fan is as good as the bound
	loose  []kinds // by rank: for these kinds a node scores no more than what is kept, and how much is not known
}

// kinds are some of the kinds of a page, a bit each.
type kinds uint16

// reset makes room for so many nodes, all barred.
func (p *page) reset(nodes int, epoch uint64) {
	p.epoch = epoch
	fans := (nodes + fan - 1) / fan
	p.scores = allBarred(p.scores, fans*fan*width)
	p.bounds = allBarred(p.bounds, (fans+fan-1)/fan*fan*width)
	p.from = slices.Grow(p.from[:0], len(p.bounds))[:len(p.bounds)]
	clear(p.from)
	p.loose = slices.Grow(p.loose[:0], fans*fan)[:fans*fan]
	clear(p.loose)
}

func allBarred(values []int64, size int) []int64 {
	values = slices.Grow(values[:0], size)[:size]
	for i := range values {
		values[i] = barred
	}
	return values
}

// peaks are the scores of nodes by rank for one kind, in a column of a page, a bound for each fan of them in the same column, and above
// these the largest of each fan of values, up to a single fan. So the best node is found in a walk down, the first of those that are
// equal. A bound rises with the scores below it at once; it falls only when the walk comes to it and finds no score that reaches it.
// So a score that falls costs nothing where others are better.
type peaks struct {
	page   *page
	column int
	levels [][]int64
	from   []uint8 // by fan of bounds: no bound before this one of the fan is as good as the value of the lowest level
}

// reset makes room above so many scores; build must follow once they are set.
func (p *peaks) reset(n int) {
	n = (n + fan - 1) / fan
	for k := 0; ; k++ {
		n = (n + fan - 1) / fan
		size := max(1, (n+fan-1)/fan) * fan
		if k == len(p.levels) {
			p.levels = append(p.levels, nil)
		}
		p.levels[k] = allBarred(p.levels[k], size)
		if size == fan {
			p.levels = p.levels[:k+1]
			break
		}
	}
	p.from = slices.Grow(p.from[:0], len(p.levels[0]))[:len(p.levels[0])]
	clear(p.from)
}

// score is where a score is kept.
func (p *peaks) score(i int) *int64 { return &p.page.scores[i*width+p.column] }

// isLoose says that a node scores no more than what is kept, and that how much is not known.
func (p *peaks) isLoose(i int) bool { return p.page.loose[i]>>p.column&1 != 0 }

// put keeps a score before build; loose says that it may be less.
func (p *peaks) put(i int, score int64, loose bool) {
	*p.score(i) = score
	p.loosen(i, loose)
}

func (p *peaks) loosen(i int, loose bool) {
	if of := &p.page.loose[i]; loose {
		*of |= 1 << p.column
	} else {
		*of &^= 1 << p.column
	}
}

// build works all bounds and levels out from the scores.
func (p *peaks) build() {
	for i := range len(p.page.scores) / (width * fan) {
		p.bound(i)
	}
	for i := range len(p.page.bounds) / (width * fan) {
		p.levels[0][i], p.from[i] = p.most(p.page.bounds, i)
	}
	for k := 1; k < len(p.levels); k++ {
		for i := range len(p.levels[k-1]) / fan {
			p.levels[k][i] = p.above(k, i)
		}
	}
}

// bound works the bound of a fan of scores out.
func (p *peaks) bound(i int) {
	at := i*width + p.column
	p.page.bounds[at], p.page.from[at] = p.most(p.page.scores, i)
}

// most is the largest of a fan of scores, or of bounds, and which is the first that has it.
func (p *peaks) most(values []int64, i int) (best int64, first uint8) {
	values = values[i*fan*width : (i+1)*fan*width]
	best = values[p.column]
	for k := 1; k < fan; k++ {
		if v := values[k*width+p.column]; v > best {
			best, first = v, uint8(k)
		}
	}
	return best, first
}

// above is what the value at i of a level above the lowest has to be.
func (p *peaks) above(level, i int) int64 {
	return slices.Max(p.levels[level-1][i*fan : (i+1)*fan])
}

// set changes one score; loose says that it may be less.
func (p *peaks) set(i int, score int64, loose bool) {
	p.loosen(i, loose)
	at := p.score(i)
	if *at == score {
		return
	}
	*at = score
	of := i/fan*width + p.column
	switch bound := &p.page.bounds[of]; {
	case score > *bound:
		*bound, p.page.from[of] = score, uint8(i%fan)
		p.raise(i/fan, score)
	case score == *bound:
		p.page.from[of] = min(p.page.from[of], uint8(i%fan))
	}
}

// raise brings what is above a bound that rose up to date.
func (p *peaks) raise(i int, bound int64) {
	last := uint8(i % fan)
	i /= fan
	switch value := &p.levels[0][i]; {
	case *value > bound:
		return
	case *value == bound:
		p.from[i] = min(p.from[i], last)
		return
	default:
		*value, p.from[i] = bound, last
	}
	for _, level := range p.levels[1:] {
		i /= fan
		if level[i] >= bound {
			return
		}
		level[i] = bound
	}
}

// lower takes a bound down to the largest of its scores, and what is above it with it.
func (p *peaks) lower(i int) {
	p.bound(i)
	i /= fan
	was := p.levels[0][i]
	if p.levels[0][i], p.from[i] = p.most(p.page.bounds, i); p.levels[0][i] == was {
		return
	}
	for k, level := range p.levels[1:] {
		i /= fan
		least := p.above(k+1, i)
		if level[i] == least {
			return
		}
		level[i] = least
	}
}

// first is where the largest score is, the first of those that are equal; false: all are barred.
func (p *peaks) first() (int, bool) {
	top := len(p.levels) - 1
	for {
		best := slices.Max(p.levels[top])
		if best == barred {
			return 0, false
		}
		at := 0
		for k := top; k >= 0; k-- {
			at *= fan
			at += slices.Index(p.levels[k][at:at+fan], best)
		}
		at = p.find(p.page.bounds, at, best, p.from[at])
		if i := p.find(p.page.scores, at, best, p.page.from[at*width+p.column]); i != none {
			return i, true
		}
		p.lower(at)
	}
}

// find is the first place of a value in a fan of scores, or of bounds, none of whose first so many have it; none: it is not there.
func (p *peaks) find(values []int64, i int, value int64, from uint8) int {
	for at := i*fan + int(from); at < (i+1)*fan; at++ {
		if values[at*width+p.column] == value {
			return at
		}
	}
	return none
}
