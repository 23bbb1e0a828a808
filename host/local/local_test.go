package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/node"
	"github.com/aliquot-dev/aliquot/server"
)

func TestMain(m *testing.M) {
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // a supervisor under the race detector would end a second late
	if len(os.Args) > 2 && os.Args[1] == "supervise" {
		os.Exit(supervise.Main(os.Args[2:]))
	}
	if len(os.Args) > 3 && os.Args[1] == "daemon" {
		os.Exit(daemon(os.Args[2], os.Args[3]))
	}
	os.Exit(m.Run())
}

// me is who runs the tests, other is somebody else.
var (
	me    = server.Caller{UID: uint32(os.Geteuid()), Name: "me"}
	other = server.Caller{UID: 4242, Name: "other"}
)

// site is a host under test with its folders. They are short, for sockets.
type site struct {
	*testing.T
	*Host
	root  string
	agent *fakeAgent
	edit  func(*Config)
}

func newSite(t *testing.T, edit func(*Config)) *site {
	t.Helper()
	root, err := os.MkdirTemp("", "alq")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{T: t, root: root, edit: edit}
	s.open()
	t.Cleanup(func() {
		s.stopAll()
		if err := s.Host.Close(); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *site) open() {
	s.Helper()
	var err error
	if s.agent, err = newFakeAgent(filepath.Join(s.root, "pages"), 2); err != nil {
		s.Fatal(err)
	}
	config := Config{
		State: filepath.Join(s.root, "state"), Run: filepath.Join(s.root, "run"), Version: "test", Agent: s.agent,
		Supervisor: []string{os.Args[0], "supervise"}, Log: slog.New(slog.DiscardHandler),
	}
	if s.edit != nil {
		s.edit(&config)
	}
	if s.Host, err = Open(context.Background(), config); err != nil {
		s.Fatal(err)
	}
}

// restart closes the host and opens the next one on what it left.
func (s *site) restart() {
	s.Helper()
	if err := s.Host.Close(); err != nil {
		s.Fatal(err)
	}
	s.open()
}

func (s *site) stopAll() {
	live, err := s.Workloads(context.Background(), false)
	if err != nil {
		s.Error(err)
	}
	for _, work := range live {
		if _, err := s.Stop(context.Background(), me, work.UID, 0); err == nil {
			s.ended(work.UID)
		}
	}
}

// spec is a workload that runs a shell command with a share of a device.
func spec(gpu, shell string) api.WorkloadSpec {
	compute, err := api.ParseCompute(gpu)
	if err != nil {
		panic(err)
	}
	return api.WorkloadSpec{
		Command: []string{"sh", "-c", shell}, Dir: "/", Env: map[string]string{"PATH": "/usr/bin:/bin"},
		Share: api.Share{Compute: compute, Memory: api.Memory{Floor: api.Amount{Bytes: 1 << 30}, Ceiling: api.Amount{Bytes: 2 << 30}}},
	}
}

func (s *site) submit(spec api.WorkloadSpec) api.Workload {
	s.Helper()
	work, err := s.Submit(context.Background(), me, spec)
	if err != nil {
		s.Fatal(err)
	}
	return work
}

func (s *site) wait(name string, while ...api.Phase) api.Workload {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	work, err := s.Wait(ctx, name, while...)
	if err != nil {
		s.Fatal(err)
	}
	return work
}

func (s *site) ended(name string) api.Workload {
	s.Helper()
	return s.wait(name, api.Waiting, api.Starting, api.Running, api.Stopping)
}

func (s *site) running(name string) api.Workload {
	s.Helper()
	work := s.wait(name, api.Waiting, api.Starting)
	if work.Status.Phase != api.Running {
		s.Fatalf("%s is %+v", name, work.Status)
	}
	return work
}

func (s *site) log(name string) string {
	s.Helper()
	var out bytes.Buffer
	if err := s.Logs(context.Background(), me, name, false, &out); err != nil {
		s.Fatal(err)
	}
	return out.String()
}

// refused checks that an error is a refusal with this code and these words.
func refused(t *testing.T, err error, code, words string) {
	t.Helper()
	var refusal *api.Error
	if !errors.As(err, &refusal) || refusal.Code != code || !strings.Contains(refusal.Message, words) || strings.Contains(refusal.Message, "\n") {
		t.Errorf("got %#v, want %s with %q", err, code, words)
	}
}

func TestWorkloadRunsAndItsEndIsKept(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("0.25..0.80", `echo "$ALIQUOT_TASK $LD_LIBRARY_PATH $ALIQUOT_WORKLOAD"; exit 3`)
	asked.Name, asked.Env["LD_LIBRARY_PATH"] = "night", "/own"
	work := s.submit(asked)
	if work.Status.Phase != api.Waiting || work.UID == "" || work.User != "me" {
		t.Errorf("submitted as %+v", work)
	}
	work = s.ended("night")
	status := work.Status
	if status.Outcome != api.Failed || status.ExitCode == nil || *status.ExitCode != 3 || status.Started == nil || status.Ended == nil {
		t.Errorf("ended with %+v", status)
	}
	if len(status.Grants) != 1 || status.Grants[0].ComputeFloor != 250 || status.Grants[0].ComputeLimit != 800 || status.Grants[0].MemoryFloor != 1<<30 {
		t.Errorf("grants %+v", status.Grants)
	}
	if want := s.agent.page(work.UID) + " /shim:/own " + work.UID + "\n"; s.log("night") != want {
		t.Errorf("printed %q, want %q", s.log("night"), want)
	}
	why, err := s.Why(context.Background(), "night")
	if err != nil || why.Code != "failed" || len(why.History) < 4 {
		t.Errorf("why: %+v, %v", why, err)
	}
	if left := s.agent.Prepared(); len(left) != 0 {
		t.Errorf("still prepared: %+v", left)
	}
	if entries, _ := os.ReadDir(filepath.Join(s.State, "tasks")); len(entries) != 0 {
		t.Errorf("folders left: %v", entries)
	}
	s.restart()
	if again := s.ended("night"); again.UID != work.UID || again.Status.Outcome != api.Failed {
		t.Errorf("after a restart: %+v", again)
	}
}

func TestSecondWaitsInLineAndStartsWhenTheFirstEnds(t *testing.T) {
	s := newSite(t, nil)
	first, second := spec("1", "sleep 1000"), spec("1", "true")
	for i := range 2 {
		first.Name = fmt.Sprintf("first-%d", i)
		s.submit(first)
		s.running(first.Name)
	}
	second.Name = "second"
	s.submit(second)
	third := second
	third.Name = "third"
	s.submit(third)
	if work := s.wait("third"); work.Status.Phase != api.Waiting || work.Status.Place != 2 {
		t.Errorf("third: %+v", work.Status)
	}
	why, err := s.Why(context.Background(), "second")
	if err != nil || why.Place != 1 || why.Code != "no_room" || len(why.Counts) == 0 {
		t.Errorf("why: %+v, %v", why, err)
	}
	if why, err = s.Why(context.Background(), "third"); err != nil || len(why.Ahead) != 1 || why.Ahead[0] != "second" {
		t.Errorf("why third: %+v, %v", why, err)
	}
	if _, err := s.Stop(context.Background(), me, "first-0", 0); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"second", "third"} {
		if work := s.ended(name); work.Status.Outcome != api.Succeeded {
			t.Errorf("%s: %+v", name, work.Status)
		}
	}
	if work := s.ended("first-0"); work.Status.Outcome != api.Stopped || work.Status.Reason != "stopped by me" {
		t.Errorf("first: %+v", work.Status)
	}
}

func TestBadInputIsRefusedInOneSentenceAndChangesNothing(t *testing.T) {
	s := newSite(t, nil)
	running := spec("0.5", "sleep 1000")
	running.Name = "there"
	s.submit(running)
	for name, test := range map[string]struct {
		edit  func(*api.WorkloadSpec)
		code  string
		words string
	}{
		"unknown queue": {func(w *api.WorkloadSpec) { w.Queue = "nowhere" }, api.CodeNotFound, "no queue nowhere"},
		"more memory": {func(w *api.WorkloadSpec) {
			w.Share.Memory = api.Memory{Floor: api.Amount{Bytes: 1 << 40}, Ceiling: api.Amount{Bytes: 1 << 40}}
		}, api.CodeInvalid, "140Gi"},
		"more devices":    {func(w *api.WorkloadSpec) { w.Devices = 3 }, api.CodeInvalid, "3 devices"},
		"another model":   {func(w *api.WorkloadSpec) { w.Model = "B200" }, api.CodeInvalid, "B200"},
		"missing program": {func(w *api.WorkloadSpec) { w.Command = []string{"./none"} }, api.CodeInvalid, "run: ./none: no such file or directory"},
		"not in the path": {func(w *api.WorkloadSpec) { w.Command = []string{"none"} }, api.CodeInvalid, "run: none: not found in the PATH"},
		"not executable":  {func(w *api.WorkloadSpec) { w.Command = []string{"/etc/passwd"} }, api.CodeInvalid, "run: /etc/passwd: permission denied"},
		"a folder":        {func(w *api.WorkloadSpec) { w.Command = []string{"/etc"} }, api.CodeInvalid, "run: /etc: is a directory"},
		"no such folder":  {func(w *api.WorkloadSpec) { w.Dir = "/no/where" }, api.CodeInvalid, "/no/where cannot be entered"},
		"name taken":      {func(w *api.WorkloadSpec) { w.Name = "there" }, api.CodeConflict, "named there"},
		"floor over":      {func(w *api.WorkloadSpec) { w.Share.Compute.Ceiling = 100 }, api.CodeInvalid, "over the ceiling"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := spec("0.5", "true")
			test.edit(&asked)
			_, err := s.Submit(context.Background(), me, asked)
			refused(t, err, test.code, test.words)
		})
	}
	if list, err := s.Workloads(context.Background(), true); err != nil || len(list) != 1 {
		t.Errorf("%d workloads, %v; want the one of before", len(list), err)
	}
}

func TestAnotherUsersWorkloadIsLeftAlone(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("0.5", "sleep 1000")
	asked.Name = "mine"
	s.submit(asked)
	s.running("mine")
	ctx := context.Background()
	_, err := s.Stop(ctx, other, "mine", 0)
	refused(t, err, api.CodeForbidden, "belongs to me")
	_, err = s.Resize(ctx, other, "mine", server.ShareChange{})
	refused(t, err, api.CodeForbidden, "belongs to me")
	refused(t, s.Signal(ctx, other, "mine", syscall.SIGTERM), api.CodeForbidden, "belongs to me")
	refused(t, s.Logs(ctx, other, "mine", false, io.Discard), api.CodeForbidden, "belongs to me")
	_, err = s.SetQueue(ctx, other, api.QueueSpec{Name: "q", Quota: 1})
	refused(t, err, api.CodeForbidden, "root")
	if s.wait("mine").Status.Phase != api.Running {
		t.Error("it was stopped")
	}
	_, err = s.Stop(ctx, me, "nobody", 0)
	refused(t, err, api.CodeNotFound, "no workload nobody")
}

func TestTasksRunOnThroughARestart(t *testing.T) {
	s := newSite(t, nil)
	gate := filepath.Join(s.root, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two"} {
		asked := spec("1", "read x < "+gate+"; exit 6")
		asked.Name = name
		s.submit(asked)
	}
	waiting := spec("0.5", "true")
	waiting.Name = "three"
	s.submit(waiting)
	before := map[string]api.Workload{"one": s.running("one"), "two": s.running("two")}
	s.restart()
	for name, was := range before {
		now := s.running(name)
		if now.Status.PID != was.Status.PID || now.UID != was.UID || fmt.Sprint(now.Status.Grants) != fmt.Sprint(was.Status.Grants) {
			t.Errorf("%s was %+v and is %+v", name, was.Status, now.Status)
		}
	}
	if work := s.wait("three"); work.Status.Phase != api.Waiting || work.Status.Place != 1 {
		t.Errorf("three: %+v", work.Status)
	}
	open, err := os.OpenFile(gate, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = open.WriteString("\n\n")
	_ = open.Close()
	_, _ = s.Stop(context.Background(), me, "one", 0)
	_, _ = s.Stop(context.Background(), me, "two", 0)
	for name := range before {
		s.ended(name)
	}
	if work := s.ended("three"); work.Status.Outcome != api.Succeeded {
		t.Errorf("three: %+v", work.Status)
	}
}

func TestWhatEndedWithoutADaemonIsTakenUp(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("1", "read x < "+filepath.Join(s.root, "gate")+"; exit 6")
	asked.Name = "one"
	if err := syscall.Mkfifo(filepath.Join(s.root, "gate"), 0o600); err != nil {
		t.Fatal(err)
	}
	work := s.submit(asked)
	s.running("one")
	folder := s.folder(work.UID)
	if err := s.Host.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.root, "gate"), []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	until(t, "the supervisor is gone", func() bool {
		found, err := folder.Look()
		return err == nil && !found.Supervised
	})
	s.open()
	if status := s.ended("one").Status; status.ExitCode == nil || *status.ExitCode != 6 || status.Outcome != api.Failed {
		t.Errorf("ended with %+v", status)
	}
}

// until waits for a condition that another process brings about.
func until(t *testing.T, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !met(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func TestKilledSupervisorsTaskRunsOnAndItsStatusIsInherited(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("1", "trap 'exit 9' USR1; echo ready; while :; do sleep 0.01; done")
	asked.Name = "one"
	work := s.submit(asked)
	s.running("one")
	until(t, "it is ready", func() bool { return strings.Contains(s.log("one"), "ready") })
	found, err := s.folder(work.UID).Look()
	if err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(found.Supervisor.PID, syscall.SIGKILL)
	until(t, "it is noticed", func() bool { return len(s.wait("one").Status.Notes) > 0 })
	if now := s.wait("one"); now.Status.Phase != api.Running || !strings.Contains(now.Status.Notes[0], "runs on without its supervisor") {
		t.Errorf("after its supervisor was killed: %+v", now.Status)
	}
	if err := s.Signal(context.Background(), me, "one", syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	// This process is the subreaper, so the status came to it.
	if status := s.ended("one").Status; status.ExitCode == nil || *status.ExitCode != 9 {
		t.Errorf("ended with %+v", status)
	}
}

func TestTimeLimitHoldsWithoutASupervisor(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("1", "echo ready; sleep 1000")
	asked.Name, asked.TimeLimit = "one", api.Duration(time.Hour)
	work := s.submit(asked)
	s.running("one")
	found, err := s.folder(work.UID).Look()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Host.Close(); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(found.Supervisor.PID, syscall.SIGKILL)
	until(t, "the supervisor is gone", func() bool { return !found.Supervisor.Alive() })
	s.edit = func(config *Config) {
		config.Now = func() time.Time { return time.Now().Add(2 * time.Hour) } // the limit has passed meanwhile
	}
	s.open()
	status := s.ended("one").Status
	if status.Outcome != api.TimedOut || !strings.Contains(status.Reason, "time limit of 1h") {
		t.Errorf("ended with %+v", status)
	}
	if found.Child.Alive() {
		t.Error("it runs on")
	}
}

func TestTimeLimit(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("1", "sleep 1000")
	asked.TimeLimit = api.Duration(time.Millisecond)
	if status := s.ended(s.submit(asked).UID).Status; status.Outcome != api.TimedOut || status.Signal != "SIGTERM" || !strings.Contains(status.Reason, "time limit of 1ms") {
		t.Errorf("ended with %+v", status)
	}
}

func TestStopOfOneThatWaits(t *testing.T) {
	s := newSite(t, nil)
	for range 2 {
		s.submit(spec("1", "sleep 1000"))
	}
	work := s.submit(spec("1", "true"))
	stopped, err := s.Stop(context.Background(), me, work.UID, 0)
	if err != nil || stopped.Status.Phase != api.Ended || stopped.Status.Outcome != api.Stopped || stopped.Status.Started != nil {
		t.Errorf("stopped as %+v, %v", stopped.Status, err)
	}
	_, err = s.Stop(context.Background(), me, work.UID, 0)
	refused(t, err, api.CodeConflict, "has ended (stopped)")
}

func TestResizeInPlaceAndInLine(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("0.5", "sleep 1000")
	asked.Name = "one"
	s.submit(asked)
	pid := s.running("one").Status.PID
	ctx := context.Background()
	compute := api.Compute{Floor: 250, Ceiling: 600}
	work, err := s.Resize(ctx, me, "one", server.ShareChange{Compute: &compute})
	if err != nil || work.Spec.Share.Compute != compute || work.Status.Grants[0].ComputeLimit != 600 || work.Status.PID != pid {
		t.Errorf("resized to %+v, %v", work, err)
	}
	if page := s.agent.Prepared()[0].Grants[0]; page.Floor != 250 || page.Ceiling != 600 {
		t.Errorf("its page says %+v", page)
	}
	huge := api.Memory{Floor: api.Amount{Bytes: 1 << 41}, Ceiling: api.Amount{Bytes: 1 << 41}}
	_, err = s.Resize(ctx, me, "one", server.ShareChange{Memory: &huge})
	refused(t, err, api.CodeInvalid, "140Gi")
	for _, name := range []string{"two", "three"} {
		big := spec("1", "sleep 1000")
		big.Name = name
		s.submit(big)
	}
	small := api.Compute{Floor: 100, Ceiling: 100}
	if work, err = s.Resize(ctx, me, "three", server.ShareChange{Compute: &small}); err != nil || work.Spec.Share.Compute != small {
		t.Errorf("resized in line to %+v, %v", work.Spec.Share, err)
	}
	s.running("three") // it fits now
	s.restart()
	if work := s.wait("one"); work.Spec.Share.Compute != compute || work.Status.Grants[0].ComputeFloor != 250 {
		t.Errorf("after a restart %+v", work)
	}
}

func TestHalfDoneResizeIsTakenBackAtTheStart(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("0.5", "sleep 1000")
	asked.Name = "one"
	work := s.submit(asked)
	s.running("one")
	grants := s.agent.Prepared()[0].Grants
	grants[0].Ceiling = 900
	if err := s.agent.Update(context.Background(), work.UID, grants, node.Flags{}); err != nil {
		t.Fatal(err)
	}
	s.restart()
	until(t, "the page says what the store says", func() bool { return s.agent.Prepared()[0].Grants[0].Ceiling == 500 })
}

func TestQueuesHoldAndAreKept(t *testing.T) {
	s := newSite(t, nil)
	ctx := context.Background()
	if _, err := s.SetQueue(ctx, me, api.QueueSpec{Name: "b", Quota: 500}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SetQueue(ctx, me, api.QueueSpec{Name: "a", Parent: "b", Quota: api.Unlimited}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two"} {
		asked := spec("0.5", "sleep 1000")
		asked.Name, asked.Queue = name, "a"
		s.submit(asked)
	}
	s.running("one")
	check := func() {
		t.Helper()
		if why, err := s.Why(ctx, "two"); err != nil || why.Code != "quota" {
			t.Errorf("why: %+v, %v", why, err)
		}
		queues, err := s.Queues(ctx)
		if err != nil || len(queues) != 3 || queues[1].Held != 500 || queues[1].Running != 1 || queues[1].Waiting != 1 {
			t.Errorf("queues %+v, %v", queues, err)
		}
	}
	check()
	s.restart()
	check()
	refused(t, s.RemoveQueue(ctx, me, "a"), api.CodeConflict, "a")
	refused(t, s.RemoveQueue(ctx, me, "none"), api.CodeNotFound, "none")
	_, err := s.SetQueue(ctx, me, api.QueueSpec{Name: "b", Parent: "a", Quota: 1})
	refused(t, err, api.CodeInvalid, "b")
}

func TestLostDeviceEvictsAndSaysWhy(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("1", "sleep 1000")
	asked.Name = "one"
	s.submit(asked)
	device := s.running("one").Status.Grants[0].Device
	s.agent.notices <- node.Notice{Kind: node.DeviceDown, Device: device, Message: "XID 79: it has fallen off the bus"}
	status := s.ended("one").Status
	if status.Outcome != api.Evicted || !strings.Contains(status.Reason, "XID 79") {
		t.Errorf("ended with %+v", status)
	}
	devices, err := s.Devices(context.Background())
	if err != nil || devices[status.Grants[0].DeviceIndex].Health != api.Down {
		t.Errorf("devices %+v, %v", devices, err)
	}
	info, err := s.Info(context.Background(), me)
	if err != nil || len(info.Warnings) != 1 || !strings.Contains(info.Warnings[0], "XID 79") {
		t.Errorf("info %+v, %v", info, err)
	}
	s.agent.notices <- node.Notice{Kind: node.DeviceBack, Device: device}
	asked.Devices = 2
	s.submit(asked)
	s.running("one")
}

func TestPrepareThatFailsIsTriedAgain(t *testing.T) {
	s := newSite(t, nil)
	s.agent.mu.Lock()
	s.agent.refuse = errors.New("the arbiter is away")
	s.agent.mu.Unlock()
	work := s.submit(spec("1", "true"))
	until(t, "the refusal is shown", func() bool {
		why, err := s.Why(context.Background(), work.UID)
		return err == nil && strings.Contains(why.Message, "the arbiter is away")
	})
	s.agent.mu.Lock()
	s.agent.refuse = nil
	s.agent.mu.Unlock()
	if status := s.ended(work.UID).Status; status.Outcome != api.Succeeded {
		t.Errorf("ended with %+v", status)
	}
}

func TestOrphansAreFoundAndCleaned(t *testing.T) {
	s := newSite(t, nil)
	if err := s.Host.Close(); err != nil {
		t.Fatal(err)
	}
	// A task that the store knows nothing of, as after it was put back from a copy.
	folder := supervise.Folder(filepath.Join(s.root, "state", "tasks", "stray"))
	err := folder.Prepare(supervise.Recipe{
		UID: "stray", Command: []string{"sleep", "1000"}, Program: "/bin/sleep", Dir: "/", Env: []string{supervise.Marker + "=stray"},
		Log: filepath.Join(s.root, "log"), Grace: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	started, err := folder.Start([]string{os.Args[0], "supervise"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	child, _ := started.Report()
	s.agent.write("stray", node.Task{UID: "stray"})
	s.open()
	started.Wait()
	if child == nil || child.Alive() || len(s.agent.Prepared()) != 0 {
		t.Errorf("left: child %+v, pages %+v", child, s.agent.Prepared())
	}
	info, err := s.Info(context.Background(), me)
	if err != nil || len(info.Warnings) != 1 || !strings.Contains(info.Warnings[0], "stray") {
		t.Errorf("info %+v, %v", info, err)
	}
}

func TestSecondDaemonIsRefused(t *testing.T) {
	s := newSite(t, nil)
	config := s.Config
	config.State = filepath.Join(s.root, "another")
	if _, err := Open(context.Background(), config); err == nil || !strings.Contains(err.Error(), "a server works on "+s.Host.Run+" already") {
		t.Errorf("opened with %v", err)
	}
	config.State, config.Run = s.State, filepath.Join(s.root, "another")
	if _, err := Open(context.Background(), config); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("opened with %v", err)
	}
}

func TestThousandSubmittedAtOnceAreAllAccountedFor(t *testing.T) {
	s := newSite(t, nil)
	const count = 1000
	blocker := spec("1", "sleep 1000")
	for range 2 {
		s.running(s.submit(blocker).UID)
	}
	var group sync.WaitGroup
	uids := make([]string, count)
	for i := range count {
		group.Add(1)
		go func() {
			defer group.Done()
			work, err := s.Submit(context.Background(), me, spec("0.5", "true"))
			if err != nil {
				t.Error(err)
			}
			uids[i] = work.UID
		}()
	}
	group.Wait()
	list, err := s.Workloads(context.Background(), false)
	if err != nil || len(list) != count+2 {
		t.Fatalf("%d live, %v", len(list), err)
	}
	known := map[string]bool{}
	places := map[int]bool{}
	for _, work := range list[2:] {
		known[work.UID], places[work.Status.Place] = true, true
	}
	for _, uid := range uids {
		if !known[uid] {
			t.Errorf("%s is lost", uid)
		}
	}
	if len(places) != count || !places[1] || !places[count] {
		t.Errorf("%d places in line", len(places))
	}
	s.restart()
	if list, err = s.Workloads(context.Background(), false); err != nil || len(list) != count+2 {
		t.Fatalf("after a restart %d live, %v", len(list), err)
	}
	for _, uid := range uids { // those that wait leave the line before anything ends
		group.Add(1)
		go func() {
			defer group.Done()
			if _, err := s.Stop(context.Background(), me, uid, 0); err != nil {
				t.Error(err)
			}
		}()
	}
	group.Wait()
}

// attach hands streams over as `aliquot run` does.
func (s *site) attach(uid string) (net.Conn, *os.File, *os.File) {
	s.Helper()
	conn, err := net.Dial("unix", filepath.Join(s.Host.Run, AttachName))
	if err != nil {
		s.Fatal(err)
	}
	in, feed, err := os.Pipe()
	if err != nil {
		s.Fatal(err)
	}
	out, sink, err := os.Pipe()
	if err != nil {
		s.Fatal(err)
	}
	rights := syscall.UnixRights(int(in.Fd()), int(sink.Fd()), int(sink.Fd()))
	if _, _, err := conn.(*net.UnixConn).WriteMsgUnix([]byte(uid+"\n"), rights, nil); err != nil {
		s.Fatal(err)
	}
	_, _ = in.Close(), sink.Close()
	s.Cleanup(func() { _, _, _ = conn.Close(), feed.Close(), out.Close() })
	return conn, feed, out
}

func TestAttachedProgramHasItsClientsStreams(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("1", "cat; echo err >&2; exit 5")
	asked.Attach = true
	work := s.submit(asked)
	_, feed, out := s.attach(work.UID)
	_, _ = feed.WriteString("through\n")
	_ = feed.Close()
	got, err := io.ReadAll(out) // ends only if nobody else keeps the stream
	if err != nil || string(got) != "through\nerr\n" {
		t.Errorf("got %q, %v", got, err)
	}
	if status := s.ended(work.UID).Status; status.ExitCode == nil || *status.ExitCode != 5 {
		t.Errorf("ended with %+v", status)
	}
	refused(t, s.Logs(context.Background(), me, work.UID, false, io.Discard), api.CodeConflict, "no log")
}

func TestClientThatGoesAwayHangsUp(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("1", "trap 'exit 33' HUP; echo ready; while :; do sleep 0.01; done")
	asked.Attach = true
	work := s.submit(asked)
	conn, _, out := s.attach(work.UID)
	ready := make([]byte, 6)
	if _, err := io.ReadFull(out, ready); err != nil {
		t.Fatal(err)
	}
	s.running(work.UID)
	_ = conn.Close()
	if status := s.ended(work.UID).Status; status.ExitCode == nil || *status.ExitCode != 33 {
		t.Errorf("ended with %+v", status)
	}
}

func TestClientThatNeverComesFreesItsPlace(t *testing.T) {
	s := newSite(t, func(config *Config) { config.AttachGrace = time.Millisecond })
	asked := spec("1", "true")
	asked.Attach = true
	if status := s.ended(s.submit(asked).UID).Status; status.Outcome != api.Stopped && status.Outcome != api.Refused {
		t.Errorf("ended with %+v", status)
	}
}

func TestLogsFollowToTheEnd(t *testing.T) {
	s := newSite(t, nil)
	gate := filepath.Join(s.root, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	work := s.submit(spec("1", "echo first; read x < "+gate+"; echo second"))
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := s.Logs(context.Background(), me, work.UID, true, writer)
		_ = writer.Close()
		done <- err
	}()
	first := make([]byte, 6)
	if _, err := io.ReadFull(reader, first); err != nil || string(first) != "first\n" {
		t.Fatalf("%q, %v", first, err)
	}
	if err := os.WriteFile(gate, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(reader)
	if err != nil || string(rest) != "second\n" {
		t.Errorf("%q, %v", rest, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestUsageIsMadeOfTwoSamplesAndUnknownIsNotZero(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("0.25..0.80", "sleep 1000")
	asked.Name = "one"
	work := s.submit(asked)
	grant := s.running("one").Status.Grants[0]
	at := time.Now()
	sample := func(after, held, burst, waited time.Duration) node.Sample {
		return node.Sample{At: at.Add(after), Tasks: []node.Usage{{
			Task: work.UID, Grant: node.Grant{UID: grant.UID, Device: grant.Device}, Held: held, Burst: burst, Waited: waited, Memory: 1 << 30,
		}}}
	}
	s.agent.mu.Lock()
	s.agent.samples = []node.Sample{sample(0, 0, 0, 0), sample(time.Second, 600*time.Millisecond, 350*time.Millisecond, 100*time.Millisecond)}
	s.agent.mu.Unlock()
	devices, err := s.Devices(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	usage := devices[grant.DeviceIndex].Grants[0]
	if usage.Compute == nil || *usage.Compute != 600 || usage.Borrowing != 350 || usage.WaitedShare != 100 || *usage.Memory != 1<<30 || !usage.Enforced {
		t.Errorf("usage %+v", usage)
	}
	if device := devices[grant.DeviceIndex]; device.ComputeFree != 750 || device.Busy != nil || device.MemoryUsed != nil {
		t.Errorf("device %+v", device)
	}
}

func TestEventsAreHeardInOrder(t *testing.T) {
	s := newSite(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	seen := make(chan api.Event, 100)
	began := s.events.last()
	go func() {
		_ = s.Listen(ctx, began, func(event api.Event) error { seen <- event; return nil })
	}()
	asked := spec("1", "true")
	asked.Name = "one"
	s.submit(asked)
	last := began
	for _, want := range []string{"submitted", "placed on", "started as", "ended: succeeded"} {
		event := <-seen
		if event.Seq <= last || event.Workload != "one" || !strings.HasPrefix(event.Message, want) {
			t.Errorf("heard %+v, want %s", event, want)
		}
		last = event.Seq
	}
}

func TestEventLogReplays(t *testing.T) {
	s := newSite(t, func(config *Config) { config.EventLimit = 2000 })
	for range 10 {
		s.ended(s.submit(spec("1", "true")).UID)
	}
	s.restart()
	files, err := filepath.Glob(filepath.Join(s.State, "events", "*"+journalSuffix))
	if err != nil || len(files) < 3 || len(files) > journalsKept {
		t.Fatalf("%d event logs, %v", len(files), err)
	}
	for _, path := range files {
		var out bytes.Buffer
		if err := Replay(path, &out); err != nil || !strings.Contains(out.String(), "came out the same") {
			t.Errorf("%s: %s, %v", path, out.String(), err)
		}
	}
}
