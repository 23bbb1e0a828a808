package until

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A change of a file is noticed however it comes about: made, written on, renamed to its name, removed.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	there := func() bool { _, err := os.Stat(path); return err == nil }
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			return -1
		}
		return info.Size()
	}
	began, did := make(chan struct{}), make(chan error)
	for what, step := range map[string]struct {
		change func() error
		met    func() bool
	}{
		"1 made":    {func() error { return os.WriteFile(path, nil, 0o600) }, there},
		"2 written": {func() error { return os.WriteFile(path, []byte("x"), 0o600) }, func() bool { return size() == 1 }},
		"3 renamed": {func() error { return os.Rename(path+".new", path) }, func() bool { return size() == 3 }},
		"4 removed": {func() error { return os.Remove(path) }, func() bool { return !there() }},
	} {
		_ = os.Remove(path)
		if what[0] > '1' {
			_ = os.WriteFile(path, nil, 0o600)
			_ = os.WriteFile(path+".new", []byte("new"), 0o600)
		}
		first := true
		go func() {
			<-began // it is looked at, and watched, by now
			did <- step.change()
		}()
		File(t, path, what, func() bool {
			if first {
				first = false
				began <- struct{}{}
				return false
			}
			return step.met()
		})
		if err := <-did; err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// What is told between the look and the wait is not missed.
func TestToldMissesNothing(t *testing.T) {
	told := make(chan struct{})
	looks := 0
	Told(t, func() <-chan struct{} { return told }, "the second look", func() bool {
		if looks++; looks == 1 {
			close(told)
		}
		return looks == 2
	})
}

func TestWithin(t *testing.T) {
	if Within(time.Millisecond, func() bool { return false }) {
		t.Error("what never holds held")
	}
	looks := 0
	if !Within(time.Minute, func() bool { looks++; return looks == 3 }) || looks != 3 {
		t.Errorf("after %d looks", looks)
	}
}
