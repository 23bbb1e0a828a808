package advice_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/advice"
)

const gib = api.Bytes(1) << 30

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

var devices = []api.Device{
	{UUID: "h", Model: "H200", Memory: 140 * gib},
	{UUID: "i", Index: 1, Model: "H200", Memory: 140 * gib},
	{UUID: "a", Index: 2, Model: "A100", Memory: 80 * gib},
	{UUID: "s", Index: 3, Model: "A10", Memory: 24 * gib},
}

func fixed(a api.Bytes) api.Memory {
	return api.Memory{Floor: api.Amount{Bytes: a}, Ceiling: api.Amount{Bytes: a}}
}

// run is one of ann's that has ended, of one device.
func run(name string, share api.Share, ran, used time.Duration, peak api.Bytes) api.Workload {
	began, ended := now.Add(-ran-time.Hour), now.Add(-time.Hour)
	return api.Workload{
		User: "ann", Spec: api.WorkloadSpec{Name: name, Queue: "default", Share: share, Devices: 1, Command: []string{"train"}},
		Status: api.WorkloadStatus{Phase: api.Ended, Started: &began, Ended: &ended, Usage: []api.Usage{{
			Grant:      api.Grant{Device: "h", ComputeFloor: share.Compute.Floor, ComputeLimit: share.Compute.Ceiling, MemoryFloor: share.Memory.Floor.Of(140 * gib)},
			DeviceTime: used, MemoryPeak: peak, Enforced: true,
		}}},
	}
}

// By hand: two runs of a whole device with 60Gi, one of 2 hours that used a quarter and 12 GiB, one of an hour that used a half and 20 GiB.
func TestOf(t *testing.T) {
	whole := api.Share{Compute: api.Compute{Floor: 1000, Ceiling: 1000}, Memory: fixed(60 * gib)}
	got := advice.Of([]api.Workload{
		run("night-1", whole, 2*time.Hour, 30*time.Minute, 12*gib), run("night-2", whole, time.Hour, 30*time.Minute, 20*gib),
	}, devices, now)
	want := []advice.Advice{{
		Name: "night", User: "ann", Queue: "default", Share: whole, Devices: 1, Runs: 2, Ran: api.Duration(3 * time.Hour),
		Use: 333, MostUse: 500, MostMemory: 20 * gib, Idle: api.Duration(2 * time.Hour), IdleMemory: 2*48 + 40,
		Ask:  api.Share{Compute: api.Compute{Floor: 550, Ceiling: 1000}, Memory: api.Memory{Floor: api.Amount{Bytes: 22 * gib}, Ceiling: api.Amount{Bytes: 60 * gib}}},
		Fits: []string{"A10", "A100"},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

// Nobody is told to ask for more than he does, whatever he borrowed; floors are never 0 where one was asked for.
func TestNeverMore(t *testing.T) {
	small := api.Share{Compute: api.Compute{Floor: 250, Ceiling: 1000}, Memory: api.Memory{Floor: api.Amount{Part: 500}, Ceiling: api.Amount{Part: 1000}}}
	idle := api.Share{Compute: api.Compute{Floor: 1, Ceiling: 1000}}
	for _, c := range []struct {
		one  api.Workload
		want api.Share
	}{
		{run("borrows", small, time.Hour, 50*time.Minute, 100*gib), small},
		{run("nothing", small, time.Hour, 0, 0), api.Share{Compute: api.Compute{Floor: 50, Ceiling: 1000}, Memory: api.Memory{Floor: api.Amount{Bytes: gib / 4}, Ceiling: api.Amount{Part: 1000}}}},
		{run("least", idle, time.Hour, 0, 0), idle},
	} {
		if got := advice.Of([]api.Workload{c.one}, devices, now); len(got) != 1 || got[0].Ask != c.want {
			t.Errorf("%s: got %+v, want to ask for %+v", c.one.Spec.Name, got, c.want)
		}
	}
}

// What ran for less than a minute, has not started, was not metered or went around its share tells nothing; what runs now tells what it used so far.
func TestCounts(t *testing.T) {
	share := api.Share{Compute: api.Compute{Floor: 500, Ceiling: 500}}
	brief, waits, unmetered, around, runs := run("brief", share, 59*time.Second, 0, 0), run("waits", share, time.Hour, 0, 0), run("unmetered", share, time.Hour, 0, 0),
		run("around", share, time.Hour, 0, 0), run("runs", share, time.Hour, time.Hour/2, 0)
	waits.Status.Started, unmetered.Status.Usage, around.Status.Usage[0].Enforced = nil, nil, false
	runs.Status.Phase, runs.Status.Ended = api.Running, nil
	got := advice.Of([]api.Workload{brief, waits, unmetered, around, runs}, devices, now)
	if len(got) != 1 || got[0].Name != "runs" || got[0].Ran != api.Duration(2*time.Hour) || got[0].Use != 250 {
		t.Errorf("got %+v", got)
	}
	if got := advice.Of([]api.Workload{brief, brief}, nil, now); len(got) != 1 || got[0].Runs != 2 || got[0].Fits != nil {
		t.Errorf("two of 59 seconds: %+v", got)
	}
}

func TestKind(t *testing.T) {
	for _, c := range []struct {
		name    string
		command []string
		want    string
	}{
		{"night", []string{"./job"}, "night"},
		{"sweep-17", []string{"python", "train.py"}, "sweep"},
		{"sweep17", []string{"python"}, "sweep17"},
		{"python-3f", []string{"/usr/bin/python", "-u", "/home/ann/train.py", "--lr", "0.1"}, "python train.py"},
		{"python-3f", []string{"python", "-c"}, "python"},
		{"python-nightly", []string{"python", "train.py"}, "python-nightly"},
		{"7", []string{"true"}, "7"},
		{"-7", []string{"true"}, "-7"},
	} {
		if got := advice.Kind(&api.WorkloadSpec{Name: c.name, Command: c.command}); got != c.want {
			t.Errorf("%s of %q is of the kind %q, want %q", c.name, c.command, got, c.want)
		}
	}
}
