package scheduler

import (
	"context"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
)

// runBeside has a pod bound that the engine has nothing to decide for: where its claims are allocated, or, if it has none, on a node that
// takes it.
func (s *Scheduler) runBeside(p *pod, a *ask) {
	if a.node != "" {
		node, err := a.node, unusable(a.have)
		if err == nil {
			node, err = s.admit(p, a.node)
		}
		switch {
		case err == nil:
			s.bindBeside(p, a, a.node)
		case node != "" && s.aloneIn(p, a.have):
			// Left by a scheduler before this one, or unused since: it can be had elsewhere.
			s.giveBack(p, a, err)
		default:
			s.awaitNodes(p, a, err)
			s.seek(p)
		}
		return
	}
	c := s.classOf(p, a)
	var why error
	for _, n := range nominatedFirst(p, s.byRoom(c)) {
		if !a.reaches(n.object) {
			why = fmt.Errorf("its claims cannot be used on node %s", n.name)
			continue
		}
		_, err := s.admit(p, n.name)
		if err == nil {
			s.bindBeside(p, a, n.name)
			return
		}
		why = err
	}
	if why == nil {
		why = fmt.Errorf("no node takes it: %s", c.barred())
	}
	known := c.answer != nil && !c.likes.withheld
	if known && len(a.reach) > 0 && s.aloneIn(p, a.have) {
		s.giveBack(p, a, why) // it can be had elsewhere
		return
	}
	s.awaitNodes(p, a, why)
	if known {
		s.seek(p)
	}
}

// nominatedFirst are nodes with the one in front on which others went for a pod.
func nominatedFirst(p *pod, nodes []*node) []*node {
	if at := slices.IndexFunc(nodes, func(n *node) bool { return n.name == p.object.Status.NominatedNodeName }); at > 0 {
		its := nodes[at]
		nodes = slices.Insert(slices.Delete(nodes, at, at+1), 0, its)
	}
	return nodes
}

// awaitNodes has a pod considered again when it is known anew which nodes it may use.
func (s *Scheduler) awaitNodes(p *pod, a *ask, why error) {
	s.wait(p, why)
	p.beside = s.classOf(p, a)
	p.beside.beside = append(p.beside.beside, p)
	p.beside.enter(s)
}

// bindBeside has a pod reserved in its claims and bound. It is assumed there.
func (s *Scheduler) bindBeside(p *pod, a *ask, node string) {
	s.bindAll([]seat{{pod: p, ask: a}}, []string{node})
}

// bindThere is bindBeside for pods of a gang, all or none of them, where their claims are.
func (s *Scheduler) bindThere(all []seat) {
	nodes := make([]string, len(all))
	for i, o := range all {
		nodes[i] = o.ask.node
	}
	s.bindAll(all, nodes)
}

// bindAll is bindBeside for pods on their nodes, all or none of them.
func (s *Scheduler) bindAll(all []seat, nodes []string) {
	j := make(job, len(all))
	for i, o := range all {
		j[i] = jobTask{pod: o.pod.object, node: nodes[i]}
		for _, c := range o.ask.have {
			c.writing = true
			j[i].claims = append(j[i].claims, jobClaim{object: c.object})
		}
		o.pod.busy, o.pod.binding, o.pod.reason = true, true, ""
	}
	s.carryOut(j, func(out outcome) {
		if out.refused != nil {
			s.metrics.refused.Inc()
		}
		s.learn(out.left)
		for i, o := range all {
			s.boundBeside(o, j[i], out, i)
		}
		for _, o := range all {
			for _, c := range o.ask.have {
				s.claimSettled(c)
			}
		}
		s.followers(all[0].pod.gang)
	})
}

// boundBeside takes in what became of binding a pod of several.
func (s *Scheduler) boundBeside(o seat, wrote jobTask, out outcome, i int) {
	p := o.pod
	p.busy, p.binding = false, false
	runs := out.refused == nil && !out.gone[i]
	if runs {
		p.bound = wrote.node
		s.metrics.bound.Inc()
		s.charge(p)
	} else {
		s.config.Filters.Forget(wrote.pod)
	}
	if out.refused != nil && s.mine(p) {
		s.awaitNodes(p, o.ask, out.refused)
	}
	for k, c := range o.ask.have {
		c.writing = false
		if runs {
			c.update(out.claims[i][k])
		}
	}
}

// giveBack frees claims that are allocated for a pod which cannot run with them, and looks at the pod anew.
func (s *Scheduler) giveBack(p *pod, a *ask, why error) {
	s.config.Log.Info("claims of a pod that does not run are given back", "pod", p.name(), "reason", why)
	p.busy = true
	s.wait(p, why)
	for _, c := range a.have {
		c.writing = true
	}
	objects, left := make([]*resourceapi.ResourceClaim, len(a.have)), make([]*resourceapi.ResourceClaim, len(a.have))
	for i, c := range a.have {
		objects[i] = c.object
	}
	target := p.object
	s.spawn(func(ctx context.Context) {
		for i, object := range objects {
			now, err := s.write.giveBack(ctx, jobClaim{object: object}, reference(target))
			if err != nil {
				return
			}
			left[i] = now
		}
		s.inbox.put(func() {
			p.busy = false
			for i, c := range a.have {
				c.writing = false
				if now := left[i]; now != nil {
					c.update(now)
				} else if c.object != nil && c.object.UID == objects[i].UID {
					c.object = nil // as will be told, too
				}
			}
			for _, c := range a.have {
				s.claimSettled(c)
			}
			s.consider(p)
		})
	})
}
