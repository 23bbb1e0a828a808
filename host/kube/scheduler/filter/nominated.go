package filter

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// nominated are the pods that wait and for which a scheduler made room on a node (status.nominatedNodeName). Upstream's filters count
// such a pod on its node against pods of the same or a lower priority.
type nominated struct {
	mu    sync.RWMutex
	nodes map[string]map[types.UID]fwk.PodInfo
	where map[types.UID]string
	first map[types.UID]types.UID // of the pods that one starts together with: these have the same
}

func newNominated() *nominated {
	return &nominated{nodes: map[string]map[types.UID]fwk.PodInfo{}, where: map[types.UID]string{}, first: map[types.UID]types.UID{}}
}

// toOne are the nominated pods as one pod sees them.
type toOne struct {
	*nominated
	uid types.UID
}

var _ fwk.PodNominator = (*toOne)(nil)

// NominatedPodsForNode are the pods that count on a node though they are not there yet; the order is any. Those that start together with the one that
// looks do not: each of them may have the room of any other.
func (o *toOne) NominatedPodsForNode(node string) []fwk.PodInfo {
	o.mu.RLock()
	defer o.mu.RUnlock()
	mine := o.first[o.uid]
	pods := make([]fwk.PodInfo, 0, len(o.nodes[node]))
	for uid, info := range o.nodes[node] {
		if mine == "" || o.first[uid] != mine {
			pods = append(pods, info)
		}
	}
	return pods
}

// Together says that pods start together. It is forgotten of each when it is bound or gone.
func (f *Filters) Together(pods []*v1.Pod) {
	f.nominated.mu.Lock()
	defer f.nominated.mu.Unlock()
	for _, pod := range pods {
		if f.waiting(pod) != nil { // who does not wait any more after this is taken out after it, too
			f.nominated.first[pod.UID] = pods[0].UID
		}
	}
	f.changed.note()
}

// renominate takes a pod in that was assumed, as it is now: what it is nominated for may have changed meanwhile.
func (f *Filters) renominate(pod *v1.Pod) {
	f.nominated.mu.Lock()
	defer f.nominated.mu.Unlock()
	if now := f.waiting(pod); now != nil {
		f.nominated.put(now)
	}
}

// waiting is a pod as it was seen last; nil: it waits for no node any more.
func (f *Filters) waiting(pod *v1.Pod) *v1.Pod {
	now, err := f.pods.Pods(pod.Namespace).Get(pod.Name)
	if err != nil || now.UID != pod.UID || now.Spec.NodeName != "" || !alive(now) {
		return nil
	}
	return now
}

// set takes a pod in as it is now: on its nominated node, or on none.
func (n *nominated) set(pod *v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.put(pod)
}

// put is set under the lock.
func (n *nominated) put(pod *v1.Pod) {
	n.drop(pod.UID)
	node := pod.Status.NominatedNodeName
	if node == "" || pod.Spec.NodeName != "" {
		return
	}
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return // its affinity terms cannot be read: upstream counts no such pod either
	}
	if n.nodes[node] == nil {
		n.nodes[node] = map[types.UID]fwk.PodInfo{}
	}
	n.nodes[node][pod.UID] = info
	n.where[pod.UID] = node
}

// remove takes a pod out.
func (n *nominated) remove(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drop(uid)
	delete(n.first, uid)
}

// leave takes a pod off its node, as it is assumed on one. With whom it starts stays known: it may not be assumed any more.
func (n *nominated) leave(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drop(uid)
}

// drop is leave under the lock.
func (n *nominated) drop(uid types.UID) {
	node, is := n.where[uid]
	if !is {
		return
	}
	delete(n.where, uid)
	delete(n.nodes[node], uid)
	if len(n.nodes[node]) == 0 {
		delete(n.nodes, node)
	}
}

// AddNominatedPod, DeleteNominatedPodIfExists and UpdateNominatedPod are upstream's words for set and remove.
func (n *nominated) AddNominatedPod(_ klog.Logger, pod fwk.PodInfo, _ *fwk.NominatingInfo) {
	n.set(pod.GetPod())
}

// DeleteNominatedPodIfExists takes a pod out.
func (n *nominated) DeleteNominatedPodIfExists(pod *v1.Pod) { n.remove(pod.UID) }

// UpdateNominatedPod takes a pod in as it is now.
func (n *nominated) UpdateNominatedPod(_ klog.Logger, _ *v1.Pod, pod fwk.PodInfo) {
	n.set(pod.GetPod())
}
