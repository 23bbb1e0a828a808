package scheduler

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// eviction is the end of a workload for the sake of another: of all its pods, and of those that cannot go on without them.
type eviction struct {
	work  *work
	tasks []engine.Evict // one for each task of it
	plan  engine.ActionID
	waits *work  // that it is for; nil: the engine alone knows it
	pods  []*pod // that still run, by name
	why   string // with the names that users know
}

// How long after a refusal a workload is asked for again at the earliest: doubled each time, up to the most.
const (
	spareFor  = 10 * time.Second
	spareMost = 5 * time.Minute
)

// systemCritical is the least priority of what Kubernetes itself needs: it is not evicted for devices.
const systemCritical = 2_000_000_000

// preemptible says whether a pod may hold more than quotas, and is evicted when others want theirs. It goes by what does not change while the pod runs,
// so that the next scheduler finds the same: owners do.
func (s *Scheduler) preemptible(object *corev1.Pod) (bool, error) {
	says, err := annotation.IsPreemptible(object.Annotations)
	return err == nil && says && s.serves(object) && !pinned(object) && (object.Spec.Priority == nil || *object.Spec.Priority < systemCritical), err
}

// pinned says whether a pod is for one node alone by its name, as those of DaemonSets are: in another place it is of no use.
func pinned(object *corev1.Pod) bool {
	affinity := object.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	terms := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return len(terms) > 0 && !slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(term.MatchFields, func(field corev1.NodeSelectorRequirement) bool {
			return field.Key == metav1.ObjectNameField && field.Operator == corev1.NodeSelectorOpIn
		})
	})
}

// mayGo says whether a pod may be evicted with its gang: what the engine was told of what it holds stands, whatever it says by now.
func (s *Scheduler) mayGo(p *pod) bool {
	held := false
	for _, key := range p.claims {
		if c := s.claims[key]; c != nil && c.task != nil {
			if held = true; !c.task.work.preemptible {
				return false
			}
		}
	}
	may, _ := s.preemptible(p.object)
	return held || may
}

// evictAll carries out the evictions of one step of the engine. What is of no plan ends by itself: its device has gone, and the taint that its node
// gave it, or the end of its node, has the pods ended; or they are being deleted.
func (s *Scheduler) evictAll(actions []engine.Evict) {
	all, plans := map[*work]*eviction{}, map[engine.ActionID][]*eviction{}
	for _, action := range actions {
		plan, waits := s.engine.EvictedFor(action.Workload, action.Task)
		w := s.work[action.Workload]
		if plan == 0 || w == nil {
			s.step(engine.Done{At: s.at(), ID: action.ID})
			continue
		}
		e := all[w]
		if e == nil {
			e = &eviction{work: w, plan: plan, waits: s.work[waits], why: action.Reason}
			if e.waits != nil {
				e.why = strings.ReplaceAll(e.why, "workload "+waits, e.waits.title())
			}
			all[w] = e
			plans[plan] = append(plans[plan], e)
		}
		e.tasks = append(e.tasks, action)
	}
	for _, plan := range slices.Sorted(maps.Keys(plans)) {
		s.carryOutPlan(plans[plan])
	}
}

// carryOutPlan has the workloads of a plan evicted if as far as is known all can be: else the engine looks for another plan.
func (s *Scheduler) carryOutPlan(all []*eviction) {
	refusals, allowed := map[*eviction]*notEvicted{}, s.newAllowance()
	for _, e := range all {
		var refused *notEvicted
		if e.pods, refused = s.toEvict(e.work); refused == nil {
			refused = allowed.take(e.pods)
		}
		if refused != nil {
			refusals[e] = refused
		}
	}
	for _, e := range all {
		if refusals[e] != nil {
			s.notEvicted(e, refusals[e])
		}
	}
	for _, e := range all {
		switch {
		case len(refusals) == 0:
			s.evict(e)
		case refusals[e] == nil: // it may be of the next plan
			s.refuseEvictions(e, "others of its plan cannot be evicted now", time.Microsecond)
		}
	}
}

// toEvict are the pods that are to be evicted for a workload to end: those that have its claims, whatever they say and whoever placed them, and of a
// gang all that are preemptible where fewer than it needs would be left. Those that end already are not among them. Nothing that a pod says keeps
// another's claim: what a gang is cannot be said of its pod goes alone.
func (s *Scheduler) toEvict(w *work) ([]*pod, *notEvicted) {
	found := map[*pod]bool{}
	for _, t := range w.tasks {
		for _, c := range t.claims {
			for _, p := range s.holders(c) {
				found[p] = true
			}
		}
	}
	for p := range maps.Clone(found) {
		key, least, err := s.gangOf(p.object)
		if errors.Is(err, errNotYet) {
			return nil, &notEvicted{cause: causeGang, why: err.Error()}
		}
		if err != nil || key == "" {
			continue
		}
		if p.gang == nil { // who made it was not known when it was seen
			for _, o := range s.pods {
				s.joinGang(o)
			}
		}
		if p.gang == nil {
			continue // another scheduler's
		}
		rest := slices.DeleteFunc(p.gang.running(), func(o *pod) bool { return found[o] })
		if len(rest) >= s.needs(p.gang, least) {
			continue
		}
		if o := p.gang.starting(); o != nil {
			return nil, &notEvicted{cause: causeGang, why: fmt.Sprintf("pod %s of its gang is being started", o.name())}
		}
		for _, o := range rest {
			if s.mayGo(o) {
				found[o] = true
			}
		}
	}
	var pods []*pod
	for _, p := range slices.SortedFunc(maps.Keys(found), func(a, b *pod) int { return strings.Compare(a.name(), b.name()) }) {
		if !p.leaves() {
			pods = append(pods, p)
		}
	}
	if len(found) == 0 {
		return nil, &notEvicted{cause: causePod, why: "it is not known which pods have its claims"}
	}
	return pods, nil
}

// holders are the pods that run with an allocated claim, by name.
func (s *Scheduler) holders(c *claim) []*pod {
	return slices.DeleteFunc(s.reservedFor(c), func(p *pod) bool { return p.node() == "" || over(p.object) })
}

// evict has the pods of an eviction evicted beside the loop.
func (s *Scheduler) evict(e *eviction) {
	objects := make([]*corev1.Pod, len(e.pods))
	for i, p := range e.pods {
		objects[i], p.evicting = p.object, true
	}
	gangs := e.gangs()
	for _, g := range gangs {
		s.regather(g)
	}
	for _, p := range e.pods {
		s.sharersOf(p)
	}
	s.evictions++
	order := evictOrder{pods: objects, grace: s.config.Grace, why: e.said()}
	s.besideLoop(func(w writer) func() {
		refused := w.evictAll(s.ctx, order)
		return func() {
			s.evictions--
			if refused != nil {
				for _, p := range e.pods {
					p.evicting = false
				}
				s.notEvicted(e, refused)
				for _, g := range gangs {
					s.followers(g)
				}
				for _, p := range e.pods {
					s.sharersOf(p)
				}
				return
			}
			s.evicted(e)
		}
	})
}

// gangs are those of its pods.
func (e *eviction) gangs() (all []*gang) {
	for _, p := range e.pods {
		if p.gang != nil && !slices.Contains(all, p.gang) {
			all = append(all, p.gang)
		}
	}
	return all
}

// evicted takes in that a workload is being ended. What it holds is free when its claims are.
func (s *Scheduler) evicted(e *eviction) {
	s.metrics.evicted.WithLabelValues(e.tasks[0].Code).Add(float64(len(e.pods)))
	for _, p := range e.pods {
		s.recorder.Event(p.object, corev1.EventTypeNormal, "Evicted", "It is evicted: "+e.said()+".")
	}
	s.config.Log.Info("evicted", "workload", e.work.id, "pods", len(e.pods), "plan", e.plan, "reason", e.said())
	s.tellWaiting(e, corev1.EventTypeNormal, "Evicting", fmt.Sprintf("%s is evicted for it: %s.", e.work.title(), e.why))
	for _, action := range e.open() {
		s.step(engine.Done{At: s.at(), ID: action.ID})
	}
}

// notEvicted takes in that a workload could not be ended: nothing of it was.
func (s *Scheduler) notEvicted(e *eviction, refused *notEvicted) {
	s.metrics.spared.WithLabelValues(refused.cause).Inc()
	w := e.work
	again := max(refused.after, min(s.config.Spare<<min(w.spared, 10), spareMost))
	w.spared++
	s.config.Log.Info("not evicted", "workload", w.id, "plan", e.plan, "cause", refused.cause, "reason", refused.why, "again", again)
	s.tellWaiting(e, corev1.EventTypeWarning, "NotEvicted", fmt.Sprintf("%s was to be evicted for it (plan %d) and is not: %s; it is asked for again in %s at the earliest.", w.title(), e.plan, refused.why, again))
	s.refuseEvictions(e, refused.why, again)
}

// refuseEvictions tells the engine that a workload runs on, and for how long it is not to ask for it.
func (s *Scheduler) refuseEvictions(e *eviction, why string, again time.Duration) {
	for _, action := range e.open() {
		s.step(engine.Refused{At: s.at(), ID: action.ID, Reason: why, Retry: engine.Time(again.Microseconds())})
	}
}

// open are the evictions that wait for an answer: those of tasks that hold something.
func (e *eviction) open() []engine.Evict {
	return slices.DeleteFunc(slices.Clone(e.tasks), func(action engine.Evict) bool { return len(e.work.tasks[action.Task].claims) == 0 })
}

// said is why it is done, and for whom.
func (e *eviction) said() string {
	if e.waits == nil || strings.Contains(e.why, e.waits.title()) {
		return e.why
	}
	return e.why + ", for " + e.waits.title()
}

// tellWaiting gives an event on the pods that an eviction is for, and has them told anew why they wait.
func (s *Scheduler) tellWaiting(e *eviction, kind, reason, text string) {
	if e.waits == nil {
		return
	}
	for _, t := range e.waits.tasks {
		if t.pod != nil && s.mine(t.pod) {
			s.recorder.Event(t.pod.object, kind, reason, text)
			s.tellSoon(t.pod)
		}
	}
}

// title is what users know a workload by.
func (w *work) title() string {
	for _, t := range w.tasks {
		if t.pod == nil {
			continue
		}
		if len(w.tasks) > 1 {
			return "the gang of pod " + t.pod.name()
		}
		return "pod " + t.pod.name()
	}
	if len(w.tasks[0].claims) > 0 {
		return "the pod with claim " + w.tasks[0].claims[0].key
	}
	return w.id
}

// leaves says that a pod is being ended.
func (p *pod) leaves() bool { return p.evicting || p.object.DeletionTimestamp != nil }

// ending looks at a pod that is being deleted. Once all that run with a workload's claims are, the engine hears of its end ahead, so that nothing is
// evicted for what comes free anyway.
func (s *Scheduler) ending(p *pod) {
	for _, key := range p.claims {
		c := s.claims[key]
		if c == nil || c.task == nil || c.task.work.state != placed || c.task.work.leaving {
			continue
		}
		w, runs := c.task.work, false
		for _, t := range w.tasks {
			for _, c := range t.claims {
				holders := s.holders(c)
				runs = runs || len(holders) == 0 || slices.ContainsFunc(holders, func(o *pod) bool { return !o.leaves() })
			}
		}
		if !runs {
			w.leaving = true
			s.step(engine.Cancel{At: s.at(), ID: w.id, Reason: "its pods are being deleted"})
		}
	}
	s.sharersOf(p)
}

// goOn takes up what a scheduler before this one had begun: of a gang of which too few are left without those that were to be evicted, these are;
// of all others the engine decides anew.
func (s *Scheduler) goOn() {
	for _, p := range s.allPods() {
		s.goOnWith(p)
	}
}

// goOnWith is goOn for a pod: at once, or when it is known of which gang it is.
func (s *Scheduler) goOnWith(p *pod) {
	why, is := marked(p.object)
	if p.begun = false; !is || p.leaves() || over(p.object) || !s.serves(p.object) {
		return
	}
	_, least, err := s.gangOf(p.object)
	if errors.Is(err, errNotYet) {
		p.begun = true
		return
	}
	if p.gang == nil || err != nil || len(p.gang.running()) >= s.needs(p.gang, least) {
		object := p.object
		s.besideLoop(func(w writer) func() { w.mark(s.ctx, object, false, why); return func() {} })
		return
	}
	s.config.Log.Info("an eviction that was begun is finished", "pod", p.name(), "reason", why)
	for _, o := range p.gang.running() {
		if _, too := marked(o.object); too {
			s.finish(o, why)
		}
	}
}

// finish has a pod evicted without which the others of its gang have been.
func (s *Scheduler) finish(p *pod, why string) {
	p.evicting = true
	s.evictions++
	object, grace := p.object, s.config.Grace
	s.besideLoop(func(w writer) func() {
		w.evictSurely(s.ctx, object, grace)
		return func() {
			s.evictions--
			s.recorder.Event(object, corev1.EventTypeNormal, "Evicted", "It is evicted with its gang: "+why+".")
			s.ending(p)
		}
	})
}
