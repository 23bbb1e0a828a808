package filter

import (
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/aliquot-dev/aliquot/host/kube/driver"
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

// However devices of ours are asked for, a pod is never bound before its claims are allocated (see bind): it runs with them, or is told why not.
func TestNeverBoundWithoutItsDevices(t *testing.T) {
	selects := func(name string, expressions ...string) *resourceapi.DeviceClass {
		class := deviceClass(name, "", "")
		class.Spec.Selectors = nil
		for _, one := range expressions {
			class.Spec.Selectors = append(class.Spec.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: one}})
		}
		return class
	}
	either := func(name string, classes ...string) *resourceapi.ResourceClaim {
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
	narrowed := deviceClaim("narrowed", "any")
	narrowed.Spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "` + driver.Name + `"`}}}
	for _, one := range []struct {
		claim *resourceapi.ResourceClaim
		runs  bool
		more  []runtime.Object
	}{
		{claim: either("alternatives", driver.Name), runs: true},
		{claim: either("ours-or-another", driver.Name, "net.example")},
		{claim: deviceClaim("single-quotes", "single"), runs: true, more: objects(selects("single", "device.driver == '"+driver.Name+"'"))},
		{claim: deviceClaim("by-attribute", "attribute"), runs: true, more: objects(selects("attribute", `device.attributes["`+driver.Name+`"].model in ["H200", "A10"]`))},
		{claim: deviceClaim("any-device", "any"), more: objects(selects("any"))},
		{claim: narrowed, runs: true, more: objects(selects("any"))},
	} {
		t.Run(one.claim.Name, func(t *testing.T) {
			t.Parallel()
			there := append(deviceNodes(rand.New(rand.NewPCG(1, 1))), deviceClass("net.example", "net.example", ""))
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
