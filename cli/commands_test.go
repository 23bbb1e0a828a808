package cli

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
)

var update = flag.Bool("update", false, "write the golden files again")

// furnish gives the server something of everything to show.
func furnish(f *fakeServer) {
	compute := api.Compute{Floor: 250, Ceiling: 800}
	grant := api.Grant{
		UID: "u1.0.0", Device: "GPU-aaaa", ComputeFloor: 250, ComputeLimit: 800, MemoryFloor: 4 * gib, MemoryCeiling: 8 * gib, Weight: 250,
	}
	running := &api.Workload{
		UID: "u1", User: "ann", UserID: 1000,
		Spec: api.WorkloadSpec{
			Name: "train", Queue: "default", Class: api.Training, Share: api.Share{Compute: compute}, Devices: 1, TimeLimit: api.Duration(2 * time.Hour),
			CPU: 2000, Memory: 8 * gib, Command: []string{"python", "train.py", "--name", "a b"}, Dir: "/home/ann", Env: map[string]string{"B": "2", "A": "1"},
		},
		Status: api.WorkloadStatus{
			Phase: api.Running, Submitted: now.Add(-time.Hour), Started: ptr(now.Add(-125 * time.Second)), Grants: []api.Grant{grant}, PID: 4711,
			Notes: []string{"the limit of CPU is not kept: no cgroup can be made"},
		},
	}
	waiting := &api.Workload{
		UID: "u2", User: "bob", UserID: 1001,
		Spec:   api.WorkloadSpec{Name: "night", Queue: "default", Share: api.Share{Compute: api.Compute{Floor: 500, Ceiling: 1000}}, Devices: 2, Command: []string{"./job"}},
		Status: api.WorkloadStatus{Phase: api.Waiting, Place: 2, Submitted: now.Add(-30 * time.Hour), Reason: "no device has 0.50 of its compute free"},
	}
	ended := &api.Workload{
		UID: "u3", User: "ann",
		Spec:   api.WorkloadSpec{Name: "done", Queue: "vision", Share: api.Share{Compute: api.Compute{Floor: 1000, Ceiling: 1000}}, Devices: 1, Command: []string{"true"}},
		Status: api.WorkloadStatus{Phase: api.Ended, Outcome: api.Failed, ExitCode: ptr(3), Submitted: now.Add(-time.Hour), Started: ptr(now.Add(-time.Hour)), Ended: ptr(now.Add(-59 * time.Minute))},
	}
	usage := api.Usage{
		Workload: "train", Grant: grant, Compute: ptr(api.Milli(620)), Over: 10 * time.Second, Memory: ptr(5 * gib), Borrowing: 370, DeviceTime: 75 * time.Second,
		Own: 30 * time.Second, Burst: 45 * time.Second, Launches: 1234, Processes: 1, Enforced: true,
	}
	running.Status.Usage = []api.Usage{usage}
	gone := usage
	gone.Compute, gone.Memory, gone.MemoryPeak, gone.Processes = nil, nil, 6*gib, 0
	ended.Status.Grants, ended.Status.Usage = []api.Grant{grant}, []api.Usage{gone}
	f.works = []*api.Workload{running, waiting, ended}
	f.devices = []api.Device{
		{
			UUID: "GPU-aaaa", Model: "H200", Simulated: true, Memory: 140 * gib, MemoryUsed: ptr(5 * gib), Busy: ptr(api.Milli(410)), ComputeFree: 750,
			MemoryFree: 136 * gib, Health: api.Healthy, LatencyClass: 1,
			Grants: []api.Usage{usage},
		},
		{
			UUID: "GPU-bbbb", Index: 1, Model: "A10", Simulated: true, Memory: 22 * gib, ComputeFree: 1000, MemoryFree: 22 * gib, Health: api.Down,
			HealthReason: "XID 79: it fell off the bus", Unenforced: []api.Process{{PID: 99, Name: "python", User: "eve"}},
		},
	}
	f.queues = append(f.queues, api.Queue{QueueSpec: api.QueueSpec{Name: "vision", Parent: "default", Quota: 2000, Limit: api.QueueAmounts{Compute: ptr(api.Quota(3000))}}, Held: 2500, Running: 3, Waiting: 1})
	f.why = api.Why{
		Workload: "night", Phase: api.Waiting, Place: 2, Code: "compute", Message: "no device has 0.50 of its compute free",
		Counts: []api.WhyCount{
			{Code: "compute", Message: "floors of others are in the way", Devices: 1, Nodes: []api.WhyNodes{{Class: "H200 x2", Devices: 1}}},
			{Code: "down", Message: "down", Devices: 2, Nodes: []api.WhyNodes{{Class: "A10 x1", Devices: 1}, {Class: "H200 x2", Devices: 1}}},
		},
		Ahead: []string{"big"}, Unblock: "big starting and train ending", Estimate: ptr(now.Add(90 * time.Minute)),
		Start: &api.Start{
			Earliest: ptr(now), Latest: ptr(now.Add(90 * time.Minute)),
			Expected: ptr(now.Add(40 * time.Minute)), From: ptr(now.Add(35 * time.Minute)), To: ptr(now.Add(55 * time.Minute)),
			Past: &api.PastStart{Starts: 40, Median: api.Duration(2 * time.Minute), P90: api.Duration(25 * time.Minute), Late: 3},
		},
		History: []api.WhyRecord{{At: now.Add(-time.Minute), Message: "submitted"}, {At: now, Message: "overtaken by none"}},
	}
	f.log = "line 1\nline 2\n"
}

// What people read, as it is printed.
func TestTables(t *testing.T) {
	local := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = local })
	for name, line := range map[string]string{
		"advise": "advise", "devices": "devices", "devices-wide": "devices -o wide", "ps": "ps", "ps-all": "ps -a", "ps-wide": "ps -o wide", "ps-queue": "ps -a --queue vision",
		"show": "show train", "show-wide": "show train -o wide", "show-ended": "show done", "show-waiting": "show night", "why": "why night", "why-wide": "why night -o wide", "why-runs": "why train", "plan": "plan --gpu 0.5 --mem 10Gi", "plan-waits": "plan --gpu 0.5 -- true", "queues": "queue list", "queues-wide": "queue list -o wide", "queue": "queue show vision", "logs": "logs train",
		"top": "top --once", "help": "--help", "run-help": "run --help",
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeServer(t)
			furnish(f)
			if name == "why-runs" {
				f.why = api.Why{
					Workload: "train", Phase: api.Running, Message: "on device 0 (H200), with 0.25 of compute and 4Gi of memory as its own",
					History: []api.WhyRecord{{At: now, Message: "started as process 4711"}},
				}
			}
			if name == "plan" {
				f.plan = api.Plan{
					Phase: api.Starting, Message: "on device 0 (H200), with 0.50 of compute and 10Gi of memory as its own", Node: "here",
					Promise: "its time limit is over before big, the first in line, starts at the latest (2026-11-20 15:30:00)",
					Use: &api.PlanUse{
						Like: "this user's work of that name and shape", Runs: 12, Compute: 300, ComputeFrom: 90, ComputeTo: 410,
						Memory: 9 << 30, MemoryFrom: 8 << 30, MemoryTo: 12 << 30,
					},
				}
			}
			got := f.command(strings.Fields(line)...)
			if got.exit != (Exit{}) || got.err != "" {
				t.Errorf("exit %v, error %q", got.exit, got.err)
			}
			golden(t, name, got.out)
			for line := range strings.Lines(got.out) {
				if trimmed := strings.TrimSuffix(line, "\n"); strings.HasSuffix(trimmed, " ") && name != "help" && name != "top" {
					t.Errorf("trailing blanks: %q", line)
				}
			}
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is now:\n%s\nand was:\n%s", path, got, want)
	}
}

// A start that predictions put no sooner than time limits do is not said to be known from what ran before.
func TestExpectedByLimits(t *testing.T) {
	f := newFakeServer(t)
	furnish(f)
	for _, c := range []struct {
		expected time.Duration
		want     string
	}{
		{40 * time.Minute, "by how long such work ran before\n"},
		{90 * time.Minute, "by time limits: nothing that it waits for is predicted to end early enough for it to start sooner\n"},
	} {
		f.why.Start.Expected = ptr(now.Add(c.expected))
		if got := f.command("why", "night"); !strings.Contains(got.out, c.want) {
			t.Errorf("expected in %s, at the latest in 1h30m:\n%s", c.expected, got.out)
		}
	}
}

// Work on several devices is told what its busiest needs, and that it may do without those that did nothing.
func TestAdviseOnSeveralDevices(t *testing.T) {
	f := newFakeServer(t)
	furnish(f)
	done := f.works[slices.IndexFunc(f.works, func(w *api.Workload) bool { return w.Spec.Name == "done" })]
	ran := done.Status.Ended.Sub(*done.Status.Started)
	done.Spec.Devices, done.Spec.Share.Compute = 3, api.Compute{Floor: 900, Ceiling: 1000}
	grant := api.Grant{Device: "GPU-aaaa", ComputeFloor: 900, ComputeLimit: 1000}
	done.Status.Usage = []api.Usage{{Grant: grant, Enforced: true}, {Grant: grant, DeviceTime: ran * 3 / 5, Enforced: true}, {Grant: grant, Enforced: true}}
	got := f.command("advise")
	for line := range strings.Lines(got.out) {
		if strings.HasPrefix(line, "done") && (!strings.Contains(line, "20%    60%") || !strings.Contains(line, "--devices 1 --gpu 0.70..1")) {
			t.Errorf("%q", line)
		}
	}
	if !strings.Contains(got.out, "done") {
		t.Errorf("%q %q", got.out, got.err)
	}
}

// The reason of those that wait is in the wide list.
func TestWideListSaysWhyOnesWait(t *testing.T) {
	f := newFakeServer(t)
	furnish(f)
	f.works[1].Status.Reason = "" // the server lists those that wait without: each is a question of its own
	f.why.Message = "it is first in line and not enough is free"
	if got := f.command("ps", "-o", "wide"); !strings.Contains(got.out, f.why.Message) {
		t.Errorf("ps -o wide:\n%s", got.out)
	}
	if got := f.command("ps"); strings.Contains(got.out, f.why.Message) {
		t.Errorf("ps:\n%s", got.out)
	}
}

// show says why a workload waits, also where the server's answer leaves the reason out.
func TestShowSaysWhyItWaits(t *testing.T) {
	f := newFakeServer(t)
	furnish(f)
	f.works[1].Status.Reason = ""
	f.why.Message = "it is first in line and not enough is free"
	for _, format := range formats {
		if got := f.command("show", "night", "-o", format); !strings.Contains(got.out, f.why.Message) {
			t.Errorf("show -o %s:\n%s", format, got.out)
		}
	}
}

// What passes the shim is said where a workload is shown, and only there where there is something to say.
func TestShowSaysWhatPassesTheShim(t *testing.T) {
	f := newFakeServer(t)
	furnish(f)
	const line = "Past the shim:"
	if got := f.command("show", "train"); strings.Contains(got.out, line) {
		t.Errorf("nothing passes it:\n%s", got.out)
	}
	f.works[0].Status.Usage[0].UnknownCalls = 12
	if got := f.command("show", "train"); !strings.Contains(got.out, line) || !strings.Contains(got.out, "12 look-ups of functions of the driver") {
		t.Errorf("show:\n%s", got.out)
	}
}

// A filter that nothing passes is named, and not taken for an empty server.
func TestNothingPassesTheFilter(t *testing.T) {
	f := newFakeServer(t)
	furnish(f)
	for line, want := range map[string]string{
		"ps --queue vision":               "No workloads in queue vision that run or wait; `aliquot ps -a` shows those that have ended.\n",
		"ps -a --queue vision --user bob": "No workloads in queue vision of user bob.\n",
		"advise --user bob":               "Nothing can be said yet: no work whose use was metered has run for a minute in all.\n",
		"ps --user root --queue default":  "No workloads in queue default of user root that run or wait; `aliquot ps -a` shows those that have ended.\n",
	} {
		if got := f.command(strings.Fields(line)...); got.out != want {
			t.Errorf("%s: %q %q", line, got.out, got.err)
		}
	}
}

// Nothing there is an empty list as data, and a word about what to do as a table.
func TestNothingThere(t *testing.T) {
	f := newFakeServer(t)
	if got := f.command("ps", "-o", "json"); got.out != "[]\n" {
		t.Errorf("no workloads as JSON: %q", got.out)
	}
	if got := f.command("ps"); !strings.Contains(got.out, "aliquot run") {
		t.Errorf("no workloads: %q", got.out)
	}
	if got := f.command("devices"); !strings.Contains(got.out, "aliquot doctor") {
		t.Errorf("no devices: %q", got.out)
	}
}

// What is submitted is what was asked for, with the caller's directory and environment, and nothing that was not said.
func TestSubmit(t *testing.T) {
	f := newFakeServer(t)
	f.why = api.Why{Phase: api.Waiting, Place: 1, Message: "no device has 0.50 of its compute free"}
	got := f.command(strings.Fields("submit --name night --gpu 0.5.. --mem 4Gi..8Gi --time-limit 2h --cpu 2.5 --host-memory 8Gi --devices 2 --model H200 --min-capability 8.0 --min-bandwidth 900 --max-latency-class 2 " +
		"--queue vision --class batch --priority 7 --weight 3 -- ./job --gpu mine -o json")...)
	if got.exit != (Exit{}) || got.out != "night waits, 1st in line: no device has 0.50 of its compute free\n" {
		t.Fatalf("%v %q %q", got.exit, got.out, got.err)
	}
	f.why.Message = "it is first in line for 2 devices, and not enough is free"
	if got := f.command("why", "night"); !strings.HasPrefix(got.out, " waits, 1st in line for 2 devices, and not enough is free\n") {
		t.Errorf("the place is said twice: %q", got.out)
	}
	spec := f.works[0].Spec
	want := api.WorkloadSpec{
		Name: "night", Queue: "vision", Class: api.Batch, Priority: 7, Devices: 2, Model: "H200", MinCapability: 80, MinBandwidth: 900, MaxLatencyClass: 2,
		Share: api.Share{
			Compute: api.Compute{Floor: 500, Ceiling: 1000}, Weight: 3,
			Memory: api.Memory{Floor: api.Amount{Bytes: 4 * gib}, Ceiling: api.Amount{Bytes: 8 * gib}},
		},
		TimeLimit: api.Duration(2 * time.Hour), CPU: 2500, Memory: 8 * gib, Command: []string{"./job", "--gpu", "mine", "-o", "json"}, Dir: "/srv/job",
		Env: spec.Env,
	}
	if !reflect.DeepEqual(spec, want) {
		t.Errorf("got  %+v\nwant %+v", spec, want)
	}
	if spec.Env["PATH"] != "/bin" || spec.Attach {
		t.Errorf("environment %v, attach %v", spec.Env, spec.Attach)
	}
	f.command("submit", "--", "true")
	if bare := f.works[1].Spec; bare.Share != (api.Share{}) || bare.Queue != "" || bare.Class != "" {
		t.Errorf("defaults are the server's to know, and %+v was sent", bare)
	}
}

// What does not hold of what was asked for is said where it was asked, and as data is in the data alone.
func TestSubmitTellsNotes(t *testing.T) {
	f := newFakeServer(t)
	f.notes = []string{"--cpu 0.50 is not held by this server"}
	const want = "aliquot: night: --cpu 0.50 is not held by this server\n"
	if got := f.command("submit", "--name", "night", "--cpu", "0.5", "--", "true"); got.err != want || got.exit != (Exit{}) {
		t.Errorf("submit: %v %q", got.exit, got.err)
	}
	if got := f.command("submit", "--name", "night", "--cpu", "0.5", "-o", "json", "--", "true"); got.err != "" || !strings.Contains(got.out, f.notes[0]) {
		t.Errorf("submit as JSON: %q %q", got.out, got.err)
	}
}

func TestStopResizeQueue(t *testing.T) {
	f := newFakeServer(t)
	furnish(f)
	if got := f.command("resize", "train", "--gpu", "0.25..0.60"); got.out != "train has 0.25..0.60 of compute and 4Gi..8Gi of memory\n" {
		t.Errorf("resize: %q %q", got.out, got.err)
	}
	if got := f.command("checkpoint", "train"); got.out != "train saved what it has done\n" || !f.called("POST /v1/workloads/train/checkpoint") {
		t.Errorf("checkpoint: %q %q", got.out, got.err)
	}
	if got := f.command("checkpoint"); got.exit.Status != ExitUsage || !strings.Contains(got.err, "needs the name of a workload, for it does not run in one") {
		t.Errorf("checkpoint of nothing: %v %q", got.exit, got.err)
	}
	if got := f.command("checkpoint", "train", "night"); got.exit.Status != ExitUsage || !strings.Contains(got.err, "one too many") {
		t.Errorf("checkpoint of two: %v %q", got.exit, got.err)
	}
	if got := f.command("stop", "train", "none", "night", "--grace", "3s"); got.exit.Status != ExitFailed ||
		got.out != "train stopped\nnight stopped\n" || !strings.Contains(got.err, "no workload none") {
		t.Errorf("stop: %v %q %q", got.exit, got.out, got.err)
	}
	got := f.command("stop", "none", "nobody")
	lines := strings.Split(strings.TrimSpace(got.err), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "aliquot: there is no workload none") || !strings.HasPrefix(lines[1], "aliquot: there is no workload nobody") {
		t.Errorf("each refusal is a line of its own: %q", got.err)
	}
	if !f.called(`POST /v1/workloads/train/stop {"grace":"3s"}`) {
		t.Errorf("the grace is not among the calls: %q", f.calls)
	}
	if got := f.command("queue", "set", "vision", "--quota", "3"); got.exit != (Exit{}) || !f.called(`PUT /v1/queues/vision {"name":"vision","parent":"default","quota":"3","limit":{"compute":"3"}}`) {
		t.Errorf("queue set keeps the parent: %q %q", got.err, f.calls)
	}
	if got := f.command("queue", "set", "vision", "--max-priority", "10"); got.exit != (Exit{}) || !f.called(`PUT /v1/queues/vision {"name":"vision","parent":"default","quota":"2","limit":{"compute":"3"},"maxPriority":10}`) {
		t.Errorf("queue set keeps the quota: %q %q", got.err, f.calls)
	}
	set := f.command("queue", "set", "vision", "--limit", "1.5", "--weight", "7")
	if lines := strings.Split(set.out, "\n"); len(lines) < 2 || !slices.Equal(strings.Fields(lines[0])[6:8], []string{"LIMIT", "WEIGHT"}) ||
		!slices.Equal(strings.Fields(lines[1])[6:8], []string{"1.50", "7"}) {
		t.Errorf("queue set shows not what was set: %q %q", set.out, set.err)
	}
	more := f.command("queue", "set", "vision", "--quota", "1", "--quota", "0.5@h200", "--quota-mem", "80Gi", "--limit-mem", "160Gi@A10", "--limit-shares", "8", "--weight-mem", "3")
	if !f.called(`PUT /v1/queues/vision {"name":"vision","parent":"default","quota":"1","quotaMemory":"80Gi","limit":{"compute":"3","devices":8},"weight":{"memory":3},"models":[{"model":"H200","quota":{"compute":"0.5"}},{"model":"A10","limit":{"memory":"160Gi"}}]}`) {
		t.Errorf("what is bounded: %q %q", more.err, f.calls)
	}
	for _, line := range []string{"quota 1.00 80Gi none", "limit 3.00 none 8", "quota on H200 0.50 none none", "limit on A10 none 160Gi none", "weight 1 3 1"} {
		if !slices.ContainsFunc(strings.Split(more.out, "\n"), func(got string) bool { return strings.Join(strings.Fields(got), " ") == line }) {
			t.Errorf("what is set is shown without %q:\n%s", line, more.out)
		}
	}
	f.queues[slices.IndexFunc(f.queues, func(q api.Queue) bool { return q.Name == "vision" })].Models = []api.QueueModel{{Model: "H200", Quota: api.QueueAmounts{Compute: ptr(api.Quota(500))}}}
	if got := f.command("queue", "set", "vision", "--quota", "none@H200"); got.exit != (Exit{}) || !f.called(`PUT /v1/queues/vision {"name":"vision","parent":"default","quota":"2","limit":{"compute":"3"}}`) {
		t.Errorf("of a model that nothing is said of any more: %q %q", got.err, f.calls)
	}
	weights := f.command("queue", "set", "vision", "--weight", "2", "--weight", "3@h200", "--weight-mem", "5@H200", "--weight-gpu", "none@A10")
	if !f.called(`PUT /v1/queues/vision {"name":"vision","parent":"default","quota":"2","limit":{"compute":"3"},"weight":{"all":2},"models":[{"model":"H200","quota":{"compute":"0.5"},"weight":{"all":3,"memory":5}}]}`) {
		t.Errorf("weights on models: %q %q", weights.err, f.calls)
	}
	for _, line := range []string{"weight 2 2 2", "weight on H200 3 5 3"} {
		if !slices.ContainsFunc(strings.Split(weights.out, "\n"), func(got string) bool { return strings.Join(strings.Fields(got), " ") == line }) {
			t.Errorf("what is set is shown without %q:\n%s", line, weights.out)
		}
	}
	for quota, note := range map[string]string{
		"1": "", "none": "", "0": "",
		"100": "aliquot: the quota of queue vision comes to 100.00 devices and this server has 2.00: not all of it can be had at once\n",
	} {
		if got := f.command("queue", "set", "vision", "--quota", quota); got.err != note || got.exit != (Exit{}) {
			t.Errorf("queue set --quota %s says %q", quota, got.err)
		}
	}
	if got := f.command("stop", "nobody", "-o", "json"); got.out != "[]\n" || got.exit.Status != ExitFailed {
		t.Errorf("nothing was stopped, and as data that is %q, status %v", got.out, got.exit)
	}
	if got := f.command("queue", "remove", "vision"); got.out != "vision removed\n" {
		t.Errorf("queue remove: %q %q", got.out, got.err)
	}
}

func TestSettings(t *testing.T) {
	f := newFakeServer(t)
	home := t.TempDir()
	file := filepath.Join(home, "aliquot", "config.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("run: " + f.run + "\nqueue: vision\n")
	env := []string{"XDG_CONFIG_HOME=" + home}
	if got := invoke(t, Program{Env: env}, "submit", "--", "true"); got.exit != (Exit{}) || f.works[0].Spec.Queue != "vision" {
		t.Errorf("the user's file is not heeded: %v %q", got.exit, got.err)
	}
	if got := invoke(t, Program{Env: append(env, "ALIQUOT_QUEUE=speech")}, "submit", "--", "true"); got.exit != (Exit{}) || f.works[1].Spec.Queue != "speech" {
		t.Errorf("the environment does not win: %v %q", got.exit, got.err)
	}
	if got := invoke(t, Program{Env: append(env, "ALIQUOT_RUN=/nowhere")}, "ps"); !strings.Contains(got.err, "/nowhere/aliquot.sock") {
		t.Errorf("ALIQUOT_RUN is not heeded: %q", got.err)
	}
	write("rum: typo\n")
	if got := invoke(t, Program{Env: env}, "ps"); got.exit.Status != ExitFailed || !strings.Contains(got.err, file) || !strings.Contains(got.err, `"rum"`) ||
		!strings.Contains(got.err, "state, run, simulate, http, unenforced, latency-class, queue") {
		t.Errorf("a file that cannot be understood: %v %q", got.exit, got.err)
	}
	write("run: " + f.run + "\nunenforced: stop\nlatency-class: 1@H200,2\n")
	f.info.State = "/state"
	if got := invoke(t, Program{Env: env}, "up", "--state", "/state"); !strings.Contains(got.err, "--unenforced stop and --latency-class 1@H200,2 was asked for") {
		t.Errorf("the user's file is not heeded by up: %v %q", got.exit, got.err)
	}
	if got := invoke(t, Program{Env: append(env, "ALIQUOT_LATENCY_CLASS=3")}, "up", "--state", "/state"); !strings.Contains(got.err, "and --latency-class 3 was asked for") {
		t.Errorf("the environment does not win: %v %q", got.exit, got.err)
	}
	f.info.LatencyClass, f.info.Unenforced = "1@H200,2", api.StopUnenforced
	if got := invoke(t, Program{Env: env}, "up", "--state", "/state"); strings.Contains(got.err, "was asked for") || !strings.Contains(got.err, "--unenforced stop, --latency-class 1@H200,2)") {
		t.Errorf("a server that is as the file says: %v %q", got.exit, got.err)
	}
}

func TestCompletion(t *testing.T) {
	f := newFakeServer(t)
	furnish(f)
	for _, test := range []struct{ line, want string }{
		{"__complete stop ", "night train"},
		{"__complete stop train ", "night"},
		{"__complete show ", "done night train"},
		{"__complete show train ", ""},
		{"__complete ps --queue ", "default vision"},
		{"__complete run --model ", "A10 H200"},
		{"__complete run --class ", "interactive inference training batch"},
		{"__complete ps -o ", "table wide json yaml"},
		{"__complete completion ", "bash zsh fish"},
		{"__complete queue set ", "default vision"},
	} {
		got := f.command(append(strings.Fields(test.line), map[bool][]string{true: {""}}[strings.HasSuffix(test.line, " ")]...)...)
		var names []string
		for line := range strings.Lines(got.out) {
			if name := strings.TrimSpace(line); !strings.HasPrefix(name, ":") {
				names = append(names, name)
			}
		}
		if strings.Join(names, " ") != test.want {
			t.Errorf("%q offers %q, want %q (%s)", test.line, names, test.want, got.err)
		}
	}
	for shell, sign := range map[string]string{"bash": "__start_aliquot", "zsh": "#compdef aliquot", "fish": "complete -c aliquot"} {
		if got := f.command("completion", shell); got.exit != (Exit{}) || !strings.Contains(got.out, sign) {
			t.Errorf("%s: no %q in its script", shell, sign)
		}
	}
}

func TestVersion(t *testing.T) {
	f := newFakeServer(t)
	var out versions
	if got := f.command("--version"); got.out != "aliquot 1.0\n" || got.exit != (Exit{}) {
		t.Errorf("--version: %v %q", got.exit, got.out)
	}
	got := f.command("version", "-o", "json")
	if err := json.Unmarshal([]byte(got.out), &out); err != nil || out.Client != "1.0" || out.Server != "1.0" {
		t.Errorf("%v %q", err, got.out)
	}
}

func TestWords(t *testing.T) {
	for want, got := range map[string]string{
		"0.25": part(250), "0.005": part(5), "1.00": part(1000), "12.345": part(12345),
		"-": percent(nil), "0%": percent(ptr(api.Milli(0))), "63%": percent(ptr(api.Milli(625))),
		"0": size(0), "999": size(999), "0.9Ki": size(1023), "139Gi": size(140<<30 - 1), "1.5Ki": size(1536), "11.9Gi": size(12777947955), "140Gi": size(140 << 30), "4Gi": size(4 << 30),
		"0s": age(-time.Second), "59s": age(59 * time.Second), "2m5s": age(125 * time.Second), "3h": age(3 * time.Hour), "1d6h": age(30 * time.Hour),
		"1st 2nd 3rd 4th 11th 12th 13th 21st 112th": strings.Join([]string{
			ordinal(1), ordinal(2), ordinal(3), ordinal(4), ordinal(11), ordinal(12), ordinal(13), ordinal(21), ordinal(112),
		}, " "),
		`python 'a b' 'it'\''s' ''`: commandText([]string{"python", "a b", "it's", ""}),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Whatever is free is shown so that it can be asked for.
func TestRoomCanBeAskedFor(t *testing.T) {
	if got := room(22516 << 20); got != "21.9Gi" {
		t.Errorf("22516Mi free are shown as %s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		free := api.Bytes(rapid.Int64Range(0, 1<<49).Draw(t, "free"))
		asked, err := api.ParseMemory(room(free))
		if free < api.Granule {
			return // nothing can be had of it
		}
		if err != nil {
			t.Fatal(err)
		}
		if floor, _ := asked.On(free); floor > free {
			t.Fatalf("%d bytes are shown as %s, which is %d", free, room(free), floor)
		}
	})
}
