// Package driver is the node agent's side towards Kubernetes: a DRA kubelet plugin. It tells the cluster of the devices that package
// node found (ResourceSlices, with capacities that may be shared), and when kubelet asks, turns an allocated ResourceClaim into a
// prepared task and a CDI specification by which a container finds the shim, its pages and its devices. What comes in are claims and
// what node sees of the devices; what goes out are slices, CDI files and calls of node's Prepare and Unprepare.
//
// It decides nothing of who gets what: the scheduler did, and wrote it into the claim. Prepare is the second guard of that: node refuses
// floors that a device does not have. Everything that must be remembered is in a checkpoint for each claim, so a driver that starts finds
// what the last one prepared, finishes what it left half done, and after a reboot makes pages and CDI files again.
package driver

import (
	"context"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/node"
)

// Name is the driver's, in slices, claims and device classes.
const Name = annotation.Driver

// The capacities of a device, which a claim requests a part of.
const (
	Compute = annotation.DeviceCompute // thousandths of the device
	Memory  = annotation.DeviceMemory  // bytes
)

// Agent is what the driver needs of node.Agent.
type Agent interface {
	Devices() []node.Device
	Prepare(ctx context.Context, task node.Task) (node.Launch, error)
	Container(uid string) (node.Container, error)
	Administrator(devices []string) (node.Container, error)
	Update(ctx context.Context, uid string, grants []node.Grant, flags node.Flags) error
	Unprepare(ctx context.Context, uid string) error
	Prepared() []node.Task
	Sample(ctx context.Context) (node.Sample, error)
	EndStalled(ctx context.Context, device string)
}
