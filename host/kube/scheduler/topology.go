package scheduler

import (
	"errors"
	"slices"

	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// topology is a value of a label of nodes: the zone or the rack that they are in.
type topology struct{ label, value string }

// has says whether a node is in it; the zero topology has every node.
func (t topology) has(n *node) bool {
	return t == topology{} || n != nil && n.object != nil && n.object.Labels[t.label] == t.value
}

// knowLevels tells the engine by which labels of nodes work is to be together, before there is such work: of labels that nobody names it is told nothing.
func (s *Scheduler) knowLevels(labels ...string) {
	for _, label := range labels {
		at, known := slices.BinarySearch(s.levels, label)
		if known || label == "" {
			continue
		}
		s.levels = slices.Insert(s.levels, at, label)
		for _, n := range s.nodes {
			s.dirty[n] = true
		}
	}
	s.tellNodes()
}

// knowLevelsOfPods remembers the labels that pods name, before the engine is told of nodes.
func (s *Scheduler) knowLevelsOfPods() {
	for _, p := range s.pods {
		if same, prefer, err := annotation.Topology(p.object.Annotations); err == nil && s.serves(p.object) {
			s.levels = append(s.levels, same, prefer)
		}
	}
	slices.Sort(s.levels)
	s.levels = slices.DeleteFunc(slices.Compact(s.levels), func(label string) bool { return label == "" })
}

// domains are where a node is, at the levels that somebody named.
func (s *Scheduler) domains(n *node) (all []fleet.Domain) {
	for _, label := range s.levels {
		if value := n.object.Labels[label]; value != "" {
			all = append(all, fleet.Domain{Level: label, Name: value})
		}
	}
	return all
}

// follow has a pod that comes to a gang that has begun go where that runs, if it is to be together; false: the gang is only about to run, or where is not known yet.
func (s *Scheduler) follow(p *pod, a *ask) bool {
	starting := false
	for _, o := range p.gang.sorted() {
		n := s.nodes[o.node()]
		switch {
		case o.leaves() || over(o.object):
		case o.node() == "":
			starting = starting || o.binding || o.task != nil && o.task.work.state != inLine
		case a.same == "":
			return true
		case n != nil && n.object != nil && n.object.Labels[a.same] != "":
			a.within, a.same = topology{a.same, n.object.Labels[a.same]}, ""
			return true
		}
	}
	if starting {
		s.wait(p, errors.New("its gang is being started, and it follows when that runs"))
	}
	return !starting // else the nodes are not there any more on which the others ran
}
