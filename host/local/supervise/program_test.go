package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestStreamsAreHandedToTheProgram(t *testing.T) {
	task := newTask(t, "cat; echo err >&2")
	task.recipe.Log = ""
	if err := task.dir.Prepare(task.recipe); err != nil {
		t.Fatal(err)
	}
	in, feed, _ := os.Pipe()
	out, sink, _ := os.Pipe()
	var err error
	if task.started, err = task.dir.Start([]string{os.Args[0], "supervise"}, []*os.File{in, sink, sink}); err != nil {
		t.Fatal(err)
	}
	_, _ = in.Close(), sink.Close()
	_, _ = feed.WriteString("through\n")
	_ = feed.Close()
	var got strings.Builder
	buffer := make([]byte, 100)
	for { // the end comes only if the supervisor kept no copy
		n, err := out.Read(buffer)
		got.Write(buffer[:n])
		if err != nil {
			break
		}
	}
	_ = out.Close()
	if got.String() != "through\nerr\n" {
		t.Errorf("got %q", got.String())
	}
	task.wait()
}

func mountTask(t *testing.T) (*task, string) {
	task := newTask(t, "cat target; ! (echo x > target) 2>/dev/null && echo read-only; cat log > /dev/null")
	dir := task.recipe.Dir
	for name, content := range map[string]string{"target": "original\n", "source": "bound\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	task.recipe.Mounts = []Mount{{Source: filepath.Join(dir, "source"), Target: filepath.Join(dir, "target"), ReadOnly: true}}
	return task, filepath.Join(dir, "target")
}

func TestMountsAreSeenByTheProgramOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	task, target := mountTask(t)
	task.start()
	child, exit := task.started.Report()
	if child == nil || len(child.Notes) > 0 {
		t.Fatalf("reported %+v, %+v", child, exit)
	}
	task.wait()
	if task.log() != "bound\nread-only\n" {
		t.Errorf("the program saw %q", task.log())
	}
	if data, _ := os.ReadFile(target); string(data) != "original\n" {
		t.Errorf("outside it is %q", data)
	}
}

func TestMountsWithoutRightsUseAUserNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become a user without rights")
	}
	task, _ := mountTask(t)
	task.recipe.Command[2] = "id -u; " + task.recipe.Command[2]
	if err := task.dir.Prepare(task.recipe); err != nil {
		t.Fatal(err)
	}
	// Everything belongs to nobody, and the way to it is open.
	if err := filepath.Walk(task.recipe.Dir, func(path string, _ os.FileInfo, err error) error {
		return errors.Join(err, os.Chown(path, nobody, nobody))
	}); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(task.recipe.Dir, "binary")
	for path := filepath.Dir(task.recipe.Dir); path != "/tmp" && path != "/"; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, data, 0o755); err != nil {
		t.Fatal(err)
	}
	helper := exec.Command(binary, "as-nobody", string(task.dir))
	helper.Dir = "/"
	helper.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	said, err := helper.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	found := task.look()
	if found.Child == nil {
		t.Fatalf("not started: %s; %s", said, task.dir.Words())
	}
	if len(found.Child.Notes) > 0 { // a machine that allows no user namespaces says so and starts it all the same
		if !strings.Contains(found.Child.Notes[0], "LD_LIBRARY_PATH") {
			t.Errorf("notes %q", found.Child.Notes)
		}
		t.Logf("this machine allows no user namespaces: %q", found.Child.Notes)
		return
	}
	if task.log() != "65534\nbound\nread-only\n" {
		t.Errorf("the program saw %q", task.log())
	}
}

func TestMountsThatCannotBeMadeFallBackToTheLibraryPath(t *testing.T) {
	task := newTask(t, "echo $LD_LIBRARY_PATH")
	task.recipe.Mounts = []Mount{{Source: "/no/such/source", Target: "/no/such/target"}}
	task.recipe.LibraryPath = "/the/shim"
	task.recipe.Env = append(task.recipe.Env, "LD_LIBRARY_PATH=/own")
	task.start()
	child, _ := task.started.Report()
	if child == nil || len(child.Notes) != 1 || !strings.Contains(child.Notes[0], "LD_LIBRARY_PATH") {
		t.Errorf("reported %+v", child)
	}
	task.wait()
	if task.log() != "/the/shim:/own\n" {
		t.Errorf("the program saw %q", task.log())
	}
}

func TestProgramRunsAsItsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	task := newTask(t, "id -u; id -g; id -G")
	task.recipe.User = &User{UID: nobody, GID: nobody, Groups: []uint32{nobody, 4242}}
	task.recipe.Dir = "/"
	task.start()
	task.wait()
	if task.log() != "65534\n65534\n65534 4242\n" {
		t.Errorf("ran as %q", task.log())
	}
	info, err := os.Stat(task.recipe.Log)
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != nobody || info.Mode().Perm() != 0o600 {
		t.Errorf("log %v, %v", info, err)
	}
}

// What a server may have for itself, a program of another user has not.
func TestProgramOfAnotherUserHasALoginsLimits(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	raise := func(what int, limits unix.Rlimit) {
		t.Helper()
		var before unix.Rlimit
		if err := unix.Getrlimit(what, &before); err != nil {
			t.Fatal(err)
		}
		if unix.Setrlimit(what, &limits) != nil { // where root may not raise them, what there is
			if err := unix.Setrlimit(what, &unix.Rlimit{Cur: before.Max, Max: before.Max}); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { _ = unix.Setrlimit(what, &before) })
	}
	raise(unix.RLIMIT_RTPRIO, unix.Rlimit{Cur: 10, Max: 10})
	raise(unix.RLIMIT_MEMLOCK, unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	raise(unix.RLIMIT_NOFILE, unix.Rlimit{Cur: 4096, Max: 1 << 20})
	task := newTask(t, "umask; cat /proc/self/limits")
	task.recipe.User, task.recipe.Dir = &User{UID: nobody, GID: nobody}, "/"
	before := unix.Umask(0o077)
	defer unix.Umask(before)
	task.start()
	task.wait()
	has := map[string]string{}
	for line := range strings.Lines(task.log()) {
		if name, rest, ok := strings.Cut(line, "  "); ok {
			has[name] = strings.Join(strings.Fields(rest)[:2], " ")
		}
	}
	for name, most := range map[string][2]uint64{"Max open files": {1024, 524288}, "Max locked memory": {8 << 20, 8 << 20}, "Max realtime priority": {}} {
		var soft, hard uint64
		if _, err := fmt.Sscan(has[name], &soft, &hard); err != nil || soft > most[0] || hard > most[1] {
			t.Errorf("%s: %q, %v; want at most %d", name, has[name], err, most)
		}
	}
	if !strings.HasPrefix(task.log(), "0022\n") {
		t.Errorf("its umask is %.4s", task.log())
	}
}

// A program whose mounts could be made in part sees none of them.
func TestMountsMadeInPartAreNotSeen(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	task, _ := mountTask(t)
	task.recipe.Command[2] = "cat target"
	task.recipe.Mounts = append(task.recipe.Mounts, Mount{Source: "/no/such/source", Target: "/no/such/target"})
	task.start()
	child, _ := task.started.Report()
	if child == nil || len(child.Notes) != 1 {
		t.Errorf("reported %+v", child)
	}
	task.wait()
	if task.log() != "original\n" {
		t.Errorf("the program saw %q", task.log())
	}
}
