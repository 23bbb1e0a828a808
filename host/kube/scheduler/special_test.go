package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

// devicesOf are the devices that a pod's claim was given, in the order of its requests.
func (c *cluster) devicesOf(name string) (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	claim := c.find("default/" + name + "-share")
	if claim == nil || claim.Status.Allocation == nil {
		return nil
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		compute, _ := consumed(r)
		all = append(all, fmt.Sprintf("%s:%s %d", r.Request, deviceID(r.Pool, r.Device), compute))
	}
	return all
}

// requests are what a claim asks for.
func requests(of ...resourceapi.DeviceRequest) func(*corev1.Pod, *resourceapi.ResourceClaim) {
	return func(_ *corev1.Pod, claim *resourceapi.ResourceClaim) { claim.Spec.Devices.Requests = of }
}

// part is a request of a number of equal parts.
func part(name string, compute, count int64, changes ...func(*resourceapi.ExactDeviceRequest)) resourceapi.DeviceRequest {
	r := claimFor("", compute).Spec.Devices.Requests[0]
	r.Name, r.Exactly.Count = name, count
	for _, change := range changes {
		change(r.Exactly)
	}
	return r
}

// numbered selects devices by a condition on their number on their node.
func numbered(is string) func(*resourceapi.ExactDeviceRequest) {
	return func(r *resourceapi.ExactDeviceRequest) {
		r.Selectors = append(r.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: `device.attributes["` + driver.Name + `"].number ` + is}})
	}
}

func all(r *resourceapi.ExactDeviceRequest) {
	r.AllocationMode, r.Count = resourceapi.DeviceAllocationModeAll, 0
}

// choice is a request with alternatives.
func choice(name string, of ...resourceapi.DeviceRequest) resourceapi.DeviceRequest {
	r := resourceapi.DeviceRequest{Name: name}
	for _, one := range of {
		r.FirstAvailable = append(r.FirstAvailable, resourceapi.DeviceSubRequest{
			Name: one.Name, DeviceClassName: one.Exactly.DeviceClassName, Selectors: one.Exactly.Selectors, AllocationMode: one.Exactly.AllocationMode,
			Count: one.Exactly.Count, Capacity: one.Exactly.Capacity,
		})
	}
	return r
}

// What the engine has no words for is had all the same, from its books: beside its own grants, on devices as the claim says.
func TestSpecial(t *testing.T) {
	match := resourceapi.FullyQualifiedName(driver.Name + "/half")
	for _, one := range []struct {
		name string
		ask  func(*corev1.Pod, *resourceapi.ResourceClaim)
		want []string // of device 0 of the only node 600 thousandths are taken
	}{
		{"all", requests(part("gpu", 300, 0, all)), []string{"gpu:a/gpu-0 300", "gpu:a/gpu-1 300", "gpu:a/gpu-2 300", "gpu:a/gpu-3 300"}},
		{"all that match", requests(part("gpu", 1000, 0, all, numbered(">= 2"))), []string{"gpu:a/gpu-2 1000", "gpu:a/gpu-3 1000"}},
		{"that differ", requests(part("large", 900, 1), part("small", 100, 1)), []string{"large:a/gpu-1 900", "small:a/gpu-0 100"}},
		{"selected differently", requests(part("one", 300, 1, numbered("== 3")), part("two", 300, 1, numbered("== 1"))), []string{"one:a/gpu-3 300", "two:a/gpu-1 300"}},
		{"matching", func(_ *corev1.Pod, claim *resourceapi.ResourceClaim) {
			claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{part("gpu", 500, 2)}
			claim.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &match}}
		}, []string{"gpu:a/gpu-2 500", "gpu:a/gpu-3 500"}},
		{"first choice", requests(choice("gpu", part("one", 500, 1), part("many", 100, 3))), []string{"gpu/one:a/gpu-1 500"}},
		{"second choice", requests(choice("gpu", part("four", 500, 4), part("three", 500, 3))), []string{"gpu/three:a/gpu-1 500", "gpu/three:a/gpu-2 500", "gpu/three:a/gpu-3 500"}},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.device = func(_ string, i int, d *resourceapi.Device) {
				half := int64(i / 2)
				d.Attributes["half"] = resourceapi.DeviceAttribute{IntValue: &half}
			}
			c.node("a", 4)
			s, end := c.run()
			c.pod("before", 600)
			c.runs("before")
			c.pod("p", 1, one.ask)
			c.runs("p")
			if got := c.devicesOf("p"); !slices.Equal(got, one.want) {
				t.Errorf("it has %q, want %q", got, one.want)
			}
			c.sound(s)
			end()
			s, _ = c.run() // the next one finds what it holds
			c.sound(s)
			c.remove("p")
			c.pod("after", 1000, requests(part("gpu", 1000, 3)))
			c.runs("after")
			c.sound(s)
		})
	}
}

// What is not free is waited for, with why, and had when it comes free; a claim that cannot be had is said to be.
func TestSpecialWaits(t *testing.T) {
	c := newCluster(t)
	c.node("a", 2)
	s, _ := c.run()
	c.pod("before", 600)
	c.runs("before")
	c.pod("p", 1, requests(part("one", 500, 1), part("two", 600, 1)))
	c.says("p", "it asks for shares that differ, and so is placed beside those in line: no node that takes it has such devices free")
	c.sound(s)
	c.remove("before")
	c.runs("p")
	c.sound(s)
	c.pod("ceiling", 1, requests(part("one", 100, 1), part("two", 200, 1)), func(_ *corev1.Pod, claim *resourceapi.ResourceClaim) {
		claim.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver.Name, Parameters: runtime.RawExtension{
				Raw: []byte(`{"apiVersion":"aliquot.dev/v1alpha1","kind":"ShareConfig","ceiling":{"compute":"0.15"}}`),
			}},
		}}}
	})
	c.says("ceiling", "its compute ceiling 0.15 is below its floor 0.20")
}

// While claims are written for many pods at once, those of the engine and those beside it, no device is given twice, whatever fails.
func TestSpecialAmongOthers(t *testing.T) {
	c := newCluster(t)
	for _, name := range []string{"a", "b", "c"} {
		c.node(name, 2)
	}
	writes := 0
	c.fails = func(string) fault {
		writes++
		return []fault{none, none, none, lostly, none, after, none, before, none}[writes%9]
	}
	s, _ := c.run()
	var names []string
	for i := range 6 {
		plain, special := fmt.Sprint("plain-", i), fmt.Sprint("special-", i)
		c.pod(plain, 300)
		c.pod(special, 1, requests(part("one", 250, 1), part("two", 150, 1)))
		names = append(names, plain, special)
	}
	c.runs(names...)
	c.sound(s)
	c.leavesNothing(s, names...)
}

// A queue's limit holds for what is placed beside the engine, too, and its pod is told so.
func TestSpecialInQueue(t *testing.T) {
	c := newQueueCluster(t, "team")
	c.set(v1alpha1.Queues, "team", `{"limit":{"compute":"0.5"}}`)
	c.node("a", 2)
	s, _ := c.run()
	c.pod("large", 1, requests(part("one", 250, 1), part("two", 300, 1)))
	c.says("large", "it asks for 0.55 devices in queue team, which has a limit of 0.5")
	c.pod("small", 1, requests(part("one", 250, 1), part("two", 200, 1)))
	c.runs("small")
	c.sound(s)
	if on := c.on("large"); on != "" {
		t.Errorf("it runs on %s", on)
	}
}

// Where the API server knows of no shares, devices are handed out whole: one each, none twice, also by the next scheduler; who asks for a part is told
// why it waits.
func TestWholeDevicesAlone(t *testing.T) {
	c := newCluster(t)
	c.device = func(_ string, _ int, d *resourceapi.Device) { d.AllowMultipleAllocations = nil }
	c.node("a", 2)
	whole := func(_ *corev1.Pod, claim *resourceapi.ResourceClaim) {
		claim.Spec.Devices.Requests[0].Exactly.Capacity = nil
		claim.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver.Name, Parameters: runtime.RawExtension{
				Raw: []byte(`{"apiVersion":"aliquot.dev/v1alpha1","kind":"ShareConfig","ceiling":{"compute":"0.80","memory":"8Gi"}}`), // which says nothing then
			}},
		}}}
	}
	failed := false
	c.fails = func(write string) fault { // so that one is taken back
		if write == "bind pods" && !failed {
			failed = true
			return before
		}
		return none
	}
	s, end := c.run()
	c.pod("one", 0, whole)
	c.pod("two", 0, whole)
	c.pod("part", 250)
	c.runs("one", "two")
	for _, name := range []string{"one", "two"} {
		for _, r := range c.find("default/" + name + "-share").Status.Allocation.Devices.Results {
			if r.ShareID != nil || r.ConsumedCapacity != nil {
				t.Errorf("%s has %+v, which its API server drops", name, r)
			}
		}
	}
	c.pod("three", 0, whole)
	c.says("part", "its devices are handed out whole alone")
	c.sound(s)
	end()
	s, _ = c.run()
	c.sound(s)
	if on := c.on("three"); on != "" {
		t.Errorf("it runs on %s, where both devices are taken", on)
	}
	c.remove("one")
	c.runs("three")
	c.sound(s)
	c.pod("pair", 1, requests(resourceapi.DeviceRequest{Name: "all", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: driver.Name, AllocationMode: resourceapi.DeviceAllocationModeAll}}))
	c.remove("two")
	c.remove("three")
	c.runs("pair")
	if got := c.devicesOf("pair"); len(got) != 2 || !strings.Contains(got[1], "a/gpu-1") {
		t.Errorf("it has %q", got)
	}
	c.sound(s)
}

// Several devices by annotations are to be distinct, and say so by a constraint that the engine keeps anyway.
func TestDistinctByUUID(t *testing.T) {
	c := newCluster(t)
	c.node("a", 2)
	s, _ := c.run()
	uuid := resourceapi.FullyQualifiedName(driver.Name + "/uuid")
	c.pod("p", 1, requests(part("gpu", 400, 2)), func(_ *corev1.Pod, claim *resourceapi.ResourceClaim) {
		claim.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{Requests: []string{"gpu"}, DistinctAttribute: &uuid}}
	})
	c.runs("p")
	if got := c.devicesOf("p"); !slices.Equal(got, []string{"gpu:a/gpu-0 400", "gpu:a/gpu-1 400"}) {
		t.Errorf("it has %q", got)
	}
	c.idle(s, func() {
		if w := s.pods["pod-p"].task.work; w.action == 0 {
			t.Error("it was placed beside the line")
		}
	})
}

// A pod that is placed beside the line and lacks CPU alone is nominated for a node where its devices can be had and its queue lets it have them, those of
// lower priority and without devices are evicted there, and it runs there once they are gone.
func TestMakesRoomForSpecial(t *testing.T) {
	ask := requests(choice("gpu", part("one", 700, 1), part("two", 400, 2)))
	for name, test := range map[string]struct {
		priority int32
		ask      func(*corev1.Pod, *resourceapi.ResourceClaim)
		budget   bool
		victim   bool
	}{
		"room":                   {9, ask, false, true},
		"same priority":          {1, ask, false, false},
		"no devices":             {9, requests(part("large", 950, 1), part("small", 900, 1)), false, false},
		"its queue is full":      {9, requests(choice("gpu", part("one", 850, 1))), false, false},
		"budgets do not let one": {9, ask, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newQueueCluster(t, "org")
			c.set(v1alpha1.Queues, "org", `{"limit":{"compute":"0.8"}}`)
			c.node("a", 1)
			c.node("b", 1)
			s, _ := c.run()
			if test.budget {
				c.budget("web", 0)
			}
			web := func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": "web"} }
			c.ordinary("low", "6", 1, web)
			c.ordinary("lower", "6", 1, web)
			c.runs("low", "lower")
			c.pod("high", 1, needing("5", test.priority), test.ask)
			c.says("high", "is placed beside those in line")
			if test.budget {
				c.hears("high", "NotEvicted", "disruption budget")
			}
			if !test.victim {
				if !test.budget && test.priority > 1 {
					c.looked(s, "high")
				}
				c.stays(s, "high")
				return
			}
			victim := c.ending(1)[0]
			on := c.on(victim)
			c.eventually("it is nominated", func() bool { return c.nominated("high") == on })
			c.ordinary("late", "4", 0)
			c.says("late", "too little cpu")
			c.stays(s, "high") // while it ends
			c.remove(victim)
			c.runs("high")
			if c.on("high") != on {
				t.Errorf("it runs on %s, and others went for it from %s", c.on("high"), on)
			}
			c.stays(s, "late")
		})
	}
}

// Where a node opened while devices were looked for on others, nobody is evicted before they were looked for there, too.
func TestOpenedMeanwhile(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	c.ordinary("low", "6", 1)
	s, _ := c.run()
	c.runs("low")
	c.pod("high", 1, needing("5", 9), requests(choice("gpu", part("one", 700, 1), part("two", 400, 2))))
	c.ending(1)
	c.idle(s, func() {
		var p *pod
		for _, o := range s.pods {
			if o.object.Name == "high" {
				p = o
			}
		}
		if p.beside == nil {
			t.Error("it does not wait")
			return
		}
		for _, test := range []struct{ opened, again, seeks bool }{{true, true, false}, {true, true, true}, {true, true, false}, {false, false, true}} {
			s.leaveBeside(p)
			p.seeking.under, p.seeking.tries, p.seeking.due = false, 0, s.config.Now()
			a, err := s.askOf(p)
			if err != nil {
				t.Error(err)
				return
			}
			f := s.partyOf(p, a)
			f.since, f.seats[0].class.stale = s.news(f), false
			if test.opened {
				f.seats[0].class.opened++
			}
			s.awaitDevices(f, f.seats[0], errNoDevices)
			if p.beside.stale != test.again || p.seeking.under != test.seeks {
				t.Errorf("a node opened: %v; it is looked at again: %v, and others are to be evicted for it: %v", test.opened, p.beside.stale, p.seeking.under)
			}
		}
	})
}
