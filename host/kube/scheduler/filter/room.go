package filter

import (
	"context"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// Room is a node on which a pod would run if others of lower priority did not.
type Room struct {
	Node     string    // empty: there is none
	Pods     []*v1.Pod // that are to go, the most important first; none: nothing is to be done now
	Breaches int       // how many of them disruption budgets do not let go, which no other node has fewer of
}

// newPreemption makes upstream's own choice of whom to evict, for the nodes and pods that a chain sees. It evicts nobody.
func newPreemption(ctx context.Context, c *chain) (*defaultpreemption.DefaultPreemption, error) {
	configuration, err := latest.Default()
	if err != nil {
		return nil, fmt.Errorf("upstream's default configuration: %w", err)
	}
	for _, p := range configuration.Profiles[0].PluginConfig {
		if args, is := p.Args.(*config.DefaultPreemptionArgs); is {
			return defaultpreemption.New(ctx, args, c.framework, feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
		}
	}
	return nil, fmt.Errorf("upstream's default configuration has no %s", defaultpreemption.Name)
}

// MakeRoom looks for a node on which a pod that fits nowhere would fit if pods of lower priority went, as upstream's scheduler chooses it: those
// whose budgets are kept first, then those of the least priority, then the fewest. Only are the nodes that would do; nil: all. Pods that
// have devices of ours, say that they are not preemptible, or are being bound, stay. There is nothing to be done where the pod is never to evict others, where they still end on the
// node that it is nominated for, or where it fits by now. It takes long, as Nodes does.
func (f *Filters) MakeRoom(ctx context.Context, pod *v1.Pod, only []string) (Room, error) {
	if pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == v1.PreemptNever {
		return Room{Node: pod.Status.NominatedNodeName}, nil
	}
	may := f.mayGo(corev1.PodPriority(pod))
	bare := f.claims.strip(pod)
	f.survey.mu.Lock()
	defer f.survey.mu.Unlock()
	f.preemption.IsEligiblePod = func(_ fwk.NodeInfo, victim fwk.PodInfo, _ *v1.Pod) bool { return may(victim.GetPod()) }
	cycle, err := f.survey.begin(ctx, f.cache, bare)
	if err != nil || cycle.refused != nil {
		return Room{}, err
	}
	infos, err := f.survey.snapshot.List()
	if err != nil {
		return Room{}, asked(pod, "all nodes", err)
	}
	var candidates []fwk.NodeInfo
	for _, info := range infos {
		if only != nil && !slices.Contains(only, info.Node().Name) {
			continue
		}
		lower, leaving := false, false
		for _, other := range info.GetPods() {
			is := may(other.GetPod())
			lower, leaving = lower || is, leaving || is && other.GetPod().DeletionTimestamp != nil
		}
		if leaving && info.Node().Name == pod.Status.NominatedNodeName {
			return Room{Node: pod.Status.NominatedNodeName}, nil
		}
		switch status := f.survey.one(ctx, cycle, info); {
		case status.IsSuccess():
			return Room{Node: info.Node().Name}, nil
		case lower && status.Code() == fwk.Unschedulable: // and not for what no eviction changes
			candidates = append(candidates, info)
		}
	}
	if len(candidates) == 0 {
		return Room{}, nil
	}
	budgets, err := f.preemption.Evaluator.PdbLister.List(labels.Everything())
	if err != nil {
		return Room{}, asked(pod, "all nodes", err)
	}
	_, enough := f.preemption.GetOffsetAndNumCandidates(int32(len(candidates)))
	found, _, err := f.preemption.Evaluator.DryRunPreemption(ctx, cycle.state, bare, candidates, besideEnding(budgets, candidates), 0, enough)
	if err != nil && len(found) == 0 {
		return Room{}, asked(pod, "all nodes", err)
	}
	best := f.preemption.Evaluator.SelectCandidate(ctx, found)
	if best == nil {
		return Room{}, nil
	}
	return Room{Node: best.Name(), Pods: best.Victims().Pods, Breaches: int(best.Victims().NumPDBViolations)}, nil
}

// besideEnding are disruption budgets for which those pods of some nodes are no disruptions that end anyway.
func besideEnding(budgets []*policyv1.PodDisruptionBudget, infos []fwk.NodeInfo) []*policyv1.PodDisruptionBudget {
	ends := map[string][]string{} // by namespace
	for _, info := range infos {
		for _, other := range info.GetPods() {
			if pod := other.GetPod(); pod.DeletionTimestamp != nil {
				ends[pod.Namespace] = append(ends[pod.Namespace], pod.Name)
			}
		}
	}
	budgets = slices.Clone(budgets)
	for i, budget := range budgets {
		names := ends[budget.Namespace]
		if len(names) == 0 {
			continue
		}
		same := *budget
		same.Status.DisruptedPods = map[string]metav1.Time{}
		maps.Copy(same.Status.DisruptedPods, budget.Status.DisruptedPods)
		for _, name := range names {
			same.Status.DisruptedPods[name] = metav1.Time{}
		}
		budgets[i] = &same
	}
	return budgets
}

// mayGo tells the pods that may be evicted for one of a priority.
func (f *Filters) mayGo(priority int32) func(*v1.Pod) bool {
	binding := f.binding()
	return func(victim *v1.Pod) bool {
		if corev1.PodPriority(victim) >= priority || binding[victim.UID] {
			return false
		}
		if goes, err := annotation.IsPreemptible(victim.Annotations); err != nil || !goes {
			return false
		}
		return !f.claims.holdsOurs(victim)
	}
}

// binding are the pods that are assumed on a node and not seen there yet.
func (f *Filters) binding() map[types.UID]bool {
	f.judge.mu.Lock()
	defer f.judge.mu.Unlock()
	all := make(map[types.UID]bool, len(f.assumed))
	for uid := range f.assumed {
		all[uid] = true
	}
	return all
}
