package queue

import "fmt"

// week is the half-life of use where none is set, in µs.
const week = 7 * 24 * 3600 * 1_000_000

// MostUsed bounds both parts of a use, what is left of it and what is held since, so that their sum is an integer still. With a half-life of a year 50,000
// devices that are held all along come to it.
const MostUsed = 1 << 61

// one is 1 in fixed point.
const one = int64(1) << 32

// halves[i] is 2^-(2^-(i+1)) in units of 2^-32, rounded down: the binary digits of the exponent pick their factors.
var halves = [...]int64{
	3037000499, 3611622602, 3938502375, 4112874773, 4202935003, 4248701964, 4271771996, 4283353945,
	4289156690, 4292061009, 4293513906, 4294240539, 4294603902, 4294785595, 4294876444, 4294921870,
}

// log2e is 1 / ln 2 and ln2 is ln 2, in units of 2^-32, rounded down.
const (
	log2e = 6196328018
	ln2   = 2977044471
)

// decay is 2^-(dt / halfLife) in units of 2^-32. The first 16 binary digits of the exponent pick factors, the next 16 are small
// enough for 1 - x ln 2.
func decay(dt, halfLife int64) int64 {
	if dt/halfLife >= 32 {
		return 0
	}
	f := one >> (dt / halfLife)
	digits := scale(dt%halfLife, one, halfLife)
	for i, factor := range halves {
		if digits&(1<<(31-i)) != 0 {
			f = scale(f, factor, one)
		}
	}
	return scale(f, one-scale(digits&(1<<16-1), ln2, one), one)
}

// Used is the decayed use of compute up to now, in thousandths of a device times milliseconds: what was used one half-life ago
// counts half. While a is held all along it comes near a × half-life / ln 2.
func (a *account) Used(t *Tree) int64 { return a.UsedAt(t, t.Now) }

// UsedAt is the same up to another time, no earlier than now, if what is held stays.
func (a *account) UsedAt(t *Tree, at int64) int64 {
	dt := at - a.usedAt
	if dt <= 0 || a.used == 0 && a.Held[Compute] == 0 {
		return a.used
	}
	return scaleTo(a.used, decay(dt, t.halfLife), one, MostUsed) + t.UseOf(a.Held[Compute], dt)
}

// UseOf is what holding so much compute for so long, in µs, comes to at the end: the integral of 2^-(s / life) over that time, (1 - f) × life / ln 2; over one
// so short that nothing decays it is the time itself.
func (t *Tree) UseOf(held, long int64) int64 {
	life := t.halfLife
	if long > life>>16 {
		long = scale(scale(life, log2e, one), one-decay(long, life), one)
	}
	return scaleTo(max(held, 0), max(long, 0), 1000, MostUsed)
}

// settle brings the use up to now, before what is held changes.
func (a *account) settle(t *Tree) {
	if t.Now > a.usedAt {
		a.used, a.usedAt = a.Used(t), t.Now
	}
}

// SetHalfLife has use count half after so long from now on, in µs; 0: a week. What was used up to now stays what it is.
func (t *Tree) SetHalfLife(life int64) {
	if life <= 0 {
		life = week
	}
	if life == t.halfLife {
		return
	}
	for _, n := range t.byName {
		n.All.settle(t)
		n.Own.settle(t)
	}
	t.halfLife = life
}

// Use is the record of use of a queue, for a snapshot.
type Use struct {
	Queue string `json:"queue"`
	All   int64  `json:"all"` // with the queues under it
	AllAt int64  `json:"allAt"`
	Own   int64  `json:"own"`
	OwnAt int64  `json:"ownAt"`
}

// Uses are the records of all queues that used anything, by name.
func (t *Tree) Uses() []Use {
	var uses []Use
	for _, n := range t.All() {
		if n.All.usedAt != 0 || n.Own.usedAt != 0 || n.All.used != 0 || n.Own.used != 0 {
			uses = append(uses, Use{n.Name, n.All.used, n.All.usedAt, n.Own.used, n.Own.usedAt})
		}
	}
	return uses
}

// Recall has a queue have used so much as of so long ago, in µs, in place of what it used up to now, and held since what it holds. A queue that is not there
// did nothing.
func (t *Tree) Recall(queue string, all, own, ago int64) {
	if n, ok := t.byName[queue]; ok {
		n.All.used, n.All.usedAt, n.Own.used, n.Own.usedAt = all, t.Now-ago, own, t.Now-ago
	}
}

// SetUses puts the records of all queues back, after what is held was booked, or says which is wrong.
func (t *Tree) SetUses(uses []Use) error {
	for _, n := range t.byName {
		n.All.used, n.All.usedAt, n.Own.used, n.Own.usedAt = 0, 0, 0, 0
	}
	for _, u := range uses {
		n, ok := t.byName[u.Queue]
		if !ok || u.All < 0 || u.Own < 0 || u.AllAt > t.Now || u.OwnAt > t.Now {
			return fmt.Errorf("the use of queue %s is of no queue, less than nothing or yet to come", u.Queue)
		}
		n.All.used, n.All.usedAt, n.Own.used, n.Own.usedAt = u.All, u.AllAt, u.Own, u.OwnAt
	}
	return nil
}
