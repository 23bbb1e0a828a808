package filter

import (
	"fmt"
	"math/rand/v2"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
	agent "github.com/aliquot-dev/aliquot/node"
)

// network is another driver.
const network = "net.example"

// pcieRoot is Kubernetes' own name for what devices that go together are alike in.
const pcieRoot = "resource.kubernetes.io/pcieRoot"

// deviceNodes are nodes with devices, mostly alike on each, of which few take nothing new, and network cards beside some, and their classes.
func deviceNodes(r *rand.Rand) []runtime.Object {
	made := append(untold(), deviceClass(driver.Name, driver.Name, ""), deviceClass(network, network, ""))
	for i := range 3 + r.IntN(4) {
		name := fmt.Sprintf("n%d", i)
		made = append(made, machine(name))
		made = append(made, randomGPUs(r, name)...)
		made = append(made, cards(name, r.IntN(4)))
	}
	return made
}

// untold are classes of devices which do not say whose.
func untold() []runtime.Object {
	return objects(classOf("any"), classOf("rooted", `device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:00"`), classOf("both", `device.driver in ["`+driver.Name+`", "`+network+`"]`))
}

// randomGPUs are a node's devices of ours, mostly alike, or none.
func randomGPUs(r *rand.Rand, name string) []runtime.Object {
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
	if r.IntN(4) == 0 {
		return nil
	}
	return []runtime.Object{slice}
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
// on distinct devices, a network card beside a share, or in its stead, or whosoever's devices there are.
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
	switch r.IntN(7) {
	case 6:
		first.DeviceClassName, first.Capacity, first.Count = one(r, "any", "rooted", "both"), nil, 1
		switch r.IntN(5) {
		case 0:
			first.Count = one[int64](r, 2, 3)
		case 1:
			first.AllocationMode, first.Count = resourceapi.DeviceAllocationModeAll, 0
		case 2: // of ours, and more than half of each
			first.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{driver.Compute: *resource.NewQuantity(one[int64](r, 501, 800), resource.DecimalSI)}}
			first.Count = one[int64](r, 1, 2)
		case 3:
			devices.Requests = append(devices.Requests, deviceClaim(claim.Name, one(r, network, driver.Name, "both")).Spec.Devices.Requests...)
			devices.Requests[1].Name = "second"
		}
		if r.IntN(3) == 0 {
			same := resourceapi.FullyQualifiedName(pcieRoot)
			devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &same}}
		}
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
