package local

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/store"
)

// TestDamagedDatabaseIsRefusedAndTasksRunOn: the daemon says in one sentence what is damaged, and what
// runs is found again once the file is as it was.
func TestDamagedDatabaseIsRefusedAndTasksRunOn(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("1", "sleep 1000")
	asked.Name = "one"
	s.submit(asked)
	before := s.running("one")
	path := filepath.Join(s.State, "aliquot.db")
	if err := s.Host.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	kept := bytes.LastIndex(good, []byte(`{"program":`)) // what the server keeps for itself of the workload
	if kept < 0 {
		t.Fatal("what is kept is not found in the file")
	}
	blank := filepath.Join(t.TempDir(), "blank.db")
	for name, damage := range map[string]func([]byte) []byte{
		"a page":     func(data []byte) []byte { copy(data[4096:], bytes.Repeat([]byte{0xa5}, 4096)); return data },
		"a word":     func(data []byte) []byte { data[kept] = '('; return data },
		"everything": func([]byte) []byte { return nil },
		"its tables": func([]byte) []byte { return databaseWithoutTables(t, blank) },
	} {
		data := damage(slices.Clone(good))
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		host, err := Open(context.Background(), s.Config)
		if err == nil {
			t.Fatalf("%s: it was opened: %v", name, host.Close())
		}
		if !errors.Is(err, store.ErrDamaged) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if now, err := os.ReadFile(path); name == "everything" && (err != nil || len(now) > 0) {
			t.Errorf("what was refused was changed: %d bytes, %v", len(now), err)
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	s.open()
	if now := s.running("one"); now.Status.PID != before.Status.PID {
		t.Errorf("it ran as %d and runs as %d", before.Status.PID, now.Status.PID)
	}
}

// databaseWithoutTables is what SQLite makes of an empty file that it is to keep a log beside.
func databaseWithoutTables(t *testing.T, path string) []byte {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec("PRAGMA journal_mode = WAL")
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil || len(data) == 0 {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	return data
}

// TestDamagedEventLogIsToldAndStopsNobody: replaying it says where it is damaged; a daemon does not need it and begins the next file.
func TestDamagedEventLogIsToldAndStopsNobody(t *testing.T) {
	s := newSite(t, nil)
	s.running(s.submit(spec("1", "sleep 1000")).UID)
	s.restart()
	logs, err := filepath.Glob(filepath.Join(s.State, "events", "*"+journalSuffix))
	if err != nil || len(logs) < 2 {
		t.Fatalf("event logs %v, %v", logs, err)
	}
	for _, path := range logs {
		if _, err := Replay(path); err != nil {
			t.Errorf("before it was damaged: %v", err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/3] ^= 0x40
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Replay(path); err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("replayed a damaged log: %v", err)
		}
	}
	s.restart()
	if live, err := s.Workloads(context.Background(), false); err != nil || len(live) != 1 || live[0].Status.Phase != api.Running {
		t.Errorf("after the restart %+v, %v", live, err)
	}
}

// TestDeviceLostWhileNoDaemonRan: when the next one comes, what ran there is ended and told why, what ran elsewhere runs on, and
// nothing is placed there.
func TestDeviceLostWhileNoDaemonRan(t *testing.T) {
	s := newSite(t, nil)
	for _, name := range []string{"one", "two"} {
		asked := spec("1", "sleep 1000")
		asked.Name = name
		s.submit(asked)
		s.running(name)
	}
	if err := s.Host.Close(); err != nil {
		t.Fatal(err)
	}
	const reason = "the driver does not list it any more"
	s.openOn(func(agent *fakeAgent) { agent.devices[0].Health, agent.devices[0].Reason = api.Down, reason })
	var lost int
	for _, name := range []string{"one", "two"} {
		work, err := s.Workload(context.Background(), name)
		if err != nil {
			t.Fatal(err)
		}
		if work.Status.Grants[0].Device != "GPU-0" {
			if work.Status.Phase != api.Running {
				t.Errorf("elsewhere: %+v", work.Status)
			}
			continue
		}
		lost++
		if status := s.ended(name).Status; status.Outcome != api.Evicted || !strings.Contains(status.Reason, reason) {
			t.Errorf("on the lost device: %+v", status)
		}
	}
	if lost != 1 {
		t.Errorf("%d ran on the lost device", lost)
	}
	asked := spec("0.1", "true")
	asked.Name = "three"
	if work := s.submit(asked); s.wait(work.UID).Status.Phase != api.Waiting {
		t.Errorf("placed: %+v", s.wait(work.UID).Status)
	}
}
