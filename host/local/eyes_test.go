package local

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/aliquot-dev/aliquot/host/local/supervise"
)

// What lies in a folder that is closed to a user is not to be learnt from a server that may look into it; what is open to the user's
// groups alone is found.
func TestProgramsAreLookedForWithTheUsersEyes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	root, err := os.MkdirTemp("", "alq")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(root) }()
	const group = 4242
	closed, ours := filepath.Join(root, "closed"), filepath.Join(root, "ours")
	for folder, mode := range map[string]os.FileMode{root: 0o755, closed: 0o700, ours: 0o750} {
		if err := errors.Join(os.MkdirAll(folder, 0o700), os.Chmod(folder, mode)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "run"), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(ours, 0, group); err != nil {
		t.Fatal(err)
	}
	nobody := &supervise.User{UID: 65534, GID: 65534, Groups: []uint32{group}}
	look := func(dir, program string) error {
		asked := spec("1", "true")
		asked.Dir, asked.Command = dir, []string{program}
		_, err := findProgram(asked, nobody)
		return err
	}
	var words []string
	for _, name := range []string{"run", "missing", "."} {
		err := look("/", filepath.Join(closed, name))
		if err == nil {
			t.Fatalf("%s is found", name)
		}
		words = append(words, strings.ReplaceAll(err.Error(), filepath.Join(closed, name), "X"))
	}
	if words[0] != words[1] || !strings.Contains(words[0], "permission denied") {
		t.Errorf("they differ: %q", words)
	}
	there, missing := look(filepath.Join(closed, "sub"), "/bin/sh"), look(filepath.Join(closed, "none"), "/bin/sh")
	if err := os.Mkdir(filepath.Join(closed, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if again := look(filepath.Join(closed, "sub"), "/bin/sh"); again == nil || there == nil || again.Error() != there.Error() || missing == nil {
		t.Errorf("folders differ: %v; %v; %v", there, again, missing)
	}
	if err := look(ours, "./run"); err != nil {
		t.Errorf("what its group may run: %v", err)
	}
	// The rights were one thread's: no other has them.
	var group8 sync.WaitGroup
	for range 8 {
		group8.Go(func() {
			if _, err := os.Stat(filepath.Join(closed, "run")); err != nil {
				t.Error(err)
			}
		})
	}
	group8.Wait()
	if unseen(filepath.Join(closed, "run"), syscall.EACCES) {
		t.Error("root is said not to see what it sees")
	}
}
