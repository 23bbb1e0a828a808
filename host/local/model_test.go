package local

import (
	"context"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// What `aliquot devices` prints names a model, in letters of any size, and so does a part of a name that fits one model alone.
func TestModelsAreNamedAsTheyArePrinted(t *testing.T) {
	s := newSite(t, func(config *Config) {
		devices := config.Agent.(*fakeAgent).devices
		devices[0].Model, devices[1].Model = "NVIDIA H200", "NVIDIA H200 NVL"
	})
	asking := func(model string) api.WorkloadSpec {
		asked := spec("0.1", "sleep 1000")
		asked.Model = model
		return asked
	}
	for model, want := range map[string]string{
		"NVIDIA H200 NVL": "NVIDIA H200 NVL", "nvidia h200": "NVIDIA H200", "nvl": "NVIDIA H200 NVL", "NVIDIA H200 (simulated)": "NVIDIA H200", "": "",
	} {
		if got := s.submit(asking(model)).Spec.Model; got != want {
			t.Errorf("--model %q is taken for %q, want %q", model, got, want)
		}
	}
	for model, want := range map[string]string{
		"h200": "a device of model h200 was asked for, and that is a part of several names: write one of them, NVIDIA H200 or NVIDIA H200 NVL",
		"A100": "wants a device of model A100 and there is none: ask for one of the models there are (NVIDIA H200, NVIDIA H200 NVL), or for any",
	} {
		if _, err := s.Submit(context.Background(), me, asking(model)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--model %q: %v", model, err)
		}
	}
}

// Work that asks for what a device must be able to do runs on one that can, by what the driver tells and by what is known of its model; and the
// devices are listed with it.
func TestLeastOfDevices(t *testing.T) {
	s := newSite(t, func(config *Config) {
		devices := config.Agent.(*fakeAgent).devices
		devices[0].Model, devices[1].Model = "Tesla T4", "a new one"
		devices[1].About.Capability = "12.0"
	})
	devices, err := s.Devices(context.Background())
	if err != nil || devices[0].Capability != 75 || devices[0].Bandwidth != 320 || devices[1].Capability != 120 || devices[1].Bandwidth != 0 {
		t.Fatalf("the devices are %+v: %v", devices, err)
	}
	for name, one := range map[string]struct {
		capability api.Capability
		bandwidth  int32
		device     int
	}{"newer": {80, 0, 1}, "wider": {70, 300, 0}} {
		asked := spec("0.1", "sleep 1000")
		asked.Name, asked.MinCapability, asked.MinBandwidth = name, one.capability, one.bandwidth
		w := s.submit(asked)
		if w = s.running(w.Spec.Name); w.Status.Grants[0].Device != devices[one.device].UUID {
			t.Errorf("%s runs on %s, want %s", name, w.Status.Grants[0].Device, devices[one.device].UUID)
		}
	}
}

// Work that asks for a latency class runs on a device that is declared to be of it, before the server restarts and after; devices are listed with it. What
// is declared of devices that there are not is a warning, for they may come back.
func TestLatencyClassOfDevices(t *testing.T) {
	s := newSite(t, func(config *Config) {
		devices := config.Agent.(*fakeAgent).devices
		devices[0].Model, devices[1].Model = "Tesla T4", "a new one"
		config.LatencyClasses = api.LatencyClasses{{Class: 3, Of: "t4"}, {Class: 1, Of: devices[1].UUID}, {Class: 2, Of: "A10"}}
	})
	far := spec("0.1", "sleep 1000")
	far.Name, far.Model, far.MaxLatencyClass = "far", "Tesla T4", 3
	s.submit(far)
	s.running("far")
	s.restart()
	devices, err := s.Devices(context.Background())
	if err != nil || devices[0].LatencyClass != 3 || devices[1].LatencyClass != 1 {
		t.Fatalf("the devices are %+v: %v", devices, err)
	}
	near := spec("0.1", "sleep 1000")
	near.Name, near.MaxLatencyClass = "near", 2
	s.submit(near)
	if w := s.running("near"); w.Status.Grants[0].Device != devices[1].UUID {
		t.Errorf("near runs on %s, want %s", w.Status.Grants[0].Device, devices[1].UUID)
	}
	info, err := s.Info(context.Background(), me)
	if err != nil || info.LatencyClass != "3@t4,1@"+devices[1].UUID+",2@A10" || len(info.Warnings) != 1 || !strings.Contains(info.Warnings[0], "latency class 2 is declared of A10, and no device is called so") {
		t.Errorf("info is %+v: %v", info, err)
	}
}

// How a workload ended is said once, whoever stopped it.
func TestAStopIsSaidOnce(t *testing.T) {
	for _, test := range []struct {
		status api.WorkloadStatus
		want   string
	}{
		{api.WorkloadStatus{Outcome: api.Stopped, Reason: "stopped by ann"}, "ended: stopped by ann"},
		{api.WorkloadStatus{Outcome: api.Stopped, Reason: "stopped by ann", Signal: "SIGTERM"}, "ended: stopped by ann, with SIGTERM"},
		{api.WorkloadStatus{Outcome: api.Failed, Reason: "device 0 is down", Signal: "SIGKILL"}, "ended: failed by SIGKILL: device 0 is down"},
	} {
		if got := sentence(test.status); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
