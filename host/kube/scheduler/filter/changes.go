package filter

import (
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"
)

// changes notes what happened that may change judgements.
type changes struct {
	mu        sync.Mutex
	count     uint64         // of everything noted, ever
	since     noted          // since the last take
	repelling map[string]int // by node: the pods there that keep others away beyond it
}

// noted is what happened between two looks.
type noted struct {
	nodes   map[string]struct{} // to be judged anew
	volumes bool                // pods with volumes are to be judged anew on every node
	all     bool                // every pod is, on every node
}

func newChanges() *changes {
	return &changes{since: noted{nodes: map[string]struct{}{}}, repelling: map[string]int{}}
}

// now is a number that grows with every change.
func (c *changes) now() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// node notes that a node has other properties or other pods; no node (empty) is none.
func (c *changes) node(name string) {
	if name != "" {
		c.note(func(n *noted) { n.nodes[name] = struct{}{} })
	}
}

// relabelled notes that a node came, went, or has other labels. Pods there that keep others away do so in another topology domain now.
func (c *changes) relabelled(name string) {
	c.note(func(n *noted) {
		n.nodes[name] = struct{}{}
		n.all = n.all || c.repelling[name] > 0
	})
}

// volumes notes that something changed that says where volumes can be used.
func (c *changes) volumes() { c.note(func(n *noted) { n.volumes = true }) }

// all notes that any pod may fit elsewhere than it did.
func (c *changes) all() { c.note(func(n *noted) { n.all = true }) }

// pod notes that a pod came to its node (old is nil), changed there, or left it (pod is nil). A pod's required anti-affinity reaches
// over its topology domain, and a volume claim over all nodes (ReadWriteOncePod).
func (c *changes) pod(old, pod *v1.Pod) {
	c.note(func(n *noted) {
		for count, p := range map[int]*v1.Pod{-1: old, 1: pod} {
			if p == nil {
				continue
			}
			node := p.Spec.NodeName
			n.nodes[node] = struct{}{}
			n.volumes = n.volumes || usesClaims(p)
			if repels(p) {
				n.all = true
				if c.repelling[node] += count; c.repelling[node] == 0 {
					delete(c.repelling, node)
				}
			}
		}
	})
}

func (c *changes) note(what func(*noted)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	what(&c.since)
}

// take gives what was noted since the last take.
func (c *changes) take() noted {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.since
	c.since = noted{nodes: map[string]struct{}{}}
	return taken
}

// back notes again what was taken and could not be used.
func (c *changes) back(taken noted) {
	c.note(func(n *noted) {
		maps.Copy(n.nodes, taken.nodes)
		n.volumes = n.volumes || taken.volumes
		n.all = n.all || taken.all
	})
}

// repels says whether a pod keeps others away beyond its node.
func repels(pod *v1.Pod) bool {
	affinity := pod.Spec.Affinity
	return affinity != nil && affinity.PodAntiAffinity != nil && len(affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0
}

// usesClaims says whether a pod has volumes by claim.
func usesClaims(pod *v1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].PersistentVolumeClaim != nil || pod.Spec.Volumes[i].Ephemeral != nil {
			return true
		}
	}
	return false
}
