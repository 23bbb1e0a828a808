package supervise

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/host/local/internal/until"
)

func TestTaskOfAKilledSupervisorRunsOn(t *testing.T) {
	task := newTask(t, "trap 'exit 9' USR1; echo ready; while :; do sleep 0.01; echo x; done").start()
	child, _ := task.started.Report()
	task.says("ready")
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
	until.File(t, task.recipe.Log, "the program goes on printing", func() bool { return len(task.log()) > size })
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
	until.Polled(t, "three processes", func() bool {
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
	until.Polled(t, "two are left", func() bool { return zombies() == 2 })
	if err := Reap(); err != nil || zombies() != 0 {
		t.Errorf("%d zombies, %v", zombies(), err)
	}
	if !child.Alive() {
		t.Error("the program does not live")
	}
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
