package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// nobody is a user without rights, for what an unprivileged server does.
const nobody = 65534

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "supervise" {
		os.Exit(Main(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == "as-nobody" {
		os.Exit(asNobody(Folder(os.Args[2])))
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // a supervisor under the race detector would end a second late
	os.Exit(m.Run())
}

// asNobody starts a supervisor without rights and waits for it.
func asNobody(dir Folder) int {
	started, err := dir.Start([]string{os.Args[0], "supervise"}, nil)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	child, exit := started.Report()
	fmt.Println(child, exit, started.Wait())
	return 0
}

// task is one task under test.
type task struct {
	*testing.T
	dir     Folder
	recipe  Recipe
	started *Started
	waited  bool
}

func newTask(t *testing.T, shell string) *task {
	dir := t.TempDir()
	one := &task{T: t, dir: Folder(filepath.Join(dir, "task")), recipe: Recipe{
		UID: "uid-" + strconv.Itoa(os.Getpid()) + "-" + strings.ReplaceAll(t.Name(), "/", "-"), Command: []string{"sh", "-c", shell}, Program: "/bin/sh", Dir: dir,
		Log: filepath.Join(dir, "log"), Grace: DefaultGrace,
	}}
	one.recipe.Env = []string{"PATH=/usr/bin:/bin", Marker + "=" + one.recipe.UID}
	t.Cleanup(func() {
		found, _ := one.dir.Look()
		if one.started != nil && !one.waited {
			_ = found.Supervisor.Send(unix.SIGKILL)
			one.started.Wait()
		}
		if err := EndLeftover(context.Background(), found.Task(one.recipe.UID), 0); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return one
}

func (k *task) start(env ...string) *task {
	k.Helper()
	if err := k.dir.Prepare(k.recipe); err != nil {
		k.Fatal(err)
	}
	for _, one := range env {
		name, value, _ := strings.Cut(one, "=")
		k.Setenv(name, value)
	}
	var err error
	if k.started, err = k.dir.Start([]string{os.Args[0], "supervise"}, nil); err != nil {
		k.Fatal(err)
	}
	return k
}

func (k *task) wait() string {
	k.waited = true
	return k.started.Wait()
}

func (k *task) look() Found {
	k.Helper()
	found, err := k.dir.Look()
	if err != nil {
		k.Fatal(err)
	}
	return found
}

func (k *task) exit() Exit {
	k.Helper()
	found := k.look()
	if found.Exit == nil {
		k.Fatalf("no exit status; the supervisor said: %s", k.dir.Words())
	}
	return *found.Exit
}

func (k *task) log() string {
	k.Helper()
	data, err := os.ReadFile(k.recipe.Log)
	if err != nil {
		k.Fatal(err)
	}
	return string(data)
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

func TestExitStatusIsRecorded(t *testing.T) {
	for shell, want := range map[string]Exit{
		"exit 0":            {},
		"exit 7":            {Code: 7},
		"kill -SEGV $$":     {Code: 139, Signal: "SIGSEGV"},
		"kill -KILL $$":     {Code: 137, Signal: "SIGKILL"},
		"sleep 0 & exit 3":  {Code: 3},
		"trap '' TERM; :":   {},
		"exec /bin/false":   {Code: 1},
		"echo a; echo b>&2": {},
	} {
		t.Run(shell, func(t *testing.T) {
			task := newTask(t, shell).start()
			child, refused := task.started.Report()
			if refused != nil || child == nil || child.PID <= 0 {
				t.Fatalf("reported %v, %v", child, refused)
			}
			if how := task.wait(); how != "" {
				t.Errorf("the supervisor ended: %s", how)
			}
			got := task.exit()
			if got.At.IsZero() {
				t.Error("no time of the end")
			}
			if got.At = (time.Time{}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if strings.Contains(shell, "echo") && task.log() != "a\nb\n" {
				t.Errorf("log %q", task.log())
			}
			if task.look().Supervised {
				t.Error("supervised after its end")
			}
		})
	}
}

func TestProgramThatCannotBeStartedIsRefusedInOneSentence(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"text": "hello", "script": "#!/no/such/interpreter\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "plain"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]struct {
		code int
		text string
	}{
		"missing": {127, "the program ./missing cannot be run: no such file or directory"},
		"plain":   {126, "the program ./plain cannot be run: permission denied"},
		"text":    {126, "the program ./text cannot be run: not a program"},
		"script":  {127, "the program ./script cannot be run: the interpreter or loader that it names does not exist"},
	} {
		t.Run(program, func(t *testing.T) {
			task := newTask(t, "")
			task.recipe.Program, task.recipe.Command = filepath.Join(dir, program), []string{"./" + program}
			task.start()
			child, exit := task.started.Report()
			if child != nil || exit == nil || exit.Code != want.code || !strings.HasPrefix(exit.Refused, want.text) {
				t.Errorf("reported %v, %+v; want %+v", child, exit, want)
			}
			task.wait()
			if task.exit().Code != want.code {
				t.Errorf("recorded %+v", task.exit())
			}
		})
	}
	t.Run("folder", func(t *testing.T) {
		task := newTask(t, "")
		task.recipe.Dir = filepath.Join(dir, "nowhere")
		task.start()
		if _, exit := task.started.Report(); exit == nil || !strings.Contains(exit.Refused, "nowhere cannot be entered") {
			t.Errorf("reported %+v", exit)
		}
		task.wait()
	})
}

func TestTimeLimitEndsEvenTheStubborn(t *testing.T) {
	task := newTask(t, "trap '' TERM; while :; do sleep 1000; done")
	task.recipe.TimeLimit, task.recipe.Grace = time.Millisecond, 50*time.Millisecond
	task.start()
	task.wait()
	if exit := task.exit(); !exit.TimedOut || exit.Signal != "SIGKILL" || exit.Stopped {
		t.Errorf("ended with %+v", exit)
	}
}

func TestOrderStopsWithSIGTERMFirst(t *testing.T) {
	task := newTask(t, "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done").start()
	until(t, "the program is ready", func() bool {
		data, _ := os.ReadFile(task.recipe.Log)
		return strings.Contains(string(data), "ready")
	})
	for range 2 { // given again by a daemon that does not know whether it was given
		if err := task.dir.Order(Order{Grace: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	task.wait()
	if exit := task.exit(); exit.Code != 5 || !exit.Stopped || exit.Signal != "" {
		t.Errorf("ended with %+v", exit)
	}
	if !strings.HasSuffix(task.log(), "bye\n") {
		t.Errorf("log %q", task.log())
	}
}

func TestOrderGivenBeforeTheStartHolds(t *testing.T) {
	task := newTask(t, "sleep 1000")
	if err := task.dir.Prepare(task.recipe); err != nil {
		t.Fatal(err)
	}
	if err := task.dir.Order(Order{}); err != nil {
		t.Fatal(err)
	}
	task.start()
	task.wait()
	if exit := task.exit(); !exit.Stopped {
		t.Errorf("ended with %+v", exit)
	}
}

func TestNothingOfATaskIsLeftBehind(t *testing.T) {
	// Grandchildren in sessions of their own, whose parents are gone, that ignore what can be ignored.
	task := newTask(t, `for i in 1 2 3; do setsid sh -c 'trap "" TERM HUP; (sleep 1000 & echo $!; wait) & wait' & done
		while [ "$(wc -l < log)" -lt 3 ]; do sleep 0.01; done; exit 4`).start()
	task.wait()
	if exit := task.exit(); exit.Code != 4 {
		t.Errorf("ended with %+v", exit)
	}
	for _, line := range strings.Fields(task.log()) {
		pid, err := strconv.Atoi(line)
		if err != nil {
			t.Fatal(err)
		}
		if process, err := Find(pid); err == nil && process.Alive() && marked(pid, task.recipe.UID) {
			t.Errorf("process %d lives on", pid)
		}
	}
	if list, err := Leftover(task.look().Task(task.recipe.UID)); err != nil || len(list) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}

func TestTaskOfAKilledSupervisorRunsOn(t *testing.T) {
	task := newTask(t, "trap 'exit 9' USR1; echo ready; while :; do sleep 0.01; echo x; done").start()
	child, _ := task.started.Report()
	until(t, "the program is ready", func() bool {
		data, _ := os.ReadFile(task.recipe.Log)
		return strings.Contains(string(data), "ready")
	})
	if err := task.look().Supervisor.Send(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if how := task.wait(); how != "killed by SIGKILL" {
		t.Errorf("the supervisor ended %q", how)
	}
	found := task.look()
	if found.Supervised || !found.Begun || found.Exit != nil || found.Child == nil || !found.Child.Alive() {
		t.Fatalf("found %+v", found)
	}
	size := len(task.log())
	until(t, "the program goes on printing", func() bool { return len(task.log()) > size })
	if err := child.Signal(unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if err := child.Ended(context.Background()); err != nil {
		t.Error(err)
	}
	if err := child.Signal(unix.SIGUSR1); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal to what has ended: %v", err)
	}
}

func TestLeftoverOfAKilledSupervisorIsFoundAndEnded(t *testing.T) {
	task := newTask(t, "setsid sleep 1000 & env -i sleep 1000 & trap '' TERM; echo ready; wait; sleep 1000").start()
	task.started.Report()
	until(t, "three processes", func() bool {
		list, _ := Leftover(task.look().Task(task.recipe.UID))
		return len(list) >= 3 && strings.Contains(task.log(), "ready")
	})
	_ = task.look().Supervisor.Send(unix.SIGKILL)
	task.wait()
	if err := EndLeftover(context.Background(), task.look().Task(task.recipe.UID), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if list, err := Leftover(task.look().Task(task.recipe.UID)); err != nil || len(list) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}

// TestOrphansOfAKilledSupervisorAreReaped: what a task without a supervisor starts and forgets does not stay a zombie.
func TestOrphansOfAKilledSupervisorAreReaped(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	task := newTask(t, "echo ready; while [ ! -e go ]; do sleep 0.01; done; (true & true &); exec sleep 1000").start()
	child, _ := task.started.Report()
	zombies := func() (count int) {
		list, err := all()
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range list {
			if one.session == child.PID && one.state == 'Z' && one.parent == os.Getpid() {
				count++
			}
		}
		return count
	}
	_ = task.look().Supervisor.Send(unix.SIGKILL)
	task.wait()
	if err := os.WriteFile(filepath.Join(task.recipe.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "two are left", func() bool { return zombies() == 2 })
	if err := Reap(); err != nil || zombies() != 0 {
		t.Errorf("%d zombies, %v", zombies(), err)
	}
	if !child.Alive() {
		t.Error("the program does not live")
	}
}

func TestOneSupervisorATask(t *testing.T) {
	task := newTask(t, "sleep 1000").start()
	if !task.look().Supervised {
		t.Error("not supervised from the start")
	}
	if _, err := task.dir.Start([]string{os.Args[0], "supervise"}, nil); !errors.Is(err, ErrRunning) {
		t.Errorf("a second supervisor: %v", err)
	}
	_ = task.dir.Order(Order{})
	task.wait()
}

func TestSupervisorKilledAtEachPointLeavesWhatIsTrue(t *testing.T) {
	for at, check := range map[string]func(Found) bool{
		"supervise.child.begun":    func(f Found) bool { return f.Begun && f.Child == nil && f.Exit == nil },
		"supervise.child.started":  func(f Found) bool { return f.Begun && f.Child == nil && f.Exit == nil },
		"supervise.child.recorded": func(f Found) bool { return f.Begun && f.Child != nil && f.Exit == nil },
		"supervise.exit.seen":      func(f Found) bool { return f.Child != nil && !f.Child.Alive() && f.Exit == nil },
		"supervise.exit.written":   func(f Found) bool { return f.Child != nil && f.Exit != nil && f.Exit.Code == 3 },
	} {
		t.Run(at, func(t *testing.T) {
			task := newTask(t, "exit 3").start("ALIQUOT_KILL_AT=" + at)
			if how := task.wait(); how != "killed by SIGKILL" {
				t.Fatalf("the supervisor ended %q: the point was not reached", how)
			}
			if found := task.look(); found.Supervised || !check(found) {
				t.Errorf("found %+v", found)
			}
		})
	}
}

func TestStreamsAreHandedToTheProgram(t *testing.T) {
	task := newTask(t, "cat; echo err >&2")
	task.recipe.Log = ""
	if err := task.dir.Prepare(task.recipe); err != nil {
		t.Fatal(err)
	}
	in, feed, _ := os.Pipe()
	out, sink, _ := os.Pipe()
	var err error
	if task.started, err = task.dir.Start([]string{os.Args[0], "supervise"}, []*os.File{in, sink, sink}); err != nil {
		t.Fatal(err)
	}
	_, _ = in.Close(), sink.Close()
	_, _ = feed.WriteString("through\n")
	_ = feed.Close()
	var got strings.Builder
	buffer := make([]byte, 100)
	for { // the end comes only if the supervisor kept no copy
		n, err := out.Read(buffer)
		got.Write(buffer[:n])
		if err != nil {
			break
		}
	}
	_ = out.Close()
	if got.String() != "through\nerr\n" {
		t.Errorf("got %q", got.String())
	}
	task.wait()
}

func mountTask(t *testing.T) (*task, string) {
	task := newTask(t, "cat target; ! (echo x > target) 2>/dev/null && echo read-only; cat log > /dev/null")
	dir := task.recipe.Dir
	for name, content := range map[string]string{"target": "original\n", "source": "bound\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	task.recipe.Mounts = []Mount{{Source: filepath.Join(dir, "source"), Target: filepath.Join(dir, "target"), ReadOnly: true}}
	return task, filepath.Join(dir, "target")
}

func TestMountsAreSeenByTheProgramOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	task, target := mountTask(t)
	task.start()
	child, exit := task.started.Report()
	if child == nil || len(child.Notes) > 0 {
		t.Fatalf("reported %+v, %+v", child, exit)
	}
	task.wait()
	if task.log() != "bound\nread-only\n" {
		t.Errorf("the program saw %q", task.log())
	}
	if data, _ := os.ReadFile(target); string(data) != "original\n" {
		t.Errorf("outside it is %q", data)
	}
}

func TestMountsWithoutRightsUseAUserNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become a user without rights")
	}
	task, _ := mountTask(t)
	task.recipe.Command[2] = "id -u; " + task.recipe.Command[2]
	if err := task.dir.Prepare(task.recipe); err != nil {
		t.Fatal(err)
	}
	// Everything belongs to nobody, and the way to it is open.
	if err := filepath.Walk(task.recipe.Dir, func(path string, _ os.FileInfo, err error) error {
		return errors.Join(err, os.Chown(path, nobody, nobody))
	}); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(task.recipe.Dir, "binary")
	for path := filepath.Dir(task.recipe.Dir); path != "/tmp" && path != "/"; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, data, 0o755); err != nil {
		t.Fatal(err)
	}
	helper := exec.Command(binary, "as-nobody", string(task.dir))
	helper.Dir = "/"
	helper.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	said, err := helper.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	found := task.look()
	if found.Child == nil {
		t.Fatalf("not started: %s; %s", said, task.dir.Words())
	}
	if len(found.Child.Notes) > 0 { // a machine that allows no user namespaces says so and starts it all the same
		if !strings.Contains(found.Child.Notes[0], "LD_LIBRARY_PATH") {
			t.Errorf("notes %q", found.Child.Notes)
		}
		t.Logf("this machine allows no user namespaces: %q", found.Child.Notes)
		return
	}
	if task.log() != "65534\nbound\nread-only\n" {
		t.Errorf("the program saw %q", task.log())
	}
}

func TestMountsThatCannotBeMadeFallBackToTheLibraryPath(t *testing.T) {
	task := newTask(t, "echo $LD_LIBRARY_PATH")
	task.recipe.Mounts = []Mount{{Source: "/no/such/source", Target: "/no/such/target"}}
	task.recipe.LibraryPath = "/the/shim"
	task.recipe.Env = append(task.recipe.Env, "LD_LIBRARY_PATH=/own")
	task.start()
	child, _ := task.started.Report()
	if child == nil || len(child.Notes) != 1 || !strings.Contains(child.Notes[0], "LD_LIBRARY_PATH") {
		t.Errorf("reported %+v", child)
	}
	task.wait()
	if task.log() != "/the/shim:/own\n" {
		t.Errorf("the program saw %q", task.log())
	}
}

func TestProgramRunsAsItsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	task := newTask(t, "id -u; id -g; id -G")
	task.recipe.User = &User{UID: nobody, GID: nobody, Groups: []uint32{nobody, 4242}}
	task.recipe.Dir = "/"
	task.start()
	task.wait()
	if task.log() != "65534\n65534\n65534 4242\n" {
		t.Errorf("ran as %q", task.log())
	}
	info, err := os.Stat(task.recipe.Log)
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != nobody || info.Mode().Perm() != 0o600 {
		t.Errorf("log %v, %v", info, err)
	}
}

// What a server may have for itself, a program of another user has not.
func TestProgramOfAnotherUserHasALoginsLimits(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	raise := func(what int, limits unix.Rlimit) {
		t.Helper()
		var before unix.Rlimit
		if err := unix.Getrlimit(what, &before); err != nil {
			t.Fatal(err)
		}
		if unix.Setrlimit(what, &limits) != nil { // where root may not raise them, what there is
			if err := unix.Setrlimit(what, &unix.Rlimit{Cur: before.Max, Max: before.Max}); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { _ = unix.Setrlimit(what, &before) })
	}
	raise(unix.RLIMIT_RTPRIO, unix.Rlimit{Cur: 10, Max: 10})
	raise(unix.RLIMIT_MEMLOCK, unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	raise(unix.RLIMIT_NOFILE, unix.Rlimit{Cur: 4096, Max: 1 << 20})
	task := newTask(t, "umask; cat /proc/self/limits")
	task.recipe.User, task.recipe.Dir = &User{UID: nobody, GID: nobody}, "/"
	before := unix.Umask(0o077)
	defer unix.Umask(before)
	task.start()
	task.wait()
	has := map[string]string{}
	for line := range strings.Lines(task.log()) {
		if name, rest, ok := strings.Cut(line, "  "); ok {
			has[name] = strings.Join(strings.Fields(rest)[:2], " ")
		}
	}
	for name, most := range map[string][2]uint64{"Max open files": {1024, 524288}, "Max locked memory": {8 << 20, 8 << 20}, "Max realtime priority": {}} {
		var soft, hard uint64
		if _, err := fmt.Sscan(has[name], &soft, &hard); err != nil || soft > most[0] || hard > most[1] {
			t.Errorf("%s: %q, %v; want at most %d", name, has[name], err, most)
		}
	}
	if !strings.HasPrefix(task.log(), "0022\n") {
		t.Errorf("its umask is %.4s", task.log())
	}
}

// A program whose mounts could be made in part sees none of them.
func TestMountsMadeInPartAreNotSeen(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	task, _ := mountTask(t)
	task.recipe.Command[2] = "cat target"
	task.recipe.Mounts = append(task.recipe.Mounts, Mount{Source: "/no/such/source", Target: "/no/such/target"})
	task.start()
	child, _ := task.started.Report()
	if child == nil || len(child.Notes) != 1 {
		t.Errorf("reported %+v", child)
	}
	task.wait()
	if task.log() != "original\n" {
		t.Errorf("the program saw %q", task.log())
	}
}

func TestProcessIsNotTakenForALaterOneWithItsNumber(t *testing.T) {
	self, err := Find(os.Getpid())
	if err != nil || !self.Alive() {
		t.Fatalf("%v, %v", self, err)
	}
	other := Process{PID: self.PID, Start: self.Start + 1}
	if other.Alive() {
		t.Error("a process that started at another time is taken for this one")
	}
	if err := other.Send(unix.SIGKILL); err != nil {
		t.Error(err)
	}
	if err := other.Ended(context.Background()); err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := self.Ended(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for oneself ended with %v", err)
	}
}

func TestDamagedFolderIsSaid(t *testing.T) {
	dir := Folder(t.TempDir())
	if err := os.WriteFile(filepath.Join(string(dir), childFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Look(); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("looked with %v", err)
	}
}
