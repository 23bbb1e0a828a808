package filter

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	core "k8s.io/client-go/testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
	agent "github.com/aliquot-dev/aliquot/node"
)

// card is a resource by which limits ask for another driver's cards.
const card = "example.com/card"

// Beside a share a limit of another driver's device is had as the stock scheduler has it: on a node that counts such a resource, of what it counts; on one
// that counts none, of its devices, once a device class gives itself that name.
func TestLimitBesideShare(t *testing.T) {
	counting := machine("counts")
	counting.Status.Allocatable[card] = list("n", "1")["n"]
	there := []runtime.Object{counting, machine("offers"), deviceClass(driver.Name, driver.Name, ""), slice("offers", network)}
	for _, name := range []string{"counts", "offers"} {
		gpus := slice(name, driver.Name)
		gpus.Spec.Devices[0] = driver.Published(agent.Device{UUID: "GPU-" + name, Model: "H200", Memory: 80 << 30, Health: api.Healthy})
		there = append(there, gpus)
	}
	c := newDeviceCluster(t, there...)
	add := func(name string) {
		share := deviceClaim(name, driver.Name)
		share.Spec.Devices.Requests = shareAndCard("").Spec.Devices.Requests[:1]
		c.create(claimsResource, share)
		c.create(podsResource, pod(name, uses(name), asks(card, "1"), func(p *v1.Pod) { p.Spec.SchedulerName = scheduler.Name }))
	}
	runsOn := func(name, node string) {
		t.Helper()
		until(t, name+" runs", func() bool { return c.pod(name).Spec.NodeName != "" })
		if on := c.pod(name).Spec.NodeName; on != node {
			t.Errorf("%s runs on node %s, and not on %s", name, on, node)
		}
	}
	waits := func(name string) {
		t.Helper()
		until(t, name+" is told why it waits", func() bool {
			bound, why := c.told(name)
			return bound || why != ""
		})
		if on := c.pod(name).Spec.NodeName; on != "" {
			t.Errorf("%s runs on node %s, which has no card for it", name, on)
		}
	}
	add("first")
	runsOn("first", "counts")
	add("second")
	waits("second")
	if _, err := c.client.ResourceV1().DeviceClasses().Create(background, deviceClass(network, network, card), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	runsOn("second", "offers")
	add("third")
	waits("third")
}

// Forget frees at once what was reserved, and writes nothing, whatever PreBind wrote: it is called where nobody may wait for the API server.
func TestForgetWritesNothing(t *testing.T) {
	for name, first := range map[string]*v1.Pod{"claim": pod("first", uses("nic")), "limit": pod("first", asks(card, "1"))} {
		t.Run(name, func(t *testing.T) {
			cluster := []runtime.Object{deviceClass("net.example", "net.example", card), slice("b", "net.example"), deviceClaim("nic", "net.example"), deviceClaim("other", "net.example")}
			second := pod("second", uses("other"))
			f, client := over(t, scene(append(cluster, first, second)...)...)
			client.PrependReactor("create", "resourceclaims", func(action core.Action) (bool, runtime.Object, error) {
				about, err := meta.Accessor(action.(core.CreateActionImpl).GetObject())
				if err == nil {
					named(about, 1)
					about.SetResourceVersion("1")
				}
				return false, nil, err
			})
			if err := f.Assume(first, "b"); err != nil {
				t.Fatal(err)
			}
			is(t, "while the card is reserved", nodesOf(t, f, second))
			f.Forget(first)
			is(t, "when it is not", nodesOf(t, f, second), "b")
			if err := f.Assume(first, "b"); err != nil {
				t.Fatal(err)
			}
			if err := f.PreBind(background, first); err != nil {
				t.Fatal(err)
			}
			before := len(client.Actions())
			f.Forget(first)
			for _, action := range client.Actions()[before:] {
				if action.GetResource() == claimsResource && action.GetVerb() != "list" && action.GetVerb() != "watch" {
					t.Errorf("it writes: %s %s", action.GetVerb(), action.GetSubresource())
				}
			}
		})
	}
}
