package place

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// The workload seen lately: how often each kind of request came, halved each time that so many have come. What scores are measured
// against is what was known at the last look; the next look is when half as many more have come, at least firstLook. So looks get
// rarer, and few in all.
const (
	halveAt   = 1 << 14 // at least; four times the devices there are where these are more
	firstLook = 16
	maxKinds  = 256 // that scores look at: the most frequent
)

// kind is a kind of request.
type kind struct {
	Request
	key   string
	as    Popular // the same by names: what orders kinds, for numbers differ between runs
	count int64   // that came
	known int64   // at the last look
}

// Seen is the workload seen lately as it is saved. It is part of the state: decisions rest on it.
type Seen struct {
	Kinds []SeenKind `json:"kinds"`
	Total int64      `json:"total"`
	Next  int64      `json:"next"`
}

// SeenKind is one kind of request of Seen.
type SeenKind struct {
	Popular
	Known int64 `json:"known,omitempty"`
}

// keyOf names what makes two requests the same kind: all but the number of tasks.
func keyOf(r *Request) string {
	var room [128]byte
	key := strconv.AppendInt(room[:0], int64(r.Compute), 10)
	key = strconv.AppendInt(append(key, ' '), int64(r.Memory.Bytes), 10)
	key = strconv.AppendInt(append(key, ' '), int64(r.Memory.Part), 10)
	key = strconv.AppendQuote(append(key, ' '), r.Model)
	if r.Least != (fleet.Least{}) {
		key = fmt.Appendf(key, " least %d %d %d", r.Least.Capability, r.Least.Bandwidth, r.Least.Latency)
	}
	key = strconv.AppendInt(append(key, ' '), int64(r.Class), 10)
	key = strconv.AppendInt(append(key, ' '), int64(r.Devices), 10)
	for _, a := range r.Resources {
		key = strconv.AppendInt(append(key, ' '), int64(a.Resource), 10)
		key = strconv.AppendInt(append(key, '='), a.Amount, 10)
	}
	return string(key)
}

// Saw notes that a request came, once for each of its tasks. Placements are scored against what came lately.
func (p *Placer) Saw(r *Request) {
	s := p.scored
	if s == nil || len(s.policy.Workload) > 0 {
		return
	}
	if r.kind == nil {
		r.kind = s.kindFor(p, r)
	} else if k := s.kinds[r.kind.key]; k == nil { // it was forgotten meanwhile
		s.kinds[r.kind.key] = r.kind
	} else {
		r.kind = k
	}
	r.kind.count += int64(r.Tasks)
	s.seen += int64(r.Tasks)
	if s.seen < s.nextLook {
		return
	}
	s.look()
}

// ForgetClasses counts on what came of classes as of the empty class, before the fleet forgets them.
func (p *Placer) ForgetClasses(ids []fleet.ClassID) {
	s := p.scored
	if s == nil {
		return
	}
	gone := map[fleet.ClassID]bool{}
	for _, id := range ids {
		gone[id] = true
	}
	var moved []*kind
	for key, k := range s.kinds {
		if gone[k.Class] {
			moved = append(moved, k)
			delete(s.kinds, key)
		}
	}
	for _, k := range moved { // in any order: counts add up
		of := k.Request
		of.Class = 0
		s.kindFor(p, &of).add(k)
		s.stale = true
	}
}

// kindFor finds or makes the kind of a request.
func (s *scored) kindFor(p *Placer, r *Request) *kind {
	key := keyOf(r)
	k := s.kinds[key]
	if k == nil {
		k = &kind{Request: *r.Within(nil), key: key}
		k.as = p.export(k)
		s.kinds[key] = k
	}
	return k
}

// add counts what came of another kind.
func (k *kind) add(other *kind) {
	k.count += other.count
	k.known += other.known
}

// look takes what came as known from here on.
func (s *scored) look() {
	if s.seen >= max(halveAt, 4*int64(s.fleet.DeviceCount())) {
		s.seen = 0
		for key, k := range s.kinds {
			if k.count /= 2; k.count == 0 {
				delete(s.kinds, key)
			}
			s.seen += k.count
		}
	}
	s.nextLook = max(firstLook, s.seen+s.seen/2)
	for _, k := range s.kinds {
		k.known = k.count
	}
	s.stale = true
}

// published is how much of all that came, in percent, the kinds make up that a workload told beforehand is taken for, as FGD was
// published. What is learned is taken whole: the rare kinds fill what the others leave.
const published = 95

// popular are the kinds that scores look at, the most frequent first.
func (s *scored) popular() []*kind {
	var all []*kind
	var sum int64
	for _, k := range s.kinds {
		if k.known > 0 {
			all = append(all, k)
			sum += k.known
		}
	}
	slices.SortFunc(all, func(a, b *kind) int {
		return cmp.Or(cmp.Compare(b.known, a.known), comparePopular(&a.as, &b.as))
	})
	covers, covered := int64(100), int64(0)
	if len(s.policy.Workload) > 0 {
		covers = published
	}
	for i, k := range all {
		if covered*100 >= sum*covers || i == maxKinds {
			return all[:i]
		}
		covered += k.known
	}
	return all
}

// Check holds the workload seen lately against the classes that there are: none of it is of one that is forgotten.
func (p *Placer) Check() error {
	if p.scored == nil {
		return nil
	}
	for key, k := range p.scored.kinds {
		if !p.fleet.HasClass(k.Class) || p.fleet.ClassName(k.Class) != k.as.Class || keyOf(&k.Request) != key || k.key != key {
			return fmt.Errorf("a kind of request is kept as %q, of class %q, which is forgotten or another", key, k.as.Class)
		}
	}
	return nil
}

// Seen is what came lately, to be saved; nil where nothing is learned.
func (p *Placer) Seen() *Seen {
	s := p.scored
	if s == nil || len(s.policy.Workload) > 0 || len(s.kinds) == 0 {
		return nil
	}
	out := &Seen{Total: s.seen, Next: s.nextLook}
	for _, k := range s.kinds {
		out.Kinds = append(out.Kinds, SeenKind{p.export(k), k.known})
	}
	slices.SortFunc(out.Kinds, func(a, b SeenKind) int { return comparePopular(&a.Popular, &b.Popular) })
	return out
}

func comparePopular(a, b *Popular) int {
	c := cmp.Or(
		cmp.Compare(a.Compute, b.Compute), cmp.Compare(a.Devices, b.Devices), cmp.Compare(a.Memory.Bytes, b.Memory.Bytes),
		cmp.Compare(a.Memory.Part, b.Memory.Part), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Class, b.Class),
		cmp.Compare(a.Least.Capability, b.Least.Capability), cmp.Compare(a.Least.Bandwidth, b.Least.Bandwidth),
		cmp.Compare(a.Least.Latency, b.Least.Latency),
	)
	if c != 0 {
		return c
	}
	return slices.CompareFunc(a.Resources, b.Resources, func(x, y Resource) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Amount, y.Amount))
	})
}

// SetSeen puts back what Seen gave.
func (p *Placer) SetSeen(seen *Seen) {
	if p.scored == nil || seen == nil {
		return
	}
	s := p.scored
	for _, k := range seen.Kinds {
		entry := p.kindOf(&k.Popular)
		entry.known = k.Known
		s.kinds[entry.key] = entry
	}
	s.seen, s.nextLook, s.stale = seen.Total, seen.Next, true
}

// SaveSeen remembers what came lately, and returns what puts it back.
func (p *Placer) SaveSeen() (putBack func()) {
	s := p.scored
	if s == nil {
		return func() {}
	}
	kinds, saved := maps.Clone(s.kinds), make(map[*kind]kind, len(s.kinds))
	for _, k := range kinds {
		saved[k] = *k
	}
	seen, next, draws, stale, epoch := s.seen, s.nextLook, s.draws, s.stale, s.epoch
	return func() {
		for k, was := range saved {
			*k = was
		}
		s.kinds, s.seen, s.nextLook, s.draws = kinds, seen, next, draws
		s.stale = stale || s.stale || s.epoch != epoch // a terrain of another workload is no use any more
	}
}

func (p *Placer) export(k *kind) Popular {
	out := Popular{
		Compute: k.Compute, Memory: k.Memory, Model: k.Model, Least: k.Least, Class: p.fleet.ClassName(k.Class), Devices: k.Devices, Count: k.count,
	}
	for _, a := range k.Resources {
		out.Resources = append(out.Resources, Resource{p.fleet.ResourceName(a.Resource), a.Amount})
	}
	slices.SortFunc(out.Resources, func(x, y Resource) int { return cmp.Compare(x.Name, y.Name) })
	return out
}

func (p *Placer) kindOf(w *Popular) *kind {
	k := &kind{count: w.Count, known: w.Count}
	k.Request = Request{Compute: w.Compute, Memory: w.Memory, Model: w.Model, Least: w.Least, Class: p.fleet.Class(w.Class), Devices: w.Devices, Tasks: 1}
	for _, r := range w.Resources {
		k.Resources = append(k.Resources, fleet.Amount{Resource: p.fleet.Resource(r.Name), Amount: r.Amount})
	}
	k.key = keyOf(&k.Request)
	k.as = p.export(k)
	return k
}
