package node

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/node/page"
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

// TestUserUnknown: a task whose user is not known is the agent's, until it is given to who runs its programs: from then on those are its own, and no others, for this
// agent and for the next; what it may use changes meanwhile.
func TestUserUnknown(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to run programs of other users")
	}
	folder, devices := fakeRun(t), newFakeDevices("GPU-a")
	a := openFake(t, folder, devices)
	task := aTask("w.0", 250, 800, "GPU-a")
	task.UserUnknown = true
	launch, err := a.Prepare(testContext(t), task)
	if err != nil {
		t.Fatal(err)
	}
	tasksOf := func(users ...uint32) (found []string) {
		for _, user := range users {
			command := exec.Command("sleep", "1000")
			command.Env = launch.Env
			command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			devices.compute("GPU-a", command.Process.Pid)
			sample(t, a)
			found = append(found, nextNotice(t, a, Unenforced).Task)
			devices.compute("GPU-a")
			_ = command.Process.Kill()
			_ = command.Wait()
		}
		return found
	}
	if got := tasksOf(0, 65534); !slices.Equal(got, []string{"w.0", ""}) {
		t.Errorf("before it is given processes of root and user 65534 are the tasks' %q", got)
	}
	if err := page.Give(filepath.Join(folder, "tasks", "w.0"), 65534); err != nil {
		t.Fatal(err)
	}
	task.Grants[0].Ceiling = 900
	if err := a.Update(testContext(t), "w.0", task.Grants, task.Flags); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := tasksOf(0, 65534); !slices.Equal(got, []string{"", "w.0"}) {
			t.Errorf("after it was given to user 65534 processes of root and of that one are the tasks' %q", got)
		}
		if _, err := a.Prepare(testContext(t), task); err != nil {
			t.Errorf("prepared again: %v", err)
		}
		var is unix.Stat_t
		if err := unix.Stat(filepath.Join(folder, "tasks", "w.0", "tel"), &is); err != nil || is.Uid != 65534 {
			t.Errorf("its page is user %d's (%v)", is.Uid, err)
		}
		closeAgent(t, a)
		devices = newFakeDevices("GPU-a")
		a = openFake(t, folder, devices)
	}
}
