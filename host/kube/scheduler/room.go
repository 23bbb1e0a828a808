package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// evictPriority is the reason of evictions of pods without devices for one of higher priority, as metrics have it.
const evictPriority = "priority"

// How long after room was looked for, for a pod, it is looked for again at the earliest: doubled each time, up to the most.
const (
	seekAfter = time.Second
	seekMost  = time.Minute
)

// seeking is what a pod has done to have others evicted for it that the engine does not decide about.
type seeking struct {
	under bool // it is being looked, or others are being evicted
	tries int
	due   time.Time
}

// seek has it looked whether a pod that no node takes would fit on one if others of lower priority went.
func (s *Scheduler) seek(p *pod) {
	never := p.object.Spec.PreemptionPolicy != nil && *p.object.Spec.PreemptionPolicy == corev1.PreemptNever
	if never || p.seeking.under || s.config.Now().Before(p.seeking.due) {
		return
	}
	p.seeking.under = true
	s.seekers = append(s.seekers, p)
	s.seekNext()
}

// seekInLine is seek for a pod in line, which may lack only what pods without devices have on a node: about these the engine does not decide. What it was
// nominated for is looked at again.
func (s *Scheduler) seekInLine(p *pod) {
	if !s.inLineAlone(p) || !s.mayGainRoom(p) {
		return
	}
	if c := p.task.class(); c.answer != nil && !c.likes.withheld && (len(c.held) > 0 || p.object.Status.NominatedNodeName != "") {
		s.seek(p)
	}
}

// mayGainRoom says whether there may be anybody to be evicted for a pod, or somebody was.
func (s *Scheduler) mayGainRoom(p *pod) bool {
	return priorityOf(p.object) > s.leastPriority() || p.object.Status.NominatedNodeName != ""
}

// leastPriority is that of the pods that run, as it was within the last second: in most clusters there is one alone, and nobody to be evicted for anybody.
func (s *Scheduler) leastPriority() int32 {
	if now := s.config.Now(); !now.Before(s.least.due) {
		s.least.due, s.least.priority = now.Add(seekAfter), math.MaxInt32
		for _, p := range s.pods {
			if p.object.Spec.NodeName != "" && !over(p.object) {
				s.least.priority = min(s.least.priority, priorityOf(p.object))
			}
		}
	}
	return s.least.priority
}

// seekNext has room looked for of the pod of the highest priority that waits for that, one at a time.
func (s *Scheduler) seekNext() {
	for !s.seeks && len(s.seekers) > 0 {
		at := 0
		for i, p := range s.seekers {
			if priorityOf(p.object) > priorityOf(s.seekers[at].object) {
				at = i
			}
		}
		p := s.seekers[at]
		s.seekers = slices.Delete(s.seekers, at, at+1)
		only, is := s.roomOn(p)
		if !is {
			p.seeking.tries = 0 // that took little
			s.sought(p, Room{}, nil)
			continue
		}
		s.seeks = true
		if a, err := s.askOf(p); err == nil && p.task == nil && len(a.open) > 0 {
			s.seekSpecial(p, a)
			return
		}
		s.seekOn(p, only, func(string) bool { return true })
	}
}

// seekOn has room looked for on some nodes; nil: on any. Does says whether the pod could still use it there.
func (s *Scheduler) seekOn(p *pod, only []string, does func(node string) bool) {
	object := p.object
	s.spawn(func(ctx context.Context) {
		room, err := s.config.Filters.MakeRoom(ctx, object, only)
		s.inbox.put(func() {
			s.seeks = false
			if room.Node != "" && !does(room.Node) {
				room = Room{}
			}
			s.sought(p, room, err)
			s.seekNext()
		})
	})
}

// seekSpecial has room looked for of a pod that is placed beside the line, on nodes where its devices can be had. Of more than so many nodes that lack what
// pods there have, these are the first.
func (s *Scheduler) seekSpecial(p *pod, a *ask) {
	const most = 100
	var nodes []*node
	for _, name := range s.notKept(p, s.classOf(p, a).held) {
		if n := s.nodes[name]; n != nil && n.object != nil && len(nodes) < most {
			nodes = append(nodes, n)
		}
	}
	looked := s.searchOn(a, nodes)
	s.spawn(func(ctx context.Context) {
		found := map[string]finding{}
		for here := range looked.each(ctx) {
			found[here.node] = here
		}
		s.inbox.put(func() {
			does := func(node string) bool {
				here, is := found[node]
				return is && node != "" && s.mine(p) && s.wouldHave(p, a, here)
			}
			only := slices.DeleteFunc(slices.Sorted(maps.Keys(found)), func(node string) bool { return !does(node) })
			if len(only) == 0 {
				s.seeks = false
				s.sought(p, Room{}, nil)
				s.seekNext()
				return
			}
			s.seekOn(p, only, does)
		})
	})
}

// roomOn are the nodes on which room is of use to a pod; nil: any. It is false where it is on none, or the pod does not wait for it. For one in line it is
// where the engine would start it at once: nobody is evicted for one that lacks devices, or that is not next.
func (s *Scheduler) roomOn(p *pod) (only []string, is bool) {
	switch {
	case s.inLineAlone(p):
		only = s.engine.RoomFor(p.task.work.id, s.notKept(p, p.task.class().held))
		return only, len(only) > 0
	case s.waitsBeside(p) && p.beside.node != "": // where its claims are
		return []string{p.beside.node}, true
	}
	return nil, s.waitsBeside(p)
}

// waitsBeside says whether a pod waits for a node, and not for the engine.
func (s *Scheduler) waitsBeside(p *pod) bool {
	return s.mine(p) && p.beside != nil && p.task == nil && !p.busy
}

// inLineAlone says whether a pod waits for the engine, and for no others to start with it.
func (s *Scheduler) inLineAlone(p *pod) bool {
	return s.mine(p) && p.task != nil && p.task.work.state == inLine && len(p.task.work.tasks) == 1
}

// sought takes in what room there is for a pod: it is nominated for the node, and those in its way are evicted.
func (s *Scheduler) sought(p *pod, room Room, err error) {
	p.seeking.under = false
	p.seeking.due = s.config.Now().Add(min(seekAfter<<min(p.seeking.tries, 10), seekMost))
	p.seeking.tries++
	if err != nil {
		s.config.Log.Warn("whom to evict for a pod cannot be told, and is asked for again", "pod", p.name(), "error", err)
	}
	if err != nil || !s.waitsBeside(p) && !s.inLineAlone(p) {
		return
	}
	if len(room.Pods) > 0 {
		if only, is := s.roomOn(p); !is || only != nil && !slices.Contains(only, room.Node) {
			return // it is of no use there any more
		}
	}
	victims, refused := s.victims(room)
	switch {
	case room.Node == "" && p.object.Status.NominatedNodeName == "":
	case room.Node == "": // what it was nominated for does not help it any more
		s.unkeep(p)
		object := p.object
		s.besideLoop(func(w writer) func() { w.nominate(s.ctx, object, ""); return func() {} })
	case len(room.Pods) == 0:
	case refused != nil:
		s.spared(p, room.Node, refused)
	default:
		s.makeRoom(p, room.Node, victims)
	}
}

// victims are the pods that are to go and do not yet, or why they cannot.
func (s *Scheduler) victims(room Room) (victims []*pod, refused *notEvicted) {
	if room.Breaches > 0 {
		return nil, &notEvicted{cause: causeBudget, why: fmt.Sprintf("the disruption budgets of %d of the %d pods of lower priority that would have to go do not allow it", room.Breaches, len(room.Pods))}
	}
	for _, object := range room.Pods {
		if p := s.pods[object.UID]; p != nil && !p.leaves() && !over(p.object) {
			victims = append(victims, p)
		}
	}
	return victims, s.newAllowance().take(victims)
}

// spared tells that nobody is evicted for a pod, and why.
func (s *Scheduler) spared(p *pod, node string, refused *notEvicted) {
	s.metrics.spared.WithLabelValues(refused.cause).Inc()
	s.config.Log.Info("not evicted", "for", p.name(), "node", node, "cause", refused.cause, "reason", refused.why)
	s.recorder.Event(p.object, corev1.EventTypeWarning, "NotEvicted", fmt.Sprintf("Pods were to be evicted for it from node %s and are not: %s.", node, refused.why))
}

// makeRoom nominates a pod for a node and has those evicted that are in its way there.
func (s *Scheduler) makeRoom(p *pod, node string, victims []*pod) {
	objects := make([]*corev1.Pod, len(victims))
	for i, v := range victims {
		objects[i], v.evicting = v.object, true
	}
	p.seeking.under = true
	if p.task != nil {
		s.keepFor(p, node)
	}
	s.evictions++
	object, grace := p.object, s.config.Grace
	s.besideLoop(func(w writer) func() {
		done, refused := w.makeRoom(s.ctx, object, node, objects, grace)
		return func() {
			s.evictions--
			p.seeking.under = false
			for i, v := range victims {
				if i >= done {
					v.evicting = false
					continue
				}
				s.metrics.evicted.WithLabelValues(evictPriority).Inc()
				s.recorder.Event(v.object, corev1.EventTypeNormal, "Evicted", fmt.Sprintf("It is evicted: pod %s of higher priority is to run on node %s.", p.name(), node))
			}
			if refused != nil {
				s.unkeep(p)
				s.spared(p, node, refused)
				return
			}
			p.seeking.tries = 0
			s.config.Log.Info("evicted", "pods", done, "for", p.name(), "node", node)
			s.recorder.Event(object, corev1.EventTypeNormal, "Evicting", fmt.Sprintf("%d pods of lower priority are evicted from node %s for it.", done, node))
		}
	})
}

// makeRoom says of a pod where it is to run, so that nobody of its priority or a lower one takes the room, and evicts others from there, until one
// cannot be. It returns how many were.
func (w *writer) makeRoom(ctx context.Context, pod *corev1.Pod, node string, victims []*corev1.Pod, grace time.Duration) (done int, refused *notEvicted) {
	if err := w.nominate(ctx, pod, node); err != nil {
		return 0, &notEvicted{cause: causeAPI, why: fmt.Sprintf("it could not be written that pod %s/%s is to run there: %v", pod.Namespace, pod.Name, err)}
	}
	for _, victim := range victims {
		if refused = w.evict(ctx, victim, grace); refused != nil {
			w.nominate(ctx, pod, "")
			return done, refused
		}
		done++
	}
	return done, nil
}

// nominate writes the node that a pod is to run on, or that there is none, into its status. A pod that is gone is none to write of.
func (w *writer) nominate(ctx context.Context, pod *corev1.Pod, node string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": map[string]any{"nominatedNodeName": node}})
	for try := 0; err == nil; try++ {
		_, err = within(ctx, func(ctx context.Context) (*corev1.Pod, error) {
			return w.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		})
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // a conflict: another has its name
			return nil
		}
		if try >= tries || !again(ctx, try) {
			return err
		}
		err = nil
	}
	return err
}

func priorityOf(object *corev1.Pod) int32 {
	if object.Spec.Priority == nil {
		return 0
	}
	return *object.Spec.Priority
}
