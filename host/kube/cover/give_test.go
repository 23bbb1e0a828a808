package cover

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/node/page"
)

// shareOn is an image that is to be given a share's pages alone, and their folder on the node, with the page that programs write and the socket by which they register.
func shareOn(t *testing.T) (i *image, tel, socket string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give pages to other users")
	}
	i = newImage(t)
	folder := filepath.Join(t.TempDir(), "share")
	tel, socket = filepath.Join(folder, "tel"), filepath.Join(folder, "arbiter.sock")
	i.no(os.Mkdir(folder, 0o755))
	i.no(page.Create[page.Tel](tel, 0o600, "share", 1, 1, nil))
	listener, err := net.Listen("unix", socket)
	i.no(err)
	t.Cleanup(func() { _ = listener.Close() })
	i.order = Order{Pages: folder}
	return i, tel, socket
}

// runAs is run of a container of this user.
func (i *image) runAs(user uint32) error {
	i.user = map[string]any{"uid": user, "gid": user + 1}
	return i.run("")
}

func (i *image) ownerIs(want uint32, files ...string) {
	i.Helper()
	for _, file := range files {
		var is unix.Stat_t
		if err := unix.Lstat(file, &is); err != nil || is.Uid != want || is.Gid != 0 {
			i.Errorf("%s is user %d's and group %d's (%v), want %d's and root's", file, is.Uid, is.Gid, err, want)
		}
	}
}

// TestGive: a share's pages are the user's whom the first container runs as, whether that is root or not; others of that user have them, too, and one of another user
// does not start and says whose they are.
func TestGive(t *testing.T) {
	if !inside(t, "root") {
		return
	}
	for user, other := range map[uint32]uint32{0: 1000, 1000: 0, 1001: 1000} {
		i, tel, socket := shareOn(t)
		before := len(i.mounts())
		for range 2 {
			i.no(i.runAs(user))
			i.ownerIs(user, tel, socket)
		}
		err := i.runAs(other)
		if err == nil || !strings.Contains(err.Error(), "could not be given its share: it runs as user ") || !strings.Contains(err.Error(), "give all containers that share the claim the same runAsUser") {
			t.Errorf("beside one of user %d, a container of user %d: %v", user, other, err)
		}
		i.ownerIs(user, tel, socket)
		if now := len(i.mounts()); now != before {
			t.Errorf("in a container with nothing to cover there are %d mounts, and were %d", now, before)
		}
	}
}

// TestGiveAndCover: a container is given its share and has its own driver covered, by one order.
func TestGiveAndCover(t *testing.T) {
	if !inside(t, "root") {
		return
	}
	i, tel, _ := shareOn(t)
	covering := newImage(t)
	covering.order.Pages, covering.user = i.order.Pages, map[string]any{"uid": 1000}
	covering.write("/usr/local/cuda/compat/libcuda.so.1", brought)
	i.no(covering.run(""))
	covering.has(shim, "/usr/local/cuda/compat/libcuda.so.1")
	i.ownerIs(1000, tel)
}

// TestGiveNothing: a container that does not say whom it runs as, or has users of its own, is given nothing; nor does one that is given a page make anything else its own,
// whatever lies in the page's place.
func TestGiveNothing(t *testing.T) {
	if !inside(t, "root") {
		return
	}
	for name, test := range map[string]struct {
		spoil func(i *image, tel, victim string) error
		want  string
	}{
		"no user": {func(i *image, _, _ string) error { i.user = nil; return nil }, "does not say which user it runs as"},
		"users of its own": {func(i *image, _, _ string) error {
			i.mapped = []any{map[string]any{"containerID": 0, "hostID": 100000, "size": 65536}}
			return nil
		}, "hostUsers: false"},
		"page a link": {func(_ *image, tel, victim string) error {
			if err := os.Remove(tel); err != nil {
				return err
			}
			return os.Symlink(victim, tel)
		}, "damaged page"},
		"page another's name": {func(_ *image, tel, victim string) error {
			if err := os.Remove(tel); err != nil {
				return err
			}
			return os.Link(victim, tel)
		}, "with 2 names"},
		"no pages": {func(i *image, _, _ string) error { return os.RemoveAll(i.order.Pages) }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			i, tel, _ := shareOn(t)
			victim := filepath.Join(t.TempDir(), "victim")
			i.no(os.WriteFile(victim, nil, 0o600))
			i.user = map[string]any{"uid": 1000}
			i.no(test.spoil(i, tel, victim))
			if err := i.run(""); err == nil || !strings.Contains(err.Error(), "the container could not be given its share: ") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("it says %v, want %q", err, test.want)
			}
			i.ownerIs(0, victim)
		})
	}
}
