package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"

	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

var (
	podsResource   = corev1.SchemeGroupVersion.WithResource("pods")
	nodesResource  = corev1.SchemeGroupVersion.WithResource("nodes")
	claimsResource = resourceapi.SchemeGroupVersion.WithResource("resourceclaims")
	slicesResource = resourceapi.SchemeGroupVersion.WithResource("resourceslices")
	classResource  = resourceapi.SchemeGroupVersion.WithResource("deviceclasses")
)

// cluster is an API server of our own around client-go's fake one: objects have versions, an update of another version is a conflict, status and
// the rest are written apart, a pod is bound once, and floors on a device may never pass what it has. Writes fail as a test wants.
type cluster struct {
	*testing.T
	client     *fake.Clientset
	objects    dynamic.Interface // queues and the policy; nil: there are none
	mu         sync.Mutex
	version    int
	uids       int
	made       map[string]bool                                 // pods that there are or were, by name
	fails      func(write string) fault                        // of each write, "update resourceclaims", "status resourceclaims", "bind pods"
	refuses    func(write string, of metav1.Object) bool       // of each write beside: it is refused; nil: none is
	unprepared int64                                           // how often what a pod needs before its binding cannot be had
	mounted    chan struct{}                                   // volumes by claim are made once it is closed; nil: at once
	broken     []string                                        // what must never be
	memory     int64                                           // of each device
	device     func(node string, i int, d *resourceapi.Device) // changes devices before they are offered; nil: nothing does
	classed    bool                                            // pods that are alike are known to be, by their labels, too
	rules      bool                                            // schedulers follow rules that taint devices
	open       bool                                            // all nodes are said to take all pods, which is quick
	also       []string                                        // more schedulers whose pods are placed
	now        func() time.Time                                // by which schedulers go; nil: the machine's clock
	askEvery   time.Duration                                   // how often schedulers ask for nodes though nothing has changed; 0: as they do
	spare      time.Duration                                   // how long schedulers leave alone what they could not evict
	scheduler  *Scheduler                                      // that runs; nil: none does

	evicted chan string       // pods that are to end, in this order
	recipes map[string]func() // what makes a pod again, by its name
	ends    bool              // whoever waits ends pods that are to end, and makes them again as their owners would
}

// fault is what goes wrong with a write.
type fault int

const (
	none   fault = iota
	before       // it is refused
	after        // it is done, and the answer is lost
	lostly       // it is not done, and the answer is lost
)

var errUnreachable = fmt.Errorf("the connection was lost")

func newCluster(t *testing.T) *cluster {
	c := &cluster{T: t, client: fake.NewClientset(), made: map[string]bool{}, fails: func(string) fault { return none }, memory: 80 << 30, evicted: make(chan string, 1000), recipes: map[string]func(){}}
	c.client.PrependReactor("*", "*", func(action core.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch action := action.(type) {
		case core.UpdateActionImpl:
			return c.update(action)
		case core.CreateActionImpl:
			switch action.GetSubresource() {
			case "binding":
				return c.bind(action)
			case "eviction":
				return c.evict(action)
			}
		case core.PatchActionImpl:
			if action.GetSubresource() == "status" && action.GetResource() == podsResource {
				return c.patch(action)
			}
		}
		return false, nil, nil
	})
	c.add(classResource, &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: driver.Name},
		Spec:       resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: onlyOurs}}}},
	})
	return c
}

// add makes an object.
func (c *cluster) add(kind schema.GroupVersionResource, object runtime.Object) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	made, err := meta.Accessor(object)
	if err != nil {
		c.Fatal(err)
	}
	c.version++
	made.SetResourceVersion(strconv.Itoa(c.version))
	if made.GetUID() == "" {
		c.uids++
		made.SetUID(types.UID(fmt.Sprintf("uid-%d", c.uids)))
	}
	if err := c.client.Tracker().Create(kind, object, made.GetNamespace()); err != nil {
		c.Fatal(err)
	}
}

// store replaces an object as the server itself does.
func (c *cluster) store(kind schema.GroupVersionResource, object runtime.Object) error {
	changed, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	c.version++
	changed.SetResourceVersion(strconv.Itoa(c.version))
	return c.client.Tracker().Update(kind, object, changed.GetNamespace())
}

// rewrite changes a pod that is there, as its user may.
func (c *cluster) rewrite(name string, change func(*corev1.Pod)) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	stored, err := c.client.Tracker().Get(podsResource, "default", name)
	if err != nil {
		c.Fatal(err)
	}
	pod := stored.(*corev1.Pod).DeepCopy()
	change(pod)
	if err := c.store(podsResource, pod); err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) update(action core.UpdateActionImpl) (bool, runtime.Object, error) {
	wanted, ok := action.GetObject().(*resourceapi.ResourceClaim)
	if !ok {
		return false, nil, nil
	}
	what := "update resourceclaims"
	if action.GetSubresource() == "status" {
		what = "status resourceclaims"
	}
	wrong := c.fails(what)
	if c.refuses != nil && c.refuses(what, wanted) {
		wrong = before
	}
	switch wrong {
	case before:
		return true, nil, apierrors.NewForbidden(claimsResource.GroupResource(), wanted.Name, fmt.Errorf("the test wants it"))
	case lostly:
		return true, nil, errUnreachable
	}
	stored, err := c.client.Tracker().Get(claimsResource, wanted.Namespace, wanted.Name)
	if err != nil {
		return true, nil, err
	}
	now := stored.(*resourceapi.ResourceClaim).DeepCopy()
	if now.ResourceVersion != wanted.ResourceVersion {
		return true, nil, apierrors.NewConflict(claimsResource.GroupResource(), wanted.Name, fmt.Errorf("it is of version %s", now.ResourceVersion))
	}
	if action.GetSubresource() == "status" {
		if wanted.Status.Allocation != nil && !slices.Contains(now.Finalizers, resourceapi.Finalizer) {
			c.broken = append(c.broken, now.Name+" was allocated without its finalizer")
		}
		wanted.Status.DeepCopyInto(&now.Status)
	} else {
		now.Finalizers = slices.Clone(wanted.Finalizers)
	}
	if err := c.store(claimsResource, now); err != nil {
		return true, nil, err
	}
	c.checkGrants()
	if wrong == after {
		return true, nil, errUnreachable
	}
	return true, now.DeepCopy(), nil
}

func (c *cluster) bind(action core.CreateActionImpl) (bool, runtime.Object, error) {
	binding := action.GetObject().(*corev1.Binding)
	wrong := c.fails("bind pods")
	if c.refuses != nil && c.refuses("bind pods", binding) {
		wrong = before
	}
	switch wrong {
	case before:
		return true, nil, apierrors.NewForbidden(podsResource.GroupResource(), binding.Name, fmt.Errorf("the test wants it"))
	case lostly:
		return true, nil, errUnreachable
	}
	stored, err := c.client.Tracker().Get(podsResource, binding.Namespace, binding.Name)
	if err != nil {
		return true, nil, err
	}
	pod := stored.(*corev1.Pod).DeepCopy()
	if pod.UID != binding.UID || pod.Spec.NodeName != "" {
		return true, nil, apierrors.NewConflict(podsResource.GroupResource(), binding.Name, fmt.Errorf("it is another, or bound to %q already", pod.Spec.NodeName))
	}
	for _, key := range claimKeys(pod) {
		if claim := c.find(key); claim == nil || claim.Status.Allocation == nil || !reserved(claim, reference(pod)) {
			c.broken = append(c.broken, pod.Name+" was bound without its claim "+key)
		}
	}
	pod.Spec.NodeName = binding.Target.Name
	if err := c.store(podsResource, pod); err != nil {
		return true, nil, err
	}
	if wrong == after {
		return true, nil, errUnreachable
	}
	return true, binding, nil
}

// find is a claim as it is stored; nil: there is none.
func (c *cluster) find(key string) *resourceapi.ResourceClaim {
	namespace, name, _ := strings.Cut(key, "/")
	stored, err := c.client.Tracker().Get(claimsResource, namespace, name)
	if err != nil {
		return nil
	}
	return stored.(*resourceapi.ResourceClaim)
}

// stored are all claims.
func (c *cluster) stored() []resourceapi.ResourceClaim {
	list, err := c.client.Tracker().List(claimsResource, resourceapi.SchemeGroupVersion.WithKind("ResourceClaim"), "")
	if err != nil {
		c.Error(err)
		return nil
	}
	return list.(*resourceapi.ResourceClaimList).Items
}

// consumed is what a device's part takes of it: all of its compute where nothing is said.
func consumed(r resourceapi.DeviceRequestAllocationResult) (compute, memory int64) {
	switch {
	case r.AdminAccess != nil && *r.AdminAccess:
		return 0, 0
	case len(r.ConsumedCapacity) == 0:
		return 1000, 0
	}
	one, two := r.ConsumedCapacity[driver.Compute], r.ConsumedCapacity[driver.Memory]
	return one.Value(), two.Value()
}

// checkGrants notes when the floors on a device pass what it has.
func (c *cluster) checkGrants() {
	compute, memory := map[string]int64{}, map[string]int64{}
	for _, claim := range c.stored() {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			one, two := consumed(r)
			compute[deviceID(r.Pool, r.Device)] += one
			memory[deviceID(r.Pool, r.Device)] += two
		}
	}
	for device, total := range compute {
		if total > 1000 || memory[device] > c.memory {
			c.broken = append(c.broken, fmt.Sprintf("on %s %d thousandths and %d bytes are granted", device, total, memory[device]))
		}
	}
}
