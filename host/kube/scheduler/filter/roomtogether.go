package filter

import (
	"cmp"
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Rooms is what makes several pods run at once, each on its node.
type Rooms struct {
	Pods     []*v1.Pod // that are to go; none: nothing is to be done now
	Lacking  []int     // the pods, by their place in what was asked, whose nodes have no room for them whoever may go
	Breaches int       // how many others would have to go for these whom disruption budgets do not let go
}

// stage is the nodes of a snapshot as they would be had some pods come and others gone.
type stage struct {
	chain    *chain
	nodes    map[string]fwk.NodeInfo // that differ from the snapshot
	changes  []change
	reserved []cycle // of pods that come, their nodes set
}

type change struct {
	pod   fwk.PodInfo
	node  string
	comes bool
}

// MakeRoomTogether looks for whom to evict, as MakeRoom does, so that pods run at once, each on the node in its place: for each there are those that come before it, with what
// they reserve there (volumes, devices of other drivers), and gone is who goes for these. Who goes is of lower priority than all of them. Pods that still end on a node that one is
// nominated for count as gone for it, and are not among those that are to go. It takes long, as Nodes does.
func (f *Filters) MakeRoomTogether(ctx context.Context, pods []*v1.Pod, nodes []string) (rooms Rooms, err error) {
	may := f.mayGo(corev1.PodPriority(slices.MinFunc(pods, func(a, b *v1.Pod) int { return cmp.Compare(corev1.PodPriority(a), corev1.PodPriority(b)) })))
	f.survey.mu.Lock()
	defer f.survey.mu.Unlock()
	if slices.ContainsFunc(pods, f.reserves) {
		f.judge.mu.Lock() // nothing is reserved for another pod meanwhile, and nobody is refused for what is only tried
		defer f.judge.mu.Unlock()
	}
	f.preemption.IsEligiblePod = func(_ fwk.NodeInfo, victim fwk.PodInfo, _ *v1.Pod) bool {
		return may(victim.GetPod()) && !slices.ContainsFunc(pods, func(p *v1.Pod) bool { return p.UID == victim.GetPod().UID })
	}
	if err := f.cache.UpdateSnapshot(klog.FromContext(ctx), f.survey.snapshot); err != nil {
		return rooms, asked(pods[0], "all nodes", err)
	}
	budgets, err := f.preemption.Evaluator.PdbLister.List(labels.Everything())
	if err != nil {
		return rooms, asked(pods[0], "all nodes", err)
	}
	now := &stage{chain: f.survey, nodes: map[string]fwk.NodeInfo{}}
	defer now.giveBack(ctx)
	for i, pod := range pods {
		found, err := f.roomIn(ctx, now, f.claims.strip(pod), nodes[i], budgets)
		if err == nil && found.fits && found.breaches == 0 && f.reserves(pod) {
			found.fits = now.reserve(ctx, found.cycle, nodes[i])
		}
		if err == nil && found.fits && found.breaches == 0 {
			err = now.take(found, nodes[i])
		}
		switch {
		case err != nil:
			return rooms, asked(pod, "node "+nodes[i], err)
		case !found.fits || found.breaches > 0:
			rooms.Lacking, rooms.Breaches = append(rooms.Lacking, i), rooms.Breaches+found.breaches
		default:
			rooms.Pods, budgets = append(rooms.Pods, found.victims...), spent(budgets, found.victims)
		}
	}
	return rooms, nil
}

// reserves says whether a pod reserves more of a node than what it requests there, which can be tried and taken back.
func (f *Filters) reserves(pod *v1.Pod) bool {
	some := slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil })
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue
		}
		claim, err := f.claims.made.ResourceClaims(pod.Namespace).Get(*name)
		if err != nil || f.claims.mine(claim) {
			continue
		}
		if some = true; resourceclaim.IsReservedForPod(pod, claim, false) {
			return false // to take it back would be to write that it is not
		}
	}
	return some
}

// there is what a pod finds on a node of a stage.
type there struct {
	cycle    cycle
	victims  []*v1.Pod // who has to go for it
	breaches int       // of disruption budgets
	fits     bool
}

// roomIn is who has to go for a pod from one node of a stage, and whether it then fits there.
func (f *Filters) roomIn(ctx context.Context, now *stage, pod *v1.Pod, node string, budgets []*policyv1.PodDisruptionBudget) (found there, err error) {
	info, err := now.at(node)
	if err != nil {
		return found, nil //nolint:nilerr // it has gone
	}
	lower := false
	for _, other := range slices.Clone(info.GetPods()) {
		if !f.preemption.IsEligiblePod(info, other, pod) {
			continue
		}
		if other.GetPod().DeletionTimestamp == nil || pod.Status.NominatedNodeName != node {
			lower = true
		} else if err := now.apply(other.GetPod(), node, false); err != nil {
			return found, err
		}
	}
	found.cycle, err = now.prepare(ctx, pod)
	if err != nil || found.cycle.refused != nil {
		return found, err
	}
	status := f.survey.one(ctx, found.cycle, info)
	if err := failure(status); err != nil {
		return found, err
	}
	if status.IsSuccess() || !lower || status.Code() != fwk.Unschedulable { // no eviction changes anything else
		found.fits = status.IsSuccess()
		return found, nil
	}
	found.victims, found.breaches, status = f.preemption.SelectVictimsOnNode(ctx, found.cycle.state, pod, info.Snapshot(), besideEnding(budgets, []fwk.NodeInfo{info}))
	found.fits = status.IsSuccess()
	return found, failure(status)
}

// take has a pod come to a node, and those go who have to for it.
func (s *stage) take(found there, node string) error {
	for _, victim := range found.victims {
		if err := s.apply(victim, node, false); err != nil {
			return err
		}
	}
	return s.apply(found.cycle.pod, node, true)
}

// reserve has what a pod needs of a node, beside what it requests, be nobody else's until giveBack; false: it cannot be.
func (s *stage) reserve(ctx context.Context, c cycle, node string) bool {
	c.pod = boundTo(c.pod, node)
	s.reserved = append(s.reserved, c)
	return s.chain.framework.RunReservePluginsReserve(ctx, c.state, c.pod, node).IsSuccess()
}

// giveBack ends what was reserved.
func (s *stage) giveBack(ctx context.Context) {
	for _, c := range slices.Backward(s.reserved) {
		s.chain.framework.RunReservePluginsUnreserve(withoutWrites(ctx), c.state, c.pod, c.pod.Spec.NodeName)
	}
}

// at is a node as it is in a stage.
func (s *stage) at(node string) (fwk.NodeInfo, error) {
	if info := s.nodes[node]; info != nil {
		return info, nil
	}
	info, err := s.chain.snapshot.Get(node)
	if err == nil {
		info = info.Snapshot()
		s.nodes[node] = info
	}
	return info, err
}

// apply has a pod come to a node, or go from it.
func (s *stage) apply(pod *v1.Pod, node string, comes bool) error {
	info, err := s.at(node)
	if err != nil {
		return err
	}
	if comes {
		pod = boundTo(pod, node)
	}
	about, err := framework.NewPodInfo(pod)
	switch {
	case err != nil:
		return err
	case comes:
		info.AddPodInfo(about)
	default:
		if err := info.RemovePod(klog.Background(), pod); err != nil {
			return err
		}
	}
	s.changes = append(s.changes, change{about, node, comes})
	return nil
}

// prepare starts a cycle for a pod that knows of what has changed.
func (s *stage) prepare(ctx context.Context, pod *v1.Pod) (cycle, error) {
	cy, err := s.chain.prepare(ctx, pod)
	if err != nil || cy.refused != nil {
		return cy, err
	}
	for _, c := range s.changes {
		tell := s.chain.framework.RunPreFilterExtensionRemovePod
		if c.comes {
			tell = s.chain.framework.RunPreFilterExtensionAddPod
		}
		if status := tell(ctx, cy.state, pod, c.pod, s.nodes[c.node]); !status.IsSuccess() {
			return cy, status.AsError()
		}
	}
	return cy, nil
}

// spent are disruption budgets once pods have gone.
func spent(budgets []*policyv1.PodDisruptionBudget, victims []*v1.Pod) []*policyv1.PodDisruptionBudget {
	budgets = slices.Clone(budgets)
	for _, victim := range victims {
		for i, budget := range budgets {
			selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
			_, counted := budget.Status.DisruptedPods[victim.Name]
			if err != nil || counted || victim.DeletionTimestamp != nil || budget.Namespace != victim.Namespace || selector.Empty() || !selector.Matches(labels.Set(victim.Labels)) {
				continue
			}
			less := *budget
			less.Status.DisruptionsAllowed--
			budgets[i] = &less
		}
	}
	return budgets
}
