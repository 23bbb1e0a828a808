// Package until is how the tests of this host wait for what others bring about. What comes in is a condition; each function returns
// once it holds, and fails the test after a minute. Where the system tells of a change it is waited for that; Polled is for the rest.
package until

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a condition may take: more than the slowest machine under the race detector needs.
const patience = time.Minute

// File waits for a condition that a change of the file at path, which may not be there yet, brings about. Its folder must be there.
func File(t testing.TB, path, what string, met func() bool) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	changes := os.NewFile(uintptr(fd), "inotify")
	defer func() { _ = changes.Close() }()
	const kinds = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_DELETE_SELF
	if _, err := unix.InotifyAddWatch(fd, filepath.Dir(path), kinds); err != nil {
		t.Fatalf("watch %s: %v", filepath.Dir(path), err)
	}
	if err := changes.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for buffer := make([]byte, 64<<10); !met(); {
		if _, err := changes.Read(buffer); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("not within a minute: %s", what)
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// Told waits for a condition whose change is told on a channel. next gives the channel, and is asked before each look at the
// condition: what is told from then on is not missed.
func Told[T any](t testing.TB, next func() <-chan T, what string, met func() bool) {
	t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		told := next()
		if met() {
			return
		}
		select {
		case <-told:
		case <-late.C:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// Polled waits for a condition by looking every 2 ms. It is for what nothing tells of: locks and processes of others, and what the
// host does without an event.
func Polled(t testing.TB, what string, met func() bool) {
	t.Helper()
	if !Within(patience, met) {
		t.Fatalf("not within a minute: %s", what)
	}
}

// Within is Polled for processes that are no test: whether the condition held within a time.
func Within(limit time.Duration, met func() bool) bool {
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(limit); !met(); <-again.C {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}
