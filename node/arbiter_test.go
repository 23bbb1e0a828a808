package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/native"
)

// TestArbiterIsReplaced: an arbiter that dies is started again at once, and a request under way outlasts it.
func TestArbiterIsReplaced(t *testing.T) {
	folder := fakeRun(t)
	a := openFake(t, folder, newFakeDevices("GPU-a"))
	ctx := testContext(t)
	if _, err := a.Prepare(ctx, aTask("w.0", 250, 800, "GPU-a")); err != nil {
		t.Fatal(err)
	}
	if err := a.arbiter.current().signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone := nextNotice(t, a, ArbiterGone)
	back := nextNotice(t, a, ArbiterBack)
	if gone.Message == "" || back.Message == "" {
		t.Errorf("notices %+v, %+v", gone, back)
	}
	if got := known(t, a); got != "w.0" {
		t.Errorf("the new arbiter knows %q", got)
	}

	setMode(t, folder, "die add")
	if _, err := a.Prepare(ctx, aTask("w.1", 250, 800, "GPU-a")); err != nil {
		t.Errorf("prepare while the arbiter dies of it: %v", err)
	}
	nextNotice(t, a, ArbiterBack)
	setMode(t, folder, "die del")
	if err := a.Unprepare(ctx, "w.0"); err != nil {
		t.Errorf("unprepare while the arbiter dies of it: %v", err)
	}
	nextNotice(t, a, ArbiterBack)
	if got := known(t, a); got != "w.1" {
		t.Errorf("the arbiter knows %q", got)
	}
}

// TestAbandon: an agent of which nothing comes ends what it started, and leaves what it found or what a task is prepared on.
func TestAbandon(t *testing.T) {
	folder := fakeRun(t)
	ctx := testContext(t)
	serves := func() bool {
		p := server(run(folder).control())
		if p != nil {
			p.close()
		}
		return p != nil
	}
	abandon := func(a *Agent) {
		t.Helper()
		if err := a.Abandon(ctx); err != nil {
			t.Fatal(err)
		}
	}
	abandon(openFake(t, folder, newFakeDevices("GPU-a")))
	if serves() {
		t.Error("it left the arbiter that it started")
	}
	closeAgent(t, openFake(t, folder, newFakeDevices("GPU-a")))
	found := openFake(t, folder, newFakeDevices("GPU-a"))
	abandon(found)
	if !serves() {
		t.Error("it ended an arbiter that it found")
	}
	if err := openFake(t, folder, newFakeDevices("GPU-a")).Shutdown(ctx, false); err != nil {
		t.Fatal(err)
	}
	holds := openFake(t, folder, newFakeDevices("GPU-a"))
	if _, err := holds.Prepare(ctx, aTask("w.0", 250, 800, "GPU-a")); err != nil {
		t.Fatal(err)
	}
	abandon(holds)
	if !serves() {
		t.Error("it ended the arbiter of a task that is prepared")
	}
}

func TestArbiterRefuses(t *testing.T) {
	folder := fakeRun(t)
	a := openFake(t, folder, newFakeDevices("GPU-a"))
	ctx := testContext(t)
	setMode(t, folder, "refuse add")
	if _, err := a.Prepare(ctx, aTask("w.0", 250, 800, "GPU-a")); err == nil || !strings.Contains(err.Error(), "told to refuse") {
		t.Errorf("prepared what the arbiter refuses: %v", err)
	}
	if entries, _ := os.ReadDir(filepath.Join(folder, "tasks")); len(entries) != 0 || len(a.Prepared()) != 0 {
		t.Errorf("left: %v, %v", entries, a.Prepared())
	}
	setMode(t, folder, "")
	if _, err := a.Prepare(ctx, aTask("w.0", 250, 800, "GPU-a")); err != nil {
		t.Errorf("prepared again: %v", err)
	}
}

// TestArbiterOfAnotherBuild: an agent whose installed arbiter is another file than the one that runs replaces it.
func TestArbiterOfAnotherBuild(t *testing.T) {
	folder := fakeRun(t)
	a := openFake(t, folder, newFakeDevices("GPU-a"))
	before := a.arbiter.current().pid
	closeAgent(t, a)
	program := filepath.Join(folder, native.Arbiter)
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, content, 0o755); err != nil {
		t.Fatal(err)
	}
	b := openFake(t, folder, newFakeDevices("GPU-a"))
	if b.arbiter.current().pid == before {
		t.Error("the arbiter of the other build still runs")
	}
	if f, ok := factsOf(before); ok && !f.dead {
		t.Errorf("process %d still runs: %+v", before, f)
	}
}

// TestArbiterThatHangs: an agent that finds an arbiter which does not answer ends it, by force if need be, and starts another.
func TestArbiterThatHangs(t *testing.T) {
	for _, mode := range []string{"hang ping", "hang "} { // the second does not answer `quit` either
		t.Run(mode, func(t *testing.T) {
			folder := fakeRun(t)
			a := openFake(t, folder, newFakeDevices("GPU-a"))
			if _, err := a.Prepare(testContext(t), aTask("w.0", 250, 800, "GPU-a")); err != nil {
				t.Fatal(err)
			}
			hanging := a.arbiter.current().pid
			closeAgent(t, a)
			setMode(t, folder, mode)
			b, err := newAgent(Config{Run: folder})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { closeAgent(t, b) })
			b.backend, b.arbiter.patience = newFakeDevices("GPU-a"), time.Millisecond
			found, err := b.arbiter.find(testContext(t))
			if err != nil || found != nil {
				t.Fatalf("found %v, %v", found, err)
			}
			if f, ok := factsOf(hanging); ok && !f.dead {
				t.Errorf("the arbiter that hangs still runs: %+v", f)
			}
			setMode(t, folder, "")
			if err := errors.Join(b.loadTasks(), b.takeOver(testContext(t))); err != nil {
				t.Fatal(err)
			}
			if got := known(t, b); got != "w.0" {
				t.Errorf("the new arbiter knows %q", got)
			}
		})
	}
}

// TestArbiterThatHangsLater: one that stops answering while an agent watches it is ended and replaced, and what was prepared is known to the next.
func TestArbiterThatHangsLater(t *testing.T) {
	folder := fakeRun(t)
	a, err := newAgent(Config{Run: folder})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAgent(t, a) })
	a.backend = newFakeDevices("GPU-a")
	a.arbiter.patience, a.arbiter.every = 5*time.Second, time.Millisecond // a busy machine may keep one that answers from it for a second
	ctx := testContext(t)
	if err := a.takeOver(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Prepare(ctx, aTask("w.0", 250, 800, "GPU-a")); err != nil {
		t.Fatal(err)
	}
	hanging := a.arbiter.current()
	if err := hanging.signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if gone := nextNotice(t, a, ArbiterGone); !strings.Contains(gone.Message, "did not answer") {
		t.Errorf("notice %+v", gone)
	}
	nextNotice(t, a, ArbiterBack)
	if got := known(t, a); got != "w.0" || a.arbiter.current().pid == hanging.pid {
		t.Errorf("the arbiter, pid %d after %d, knows %q", a.arbiter.current().pid, hanging.pid, got)
	}
}

func TestArbiterThatCannotStart(t *testing.T) {
	folder := shortFolder(t)
	program := filepath.Join(folder, native.Arbiter)
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho no luck today\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := tryFake(testContext(t), folder, newFakeDevices("GPU-a")); err == nil || !strings.Contains(err.Error(), "no luck today") {
		t.Errorf("started: %v", err)
	}
}

// TestArbiterDiesWhileItStarts: one that is killed before it answers is started again, and the agent opens.
func TestArbiterDiesWhileItStarts(t *testing.T) {
	folder := fakeRun(t)
	setMode(t, folder, "die ping")
	a := openFake(t, folder, newFakeDevices("GPU-a"))
	if _, err := a.Prepare(testContext(t), aTask("w.0", 250, 800, "GPU-a")); err != nil {
		t.Fatal(err)
	}
	if known(t, a) != "w.0" {
		t.Errorf("the arbiter knows %q", known(t, a))
	}
}
