package node

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// noexec is a folder in which no program can be started, as /run is on Debian and Ubuntu.
func noexec(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
	folder := shortFolder(t)
	if err := unix.Mount("tmpfs", folder, "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(folder, 0); err != nil { // nothing is mounted in it any more, nobody uses it
			t.Error(err)
		}
	})
	return folder
}

// TestRunWithoutPrograms: on a file system whose programs cannot be started arbiter, simulated devices and shim work all the same, also for the next agent, and
// after the last nothing of that is left.
func TestRunWithoutPrograms(t *testing.T) {
	folder := filepath.Join(noexec(t), "run")
	for range 2 {
		a, err := Open(testContext(t), Config{Run: folder, Simulate: "h200x1"})
		if err != nil {
			t.Fatal(err)
		}
		launch, err := a.Prepare(testContext(t), aTask("w.0", 250, 800, a.Devices()[0].UUID))
		if err != nil {
			t.Fatal(err)
		}
		p := start(t, launch.Env)
		if got := p.tell("launch 5"); got != "launched" {
			t.Error(got)
		}
		p.end()
		if flags, err := mountFlags(folder); err != nil || flags&unix.ST_NOSUID == 0 || flags&unix.ST_NODEV == 0 {
			t.Errorf("it is mounted with %#x (%v), and has lost what has nothing to do with programs", flags, err)
		}
		if err := a.Unprepare(testContext(t), "w.0"); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	a, err := Open(testContext(t), Config{Run: folder, Simulate: "h200x1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Shutdown(testContext(t), false); err != nil {
		t.Fatal(err)
	}
}

// TestRunWithoutProgramsRefused: who may not mount is told why the folder is of no use, and what to do.
func TestRunWithoutProgramsRefused(t *testing.T) {
	folder := filepath.Join(noexec(t), "run")
	if err := errors.Join(os.Mkdir(folder, 0o755), os.Chown(folder, 1, 1)); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(shortFolder(t), "agent") // where another user finds it
	if err := errors.Join(os.Chmod(filepath.Dir(program), 0o755), os.WriteFile(program, content, 0o755)); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program)
	command.Env = append(os.Environ(), "ALIQUOT_TEST_OPEN="+folder)
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1, Gid: 1}}
	out, err := command.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "mounted with noexec") || !strings.Contains(string(out), "choose another folder with --run") {
		t.Errorf("%v: %s", err, out)
	}
}
