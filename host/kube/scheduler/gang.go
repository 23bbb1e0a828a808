package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// gang is the pods of one name.
type gang struct {
	key     string
	members map[*pod]bool
	party   *party // that was last to start beside the line; nil: none was
}

// gangOf is the gang that a pod is of by its labels or by who made it, and how many must start together; empty: none.
func (s *Scheduler) gangOf(object *corev1.Pod) (key string, least int, err error) {
	if name := object.Labels[annotation.Gang]; name != "" {
		least, err := strconv.Atoi(object.Labels[annotation.GangMin])
		if err != nil || least < 1 {
			return "", 0, fmt.Errorf("it is of gang %s, and its label %s is %q; give the number of pods that start together", name, annotation.GangMin, object.Labels[annotation.GangMin])
		}
		return object.Namespace + "/" + name, least, nil
	}
	if group(object) != "" {
		return s.leaderGang(object)
	}
	if owner := ofJob(object); owner != nil {
		return s.jobGang(owner)
	}
	return "", 0, nil
}

// joinGang keeps which pods are of which gang.
func (s *Scheduler) joinGang(p *pod) {
	key, _, _ := s.gangOf(p.object)
	if p.gang != nil && p.gang.key != key {
		s.leaveGang(p)
	}
	if key == "" || p.gang != nil {
		return
	}
	g := s.gangs[key]
	if g == nil {
		g = &gang{key: key, members: map[*pod]bool{}}
		s.gangs[key] = g
	}
	p.gang = g
	g.members[p] = true
}

func (s *Scheduler) leaveGang(p *pod) {
	if p.gang == nil {
		return
	}
	delete(p.gang.members, p)
	if len(p.gang.members) == 0 {
		delete(s.gangs, p.gang.key)
	}
	p.gang = nil
}

// begun says whether a gang has started: a pod of it has, or is about to. Who comes to it then is placed alone. What is being ended or has ended does not
// count: those that come in place of a gang that was evicted, or that failed, start together again.
func (g *gang) begun() bool {
	for p := range g.members {
		if p.leaves() || over(p.object) {
			continue
		}
		if p.node() != "" || p.binding || p.task != nil && p.task.work.state != inLine {
			return true
		}
	}
	return false
}

// inLine says whether enough pods of a gang were there and wait together.
func (g *gang) inLine() bool {
	for p := range g.members {
		if p.task != nil && p.task.work.state == inLine { // else it leaves: begun is asked first
			return true
		}
	}
	return false
}

// gather puts a pod in line with the others of its gang, or places it beside the line with them, once enough of them are there. It says whether the pod is
// dealt with.
func (s *Scheduler) gather(p *pod, a *ask) bool {
	_, least, err := s.gangOf(p.object)
	if err != nil {
		s.wait(p, err)
		return true
	}
	s.joinGang(p)
	if p.gang == nil {
		return false
	}
	if p.gang.begun() {
		return !s.follow(p, a)
	}
	least = s.needs(p.gang, least)
	if p.gang.inLine() {
		s.wait(p, errors.New("its gang is in line, and it follows when that has started"))
		return true
	}
	if p.gang.party.looks() {
		s.wait(p, errors.New("devices are looked for, for others of its gang, and it follows when these have started"))
		return true
	}
	var members []*pod
	var asks []*ask
	for _, o := range p.gang.sorted() {
		other := a
		if o != p {
			if o.busy || o.searching || !s.mine(o) {
				continue
			}
			if other, err = s.askOf(o); err != nil || len(other.open) == 0 {
				continue
			}
			if err := a.together(other, o.object.Name); err != nil {
				s.wait(p, err)
				return true
			}
		}
		if other.node != "" {
			s.wait(o, errors.New("it is of a gang, and a claim of it is allocated on node "+other.node+"; pods of a gang have claims of their own"))
			continue
		}
		members, asks = append(members, o), append(asks, other)
	}
	if len(members) < least {
		s.unnominate(members...) // they were, when there were enough
		s.waitAll(members, fmt.Errorf("of its gang %d pods are there, and %d start together", len(members), least))
		return true
	}
	s.unnominate(members[least:]...)
	s.waitAll(members[least:], fmt.Errorf("%d pods of its gang start together, and it follows them", least))
	members, asks = members[:least], asks[:least]
	if slices.ContainsFunc(asks, func(a *ask) bool { return a.special != "" }) {
		s.placeTogether(p, members, asks)
		return true
	}
	roles, err := s.rolesOf(members, asks)
	if err != nil {
		s.waitAll(members, err)
		return true
	}
	s.submit(roles)
	for _, o := range members {
		if o.beside != nil { // as others of its gang were placed beside the line, or were to be
			s.leaveBeside(o)
		}
	}
	return true
}

// running are the pods of a gang that run and are to run on, by name.
func (g *gang) running() []*pod {
	return slices.SortedFunc(func(yield func(*pod) bool) {
		for p := range g.members {
			if p.node() != "" && !over(p.object) && !p.leaves() && !yield(p) {
				return
			}
		}
	}, byName)
}

// starting is a pod of a gang that is being placed or bound; nil: none is.
func (g *gang) starting() *pod {
	for p := range g.members {
		if p.busy || p.task != nil && p.task.work.state == placing {
			return p
		}
	}
	return nil
}

// regather looks at a gang of which a pod has gone, is going or has ended. If it does not run any more, those that were in line to follow it are taken out: they
// wait for the others then, and start with them.
func (s *Scheduler) regather(g *gang) {
	if g == nil {
		return
	}
	if !g.begun() {
		for _, p := range g.unplaced() {
			if p.beside != nil {
				p.beside.stale = true // it waits for others of the gang, too
			}
			if p.task == nil || p.task.work.state != inLine {
				continue
			}
			if _, least, err := s.gangOf(p.object); err == nil && len(p.task.work.tasks) < s.needs(g, least) {
				s.withdraw(p.task.work, "its gang does not run any more")
			}
		}
	}
	s.followers(g)
}

// sorted are the pods of a gang by name.
func (g *gang) sorted() []*pod { return sortedPods(g.members) }

// unplaced are those that have no node yet, by name: of a large gang that ends pod by pod, there are few.
func (g *gang) unplaced() []*pod {
	return slices.SortedFunc(func(yield func(*pod) bool) {
		for p := range g.members {
			if p.node() == "" && !yield(p) {
				return
			}
		}
	}, byName)
}

// followers looks at those of a gang that did not start with it.
func (s *Scheduler) followers(g *gang) {
	if g == nil {
		return
	}
	for _, p := range g.unplaced() {
		s.consider(p)
	}
}

// gangUnknown has a pod wait of which it is not known yet whether it is of a gang.
func (s *Scheduler) gangUnknown(p *pod) bool {
	_, _, err := s.gangOf(p.object)
	if !errors.Is(err, errNotYet) {
		return false
	}
	s.wait(p, err)
	return true
}

// takeUp deals with a pod of a gang that has not begun, whose claims are allocated: what a scheduler left that ended while it wrote. All such pods of the gang are
// bound together, or where that are fewer than start together, given back. A gang of which one runs was written whole: false, its others are bound one by one.
func (s *Scheduler) takeUp(p *pod, a *ask) bool {
	_, least, err := s.gangOf(p.object)
	switch {
	case err != nil:
		s.giveBack(p, a, errHalf)
		return true
	case p.gang == nil || p.gang.begun() || a.node == "":
		return false
	}
	var all []seat
	for _, o := range p.gang.sorted() {
		if o.beside != nil || !s.mine(o) {
			continue
		}
		if its, err := s.askOf(o); err == nil && len(its.open) == 0 && its.node != "" {
			all = append(all, seat{pod: o, ask: its})
		}
	}
	switch least = s.needs(p.gang, least); {
	case len(all) >= least:
		s.startWritten(all, least)
	case s.aloneIn(p, a.have):
		s.giveBack(p, a, errHalf)
	default:
		s.wait(p, fmt.Errorf("of its gang %d pods are there, and %d start together", len(all), least))
	}
	return true
}

// errHalf is why claims are given back of a pod that cannot start with its gang.
var errHalf = errors.New("only a part of its gang was placed")

// startWritten has pods bound where their claims are, if their nodes take as many as start together. Who is not taken there can have other devices.
func (s *Scheduler) startWritten(all []seat, least int) {
	var ready, others []seat
	why, known := error(nil), true
	for _, o := range all {
		node, err := s.admit(o.pod, o.ask.node)
		if err == nil {
			ready = append(ready, o)
			continue
		}
		others, why, known = append(others, o), cmp.Or(why, err), known && node != ""
	}
	if len(ready) < least {
		for _, o := range ready {
			s.config.Filters.Forget(o.pod.object)
		}
		ready, others = nil, all
	}
	for _, o := range others {
		if known && s.aloneIn(o.pod, o.ask.have) {
			s.giveBack(o.pod, o.ask, fmt.Errorf("%w: %w", errHalf, why))
		} else {
			s.awaitNodes(o.pod, o.ask, why)
		}
	}
	if len(ready) > 0 {
		s.bindThere(ready)
	}
}
