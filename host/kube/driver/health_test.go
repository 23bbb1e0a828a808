package driver

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node"
)

// Kubelet, over the socket that it calls, is told at once how the devices are and of each change; the stream ends with the driver.
func TestHealth(t *testing.T) {
	s := newSite(t, t.TempDir())
	s.config.Kubelet = t.TempDir()
	err := os.Mkdir(filepath.Join(s.config.Kubelet, "plugins_registry"), 0o700) // kubelet's
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(t.Context(), s.config)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("unix:"+filepath.Join(s.config.Kubelet, "plugins", Name, "dra.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := drahealth.NewDRAResourceHealthClient(conn).NodeWatchResources(t.Context(), &drahealth.NodeWatchResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var told *drahealth.DeviceHealth
	next := func() (got *drahealth.NodeWatchResourcesResponse, err error) { // but for what is told again as it was
		for got, err = stream.Recv(); err == nil && len(got.Devices) == 1 && told != nil && got.Devices[0].Health == told.Health && got.Devices[0].Message == told.Message; {
			got, err = stream.Recv()
		}
		return got, err
	}
	begun, soon := time.Now(), false
	for _, step := range []struct {
		health api.DeviceHealth
		reason string
		kind   node.NoticeKind
		want   drahealth.HealthStatus
	}{
		{api.Healthy, "", "", drahealth.HealthStatus_HEALTHY},
		{api.Draining, "XID 48", node.DeviceSick, drahealth.HealthStatus_UNHEALTHY},
		{api.Down, "it is gone", node.DeviceDown, drahealth.HealthStatus_UNHEALTHY},
		{api.Healthy, "", node.DeviceBack, drahealth.HealthStatus_HEALTHY},
	} {
		if step.kind != "" {
			s.agent.sets(step.health, step.reason)
			d.Notice(t.Context(), node.Notice{Kind: step.kind, Device: h200.UUID})
		}
		changed := time.Now()
		got, err := next()
		if err != nil || len(got.Devices) != 1 {
			t.Fatalf("got %v, %v", got, err)
		}
		one := got.Devices[0]
		told, soon = one, soon || step.kind != "" && time.Since(changed) < healthEvery
		if one.Device.PoolName != here || one.Device.DeviceName != "gpu-aa" || one.Health != step.want || one.Message != step.reason ||
			one.LastUpdatedTime < begun.Unix() || one.HealthCheckTimeoutSeconds != 30 {
			t.Errorf("%s: told %v", step.health, one)
		}
	}
	if !soon {
		t.Errorf("no change was told before the time, %s later, at which all is told again", healthEvery)
	}
	d.Close()
	if got, err := next(); err == nil {
		t.Errorf("after its end the driver says %v", got)
	}
}

// Kubelet shows a device's health by its CDI device, where it has one: of a claim with several devices no two have the same.
func TestHealthOfEach(t *testing.T) {
	got := answer(twice(claimOf("a", 250, 1<<30, ""))).Devices
	if len(got) != 2 || !slices.Equal(got[0].CDIDeviceIDs, []string{"gpu.aliquot.dev/claim=a"}) || len(got[1].CDIDeviceIDs) != 0 {
		t.Errorf("kubelet is told %+v", got)
	}
}
