package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
)

// A gang of which a pod's claims are placed beside the line is placed there whole. Devices are looked for, for one of its pods after the other, each time as
// if those before had what was found for them; then all are one workload for the engine, which sees whether it fits and its queue lets it, are assumed on
// their nodes in turn, and are written as one job. Where one of them has no place nobody starts, and all are looked at when there is news for that one.

// placeTogether has devices looked for, for those of a gang that start together, unless there is no news since there were none.
func (s *Scheduler) placeTogether(p *pod, members []*pod, asks []*ask) {
	g := p.gang
	if f := g.party; f.waits() && f.lacks != p && f.are(members) {
		if slices.Contains(members, p) {
			s.awaitNodes(p, asks[slices.Index(members, p)], errors.New(p.reason))
		}
		return
	}
	lead := asks[max(0, slices.IndexFunc(asks, (*ask).holds))]
	used := map[*claim]string{}
	g.party = &party{gang: g}
	for i, o := range members {
		a := asks[i]
		err := lead.together(a, o.object.Name)
		for _, c := range a.open {
			if other := used[c]; other != "" {
				err = fmt.Errorf("claim %s is that of pod %s of its gang, too; pods of a gang have claims of their own", c.key, other)
			}
			used[c] = o.object.Name
		}
		if err != nil {
			g.party = nil
			s.waitAll(members, err)
			return
		}
		a.selectors = nil // they are judged when devices are looked for
		g.party.seats = append(g.party.seats, &seat{pod: o, ask: a, labels: o.object.Labels, class: s.classOf(o, a)})
	}
	slices.SortStableFunc(g.party.seats, func(a, b *seat) int { return cmp.Compare(a.class.takes(), b.class.takes()) })
	s.placeSpecial(g.party)
}

// takes is how many nodes take a class's pods.
func (c *class) takes() (count int) {
	for _, why := range c.answer {
		if why == "" {
			count++
		}
	}
	return count
}

// waits says whether one of a party lacks devices and waits for news.
func (f *party) waits() bool { return f != nil && f.lacks != nil && f.lacks.beside != nil }

// looks says whether devices are being looked for, for a party.
func (f *party) looks() bool { return f != nil && f.lacks == nil && f.seats[0].pod.searching }

// are says whether a party is of these pods.
func (f *party) are(members []*pod) bool {
	return len(f.seats) == len(members) && !slices.ContainsFunc(f.seats, func(o *seat) bool { return !slices.Contains(members, o.pod) })
}

// awaitOthers has those of a gang wait of which one lacks devices.
func (s *Scheduler) awaitOthers(f *party, lacks *pod, why error) {
	f.lacks = lacks
	for _, o := range f.seats {
		if o.pod != lacks {
			s.awaitNodes(o.pod, o.ask, fmt.Errorf("it starts together with pod %s of its gang, which waits: %w", lacks.object.Name, why))
		}
	}
	s.followers(f.gang)
}

// waitAll notes why pods wait.
func (s *Scheduler) waitAll(pods []*pod, why error) {
	for _, p := range pods {
		s.wait(p, why)
	}
}

// hunt is a search for devices of pods that start together: what is found for one is taken for those after it.
type hunt struct {
	searches     []search // one for each
	same, prefer string   // labels of nodes of which all are to have one value, or should; empty: none
}

// finds is what a hunt came to.
type finds struct {
	order []int     // of the pods, in which devices were looked for
	each  []finding // in that order
	lacks int       // whose place in it there was nothing for; -1: all have something
}

// reorderMost is how often a pod for which nothing is left goes before the others, to see whether they can do with what it leaves.
const reorderMost = 3

// huntFor is one for the pods of a party, in their order.
func (s *Scheduler) huntFor(f *party) hunt {
	lead := f.seats[max(0, slices.IndexFunc(f.seats, func(o *seat) bool { return o.ask.holds() }))].ask
	h := hunt{same: lead.same, prefer: lead.prefer}
	offers, heard := map[*node]offer{}, map[string]heard{}
	for _, o := range f.seats {
		nodes := slices.DeleteFunc(nominatedFirst(o.pod, s.byRoom(o.class)), func(n *node) bool { return o.refused[n.name] != nil })
		h.searches = append(h.searches, s.searchAmong(o.ask, nodes, offers, heard))
	}
	return h
}

// run is what each pod would be given, in the first place in which all can be together.
func (h hunt) run(ctx context.Context) (last finds) {
	last = finds{order: make([]int, len(h.searches)), each: make([]finding, len(h.searches))}
	for i := range last.order {
		last.order[i] = i
	}
	for _, place := range h.places() {
		if last = h.within(ctx, place, last.order); last.lacks < 0 {
			return last
		}
	}
	if here := &last.each[last.lacks]; h.same != "" {
		here.why = fmt.Errorf("no %s has what all need that start together: %w", h.same, cmp.Or(here.why, errNoDevices))
	}
	return last
}

// places are where pods may be together, the best first: each is values of labels that nodes are to have.
func (h hunt) places() [][]topology {
	all := [][]topology{nil}
	if h.same != "" {
		all = nil
		for _, value := range h.values(h.same) {
			all = append(all, []topology{{h.same, value}})
		}
	}
	if h.prefer == "" || len(h.searches) == 1 {
		return all
	}
	var closer [][]topology
	for _, place := range all {
		for _, value := range h.values(h.prefer) {
			closer = append(closer, append(slices.Clone(place), topology{h.prefer, value}))
		}
	}
	return append(closer, all...)
}

// values are those of a label that nodes have on which the first of the pods may run, in the order in which these are tried.
func (h hunt) values(label string) (all []string) {
	for _, o := range h.searches[0].nodes {
		if value := o.node.Labels[label]; value != "" && !slices.Contains(all, value) {
			all = append(all, value)
		}
	}
	return all
}

// within is run in one place, in this order first.
func (h hunt) within(ctx context.Context, place []topology, order []int) finds {
	now := finds{order: slices.Clone(order)}
	for tries := 0; ; tries++ {
		now.each, now.lacks = make([]finding, len(h.searches)), -1
		var given []resourceapi.AllocationResult
		for at, i := range now.order {
			looked := h.searches[i].in(place)
			looked.given = given
			now.each[at] = looked.run(ctx)
			if now.each[at].node == "" {
				now.lacks = at
				break
			}
			given = append(append(given, now.each[at].allocations...), now.each[at].theirs...)
		}
		if now.lacks <= 0 || tries == reorderMost {
			return now
		}
		first := now.order[now.lacks]
		now.order = slices.Insert(slices.Delete(now.order, now.lacks, now.lacks+1), 0, first)
	}
}

// inOrder are some things in an order of their numbers.
func inOrder[T any](all []T, order []int) []T {
	ordered := make([]T, len(order))
	for at, i := range order {
		ordered[at] = all[i]
	}
	return ordered
}
