package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/aliquot-dev/aliquot/engine"
)

// maxRanks is into how many ranks, beside the last, the nodes of a class are put that are preferred to others: the engine tries one after the other.
const maxRanks = 3

// likes is which of the nodes that a class may use it would rather use.
type likes struct {
	wished   map[string]int64 // by node, as Feasible has it
	images   map[string]int64
	rank     map[string]int // by node: that the engine was told; more is better, and 0 that of those that nothing is said of
	ranks    int            // that the engine was told
	doubted  bool           // nodes have changed since it was asked for, in what it may prefer
	withheld bool           // so nobody is placed in it until it is known anew
}

// rank tells the engine which of the nodes that a class may use it prefers, beside the class's own delta: by a class for each rank, in which the
// nodes of that rank and of the better ones are, and which prefers the next. It returns the first of them, empty: there is none, and whether that
// is another than before. Nodes without devices are in none: they serve nobody that the engine places.
func (s *Scheduler) rank(c *class, wished map[string]int64, answer map[string]string) (preferred string, changed bool) {
	of := map[string]int64{}
	var levels []int64
	for name, much := range wished {
		if n := s.nodes[name]; answer[name] == "" && n != nil && len(n.offered) > 0 {
			of[name] = much
			levels = append(levels, much)
		}
	}
	slices.Sort(levels)
	if levels = slices.Compact(levels); len(levels) > 0 {
		levels = levels[max(1, len(levels)-maxRanks):]
	}
	now := map[string]int{}
	for name, much := range of {
		at, is := slices.BinarySearch(levels, much)
		if is {
			at++
		}
		now[name] = at
	}
	before, had := c.likes.rank, c.likes.ranks
	c.likes.rank, c.likes.ranks = now, len(levels)
	for rank := max(had, len(levels)); rank > 0; rank-- {
		delta := engine.Feasibility{Class: c.preferred(rank, rank), Prefer: c.preferred(rank+1, len(levels))}
		for name, at := range now {
			if at >= rank && before[name] < rank {
				delta.Allowed = append(delta.Allowed, name)
			}
		}
		for name, at := range before {
			if at >= rank && now[name] < rank {
				delta.Barred = append(delta.Barred, engine.NodeReason{Node: name, Code: "others are preferred"})
			}
		}
		if len(delta.Allowed) == 0 && len(delta.Barred) == 0 && delta.Prefer == c.preferred(rank+1, had) {
			continue
		}
		slices.Sort(delta.Allowed)
		slices.SortFunc(delta.Barred, func(a, b engine.NodeReason) int { return strings.Compare(a.Node, b.Node) })
		delta.At = s.at()
		s.step(delta)
	}
	return c.preferred(1, len(levels)), (had > 0) != (len(levels) > 0)
}

// preferred is the engine's name for the class of those nodes that are of a rank or of a better one; empty: there are not so many ranks.
func (c *class) preferred(rank, ranks int) string {
	if rank > ranks {
		return ""
	}
	return fmt.Sprintf("%s\npreferred %d", c.key, rank)
}

// doubt notes which classes may prefer other nodes now that one has come or changed: what they prefer is asked for anew before the next pod is placed
// in it. Where some wait it is asked for anyway.
func (s *Scheduler) doubt(before, now *corev1.Node) {
	relabelled := before == nil || !equality.Semantic.DeepEqual(before.Labels, now.Labels)
	retainted := !equality.Semantic.DeepEqual(avoided(before), avoided(now))
	for _, c := range s.classes {
		affinity := c.pod.Spec.Affinity
		byLabel := affinity != nil && affinity.NodeAffinity != nil && len(affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0
		if c.answer != nil && (retainted || relabelled && byLabel) {
			c.likes.doubted = true
		}
	}
}

// avoided are a node's taints that keep off those who have another.
func avoided(n *corev1.Node) (all []corev1.Taint) {
	if n == nil {
		return nil
	}
	for _, taint := range n.Spec.Taints {
		if taint.Effect == corev1.TaintEffectPreferNoSchedule {
			all = append(all, taint)
		}
	}
	return all
}

// withhold bars a class from all nodes until it is known anew which it prefers.
func (s *Scheduler) withhold(c *class) {
	const why = "which nodes are preferred is being looked up"
	c.likes.doubted, c.likes.withheld = false, true
	delta := engine.Feasibility{Class: c.key, Prefer: c.preferred(1, c.likes.ranks)}
	for name, before := range c.answer {
		if before == "" {
			c.answer[name] = why
			delta.Barred = append(delta.Barred, engine.NodeReason{Node: name, Code: why})
		}
	}
	if c.stale = true; len(delta.Barred) == 0 {
		return
	}
	slices.SortFunc(delta.Barred, func(a, b engine.NodeReason) int { return strings.Compare(a.Node, b.Node) })
	delta.At = s.at()
	s.step(delta)
}

// byRoom are the nodes that a class may use, in the order in which a pod without devices is to try them: those that it would rather use first; of
// these those without devices, which others need; then those that have the most CPU left, where one with all its images counts as if its whole CPU
// were left beside that.
func (s *Scheduler) byRoom(c *class) []*node {
	var all []*node
	room := map[*node]int64{}
	for name, why := range c.answer {
		if n := s.nodes[name]; why == "" && n != nil && n.object != nil {
			all = append(all, n)
			room[n] = n.left(corev1.ResourceCPU) + c.likes.images[name]*n.object.Status.Allocatable.Cpu().MilliValue()/100
		}
	}
	slices.SortFunc(all, func(a, b *node) int {
		if x, y := len(a.offered) > 0, len(b.offered) > 0; x != y && c.likes.wished[a.name] == c.likes.wished[b.name] {
			if x {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(c.likes.wished[b.name], c.likes.wished[a.name]), cmp.Compare(room[b], room[a]), strings.Compare(a.name, b.name))
	})
	return all
}

// left is what a node has of a resource beside what pods requested that the engine does not know of.
func (n *node) left(name corev1.ResourceName) int64 {
	for _, r := range n.resources(nil) {
		if r.Name == string(name) {
			return r.Amount
		}
	}
	return 0
}
