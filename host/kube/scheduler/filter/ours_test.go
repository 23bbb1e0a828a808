package filter

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	core "k8s.io/client-go/testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
	agent "github.com/aliquot-dev/aliquot/node"
)

// told says whether a pod is bound, or why it is not stands in its condition.
func (c *deviceCluster) told(name string) (bound bool, why string) {
	now := c.pod(name)
	for _, condition := range now.Status.Conditions {
		if condition.Type == v1.PodScheduled {
			why = condition.Message
		}
	}
	return now.Spec.NodeName != "", why
}

// either is a claim for the first of several devices, by their classes, that can be had.
func either(name string, classes ...string) *resourceapi.ResourceClaim {
	claim := deviceClaim(name)
	request := resourceapi.DeviceRequest{Name: "gpu"}
	for i, class := range classes {
		request.FirstAvailable = append(request.FirstAvailable, resourceapi.DeviceSubRequest{
			Name: fmt.Sprint("choice-", i), DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		})
	}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{request}
	return claim
}

// classOf is a class of devices by what matches all of these.
func classOf(name string, expressions ...string) *resourceapi.DeviceClass {
	class := deviceClass(name, "", "")
	class.Spec.Selectors = nil
	for _, one := range expressions {
		class.Spec.Selectors = append(class.Spec.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: one}})
	}
	return class
}

// However devices of ours are asked for, a pod is never bound before its claims are allocated (see bind): it runs with them, or is told why not.
func TestNeverBoundWithoutItsDevices(t *testing.T) {
	narrowed := deviceClaim("narrowed", "any")
	narrowed.Spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "` + driver.Name + `"`}}}
	for _, one := range []struct {
		claim *resourceapi.ResourceClaim
		runs  bool
		more  []runtime.Object
	}{
		{claim: either("alternatives", driver.Name), runs: true},
		{claim: either("ours-or-another", driver.Name, network), runs: true},
		{claim: deviceClaim("ours-and-another", driver.Name, network), runs: true},
		{claim: deviceClaim("ours-and-none", driver.Name, "nothing")},
		{claim: deviceClaim("single-quotes", "single"), runs: true, more: objects(classOf("single", "device.driver == '"+driver.Name+"'"))},
		{claim: deviceClaim("by-attribute", "attribute"), runs: true, more: objects(classOf("attribute", `device.attributes["`+driver.Name+`"].model in ["H200", "A10"]`))},
		{claim: deviceClaim("any-device", "any"), runs: true},
		{claim: narrowed, runs: true},
	} {
		t.Run(one.claim.Name, func(t *testing.T) {
			t.Parallel()
			there := append(deviceNodes(rand.New(rand.NewPCG(1, 1))), machine("more"), cards("more", 2))
			c := newDeviceCluster(t, append(there, one.more...)...)
			p := c.add(one.claim)
			until(t, "it is bound or told why not", func() bool {
				bound, why := c.told(p.Name)
				return bound || why != "" && !one.runs
			})
			if bound, why := c.told(p.Name); bound != one.runs {
				t.Errorf("it is bound: %t, want %t; it says %q", bound, one.runs, why)
			}
			c.sound(there, p.Name)
		})
	}
}

// has are the devices of a claim.
func (c *deviceCluster) has(name string) []resourceapi.DeviceRequestAllocationResult {
	c.Helper()
	stored, err := c.client.Tracker().Get(claimsResource, "default", name)
	if err != nil {
		c.Fatal(err)
	}
	if allocation := stored.(*resourceapi.ResourceClaim).Status.Allocation; allocation != nil {
		return allocation.Devices.Results
	}
	return nil
}

// gpus are a node's devices of ours.
func gpus(node string, many int) *resourceapi.ResourceSlice {
	gpus := slice(node, driver.Name)
	gpus.Spec.Devices = nil
	for k := range many {
		device := driver.Published(agent.Device{UUID: fmt.Sprintf("GPU-%s-%d", node, k), Index: k, Model: "H200", Memory: 80 << 30, Health: api.Healthy})
		device.Attributes[pcieRoot] = root(k)
		gpus.Spec.Devices = append(gpus.Spec.Devices, device)
	}
	return gpus
}

// Another driver's device is had in place of one of ours where there are none of these, and beside one that is called the same.
func TestCardInstead(t *testing.T) {
	alike := cards("a", 1)
	alike.Spec.Devices[0].Name = gpus("a", 1).Spec.Devices[0].Name
	for _, one := range []struct {
		claim *resourceapi.ResourceClaim
		there []runtime.Object
	}{
		{either("instead", driver.Name, network), objects(machine("a"), cards("a", 1))},
		{deviceClaim("alike", network, driver.Name), objects(machine("a"), gpus("a", 1), alike)},
	} {
		t.Run(one.claim.Name, func(t *testing.T) {
			t.Parallel()
			c := newDeviceCluster(t, append(one.there, deviceClass(driver.Name, driver.Name, ""), deviceClass(network, network, ""))...)
			p := c.add(one.claim)
			until(t, "it is bound", func() bool { bound, _ := c.told(p.Name); return bound })
		})
	}
}

// By a class of devices that does not say whose, a pod is given those that there are: of ours where nobody else's are left, a part of each but once for a
// claim, and none that somebody has. What waits has it when it comes free, and by what the class says then.
func TestAnyDriver(t *testing.T) {
	little := func(name string, classes ...string) *resourceapi.ResourceClaim {
		claim := deviceClaim(name, classes...)
		for i := range claim.Spec.Devices.Requests {
			request := &claim.Spec.Devices.Requests[i]
			request.Name = fmt.Sprint("part-", i)
			request.Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
				driver.Compute: *resource.NewQuantity(250, resource.DecimalSI), driver.Memory: resource.MustParse("1Gi"),
			}}
		}
		return claim
	}
	anyones := classOf("any")
	c := newDeviceCluster(t, anyones, deviceClass(driver.Name, driver.Name, ""), deviceClass(network, network, ""), machine("a"), gpus("a", 2), cards("a", 1))
	bound := func(name string, of ...string) {
		t.Helper()
		until(t, name+" is bound", func() bool { bound, _ := c.told(name); return bound })
		c.sound(nil, name)
		var has []string
		for _, one := range c.has(name) {
			has = append(has, one.Driver)
		}
		if slices.Sort(has); len(of) > 0 && !slices.Equal(has, of) {
			t.Errorf("%s has devices of %q, want %q", name, has, of)
		}
	}
	waits := func(name, want string) {
		t.Helper()
		until(t, name+" is told "+want, func() bool { _, why := c.told(name); return strings.Contains(why, want) })
	}
	c.add(little("parts", "any", "any"))
	bound("parts", driver.Name, driver.Name) // not both of one
	c.add(deviceClaim("card", "any"))
	bound("card", network)
	c.add(deviceClaim("whole", "any"))
	waits("whole", "devices of several drivers would do for it, and so is placed beside those in line: no node that takes it has such devices free")
	c.add(little("ours", driver.Name))
	bound("ours", driver.Name)
	c.remove("card")
	bound("whole", network)
	c.add(deviceClaim("second", "any"))
	waits("second", "no node that takes it has such devices free")
	c.remove("parts")
	bound("second", driver.Name)
	c.add(deviceClaim("third", "any"))
	waits("third", "no node that takes it has such devices free")
	c.remove("ours")
	c.remove("whole")
	bound("third")
	says := func(selectors []resourceapi.DeviceSelector) {
		t.Helper()
		class := anyones.DeepCopy()
		class.Spec.Selectors = selectors
		c.mu.Lock()
		c.next(class)
		err := c.client.Tracker().Update(resourceapi.SchemeGroupVersion.WithResource("deviceclasses"), class, "")
		c.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
	}
	c.add(deviceClaim("fourth", "any"))
	bound("fourth")
	c.add(deviceClaim("fifth", "any"))
	waits("fifth", "no node that takes it has such devices free")
	says(deviceClass("", network, "").Spec.Selectors)
	waits("fifth", "cannot allocate all claims")
	for _, name := range []string{"second", "third", "fourth"} {
		c.remove(name)
	}
	bound("fifth", network)
	c.add(deviceClaim("sixth", "any"))
	waits("sixth", "cannot allocate all claims")
	says(nil)
	bound("sixth", driver.Name)
	c.remove("fifth")
	mixed := little("mixed", "any", "any", "any") // two parts and a card: what is given twice of a device of ours is asked to be another, not the rest
	mixed.Spec.Devices.Requests[2].Exactly.Capacity = nil
	c.remove("sixth")
	c.add(mixed)
	bound("mixed", driver.Name, driver.Name, network)
}

// A pod's claims, each for a part, may have parts of one device, where no node has one for each.
func TestClaimsOfOneDevice(t *testing.T) {
	c := newDeviceCluster(t, deviceClass(driver.Name, driver.Name, ""), machine("a"), gpus("a", 1))
	p := pod("p", func(p *v1.Pod) { p.Spec.SchedulerName = scheduler.Name })
	for _, name := range []string{"first", "second"} {
		claim := deviceClaim(name, driver.Name)
		claim.Spec.Devices.Requests[0].Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
			driver.Compute: *resource.NewQuantity(250, resource.DecimalSI), driver.Memory: resource.MustParse("1Gi"),
		}}
		c.create(claimsResource, claim)
		uses(name)(p)
	}
	c.create(podsResource, p)
	until(t, "it is bound", func() bool { bound, _ := c.told(p.Name); return bound })
	if first, second := c.has("first"), c.has("second"); len(first) != 1 || len(second) != 1 || first[0].Device != second[0].Device {
		t.Errorf("its claims have %+v and %+v, want a part of the one device each", first, second)
	}
}

// A pod's claim for a card beside a share leaves the card that another claim of the pod needs, which the filters allocate.
func TestCardLeftForAnotherClaim(t *testing.T) {
	c := newDeviceCluster(t, deviceClass(driver.Name, driver.Name, ""), deviceClass(network, network, ""), machine("a"), gpus("a", 1), cards("a", 2))
	first := deviceClaim("first", driver.Name, network)
	second := deviceClaim("second", network)
	second.Spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
		Expression: `device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:00"`, // the card that comes first
	}}}
	p := pod("p", uses("first"), uses("second"), func(p *v1.Pod) { p.Spec.SchedulerName = scheduler.Name })
	c.create(claimsResource, first)
	c.create(claimsResource, second)
	c.create(podsResource, p)
	until(t, "it is bound", func() bool { bound, _ := c.told(p.Name); return bound })
	c.sound(nil, "first")
}

// Many pods at once want network cards, alone and beside a share of ours in the same claim: no card is handed out twice, none is left while a pod waits for
// one, and who waits has it once another goes.
func TestCardsBesideShares(t *testing.T) {
	there := objects(deviceClass(driver.Name, driver.Name, ""), deviceClass(network, network, ""))
	const nodes, cardsEach, pods = 3, 4, 30
	for i := range nodes {
		name := fmt.Sprint("n", i)
		there = append(there, machine(name), gpus(name, 2), cards(name, cardsEach))
	}
	c := newDeviceCluster(t, there...)
	var names []string
	for i := range pods {
		claim := deviceClaim(fmt.Sprint("p", i), network)
		if i%2 == 0 {
			same := resourceapi.FullyQualifiedName(pcieRoot)
			claim = deviceClaim(fmt.Sprint("p", i), driver.Name, network)
			claim.Spec.Devices.Requests[0].Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
				driver.Compute: *resource.NewQuantity(200, resource.DecimalSI), driver.Memory: resource.MustParse("1Gi"),
			}}
			claim.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &same}}
		}
		names = append(names, c.add(claim).Name)
	}
	running := func() (all []string) {
		for _, name := range names {
			if c.pod(name).Spec.NodeName != "" {
				all = append(all, name)
			}
		}
		return all
	}
	for len(names) > 0 {
		want := min(len(names), nodes*cardsEach)
		until(t, fmt.Sprintf("%d pods have cards", want), func() bool { return len(running()) == want })
		for _, name := range running() {
			c.sound(there, name)
			c.remove(name)
			names = slices.DeleteFunc(names, func(n string) bool { return n == name })
		}
	}
}

// What of another driver's devices was held for a claim whose allocation the API server does not take is free again.
func TestCardGivenBack(t *testing.T) {
	there := objects(deviceClass(driver.Name, driver.Name, ""), deviceClass(network, network, ""), machine("a"), gpus("a", 1), cards("a", 1))
	c := newDeviceCluster(t, there...)
	refused := make(chan struct{})
	var refuses atomic.Bool
	refuses.Store(true)
	var once sync.Once
	c.client.PrependReactor("update", "resourceclaims", func(action core.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "status" || !refuses.Load() {
			return false, nil, nil
		}
		once.Do(func() { close(refused) })
		return true, nil, apierrors.NewForbidden(resourceapi.Resource("resourceclaims"), "p", errors.New("not now"))
	})
	c.add(deviceClaim("p", driver.Name, network))
	<-refused
	until(t, "it is told that it could not be written", func() bool { _, why := c.told("p"); return strings.Contains(why, "not now") })
	refuses.Store(false)
	until(t, "it has the card", func() bool { bound, _ := c.told("p"); return bound })
	c.sound(there, "p")
}
