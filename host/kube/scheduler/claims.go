package scheduler

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

// claim is one of the cluster's.
type claim struct {
	key     string                     // namespace/name
	object  *resourceapi.ResourceClaim // as last known; nil: not there
	asked   *task                      // in line for it
	writing bool                       // it is being written: what is seen of it counts when that is over
	task    *task                      // that holds in the engine's books what it is allocated; nil: none does
}

// learn takes in a claim as it was written or seen, unless something newer is known.
func (c *claim) learn(object *resourceapi.ResourceClaim) {
	if c.object != nil && c.object.UID == object.UID {
		if order, err := resourceversion.CompareResourceVersion(object.ResourceVersion, c.object.ResourceVersion); err == nil && order < 0 {
			return
		}
	}
	c.object = object
}

// update is learn of a claim that is written: one that is gone meanwhile does not come back by it.
func (c *claim) update(object *resourceapi.ResourceClaim) {
	if c.object != nil && c.object.UID == object.UID {
		c.learn(object)
	}
}

func (s *Scheduler) claimSet(object *resourceapi.ResourceClaim) {
	key := object.Namespace + "/" + object.Name
	c := s.claims[key]
	if c == nil {
		c = &claim{key: key}
		s.claims[key] = c
	}
	had := theirs(c.object)
	c.learn(object)
	if had && !theirs(c.object) {
		s.othersFree()
	}
	s.claimSettled(c)
}

func (s *Scheduler) claimGone(object *resourceapi.ResourceClaim) {
	c := s.claims[object.Namespace+"/"+object.Name]
	if c == nil || c.object == nil || c.object.UID != object.UID {
		return
	}
	if theirs(c.object) {
		s.othersFree()
	}
	c.object = nil
	s.claimSettled(c)
}

// theirs says whether a claim has devices of other drivers.
func theirs(object *resourceapi.ResourceClaim) bool {
	return object != nil && object.Status.Allocation != nil && slices.ContainsFunc(object.Status.Allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
		return r.Driver != driver.Name
	})
}

// claimChanged takes a task out of the line, and looks at it anew, whose claims are not what it goes by any more.
func (s *Scheduler) claimChanged(t *task, c *claim) {
	if t.work.state != inLine || t.ask == nil || s.stands(t) {
		return
	}
	members := t.work.tasks
	s.withdraw(t.work, "claim "+c.key+" has changed")
	for _, t := range members {
		s.consider(t.pod)
	}
}

// stands says whether a task's claims are what it goes by, and those that it has do not come free.
func (s *Scheduler) stands(t *task) bool {
	return t.ask.stands() && !slices.ContainsFunc(t.ask.have, func(c *claim) bool { return s.comesFree(c, t.pod) })
}

// sharersOf looks at the other pods that have claims of one which is being ended, or is not any more.
func (s *Scheduler) sharersOf(p *pod) {
	for _, key := range p.claims {
		for _, o := range sortedPods(s.users[key]) {
			if o.task != nil && s.claims[key] != nil {
				s.claimChanged(o.task, s.claims[key])
			}
			if o != p {
				s.consider(o)
			}
		}
	}
}

// claimSettled brings the engine's books in line with what a claim is now, and looks at the pods that name it.
func (s *Scheduler) claimSettled(c *claim) {
	if !s.began || c.writing {
		return
	}
	switch allocated := s.allocatedHere(c.object); {
	case c.task != nil && !allocated:
		s.free(c)
	case c.task == nil && allocated:
		s.adopt(c)
	}
	if c.asked != nil {
		s.claimChanged(c.asked, c)
	}
	for _, p := range sortedPods(s.users[c.key]) {
		if p.task != nil {
			s.claimChanged(p.task, c) // which it has, and wants others beside
		}
		if p.beside != nil && c.object == nil {
			s.leaveBeside(p)
		}
		s.consider(p)
	}
	if c.object == nil && c.task == nil {
		delete(s.claims, c.key)
	}
}

// stands says whether its claims are what it goes by: those that are to be allocated for it still can be, and those that it has are had, and where they were.
func (a *ask) stands() bool {
	return !slices.ContainsFunc(a.open, func(c *claim) bool {
		return c.object == nil || c.object.DeletionTimestamp != nil || c.object.Status.Allocation != nil
	}) && !slices.ContainsFunc(a.have, func(c *claim) bool {
		if c.object == nil || c.object.DeletionTimestamp != nil || c.object.Status.Allocation == nil {
			return true
		}
		on := nodeOf(c.object.Status.Allocation)
		return on != "" && on != a.node
	})
}

// free takes away from a task what a claim held that does not any more. Others of its claims may be those of pods that stay.
func (s *Scheduler) free(c *claim) {
	t := c.task
	if t == nil {
		return
	}
	c.task = nil
	t.claims = slices.DeleteFunc(t.claims, func(o *claim) bool { return o == c })
	if len(t.claims) > 0 {
		if holds := s.holdings(t); len(holds) > 0 { // else the others are about to go, too
			s.step(engine.Shrunk{At: s.at(), ID: t.work.id, Task: t.index, Holds: holds})
			s.devicesFree()
		}
		return
	}
	if p := t.pod; p != nil {
		p.task, p.carried = nil, false
		s.charge(p)
	}
	w := t.work
	s.step(engine.Ended{At: s.at(), ID: w.id, Task: t.index})
	s.devicesFree()
	if !slices.ContainsFunc(w.tasks, func(t *task) bool { return len(t.claims) > 0 }) {
		delete(s.work, w.id)
	}
}

// holdings are the floors that a task holds of each device by the claims that it has.
func (s *Scheduler) holdings(t *task) (holds []engine.Holding) {
	var all []engine.Grant
	for _, c := range t.claims {
		_, grants := s.grantsOf(c.object)
		all = merge(all, grants)
	}
	for _, g := range all {
		holds = append(holds, engine.Holding{Device: g.Device, Compute: g.Compute.Floor, Memory: g.Floor})
	}
	return holds
}

// allocatedHere says whether a claim's allocation has devices of ours.
func (s *Scheduler) allocatedHere(object *resourceapi.ResourceClaim) bool {
	_, grants := s.grantsOf(object)
	return len(grants) > 0
}
