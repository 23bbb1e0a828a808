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

// No port is found twice, and, unless the kernel leaves few others, none that it gives to somebody else before it is used.
func TestFreePorts(t *testing.T) {
	chosen, err := kernelsPorts()
	if err != nil {
		t.Fatal(err)
	}
	lowest, above := lowestPort, chosen
	if chosen-lowestPort < fewPorts {
		lowest, above = chosen, 1<<16
	}
	seen := map[int]bool{}
	for range 10 {
		found, err := FreePorts(6)
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range found {
			if port < lowest || port >= above || seen[port] {
				t.Errorf("found %d, want one from %d on and below %d, none twice", port, lowest, above)
			}
			seen[port] = true
		}
		if len(found) != 6 {
			t.Errorf("found %d, want 6", len(found))
		}
	}
}
