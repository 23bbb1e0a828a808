package cli

import (
	"strings"
	"syscall"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// wait returns when the named ones have ended, with the status of the first that has one.
func TestWait(t *testing.T) {
	f := newFakeServer(t)
	f.works = []*api.Workload{
		{UID: "u1", Spec: api.WorkloadSpec{Name: "good"}, Status: api.WorkloadStatus{Phase: api.Ended, Outcome: api.Succeeded, ExitCode: ptr(0)}},
		{UID: "u2", Spec: api.WorkloadSpec{Name: "bad"}, Status: api.WorkloadStatus{Phase: api.Ended, Outcome: api.Failed, ExitCode: ptr(3)}},
		{UID: "u3", Spec: api.WorkloadSpec{Name: "killed"}, Status: api.WorkloadStatus{Phase: api.Ended, Outcome: api.Failed, Signal: "SIGKILL", ExitCode: ptr(137)}},
		{UID: "u4", Spec: api.WorkloadSpec{Name: "left"}, Status: api.WorkloadStatus{Phase: api.Ended, Outcome: api.Stopped}},
		{UID: "u5", Spec: api.WorkloadSpec{Name: "night"}, Status: api.WorkloadStatus{Phase: api.Waiting}},
	}
	for _, test := range []struct {
		line   string
		status int
		out    string
	}{
		{"wait good", 0, "good succeeded\n"},
		{"wait good bad killed", 3, "good succeeded\nbad failed (3)\nkilled failed (SIGKILL)\n"},
		{"wait killed bad", 137, "killed failed (SIGKILL)\nbad failed (3)\n"},
		{"wait left", 1, "left stopped\n"},
		{"wait night nobody", 1, ""}, // at once
	} {
		if got := f.command(strings.Fields(test.line)...); got.exit != (Exit{Status: test.status}) || got.out != test.out {
			t.Errorf("%s: %v %q %q", test.line, got.exit, got.out, got.err)
		}
	}
	if got := f.command("wait", "bad", "-o", "json"); got.exit.Status != 3 || !strings.Contains(got.out, `"exitCode": 3`) {
		t.Errorf("as data: %v %q", got.exit, got.out)
	}
	done := make(chan result, 1)
	go func() { done <- f.command("wait", "night") }()
	f.eventually("wait", func() bool { return f.called("GET /v1/workloads/u5?while=waiting") })
	f.finish(api.WorkloadStatus{Outcome: api.Failed, Signal: "SIGTERM"})
	if got := <-done; got.exit != (Exit{Status: 128 + int(syscall.SIGTERM)}) || got.out != "night failed (SIGTERM)\n" {
		t.Errorf("%v %q %q", got.exit, got.out, got.err)
	}
}

// To stop what has ended is no failure, and the others are stopped as ever.
func TestStopOfWhatHasEnded(t *testing.T) {
	f := newFakeServer(t)
	furnish(f)
	if got := f.command("stop", "done", "train"); got.exit != (Exit{}) || got.out != "done failed (3)\ntrain stopped\n" || got.err != "aliquot: done had ended already\n" {
		t.Errorf("%v %q %q", got.exit, got.out, got.err)
	}
}

// What hardly anyone asks for is shown where someone did.
func TestWeightAndPreemptibleAreShown(t *testing.T) {
	f := newFakeServer(t)
	furnish(f)
	if got := f.command("ps", "-o", "wide"); strings.Contains(got.out, "WEIGHT") || strings.Contains(got.out, "PREEMPTIBLE") {
		t.Errorf("nobody asked for either:\n%s", got.out)
	}
	if got := f.command("resize", "train", "--weight", "9"); got.out != "train has 0.25..0.80 of compute and 4Gi..8Gi of memory, with a weight of 9\n" {
		t.Errorf("resize: %q %q", got.out, got.err)
	}
	f.works[1].Spec.Preemptible = true
	got := f.command("ps", "-o", "wide")
	for i, want := range []string{"CLASS PRIORITY WEIGHT PREEMPTIBLE PID", "training 0 9 no 4711", "0 500 yes -"} {
		if line := strings.Split(got.out, "\n")[i]; !strings.Contains(strings.Join(strings.Fields(line), " "), want) {
			t.Errorf("%q is not in %q", want, line)
		}
	}
	f.works[1].Spec.MinBandwidth, f.works[1].Spec.MaxLatencyClass = 900, 2
	if got := f.command("show", "night"); !strings.Contains(got.out, "At least:     900 GB/s of memory bandwidth and latency class 2 or a faster one\n") {
		t.Errorf("show:\n%s", got.out)
	}
	if got := f.command("show", "train"); !strings.Contains(got.out, "Weight:") || strings.Contains(got.out, "Preemptible:") {
		t.Errorf("show:\n%s", got.out)
	}
	if got := f.command("show", "night"); strings.Contains(got.out, "Weight:") || !strings.Contains(got.out, "Preemptible:") {
		t.Errorf("show:\n%s", got.out)
	}
}

// A user whom root's server serves is told so, and starts none that would hide it; with --run they do.
func TestUpWhereRootServes(t *testing.T) {
	f := newFakeServer(t)
	f.info.AllUsers = true
	home := t.TempDir()
	program := Program{Env: []string{"HOME=" + home, "XDG_RUNTIME_DIR=" + home}, machineRun: f.run, asUser: true}
	for _, line := range []string{"up", "up --detach"} {
		if got := invoke(t, program, strings.Fields(line)...); got.exit != (Exit{}) || !strings.HasPrefix(got.out, "root's server at "+f.run+"/aliquot.sock serves all users, ann too") ||
			!strings.Contains(got.out, "`aliquot up --run FOLDER`") {
			t.Errorf("%s: %v %q %q", line, got.exit, got.out, got.err)
		}
	}
	if got := invoke(t, program, "up", "--simulate", "a10x4"); got.exit.Status != ExitFailed || !strings.Contains(got.err, "`aliquot up --run FOLDER`") {
		t.Errorf("up --simulate: %v %q %q", got.exit, got.out, got.err)
	}
	if got := invoke(t, program, "up", "--latency-class", "2"); got.exit.Status != ExitFailed || !strings.Contains(got.err, "`aliquot up --run FOLDER`") {
		t.Errorf("up --latency-class: %v %q %q", got.exit, got.out, got.err)
	}
	own := newFakeServer(t)
	call := &invocation{Program: &program}
	if other := call.otherRun(own.run); other != f.run {
		t.Errorf("beside one's own the other is at %q, want %s", other, f.run)
	}
	if call.runFlag = own.run; call.otherRun(own.run) != "" {
		t.Error("whoever names a server with --run means that one")
	}
}

// What outlives the server is counted, what runs and what waits.
func TestDownSaysWhatIsLeft(t *testing.T) {
	for want, left := range map[string]downed{
		"": {},
		"; 1 workload will go on: `aliquot up` finds it again, `aliquot down --all` ends what runs":                                                                    {GoOn: 1},
		"; 1 in line will start no sooner than with the next `aliquot up`: `aliquot up` finds it again":                                                                {InLine: 1},
		"; 2 workloads will go on, 3 in line will start no sooner than with the next `aliquot up`: `aliquot up` finds them again, `aliquot down --all` ends what runs": {GoOn: 2, InLine: 3},
	} {
		if got := left.left(); got != want {
			t.Errorf("%+v: %q, want %q", left, got, want)
		}
	}
}

// Simulated devices outlive their server: who asks for others is told what ends them.
func TestUpWithOtherDevices(t *testing.T) {
	f := newFakeServer(t)
	f.info.State, f.info.Simulate = "/state", "h200x2"
	got := f.command("up", "--simulate", "a10x4")
	if got.exit.Status != ExitFailed || !strings.Contains(got.err, "`aliquot down --all`") || !strings.Contains(got.err, "--run and --state") {
		t.Errorf("%v %q", got.exit, got.err)
	}
}
