package node

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestOwnerOfWhoGoesAround: a process past the shim is its task's although no process of that ever registered: by the mark in its
// environment, an ancestor's, or that of its session's first process. A mark that another user wrote is no one's.
func TestOwnerOfWhoGoesAround(t *testing.T) {
	devices := newFakeDevices("GPU-a")
	a := openFake(t, fakeRun(t), devices)
	launch, err := a.Prepare(testContext(t), aTask("w.0", 250, 800, "GPU-a"))
	if err != nil {
		t.Fatal(err)
	}
	another := aTask("w.1", 250, 800, "GPU-a")
	if os.Geteuid() == 0 {
		another.UserID = 65534
	}
	others, err := a.Prepare(testContext(t), another)
	if err != nil {
		t.Fatal(err)
	}
	// The shell says the number of a child that has no environment; in the last its parent has ended by then.
	for name, one := range map[string]struct {
		environment []string
		shell, task string
	}{
		"mark":     {launch.Env, "echo $$; exec sleep 1000", "w.0"},
		"ancestor": {launch.Env, "env -i sleep 1000 & echo $!; exec sleep 1000", "w.0"},
		"session":  {launch.Env, "(env -i sleep 1000 & echo $!); exec sleep 1000", "w.0"},
		"none":     {nil, "echo $$; exec sleep 1000", ""},
		"another":  {others.Env, "echo $$; exec sleep 1000", map[bool]string{true: "", false: "w.1"}[os.Geteuid() == 0]},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.Command("sh", "-c", one.shell)
			command.Env = append([]string{"PATH=/usr/bin:/bin"}, one.environment...)
			command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			output, err := command.StdoutPipe()
			if err == nil {
				err = command.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(output).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				_ = command.Process.Kill()
				_ = command.Wait()
			}()
			devices.compute("GPU-a", pid)
			sample(t, a)
			if n := nextNotice(t, a, Unenforced); n.Task != one.task {
				t.Errorf("notice %+v, want one of task %q", n, one.task)
			}
			devices.compute("GPU-a")
		})
	}
}
