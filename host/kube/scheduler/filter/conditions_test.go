package filter

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	core "k8s.io/client-go/testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
	agent "github.com/aliquot-dev/aliquot/node"
)

const (
	attached = "net.example/attached"
	failed   = "net.example/failed"
)

// fabric are two cards that nodes reach once they are attached.
func fabric() *resourceapi.ResourceSlice {
	all := true
	far := cards("far", 2)
	far.Spec.NodeName, far.Spec.AllNodes = nil, &all
	for k := range far.Spec.Devices {
		device := &far.Spec.Devices[k]
		device.BindsToNode, device.BindingConditions, device.BindingFailureConditions = &all, []string{attached}, []string{failed}
	}
	return far
}

// shareAndCard asks for a part of a device of ours and a network card.
func shareAndCard(name string) *resourceapi.ResourceClaim {
	claim := deviceClaim(name, driver.Name, network)
	claim.Spec.Devices.Requests[0].Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
		driver.Compute: *resource.NewQuantity(300, resource.DecimalSI), driver.Memory: resource.MustParse("1Gi"),
	}}
	return claim
}

// onFabric is a cluster of a node with a device of ours, the cards, and more.
func onFabric(t *testing.T, more ...runtime.Object) *deviceCluster {
	gpus := slice("a", driver.Name)
	gpus.Spec.Devices[0] = driver.Published(agent.Device{UUID: "GPU-a-0", Model: "H200", Memory: 80 << 30, Health: api.Healthy})
	c := newDeviceCluster(t, append(more, machine("a"), deviceClass(driver.Name, driver.Name, ""), deviceClass(network, network, ""), gpus, fabric())...)
	c.mu.Lock()
	c.late = true
	c.mu.Unlock()
	return c
}

// report says in a claim's status that a condition holds of those of its devices that need some.
func report(claim *resourceapi.ResourceClaim, condition string) {
	if claim.Status.Allocation == nil || len(claim.Status.Devices) > 0 {
		return
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		if len(r.BindingConditions) > 0 {
			claim.Status.Devices = append(claim.Status.Devices, resourceapi.AllocatedDeviceStatus{
				Driver: r.Driver, Pool: r.Pool, Device: r.Device,
				Conditions: []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, Reason: "Test", Message: "as the test has it", LastTransitionTime: metav1.Now()}},
			})
		}
	}
}

// allocated waits until a claim is allocated anew, with no word of its driver yet.
func (c *deviceCluster) allocated(name string) (claim *resourceapi.ResourceClaim) {
	c.Helper()
	until(c.T, name+" is allocated", func() bool {
		stored, err := c.client.Tracker().Get(claimsResource, "default", name)
		if err != nil {
			c.Fatal(err)
		}
		claim = stored.(*resourceapi.ResourceClaim)
		return claim.Status.Allocation != nil && len(claim.Status.Devices) == 0
	})
	return claim
}

// reports has the cards' driver say of a claim's card that a condition holds.
func (c *deviceCluster) reports(name, condition string) {
	c.Helper()
	claim := c.allocated(name).DeepCopy()
	report(claim, condition)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next(claim)
	if err := c.client.Tracker().Update(claimsResource, claim, "default"); err != nil {
		c.Fatal(err)
	}
}

// pending waits until a pod's event says that it waits for its devices.
func (c *deviceCluster) pending(name string) {
	c.Helper()
	until(c.T, name+" is told that it waits for its devices", func() bool {
		events, err := c.client.CoreV1().Events("default").List(background, metav1.ListOptions{})
		if err != nil {
			c.Fatal(err)
		}
		return slices.ContainsFunc(events.Items, func(e v1.Event) bool {
			return e.InvolvedObject.Name == name && e.Reason == "BindingConditionsPending" && e.Source.Component == scheduler.Name
		})
	})
}

// A pod whose devices can be used only some time after they are allocated is bound then, and not before; where they cannot, others are looked for. So it is with a
// claim for such a device alone, which the filters see to, and with one for a share beside it, which our scheduler does.
func TestBindingConditions(t *testing.T) {
	for name, claim := range map[string]func(string) *resourceapi.ResourceClaim{
		"alone":  func(name string) *resourceapi.ResourceClaim { return deviceClaim(name, network) },
		"beside": shareAndCard,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := onFabric(t)
			c.add(claim("one"))
			c.pending("one")
			given := c.allocated("one").Status.Allocation
			last := given.Devices.Results[len(given.Devices.Results)-1]
			if given.AllocationTimestamp == nil || !slices.Equal(last.BindingConditions, []string{attached}) {
				t.Errorf("it is allocated as %+v", given)
			}
			if on := c.pod("one").Spec.NodeName; on != "" {
				t.Fatalf("it is bound to %s before its card is attached", on)
			}
			c.reports("one", failed)
			c.reports("one", attached) // once it is allocated anew
			until(t, "it is bound", func() bool { return c.pod("one").Spec.NodeName == "a" })
		})
	}
}

// A pod that a scheduler before this one left with a claim of which a device could not be used within its ten minutes gives it back, and has another.
func TestTooLate(t *testing.T) {
	for name, claim := range map[string]*resourceapi.ResourceClaim{"alone": deviceClaim("one", network), "beside": shareAndCard("one")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := onFabric(t)
			long := metav1.NewTime(time.Now().Add(-11 * time.Minute))
			share := types.UID("share")
			given := &resourceapi.AllocationResult{AllocationTimestamp: &long, NodeSelector: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"a"}}},
			}}}}
			for _, request := range claim.Spec.Devices.Requests {
				result := resourceapi.DeviceRequestAllocationResult{
					Request: request.Name, Driver: network, Pool: "far", Device: "card-far-0", BindingConditions: []string{attached}, BindingFailureConditions: []string{failed},
				}
				if request.Exactly.DeviceClassName == driver.Name {
					result = resourceapi.DeviceRequestAllocationResult{
						Request: request.Name, Driver: driver.Name, Pool: "a", Device: c.offered().Name, ShareID: &share, ConsumedCapacity: request.Exactly.Capacity.Requests,
					}
				}
				given.Devices.Results = append(given.Devices.Results, result)
			}
			claim.Status.Allocation, claim.Finalizers = given, []string{resourceapi.Finalizer}
			claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "one", UID: "one"}}
			c.add(claim)
			until(t, "it is allocated anew", func() bool {
				now := c.allocated("one").Status.Allocation.AllocationTimestamp
				return now != nil && now.After(long.Time)
			})
			c.reports("one", attached)
			until(t, "it is bound", func() bool { return c.pod("one").Spec.NodeName == "a" })
		})
	}
}

// offered is the device of ours that onFabric has.
func (c *deviceCluster) offered() resourceapi.Device {
	c.Helper()
	slices, err := c.client.ResourceV1().ResourceSlices().List(background, metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	for _, slice := range slices.Items {
		if slice.Spec.Driver == driver.Name {
			return slice.Spec.Devices[0]
		}
	}
	c.Fatal("no device of ours is offered")
	return resourceapi.Device{}
}

// A pod that is deleted while its devices are waited for gives them back.
func TestDeletedWhilePending(t *testing.T) {
	c := onFabric(t)
	claim := shareAndCard("one")
	claim.Spec.Devices.Requests[0].Exactly.Capacity.Requests[driver.Compute] = *resource.NewQuantity(1000, resource.DecimalSI)
	c.add(claim)
	c.pending("one")
	c.remove("one")
	c.add(shareAndCard("two"))
	c.pending("two")
	c.reports("two", attached)
	until(t, "another has what it held", func() bool { return c.pod("two").Spec.NodeName == "a" })
}

// A pod that is deleted while its card is waited for, which it has by a claim of its own beside one for a share, leaves both at once to the next that names them.
func TestDeletedWhilePendingBeside(t *testing.T) {
	c := onFabric(t)
	share := deviceClaim(common+"share", driver.Name)
	share.Spec.Devices.Requests = shareAndCard("").Spec.Devices.Requests[:1]
	card := deviceClaim(common+"card", network)
	c.create(claimsResource, share)
	c.create(claimsResource, card)
	both := func(name string) *v1.Pod {
		return pod(name, uses(share.Name), uses(card.Name), func(p *v1.Pod) { p.Spec.SchedulerName = scheduler.Name })
	}
	one := both("one")
	c.create(podsResource, one)
	c.pending("one")
	c.leave(one)
	c.create(podsResource, both("two"))
	c.pending("two")
	c.reports(card.Name, attached)
	until(t, "the next runs", func() bool { return c.pod("two").Spec.NodeName == "a" })
}

// Where what a pod waits for fails, its other claims do not keep it to the node where it was to run: they are given back, too.
func TestAllIsGivenBack(t *testing.T) {
	c := onFabric(t, deviceClass("near.example", "near.example", ""), slice("a", "near.example"))
	c.create(claimsResource, deviceClaim("near", "near.example"))
	c.create(claimsResource, shareAndCard("one"))
	c.create(podsResource, pod("one", uses("one"), uses("near"), func(p *v1.Pod) { p.Spec.SchedulerName = scheduler.Name }))
	c.pending("one")
	c.reports("one", failed)
	until(t, "the claim of the third driver is given back", func() bool {
		return slices.ContainsFunc(c.client.Actions(), func(a core.Action) bool {
			update, is := a.(core.UpdateActionImpl)
			if !is || a.GetSubresource() != "status" {
				return false
			}
			claim, is := update.GetObject().(*resourceapi.ResourceClaim)
			return is && claim.Name == "near" && claim.Status.Allocation == nil
		})
	})
	c.reports("one", attached)
	until(t, "it runs", func() bool { return c.pod("one").Spec.NodeName == "a" })
}

// A claim of another driver that is left allocated for a node which does not take its pod is given back, and allocated for another.
func TestLeftElsewhere(t *testing.T) {
	claim := deviceClaim("one", network)
	claim.Status.Allocation = &resourceapi.AllocationResult{
		NodeSelector: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"a"}}}}}},
		Devices:      resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{Request: "net", Driver: network, Pool: "a", Device: "device-0"}}},
	}
	full := machine("a")
	full.Spec.Unschedulable = true
	c := newDeviceCluster(t, full, machine("b"), deviceClass(driver.Name, driver.Name, ""), deviceClass(network, network, ""), slice("a", network), slice("b", network))
	c.add(claim)
	until(t, "it runs elsewhere", func() bool { return c.pod("one").Spec.NodeName == "b" })
}
