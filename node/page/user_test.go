package page

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// taskFolder is a task's folder with what is the user's in it, as root's agent makes it. Without root nothing can be given to others.
func taskFolder(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give pages to other users")
	}
	folder := t.TempDir()
	no(t, os.Chmod(folder, 0o755))
	no(t, Create[Tel](filepath.Join(folder, "tel"), 0o600, "t", 1, 1, nil))
	listener, err := net.Listen("unix", filepath.Join(folder, "arbiter.sock"))
	no(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return folder
}

func no(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ownerIs(t *testing.T, want uint32, files ...string) {
	t.Helper()
	for _, file := range files {
		var is unix.Stat_t
		if err := unix.Lstat(file, &is); err != nil || is.Uid != want {
			t.Errorf("%s is user %d's (%v), want %d's", file, is.Uid, err, want)
		}
	}
}

// TestGive: a task is one user's, root's or another's, for good: given to the same one again it is made sure of, also where it was given half or the tenant, as root
// of its container, gave its page away; given to another it is refused and stays whose it is.
func TestGive(t *testing.T) {
	for _, user := range []User{0, 1000} {
		t.Run(fmt.Sprint(user), func(t *testing.T) {
			folder := taskFolder(t)
			tel, socket := filepath.Join(folder, "tel"), filepath.Join(folder, "arbiter.sock")
			if got, given := Given(folder); given {
				t.Errorf("before it was given it is user %d's", got)
			}
			for range 2 {
				no(t, Give(folder, user))
				ownerIs(t, uint32(user), tel, socket)
				no(t, os.Chown(tel, 7, 7))
			}
			err := Give(folder, 1001)
			var other *UserError
			if !errors.As(err, &other) || *other != (UserError{folder, 1001, user}) || !strings.Contains(err.Error(), fmt.Sprintf("run all of its programs as user %d", user)) {
				t.Errorf("given to another it says %v", err)
			}
			ownerIs(t, 7, tel)
			if got, given := Given(folder); !given || got != user {
				t.Errorf("it was given to user %d (%v), want %d", got, given, user)
			}
		})
	}
}

// TestGiveWithoutSocket: while the arbiter makes its socket anew there is none, and the page is given all the same; without a page nothing is.
func TestGiveWithoutSocket(t *testing.T) {
	folder := taskFolder(t)
	no(t, os.Remove(filepath.Join(folder, "arbiter.sock")))
	no(t, Give(folder, 1000))
	ownerIs(t, 1000, filepath.Join(folder, "tel"))
	if err := Give(t.TempDir(), 1000); !errors.Is(err, unix.ENOENT) {
		t.Errorf("without a page it says %v", err)
	}
}

// TestGiveOfEarlierAgent: a task that was given away before there were links is its page's owner's, and the agent's is not.
func TestGiveOfEarlierAgent(t *testing.T) {
	folder := taskFolder(t)
	no(t, os.Chown(filepath.Join(folder, "tel"), 1000, -1))
	var other *UserError
	if err := Give(folder, 0); !errors.As(err, &other) || other.Has != 1000 {
		t.Errorf("given to root it says %v", err)
	}
	no(t, Give(folder, 1000))
	if err := Give(folder, 0); !errors.As(err, &other) || other.Has != 1000 {
		t.Errorf("given to root then it says %v", err)
	}
}

// TestGiveAtOnce: of many who are given a task at the same time it is one's, and the others hear whose.
func TestGiveAtOnce(t *testing.T) {
	folder := taskFolder(t)
	const many = 16
	said := make([]error, many)
	var all sync.WaitGroup
	for i := range said {
		all.Go(func() { said[i] = Give(folder, User(1000+i)) })
	}
	all.Wait()
	has, given := Given(folder)
	if !given {
		t.Fatal("it is nobody's")
	}
	ownerIs(t, uint32(has), filepath.Join(folder, "tel"), filepath.Join(folder, "arbiter.sock"))
	for i, err := range said {
		var other *UserError
		switch mine := User(1000+i) == has; {
		case mine && err != nil, !mine && (!errors.As(err, &other) || other.Has != has):
			t.Errorf("it is user %d's, and user %d was told %v", has, 1000+i, err)
		}
	}
}

// TestGiveNothingElse: what lies in the place of a page, of a socket or of a folder is not given to anybody, whatever it leads to.
func TestGiveNothingElse(t *testing.T) {
	for name, spoil := range map[string]func(folder, victim string) error{
		"page a link": func(folder, victim string) error {
			return replace(folder, "tel", func(at string) error { return os.Symlink(victim, at) })
		},
		"page another's name": func(folder, victim string) error {
			return replace(folder, "tel", func(at string) error { return os.Link(victim, at) })
		},
		"page a folder": func(folder, _ string) error {
			return replace(folder, "tel", func(at string) error { return os.Mkdir(at, 0o755) })
		},
		"page a pipe": func(folder, _ string) error {
			return replace(folder, "tel", func(at string) error { return unix.Mkfifo(at, 0o600) })
		},
		"socket a link": func(folder, victim string) error {
			return replace(folder, "arbiter.sock", func(at string) error { return os.Symlink(victim, at) })
		},
		"socket a file": func(folder, victim string) error {
			return replace(folder, "arbiter.sock", func(at string) error { return os.Link(victim, at) })
		},
		"no user": func(folder, _ string) error { return os.Symlink("nobody", filepath.Join(folder, "user")) },
		"a file for a user": func(folder, _ string) error {
			return os.WriteFile(filepath.Join(folder, "user"), []byte("1000"), 0o600)
		},
		"folder for everyone": func(folder, _ string) error { return os.Chmod(folder, 0o777) },
		"another's folder": func(folder, _ string) error {
			return errors.Join(os.Chown(folder, 1001, -1), os.Chown(filepath.Join(folder, "tel"), 1001, -1))
		},
		"folder a link": func(folder, victim string) error {
			return errors.Join(os.Rename(folder, folder+".real"), os.Symlink(folder+".real", folder))
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder, victim := taskFolder(t), filepath.Join(t.TempDir(), "victim")
			no(t, os.WriteFile(victim, nil, 0o600))
			no(t, spoil(folder, victim))
			if err := Give(folder, 1000); err == nil {
				t.Error("it was given")
			}
			ownerIs(t, 0, victim)
		})
	}
}

// replace has something else be at a file's place.
func replace(folder, name string, by func(at string) error) error {
	at := filepath.Join(folder, name)
	return errors.Join(os.Remove(at), by(at))
}
