package driver

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/node"
)

// ours are the results of a claim that are this driver's.
func ours(claim *resourceapi.ResourceClaim) []resourceapi.DeviceRequestAllocationResult {
	if claim.Status.Allocation == nil {
		return nil
	}
	var results []resourceapi.DeviceRequestAllocationResult
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.Driver == Name {
			results = append(results, r)
		}
	}
	return results
}

// taskOf is what an allocated claim asks of this node: one task, with a grant for each result.
func taskOf(claim *resourceapi.ResourceClaim, pool string, devices []node.Device) (node.Task, error) {
	task := node.Task{UID: string(claim.UID)}
	for _, result := range ours(claim) {
		device, err := deviceOf(result, pool, devices)
		if err != nil {
			return node.Task{}, err
		}
		config, err := ConfigOf(claim.Status.Allocation.Devices.Config, result.Request)
		if err != nil {
			return node.Task{}, fmt.Errorf("request %s: %w", result.Request, err)
		}
		grant, err := grantOf(result, device, config)
		if err != nil {
			return node.Task{}, fmt.Errorf("request %s: %w", result.Request, err)
		}
		if slices.ContainsFunc(task.Grants, func(g node.Grant) bool { return g.Device == grant.Device }) {
			return node.Task{}, fmt.Errorf("request %s was given device %s, which another request of the claim was given too; a claim has at most one share of a device: ask for more in one", result.Request, result.Device)
		}
		task.Grants = append(task.Grants, grant)
		task.Flags.LatencyClass = task.Flags.LatencyClass || config.Class == api.Inference || config.Class == api.Interactive
	}
	return task, nil
}

// deviceOf is the device that a result is of.
func deviceOf(result resourceapi.DeviceRequestAllocationResult, pool string, devices []node.Device) (node.Device, error) {
	at := slices.IndexFunc(devices, func(d node.Device) bool { return deviceName(d.UUID) == result.Device })
	if result.Pool != pool || at < 0 {
		return node.Device{}, fmt.Errorf("request %s was given device %s of pool %s; this is node %s, which has no such device", result.Request, result.Device, result.Pool, pool)
	}
	return devices[at], nil
}

// access says whether a result gives access as an administrator.
func access(result resourceapi.DeviceRequestAllocationResult) bool {
	return result.AdminAccess != nil && *result.AdminAccess
}

// accessOf are the devices, by UUID, to which a claim gives access as an administrator; none: it asks for shares. A claim is the one or the other: its containers
// have either the driver or the shim in its place.
func accessOf(claim *resourceapi.ResourceClaim, pool string, devices []node.Device) (all []string, err error) {
	results := ours(claim)
	for _, result := range results {
		if !access(result) {
			continue
		}
		device, err := deviceOf(result, pool, devices)
		if err != nil {
			return nil, err
		}
		all = append(all, device.UUID)
	}
	if len(all) > 0 && len(all) < len(results) {
		return nil, fmt.Errorf("it asks for access as an administrator and for shares, and a container has either; make a claim for each")
	}
	return all, nil
}

// ConfigOf is the ShareConfig that holds for a request: of those of class and claim that are meant for it, the last.
func ConfigOf(configs []resourceapi.DeviceAllocationConfiguration, request string) (v1alpha1.ShareConfig, error) {
	main, _, _ := strings.Cut(request, "/") // the other half names one of several alternatives
	var config v1alpha1.ShareConfig
	for _, c := range configs {
		if c.Opaque == nil || c.Opaque.Driver != Name {
			continue
		}
		if len(c.Requests) > 0 && !slices.Contains(c.Requests, request) && !slices.Contains(c.Requests, main) {
			continue
		}
		var err error
		if config, err = v1alpha1.ParseShareConfig(c.Opaque.Parameters.Raw); err != nil {
			return config, err
		}
	}
	return config, nil
}

// grantOf is a result as a share: the floors are the capacity that it consumes, the ceilings those of the configuration, or the floors. A
// result without consumed capacity is of an API server that knows of no shares: it is the whole device, whatever the ceilings.
func grantOf(result resourceapi.DeviceRequestAllocationResult, device node.Device, config v1alpha1.ShareConfig) (node.Grant, error) {
	if access(result) {
		return node.Grant{}, fmt.Errorf("it gives access as an administrator, which is no share")
	}
	grant := node.Grant{
		UID: string(claimShare(result)), Device: device.UUID, Floor: api.WholeDevice, MemFloor: device.Memory,
	}
	if len(result.ConsumedCapacity) == 0 {
		grant.Ceiling, grant.MemCeiling, grant.Weight = grant.Floor, grant.MemFloor, int32(api.WholeDevice)
		return grant, nil
	}
	compute, memory := result.ConsumedCapacity[Compute], result.ConsumedCapacity[Memory]
	if compute.Value() > int64(api.WholeDevice) {
		return node.Grant{}, fmt.Errorf("it consumes %s thousandths of a device; a device has %d", compute.String(), api.WholeDevice)
	}
	grant.Floor, grant.MemFloor = api.Milli(compute.Value()), api.Bytes(memory.Value())
	grant.Ceiling, grant.MemCeiling = grant.Floor, grant.MemFloor
	if c := config.Ceiling.Compute; c != 0 {
		if c < grant.Floor {
			return node.Grant{}, fmt.Errorf("its compute ceiling %s is below its floor %s; give it at least the floor", c, grant.Floor)
		}
		grant.Ceiling = c
	}
	if m := config.Ceiling.Memory; !m.IsZero() {
		grant.MemCeiling = min(m.Of(device.Memory), device.Memory)
		if grant.MemCeiling < grant.MemFloor {
			return node.Grant{}, fmt.Errorf("its memory ceiling %s is below its floor %s; give it at least the floor", grant.MemCeiling, grant.MemFloor)
		}
	}
	if grant.Ceiling == 0 {
		return node.Grant{}, fmt.Errorf("it has neither a compute floor nor a ceiling; request capacity %s, or give a ShareConfig with a ceiling", Compute)
	}
	if grant.MemCeiling == 0 {
		return node.Grant{}, fmt.Errorf("it has neither memory nor a memory ceiling; request capacity %s, or give a ShareConfig with a ceiling", Memory)
	}
	grant.Weight = api.Share{Compute: api.Compute{Floor: grant.Floor, Ceiling: grant.Ceiling}, Weight: config.Weight}.EffectiveWeight()
	return grant, nil
}

// claimShare names a share among all of its device: by the cluster's name for it, else by its request.
func claimShare(result resourceapi.DeviceRequestAllocationResult) string {
	if result.ShareID != nil {
		return string(*result.ShareID)
	}
	return result.Request
}

// answer is what kubelet is told of a prepared claim: it is had through one CDI device, which stands with the first of its requests, for a
// container has all of them. So the others are no duplicates of it where kubelet shows the health of each.
func answer(claim *resourceapi.ResourceClaim) kubeletplugin.PrepareResult {
	var result kubeletplugin.PrepareResult
	for i, r := range ours(claim) {
		one := kubeletplugin.Device{Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device, ShareID: r.ShareID}
		if i == 0 {
			one.CDIDeviceIDs = []string{cdiID(string(claim.UID))}
		}
		result.Devices = append(result.Devices, one)
	}
	return result
}
