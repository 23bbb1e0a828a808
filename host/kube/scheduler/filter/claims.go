package filter

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"

	"github.com/aliquot-dev/aliquot/host/kube/demand"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

// claims knows which of a pod's claims are the engine's to place.
type claims struct {
	manager fwk.SharedDRAManager
	made    resourcelisters.ResourceClaimLister // has a claim before anybody hears of it, so that whoever did can ask; the manager may come to know it later
}

// strip is the pod without the claims that our scheduler places: the pod itself if it has none. What is not known (a claim that is not made yet, a class
// that is not there) stays, and upstream's plugin says what it lacks.
func (c *claims) strip(pod *v1.Pod) *v1.Pod {
	var dropped []string
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		name, _, err := resourceclaim.Name(pod, entry)
		if err != nil || name == nil {
			continue
		}
		claim, err := c.made.ResourceClaims(pod.Namespace).Get(*name)
		if err != nil {
			continue
		}
		if c.mine(claim) {
			dropped = append(dropped, entry.Name)
		}
	}
	if len(dropped) == 0 {
		return pod
	}
	bare := *pod // shares with the pod what is not taken from it: neither is ever changed
	bare.Spec.ResourceClaims = slices.DeleteFunc(slices.Clone(pod.Spec.ResourceClaims), func(e v1.PodResourceClaim) bool {
		return slices.Contains(dropped, e.Name)
	})
	bare.Spec.InitContainers = without(pod.Spec.InitContainers, dropped)
	bare.Spec.Containers = without(pod.Spec.Containers, dropped)
	return &bare
}

// holdsOurs says whether a pod has claims that our scheduler placed, or may, but such as were given devices of others alone.
func (c *claims) holdsOurs(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.ResourceClaims, func(entry v1.PodResourceClaim) bool {
		name, _, err := resourceclaim.Name(pod, &entry)
		if err != nil || name == nil {
			return false
		}
		claim, err := c.made.ResourceClaims(pod.Namespace).Get(*name)
		return err == nil && c.mine(claim) && !demand.Elsewhere(claim)
	})
}

// without are containers that use none of these claims.
func without(containers []v1.Container, claims []string) []v1.Container {
	containers = slices.Clone(containers)
	for i := range containers {
		resources := &containers[i].Resources
		resources.Claims = slices.DeleteFunc(slices.Clone(resources.Claims), func(r v1.ResourceClaim) bool { return slices.Contains(claims, r.Name) })
	}
	return containers
}

// mine says whether a claim may be given devices of ours, whatever else it asks for.
func (c *claims) mine(claim *resourceapi.ResourceClaim) bool {
	return demand.Of(&claim.Spec, func(name string) *resourceapi.DeviceClass {
		class, err := c.manager.DeviceClasses().Get(name)
		if err != nil {
			return nil
		}
		return class
	}).Ours
}

// watchClaims makes what the plugins know of claims, slices and device classes, as upstream's scheduler does.
func (f *Filters) watchClaims(ctx context.Context, client kubernetes.Interface, factory informers.SharedInformerFactory) (fwk.SharedDRAManager, error) {
	known := assumecache.NewAssumeCache(f.logger, factory.Resource().V1().ResourceClaims().Informer(), "ResourceClaim", "", nil)
	options := tracker.Options{
		EnableDeviceTaintRules:   utilfeature.DefaultFeatureGate.Enabled(features.DRADeviceTaintRules),
		EnableConsumableCapacity: utilfeature.DefaultFeatureGate.Enabled(features.DRAConsumableCapacity),
		SliceInformer:            factory.Resource().V1().ResourceSlices(),
		KubeClient:               client,
	}
	if options.EnableDeviceTaintRules {
		options.TaintInformer = factory.Resource().V1beta2().DeviceTaintRules()
		options.ClassInformer = factory.Resource().V1().DeviceClasses()
	}
	slices, err := tracker.StartTracker(ctx, options)
	if err != nil {
		return nil, err
	}
	if options.EnableDeviceTaintRules {
		f.tainted = slices
		f.synced = append(f.synced, slices.HasSynced)
	}
	manager := withoutOurs{dynamicresources.NewDRAManager(ctx, known, slices, factory)}
	f.claims = &claims{manager: manager, made: factory.Resource().V1().ResourceClaims().Lister()}
	f.synced = append(f.synced, known.AddEventHandler(toolscache.ResourceEventHandlerFuncs{}).HasSynced)
	anew := toolscache.ResourceEventHandler(whenever(f.changed.note))
	if resolver, is := manager.DeviceClassResolver().(*extendedresourcecache.ExtendedResourceCache); is && resolver != nil {
		resolver.AddEventHandler(anew)
		anew = resolver
	}
	registration, err := factory.Resource().V1().DeviceClasses().Informer().AddEventHandler(anew)
	if err != nil {
		return nil, err
	}
	f.synced = append(f.synced, registration.HasSynced)
	return manager, nil
}

// FollowTaintRules has all filters made afterwards follow the DeviceTaintRules of the cluster, as the feature gate DRADeviceTaintRules has the stock scheduler do.
func FollowTaintRules() error {
	return utilfeature.DefaultMutableFeatureGate.Set(string(features.DRADeviceTaintRules) + "=true")
}

// Tainted are the ResourceSlices of all drivers, with the taints that DeviceTaintRules give devices; nil: such rules are not followed.
func (f *Filters) Tainted() *tracker.Tracker { return f.tainted }

// freeWithin is for how long a claim is being given back at most, for no other pod is judged on all nodes meanwhile.
const freeWithin = 4 * time.Second

// freeClaim gives back, for a pod that no node takes, one of its claims of other drivers that keeps it from nodes, as the stock scheduler does (the DRA plugin's PostFilter): it is
// allocated elsewhere, or the conditions that its devices wait for failed or took too long. Others must have nothing of it. It can be allocated anew then. What fails
// is tried again when the pod is judged again.
func (f *Filters) freeClaim(ctx context.Context, of cycle) {
	if of.refused != nil || !f.keepUnassumed(of.pod) {
		return
	}
	defer f.mayAssume()
	ctx, cancel := context.WithTimeout(ctx, freeWithin)
	defer cancel()
	_, status := f.survey.framework.RunPostFilterPlugins(ctx, of.state, of.pod, framework.NewDefaultNodeToStatus())
	if err := failure(status); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		f.logger.Error(err, "Give a claim back that keeps a pod from nodes", "pod", klog.KObj(of.pod))
	}
}

// keepUnassumed says whether a pod has no node, and is then not assumed on one until mayAssume is called.
func (f *Filters) keepUnassumed(pod *v1.Pod) bool {
	f.judge.mu.Lock()
	defer f.judge.mu.Unlock()
	now, err := f.pods.Pods(pod.Namespace).Get(pod.Name)
	if _, assumed := f.assumed[pod.UID]; assumed || err != nil || now.UID != pod.UID || now.Spec.NodeName != "" {
		return false
	}
	f.freeing = pod.UID
	return true
}

// mayAssume ends what keepUnassumed began. What was found out of the pod before does not count any more.
func (f *Filters) mayAssume() {
	f.judge.mu.Lock()
	defer f.judge.mu.Unlock()
	f.freeing, f.last = "", nil
}

// withoutOurs shows upstream's plugins all devices but ours, so that whatever they allocate (for a limit, by a class by which any driver's would do) none of
// ours is handed out from books that lack what is being written for others.
type withoutOurs struct{ fwk.SharedDRAManager }

func (m withoutOurs) ResourceSlices() fwk.ResourceSliceLister {
	return others{m.SharedDRAManager.ResourceSlices()}
}

type others struct{ fwk.ResourceSliceLister }

func (l others) ListWithDeviceTaintRules() ([]*resourceapi.ResourceSlice, error) {
	all, err := l.ResourceSliceLister.ListWithDeviceTaintRules()
	return slices.DeleteFunc(slices.Clone(all), func(s *resourceapi.ResourceSlice) bool { return s.Spec.Driver == driver.Name }), err
}

// whenever calls back whenever an object comes, changes or goes.
func whenever(call func()) toolscache.ResourceEventHandlerFuncs {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { call() },
		UpdateFunc: func(any, any) { call() },
		DeleteFunc: func(any) { call() },
	}
}
