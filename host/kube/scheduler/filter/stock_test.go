package filter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	extender "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	"k8s.io/utils/ptr"
)

// stock is upstream's own scheduler, whole, with its default profile. A pod is put through what it does for one pod: schedulePod, and
// if it is to be assumed, Reserve and assume.
type stock struct {
	scheduler *scheduler.Scheduler
	framework framework.Framework
	snapshot  *cache.Snapshot
	pods      informers.SharedInformerFactory
	seen      *lookout
	states    map[string]fwk.CycleState
}

// lookout stands last in upstream's filtering, as an extender does, and sees the nodes that passed.
type lookout struct {
	fwk.Extender // what upstream does not call here
	nodes        []string
}

func (*lookout) Name() string              { return "lookout" }
func (*lookout) IsFilter() bool            { return true }
func (*lookout) IsPrioritizer() bool       { return false }
func (*lookout) IsInterested(*v1.Pod) bool { return true }
func (*lookout) IsIgnorable() bool         { return false }
func (*lookout) Prioritize(*v1.Pod, []fwk.NodeInfo) (*extender.HostPriorityList, int64, error) {
	return &extender.HostPriorityList{}, 0, nil
}

// Filter refuses nothing.
func (l *lookout) Filter(_ *v1.Pod, nodes []fwk.NodeInfo) ([]fwk.NodeInfo, extender.FailedNodesMap, extender.FailedNodesMap, error) {
	for _, n := range nodes {
		l.nodes = append(l.nodes, n.Node().Name)
	}
	return nodes, nil, nil, nil
}

func newStock(t *testing.T, objects ...runtime.Object) *stock {
	t.Helper()
	return stockOf(t, fake.NewClientset(objects...))
}

// stockOf is upstream's scheduler of a cluster.
func stockOf(t *testing.T, client *fake.Clientset) *stock {
	t.Helper()
	factory := informers.NewSharedInformerFactory(client, 0)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(factory.Shutdown)
	t.Cleanup(cancel)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	t.Cleanup(broadcaster.Shutdown)
	sched, err := scheduler.New(ctx, client, factory, nil, profile.NewRecorderFactory(broadcaster), scheduler.WithPercentageOfNodesToScore(ptr.To[int32](100)))
	if err != nil {
		t.Fatal(err)
	}
	seen := &lookout{}
	sched.Extenders = []fwk.Extender{seen}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := sched.WaitForHandlersSync(ctx); err != nil {
		t.Fatal(err)
	}
	chain := sched.Profiles["default-scheduler"]
	return &stock{
		scheduler: sched, framework: chain, snapshot: chain.SnapshotSharedLister().(*cache.Snapshot),
		pods: factory, seen: seen, states: map[string]fwk.CycleState{},
	}
}

// feasible are the nodes that pass upstream's scheduler for a pod, and the state of its cycle.
func (s *stock) feasible(t *testing.T, p *v1.Pod) ([]string, fwk.CycleState) {
	t.Helper()
	if err := s.scheduler.Cache.UpdateSnapshot(klog.Background(), s.snapshot); err != nil {
		t.Fatal(err)
	}
	info, err := framework.NewPodInfo(p)
	if err != nil {
		t.Fatal(err)
	}
	s.seen.nodes = nil
	state := framework.NewCycleState()
	_, err = s.scheduler.SchedulePod(context.Background(), s.framework, state, &framework.QueuedPodInfo{PodInfo: info})
	var unfit *framework.FitError
	if err != nil && !errors.As(err, &unfit) && !errors.Is(err, scheduler.ErrNoNodesAvailable) {
		t.Fatal(err)
	}
	slices.Sort(s.seen.nodes)
	return s.seen.nodes, state
}

// assume does what upstream does when it has chosen a node.
func (s *stock) assume(t *testing.T, p *v1.Pod, node string, state fwk.CycleState) {
	t.Helper()
	placed := p.DeepCopy()
	placed.Spec.NodeName = node
	if status := s.framework.RunReservePluginsReserve(context.Background(), state, placed, node); !status.IsSuccess() {
		t.Fatal(status.AsError())
	}
	if err := s.scheduler.Cache.AssumePod(klog.Background(), placed); err != nil {
		t.Fatal(err)
	}
	s.states[p.Name] = state
}

// forget does what upstream does when a pod that it assumed cannot be bound.
func (s *stock) forget(t *testing.T, p *v1.Pod, node string) {
	t.Helper()
	placed := p.DeepCopy()
	placed.Spec.NodeName = node
	s.framework.RunReservePluginsUnreserve(context.Background(), s.states[p.Name], placed, node)
	if err := s.scheduler.Cache.ForgetPod(klog.Background(), placed); err != nil {
		t.Fatal(err)
	}
}

// nominate has upstream know of a pod that waits for a node where room is made for it.
func (s *stock) nominate(t *testing.T, p *v1.Pod) {
	t.Helper()
	if err := s.pods.Core().V1().Pods().Informer().GetIndexer().Add(p); err != nil {
		t.Fatal(err)
	}
	s.scheduler.SchedulingQueue.Add(context.Background(), p)
}

// Random clusters and random pods, one after the other, assumed where both say that they fit: for each the nodes are the same in
// upstream's own scheduler and here, from Nodes and from Check.
func TestSameNodesAsTheStockScheduler(t *testing.T) {
	judged, refused := 0, 0
	for seed, r := range seeded(24, 36) {
		objects := append(storage(), foreign()...)
		f, _ := over(t, objects...)
		s := newStock(t, objects...)
		nodes := populate(t, r, f, s)
		for i := range 30 {
			if i%6 == 5 { // a node gets other labels, resources or taints
				at := r.IntN(len(nodes))
				old, n := nodes[at], randomNode(r, nodes[at].Name)
				f.nodeChanged(old, n)
				s.scheduler.Cache.UpdateNode(klog.Background(), old, n)
				nodes[at] = n
			}
			p := randomPod(r, fmt.Sprintf("p%d", i), func(p *v1.Pod) {
				p.Spec.SchedulerName = "default-scheduler"
				if r.IntN(8) == 0 && p.Namespace == "default" {
					uses(fmt.Sprintf("nic-%d", r.IntN(4)))(p)
				}
			})
			want, state := s.feasible(t, p)
			found, err := f.Nodes(background, p)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(found.Nodes, want) {
				t.Fatalf("seed %d, pod %d: %v here, %v in the stock scheduler\nwhy not: %v\nthe pod: %+v", seed, i, found.Nodes, want, found.Why, p.Spec)
			}
			judged, refused = judged+len(nodes), refused+len(found.Why)
			agrees(t, f, p, found)
			if len(want) == 0 {
				continue
			}
			chosen := want[r.IntN(len(want))]
			if err := f.Assume(p, chosen); err != nil {
				t.Fatal(err)
			}
			s.assume(t, p, chosen, state)
			if r.IntN(5) == 0 {
				f.Forget(p)
				s.forget(t, p, chosen)
			}
		}
	}
	t.Logf("%d pairs of pod and node, %d of them refused", judged, refused)
	if refused < judged/10 || refused > judged*9/10 {
		t.Errorf("%d of %d pairs are refused: the clusters show too little", refused, judged)
	}
}

// populate fills both with the same nodes, bound pods and nominated pods; it returns the nodes.
func populate(t *testing.T, r *rand.Rand, f *Filters, s *stock) []*v1.Node {
	t.Helper()
	var there []*v1.Node
	nodes := 1 + r.IntN(12)
	for i := range nodes {
		n := randomNode(r, fmt.Sprintf("n%d", i))
		there = append(there, n)
		f.nodeAdded(n)
		s.scheduler.Cache.AddNode(klog.Background(), n)
	}
	for i := range r.IntN(2 * nodes) {
		p := randomPod(r, fmt.Sprintf("bound%d", i), on(fmt.Sprintf("n%d", r.IntN(nodes))))
		f.podAdded(p)
		if err := s.scheduler.Cache.AddPod(klog.Background(), p); err != nil {
			t.Fatal(err)
		}
	}
	for i := range r.IntN(3) {
		p := randomPod(r, fmt.Sprintf("nominated%d", i), func(p *v1.Pod) {
			p.Spec.SchedulerName = "default-scheduler"
			p.Status.NominatedNodeName = fmt.Sprintf("n%d", r.IntN(nodes))
		})
		f.podAdded(p)
		s.nominate(t, p)
	}
	return there
}

// foreign is a driver that is not ours, with devices on some nodes and fewer of them than claims.
func foreign() []runtime.Object {
	made := objects(deviceClass("net.example", "net.example", ""), slice("n0", "net.example"), slice("n3", "net.example"))
	for i := range 4 {
		made = append(made, deviceClaim(fmt.Sprintf("nic-%d", i), "net.example"))
	}
	return made
}
