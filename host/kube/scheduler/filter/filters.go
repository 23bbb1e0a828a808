package filter

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// Filters judges pods against nodes. All methods may be called from any goroutine.
type Filters struct {
	cache     cache.Cache
	claims    *claims
	pods      corelisters.PodLister // has a pod as it is before anybody hears of that
	nominated *nominated
	survey    *chain // answers Nodes
	judge     *chain // answers Check, holds what is assumed
	logger    klog.Logger

	preemption *defaultpreemption.DefaultPreemption // of survey, and guarded by its mu

	started func(<-chan struct{}) bool // whether the informers that are used have what there was at their start
	synced  []toolscache.InformerSynced

	// Guarded by judge.mu.
	assumed map[types.UID]*assumption
	last    *judged   // what Check found last
	freeing types.UID // the pod of which a claim is being given back; empty: none is

	changed changes
	chosen  chosen
	tainted *tracker.Tracker // nil: no rules that taint devices are followed
}

// An assumption is a pod that was assumed on a node and is not seen bound yet, with what the plugins reserved for it.
type assumption struct {
	pod   *v1.Pod // as in the cache, its node set
	bare  *v1.Pod // as the plugins see it: without the claims that are the engine's
	state *framework.CycleState
	node  string

	// Guarded by judge.mu.
	preBinding context.CancelFunc // ends PreBind, which is under way; nil: it is not
	gone       bool               // what is reserved is to be given back when that has ended
}

// judged is a pod that passed on a node, and the state of the world in which it did.
type judged struct {
	uid    types.UID
	node   string
	world  uint64
	verify cycle
}

// Feasible is where a pod may run.
type Feasible struct {
	Nodes  []string          // passes, sorted by name
	Why    map[string]string // reason of refusal, in upstream's words, for every other node
	Full   []string          // of these, those that would pass if nothing there requested CPU, memory and the like; sorted by name
	Held   []string          // of these, those that might pass without some of the pods that are there, whatever it is that these have; sorted by name
	Wished map[string]int64  // of both: how well it is what the pod would rather have, and what others would rather have of it; more is better
	Images map[string]int64  // of both: what it has of the pod's images, 0 to 100; nodes that have nothing are left out
}

// New makes filters that see what the factory's informers see. The caller then starts the factory and calls WaitForSync; before that
// there are no nodes. Client serves PreBind, claims that Nodes gives back, and events of pods, by a scheduler of that name. What New starts ends with ctx.
//
// The informers used are those of pods, nodes, namespaces, persistent volumes and their claims, storage classes, CSI nodes, drivers,
// capacities and volume attachments, resource claims and slices, device classes, disruption budgets and, after FollowTaintRules, device taint rules: the
// account needs get, list and watch on them.
func New(ctx context.Context, client kubernetes.Interface, factory informers.SharedInformerFactory, name string) (*Filters, error) {
	metrics.Register()
	logger := klog.FromContext(ctx)
	f := &Filters{
		cache:     cache.New(ctx, nil, false),
		pods:      factory.Core().V1().Pods().Lister(),
		nominated: newNominated(),
		logger:    logger,
		started:   func(stop <-chan struct{}) bool { return allSynced(factory.WaitForCacheSync(stop)) },
		assumed:   map[types.UID]*assumption{},
	}
	manager, err := f.watchClaims(ctx, client, factory)
	if err != nil {
		return nil, fmt.Errorf("watch resource claims: %w", err)
	}
	shared := &parts{client: client, factory: factory, manager: manager, nominated: f.nominated, recorder: recorder(ctx, client, name)}
	for _, c := range []**chain{&f.survey, &f.judge} {
		if *c, err = newChain(ctx, shared); err != nil {
			return nil, fmt.Errorf("make upstream's filter plugins: %w", err)
		}
	}
	if f.preemption, err = newPreemption(ctx, f.survey); err != nil {
		return nil, fmt.Errorf("make upstream's choice of evictions: %w", err)
	}
	if err := f.watch(factory); err != nil {
		return nil, fmt.Errorf("watch nodes and pods: %w", err)
	}
	return f, nil
}

// recorder records events of pods until the context ends.
func recorder(ctx context.Context, client kubernetes.Interface, name string) events.EventRecorderLogger {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return record.NewEventRecorderAdapter(broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: name}))
}

// WaitForSync waits until everything that was there when the factory was started is counted. Its error is that ctx ended before.
func (f *Filters) WaitForSync(ctx context.Context) error {
	if !f.started(ctx.Done()) || !toolscache.WaitForCacheSync(ctx.Done(), f.synced...) {
		return fmt.Errorf("wait until nodes, pods and volumes of the cluster are known: %w", context.Cause(ctx))
	}
	return nil
}

func allSynced[K comparable](synced map[K]bool) bool {
	for _, is := range synced {
		if !is {
			return false
		}
	}
	return true
}

// Nodes judges a pod on every node. It takes long (it is for off the decision path) and holds up no Check. An error is one of a plugin, not
// a refusal: the pod should be asked for again. Where no node takes the pod, one of its claims that keeps it from nodes may be given back: see freeClaim.
func (f *Filters) Nodes(ctx context.Context, pod *v1.Pod) (Feasible, error) {
	bare := f.claims.strip(pod)
	f.survey.mu.Lock()
	defer f.survey.mu.Unlock()
	cycle, err := f.survey.begin(ctx, f.cache, bare)
	if err != nil {
		return Feasible{}, asked(pod, "all nodes", err)
	}
	infos, err := f.survey.snapshot.List()
	if err != nil {
		return Feasible{}, asked(pod, "all nodes", err)
	}
	found, err := f.survey.all(ctx, cycle, infos)
	if err == nil && len(found.Nodes) == 0 {
		f.freeClaim(ctx, cycle)
	}
	if err == nil {
		err = f.survey.score(ctx, cycle, &found)
	}
	if err != nil {
		return Feasible{}, asked(pod, "all nodes", err)
	}
	return found, nil
}

// Check runs the full chain for a pod on one node, with everything that is assumed counted. Empty: it passes. An error is one of a
// plugin, not a refusal.
func (f *Filters) Check(ctx context.Context, pod *v1.Pod, node string) (why string, err error) {
	f.judge.mu.Lock()
	defer f.judge.mu.Unlock()
	_, why, err = f.check(ctx, pod, node)
	return why, err
}

// check is Check under the judge's lock. It remembers what passed for the Assume that follows.
func (f *Filters) check(ctx context.Context, pod *v1.Pod, node string) (cycle, string, error) {
	world := f.changed.now()
	cycle, err := f.judge.begin(ctx, f.cache, f.claims.strip(pod))
	if err != nil {
		return cycle, "", asked(pod, "node "+node, err)
	}
	info, err := f.judge.snapshot.Get(node)
	if err != nil {
		return cycle, fmt.Sprintf("there is no node %s", node), nil
	}
	status := f.judge.one(ctx, cycle, info)
	if err := failure(status); err != nil {
		return cycle, "", asked(pod, "node "+node, err)
	}
	if why := status.Message(); !status.IsSuccess() {
		return cycle, why, nil
	}
	f.last = &judged{uid: pod.UID, node: node, world: world, verify: cycle}
	return cycle, "", nil
}

// Assume counts a pod on a node from now on, and reserves what upstream's plugins reserve there (volumes, devices of other drivers),
// until it is seen bound, is deleted, or is forgotten. It judges first, as Check does, or takes Check's answer if nothing changed since: a
// refusal is an error, and nothing is then assumed. A pod that is assumed or bound already is an error.
func (f *Filters) Assume(pod *v1.Pod, node string) error {
	f.judge.mu.Lock()
	defer f.judge.mu.Unlock()
	ctx := withoutWrites(klog.NewContext(context.Background(), f.logger))
	if _, is := f.assumed[pod.UID]; is {
		return asked(pod, "node "+node, fmt.Errorf("it is assumed on a node already: forget it first"))
	}
	if f.freeing == pod.UID {
		return asked(pod, "node "+node, fmt.Errorf("one of its claims is being given back: try again when that is done"))
	}
	cycle, err := f.recall(ctx, pod, node)
	if err != nil {
		return err
	}
	f.chosen.learn(pod)
	placed, bare := boundTo(pod, node), boundTo(cycle.pod, node)
	if status := f.judge.framework.RunReservePluginsReserve(ctx, cycle.state, bare, node); !status.IsSuccess() {
		f.judge.framework.RunReservePluginsUnreserve(ctx, cycle.state, bare, node)
		return asked(pod, "node "+node, fmt.Errorf("reserve: %s", status.Message()))
	}
	if err := f.cache.AssumePod(f.logger, placed); err != nil {
		f.judge.framework.RunReservePluginsUnreserve(ctx, cycle.state, bare, node)
		return asked(pod, "node "+node, err)
	}
	f.nominated.leave(pod.UID)
	f.assumed[pod.UID] = &assumption{pod: placed, bare: bare, state: cycle.state, node: node}
	f.changed.note()
	return nil
}

// boundTo is a pod as if it were bound to a node; it shares everything else with the pod, and neither is ever changed.
func boundTo(pod *v1.Pod, node string) *v1.Pod {
	there := *pod
	there.Spec.NodeName = node
	return &there
}

// recall is the cycle in which a pod passes on a node: the last Check's if nothing changed since, else a new one.
func (f *Filters) recall(ctx context.Context, pod *v1.Pod, node string) (cycle, error) {
	last := f.last
	f.last = nil
	if last != nil && last.uid == pod.UID && last.node == node && last.world == f.changed.now() {
		return last.verify, nil
	}
	cycle, why, err := f.check(ctx, pod, node)
	f.last = nil
	if err == nil && why != "" {
		err = asked(pod, "node "+node, fmt.Errorf("refused: %s", why))
	}
	return cycle, err
}

// Prepares says whether PreBind has anything to do for an assumed pod. One that is not assumed needs nothing.
func (f *Filters) Prepares(ctx context.Context, pod *v1.Pod) bool {
	f.judge.mu.Lock()
	a, is := f.assumed[pod.UID]
	f.judge.mu.Unlock()
	return is && !f.judge.framework.RunPreBindPreFlights(ctx, a.state, a.bare, a.node).IsSkip()
}

// PreBind does for an assumed pod what upstream does before it writes a binding: it binds volumes that waited for a node, and writes the
// allocation of claims of other drivers. It may take minutes (a volume is made) and is called without a lock; at once back where there
// is nothing to do, or the pod is forgotten or deleted. After an error the caller takes back what was written of claims, and forgets the pod.
func (f *Filters) PreBind(ctx context.Context, pod *v1.Pod) error {
	f.judge.mu.Lock()
	a, is := f.assumed[pod.UID]
	f.judge.mu.Unlock()
	if !is {
		return asked(pod, "its node", fmt.Errorf("it is not assumed on one, or is bound: assume it first"))
	}
	status := f.judge.framework.RunPreBindPreFlights(ctx, a.state, a.bare, a.node)
	if status.IsSkip() {
		return nil
	}
	ctx, end := f.beginPreBind(ctx, a)
	defer end()
	if status.IsSuccess() {
		status = f.judge.framework.RunPreBindPlugins(ctx, a.state, a.bare, a.node)
	}
	if !status.IsSuccess() {
		return asked(pod, "node "+a.node, fmt.Errorf("before it is bound: %w", status.AsError()))
	}
	return nil
}

// beginPreBind is the context of PreBind of an assumption, and what is to be called when that has ended.
func (f *Filters) beginPreBind(ctx context.Context, a *assumption) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	f.judge.mu.Lock()
	defer f.judge.mu.Unlock()
	if a.preBinding = cancel; a.gone {
		cancel()
	}
	return ctx, func() {
		cancel()
		f.judge.mu.Lock()
		a.preBinding = nil
		gone := a.gone
		f.judge.mu.Unlock()
		if gone {
			f.unreserve(a)
		}
	}
}

// unreserve frees what the plugins reserved for an assumption, once PreBind of it has ended: both go by the same state. It writes nothing.
func (f *Filters) unreserve(a *assumption) {
	f.judge.mu.Lock()
	a.gone = true
	running := a.preBinding
	f.judge.mu.Unlock()
	if running != nil {
		running()
		return
	}
	f.judge.framework.RunReservePluginsUnreserve(withoutWrites(klog.NewContext(context.Background(), f.logger)), a.state, a.bare, a.node)
}

// Forget takes an assumed pod back, with what was reserved for it, at once: it asks the API server for nothing. What PreBind wrote into claims for it stays, and is
// to be taken back before. A pod that is not assumed, or was seen bound, stays as it is.
func (f *Filters) Forget(pod *v1.Pod) {
	if f.forget(pod.UID) {
		f.renominate(pod)
		f.changed.note()
	}
}

// forget is Forget without the nomination that the pod has again afterwards; it says whether the pod was assumed.
func (f *Filters) forget(uid types.UID) bool {
	f.judge.mu.Lock()
	a, is := f.assumed[uid]
	if is {
		delete(f.assumed, uid)
		if err := f.cache.ForgetPod(f.logger, a.pod); err != nil {
			f.logger.Error(err, "Forget an assumed pod", "pod", klog.KObj(a.pod), "node", a.node)
		}
		f.changed.note()
	}
	f.judge.mu.Unlock()
	if is {
		f.unreserve(a)
	}
	return is
}

// asked says what an error is about.
func asked(pod *v1.Pod, where string, err error) error {
	return fmt.Errorf("filter pod %s/%s for %s: %w", pod.Namespace, pod.Name, where, err)
}
