package local

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/internal/until"
)

// An order to stop that could not be written, not even into the room kept for it, is given again.
func TestOrderThatWasNotHeardIsGivenAgain(t *testing.T) {
	var log syncedLog
	s := newSite(t, func(config *Config) { config.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	work := s.submit(spec("1", "sleep 1000"))
	s.running(work.UID)
	inTheWay := filepath.Join(s.root, "state", "tasks", work.UID, "stop.new")
	if err := os.Mkdir(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(filepath.Dir(inTheWay), "stop.room")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stop(context.Background(), me, work.UID, 0); err != nil {
		t.Fatal(err)
	}
	log.heard(t, "it is not heard", func() bool { return strings.Contains(log.String(), "is given again") })
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	if status := s.ended(work.UID).Status; status.Outcome != api.Stopped {
		t.Errorf("ended with %+v", status)
	}
}

// A second order is heard by a task without a supervisor too.
func TestMoreUrgentOrderWithoutSupervisor(t *testing.T) {
	s := newSite(t, nil)
	work := s.submit(spec("1", "trap '' TERM; echo ready; while :; do sleep 0.05; done"))
	s.running(work.UID)
	until.File(t, s.logPath(work.UID), "it hears no SIGTERM", func() bool { return s.log(work.UID) == "ready\n" })
	found, err := s.folder(work.UID).Look()
	if err != nil {
		t.Fatal(err)
	}
	if err := found.Supervisor.Send(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.heard("its supervisor is missed", func() bool { return len(s.wait(work.UID).Status.Notes) > 0 })
	if _, err := s.Stop(context.Background(), me, work.UID, api.Duration(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if phase := s.wait(work.UID).Status.Phase; phase != api.Stopping {
		t.Fatalf("it is %s", phase)
	}
	if _, err := s.Stop(context.Background(), me, work.UID, 0); err != nil {
		t.Fatal(err)
	}
	if status := s.ended(work.UID).Status; status.Outcome != api.Stopped {
		t.Errorf("ended with %+v", status)
	}
}

// A program whose supervisor died between its start and writing that down runs on, and how it ends is not guessed.
func TestProgramThatWasNotWrittenDownRunsOn(t *testing.T) {
	t.Setenv("ALIQUOT_KILL_AT", "supervise.child.started")
	s := newSite(t, nil)
	gate := filepath.Join(s.root, "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	work := s.submit(spec("1", "read x < "+gate+"; echo through; exit 7"))
	running := s.running(work.UID)
	if running.Status.PID <= 0 || len(running.Status.Notes) == 0 {
		t.Errorf("it is %+v", running.Status)
	}
	if err := os.WriteFile(gate, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	if status := s.ended(work.UID).Status; status.Outcome != api.Unknown || status.ExitCode != nil {
		t.Errorf("ended with %+v", status)
	}
	if log := s.log(work.UID); log != "through\n" {
		t.Errorf("it said %q", log)
	}
}

// A supervisor that cannot get its program started keeps no daemon from ending.
func TestStuckStartKeepsNoDaemon(t *testing.T) {
	stuck := true
	gate := filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	s := newSite(t, func(config *Config) {
		if stuck {
			config.Supervisor = []string{"sh", "-c", "read x < " + gate}
		}
		stuck = false
	})
	work := s.submit(spec("1", "exit 7"))
	until.Polled(t, "its supervisor is started", func() bool {
		found, err := s.folder(work.UID).Look()
		return err == nil && found.Supervised
	})
	closed := make(chan error, 1)
	go func() { closed <- s.Host.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the daemon does not end")
	}
	if err := os.WriteFile(gate, []byte("\n"), 0); err != nil { // whoever reads it ends
		t.Fatal(err)
	}
	until.Polled(t, "it has ended", func() bool {
		found, err := s.folder(work.UID).Look()
		return err == nil && !found.Supervised
	})
	s.open()
	if status := s.ended(work.UID).Status; status.ExitCode == nil || *status.ExitCode != 7 {
		t.Errorf("ended with %+v", status)
	}
}
