package place

import (
	"slices"

	"github.com/aliquot-dev/aliquot/api"
)

// state is what decides what a device scores for every part, where the node's resources serve the same others once the request is on it.
// Fleets have few such, for shapes come again and again; so what devices score is worked out once for each, and then looked up.
type state struct {
	stateKey
	unit    unit // one that is in it
	profile int32
	epoch   uint64
	scores  []int64 // by part, the first so many; barred: it does not serve
	serves  []int32 // the parts of these that it serves, by index
}

// stateKey is what makes two states the same. The table tells the profile.
type stateKey struct {
	memory  api.Bytes // free
	wholes  int       // wholly free devices of the node, where this is one; else 0
	group   int32
	table   int32
	compute int16 // free, in milli
	busy    int16
}

const maxStates = 2048 // that are kept

// stateOf is the state of a device of a node.
func (s *scored) stateOf(v *view, u *unit) *state {
	key := stateKey{memory: u.memory, group: u.group, table: v.table, compute: u.compute, busy: u.busy}
	if int64(u.free) == whole {
		key.wholes = v.whole
	}
	if u.state != nil && u.state.epoch == s.epoch && u.state.stateKey == key {
		return u.state
	}
	st, ok := s.states[key]
	if !ok {
		if len(s.states) >= maxStates {
			clear(s.states)
		}
		st = &state{stateKey: key, unit: *u, profile: v.profile, epoch: s.epoch}
		st.unit.state = nil // it holds no state before it
		s.states[key] = st
	}
	u.state = st
	return st
}

// scoresOf are what a device scores for all parts there are now, but for what its node has left and for the node's wholly free devices.
func (s *scored) scoresOf(st *state) []int64 {
	st.scores = slices.Grow(st.scores, len(s.partList)-len(st.scores))
	for k := len(st.scores); k < len(s.partList); k++ {
		score := s.scoreIn(st, s.partList[k])
		if st.scores = append(st.scores, score); score != barred {
			st.serves = append(st.serves, int32(k))
		}
	}
	return st.scores
}

// scoreIn is what a device scores for a part; barred: it does not serve. Fences are not looked at.
func (s *scored) scoreIn(st *state, p *part) int64 {
	u := &st.unit
	if u.compute < p.compute || !p.anywhere && !s.suits(p, u) {
		return barred
	}
	tab, left := s.terrain.tableAt(st.profile, st.table), s.leftOf(p, u)
	if int64(u.free) == whole && left < whole { // the node has one wholly free device less
		return s.onDevice(p, st.profile, u, left, tab, tab.served(st.wholes-1)-tab.served(st.wholes)) + int64(s.policy.Weights[Whole])
	}
	return s.onDevice(p, st.profile, u, left, tab, 0)
}

// ofWholes is the part of the score that rests on how many wholly free devices a node has.
func (s *scored) ofWholes(wholes int) int64 { return -int64(s.policy.Weights[Whole]) * int64(wholes) }

// pickKept is pick where the node's resources serve the same others once the request is on it, without the score of the node.
func (s *scored) pickKept(p *part, v *view) (best int64, at int) {
	at = none
	for i := range v.units {
		u := &v.units[i]
		if u.compute < p.compute || u.twin == twins && p.fence == nil {
			continue
		}
		score := s.scoresOf(s.stateOf(v, u))[p.index]
		if score != barred && (at == none || score > best) && (p.fence == nil || !p.fence.Bars(u.device)) {
			best, at = score, i
		}
	}
	return best + s.ofWholes(v.whole), at
}

// bestOf is, for each part, the best that a device of a node scores, as pickKept finds it; barred: none serves. Fences are not looked at.
func (s *scored) bestOf(v *view) []int64 {
	found := allBarred(s.found, len(s.partList))
	s.found = found
	for i := range v.units {
		u := &v.units[i]
		if u.compute < s.smallest || u.twin == twins {
			continue
		}
		st := s.stateOf(v, u)
		scores := s.scoresOf(st)
		for _, k := range st.serves { // few: what is left of most devices is little
			found[k] = max(found[k], scores[k])
		}
	}
	return found
}

// askedKind is a kind that was asked for lately, with what tells most often that a node's score of it stays.
type askedKind struct {
	*cache
	at    uint64 // of the cache
	least int16  // compute that a device must have free, in milli: they are in the order of that
	part  int32  // by index
}

// rescoreAll scores a node that was touched anew for all kinds that were asked for lately. The scores are put where they are kept in one go: those
// places are far apart, and so the memory is asked for many at a time. Where no device had or has the compute that a kind asks for, the
// node was barred for it and is.
func (s *scored) rescoreAll(rank int32) {
	v, stamp := &s.views[rank], s.recent.stamp[rank]
	scores := s.scoresOn(v, s.asked, stamp)
	v.had = v.most
	for i, score := range scores {
		if k := &s.asked[i]; stamp > k.at {
			k.best.set(int(rank), score, s.loose[i])
		}
	}
}
