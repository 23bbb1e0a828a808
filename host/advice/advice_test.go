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
		Ask:        api.Share{Compute: api.Compute{Floor: 550, Ceiling: 1000}, Memory: api.Memory{Floor: api.Amount{Bytes: 22 * gib}, Ceiling: api.Amount{Bytes: 60 * gib}}},
		AskDevices: 1, Fits: []string{"A10", "A100"},
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

// A floor is the same on each device of a run, so it must do for the busiest; on how many it did something is said apart. By hand: of three devices one
// was busy for 99 %, and two for nothing with a context of 512Mi; the mean is 33 %.
func TestUnevenDevices(t *testing.T) {
	share := api.Share{Compute: api.Compute{Floor: 1000, Ceiling: 1000}, Memory: fixed(8 * gib)}
	uneven := func(name string, devices ...api.Usage) api.Workload {
		w := run(name, share, 1000*time.Second, 0, 0)
		w.Spec.Devices = len(devices)
		grant := w.Status.Usage[0].Grant
		w.Status.Usage = nil
		for _, u := range devices {
			u.Grant, u.Enforced = grant, true
			w.Status.Usage = append(w.Status.Usage, u)
		}
		return w
	}
	idle := api.Usage{MemoryPeak: gib / 2}
	third := api.Usage{DeviceTime: 333 * time.Second, MemoryPeak: 2 * gib}
	half := api.Usage{DeviceTime: 500 * time.Second, MemoryPeak: gib}
	for _, c := range []struct {
		name          string
		runs          []api.Workload
		use, mostUse  api.Milli
		floor         api.Milli
		memory        api.Bytes
		devices, idle int
	}{
		{"one", []api.Workload{uneven("one", idle, api.Usage{DeviceTime: 990 * time.Second, MemoryPeak: 4 * gib}, idle)}, 330, 990, 1000, 4*gib + 512<<20, 1, 2010},
		{"third", []api.Workload{uneven("third", third, third, third)}, 333, 333, 400, 2*gib + 256<<20, 3, 2001},
		// Different devices are idle in different runs; that which used most of them says how many are wanted.
		{"two", []api.Workload{uneven("two-1", half, idle, idle), uneven("two-2", idle, half, half)}, 250, 500, 550, gib + 256<<20, 2, 4500},
		// Memory that is held is something, also where nothing is worked out.
		{"holds", []api.Workload{uneven("holds", half, api.Usage{MemoryPeak: gib})}, 250, 500, 550, gib + 256<<20, 2, 1500},
		{"barely", []api.Workload{uneven("barely", half, api.Usage{DeviceTime: 50 * time.Second})}, 275, 500, 550, gib + 256<<20, 2, 1450},
		{"none", []api.Workload{uneven("none", idle, idle)}, 0, 0, 50, 768 << 20, 1, 2000},
	} {
		got := advice.Of(c.runs, devices, now)
		if len(got) != 1 {
			t.Errorf("%s: %+v", c.name, got)
			continue
		}
		g := got[0]
		if g.Use != c.use || g.MostUse != c.mostUse || g.Ask.Compute.Floor != c.floor || g.Ask.Memory.Floor.Bytes != c.memory || g.AskDevices != c.devices || g.Idle != api.Duration(c.idle)*api.Duration(time.Second) {
			t.Errorf("%s: got %+v, want %+v", c.name, g, c)
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
