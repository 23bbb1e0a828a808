package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
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
	under  bool // it is being looked, or others are being evicted
	putOff bool // once, for there may be room without that
	tries  int
	due    time.Time
}

// seek has it looked whether a pod that no node takes would fit on one if others of lower priority went.
func (s *Scheduler) seek(p *pod) {
	if slices.ContainsFunc(p.startsWith(), neverEvicts) || p.seeking.under || s.config.Now().Before(p.seeking.due) {
		return
	}
	p.seeking.under = true
	s.seekers = append(s.seekers, p)
	s.seekNext()
}

// neverEvicts says that a pod is never to have others evicted for it.
func neverEvicts(p *pod) bool {
	return p.object.Spec.PreemptionPolicy != nil && *p.object.Spec.PreemptionPolicy == corev1.PreemptNever
}

// seekInLine is seek for a pod in line, or a gang by its first pod, which may lack only what pods without devices have on a node: about these the engine does not
// decide. What it was nominated for is looked at again.
func (s *Scheduler) seekInLine(p *pod) {
	if !s.firstInLine(p) || !s.mayGainRoom(p) {
		return
	}
	may := slices.ContainsFunc(p.startsWith(), nominated)
	for _, r := range p.task.work.roles {
		if r.class.answer == nil || r.class.likes.withheld {
			return
		}
		may = may || len(r.class.held) > 0
	}
	if may {
		s.seek(p)
	}
}

func nominated(p *pod) bool { return p.object.Status.NominatedNodeName != "" }

// mayGainRoom says whether there may be anybody to be evicted for a pod, or somebody was.
func (s *Scheduler) mayGainRoom(p *pod) bool {
	return lowest(p) > s.leastPriority() || slices.ContainsFunc(p.startsWith(), nominated)
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
			if lowest(p) > lowest(s.seekers[at]) {
				at = i
			}
		}
		p := s.seekers[at]
		s.seekers = slices.Delete(s.seekers, at, at+1)
		if len(p.startsWith()) > 1 {
			s.seeks = true
			s.seekTogether(p)
			return
		}
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
	case s.firstInLine(p):
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

// firstInLine says whether a pod waits for the engine, and is the first of those that start together: what these seek is sought by it.
func (s *Scheduler) firstInLine(p *pod) bool {
	return s.mine(p) && p.task != nil && p.task.work.state == inLine && p.task.index == 0
}

// sought takes in what room there is for a pod: it is nominated for the node, and those in its way are evicted.
func (s *Scheduler) sought(p *pod, room Room, err error) {
	s.lookedForRoom(p, err)
	if err != nil || !s.waitsBeside(p) && !s.firstInLine(p) || p.task != nil && s.engine.Rests(p.task.work.id) {
		return
	}
	if len(room.Pods) > 0 {
		if only, is := s.roomOn(p); !is || only != nil && !slices.Contains(only, room.Node) {
			return // it is of no use there any more
		}
	}
	where := []nomination{{p, room.Node}}
	switch {
	case room.Node == "":
		s.unnominate(p) // what it was nominated for does not help it any more
	case len(room.Pods) == 0:
	case room.Breaches > 0:
		s.giveUp(where)
		s.spared(where, &notEvicted{cause: causeBudget, why: fmt.Sprintf("the disruption budgets of %d of the %d pods of lower priority that would have to go do not allow it", room.Breaches, len(room.Pods))})
	default:
		s.makeRoom(where, room.Pods)
	}
}

// lookedForRoom notes that room was looked for, for a pod or a gang by its first.
func (s *Scheduler) lookedForRoom(p *pod, err error) {
	p.seeking.under = false
	p.seeking.due = s.config.Now().Add(min(seekAfter<<min(p.seeking.tries, 10), seekMost))
	p.seeking.tries++
	if err != nil {
		s.config.Log.Warn("whom to evict for a pod cannot be told, and is asked for again", "pod", p.name(), "error", err)
	}
}

// unnominate has pods be nominated for no node any more.
func (s *Scheduler) unnominate(pods ...*pod) {
	for _, p := range pods {
		if !nominated(p) {
			continue
		}
		s.unkeep(p)
		object := p.object
		s.besideLoop(func(w writer) func() { w.nominate(s.ctx, object, ""); return func() {} })
	}
}

// nomination is a pod with the node that it is to run on when others have gone from there.
type nomination struct {
	pod  *pod
	node string
}

// nodesOf are the nodes of nominations, in words.
func nodesOf(where []nomination) string {
	var names []string
	for _, one := range where {
		names = append(names, one.node)
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) == 1 {
		return "node " + names[0]
	}
	return "nodes " + strings.Join(names, ", ")
}

// giveUp has pods be nominated for no node any more: what they would need there beside what was made for them they do not get.
func (s *Scheduler) giveUp(where []nomination) {
	for _, one := range where {
		s.unnominate(one.pod)
	}
}

// spared tells that nobody is evicted for a pod or a gang, and why.
func (s *Scheduler) spared(where []nomination, refused *notEvicted) {
	s.metrics.spared.WithLabelValues(refused.cause).Inc()
	s.config.Log.Info("not evicted", "for", where[0].pod.name(), "from", nodesOf(where), "cause", refused.cause, "reason", refused.why)
	for _, one := range where {
		s.recorder.Event(one.pod.object, corev1.EventTypeWarning, "NotEvicted", fmt.Sprintf("Pods were to be evicted for it from %s and are not: %s.", nodesOf(where), refused.why))
	}
}

// makeRoom nominates a pod for a node, or those of a gang each for its own, and has those of others evicted that are in the way there and do not go yet: if, as far
// as is known, all can be.
func (s *Scheduler) makeRoom(where []nomination, others []*corev1.Pod) {
	var victims []*pod
	for _, object := range others {
		if p := s.pods[object.UID]; p != nil && !p.leaves() && !over(p.object) {
			victims = append(victims, p)
		}
	}
	allowed := s.newAllowance()
	if refused := allowed.take(victims); refused != nil {
		s.spared(where, refused)
		s.giveUp(where)
		return
	}
	victims = allowed.budgetedFirst(victims)
	order := roomOrder{grace: s.config.Grace}
	for _, v := range victims {
		v.evicting = true
		order.victims = append(order.victims, v.object)
	}
	first := where[0].pod
	first.seeking.under = true
	for _, one := range where {
		order.pods, order.nodes = append(order.pods, one.pod.object), append(order.nodes, one.node)
		if first.task != nil {
			s.keepFor(one.pod, one.node)
		}
	}
	s.evictions++
	s.besideLoop(func(w writer) func() {
		done, refused := w.makeRoom(s.ctx, order)
		return func() {
			s.evictions--
			first.seeking.under = false
			s.madeRoom(where, victims, done)
			if refused != nil {
				for _, one := range where {
					s.unkeep(one.pod)
				}
				s.spared(where, refused)
				return
			}
			first.seeking.tries = 0
			s.config.Log.Info("evicted", "pods", done, "for", first.name(), "from", nodesOf(where))
			whom := "it"
			if len(where) > 1 {
				whom = "its gang"
			}
			for _, one := range where {
				s.recorder.Event(one.pod.object, corev1.EventTypeNormal, "Evicting", fmt.Sprintf("%d pods of lower priority are evicted from %s for %s.", done, nodesOf(where), whom))
			}
		}
	})
}

// madeRoom tells of the victims that are evicted, which are the first of them.
func (s *Scheduler) madeRoom(where []nomination, victims []*pod, done int) {
	for i, v := range victims {
		if i >= done {
			v.evicting = false
			s.sharersOf(v)
			continue
		}
		at := max(0, slices.IndexFunc(where, func(one nomination) bool { return one.node == v.node() }))
		s.metrics.evicted.WithLabelValues(evictPriority).Inc()
		s.recorder.Event(v.object, corev1.EventTypeNormal, "Evicted", fmt.Sprintf("It is evicted: pod %s of higher priority is to run on node %s.", where[at].pod.name(), where[at].node))
	}
}

// roomOrder is where pods are to run, each on the node in its place, and who is to go for that.
type roomOrder struct {
	pods    []*corev1.Pod
	nodes   []string
	victims []*corev1.Pod
	grace   time.Duration // that each of these has at most
}

// makeRoom says of pods where they are to run, so that nobody of their priority or a lower one takes the room, and evicts others from there, if the API server would
// evict each of them, until one cannot be: what their budgets allow together is counted before, but others may use that up meanwhile. It returns how many were.
func (w *writer) makeRoom(ctx context.Context, order roomOrder) (done int, refused *notEvicted) {
	for i, pod := range order.pods {
		if err := w.nominate(ctx, pod, order.nodes[i]); err != nil {
			refused = &notEvicted{cause: causeAPI, why: fmt.Sprintf("it could not be written that pod %s/%s is to run on node %s: %v", pod.Namespace, pod.Name, order.nodes[i], err)}
			if errors.Is(err, errLost) {
				refused.cause = causeGone
			}
			break
		}
	}
	if refused == nil {
		refused = w.wouldEvict(ctx, order.victims, order.grace)
	}
	for ; refused == nil && done < len(order.victims); done++ {
		if refused = w.evict(ctx, order.victims[done], order.grace); refused != nil {
			break
		}
	}
	if refused != nil {
		for _, pod := range order.pods {
			w.nominate(ctx, pod, "")
		}
	}
	return done, refused
}

// nominate writes the node that a pod is to run on, or that there is none, into its status: errLost, if it does not wait for one any more.
func (w *writer) nominate(ctx context.Context, pod *corev1.Pod, node string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": map[string]any{"nominatedNodeName": node}})
	for try := 0; err == nil; try++ {
		now, failed := within(ctx, func(ctx context.Context) (*corev1.Pod, error) {
			return w.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		})
		switch {
		case apierrors.IsNotFound(failed) || apierrors.IsConflict(failed): // a conflict: another has its name
			return lost("it is gone")
		case failed == nil && (now.Spec.NodeName != "" || now.DeletionTimestamp != nil):
			return lost("it has a node, or is being deleted")
		case failed == nil:
			return nil
		case try >= tries || !again(ctx, try):
			return failed
		}
	}
	return err
}
