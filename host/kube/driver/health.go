package driver

import (
	"sync"
	"time"

	"google.golang.org/grpc"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node"
)

// Kubelet takes a device's health for unknown when it has not heard of it for healthHolds. It is told again well before, and at once
// when it changes.
const (
	healthHolds = 30 * time.Second
	healthEvery = healthHolds / 3
)

// change wakes everybody who waits for the next one.
type change struct {
	mu   sync.Mutex
	next chan struct{}
}

// wait returns a channel that is closed at the next change.
func (c *change) wait() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

// now is a change.
func (c *change) now() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}

// NodeWatchResources tells kubelet how well the devices are, for the status of the pods that have a part of them, until the stream ends. It
// is the DRA health service, which kubelets from 1.36 ask for unless their feature ResourceHealthStatus is off.
func (p plugin) NodeWatchResources(_ *drahealth.NodeWatchResourcesRequest, stream grpc.ServerStreamingServer[drahealth.NodeWatchResourcesResponse]) error {
	again := time.NewTicker(healthEvery)
	defer again.Stop()
	for {
		changed := p.health.wait()
		if err := stream.Send(healthOf(p.config.Node, p.config.Agent.Devices(), time.Now())); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-changed:
		case <-again.C:
		}
	}
}

// healthOf is what kubelet is told of all devices of a pool.
func healthOf(pool string, devices []node.Device, now time.Time) *drahealth.NodeWatchResourcesResponse {
	var all drahealth.NodeWatchResourcesResponse
	for _, d := range devices {
		health := drahealth.HealthStatus_UNHEALTHY
		if d.Health == api.Healthy {
			health = drahealth.HealthStatus_HEALTHY
		}
		all.Devices = append(all.Devices, &drahealth.DeviceHealth{
			Device: &drahealth.DeviceIdentifier{PoolName: pool, DeviceName: deviceName(d.UUID)}, Health: health, Message: d.Reason,
			LastUpdatedTime: now.Unix(), HealthCheckTimeoutSeconds: int64(healthHolds / time.Second),
		})
	}
	return &all
}
