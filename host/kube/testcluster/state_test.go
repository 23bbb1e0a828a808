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

// No port is found twice, and none that the kernel gives to somebody else before it is used.
func TestFreePorts(t *testing.T) {
	chosen, err := kernelsPorts()
	if err != nil {
		t.Fatal(err)
	}
	if chosen < 2*lowestPort {
		t.Skipf("needs a machine whose kernel chooses ports from %d on; here it does from %d on (/proc/sys/net/ipv4/ip_local_port_range)", 2*lowestPort, chosen)
	}
	seen := map[int]bool{}
	for range 10 {
		found, err := FreePorts(6)
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range found {
			if port < lowestPort || port >= chosen || seen[port] {
				t.Errorf("found %d, want one from %d on and below %d, none twice", port, lowestPort, chosen)
			}
			seen[port] = true
		}
		if len(found) != 6 {
			t.Errorf("found %d, want 6", len(found))
		}
	}
}
