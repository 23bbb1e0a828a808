package testcluster

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func TestInGroup(t *testing.T) {
	for of, want := range map[string]bool{
		"0::/mine/system\n":                        true,
		"12:cpu,cpuacct:/mine/kubepods/pod1\n0::/": true,
		"4:memory:/docker/0a1b/mine/system\n":      true,
		"0::/mine-too/system\n":                    false,
		"0::/not-mine/system\n":                    false,
		"1:name=/mine/:/\n":                        false,
		"":                                         false,
	} {
		if got := inGroup(of, "mine"); got != want {
			t.Errorf("%q: %v, want %v", of, got, want)
		}
	}
}

// Processes that cannot be ended, because by the kernel's word they are not in the group, keep nobody for ever.
func TestKillEnds(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*often)
	defer cancel()
	g := &group{name: "aliquot-test-of-no-group", folders: []string{folder}}
	if err := g.kill(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// What could not be given back stays noted, for the next one to try again.
func TestStopKeepsItsNote(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state")
	later := filepath.Join(t.TempDir(), "later")
	note, err := json.Marshal(taken{Settings: map[string]string{filepath.Join(later, "setting"): "1"}})
	if err = errors.Join(err, os.Mkdir(folder, 0o700)); err != nil {
		t.Fatal(err)
	}
	s := state(folder)
	if err := os.WriteFile(s.takenFile(), note, 0o600); err != nil {
		t.Fatal(err)
	}
	stop := func() error {
		lock, err := s.lock()
		if err != nil {
			t.Fatal(err)
		}
		return (&Cluster{state: s, lock: lock, group: &group{name: "aliquot-test-of-no-group"}}).Stop()
	}
	if err := stop(); err == nil {
		t.Error("a setting that cannot be written was given back")
	}
	if _, err := os.Stat(s.takenFile()); err != nil {
		t.Errorf("the note is lost: %v", err)
	}
	if err := os.Mkdir(later, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	set, err := os.ReadFile(filepath.Join(later, "setting"))
	if _, gone := os.Stat(folder); err != nil || string(set) != "1" || !errors.Is(gone, os.ErrNotExist) {
		t.Errorf("at the second time: set to %q (%v), the folder: %v", set, err, gone)
	}
}
