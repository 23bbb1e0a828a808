package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// contained starts a process, of a person's, with a file system of its own, as a container has, after a script has put there what is found at a path.
func contained(t *testing.T, path, script string) child {
	t.Helper()
	root := t.TempDir()
	return startChild(t, fmt.Sprintf("exec unshare --mount --propagation private sh -ec 'mount -t tmpfs none %[1]s; mkdir -p %[1]s/usr %[1]s%[2]s; mount --rbind /usr %[1]s/usr; "+
		"for one in bin lib lib64; do ln -s usr/$one %[1]s/$one; done; cd %[1]s%[2]s; %[3]s; exec /usr/sbin/chroot --userspec=2000:2000 %[1]s sh -c \"echo ready; exec sleep 1000\"'",
		root, filepath.Dir(path), script), 0)
}

// TestAdministrator: a container of an administrator's has the driver and no share. What computes in it is told of once, as that, and by the next agent again; it
// is neither shown as what no share holds nor ended. Who has a mark of its own making, a link to the true one too, is no administrator.
func TestAdministrator(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for mount namespaces")
	}
	devices, folder := newFakeDevices("GPU-a"), fakeRun(t)
	a := openStopping(t, folder, devices, api.StopUnenforced)
	if _, err := a.Administrator([]string{"GPU-b"}); err == nil || !strings.Contains(err.Error(), "this node has no device GPU-b") {
		t.Errorf("of a device that is not there: %v", err)
	}
	made, err := a.Administrator([]string{"GPU-a"})
	if err != nil || !slices.Equal(made.Env, []string{"DEVICES=GPU-a"}) || !slices.Equal(made.Devices, []string{"/dev/fake0"}) || len(made.Mounts) != 2 {
		t.Fatalf("got %+v, %v", made, err)
	}
	mark := made.Mounts[1]
	name := filepath.Base(mark.Target)
	administrator := contained(t, mark.Target, fmt.Sprintf("touch %s; mount --bind %s %s", name, mark.Source, name))
	forged := []child{
		contained(t, mark.Target, "touch "+name),
		contained(t, mark.Target, "ln -s "+mark.Source+" "+name),
		contained(t, mark.Target, "true"),
	}
	pids := []int{administrator.pid}
	for _, one := range forged {
		pids = append(pids, one.pid)
	}
	devices.compute("GPU-a", pids...)
	l := newLooking(nil)
	for range 3 {
		a.look(testContext(t), l)
	}
	for _, one := range forged {
		one.await(t)
	}
	told := fmt.Sprintf("Process %d (sleep) computes on device GPU-a by its container's access as an administrator, and is held to no share.", administrator.pid)
	if n := nextNotice(t, a, Administers); n.Message != told || n.Device != "GPU-a" || n.Task != "" {
		t.Errorf("notice %+v", n)
	}
	a.look(testContext(t), l)
	if got := sample(t, a).Devices[0]; !administrator.lives() || got.Stopped != uint64(len(forged)) || len(got.Unenforced) != 0 {
		t.Errorf("it lives: %v; %+v", administrator.lives(), got)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	next := newFakeDevices("GPU-a")
	next.compute("GPU-a", administrator.pid)
	a = openStopping(t, folder, next, api.StopUnenforced)
	l = newLooking(nil)
	for range 3 {
		a.look(testContext(t), l)
	}
	if n := nextNotice(t, a, Administers); n.Message != told || !administrator.lives() {
		t.Errorf("it lives: %v; notice %+v", administrator.lives(), n)
	}
	select {
	case n := <-a.Notices():
		t.Errorf("it is told again: %+v", n)
	default:
	}
}
