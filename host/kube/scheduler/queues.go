package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/host/kube/queues"
	"github.com/aliquot-dev/aliquot/host/policy"
)

// tenants is whose quota work counts against: what is known of namespaces, queues and the policy, and what the engine was told of it.
type tenants struct {
	namespaces map[string]*corev1.Namespace
	queues     map[string]*v1alpha1.Queue
	policy     *v1alpha1.Policy // nil: there is none
	changed    bool             // since the engine was told
	rules      queues.Rules
	told       map[string]api.QueueSpec // to the engine, and not taken back
	find       queues.Find              // among those that hold
	bounds     queues.Bounds            // of those that hold
	until      time.Time                // when the engine is to be told otherwise; zero: never, by itself
	hours      policy.Hours
	kepts      map[string]policy.KeptCount // what was said last of the device-hours of queues that are there
	counting   bool                        // device-hours: all that is held is known
}

func newTenants() tenants {
	return tenants{
		namespaces: map[string]*corev1.Namespace{}, queues: map[string]*v1alpha1.Queue{}, told: map[string]api.QueueSpec{}, find: queues.Among(nil),
		kepts: map[string]policy.KeptCount{},
	}
}

// watchQueues has changes of queues and of the policy put into the inbox. Without Config.Objects there are none.
func (s *Scheduler) watchQueues() ([]cache.InformerSynced, error) {
	if s.config.Objects == nil {
		return nil, nil
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(s.config.Objects, 0)
	listed, err := factory.ForResource(v1alpha1.Queues).Informer().AddEventHandler(handler(s, s.queueSet, s.queueGone))
	if err != nil {
		return nil, err
	}
	held, err := factory.ForResource(v1alpha1.Policies).Informer().AddEventHandler(handler(s, s.policySet, s.policyGone))
	if err != nil {
		return nil, err
	}
	factory.Start(s.ctx.Done())
	return []cache.InformerSynced{listed.HasSynced, held.HasSynced}, nil
}

func (s *Scheduler) namespaceSet(object *corev1.Namespace) {
	before := s.tenants.namespaces[object.Name]
	s.tenants.namespaces[object.Name] = object
	if before == nil || before.Labels[annotation.Queue] != object.Labels[annotation.Queue] {
		s.tenants.changed = true
	}
}

func (s *Scheduler) namespaceGone(object *corev1.Namespace) {
	delete(s.tenants.namespaces, object.Name)
}

func (s *Scheduler) queueSet(object *unstructured.Unstructured) {
	q, err := v1alpha1.Read[v1alpha1.Queue](object)
	if err != nil {
		s.queueGone(object)
		s.config.Log.Warn("a queue does not hold", "queue", object.GetName(), "error", err)
		return
	}
	before := s.tenants.queues[q.Name]
	s.tenants.queues[q.Name] = q
	if before == nil || before.UID != q.UID || before.Generation != q.Generation {
		s.tenants.changed = true
	}
}

func (s *Scheduler) queueGone(object *unstructured.Unstructured) {
	delete(s.tenants.queues, object.GetName())
	s.tenants.changed = true
}

func (s *Scheduler) policySet(object *unstructured.Unstructured) {
	p, err := v1alpha1.Read[v1alpha1.Policy](object)
	if err != nil {
		s.policyGone(object)
		s.config.Log.Warn("the policy does not hold", "error", err)
		return
	}
	if before := s.tenants.policy; before == nil || before.UID != p.UID || before.Generation != p.Generation {
		s.tenants.changed = true
	}
	s.tenants.policy = p
}

func (s *Scheduler) policyGone(*unstructured.Unstructured) {
	s.tenants.policy, s.tenants.changed = nil, true
}

// tellQueues tells the engine which queues there are and what the policy says now, and says after what time that is to be done again. What is
// not as users wrote it is said by the controller, in the conditions of these.
func (s *Scheduler) tellQueues() time.Duration {
	t, now := &s.tenants, s.config.Now()
	s.countHours()
	t.hours.Turn(now)
	changed := t.hours.Changed()
	switch {
	case t.changed:
		t.changed = false
		t.rules, _, _ = queues.Read(slices.Collect(maps.Values(t.queues)), t.policy, now)
	case len(changed) == 0 && (t.until.IsZero() || now.Before(t.until)):
		return s.toldFor(now)
	}
	told, until := t.rules.At(now)
	told.Defragment = nil // nothing that runs is moved on Kubernetes
	t.until = until
	s.setHours(told.Queues, now)
	s.step(engine.PolicySet{At: s.at(), Policy: told})
	t.hours.Told(told.Queues)
	s.logHours(changed)
	holds := map[string]bool{}
	for _, q := range told.Queues {
		t.told[q.Name], holds[q.Name] = q, true
	}
	t.find, t.bounds = queues.Among(told.Queues), queues.BoundsOf(told.Queues)
	s.move()
	s.forgetQueues(holds)
	return s.toldFor(now)
}

// toldFor is for how long what the engine was told holds, if nothing changes.
func (s *Scheduler) toldFor(now time.Time) time.Duration {
	long := time.Hour
	for _, at := range []time.Time{s.tenants.until, s.tenants.hours.Next(now, s.engine.Held)} {
		if !at.IsZero() {
			long = min(long, max(0, at.Sub(now)))
		}
	}
	return long
}

// forgetQueues takes queues back from the engine that do not hold any more, those under others first. One in which something still runs stays until
// the next change.
func (s *Scheduler) forgetQueues(holds map[string]bool) {
	depth := func(name string) (n int) {
		for ; name != "" && n <= len(s.tenants.told); n++ {
			name = s.tenants.told[name].Parent
		}
		return n
	}
	gone := slices.DeleteFunc(slices.Sorted(maps.Keys(s.tenants.told)), func(name string) bool { return holds[name] })
	slices.SortStableFunc(gone, func(a, b string) int { return cmp.Compare(depth(b), depth(a)) })
	for _, name := range gone {
		s.step(engine.QueueGone{At: s.at(), Queue: name})
		if !slices.ContainsFunc(s.engine.Queues(), func(q api.Queue) bool { return q.Name == name }) {
			delete(s.tenants.told, name)
		}
	}
}

// move has what waits in line stand in the queue where it belongs now.
func (s *Scheduler) move() {
	if !s.began {
		return
	}
	for _, p := range s.allPods() {
		if p.task == nil || p.task.work.state != inLine {
			continue
		}
		queue, err := s.lineOf(p.object)
		if err == nil && queue == p.task.ask.queue {
			continue
		}
		others := p.task.work.tasks
		s.withdraw(p.task.work, "the queue that it belongs to is another now, or lets it run no more")
		for _, t := range others {
			s.consider(t.pod)
		}
	}
	s.considerAll()
}

// queueOf is the queue that a pod's work counts against, or why there is none.
func (s *Scheduler) queueOf(pod *corev1.Pod) (string, error) {
	return queues.Of(s.namespace(pod.Namespace), pod, s.tenants.find)
}

// lineOf is the queue in whose line a pod waits, or why it may not.
func (s *Scheduler) lineOf(pod *corev1.Pod) (string, error) {
	if s.config.Objects != nil && s.tenants.namespaces[pod.Namespace] == nil { // namespaces are heard of beside pods
		return "", fmt.Errorf("its namespace %s is not known yet", pod.Namespace)
	}
	queue, err := s.queueOf(pod)
	if err == nil {
		err = s.tenants.bounds.Start(queue, pod)
	}
	return queue, err
}

func (s *Scheduler) namespace(name string) *corev1.Namespace {
	if known := s.tenants.namespaces[name]; known != nil {
		return known
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// queueOfClaim is the queue that an allocated claim counts against: that of a pod that has it, else of its namespace; the default one where
// neither is to be said, for it holds what it holds.
func (s *Scheduler) queueOfClaim(c *claim) string {
	for _, p := range slices.SortedFunc(maps.Keys(s.users[c.key]), func(a, b *pod) int { return cmp.Compare(a.name(), b.name()) }) {
		if queue, err := s.queueOf(p.object); err == nil {
			return queue
		}
	}
	if queue, err := queues.Home(s.namespace(c.object.Namespace), s.tenants.find); err == nil {
		return queue
	}
	return api.DefaultQueue
}
