package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/aliquot-dev/aliquot/engine"
)

// plain are filters for tests, that know of node selectors, taints, unschedulable nodes and requests alone.
type plain struct {
	nodes   corelisters.NodeLister
	pods    corelisters.PodLister
	mu      sync.Mutex
	assumed map[types.UID]string    // nodes by pods
	first   map[types.UID]types.UID // by pods: the first of those that start with it

	failing     atomic.Int64  // how often PreBind is to fail yet
	late        atomic.Int64  // how often Nodes is yet to say what it said last, for it has not heard of a change
	said        Feasible      // last
	unmountable atomic.Bool   // no volume by claim can be used anywhere
	mounted     chan struct{} // volumes by claim are made once it is closed; nil: at once
	told        atomic.Uint64 // how often more labels came to count
	classed     bool          // pods with the same labels and node selector are of one class
	open        bool          // Nodes are all there are, whatever they lack
}

// newPlain returns them for a cluster.
func newPlain(factory informers.SharedInformerFactory) *plain {
	core := factory.Core().V1()
	return &plain{nodes: core.Nodes().Lister(), pods: core.Pods().Lister(), assumed: map[types.UID]string{}, first: map[types.UID]types.UID{}}
}

// Class says that no pod is known to be like another, unless pods are classed by their labels and priority, too, as upstream does. The label late counts
// only from a time on.
func (f *plain) Class(pod *corev1.Pod) string {
	if !f.classed || pod.Status.NominatedNodeName != "" {
		return ""
	}
	counts := maps.Clone(pod.Labels)
	if f.told.Load() == 0 {
		delete(counts, "late")
	}
	return fmt.Sprint(counts, pod.Spec.NodeSelector, priorityOf(pod))
}

// Distinctions is how often more labels came to count.
func (f *plain) Distinctions() uint64 { return f.told.Load() }

// Nodes are those that would take the pod now.
func (f *plain) Nodes(ctx context.Context, pod *corev1.Pod) (Feasible, error) {
	f.mu.Lock()
	before := f.said
	f.mu.Unlock()
	if f.late.Load() > 0 {
		f.late.Add(-1)
		return before, nil
	}
	nodes, err := f.nodes.List(labels.Everything())
	said := Feasible{Why: map[string]string{}, Wished: map[string]int64{}}
	for _, n := range nodes {
		if f.open {
			said.Nodes = append(said.Nodes, n.Name)
			continue
		}
		why, err := f.Check(ctx, pod, n.Name)
		switch {
		case err != nil:
			return said, err
		case why == "":
			said.Nodes = append(said.Nodes, n.Name)
			if said.Wished[n.Name], err = wished(pod, n); err != nil {
				return said, err
			}
		default:
			said.Why[n.Name] = why
			if strings.Contains(why, "too little") {
				said.Full, said.Held = append(said.Full, n.Name), append(said.Held, n.Name)
			}
		}
	}
	f.mu.Lock()
	f.said = said
	f.mu.Unlock()
	return said, err
}

// wished is the weight of a pod's preferred node affinities that a node matches.
func wished(pod *corev1.Pod, n *corev1.Node) (int64, error) {
	if pod.Spec.Affinity == nil {
		return 0, nil
	}
	terms, err := nodeaffinity.NewPreferredSchedulingTerms(pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	if err != nil {
		return 0, err
	}
	return terms.Score(n), nil
}

// Check is why a node does not take the pod now.
func (f *plain) Check(_ context.Context, pod *corev1.Pod, name string) (string, error) {
	n, err := f.nodes.Get(name)
	if err != nil {
		return "", err
	}
	switch {
	case n.Spec.Unschedulable:
		return "it is unschedulable", nil
	case !labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(n.Labels)):
		return "it does not have the labels that the pod's nodeSelector names", nil
	}
	if f.unmountable.Load() && slices.ContainsFunc(pod.Spec.Volumes, claimed) {
		return "its volumes cannot be used there", nil
	}
	for _, taint := range n.Spec.Taints {
		tolerated := taint.Effect == corev1.TaintEffectPreferNoSchedule
		for _, t := range pod.Spec.Tolerations {
			tolerated = tolerated || (t.Key == "" || t.Key == taint.Key) && (t.Effect == "" || t.Effect == taint.Effect) &&
				(t.Operator == corev1.TolerationOpExists || t.Value == taint.Value)
		}
		if !tolerated {
			return "it has the taint " + taint.Key + ", which the pod does not tolerate", nil
		}
	}
	return f.full(pod, n, func(*corev1.Pod) bool { return false }, nil)
}

// MakeRoom is the first node on which a pod fits without any of those of lower priority that have no claims, and all of these.
func (f *plain) MakeRoom(ctx context.Context, pod *corev1.Pod, only []string) (Room, error) {
	nodes, err := f.nodes.List(labels.Everything())
	if err != nil {
		return Room{}, err
	}
	pods, err := f.pods.List(labels.Everything())
	if err != nil {
		return Room{}, err
	}
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		room := Room{Node: n.Name}
		if only != nil && !slices.Contains(only, n.Name) {
			continue
		}
		if why, err := f.Check(ctx, pod, n.Name); err != nil || why == "" {
			return room, err
		}
		if n.Name == pod.Status.NominatedNodeName {
			for _, o := range pods {
				if o.Spec.NodeName == n.Name && o.DeletionTimestamp != nil {
					return room, nil
				}
			}
		}
		lower := func(o *corev1.Pod) bool {
			return o.Spec.NodeName == n.Name && !over(o) && priorityOf(o) < priorityOf(pod) && len(o.Spec.ResourceClaims) == 0
		}
		for _, o := range pods {
			if lower(o) {
				room.Pods = append(room.Pods, o)
			}
		}
		lacks, err := f.full(pod, n, lower, nil)
		if err != nil || lacks == "" && len(room.Pods) > 0 {
			return room, err
		}
	}
	return Room{}, nil
}

// MakeRoomTogether has all go from a node that are of lower priority than all the pods and have no claims, if it has no room for one of these.
func (f *plain) MakeRoomTogether(_ context.Context, pods []*corev1.Pod, on []string) (rooms Rooms, err error) {
	all, err := f.pods.List(labels.Everything())
	if err != nil {
		return rooms, err
	}
	lowest := priorityOf(slices.MinFunc(pods, func(a, b *corev1.Pod) int { return cmp.Compare(priorityOf(a), priorityOf(b)) }))
	gone, there := map[types.UID]bool{}, map[types.UID]string{}
	for i, pod := range pods {
		n, err := f.nodes.Get(on[i])
		if err != nil {
			return rooms, err
		}
		var lower []*corev1.Pod
		for _, o := range all {
			if o.Spec.NodeName == on[i] && !over(o) && priorityOf(o) < lowest && len(o.Spec.ResourceClaims) == 0 && !gone[o.UID] {
				if o.DeletionTimestamp != nil && pod.Status.NominatedNodeName == on[i] {
					gone[o.UID] = true
				} else {
					lower = append(lower, o)
				}
			}
		}
		fits := func() bool {
			lacks, failed := f.full(pod, n, func(o *corev1.Pod) bool { return gone[o.UID] }, there)
			err = cmp.Or(err, failed)
			return lacks == ""
		}
		if !fits() {
			for _, o := range lower {
				gone[o.UID] = true
			}
			if !fits() {
				for _, o := range lower {
					delete(gone, o.UID)
				}
				rooms.Lacking = append(rooms.Lacking, i)
				continue
			}
			rooms.Pods = append(rooms.Pods, lower...)
		}
		if err != nil {
			return rooms, err
		}
		there[pod.UID] = on[i]
	}
	return rooms, nil
}

// Together says that pods start together.
func (f *plain) Together(pods []*corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, pod := range pods {
		f.first[pod.UID] = pods[0].UID
	}
}

// full is what a node has too little of for a pod, were it not for some of the others, and were some there.
func (f *plain) full(pod *corev1.Pod, n *corev1.Node, without func(*corev1.Pod) bool, there map[types.UID]string) (string, error) {
	pods, err := f.pods.List(labels.Everything())
	f.mu.Lock()
	defer f.mu.Unlock()
	left := map[string]int64{}
	for _, r := range amounts(n.Status.Allocatable, func(_ string, amount int64) int64 { return amount }) {
		left[r.Name] = r.Amount
	}
	take := func(requests []engine.Resource) (lacks string) {
		for _, r := range requests {
			if left[r.Name] -= r.Amount; left[r.Name] < 0 && r.Amount > 0 {
				lacks = r.Name
			}
		}
		return lacks
	}
	for _, o := range pods {
		if o.UID == pod.UID || over(o) || without(o) {
			continue
		}
		on := cmp.Or(o.Spec.NodeName, f.assumed[o.UID], there[o.UID])
		together := f.first[pod.UID] != "" && f.first[pod.UID] == f.first[o.UID]
		if on == "" && priorityOf(o) >= priorityOf(pod) && !together {
			on = o.Status.NominatedNodeName
		}
		if on == n.Name {
			take(requestsOf(o))
		}
	}
	if lacks := take(requestsOf(pod)); lacks != "" {
		return fmt.Sprintf("it has too little %s left", lacks), err
	}
	return "", err
}

// Assume has a pod count as running on a node.
func (f *plain) Assume(pod *corev1.Pod, node string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.assumed[pod.UID] = node
	return nil
}

// Forget takes that back.
func (f *plain) Forget(pod *corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.assumed, pod.UID)
}

// WaitForSync has nothing to wait for: it looks at what the informers have.
func (f *plain) WaitForSync(context.Context) error { return nil }

// Prepares says whether a pod has volumes by claim, which alone need anything.
func (f *plain) Prepares(_ context.Context, pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, claimed)
}

// PreBind waits until volumes are made, and fails as often as it is to.
func (f *plain) PreBind(ctx context.Context, pod *corev1.Pod) error {
	if f.mounted != nil && f.Prepares(ctx, pod) {
		select {
		case <-f.mounted:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if f.failing.Add(-1) >= 0 {
		return fmt.Errorf("the volume of pod %s cannot be made", pod.Name)
	}
	return nil
}

// Others says that there are no other drivers.
func (f *plain) Others(context.Context, string) (none []*resourceapi.ResourceSlice, taken structured.AllocatedState, err error) {
	return none, taken, nil
}

// Hold has nothing to hold.
func (f *plain) Hold(context.Context, map[string]structured.AllocatedState, []*resourceapi.ResourceClaim) (bool, error) {
	return true, nil
}

// Settle has nothing to settle.
func (f *plain) Settle([]*resourceapi.ResourceClaim, bool) {}
