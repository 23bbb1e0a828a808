package supervise

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// leak makes a descriptor that every program inherits that is started beside it, as a shell's `exec 9<FILE` does.
func leak(t *testing.T) int {
	t.Helper()
	fd, err := unix.Open("/dev/zero", unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func isCloseOnExec(t *testing.T, fd int) bool {
	t.Helper()
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil {
		t.Fatal(err)
	}
	return flags&unix.FD_CLOEXEC != 0
}

func TestCloseOnExecFrom(t *testing.T) {
	for name, set := range map[string]func(uint) error{"at once": CloseOnExecFrom, "one by one": closeOnExecEach} {
		t.Run(name, func(t *testing.T) {
			below := leak(t)
			first := leak(t)
			above, err := unix.FcntlInt(uintptr(first), unix.F_DUPFD, first+100)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Close(above) })
			if isCloseOnExec(t, first) || isCloseOnExec(t, above) {
				t.Fatal("they are so already")
			}
			if err := set(uint(first)); err != nil {
				t.Fatal(err)
			}
			if isCloseOnExec(t, below) || !isCloseOnExec(t, first) || !isCloseOnExec(t, above) {
				t.Errorf("below %v, first %v, above %v", isCloseOnExec(t, below), isCloseOnExec(t, first), isCloseOnExec(t, above))
			}
		})
	}
}

// A program has its three streams and nothing else open, whatever its supervisor was started with.
func TestProgramInheritsNothing(t *testing.T) {
	one := newTask(t, `ls /proc/$$/fd`)
	if err := one.dir.Prepare(one.recipe); err != nil {
		t.Fatal(err)
	}
	// A shell between hands the supervisor a file that nobody meant it to have.
	secret := t.TempDir() + "/secret"
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	line := []string{shell, "-c", `exec 9<"$0" 250>/dev/null; exec "$@"`, secret, os.Args[0], "supervise"}
	if one.started, err = one.dir.Start(line, nil); err != nil {
		t.Fatal(err)
	}
	one.wait()
	if exit := one.exit(); exit.Code != 0 || exit.Refused != "" {
		t.Fatalf("ended as %+v", exit)
	}
	if open := strings.Fields(one.log()); strings.Join(open, " ") != "0 1 2" {
		t.Errorf("the program has descriptors %q open", open)
	}
}
