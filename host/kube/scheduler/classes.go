package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/aliquot-dev/aliquot/engine"
)

// How long after a class's nodes were asked for they are asked for again at the earliest, when something has changed; when once more after that, for the
// filters hear of it by themselves, which may be later; and how often they are asked for while pods wait though nothing is known to have (Config.AskEvery).
const (
	askPause = 100 * time.Millisecond
	askOnce  = time.Second
	askEvery = 10 * time.Second
)

// class is pods that may run on the same nodes. It is kept while something waits or is being placed in it, and for a while after: see forgetClasses.
type class struct {
	key       string
	alone     bool // of one pod only
	pod       *corev1.Pod
	selection *selection        // of devices; nil: all do
	node      string            // the only one that would do; empty: any
	within    topology          // where its pods' gang runs; zero: anywhere
	waiting   int               // pods and workloads
	beside    []*pod            // of these, those that wait for a node beside the engine
	answer    map[string]string // by node: why not; empty: it may; nil: not known yet
	opened    uint64            // answers with nodes that it might not use before
	held      []string          // of these nodes, those that it might use if some of the pods there went, by name
	likes     likes             // of these nodes
	refused   bool              // the engine has barred nodes of it by itself
	stale     bool
	asking    bool
	asked     time.Time
	outdated  time.Time // when something changed last by which this class may use other nodes, and not all may
	last      time.Time // when a pod was last found to be of it
}

// classKey is by which the class of a pod with an ask is known, and whether that is of one pod only.
func (s *Scheduler) classKey(p *pod, a *ask) (key string, alone bool) {
	key = s.config.Filters.Class(p.object)
	if alone = key == ""; alone {
		key = "pod " + string(p.object.UID)
	}
	for _, more := range append(slices.Clone(a.selectors), a.node) {
		key += "\n" + more
	}
	if a.within != (topology{}) {
		key += fmt.Sprintf("\n%s=%s", a.within.label, a.within.value)
	}
	return key, alone
}

// classOf finds or makes the class of a pod with an ask.
func (s *Scheduler) classOf(p *pod, a *ask) *class {
	key, alone := s.classKey(p, a)
	c := s.classes[key]
	if c == nil {
		if c = s.left[key]; c != nil { // nobody said since that anything has changed for it
			c.stale, c.likes.doubted = true, c.answer != nil
			delete(s.left, key)
		} else {
			c = &class{key: key, alone: alone, selection: s.selectionOf(a.selectors), node: a.node, within: a.within, stale: true}
		}
		s.classes[key] = c
	}
	c.pod, c.last = p.object, s.config.Now()
	if c.likes.doubted && c.waiting == 0 {
		s.withhold(c)
	}
	return c
}

// reclass has those in line be of their classes as the filters tell pods apart now, if they tell more apart than they did. Others are considered anyway
// when they are told of their nodes.
func (s *Scheduler) reclass() {
	now := s.config.Filters.Distinctions()
	if !s.began || now == s.distinctions {
		return
	}
	s.distinctions = now
	s.askAnew("pods like it are told apart by more labels", func(w *work) bool {
		return slices.ContainsFunc(w.roles, func(r *role) bool {
			key, _ := s.classKey(r.members[0], r.asks[0])
			return key != r.class.key
		})
	})
	for _, c := range s.classes {
		c.stale = c.stale || len(c.beside) > 0
	}
}

// enter counts one more that waits.
func (c *class) enter(s *Scheduler) {
	c.waiting++
	s.classes[c.key] = c
	delete(s.left, c.key)
}

// leave counts one less. A class of one pod is not kept up to date then.
func (c *class) leave(s *Scheduler) {
	c.waiting--
	if c.waiting == 0 && c.alone {
		delete(s.classes, c.key)
		s.left[c.key] = c
	}
}

// outdate notes that the nodes that classes may use may be others now.
func (s *Scheduler) outdate() {
	s.outdated = s.config.Now()
	for _, c := range s.classes {
		c.stale = true
	}
}

// outdateVolumes notes that pods with volumes may be able to use others now: those of a namespace, or all where none is named.
func (s *Scheduler) outdateVolumes(namespace string) {
	for _, c := range s.classes {
		if (namespace == "" || c.pod.Namespace == namespace) && slices.ContainsFunc(c.pod.Spec.Volumes, claimed) {
			c.stale, c.outdated = true, s.config.Now()
		}
	}
}

// claimed says whether a volume is had by a claim.
func claimed(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }

// classify has the nodes asked for of the class that has waited longest for that, and returns when to look again.
func (s *Scheduler) classify() time.Duration {
	now := s.config.Now()
	next := time.Hour
	var first *class
	for _, c := range s.classes {
		switch {
		case c.waiting == 0 || c.asking:
			continue
		case c.stale:
			if first == nil || c.asked.Before(first.asked) || c.asked.Equal(first.asked) && c.key < first.key {
				first = c
			}
		default:
			again := c.asked.Add(s.config.AskEvery)
			if changed := later(s.outdated, c.outdated); c.asked.Before(changed.Add(askOnce)) {
				again = c.asked.Add(askOnce)
			}
			next = min(next, again.Sub(now))
			c.stale = !now.Before(again)
		}
	}
	if s.classifying || first == nil {
		return next
	}
	if wait := first.asked.Add(askPause).Sub(now); wait > 0 {
		return min(next, wait)
	}
	if s.ended(first.pod) && !s.resample(first) { // nobody is there of whom it could be asked
		first.asked = now
		return min(next, askPause)
	}
	first.stale, first.asking, first.asked, first.likes.doubted = false, true, now, false
	s.classifying = true
	sample := first.pod
	selection := first.selection
	var offers map[string][]resourceapi.Device
	var judged map[string]judgement
	if selection != nil {
		offers, judged = s.offers(), selection.said
	}
	s.spawn(func(ctx context.Context) {
		answer, err := s.config.Filters.Nodes(ctx, sample)
		now, whole := judged, true
		if err == nil && selection != nil {
			now, whole = selection.judge(ctx, slices.Concat(answer.Nodes, answer.Held), offers, judged)
		}
		s.inbox.put(func() {
			if first.stale = first.stale || !whole; selection != nil {
				selection.said = now
			}
			if s.ended(sample) { // what was said of it is of nobody else
				s.classifying, first.asking, first.stale = false, false, true
				return
			}
			s.classified(first, answer, err)
		})
	})
	return next
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// classified tells the engine what is new about the nodes that a class may use.
func (s *Scheduler) classified(c *class, said Feasible, err error) {
	s.classifying, c.asking = false, false
	if err != nil {
		s.config.Log.Warn("the nodes that pods may run on cannot be told, and are asked for again", "pod", c.pod.Namespace+"/"+c.pod.Name, "error", err)
		c.stale = true
		return
	}
	answer := map[string]string{}
	for name, why := range said.Why {
		answer[name] = why
	}
	for _, name := range said.Nodes {
		answer[name] = cmp.Or(s.elsewhere(c, name), c.selection.why(name))
	}
	for _, name := range s.givingWay(said.Full) { // whether it does for now is for the engine, which counts these resources, too
		answer[name] = cmp.Or(s.elsewhere(c, name), c.selection.why(name))
	}
	c.held = slices.DeleteFunc(slices.Clone(said.Held), func(name string) bool { return cmp.Or(s.elsewhere(c, name), c.selection.why(name)) != "" })
	preferred, changed := s.rank(c, said.Wished, answer)
	delta := engine.Feasibility{Class: c.key, Prefer: preferred}
	for _, name := range slices.Sorted(maps.Keys(answer)) {
		why := answer[name]
		if before, known := c.answer[name]; known && before == why {
			continue
		}
		if why == "" {
			delta.Allowed = append(delta.Allowed, name)
		} else {
			delta.Barred = append(delta.Barred, engine.NodeReason{Node: name, Code: why})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.answer)) {
		if _, there := answer[name]; !there {
			delta.Barred = append(delta.Barred, engine.NodeReason{Node: name, Code: "it is not there"})
		}
	}
	if c.answer = answer; len(delta.Allowed) > 0 {
		c.opened++
	}
	c.likes.wished, c.likes.images, c.likes.withheld = said.Wished, said.Images, false
	if len(delta.Allowed) > 0 || len(delta.Barred) > 0 || c.refused || changed {
		c.refused = false
		delta.At = s.at()
		s.step(delta)
	}
	waited := c.beside
	c.beside = nil
	for _, p := range waited {
		if p.beside != c {
			continue // it was looked at with others of its gang
		}
		p.beside = nil
		s.consider(p)
		c.leave(s) // after it may have entered anew, so that what was answered is not forgotten
	}
}

// resample has a class go by another of its pods, one that waits and has its claims, and says whether there is one.
func (s *Scheduler) resample(c *class) bool {
	for _, p := range c.beside {
		if !s.ended(p.object) {
			c.pod, c.stale = p.object, true
			return true
		}
	}
	for _, w := range s.work {
		for _, r := range w.roles {
			if w.state == inLine && r.class == c && !s.ended(r.members[0].object) {
				c.pod, c.stale = r.members[0].object, true
				return true
			}
		}
	}
	return false
}

// ended says whether a pod is not there any more, or not for long, or a claim of it is not: no node takes it then.
func (s *Scheduler) ended(pod *corev1.Pod) bool {
	p := s.pods[pod.UID]
	return p == nil || p.object.DeletionTimestamp != nil || over(p.object) || slices.ContainsFunc(p.claims, func(key string) bool {
		if s.claims[key] == nil || s.claims[key].object == nil {
			return true
		}
		namespace, name, _ := strings.Cut(key, "/")
		_, err := s.write.claims.ResourceClaims(namespace).Get(name) // which goes before the loop hears of it
		return apierrors.IsNotFound(err)
	})
}

// givingWay are those nodes of some on which work runs that may be evicted.
func (s *Scheduler) givingWay(full []string) []string {
	if len(full) == 0 {
		return nil
	}
	preemptible := map[string]bool{}
	for _, w := range s.work {
		for _, t := range w.tasks {
			if w.state == placed && t.pod != nil && len(t.claims) > 0 && w.preemptible {
				preemptible[t.pod.node()] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(full), func(name string) bool { return !preemptible[name] })
}

// elsewhere is why only another node does for a class; empty: this one may.
func (s *Scheduler) elsewhere(c *class, name string) string {
	if c.node != "" && c.node != name {
		return "its claims are allocated on node " + c.node
	}
	if !c.within.has(s.nodes[name]) {
		return fmt.Sprintf("its %s is not %s, where the gang runs", c.within.label, c.within.value)
	}
	return ""
}

// leaveBeside takes a pod out of those that wait for a node beside the engine.
func (s *Scheduler) leaveBeside(p *pod) {
	c := p.beside
	p.beside = nil
	c.beside = slices.DeleteFunc(c.beside, func(o *pod) bool { return o == p })
	c.leave(s)
}
