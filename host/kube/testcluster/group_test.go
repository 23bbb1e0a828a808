package testcluster

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
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

// Of what was started last of each name, what has ended by itself is lost; what was killed to be away is not.
func TestLost(t *testing.T) {
	over := make(chan struct{})
	close(over)
	p := processes{all: []*Process{
		{name: "runs", ended: over},
		{name: "runs", ended: make(chan struct{})},
		{name: "ended", ended: make(chan struct{})},
		{name: "ended", ended: over},
		{name: "away", ended: over, away: true},
		{name: "other", ended: over},
	}}
	if lost := p.lost("runs", "ended", "away", "never"); !slices.Equal(lost, []string{"ended"}) {
		t.Errorf("%v are lost", lost)
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

// What could not be given back stays in the book, for the next one to try again.
func TestStopKeepsItsNote(t *testing.T) {
	folder, later := filepath.Join(t.TempDir(), "state"), filepath.Join(t.TempDir(), "later")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	s, b := state(folder), bookOf(t, filepath.Join(later, "setting"), folder)
	stop := func() error {
		lock, err := s.lock()
		if err != nil {
			t.Fatal(err)
		}
		return (&Cluster{state: s, book: b, lock: lock, group: &group{name: "aliquot-test-of-no-group"}}).Stop()
	}
	if err := stop(); err == nil {
		t.Error("a setting that cannot be written was given back")
	}
	if _, err := os.Stat(string(b)); err != nil {
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

// bookOf is a book in which one cluster changed one setting, which was 1.
func bookOf(t *testing.T, setting, folder string) book {
	t.Helper()
	note, err := json.Marshal(taken{Settings: map[string]string{setting: "1"}, Clusters: map[state]int{state(folder): 0}})
	if err != nil {
		t.Fatal(err)
	}
	b := book(filepath.Join(t.TempDir(), "book"))
	if err := os.WriteFile(string(b), note, 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

// Clusters that work at the same time have networks of their own, and the last one gives back what the first one found.
func TestLastGivesBack(t *testing.T) {
	setting := filepath.Join(t.TempDir(), "setting")
	b := bookOf(t, setting, "/first")
	for _, step := range []struct {
		enters, leaves state
		number         int
	}{{enters: "/second", number: 1}, {leaves: "/first"}, {leaves: "/first"}, {enters: "/third", number: 0}, {leaves: "/second"}} {
		if step.leaves != "" {
			if err := b.leave(step.leaves); err != nil {
				t.Error(err)
			}
		} else if number, err := b.enter(step.enters); err != nil || number != step.number {
			t.Errorf("%s has number %d, %v; want %d", step.enters, number, err, step.number)
		}
		if _, err := os.Stat(setting); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after %+v the setting was given back, and others work: %v", step, err)
		}
	}
	if err := b.leave("/third"); err != nil {
		t.Error(err)
	}
	set, err := os.ReadFile(setting)
	if _, gone := os.Stat(string(b)); err != nil || string(set) != "1" || !errors.Is(gone, os.ErrNotExist) {
		t.Errorf("after the last: set to %q (%v), the book: %v", set, err, gone)
	}
}
