package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Claims for devices of ours which the engine has no words for (alternatives, all devices of a node, constraints, shares that differ, devices of other
// drivers beside, or of any driver, access as an administrator) are allocated by upstream's own allocator on the engine's books, which have what is being written for others,
// too, and for other drivers' on the filters', who hold what is found. The engine adopts what it finds before anything is written, as it does what another
// scheduler allocated; it must fit there and in the queue, and nobody with devices is evicted for it. Access as an administrator takes nothing: the engine
// never hears of it. Pods of a gang of which one has such claims are placed so together: see together.go.

// party is pods that are placed beside the line: one alone, or those of a gang that start together or not at all.
type party struct {
	seats  []*seat // in the order in which devices are looked for and nodes asked
	gang   *gang   // that starts with them; nil: one is alone
	looked int     // how often devices were looked for
	since  uint64  // news when they were last
	lacks  *pod    // of a gang's, the one for which there were none; nil: they are being looked for
}

// seat is a pod of a party.
type seat struct {
	pod     *pod
	ask     *ask
	labels  map[string]string // that it had when it was considered
	class   *class
	refused map[string]error // nodes that did not take it just now, and why
	first   bool             // it went before those that were in its way
}

// lookMost is how often devices are looked for again for a gang where nodes refuse pods of it, or others take what was found, before it waits for news.
const lookMost = 100

// restAfter is for how long a pod is left alone whose placing could not be written: long enough to tell it why.
const restAfter = 2 * sayAfter

// partyOf is a pod by itself.
func (s *Scheduler) partyOf(p *pod, a *ask) *party {
	return &party{seats: []*seat{{pod: p, ask: a, labels: p.object.Labels, class: s.classOf(p, a)}}}
}

// placeSpecial has devices looked for, for pods that the engine does not decide for, on the nodes that take them but for those that refused them just now.
func (s *Scheduler) placeSpecial(f *party) {
	now := s.config.Now()
	rests := func(o *seat) bool { return now.Before(o.pod.rests) }
	if slices.ContainsFunc(f.seats, func(o *seat) bool { return o.class.answer == nil || o.class.likes.withheld || rests(o) }) {
		for _, o := range f.seats {
			why := errors.New("the nodes that it may run on are looked for")
			if rests(o) && o.pod.reason != "" {
				why = errors.New(o.pod.reason)
			}
			if o.pod.beside == nil {
				s.awaitNodes(o.pod, o.ask, why)
			}
		}
		return
	}
	f.looked, f.lacks, f.since = f.looked+1, nil, s.news(f)
	looked := s.huntFor(f)
	for _, o := range f.seats {
		o.class.enter(s)
		o.pod.searching = true
		if o.pod.beside != nil { // as others of its gang that waited
			s.leaveBeside(o.pod)
		}
	}
	s.spawn(func(ctx context.Context) {
		found := looked.run(ctx)
		s.inbox.put(func() {
			var classes []*class
			for _, o := range f.seats {
				o.pod.searching = false
				classes = append(classes, o.class)
			}
			s.foundDevices(f, found)
			for _, c := range classes {
				c.leave(s) // after it may have entered anew, so that what was answered is not forgotten
			}
		})
	})
}

// foundDevices takes in what a search came to. What it was done on may have changed since.
func (s *Scheduler) foundDevices(f *party, found finds) {
	f.seats = inOrder(f.seats, found.order)
	if !s.askAgain(f) {
		for _, o := range f.seats {
			s.consider(o.pod)
		}
		s.followers(f.gang)
		return
	}
	lacks, why := f.seats[0], error(nil)
	if found.lacks < 0 {
		if why = s.grant(f, found.each); why == nil {
			return
		}
		if f.gang == nil || f.looked < lookMost {
			if errors.Is(why, errOvertaken) || errors.As(why, new(barred)) {
				s.placeSpecial(f)
				return
			}
		}
	} else {
		lacks = f.seats[found.lacks]
		if len(lacks.refused) > 0 && found.lacks > 0 && !lacks.first && f.looked < lookMost {
			// Those before it may be in its way where it was refused: now it goes first, once.
			lacks.refused, lacks.first = nil, true
			f.seats = slices.Insert(slices.Delete(f.seats, found.lacks, found.lacks+1), 0, lacks)
			s.placeSpecial(f)
			return
		}
		why = cmp.Or(lacks.refusal(), found.each[found.lacks].why, errNoDevices)
	}
	s.awaitDevices(f, lacks, why)
}

// askAgain says whether the pods of a party are to be placed as they were when devices were looked for, and wait for the same claims.
func (s *Scheduler) askAgain(f *party) bool {
	for _, o := range f.seats {
		p, before := o.pod, o.ask
		alone := p.gang == nil || p.gang.begun()
		if !s.mine(p) || p.task != nil || p.busy || p.beside != nil || alone != (f.gang == nil) || f.gang != nil && p.gang != f.gang || !maps.Equal(o.labels, p.object.Labels) {
			return false
		}
		now, err := s.askOf(p)
		if err != nil || !slices.Equal(now.open, before.open) || !slices.Equal(now.have, before.have) || now.node != before.node || (now.shut == nil) != (before.shut == nil) {
			return false
		}
		now.selectors, now.same, now.within = before.selectors, before.same, before.within
		o.ask = now
	}
	return true
}

// awaitDevices has devices looked for again when some come free, or it is known anew which nodes a pod may use that lacks some.
func (s *Scheduler) awaitDevices(f *party, lacks *seat, why error) {
	p, a := lacks.pod, lacks.ask
	special := cmp.Or(a.special, "it starts together with others of its gang for which the engine has no words")
	why = fmt.Errorf("%s, and so is placed beside those in line: %w", special, why)
	s.awaitNodes(p, a, why)
	s.specials[p] = true
	late := s.news(f) != f.since // of which those that wait were told, and these did not wait then
	p.beside.stale = p.beside.stale || late
	p.seeking.putOff = late && !p.seeking.putOff
	switch {
	case f.gang != nil:
		for _, o := range f.seats {
			s.unnominate(o.pod) // as it was while its gang was in line: nobody is evicted for one beside it
		}
		s.awaitOthers(f, p, why)
	case !p.seeking.putOff && p.beside.answer != nil && s.mayGainRoom(p) && a.within == topology{}:
		s.seek(p)
	}
}

// news grows whenever there may be room for a party where there was none: nodes that its pods might not use before, or devices that came free.
func (s *Scheduler) news(f *party) uint64 {
	all := s.freed
	for _, o := range f.seats {
		all += o.class.opened
	}
	return all
}

// devicesFree has those looked at again that wait for devices beside the engine, for some have come free.
func (s *Scheduler) devicesFree() {
	s.freed++
	for p := range s.specials {
		if p.beside == nil {
			delete(s.specials, p)
			continue
		}
		p.beside.stale = true
	}
}

// othersFree is devicesFree for those of other drivers, of which the filters hear by themselves, which may be later.
func (s *Scheduler) othersFree() {
	s.devicesFree()
	for p := range s.specials {
		p.beside.outdated = s.config.Now()
	}
}

// barred is why a node does not take a pod, where another may.
type barred struct{ error }

func (b barred) Unwrap() error { return b.error }

// errOvertaken is that others have what was found.
var errOvertaken = errors.New("what was found was taken meanwhile")

// errNoDevices is that there is nothing for a pod.
var errNoDevices = errors.New("no node that takes it has such devices free")

// refuse notes that a node does not take the pod.
func (o *seat) refuse(node string, why error) {
	if o.refused == nil {
		o.refused = map[string]error{}
	}
	o.refused[node] = why
}

// refusal is why a node did not take the pod; nil: none was asked.
func (o *seat) refusal() error {
	for _, node := range slices.Sorted(maps.Keys(o.refused)) {
		return o.refused[node]
	}
	return nil
}
