package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/aliquot-dev/aliquot/engine"
)

// pod is one of the cluster's, whoever's it is.
type pod struct {
	object      *corev1.Pod
	requests    []engine.Resource // of its node, as it is now
	claims      []string          // that it names, as the index has them
	task        *task             // its part of a workload; nil: it has none
	carried     bool              // the engine counts its requests, with its task, as they were when it was told
	charged     *node             // where what the engine does not count of them is counted; nil: that is nothing
	charge      []engine.Resource // what is counted there; negative: the engine counts so much that it does not request any more
	bound       string            // the node that it was bound to, which the API server may tell of later
	busy        bool              // it is being bound, or its claims given back, beside the engine
	binding     bool              // of busy: it is being bound
	searching   bool              // devices are looked for, for it, beside the engine
	gang        *gang             // nil: it is of none
	owner       types.UID         // the Job that made it, as the index has it; empty: none did
	beside      *class            // whose nodes it waits for beside the engine
	rests       time.Time         // until when it is not placed beside the line, as that could not be written
	reason      string            // why it waits, where the engine does not know
	counted     bool              // as waiting
	evicting    bool              // it is being evicted, though the API server may not say so yet
	begun       bool              // a scheduler before this one may have begun to evict it: it is not known yet of which gang it is
	saved       string            // when it saved what it has done, as it said and the engine was told last
	seeking     seeking           // of room, beside the engine
	soon, again bool              // it is among the sayings, the first or the later ones
	told        string            // why it waits, as it was told last
}

func (p *pod) name() string { return p.object.Namespace + "/" + p.object.Name }

// kin is a name that pods of one kind have in common.
func (p *pod) kin() string {
	if owner := metav1.GetControllerOfNoCopy(p.object); owner != nil {
		return owner.Name
	}
	return cmp.Or(strings.TrimSuffix(p.object.GenerateName, "-"), p.object.Name)
}

func (p *pod) node() string { return cmp.Or(p.object.Spec.NodeName, p.bound) }

func over(object *corev1.Pod) bool {
	return object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed
}

// serves says whether a pod is, or was, this scheduler's to place.
func (s *Scheduler) serves(object *corev1.Pod) bool {
	return object.Spec.SchedulerName == s.config.Name || slices.Contains(s.config.Also, object.Spec.SchedulerName)
}

// mine says whether a pod is to be placed by this scheduler.
func (s *Scheduler) mine(p *pod) bool {
	return s.pods[p.object.UID] == p && p.node() == "" && s.serves(p.object) && p.object.DeletionTimestamp == nil &&
		!over(p.object) && len(p.object.Spec.SchedulingGates) == 0
}

func (s *Scheduler) podSet(object *corev1.Pod) {
	p := s.pods[object.UID]
	if p == nil {
		p = &pod{object: object}
		s.pods[object.UID] = p
	}
	before := p.object
	p.object = object
	if now := requestsOf(object); !slices.Equal(now, p.requests) { // it is new, or being resized
		p.requests = now
		if object.Spec.NodeName != "" && before != object {
			s.outdate()
		}
	}
	s.index(p)
	s.own(p)
	s.lead(object)
	if s.serves(object) {
		s.joinGang(p)
	} else {
		s.jobApart(p)
	}
	s.charge(p)
	s.hearSaved(p)
	if over(object) && !over(before) {
		s.outdate()
	}
	s.review(p, before)
}

func (s *Scheduler) podGone(object *corev1.Pod) {
	p := s.pods[object.UID]
	if p == nil {
		return
	}
	delete(s.pods, object.UID)
	s.own(p)
	for _, key := range p.claims {
		s.unindex(p, key)
	}
	s.charge(p)
	g := p.gang
	s.leaveGang(p)
	s.leadGone(object)
	s.review(p, p.object)
	if s.began {
		s.regather(g)
	}
	if p.node() != "" {
		s.outdate()
	}
}

// review looks at a pod that has changed: what is in line for it may not be right any more.
func (s *Scheduler) review(p *pod, before *corev1.Pod) {
	if !s.began {
		return
	}
	if p.object.DeletionTimestamp != nil {
		s.ending(p)
	}
	if p.object.DeletionTimestamp != nil || over(p.object) {
		s.regather(p.gang)
	}
	changed := !s.mine(p) || !maps.Equal(before.Labels, p.object.Labels) || before.Generation != p.object.Generation
	if p.beside != nil && changed {
		s.leaveBeside(p)
	}
	nominated := s.speaks(p) && before.Status.NominatedNodeName != p.object.Status.NominatedNodeName // on its node it is not in its own way
	if p.task != nil && p.task.work.state == inLine && (changed || nominated) {
		others, c := p.task.work.tasks, p.task.class()
		s.withdraw(p.task.work, fmt.Sprintf("pod %s has changed", p.name()))
		if nominated && c.pod.UID == p.object.UID { // which nodes may see otherwise now
			s.resample(c)
		}
		for _, t := range others {
			s.consider(t.pod)
		}
	}
	s.consider(p)
}

// index keeps which pods name a claim.
func (s *Scheduler) index(p *pod) {
	now := claimKeys(p.object)
	for _, key := range p.claims {
		if !slices.Contains(now, key) { // it was made anew, under another name
			s.unindex(p, key)
		}
	}
	for _, key := range now {
		if s.users[key] == nil {
			s.users[key] = map[*pod]bool{}
		}
		s.users[key][p] = true
	}
	p.claims = now
}

// unindex forgets that a pod names a claim.
func (s *Scheduler) unindex(p *pod, key string) {
	delete(s.users[key], p)
	if len(s.users[key]) == 0 {
		delete(s.users, key)
	}
}

// claimKeys are the claims that a pod names, as far as they have names yet.
func claimKeys(pod *corev1.Pod) (keys []string) {
	for _, entry := range pod.Spec.ResourceClaims {
		if entry.ResourceClaimName != nil {
			keys = append(keys, pod.Namespace+"/"+*entry.ResourceClaimName)
		}
	}
	for _, status := range pod.Status.ResourceClaimStatuses {
		if status.ResourceClaimName != nil {
			keys = append(keys, pod.Namespace+"/"+*status.ResourceClaimName)
		}
	}
	return keys
}

// charge counts a pod: as one that waits, or its requests on the node where it runs, unless the engine counts these with its task. Of one that has gone from a
// task that goes on the engine's count is taken back.
func (s *Scheduler) charge(p *pod) {
	if waits := s.mine(p); waits != p.counted {
		p.counted = waits
		if waits {
			s.metrics.waits.Add(1)
		} else {
			s.metrics.waits.Add(-1)
		}
	}
	var on *node
	var charge []engine.Resource
	if name := p.node(); name != "" {
		switch there := !over(p.object) && s.pods[p.object.UID] == p; {
		case there && p.carried:
			charge = minus(p.requests, p.task.requests)
		case there:
			charge = p.requests
		case s.outlived(p):
			charge = minus(nil, p.task.requests)
		}
		if len(charge) > 0 {
			on = s.node(name)
		}
	}
	if on == p.charged && slices.Equal(charge, p.charge) {
		return
	}
	p.charged.take(p.charge, -1)
	on.take(charge, 1)
	for _, n := range []*node{p.charged, on} {
		if n != nil {
			s.dirty[n] = true
		}
	}
	beyond := slices.ContainsFunc(p.charge, func(r engine.Resource) bool { return r.Amount < 0 })
	p.charged, p.charge = on, charge
	if beyond {
		s.tellNodes() // before the engine takes for free what it counted of the pod: it was told of more than the node has
	}
}

// outlived says whether others have claims that a pod's task holds.
func (s *Scheduler) outlived(p *pod) bool {
	return p.carried && slices.ContainsFunc(p.task.claims, func(c *claim) bool {
		for o := range s.users[c.key] {
			if o != p && !over(o.object) {
				return true
			}
		}
		return false
	})
}

// considerAll looks at every pod that waits for something that the engine does not know of.
func (s *Scheduler) considerAll() {
	if !s.began {
		return
	}
	for _, p := range s.allPods() {
		if p.reason != "" {
			s.consider(p)
		}
	}
}

func sortedPods(pods map[*pod]bool) []*pod {
	return slices.SortedFunc(maps.Keys(pods), byName)
}

// allPods are all pods by name.
func (s *Scheduler) allPods() []*pod {
	return slices.SortedFunc(maps.Values(s.pods), byName)
}

// byAge is the order in which pods were made.
func byAge(a, b *pod) int {
	return cmp.Or(a.object.CreationTimestamp.Compare(b.object.CreationTimestamp.Time), strings.Compare(a.name(), b.name()))
}

func byName(a, b *pod) int {
	return cmp.Or(strings.Compare(a.object.Namespace, b.object.Namespace), strings.Compare(a.object.Name, b.object.Name))
}

// consider decides what a pod that has not been dealt with needs: to be put in line, to be bound where its claims are, or to wait.
func (s *Scheduler) consider(p *pod) {
	if !s.began || p.task != nil || p.busy || p.searching || p.beside != nil || !s.mine(p) {
		return
	}
	a, err := s.askOf(p)
	switch {
	case err != nil:
		s.wait(p, err)
	case len(a.open) > 0 && len(a.have) > 0 && s.aloneIn(p, a.have):
		s.giveBack(p, a, errors.New("only a part of its claims was allocated"))
	case len(a.open) > 0 && s.gather(p, a):
	case len(a.open) > 0 && a.special != "":
		s.placeSpecial(s.partyOf(p, a))
	case len(a.open) > 0:
		s.submit(alone(p, a))
	case len(a.have) > 0 && s.gangUnknown(p):
	case len(a.have) > 0 && s.takeUp(p, a):
	case len(a.have) == 0 && (s.leadsApart(p) || s.jobApart(p)):
	default:
		s.runBeside(p, a)
	}
}

// wait notes why a pod waits that the engine does not know of.
func (s *Scheduler) wait(p *pod, why error) {
	if p.reason != why.Error() {
		p.reason = why.Error()
		s.tellSoon(p)
	}
}

// aloneIn says whether claims are allocated for nobody but this pod, if for anybody.
func (s *Scheduler) aloneIn(p *pod, claims []*claim) bool {
	return !slices.ContainsFunc(claims, func(c *claim) bool {
		return slices.ContainsFunc(c.object.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID != p.object.UID })
	})
}
