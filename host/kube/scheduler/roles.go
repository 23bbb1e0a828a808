package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// role is pods that start together and ask for the same.
type role struct {
	members []*pod
	asks    []*ask
	class   *class // where they may run
}

// alone is a role of one pod.
func alone(p *pod, a *ask) []*role { return []*role{{members: []*pod{p}, asks: []*ask{a}}} }

// rolesOf are the pods of a gang by what they ask for, those of which there are most first: workers before their launcher. Pods that may run on
// other nodes are apart, too, as far as the engine takes so many roles; but not for their labels alone, which are numbers where an owner counts its
// pods: where those matter, the chosen node has the last word.
func (s *Scheduler) rolesOf(members []*pod, asks []*ask) ([]*role, error) {
	nodes := make([]string, len(members))
	for i, p := range members {
		unlabelled := *p.object
		unlabelled.Labels, unlabelled.Status.NominatedNodeName = nil, ""
		nodes[i] = s.config.Filters.Class(&unlabelled)
	}
	fine := func(a, b int) bool {
		return asks[a].alike(asks[b]) && nodes[a] == nodes[b] && (nodes[a] != "" || sameNodesWanted(&members[a].object.Spec, &members[b].object.Spec))
	}
	coarse := func(a, b int) bool { return asks[a].alike(asks[b]) }
	groups := grouped(len(members), fine)
	if len(groups) > engine.MaxRoles+1 {
		groups = grouped(len(members), coarse)
	}
	if len(groups) > engine.MaxRoles+1 {
		return nil, fmt.Errorf("the pods of its gang ask for %d different shares, and those of one gang may ask for %d; have more of them ask for the same", len(groups), engine.MaxRoles+1)
	}
	roles := make([]*role, len(groups))
	for i, group := range groups {
		roles[i] = &role{}
		for _, at := range group {
			roles[i].members, roles[i].asks = append(roles[i].members, members[at]), append(roles[i].asks, asks[at])
		}
	}
	return roles, nil
}

// sameNodesWanted says whether two pods, of which the filters know no class, say the same of where they may run.
func sameNodesWanted(a, b *corev1.PodSpec) bool {
	same := equality.Semantic.DeepEqual
	return same(a.NodeSelector, b.NodeSelector) && same(a.Affinity, b.Affinity) && same(a.Tolerations, b.Tolerations) &&
		same(a.TopologySpreadConstraints, b.TopologySpreadConstraints)
}

// grouped are the numbers below n in groups of such as are alike, the largest first and else the one with the least number.
func grouped(n int, alike func(a, b int) bool) (groups [][]int) {
	for i := range n {
		at := slices.IndexFunc(groups, func(group []int) bool { return alike(group[0], i) })
		if at < 0 {
			groups = append(groups, nil)
			at = len(groups) - 1
		}
		groups[at] = append(groups[at], i)
	}
	slices.SortStableFunc(groups, func(a, b []int) int { return cmp.Compare(len(b), len(a)) })
	return groups
}

// alike says whether two pods ask for the same.
func (a *ask) alike(b *ask) bool {
	return a.share == b.share && len(a.devices) == len(b.devices) && slices.Equal(a.selectors, b.selectors)
}

// together is why two pods cannot be of one gang; nil: they can.
func (a *ask) together(b *ask, name string) error {
	switch {
	case !a.holds() || !b.holds(): // who has access as an administrator alone is in no queue, and nobody's workload
	case a.class != b.class:
		return fmt.Errorf("its work is of class %s and that of pod %s of its gang of class %s; give them the same", a.class, name, b.class)
	case a.queue != b.queue:
		return fmt.Errorf("it is of queue %s and pod %s of its gang of queue %s; give them the same", a.queue, name, b.queue)
	case a.preemptible != b.preemptible:
		return fmt.Errorf("of it and of pod %s of its gang one may be evicted for others and one may not; say the same of both", name)
	case a.same != b.same || a.prefer != b.prefer:
		return fmt.Errorf("its annotations %s and %s are %q and %q, and those of pod %s of its gang %q and %q; give them the same",
			annotation.SameTopology, annotation.PreferTopology, a.same, a.prefer, name, b.same, b.prefer)
	}
	return nil
}

// workloadOf is what the engine is told of the tasks of roles.
func workloadOf(roles []*role) engine.Workload {
	first := roles[0]
	w := engine.Workload{
		Queue: first.asks[0].queue, Class: first.asks[0].class, Preemptible: first.asks[0].preemptible,
		Tasks: len(first.members), Devices: len(first.asks[0].devices), Share: first.asks[0].share, Resources: most(first.members), Feasibility: first.class.key,
		Same: first.asks[0].same, Prefer: first.asks[0].prefer,
	}
	for _, r := range roles {
		for _, a := range r.asks {
			w.Restart = max(w.Restart, engine.Time(a.restart.Microseconds()))
		}
	}
	for _, r := range roles[1:] {
		w.Roles = append(w.Roles, engine.Role{
			Name: r.members[0].object.Name, Tasks: len(r.members), Devices: len(r.asks[0].devices), Share: r.asks[0].share, Resources: most(r.members), Feasibility: r.class.key,
		})
	}
	return w
}

// adoptRoles tells of tasks that run already by what they hold, and brings them in order: those of a role one after another.
func adoptRoles(w *engine.Workload, tasks []*task, held [][]engine.Grant) []int {
	groups := grouped(len(tasks), func(a, b int) bool { return len(held[a]) == len(held[b]) && shareHeld(held[a]) == shareHeld(held[b]) })
	if len(groups) > engine.MaxRoles+1 { // nobody asked for them as one
		groups = [][]int{slices.Concat(groups...)}
	}
	for i, group := range groups {
		var members []*pod
		for _, at := range group {
			if p := tasks[at].pod; p != nil {
				members = append(members, p)
			}
		}
		one := engine.Role{Name: fmt.Sprint(i), Tasks: len(group), Devices: len(held[group[0]]), Share: shareHeld(held[group[0]])}
		if len(members) > 0 {
			one.Name, one.Resources = members[0].object.Name, most(members)
		}
		for _, at := range group {
			tasks[at].requests = one.Resources
		}
		if i > 0 {
			w.Roles = append(w.Roles, one)
			continue
		}
		w.Tasks, w.Devices, w.Share, w.Resources = one.Tasks, one.Devices, one.Share, one.Resources
	}
	return slices.Concat(groups...)
}

// shareHeld is the share of each device that grants are of.
func shareHeld(held []engine.Grant) api.Share {
	first := held[0]
	return api.Share{Compute: first.Compute, Memory: api.Memory{Floor: api.Amount{Bytes: first.Floor}, Ceiling: api.Amount{Bytes: first.Ceiling}}}
}
