package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/internal/until"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/node"
)

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
	found, err := s.folder(work.UID).Look()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Host.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.root, "gate"), []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	if err := found.Supervisor.Ended(t.Context()); err != nil {
		t.Fatal(err)
	}
	reopened := time.Now()
	s.open()
	status := s.ended("one").Status
	if status.ExitCode == nil || *status.ExitCode != 6 || status.Outcome != api.Failed || !status.Ended.Before(reopened) {
		t.Errorf("ended with %+v, the server is here since %s", status, reopened)
	}
	why, err := s.Why(context.Background(), "one")
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range why.History {
		if strings.Contains(record.Message, "ran on") {
			t.Errorf("it had ended, and its history says: %s", record.Message)
		}
	}
	if last := why.History[len(why.History)-1]; !last.At.Equal(status.Ended.Truncate(time.Microsecond)) {
		t.Errorf("it ended at %s, and its history says %s %q", status.Ended, last.At, last.Message)
	}
}

// What runs can be ended without a daemon, and the next one knows how it ended.
func TestTasksAreEndedWithoutADaemon(t *testing.T) {
	s := newSite(t, nil)
	for _, c := range []struct {
		kind, trap, signal string
		grace              time.Duration
	}{{"soft", "exit 4", "", time.Minute}, {"hard", "", "SIGKILL", 50 * time.Millisecond}} {
		names := []string{c.kind + "-a", c.kind + "-b"}
		for _, name := range names {
			asked := spec("0.5", "trap '"+c.trap+"' TERM; touch "+filepath.Join(s.root, name)+"; while :; do sleep 0.01; done")
			asked.Name = name
			s.submit(asked)
			until.File(t, filepath.Join(s.root, name), name+" has set its trap", func() bool {
				_, err := os.Stat(filepath.Join(s.root, name))
				return err == nil
			})
			s.running(name)
		}
		if _, err := EndTasks(context.Background(), s.State, 0); err == nil {
			t.Error("tasks were ended past the daemon that runs them")
		}
		if err := s.Host.Close(); err != nil {
			t.Fatal(err)
		}
		if count, err := EndTasks(context.Background(), s.State, c.grace); err != nil || count != 2 {
			t.Errorf("%d tasks were ended, %v", count, err)
		}
		if count, err := EndTasks(context.Background(), s.State, 0); err != nil || count != 0 {
			t.Errorf("a second time there were %d, %v", count, err)
		}
		s.open()
		for _, name := range names {
			if status := s.ended(name).Status; status.Outcome != api.Stopped || status.Signal != c.signal {
				t.Errorf("%s ended with %+v", name, status)
			}
		}
	}
}

func TestKilledSupervisorsTaskRunsOnAndItsStatusIsInherited(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("1", "trap 'exit 9' USR1; echo ready; while :; do sleep 0.01; done")
	asked.Name = "one"
	work := s.submit(asked)
	s.running("one")
	until.File(t, s.logPath(work.UID), "it is ready", func() bool { return strings.Contains(s.log("one"), "ready") })
	found, err := s.folder(work.UID).Look()
	if err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(found.Supervisor.PID, syscall.SIGKILL)
	s.heard("it is noticed", func() bool { return len(s.wait("one").Status.Notes) > 0 })
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
	if err := found.Supervisor.Ended(context.Background()); err != nil {
		t.Fatal(err)
	}
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
	until.Polled(t, "the page says what the store says", func() bool { return s.agent.Prepared()[0].Grants[0].Ceiling == 500 })
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
