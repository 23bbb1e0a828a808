package node

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/native"
	"github.com/aliquot-dev/aliquot/node/device"
)

// openStopping opens an agent that ends what no share holds, on fake devices; it looks when the test says so.
func openStopping(t *testing.T, folder string, devices *fakeDevices, rule api.UnenforcedRule) *Agent {
	t.Helper()
	a, err := newAgent(Config{Run: folder, Unenforced: rule})
	if err != nil {
		t.Fatal(err)
	}
	a.backend, a.every, a.grace = devices, time.Hour, 10*time.Millisecond
	if err := a.takeOver(testContext(t)); err != nil {
		t.Fatal(errors.Join(err, a.Close()))
	}
	t.Cleanup(func() { closeAgent(t, a) })
	return a
}

// child is a process of the test, and whether it has ended.
type child struct {
	pid   int
	ended chan struct{}
}

// startChild runs a shell script that says `ready`, as some user, with these variables alone.
func startChild(t *testing.T, script string, user uint32, environment ...string) child {
	t.Helper()
	command := exec.Command("sh", "-c", script)
	command.Env, command.Dir = append([]string{"PATH=/usr/bin:/bin"}, environment...), "/"
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if int(user) != os.Geteuid() {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: user, Gid: user}
	}
	output, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		t.Fatalf("it said %q: %v", line, err)
	}
	c := child{command.Process.Pid, make(chan struct{})}
	go func() { _ = command.Wait(); close(c.ended) }()
	t.Cleanup(func() { _ = syscall.Kill(-c.pid, syscall.SIGKILL); <-c.ended }) // with what it started
	return c
}

func (c child) await(t *testing.T) {
	t.Helper()
	select {
	case <-c.ended:
	case <-testContext(t).Done():
		t.Fatal("it was not ended")
	}
}

func (c child) lives() bool {
	fact, ok := factsOf(c.pid)
	return ok && !fact.dead
}

// TestSuspectsAreSeenTwice: a process is taken for one that goes around its share at the second look in a row, under one arbiter.
func TestSuspectsAreSeenTwice(t *testing.T) {
	one, other := &process{pid: 1}, &process{pid: 2}
	at := func(device string, pid int) suspect { return suspect{key: stray{device, pid, uint64(pid)}} }
	type seen struct {
		arbiter *process
		list    []suspect
	}
	for name, c := range map[string]struct {
		looks []seen
		want  []int // at the last look
	}{
		"once":                {[]seen{{one, nil}, {one, []suspect{at("a", 7)}}}, nil},
		"twice":               {[]seen{{one, []suspect{at("a", 7)}}, {one, []suspect{at("a", 8), at("b", 7)}}}, []int{7}},
		"with a look between": {[]seen{{one, []suspect{at("a", 7)}}, {one, nil}, {one, []suspect{at("a", 7)}}}, nil},
		"on two devices":      {[]seen{{one, nil}, {one, []suspect{at("a", 7), at("b", 7)}}}, nil},
		"another arbiter":     {[]seen{{one, []suspect{at("a", 7)}}, {other, []suspect{at("a", 7)}}}, nil},
		"then that one again": {[]seen{{one, []suspect{at("a", 7)}}, {other, []suspect{at("a", 7)}}, {other, []suspect{at("a", 7)}}}, []int{7}},
		"no arbiter":          {[]seen{{nil, []suspect{at("a", 7)}}, {nil, []suspect{at("a", 7)}}}, nil},
		"the number again":    {[]seen{{one, []suspect{at("a", 7)}}, {one, []suspect{{key: stray{"a", 7, 99}}}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, got := suspects{}, []int(nil)
			for _, look := range c.looks {
				got = nil
				for _, found := range s.look(look.arbiter, look.list) {
					got = append(got, found.key.pid)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("processes %v, want %v", got, c.want)
			}
		})
	}
}

// TestStopEndsWhatGoesAround: processes of a task that go around its share are ended, by force where they do not listen; under root also
// those of persons that are no task's, and nobody else's. Whose they are is told, and they are counted.
func TestStopEndsWhatGoesAround(t *testing.T) {
	const sleeps, deaf = "echo ready; exec sleep 1000", "trap '' TERM; echo ready; while :; do sleep 1000; done"
	devices := newFakeDevices("GPU-a")
	a := openStopping(t, fakeRun(t), devices, api.StopUnenforced)
	launch, err := a.Prepare(testContext(t), aTask("w.0", 250, 800, "GPU-a"))
	if err != nil {
		t.Fatal(err)
	}
	self := uint32(os.Geteuid())
	listens, refuses := startChild(t, sleeps, self, launch.Env...), startChild(t, deaf, self, launch.Env...)
	stranger := startChild(t, sleeps, self) // no task's: root's, or a server's that is not root's to judge
	pids := []int{listens.pid, refuses.pid, stranger.pid, os.Getpid(), a.arbiter.current().pid}
	ends := []child{listens, refuses}
	wantStopped := uint64(2)
	if self == 0 {
		person := startChild(t, sleeps, 65534, launch.Env...) // the mark of a task of root's, written by another
		service := startChild(t, sleeps, firstPerson-1)
		pids, ends, wantStopped = append(pids, person.pid, service.pid), append(ends, person), 3
		defer func() {
			if !service.lives() {
				t.Error("a service was ended")
			}
		}()
	}
	devices.compute("GPU-a", pids...)
	l := newLooking(nil)
	a.look(testContext(t), l)
	if stopped := sample(t, a).Devices[0].Stopped; stopped != 0 {
		t.Errorf("%d were ended after one look", stopped)
	}
	a.look(testContext(t), l)
	for _, one := range ends {
		one.await(t)
	}
	told := map[string]bool{}
	for range ends {
		n := nextNotice(t, a, Stopped)
		told[n.Message] = true
		if n.Device != "GPU-a" || (n.Task == "w.0") != strings.Contains(n.Message, " of task w.0 is ended, as --unenforced stop says") {
			t.Errorf("notice %+v", n)
		}
	}
	if len(told) != len(ends) {
		t.Errorf("notices %v, want one of each of %d", told, len(ends))
	}
	a.look(testContext(t), l) // what was spared is spared again
	if got := sample(t, a).Devices[0]; got.Stopped != wantStopped || !stranger.lives() || len(got.Unenforced) < 3 {
		t.Errorf("%d ended, want %d; the stranger lives: %v; shown %+v", got.Stopped, wantStopped, stranger.lives(), got.Unenforced)
	}
}

// TestShowEndsNothing: without the rule a process that goes around is shown and runs on.
func TestShowEndsNothing(t *testing.T) {
	devices := newFakeDevices("GPU-a")
	a := openStopping(t, fakeRun(t), devices, api.ShowUnenforced)
	launch, err := a.Prepare(testContext(t), aTask("w.0", 250, 800, "GPU-a"))
	if err != nil {
		t.Fatal(err)
	}
	around := startChild(t, "echo ready; exec sleep 1000", uint32(os.Geteuid()), launch.Env...)
	devices.compute("GPU-a", around.pid)
	l := newLooking(nil)
	for range 4 {
		a.look(testContext(t), l)
	}
	if got := sample(t, a).Devices[0]; !around.lives() || got.Stopped != 0 || len(got.Unenforced) != 1 {
		t.Errorf("it lives: %v; %+v", around.lives(), got)
	}
}

// TestService: a program of the driver is known by a file that only root may write to, whatever it is called.
func TestService(t *testing.T) {
	folder := t.TempDir()
	program := filepath.Join(folder, device.Services[0])
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(sleep)
	if err == nil {
		err = os.WriteFile(program, content, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]bool{0o755: os.Geteuid() == 0, 0o775: false} {
		if err := os.Chmod(program, mode); err != nil {
			t.Fatal(err)
		}
		command := exec.Command(program, "1000")
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		if got := isService(command.Process.Pid); got != want {
			t.Errorf("with mode %o it is a service: %v", mode, got)
		}
		_ = command.Process.Kill()
		_ = command.Wait()
	}
	called := startChild(t, fmt.Sprintf("echo ready; exec -a %s sleep 1000", device.Services[0]), uint32(os.Geteuid()))
	if isService(called.pid) {
		t.Error("a program is a service by what it calls itself")
	}
}

// TestForgedSlot: a task that writes a process of another into its page takes nothing from that: it stays held to its own share.
func TestForgedSlot(t *testing.T) {
	folder := fakeRun(t)
	devices := newFakeDevices("GPU-a", "GPU-b")
	a := openStopping(t, folder, devices, api.StopUnenforced)
	for uid, device := range map[string]string{"honest": "GPU-a", "thief": "GPU-b"} {
		if _, err := a.Prepare(testContext(t), aTask(uid, 250, 800, device)); err != nil {
			t.Fatal(err)
		}
	}
	honest := startChild(t, "echo ready; exec sleep 1000", uint32(os.Geteuid()))
	for _, uid := range []string{"honest", "thief"} {
		tel, _ := pages(t, folder, uid)
		register(tel, 0, honest.pid)
	}
	devices.compute("GPU-a", honest.pid)
	l := newLooking(nil)
	for range 3 {
		a.look(testContext(t), l)
	}
	if got := sample(t, a).Devices[0]; !honest.lives() || got.Stopped != 0 || len(got.Unenforced) != 0 {
		t.Errorf("it lives: %v; %+v", honest.lives(), got)
	}
}

// openWatchful opens an agent with everything real, which looks often.
func openWatchful(t *testing.T, folder, devices string, rule api.UnenforcedRule) *Agent {
	t.Helper()
	config := Config{Run: folder, Simulate: devices, Unenforced: rule}
	a, err := newAgent(config)
	if err != nil {
		t.Fatal(err)
	}
	a.every = 50 * time.Millisecond
	if err := a.open(testContext(t), config); err != nil {
		t.Fatal(errors.Join(err, a.Close()))
	}
	t.Cleanup(func() { closeAgent(t, a) })
	return a
}

// TestStoppedProgram: a real program of a task that goes around the shim is ended; the one beside it that does not runs on, also while its
// arbiter is killed and comes anew.
func TestStoppedProgram(t *testing.T) {
	folder := shortFolder(t)
	a := openWatchful(t, folder, "h200x1", api.StopUnenforced)
	launch, err := a.Prepare(testContext(t), aTask("w.0", 500, 1000, a.Devices()[0].UUID))
	if err != nil {
		t.Fatal(err)
	}
	held := start(t, launch.Env)
	around := start(t, append(slices.Clone(launch.Env), "LD_LIBRARY_PATH="+filepath.Join(folder, native.Sim)))
	if n := nextNotice(t, a, Stopped); n.Task != "w.0" || !strings.Contains(n.Message, fmt.Sprintf("Process %d (tenant)", around.pid)) {
		t.Errorf("notice %+v, want one of process %d", n, around.pid)
	}
	if around.lines.Scan() {
		t.Errorf("it was not ended, and said %q", around.lines.Text())
	}
	nextNotice(t, a, Enforced)
	if err := a.arbiter.current().signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	nextNotice(t, a, ArbiterBack)
	for range 20 {
		if got := held.tell("launch 20"); got != "launched" {
			t.Fatal(got)
		}
	}
	if s := sample(t, a); s.Devices[0].Stopped != 1 || len(s.Devices[0].Unenforced) != 0 || !slices.Equal(s.Tasks[0].Processes, []int{held.pid}) {
		t.Errorf("%+v", s)
	}
}
