package testcluster

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// One cluster works in a folder, and the next as soon as that one has ended: also while a process has the lock's descriptor that was forked then, to execute
// another program.
func TestLock(t *testing.T) {
	s := state(filepath.Join(t.TempDir(), "state"))
	had, err := s.lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.lock(); err == nil {
		t.Error("two clusters work in a folder")
	}
	forked, err := unix.Dup(int(had.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(forked)
	if err := had.Close(); err != nil {
		t.Fatal(err)
	}
	next, err := s.lock()
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}
