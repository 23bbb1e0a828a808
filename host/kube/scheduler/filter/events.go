package filter

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// watch takes nodes and pods into the cache, and notes what changes judgements.
func (f *Filters) watch(factory informers.SharedInformerFactory) error {
	core, storage := factory.Core().V1(), factory.Storage().V1()
	handlers := []struct {
		informer toolscache.SharedIndexInformer
		handler  toolscache.ResourceEventHandler
	}{
		{core.Nodes().Informer(), toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { as(o, f.nodeAdded) },
			UpdateFunc: func(o, n any) { both(o, n, f.nodeChanged) },
			DeleteFunc: func(o any) { as(o, f.nodeGone) },
		}},
		{core.Pods().Informer(), toolscache.FilteringResourceEventHandler{
			FilterFunc: alive,
			Handler: toolscache.ResourceEventHandlerFuncs{
				AddFunc:    func(o any) { as(o, f.podAdded) },
				UpdateFunc: func(o, n any) { both(o, n, f.podChanged) },
				DeleteFunc: func(o any) { as(o, f.podGone) },
			},
		}},
		{core.Namespaces().Informer(), toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { f.changed.note() },
			UpdateFunc: func(o, n any) { both(o, n, f.namespaceChanged) },
			DeleteFunc: func(any) { f.changed.note() },
		}},
		{core.PersistentVolumes().Informer(), whenever(f.changed.note)},
		{core.PersistentVolumeClaims().Informer(), whenever(f.changed.note)},
		{storage.StorageClasses().Informer(), whenever(f.changed.note)},
		{storage.CSINodes().Informer(), whenever(f.changed.note)},
		{storage.CSIDrivers().Informer(), whenever(f.changed.note)},
		{storage.CSIStorageCapacities().Informer(), whenever(f.changed.note)},
		{storage.VolumeAttachments().Informer(), whenever(f.changed.note)},
	}
	for _, h := range handlers {
		registration, err := h.informer.AddEventHandler(h.handler)
		if err != nil {
			return err
		}
		f.synced = append(f.synced, registration.HasSynced)
	}
	return nil
}

// as calls with an object of an event, or with the last state known of one that is gone.
func as[T any](o any, call func(T)) {
	if gone, is := o.(toolscache.DeletedFinalStateUnknown); is {
		o = gone.Obj
	}
	if object, is := o.(T); is {
		call(object)
	}
}

// both is as for an object before and after it changed.
func both[T any](o, n any, call func(T, T)) {
	as(o, func(old T) { as(n, func(object T) { call(old, object) }) })
}

// alive says whether a pod holds what it has: a pod that ended does not, though it stays bound.
func alive(o any) bool {
	is := false
	as(o, func(pod *v1.Pod) { is = pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed })
	return is
}

func (f *Filters) nodeAdded(node *v1.Node) {
	f.cache.AddNode(f.logger, node)
	f.changed.note()
}

func (f *Filters) nodeChanged(old, node *v1.Node) {
	f.cache.UpdateNode(f.logger, old, node)
	if len(framework.NodeSchedulingPropertiesChange(node, old)) > 0 {
		f.changed.note()
	}
}

func (f *Filters) nodeGone(node *v1.Node) {
	if err := f.cache.RemoveNode(f.logger, node); err != nil {
		f.logger.Error(err, "Remove a node", "node", klog.KObj(node))
	}
	f.changed.note()
}

// namespaceChanged matters for affinity terms that select namespaces by label.
func (f *Filters) namespaceChanged(old, space *v1.Namespace) {
	if !equality.Semantic.DeepEqual(old.Labels, space.Labels) {
		f.changed.note()
	}
}

func (f *Filters) podAdded(pod *v1.Pod) {
	f.chosen.learn(pod)
	if pod.Spec.NodeName == "" {
		f.nominated.set(pod)
		f.changed.note()
		return
	}
	f.bound(pod)
}

func (f *Filters) podChanged(old, pod *v1.Pod) {
	switch {
	case old.UID != pod.UID: // deleted and made again between two looks
		f.podGone(old)
		f.podAdded(pod)
	case pod.Spec.NodeName != "":
		f.bound(pod)
	case pod.DeletionTimestamp != nil && f.forget(pod.UID): // it is not going to run: what it holds is free at once
	case old.Status.NominatedNodeName != pod.Status.NominatedNodeName:
		if f.isAssumed(pod) {
			return // it counts on the node that it is assumed on, and Forget looks again
		}
		f.nominated.set(pod)
		f.changed.note()
	}
}

func (f *Filters) podGone(pod *v1.Pod) {
	f.nominated.remove(pod.UID)
	f.changed.note()
	if f.forget(pod.UID) {
		return
	}
	cached, err := f.cache.GetPod(pod)
	if err != nil {
		return // it was never bound
	}
	if err := f.cache.RemovePod(f.logger, cached); err != nil {
		f.logger.Error(err, "Remove a pod", "pod", klog.KObj(pod))
	}
	f.changed.note()
}

func (f *Filters) isAssumed(pod *v1.Pod) bool {
	f.judge.mu.Lock()
	defer f.judge.mu.Unlock()
	_, is := f.assumed[pod.UID]
	return is
}

// bound takes in a pod that is on a node now; what was assumed of it is thereby true, or overruled.
func (f *Filters) bound(pod *v1.Pod) {
	f.nominated.remove(pod.UID)
	f.judge.mu.Lock()
	if err := f.place(pod); err != nil {
		f.logger.Error(err, "Take a bound pod in", "pod", klog.KObj(pod), "node", pod.Spec.NodeName)
	}
	a, is := f.assumed[pod.UID]
	delete(f.assumed, pod.UID)
	f.judge.mu.Unlock()
	if is && a.node != pod.Spec.NodeName {
		f.unreserve(a)
	}
}

// place makes the cache hold a bound pod as it is now.
func (f *Filters) place(pod *v1.Pod) error {
	cached, unknown := f.cache.GetPod(pod)
	assumed, err := f.cache.IsAssumedPod(pod)
	switch {
	case err != nil:
		return err
	case unknown != nil, assumed:
		f.changed.note()
		return f.cache.AddPod(f.logger, pod)
	case cached.Spec.NodeName != pod.Spec.NodeName: // its end and its new beginning were not seen
		f.changed.note()
		if err := f.cache.RemovePod(f.logger, cached); err != nil {
			return err
		}
		return f.cache.AddPod(f.logger, pod)
	}
	if holdsOther(cached, pod) {
		f.changed.note()
	}
	return f.cache.UpdatePod(f.logger, cached, pod)
}

// holdsOther says whether a bound pod changed in what other pods are judged by: its labels and what it requests.
func holdsOther(old, pod *v1.Pod) bool {
	options := resource.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true}
	return !equality.Semantic.DeepEqual(old.Labels, pod.Labels) ||
		!equality.Semantic.DeepEqual(resource.PodRequests(old, options), resource.PodRequests(pod, options))
}
