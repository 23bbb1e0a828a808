package scheduler

import (
	"context"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

// followed is a factory of which some informers run before the others are started: to shut it down ends them, too.
type followed struct {
	informers.SharedInformerFactory
	end context.CancelFunc
}

// Shutdown ends the informers that run already, and waits until all have ended: those that Start started must have been told to.
func (f followed) Shutdown() {
	f.end()
	f.SharedInformerFactory.Shutdown()
}

// Follow makes a scheduler's informers, of which those of nodes and of the slices of their devices run until ctx ends: while another leads, or while what was
// under way when this one was killed may still be written. These are most of what a large cluster has, and no scheduler writes them; what one writes is
// listed when the scheduler runs.
func Follow(ctx context.Context, client kubernetes.Interface, options ...informers.SharedInformerOption) informers.SharedInformerFactory {
	ctx, end := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, options...)
	factory.Core().V1().Nodes().Informer()
	factory.Resource().V1().ResourceSlices().Informer()
	factory.Start(ctx.Done())
	return followed{factory, end}
}

// watched tells of objects as they come, change and go, once handlers are added.
type watched interface {
	AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
}

// watch has changes of the cluster put into the inbox. It returns what says that all there was has been.
func (s *Scheduler) watch() ([]cache.InformerSynced, error) {
	core, resource, storage := s.config.Informers.Core().V1(), s.config.Informers.Resource().V1(), s.config.Informers.Storage().V1()
	s.write.claims, s.write.pods = resource.ResourceClaims().Lister(), core.Pods().Lister()
	volumes := handler(s, func(any) { s.outdateVolumes("") }, func(any) { s.outdateVolumes("") })
	var seen []cache.InformerSynced
	var offered watched = resource.ResourceSlices().Informer()
	changed := handler(s, s.sliceSet, s.sliceGone)
	if s.config.Tainted != nil {
		offered, changed = s.config.Tainted, s.slicesChanged()
	}
	for _, one := range []struct {
		informer watched
		handler  cache.ResourceEventHandler
	}{
		{core.Namespaces().Informer(), handler(s, s.namespaceSet, s.namespaceGone)},
		{core.Nodes().Informer(), handler(s, s.nodeSet, s.nodeGone)},
		{offered, changed},
		{resource.DeviceClasses().Informer(), handler(s, s.deviceClassSet, s.deviceClassGone)},
		{resource.ResourceClaims().Informer(), handler(s, s.claimSet, s.claimGone)},
		{s.config.Informers.Batch().V1().Jobs().Informer(), handler(s, s.jobSet, s.jobGone)},
		{core.Pods().Informer(), handler(s, s.podSet, s.podGone)},
		{core.PersistentVolumeClaims().Informer(), handler(s, s.volumeClaimChanged, s.volumeClaimChanged)},
		{core.PersistentVolumes().Informer(), volumes},
		{storage.StorageClasses().Informer(), volumes},
		{storage.CSINodes().Informer(), volumes},
		{storage.CSIDrivers().Informer(), volumes},
		{storage.CSIStorageCapacities().Informer(), volumes},
		{storage.VolumeAttachments().Informer(), volumes},
		{s.config.Informers.Policy().V1().PodDisruptionBudgets().Informer(), cache.ResourceEventHandlerFuncs{}}, // looked up
	} {
		registration, err := one.informer.AddEventHandler(one.handler)
		if err != nil {
			return nil, err
		}
		seen = append(seen, registration.HasSynced)
	}
	more, err := s.watchQueues()
	return append(seen, more...), err
}

func handler[Object any](s *Scheduler, set, gone func(Object)) cache.ResourceEventHandler {
	put := func(f func(Object), object any) {
		if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = last.Obj
		}
		if o, ok := object.(Object); ok {
			s.inbox.put(func() { f(o) })
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { put(set, object) },
		UpdateFunc: func(before, object any) {
			if another(before, object) {
				put(gone, before)
			}
			put(set, object)
		},
		DeleteFunc: func(object any) { put(gone, object) },
	}
}

// another says whether what is told of as a change is another object of that name: that the one before went was missed, as where all are listed anew.
func another(before, now any) bool {
	was, err := meta.Accessor(before)
	is, wrong := meta.Accessor(now)
	return err == nil && wrong == nil && was.GetUID() != is.GetUID()
}

func (s *Scheduler) nodeSet(object *corev1.Node) {
	n := s.node(object.Name)
	same, before := n.object != nil && sameNode(n.object, object), n.object
	n.object = object
	if !same {
		s.doubt(before, object)
		s.dirty[n] = true
		s.outdate()
	}
}

func (s *Scheduler) nodeGone(object *corev1.Node) {
	n := s.node(object.Name)
	n.object = nil
	s.dirty[n] = true
	s.outdate()
}

// sliceNode is the node of a slice that tells of our devices; empty: it does not.
func sliceNode(slice *resourceapi.ResourceSlice) string {
	if slice.Spec.Driver != driver.Name || slice.Spec.NodeName == nil || slice.Spec.Pool.Name != *slice.Spec.NodeName {
		return ""
	}
	return *slice.Spec.NodeName
}

func (s *Scheduler) sliceSet(slice *resourceapi.ResourceSlice) {
	if on := sliceNode(slice); on != "" {
		n := s.node(on)
		n.slices[slice.Name] = slice
		s.dirty[n] = true
	}
	if slice.Spec.Driver != driver.Name {
		s.othersFree()
	}
}

func (s *Scheduler) sliceGone(slice *resourceapi.ResourceSlice) {
	if on := sliceNode(slice); on != "" {
		n := s.node(on)
		delete(n.slices, slice.Name)
		s.dirty[n] = true
	}
}

// slicesChanged has all slices looked at again, once for all changes that come before that: what the tracker tells of one slice is not in order where a rule
// and the slice change at once. (What it has of the slice then may lack the rule until either changes again, here as in the stock scheduler.)
func (s *Scheduler) slicesChanged() cache.ResourceEventHandler {
	var waits atomic.Bool
	look := func(any) {
		if !waits.Swap(true) {
			s.inbox.put(func() {
				waits.Store(false)
				s.slicesAnew()
			})
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, now any) { look(now) }, DeleteFunc: look}
}

// slicesAnew takes in the slices that differ from those of the look before.
func (s *Scheduler) slicesAnew() {
	all, err := s.config.Tainted.ListPatchedResourceSlices()
	if err != nil {
		s.config.Log.Error("look at devices and the rules that taint them, which is done again when any of these changes", "err", err)
		return
	}
	now := make(map[string]*resourceapi.ResourceSlice, len(all))
	for _, slice := range all {
		now[slice.Name] = slice
	}
	for name, slice := range s.tainted {
		if now[name] == nil {
			s.sliceGone(slice)
		}
	}
	for name, slice := range now {
		if s.tainted[name] != slice {
			s.sliceSet(slice)
		}
	}
	s.tainted = now
}

func (s *Scheduler) volumeClaimChanged(claim *corev1.PersistentVolumeClaim) {
	s.outdateVolumes(claim.Namespace)
}

func (s *Scheduler) deviceClassSet(class *resourceapi.DeviceClass) {
	before := s.deviceClasses[class.Name]
	s.deviceClasses[class.Name] = class
	s.extend()
	if before != nil && !equality.Semantic.DeepEqual(before.Spec, class.Spec) {
		s.deviceClassChanged(class.Name)
	}
	s.considerAll()
}

func (s *Scheduler) deviceClassGone(class *resourceapi.DeviceClass) {
	delete(s.deviceClasses, class.Name)
	s.extend()
	s.deviceClassChanged(class.Name)
	s.considerAll()
}

// deviceClassChanged has those asked anew that wait for devices of a class: which they may have, and how, is for the class to say.
func (s *Scheduler) deviceClassChanged(name string) {
	s.askAnew("device class "+name+" has changed", func(w *work) bool {
		return slices.ContainsFunc(w.tasks, func(t *task) bool { return t.ask.names(name) })
	})
	s.outdate() // also of those that asked for devices of others alone
	s.devicesFree()
}
