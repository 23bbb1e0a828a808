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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
	agent "github.com/aliquot-dev/aliquot/node"
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
	filters, err := New(ctx, c.client, factory)
	if err != nil {
		t.Fatal(err)
	}
	c.filters = filters
	ended := make(chan error, 1)
	go func() {
		ended <- scheduler.New(scheduler.Config{Client: c.client, Informers: factory, Filters: ours{filters}}).Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	c.stock = stockOf(t, c.client)
	until(t, "our scheduler watches", func() bool { // client-go's fake server tells nobody what comes before that
		watched := 0
		for _, action := range c.client.Actions() {
			if action.Matches("watch", "resourceclaims") || action.Matches("watch", "pods") {
				watched++
			}
		}
		return watched >= 4
	})
	return c
}

func (c *deviceCluster) next(object runtime.Object) {
	if about, err := meta.Accessor(object); err == nil {
		c.version++
		about.SetResourceVersion(strconv.Itoa(c.version))
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

// add makes a claim and a pod that has it.
func (c *deviceCluster) add(claim *resourceapi.ResourceClaim) *v1.Pod {
	c.Helper()
	p := pod(claim.Name, uses(claim.Name), func(p *v1.Pod) { p.Spec.SchedulerName = scheduler.Name })
	c.mu.Lock()
	defer c.mu.Unlock()
	for kind, object := range map[string]runtime.Object{"claim": claim, "pod": p} {
		c.next(object)
		of := podsResource
		if kind == "claim" {
			of = claimsResource
		}
		if err := c.client.Tracker().Create(of, object, "default"); err != nil {
			c.Fatal(err)
		}
	}
	return p
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
	until(c.T, "the stock scheduler knows all claims", func() bool { return c.known() })
	nodes, _ := c.stock.feasible(c.T, p)
	return slices.Clone(nodes)
}

// known says whether upstream's scheduler knows all claims as they are stored, and what they hold.
func (c *deviceCluster) known() bool {
	stored, err := c.client.Tracker().List(claimsResource, resourceapi.SchemeGroupVersion.WithKind("ResourceClaim"), "")
	if err != nil {
		c.Fatal(err)
	}
	tracker := c.stock.framework.SharedDRAManager().ResourceClaims()
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
	placed, waited := make([]int, 5), make([]int, 5)
	t.Run("seeds", func(t *testing.T) {
		for seed, r := range seeded(5, 53) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				i := seed - *seedFlag
				placed[i], waited[i] = sameDevices(t, r)
			})
		}
	})
	sum := func(all []int) (total int) {
		for _, n := range all {
			total += n
		}
		return total
	}
	t.Logf("%d placed, %d left waiting", sum(placed), sum(waited))
	if sum(placed) < 20 || sum(waited) < 10 {
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
		p := c.add(claim)
		want := c.asked(p)
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

// network is another driver.
const network = "net.example"

// pcieRoot is Kubernetes' own name for what devices that go together are alike in.
const pcieRoot = "resource.kubernetes.io/pcieRoot"

// deviceNodes are nodes with devices, mostly alike on each, of which few take nothing new, and network cards beside some, and their classes.
func deviceNodes(r *rand.Rand) []runtime.Object {
	made := objects(deviceClass(driver.Name, driver.Name, ""), deviceClass(network, network, ""))
	for i := range 3 + r.IntN(4) {
		name := fmt.Sprintf("n%d", i)
		made = append(made, machine(name))
		model, memory := one(r, "H200", "A10"), one[api.Bytes](r, 24, 80)<<30
		slice := &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
			Driver: driver.Name, NodeName: &name, Pool: resourceapi.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
		}}
		slice.Name = name + "-gpus"
		for k := range 1 + r.IntN(4) {
			health := api.Healthy
			if r.IntN(6) == 0 {
				health = api.Draining
			}
			if r.IntN(6) == 0 {
				model = one(r, "H200", "A10")
			}
			published := driver.Published(agent.Device{UUID: fmt.Sprintf("GPU-%s-%d", name, k), Index: k, Model: model, Memory: memory, Health: health})
			published.Attributes[pcieRoot] = root(k)
			slice.Spec.Devices = append(slice.Spec.Devices, published)
		}
		if r.IntN(4) > 0 {
			made = append(made, slice)
		}
		made = append(made, cards(name, r.IntN(4)))
	}
	return made
}

// root is that of a device by its number: every other has the same.
func root(number int) resourceapi.DeviceAttribute {
	of := fmt.Sprint("pci000", number%2, ":00")
	return resourceapi.DeviceAttribute{StringValue: &of}
}

// cards are a node's network cards.
func cards(node string, many int) *resourceapi.ResourceSlice {
	cards := slice(node, network)
	cards.Spec.Devices = nil
	for k := range many {
		cards.Spec.Devices = append(cards.Spec.Devices, resourceapi.Device{
			Name: fmt.Sprintf("card-%s-%d", node, k), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{pcieRoot: root(k)},
		})
	}
	return cards
}

// randomClaim asks for a part of a device, by what it names of it, or for whole ones, or for a network card alone.
func randomClaim(r *rand.Rand, name string) *resourceapi.ResourceClaim {
	if r.IntN(8) == 0 {
		return deviceClaim(name, network)
	}
	claim := deviceClaim(name, driver.Name)
	request := claim.Spec.Devices.Requests[0].Exactly
	requests := map[resourceapi.QualifiedName]resource.Quantity{}
	if r.IntN(5) > 0 {
		requests[driver.Compute] = *resource.NewQuantity(one[int64](r, 1, 100, 250, 333, 500, 750, 1000), resource.DecimalSI)
	}
	if r.IntN(5) > 0 {
		requests[driver.Memory] = *resource.NewQuantity(one[int64](r, 1, 4, 12, 24, 40)<<30-one[int64](r, 0, 1, 4096), resource.BinarySI)
	}
	if r.IntN(4) == 0 { // several: more than half of each, so that no two fit on one
		request.Count = one[int64](r, 2, 3)
		requests[driver.Compute] = *resource.NewQuantity(one[int64](r, 501, 700, 1000), resource.DecimalSI)
	}
	if len(requests) > 0 {
		request.Capacity = &resourceapi.CapacityRequirements{Requests: requests}
	}
	if r.IntN(3) == 0 {
		special(r, claim)
		return claim
	}
	if r.IntN(6) == 0 {
		request.Tolerations = []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
	}
	if r.IntN(4) == 0 {
		request.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: fmt.Sprintf("device.attributes[%q].model == %q", driver.Name, one(r, "H200", "A10")),
		}}}
	}
	return claim
}

// special has a claim ask for what the engine has no words for: all devices, one of several things, devices that go together, several shares that differ,
// on distinct devices, or a network card beside a share, or in its stead.
func special(r *rand.Rand, claim *resourceapi.ResourceClaim) {
	devices := &claim.Spec.Devices
	first := devices.Requests[0].Exactly
	of := func(compute int64, count int64) resourceapi.DeviceSubRequest {
		return resourceapi.DeviceSubRequest{
			Name: fmt.Sprint("choice-", compute), DeviceClassName: driver.Name, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
			Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
				driver.Compute: *resource.NewQuantity(compute, resource.DecimalSI), driver.Memory: resource.MustParse("1Gi"),
			}},
		}
	}
	model, uuid := resourceapi.FullyQualifiedName(driver.Name+"/model"), resourceapi.FullyQualifiedName(driver.Name+"/uuid")
	switch r.IntN(6) {
	case 4:
		first.Count = 1
		first.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{driver.Compute: *resource.NewQuantity(one[int64](r, 100, 300, 1000), resource.DecimalSI), driver.Memory: resource.MustParse("2Gi")}}
		devices.Requests = append(devices.Requests, deviceClaim(claim.Name, network).Spec.Devices.Requests...)
		if r.IntN(2) == 0 {
			same := resourceapi.FullyQualifiedName(pcieRoot)
			devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &same}}
		}
	case 5:
		card := resourceapi.DeviceSubRequest{Name: "card", DeviceClassName: network, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1}
		devices.Requests = []resourceapi.DeviceRequest{{Name: "any", FirstAvailable: []resourceapi.DeviceSubRequest{of(one[int64](r, 700, 1000), one[int64](r, 1, 3)), card}}}
	case 0:
		first.AllocationMode, first.Count = resourceapi.DeviceAllocationModeAll, 0
	case 1:
		devices.Requests = []resourceapi.DeviceRequest{{Name: "any", FirstAvailable: []resourceapi.DeviceSubRequest{of(one[int64](r, 700, 1000), one[int64](r, 1, 3)), of(one[int64](r, 100, 600), 1)}}}
	case 2:
		first.Count = 2
		first.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{driver.Compute: *resource.NewQuantity(one[int64](r, 501, 800), resource.DecimalSI), driver.Memory: resource.MustParse("2Gi")}}
		devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &model}}
	default:
		devices.Requests = nil
		for _, choice := range []resourceapi.DeviceSubRequest{of(one[int64](r, 100, 400), 1), of(one[int64](r, 200, 900), 1)} {
			devices.Requests = append(devices.Requests, resourceapi.DeviceRequest{Name: choice.Name, Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: driver.Name, AllocationMode: choice.AllocationMode, Count: 1, Capacity: choice.Capacity,
			}})
		}
		devices.Constraints = []resourceapi.DeviceConstraint{{DistinctAttribute: &uuid}}
	}
}

// machine is a node on which nothing but devices is scarce.
func machine(name string) *v1.Node {
	n := &v1.Node{}
	n.Name, n.Labels = name, map[string]string{host: name}
	n.Status.Allocatable = list("cpu", "64", "memory", "512Gi", "pods", "110")
	n.Status.Capacity = n.Status.Allocatable
	return n
}
