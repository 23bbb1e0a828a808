package supervise

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

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
	// Whether it is stubborn by then is the machine's to say: it has longer and longer for that.
	for limit, stubborn := time.Millisecond, false; !stubborn; limit *= 4 {
		task := newTask(t, "trap '' TERM; echo stubborn; while :; do sleep 1000; done")
		task.recipe.TimeLimit, task.recipe.Grace = limit, 50*time.Millisecond
		task.start()
		task.wait()
		exit := task.exit()
		if stubborn = exit.Signal != "SIGTERM"; stubborn && (exit.Signal != "SIGKILL" || task.log() != "stubborn\n") || !exit.TimedOut || exit.Stopped {
			t.Fatalf("with a limit of %s it ended with %+v and said %q", limit, exit, task.log())
		}
	}
}

func TestOrderStopsWithSIGTERMFirst(t *testing.T) {
	task := newTask(t, "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done").start()
	task.says("ready")
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
	found, err := task.dir.Look()
	if exit := task.exit(); !exit.Stopped || !exit.NotStarted || err != nil || found.Begun || found.Child != nil {
		t.Errorf("ended with %+v: found %+v, %v", exit, found, err)
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

func TestDamagedFolderIsSaid(t *testing.T) {
	dir := Folder(t.TempDir())
	if err := os.WriteFile(filepath.Join(string(dir), childFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Look(); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("looked with %v", err)
	}
}
