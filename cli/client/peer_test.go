package client

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
)

// listen listens at a socket of run: as another user where this is root, who may do that, else as this one.
func listen(t *testing.T, run, name string) *net.UnixListener {
	t.Helper()
	if os.Geteuid() == 0 {
		const other = 1234
		if err := os.Chown(run, other, other); err != nil {
			t.Fatal(err)
		}
		// The kernel keeps the credentials of the thread that listens.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		become := func(uid int) {
			if _, _, number := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); number != 0 {
				t.Fatalf("become user %d: %v", uid, number)
			}
		}
		become(other)
		defer become(0)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(run, name), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// folder makes a RUN folder; paths of sockets are short by the kernel's rule, shorter than a test's folder may be.
func folder(t *testing.T) string {
	t.Helper()
	run, err := os.MkdirTemp("", "alq")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	return run
}

// What another user put where a server is looked for gets neither a request nor a terminal.
func TestStrangersGetNothing(t *testing.T) {
	run := folder(t)
	got := make(chan int, 16)
	for _, name := range []string{SocketName, AttachName} {
		listener := listen(t, run, name)
		go func() {
			for {
				conn, err := listener.AcceptUnix()
				if err != nil {
					return
				}
				n, rights, _, _, _ := conn.ReadMsgUnix(make([]byte, 1<<10), make([]byte, 1<<10))
				got <- n + rights
				_ = conn.Close()
			}
		}()
	}
	client := New(run)
	defer client.Close()
	if os.Geteuid() != 0 {
		client.user++ // as if another user had called
	}
	_, submitted := client.Submit(t.Context(), api.WorkloadSpec{Env: map[string]string{"TOKEN": "secret"}})
	_, attached := client.Attach(t.Context(), "u1", os.Stdin, os.Stdout, os.Stderr)
	_, asked := client.ServerPID(t.Context())
	for what, err := range map[string]error{"submit": submitted, "attach": attached, "ask for the process": asked} {
		var stranger *Stranger
		if !errors.As(err, &stranger) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for range 3 {
		if n := <-got; n != 0 {
			t.Errorf("a stranger got %d bytes", n)
		}
	}
}

// This user's own server is none; nor is root's.
func TestOwnServerIsAsked(t *testing.T) {
	run := folder(t)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(run, SocketName), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	client := New(run)
	defer client.Close()
	if pid, err := client.ServerPID(t.Context()); err != nil || pid != os.Getpid() {
		t.Errorf("pid %d, %v", pid, err)
	}
	if os.Geteuid() == 0 {
		client.user = 1234
		if pid, err := client.ServerPID(t.Context()); err != nil || pid != os.Getpid() {
			t.Errorf("another user, root's server: pid %d, %v", pid, err)
		}
	}
}

// A folder that others could have put a socket into is looked at no further.
func TestHasServer(t *testing.T) {
	run := folder(t)
	if HasServer(run) {
		t.Error("an empty folder has a server")
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(run, SocketName), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if !HasServer(run) {
		t.Error("it is not seen in the user's own folder")
	}
	if err := os.Chmod(run, 0o777); err != nil {
		t.Fatal(err)
	}
	if HasServer(run) {
		t.Error("it is believed in a folder that everyone may write to")
	}
	if err := os.Chmod(run, 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(run, 1234, 1234); err != nil {
			t.Fatal(err)
		}
		if HasServer(run) {
			t.Error("it is believed in another user's folder")
		}
	}
}
