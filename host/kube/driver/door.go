package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// door is where kubelet's calls come in. Until it is opened they wait, as long as kubelet does (45 s for a claim).
type door struct {
	drahealth.UnimplementedDRAResourceHealthServer // for what later versions add

	calls, lines calls // of kubelet's: what it asks, and its connections
	log          *slog.Logger
	opened       chan struct{}
	plugin       plugin // behind it, once it is open
	registered   chan struct{}
	anew         chan struct{} // has one when kubelet has registered this agent, again maybe, or devices changed since it was last looked at
	once         sync.Once
	failed       chan error // why kubelet is not served any more
}

func newDoor(config Config) *door {
	d := &door{log: config.Log, opened: make(chan struct{}), registered: make(chan struct{}), anew: make(chan struct{}, 1), failed: make(chan error, 1)}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	return d
}

// open lets those in who wait.
func (d *door) open(plugin plugin) {
	d.plugin = plugin
	close(d.opened)
}

// isOpen says whether it is open.
func (d *door) isOpen() bool {
	select {
	case <-d.opened:
		return true
	default:
		return false
	}
}

// wait waits until it is open.
func (d *door) wait(ctx context.Context) error {
	select {
	case <-d.opened:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the agent before this one has not ended yet: %w", ctx.Err())
	}
}

// PrepareResourceClaims has the driver prepare the claims of one pod.
func (d *door) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	if err := d.wait(ctx); err != nil {
		return nil, err
	}
	return d.plugin.PrepareResourceClaims(ctx, claims)
}

// UnprepareResourceClaims has the driver take claims back.
func (d *door) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	if err := d.wait(ctx); err != nil {
		return nil, err
	}
	return d.plugin.UnprepareResourceClaims(ctx, claims)
}

// NodeWatchResources has the driver tell kubelet how well the devices are.
func (d *door) NodeWatchResources(request *drahealth.NodeWatchResourcesRequest, stream grpc.ServerStreamingServer[drahealth.NodeWatchResourcesResponse]) error {
	if err := d.wait(stream.Context()); err != nil {
		return err
	}
	return d.plugin.NodeWatchResources(request, stream)
}

// HandleError is told of what goes wrong behind kubelet's back.
func (d *door) HandleError(ctx context.Context, err error, message string) {
	if d.isOpen() {
		d.plugin.HandleError(ctx, err, message)
		return
	}
	select { // nothing but a server can have failed yet
	case d.failed <- fmt.Errorf("kubelet cannot be served: %s: %w", message, err):
	default: // one reason is enough
	}
}

// hears sees each call of kubelet's, and that it has registered this agent.
func (d *door) hears(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if status, is := request.(*registration.RegistrationStatus); is {
		answer, err := handle(ctx, request)
		if status.PluginRegistered {
			d.once.Do(func() { close(d.registered) })
			d.again()
		}
		return answer, err
	}
	defer d.calls.begin(time.Now())()
	return handle(ctx, request)
}

// again has what the node offers offered again, a few times.
func (d *door) again() {
	select {
	case d.anew <- struct{}{}:
	default: // it will be looked at
	}
}

// listen makes the socket that kubelet calls, in place of one that is left.
func (d *door) listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	one, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	return listener{one, &d.lines}, err
}
