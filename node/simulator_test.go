package node

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// A process that lives is not on its way out; one that was killed is, before and after it was waited for.
func TestEnding(t *testing.T) {
	process := exec.Command("sleep", "1000")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	if ending(process.Process.Pid) {
		t.Error("a process that lives is said to be ending")
	}
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, process.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if !ending(process.Process.Pid) {
		t.Error("a process that was killed is not said to be ending")
	}
	_ = process.Wait() // by a signal, which is an error
	if !ending(process.Process.Pid) {
		t.Error("a process that is no more is not said to be ending")
	}
}
