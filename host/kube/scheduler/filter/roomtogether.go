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
	chain   *chain
	nodes   map[string]fwk.NodeInfo // that differ from the snapshot
	changes []change
}

type change struct {
	pod   fwk.PodInfo
	node  string
	comes bool
}

// MakeRoomTogether looks for whom to evict, as MakeRoom does, so that pods run at once, each on the node in its place: for each there are those that come before it, and gone is
// who goes for these. Who goes is of lower priority than all of them. Pods that still end on a node that one is nominated for count as gone
// for it, and are not among those that are to go. It takes long, as Nodes does.
func (f *Filters) MakeRoomTogether(ctx context.Context, pods []*v1.Pod, nodes []string) (rooms Rooms, err error) {
	may := f.mayGo(corev1.PodPriority(slices.MinFunc(pods, func(a, b *v1.Pod) int { return cmp.Compare(corev1.PodPriority(a), corev1.PodPriority(b)) })))
	f.survey.mu.Lock()
	defer f.survey.mu.Unlock()
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
	for i, pod := range pods {
		bare := f.claims.strip(pod)
		victims, breaches, fits, err := f.roomIn(ctx, now, bare, nodes[i], budgets)
		if err != nil {
			return rooms, asked(pod, "node "+nodes[i], err)
		}
		if !fits || breaches > 0 {
			rooms.Lacking, rooms.Breaches = append(rooms.Lacking, i), rooms.Breaches+breaches
			continue
		}
		for _, victim := range victims {
			if err := now.apply(victim, nodes[i], false); err != nil {
				return rooms, asked(pod, "node "+nodes[i], err)
			}
		}
		if err := now.apply(bare, nodes[i], true); err != nil {
			return rooms, asked(pod, "node "+nodes[i], err)
		}
		rooms.Pods, budgets = append(rooms.Pods, victims...), spent(budgets, victims)
	}
	return rooms, nil
}

// roomIn is who has to go for a pod from one node of a stage, and whether it then fits there.
func (f *Filters) roomIn(ctx context.Context, now *stage, pod *v1.Pod, node string, budgets []*policyv1.PodDisruptionBudget) (victims []*v1.Pod, breaches int, fits bool, err error) {
	info, err := now.at(node)
	if err != nil {
		return nil, 0, false, nil //nolint:nilerr // it has gone
	}
	lower := false
	for _, other := range slices.Clone(info.GetPods()) {
		if !f.preemption.IsEligiblePod(info, other, pod) {
			continue
		}
		if other.GetPod().DeletionTimestamp == nil || pod.Status.NominatedNodeName != node {
			lower = true
		} else if err := now.apply(other.GetPod(), node, false); err != nil {
			return nil, 0, false, err
		}
	}
	cycle, err := now.prepare(ctx, pod)
	if err != nil || cycle.refused != nil {
		return nil, 0, false, err
	}
	status := f.survey.one(ctx, cycle, info)
	if err := failure(status); err != nil {
		return nil, 0, false, err
	}
	if status.IsSuccess() || !lower || status.Code() != fwk.Unschedulable { // no eviction changes anything else
		return nil, 0, status.IsSuccess(), nil
	}
	victims, breaches, status = f.preemption.SelectVictimsOnNode(ctx, cycle.state, pod, info.Snapshot(), budgets)
	return victims, breaches, status.IsSuccess(), failure(status)
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
			if err != nil || counted || budget.Namespace != victim.Namespace || selector.Empty() || !selector.Matches(labels.Set(victim.Labels)) {
				continue
			}
			less := *budget
			less.Status.DisruptionsAllowed--
			budgets[i] = &less
		}
	}
	return budgets
}
