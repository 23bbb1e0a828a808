package filter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
)

var (
	podsResource   = v1.SchemeGroupVersion.WithResource("pods")
	claimsResource = resourceapi.SchemeGroupVersion.WithResource("resourceclaims")
)

// deviceCluster is an API server for our scheduler, which runs, and upstream's, which is asked.
type deviceCluster struct {
	*testing.T
	client  *fake.Clientset
	stock   *stock
	filters *Filters // of ours
	mu      sync.Mutex
	version int
	late    bool // devices that need something before they can be used are not usable until the test says so
}

// ours are the filters as our scheduler asks them.
type ours struct{ *Filters }

func (o ours) Nodes(ctx context.Context, pod *v1.Pod) (scheduler.Feasible, error) {
	said, err := o.Filters.Nodes(ctx, pod)
	return scheduler.Feasible(said), err
}

func (o ours) MakeRoom(ctx context.Context, pod *v1.Pod, only []string) (scheduler.Room, error) {
	room, err := o.Filters.MakeRoom(ctx, pod, only)
	return scheduler.Room(room), err
}

func (o ours) MakeRoomTogether(ctx context.Context, pods []*v1.Pod, nodes []string) (scheduler.Rooms, error) {
	rooms, err := o.Filters.MakeRoomTogether(ctx, pods, nodes)
	return scheduler.Rooms(rooms), err
}

func newDeviceCluster(t *testing.T, objects ...runtime.Object) *deviceCluster {
	t.Helper()
	c := &deviceCluster{T: t, client: fake.NewClientset(objects...), version: 1}
	c.client.PrependReactor("*", "*", func(action core.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch action := action.(type) {
		case core.UpdateActionImpl: // objects have versions, and whoever writes one is told the next
			if claim, is := action.GetObject().(*resourceapi.ResourceClaim); is && !c.late {
				report(claim, attached)
			}
			c.next(action.GetObject())
		case core.CreateActionImpl:
			if binding, is := action.GetObject().(*v1.Binding); is {
				return true, binding, c.bind(binding)
			}
			c.next(action.GetObject())
		}
		return false, nil, nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(c.client, 0)
	filters, err := New(ctx, c.client, factory, scheduler.Name)
	if err != nil {
		t.Fatal(err)
	}
	c.filters = filters
	ended := make(chan error, 1)
	go func() {
		config := scheduler.Config{Client: c.client, Informers: factory, Filters: ours{filters}}
		if tainted := filters.Tainted(); tainted != nil {
			config.Tainted = tainted
		}
		ended <- scheduler.New(config).Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	c.stock = stockOf(t, c.client)
	until(t, "our scheduler watches", func() bool {
		watched := 0
		for _, action := range c.client.Actions() {
			if action.Matches("watch", "resourceclaims") || action.Matches("watch", "pods") {
				watched++
			}
		}
		return watched >= 4
	})
	allWatched(t, c.client)
	return c
}

func (c *deviceCluster) next(object runtime.Object) {
	if about, err := meta.Accessor(object); err == nil {
		c.version++
		about.SetResourceVersion(strconv.Itoa(c.version))
		named(about, c.version)
	}
}

// named gives an object that is made a name and a UID as the server does where it has none.
func named(about metav1.Object, version int) {
	if about.GetName() == "" {
		about.SetName(fmt.Sprint(about.GetGenerateName(), version))
	}
	if about.GetUID() == "" {
		about.SetUID(types.UID(about.GetName()))
	}
}

func (c *deviceCluster) bind(binding *v1.Binding) error {
	stored, err := c.client.Tracker().Get(podsResource, binding.Namespace, binding.Name)
	if err != nil {
		return err
	}
	pod := stored.(*v1.Pod).DeepCopy()
	for _, entry := range pod.Spec.ResourceClaims {
		claim, err := c.client.Tracker().Get(claimsResource, binding.Namespace, *entry.ResourceClaimName)
		if err != nil {
			return err
		}
		if claim.(*resourceapi.ResourceClaim).Status.Allocation == nil {
			c.Errorf("%s is bound to %s, and its claim %s is not allocated: it never starts", pod.Name, binding.Target.Name, *entry.ResourceClaimName)
		}
	}
	pod.Spec.NodeName = binding.Target.Name
	c.next(pod)
	return c.client.Tracker().Update(podsResource, pod, pod.Namespace)
}

// pod is one as it is stored.
func (c *deviceCluster) pod(name string) *v1.Pod {
	c.Helper()
	stored, err := c.client.Tracker().Get(podsResource, "default", name)
	if err != nil {
		c.Fatal(err)
	}
	return stored.(*v1.Pod)
}

// add makes a claim and a pod that has it, in either order.
func (c *deviceCluster) add(claim *resourceapi.ResourceClaim) *v1.Pod {
	c.Helper()
	p := having(claim)
	for kind, object := range map[string]runtime.Object{"claim": claim, "pod": p} {
		of := podsResource
		if kind == "claim" {
			of = claimsResource
		}
		c.create(of, object)
	}
	return p
}

// having is a pod of our scheduler that has a claim, and its name.
func having(claim *resourceapi.ResourceClaim) *v1.Pod {
	return pod(claim.Name, uses(claim.Name), func(p *v1.Pod) { p.Spec.SchedulerName = scheduler.Name })
}

// create makes an object.
func (c *deviceCluster) create(of schema.GroupVersionResource, object runtime.Object) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next(object)
	if err := c.client.Tracker().Create(of, object, "default"); err != nil {
		c.Fatal(err)
	}
}

// remove deletes a pod with its claim.
func (c *deviceCluster) remove(name string) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.client.Tracker().Delete(podsResource, "default", name); err != nil {
		c.Fatal(err)
	}
	if err := c.client.Tracker().Delete(claimsResource, "default", name); err != nil {
		c.Fatal(err)
	}
}

// asked are the nodes on which upstream's scheduler would place a pod with its claim, once it knows what is allocated.
func (c *deviceCluster) asked(p *v1.Pod) []string {
	c.Helper()
	until(c.T, "the stock scheduler knows all claims", func() bool { return c.known(c.stock.framework.SharedDRAManager()) })
	nodes, _ := c.stock.feasible(c.T, p)
	return slices.Clone(nodes)
}

// known says whether a scheduler, ours or upstream's, knows all claims as they are stored, and what they hold.
func (c *deviceCluster) known(manager fwk.SharedDRAManager) bool {
	stored, err := c.client.Tracker().List(claimsResource, resourceapi.SchemeGroupVersion.WithKind("ResourceClaim"), "")
	if err != nil {
		c.Fatal(err)
	}
	tracker := manager.ResourceClaims()
	shares, wholes, all := 0, 0, stored.(*resourceapi.ResourceClaimList).Items
	for _, claim := range all {
		if known, err := tracker.Get("default", claim.Name); err != nil || known.ResourceVersion != claim.ResourceVersion {
			return false
		}
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.ShareID != nil {
				shares++
			} else {
				wholes++
			}
		}
	}
	known, err := tracker.List()
	if err != nil {
		c.Fatal(err)
	}
	held, err := tracker.GatherAllocatedState()
	if err != nil {
		return false // something came while it was gathered
	}
	return len(known) == len(all) && len(held.AllocatedSharedDeviceIDs) == shares && len(held.AllocatedDevices) == wholes
}

// Random claims for whole devices and parts of them, for network cards, and for both together, one after the other, in random clusters: our scheduler places
// a pod where upstream's DRA plugin would have, and lets none wait that this would place. Not among the claims are access as an administrator, which takes nothing, and what our scheduler is
// known not to place (docs/kubernetes.md): several devices of which two parts would fit on one, for it gives a claim distinct ones.
func TestSameDevicesAsTheStockScheduler(t *testing.T) {
	if placed, waited := inClusters(t, 5, 53, sameDevices); placed < 20 || waited < 10 {
		t.Error("the clusters show too little")
	}
}

// sameDevices tries one cluster until the third claim has to wait.
func sameDevices(t *testing.T, r *rand.Rand) (placed, waited int) {
	there := deviceNodes(r)
	c := newDeviceCluster(t, there...)
	var running []string
	for i := 0; i < 60 && waited < 3; i++ {
		if len(running) > 4 && r.IntN(3) == 0 {
			at := r.IntN(len(running))
			c.remove(running[at])
			running = slices.Delete(running, at, at+1)
		}
		claim := randomClaim(r, fmt.Sprint("share-", i))
		p := having(claim)
		c.create(claimsResource, claim)
		want := c.asked(p) // before our scheduler hears of it, which would allocate the claim
		c.create(podsResource, p)
		if len(want) > 0 {
			until(t, fmt.Sprintf("%s is bound, which the stock scheduler would place on %v: %+v", p.Name, want, claim.Spec.Devices), func() bool {
				return c.pod(p.Name).Spec.NodeName != ""
			})
		} else {
			until(t, p.Name+" is bound or told why not", func() bool {
				now := c.pod(p.Name)
				return now.Spec.NodeName != "" || slices.ContainsFunc(now.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodScheduled })
			})
		}
		on := c.pod(p.Name).Spec.NodeName
		switch {
		case on == "":
			waited++
			c.remove(p.Name)
		case !slices.Contains(want, on):
			t.Fatalf("%s was placed on %s, the stock scheduler would on %v: %+v", p.Name, on, want, claim.Spec.Devices)
		default:
			c.sound(there, p.Name)
			placed++
			running = append(running, p.Name)
		}
	}
	return placed, waited
}

// whole is what a device is counted by that is handed out whole.
const whole = "whole"

// sound checks that no device is handed out beyond what it has, and that a pod has got distinct ones that take new work.
func (c *deviceCluster) sound(there []runtime.Object, name string) {
	c.Helper()
	stored, err := c.client.Tracker().List(claimsResource, resourceapi.SchemeGroupVersion.WithKind("ResourceClaim"), "")
	if err != nil {
		c.Fatal(err)
	}
	given, own, tolerated := map[string]map[resourceapi.QualifiedName]resource.Quantity{}, map[string]bool{}, map[string]bool{}
	for _, claim := range stored.(*resourceapi.ResourceClaimList).Items {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if given[result.Device] == nil {
				given[result.Device] = map[resourceapi.QualifiedName]resource.Quantity{}
			}
			consumes := result.ConsumedCapacity
			if result.ShareID == nil {
				consumes = map[resourceapi.QualifiedName]resource.Quantity{whole: *resource.NewQuantity(1, resource.DecimalSI)}
			}
			for capacity, consumed := range consumes {
				sum := given[result.Device][capacity]
				sum.Add(consumed)
				given[result.Device][capacity] = sum
			}
			if times := given[result.Device][whole]; result.ShareID == nil && times.Value() > 1 {
				c.Errorf("device %s of %s is handed out twice", result.Device, result.Driver)
			}
			if claim.Name == name && own[result.Device] {
				c.Errorf("%s has device %s twice", name, result.Device)
			}
			own[result.Device] = own[result.Device] || claim.Name == name
			tolerated[result.Device] = tolerated[result.Device] || claim.Name == name && len(result.Tolerations) > 0
		}
	}
	for _, object := range there {
		slice, is := object.(*resourceapi.ResourceSlice)
		if !is {
			continue
		}
		for _, device := range slice.Spec.Devices {
			if own[device.Name] && len(device.Taints) > 0 && !tolerated[device.Name] {
				c.Errorf("%s was given device %s, which takes nothing new", name, device.Name)
			}
			for capacity, sum := range given[device.Name] {
				if capacity == whole {
					continue
				}
				if has := device.Capacity[capacity].Value; sum.Cmp(has) > 0 {
					c.Errorf("of device %s %s of %s is handed out, and it has %s", device.Name, &sum, capacity, &has)
				}
			}
		}
	}
}
