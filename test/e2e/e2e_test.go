package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/doctor"
	"github.com/aliquot-dev/aliquot/cli/top"
)

func oneSentence(errs string) bool {
	return strings.HasPrefix(errs, "aliquot: ") && strings.Count(errs, "\n") == 1
}

// Those who find no room wait in line, are told why, and start when there is room.
func TestWaiting(t *testing.T) {
	s := up(t, "a10x1")
	s.must("submit", "--name", "big", "--gpu", "0.8", "--", "sleep", "1000")
	s.after("big", unstarted...)
	if out := s.must("submit", "--name", "night", "--gpu", "0.5..", "--", "sleep", "1000"); !strings.HasPrefix(out, "night waits, 1st in line for ") {
		t.Errorf("submit says %q", out)
	}
	why := read[api.Why](s, "why", "night")
	if why.Phase != api.Waiting || why.Place != 1 || why.Code == "" || why.Message == "" || len(why.Counts) == 0 {
		t.Errorf("why: %+v", why)
	}
	job := s.background("run", "--name", "third", "--gpu", "0.5", "--", "true")
	eventually(t, "word on standard error", func() bool {
		_, errs := job.said()
		return strings.Contains(errs, "aliquot: third waits, 2nd in line: ")
	})
	job.signal(syscall.SIGINT)
	if got := job.end(); got.status != 128+int(syscall.SIGINT) {
		t.Errorf("Ctrl-C while it waits: %s", got)
	}
	if work := s.after("third", live...); work.Status.Outcome != api.Stopped || work.Status.Started != nil {
		t.Errorf("taken out of the line, it is %+v", work.Status)
	}
	if out := s.must("top", "--once"); !strings.Contains(out, "WAITING") || !strings.Contains(out, "night") {
		t.Errorf("top:\n%s", out)
	}
	if out := s.must("stop", "big"); out != "big stopped\n" {
		t.Errorf("stop: %q", out)
	}
	if work := s.after("night", unstarted...); work.Status.Phase != api.Running {
		t.Errorf("with room it is %s", work.Status.Phase)
	}
}

// A share is changed while it runs, and what the device is used for is seen.
func TestShares(t *testing.T) {
	s := up(t, "h200x1")
	s.must("submit", "--name", "train", "--gpu", "0.25..0.80", "--mem", "4Gi..8Gi", "--", trainer, "--seconds", "1000", "--kernel-us", "500")
	before := s.after("train", unstarted...)
	usage := func() *api.Usage {
		for _, device := range read[top.Snapshot](s, "top").Devices {
			for _, one := range device.Grants {
				if one.Workload == "train" {
					return &one
				}
			}
		}
		return nil
	}
	eventually(t, "use above the floor", func() bool {
		if work := read[api.Workload](s, "show", "train"); work.Status.Phase != api.Running {
			t.Fatalf("it does not run any more: %+v, and printed:\n%s", work.Status, s.must("logs", "train"))
		}
		one := usage()
		return one != nil && one.Compute != nil && one.Borrowing > 0 && one.Processes == 1 && one.Enforced && one.Launches > 0 && one.Memory != nil && *one.Memory > 0
	})
	if out := s.must("resize", "train", "--gpu", "0.10..0.30"); !strings.HasPrefix(out, "train has 0.10..0.30 of compute") {
		t.Errorf("resize: %q", out)
	}
	eventually(t, "grant of the new share", func() bool { one := usage(); return one != nil && one.Grant.ComputeLimit == 300 })
	after := read[api.Workload](s, "show", "train")
	if after.Status.PID != before.Status.PID || after.Status.Phase != api.Running || after.Spec.Share.Compute.Floor != 100 {
		t.Errorf("resized without a restart, it went from %+v to %+v", before.Status, after.Status)
	}
	if got := s.command("resize", "train", "--gpu", "0.9..0.1"); got.status != 2 {
		t.Errorf("a floor over its ceiling: %s", got)
	}
	for line, wants := range map[string][]string{
		"devices": {"H200 (simulated)", "train 0.10..0.30"}, "ps": {"train", "running", "0.10..0.30"}, "show train": {"Share:", "ENFORCED", "yes"},
		"top --once": {"train", "│"}, "ps -o wide": {"trainer"}, "devices -o wide": {"GPU-"},
	} {
		out := s.must(strings.Fields(line)...)
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s has no %q:\n%s", line, want, out)
			}
		}
	}
}

var shown = regexp.MustCompile(`  memory (\d+) of (\d+) MiB, compute \d+%\n +pid .*\n +\d+ +(\d+) MiB +\d+%  (\S*)\n$`)

// NVML shows a share as its device: its memory, of which so much is used as its processes have, and no processes but those.
func TestShownByNVML(t *testing.T) {
	s := up(t, "a10x1")
	s.must("submit", "--name", "beside", "--gpu", "0.2", "--mem", "2Gi", "--", trainer, "--seconds", "0", "--mem-mib", "512", "--progress", "0")
	s.after("beside", unstarted...)
	smi := filepath.Join(filepath.Dir(trainer), "smi")
	s.must("submit", "--name", "work", "--gpu", "0.2", "--mem", "1Gi..3Gi", "--", "sh", "-c", trainer+" --seconds 0 --mem-mib 1024 --progress 0 & exec "+smi+" --every 0.5")
	s.after("work", unstarted...)
	eventually(t, "the share's figures", func() bool {
		out := s.must("logs", "work", "--tail", "5")
		found := shown.FindStringSubmatch(out)
		if found == nil {
			return false
		}
		if found[2] != "3072" || found[4] != trainer {
			t.Fatalf("in a share with a ceiling of 3 GiB smi shows\n%s", out)
		}
		used, err := strconv.Atoi(found[1])
		return err == nil && used >= 1024 && found[1] == found[3]
	})
}

func TestLogs(t *testing.T) {
	s := up(t, "a10x1")
	s.must("submit", "--name", "talk", "--gpu", "0.1", "--", "sh", "-c", "i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i+1)); done")
	var want strings.Builder
	for i := range 500 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	// Following, it is all there, and ends with the task.
	if out := s.must("logs", "-f", "talk"); out != want.String() {
		t.Errorf("logs -f: %d bytes of %d", len(out), want.Len())
	}
	s.after("talk", live...)
	if out := s.must("logs", "talk"); out != want.String() {
		t.Errorf("logs: %d bytes of %d", len(out), want.Len())
	}
	for lines, want := range map[string]string{"2": "line 498\nline 499\n", "500": want.String(), "501": want.String(), "0": ""} {
		if out := s.must("logs", "talk", "--tail", lines); out != want {
			t.Errorf("logs --tail %s: %q", lines, out)
		}
	}
	if works := read[[]api.Workload](s, "ps"); len(works) != 0 {
		t.Errorf("ps shows what has ended: %+v", works)
	}
	if works := read[[]api.Workload](s, "ps", "-a"); len(works) != 1 || works[0].Status.Outcome != api.Succeeded {
		t.Errorf("ps -a: %+v", works)
	}
}

func TestQueues(t *testing.T) {
	s := up(t, "h200x1")
	s.must("queue", "set", "vision", "--quota", "0.5")
	s.must("submit", "--name", "one", "--queue", "vision", "--gpu", "0.4..", "--", "sleep", "1000")
	s.after("one", unstarted...)
	s.must("submit", "--name", "two", "--queue", "vision", "--gpu", "0.2..", "--", "sleep", "1000")
	if why := read[api.Why](s, "why", "two"); why.Phase != api.Waiting || !strings.Contains(why.Message, "vision") {
		t.Errorf("over its quota: %+v", why)
	}
	if got := s.command("queue", "remove", "vision"); got.status != 1 || !oneSentence(got.err) {
		t.Errorf("remove a queue that is used: %s", got)
	}
	s.must("queue", "set", "vision", "--quota", "1")
	s.after("two", unstarted...)
	queues := read[[]api.Queue](s, "queue", "list")
	at := slices.IndexFunc(queues, func(queue api.Queue) bool { return queue.Name == "vision" })
	if at < 0 || queues[at].Held != 600 || queues[at].Running != 2 || queues[at].Quota != 1000 {
		t.Errorf("queues: %+v", queues)
	}
	s.must("stop", "one", "two")
	s.must("queue", "remove", "vision")
}

// Bad input gets one clear sentence, and changes nothing.
func TestBadInput(t *testing.T) {
	s := up(t, "a10x1")
	s.must("submit", "--name", "mine", "--gpu", "0.1", "--", "sleep", "1000")
	s.after("mine", unstarted...)
	all := func() string {
		t.Helper()
		works := read[[]api.Workload](s, "ps", "-a")
		for i := range works {
			works[i].Status.Usage = nil // which says over how long it was metered
		}
		text, err := json.Marshal(works)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	before := all()
	for line, says := range map[string]string{
		"submit --gpu 0 -- true":                               "--gpu",
		"submit --gpu 0.8..0.2 -- true":                        "floor",
		"submit --gpu NaN -- true":                             "--gpu",
		"submit --gpu -0.5 -- true":                            "--gpu",
		"submit --gpu 99999999999999999999 -- true":            "--gpu",
		"submit --gpu 1.5 -- true":                             "--gpu",
		"submit --mem 4Qi -- true":                             "--mem",
		"submit --mem 8Gi..4Gi -- true":                        "--mem",
		"submit --mem 99999999999999999999Gi -- true":          "--mem",
		"submit --gpu 0.1 --mem 900Gi -- true":                 "",
		"submit --mem 4Gi..8Gi --on-reclaim park -- true":      "park cannot be had yet",
		"submit --mem 4Gi..8Gi --on-reclaim sleep -- true":     "unknown on-reclaim",
		"submit --mem 4Gi --on-reclaim stop -- true":           "is both floor and ceiling",
		"submit --devices 2 -- true":                           "",
		"submit --devices -1 -- true":                          "",
		"submit --model H9000 -- true":                         "H9000",
		"submit --queue nowhere -- true":                       "nowhere",
		"submit --class royal -- true":                         "royal",
		"submit --name Not_A_Name! -- true":                    "name",
		"submit --name mine -- true":                           "mine",
		"submit --time-limit -5s -- true":                      "",
		"submit --gpu":                                         "--gpu",
		"stop nobody":                                          "nobody",
		"why nobody":                                           "nobody",
		"logs nobody":                                          "nobody",
		"resize mine --mem 900Gi":                              "",
		"queue set mine --parent nowhere":                      "nowhere",
		"queue set Bad_Name --quota 1":                         "",
		"queue set q --quota NaN":                              "--quota",
		"queue remove default":                                 "default",
		"up --simulate h200x0 --state " + s.state + " -d":      "--simulate h200x0 was asked for",
		"up --simulate nonsense --state " + s.state + "-other": "",
	} {
		got := s.command(strings.Fields(line)...)
		first, rest, _ := strings.Cut(got.err, "\n")
		if got.status != 1 && got.status != 2 || got.out != "" || !strings.HasPrefix(first, "aliquot: ") || !strings.Contains(first, says) {
			t.Errorf("%s: %s", line, got)
		}
		if strings.Contains(rest, "goroutine") || strings.Count(rest, "\n") > 2 {
			t.Errorf("%s says too much: %s", line, got)
		}
	}
	if after := all(); after != before {
		t.Errorf("bad input changed\n%s\ninto\n%s", before, after)
	}
}

func TestWrongToken(t *testing.T) {
	s := up(t, "a10x1")
	token, err := os.ReadFile(filepath.Join(s.state, "token"))
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]int{"Bearer " + strings.TrimSpace(string(token)): 200, "Bearer wrong": 401, "": 401} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.http+"/v1/workloads", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", given)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("the token %q gets %d", given, answer.StatusCode)
		}
	}
}

// nobody is a user without rights on any machine.
const nobody = 65534

// A server of root serves every user, and each only what is theirs.
func TestOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to act as another user")
	}
	s := up(t, "a10x1")
	as := func(line ...string) result {
		cmd := s.prepare(line...)
		cmd.Dir = "/"
		cmd.Env = append(cmd.Env, "HOME=/nonexistent")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		return finish(cmd)
	}
	s.must("submit", "--name", "roots", "--gpu", "0.1", "--", "sleep", "1000")
	s.after("roots", unstarted...)
	for _, line := range []string{"stop roots", "resize roots --gpu 0.2", "logs roots", "queue set mine --quota 1", "down", "down --all"} {
		if got := as(strings.Fields(line)...); got.status != 1 || !oneSentence(got.err) || got.out != "" {
			t.Errorf("another user's %s: %s", line, got)
		}
	}
	if got := as("run", "--gpu", "0.1", "--", "id", "-u"); got.status != 0 || strings.TrimSpace(got.out) != fmt.Sprint(nobody) {
		t.Errorf("the task of user %d: %s", nobody, got)
	}
	if got := as("run", "--gpu", "0.1..", "--mem", "1Gi", "--", filepath.Join(s.run, "bin", "aliquot-probe")); got.status != 0 || !strings.Contains(got.out, `"total": 1073741824`) {
		t.Errorf("a probe of user %d: %s", nobody, got)
	}
	if work := read[api.Workload](s, "show", "roots"); work.Status.Phase != api.Running {
		t.Errorf("it is %s now", work.Status.Phase)
	}
}

// Tasks outlive the server, attached or not, and everything ends with down --all.
func TestDownAndUp(t *testing.T) {
	s := up(t, "a10x1")
	s.must("submit", "--name", "stays", "--gpu", "0.1", "--", "sleep", "1000")
	before := s.after("stays", unstarted...)
	job := s.background("run", "--name", "held", "--gpu", "0.1", "--", "sh", "-c", `trap 'echo bye; exit 5' USR1; echo ready; while :; do sleep 0.05; done`)
	eventually(t, "program", func() bool { out, _ := job.said(); return strings.Contains(out, "ready") })
	if out := s.must("down"); !strings.HasPrefix(out, "aliquot is down; 2 workloads will go on") {
		t.Errorf("down: %q", out)
	}
	if got := s.command("ps"); got.status != 1 || !strings.Contains(got.err, "no server answers") {
		t.Errorf("ps without a server: %s", got)
	}
	eventually(t, "word about the server", func() bool { _, errs := job.said(); return strings.Contains(errs, "went away") })
	s.start("a10x1")
	if after := read[api.Workload](s, "show", "stays"); after.Status.PID != before.Status.PID || after.Status.Phase != api.Running {
		t.Errorf("found again as %+v, it was %+v", after.Status, before.Status)
	}
	// The client takes the task's part again: signals reach it, and its end reaches the client.
	eventually(t, "end of the program", func() bool {
		select {
		case <-job.done:
			return true
		default:
			_ = job.cmd.Process.Signal(syscall.SIGUSR1)
			return false
		}
	})
	if got := job.end(); got.status != 5 || !strings.HasSuffix(got.out, "bye\n") {
		t.Errorf("the attached program ended as %s", got)
	}
	logs, err := filepath.Glob(filepath.Join(s.state, "events", "*"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("event logs: %v %v", logs, err)
	}
	for _, log := range logs {
		if out := s.must("debug", "replay", log); !strings.Contains(out, "came out the same") {
			t.Errorf("replay: %s", out)
		}
	}
	done := read[struct {
		Server  bool           `json:"server"`
		Stopped []api.Workload `json:"stopped"`
	}](s, "down", "--all", "--grace", "1s")
	if len(done.Stopped) == 0 || !done.Server {
		t.Errorf("down --all as data: %+v", done)
	}
	if err := syscall.Kill(before.Status.PID, 0); err != syscall.ESRCH {
		t.Errorf("after down --all the task is there: %v", err)
	}
	if left := processesOf(t, s.run); len(left) > 0 {
		t.Errorf("after down --all there are %q", left)
	}
}

// A server that was killed is followed by one that takes up its simulated devices without being told which, and down --all ends what
// it left behind also when none follows.
func TestKilledServer(t *testing.T) {
	s := up(t, "h200x1,a10x2")
	s.must("submit", "--name", "stays", "--gpu", "0.1", "--", "sleep", "1000")
	before := s.after("stays", unstarted...)
	gate := filepath.Join(t.TempDir(), "gate")
	missed := s.background("run", "--gpu", "0.1", "--", "sh", "-c", `echo ready; while [ ! -e "$0" ]; do sleep 0.05; done; echo over; exit 3`, gate)
	eventually(t, "program", func() bool { out, _ := missed.said(); return strings.Contains(out, "ready") })
	s.kill()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "end of the program", func() bool { out, _ := missed.said(); return strings.Contains(out, "over") })
	if out := s.must("up", "--detach", "--state", s.state, "--http", s.http); !strings.Contains(out, "3 simulated devices (h200x1,a10x2)") {
		t.Errorf("up after a kill: %s", out)
	}
	if got := missed.end(); got.status != 3 {
		t.Errorf("a program that ended while there was no server: its run ended as %s", got)
	}
	if after := read[api.Workload](s, "show", "stays"); after.Status.PID != before.Status.PID || after.Status.Phase != api.Running {
		t.Errorf("found again as %+v, it was %+v", after.Status, before.Status)
	}
	s.kill()
	if out := s.must("down", "--all", "--state", s.state, "--grace", "1s"); !strings.Contains(out, "1 task") {
		t.Errorf("down --all without a server: %q", out)
	}
	if err := syscall.Kill(before.Status.PID, 0); err != syscall.ESRCH {
		t.Errorf("after down --all the task is there: %v", err)
	}
	if left := processesOf(t, s.run); len(left) > 0 {
		t.Errorf("after down --all there are %q", left)
	}
	if out := s.must("down", "--all", "--state", s.state); !strings.Contains(out, "nothing of an earlier one runs") {
		t.Errorf("down --all when all is down: %q", out)
	}
	s.start("a10x1")
	if after := s.after("stays", live...); after.Status.Outcome != api.Stopped {
		t.Errorf("the next server says of it %+v", after.Status)
	}
}

// kill ends the server as a crash would.
func (s *server) kill() {
	s.t.Helper()
	pid, err := s.client.ServerPID(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, "end of the server", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
}

// processesOf are the command lines of processes that have to do with a folder, by their folders in /proc.
func processesOf(t *testing.T, folder string) map[string]string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if line := strings.ReplaceAll(string(text), "\x00", " "); err == nil && strings.Contains(line, folder) {
			out[filepath.Dir(file)] = line
		}
	}
	return out
}

func TestDoctor(t *testing.T) {
	s := up(t, "a10x1")
	got := s.command("doctor", "--state", s.state, "-o", "json")
	if got.status != 0 {
		t.Errorf("doctor: %s", got)
	}
	findings := read[[]doctor.Finding](s, "doctor", "--state", s.state)
	for _, code := range []string{"kernel", "namespaces", "cgroups", "realtime", "server", "arbiter", "devices", "probe", "folder.state", "folder.run"} {
		at := slices.IndexFunc(findings, func(one doctor.Finding) bool { return one.Code == code })
		if at < 0 || findings[at].Severity == doctor.Fail {
			t.Errorf("%s: %+v", code, findings)
		}
	}
	at := slices.IndexFunc(findings, func(one doctor.Finding) bool { return one.Code == "probe" })
	if !strings.Contains(findings[at].Detail, "1 device with 1 GiB") {
		t.Errorf("the self test: %+v", findings[at])
	}
	empty := t.TempDir()
	cmd := exec.Command(binary, "--run", filepath.Join(empty, "run"), "doctor", "--state", filepath.Join(empty, "state"))
	if got := finish(cmd); got.status != 1 || !strings.Contains(got.out, "no server answers") {
		t.Errorf("doctor without a server: %s", got)
	}
}
