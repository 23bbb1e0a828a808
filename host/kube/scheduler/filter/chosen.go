package filter

import (
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
)

// chosen are the keys of labels by which affinities and anti-affinities of pods choose others, of all pods that were seen: by its other labels no pod
// is kept off a node, nor rather there, for what a pod says of itself gives it no class. They are few, and are not forgotten.
type chosen struct {
	mu    sync.RWMutex
	keys  map[string]bool
	times atomic.Uint64 // that there were more
}

// learn adds those of a pod, before it counts on a node.
func (c *chosen) learn(pod *v1.Pod) {
	c.mu.RLock()
	more := slices.DeleteFunc(chosenBy(pod), func(key string) bool { return c.keys[key] })
	c.mu.RUnlock()
	if len(more) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys == nil {
		c.keys = map[string]bool{}
	}
	for _, key := range more {
		c.keys[key] = true
	}
	c.times.Add(1)
}

// of are those of some labels that count.
func (c *chosen) of(labels map[string]string) map[string]string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	some := map[string]string{}
	for key, value := range labels {
		if c.keys[key] {
			some[key] = value
		}
	}
	return some
}

// Distinctions grows whenever pods that were of one class may be of several from then on, as a pod has come that chooses others by a label that was not
// looked at before.
func (f *Filters) Distinctions() uint64 { return f.chosen.times.Load() }

// chosenBy are the keys of labels by which a pod's affinities choose others. Those of matchLabelKeys are in the selector, too, in clusters that know them.
func chosenBy(pod *v1.Pod) (keys []string) {
	for _, t := range terms(pod.Spec.Affinity) {
		keys = append(keys, slices.Concat(t.MatchLabelKeys, t.MismatchLabelKeys)...)
		if t.LabelSelector == nil {
			continue
		}
		for key := range t.LabelSelector.MatchLabels {
			keys = append(keys, key)
		}
		for _, e := range t.LabelSelector.MatchExpressions {
			keys = append(keys, e.Key)
		}
	}
	return keys
}

// terms are all of an affinity that are about pods.
func terms(affinity *v1.Affinity) (all []v1.PodAffinityTerm) {
	if affinity == nil {
		return nil
	}
	var weighted []v1.WeightedPodAffinityTerm
	if a := affinity.PodAffinity; a != nil {
		all, weighted = append(all, a.RequiredDuringSchedulingIgnoredDuringExecution...), append(weighted, a.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if a := affinity.PodAntiAffinity; a != nil {
		all, weighted = append(all, a.RequiredDuringSchedulingIgnoredDuringExecution...), append(weighted, a.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	for _, w := range weighted {
		all = append(all, w.PodAffinityTerm)
	}
	return all
}
