package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Machine gathers the facts that need no server. run and state are the server's folders.
func Machine(ctx context.Context, run, state string) Facts {
	facts := Facts{Arch: runtime.GOARCH, UID: os.Geteuid(), User: strconv.Itoa(os.Geteuid())}
	if me, err := user.Current(); err == nil {
		facts.User = me.Username
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		facts.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	facts.MountNamespace = tryNamespace(ctx)
	facts.Cgroup, facts.CgroupWrite = cgroups("/sys/fs/cgroup", "/proc/self/cgroup")
	facts.Realtime, facts.MayNice = tryRealtime(), mayNice("/proc/self/status", "/proc/self/uid_map")
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err == nil {
		facts.Memlock = limit.Cur
	}
	facts.TimerLate = timerLateness(ctx)
	facts.Folders = []Folder{look("state", state), look("run", run)}
	facts.StaleSockets = staleSockets(run)
	return facts
}

// tryNamespace starts a program in a mount namespace of its own, with a user namespace where this is not root.
func tryNamespace(ctx context.Context) error {
	path, err := exec.LookPath("true")
	if err != nil {
		return err
	}
	try := exec.CommandContext(ctx, path)
	try.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if uid := os.Geteuid(); uid != 0 {
		try.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		try.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		try.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	}
	if err := try.Run(); err != nil {
		var number syscall.Errno
		if errors.As(err, &number) {
			return number
		}
		return err
	}
	return nil
}

// cgroups says which version is mounted at root and whether this process may make groups where it is.
func cgroups(root, self string) (int, error) {
	own, err := os.ReadFile(self)
	if err != nil {
		return 0, err
	}
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		group := "/"
		for line := range strings.Lines(string(own)) {
			if rest, ok := strings.CutPrefix(line, "0::"); ok {
				group = strings.TrimSpace(rest)
			}
		}
		return 2, writable(filepath.Join(root, group))
	}
	if _, err := os.Stat(filepath.Join(root, "cpu")); err != nil {
		return 0, nil
	}
	for line := range strings.Lines(string(own)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 && (fields[1] == "memory" || strings.Contains(","+fields[1]+",", ",cpu,")) {
			if err := writable(filepath.Join(root, fields[1], fields[2])); err != nil {
				return 1, err
			}
		}
	}
	return 1, nil
}

func writable(folder string) error {
	if err := unix.Access(folder, unix.W_OK); err != nil {
		return fmt.Errorf("no group can be made in %s (%w)", folder, err)
	}
	return nil
}

// tryRealtime takes SCHED_FIFO for a thread that then ends.
func tryRealtime() error {
	answer := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its priority
		answer <- unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
	}()
	return <-answer
}

// mayNice says whether a process has CAP_SYS_NICE on the whole machine, by what the kernel says of it and of its user namespace.
func mayNice(status, uidMap string) bool {
	users, err := os.ReadFile(uidMap)
	if err == nil && strings.Join(strings.Fields(string(users)), " ") != "0 0 4294967295" {
		return false // with no such file there are no user namespaces
	}
	text, err := os.ReadFile(status)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if mask, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && set&(1<<unix.CAP_SYS_NICE) != 0
		}
	}
	return false
}

// timerLateness is the worst of a few short sleeps.
func timerLateness(ctx context.Context) time.Duration {
	const sleep, times = time.Millisecond, 20
	var worst time.Duration
	for range times {
		if ctx.Err() != nil {
			return worst
		}
		timer := time.NewTimer(sleep)
		began := time.Now()
		select {
		case <-timer.C:
			worst = max(worst, time.Since(began)-sleep)
		case <-ctx.Done():
			timer.Stop()
			return worst
		}
	}
	return worst
}

// look inspects a folder, or the nearest one above it when it has not been made yet.
func look(name, path string) Folder {
	out := Folder{Name: name, Path: path}
	at := path
	info, err := os.Stat(at)
	for errors.Is(err, fs.ErrNotExist) && at != "/" {
		at = filepath.Dir(at)
		info, err = os.Stat(at)
	}
	if err != nil {
		out.Err = err
		return out
	}
	if !info.IsDir() {
		out.Err = fmt.Errorf("%s is no folder", at)
		return out
	}
	// A folder of the server itself must be closed to others; one above it, like /tmp, may be open and sticky.
	out.Open = at == path && info.Mode().Perm()&0o022 != 0
	if err := unix.Access(at, unix.W_OK|unix.X_OK); err != nil {
		out.Err = fmt.Errorf("cannot be written (%w)", err)
	}
	var space unix.Statfs_t
	if err := unix.Statfs(at, &space); err == nil {
		out.Free = space.Bavail * uint64(space.Bsize)
	}
	return out
}

// staleSockets are sockets of run that nobody listens on.
func staleSockets(run string) []string {
	var out []string
	for _, pattern := range []string{"*.sock", "sim/*.sock"} {
		paths, _ := filepath.Glob(filepath.Join(run, pattern))
		for _, path := range paths {
			conn, err := net.Dial("unix", path)
			if err == nil {
				_ = conn.Close()
			} else if errors.Is(err, unix.ECONNREFUSED) {
				out = append(out, path)
			}
		}
	}
	return out
}

// arbiterPatience is how long the arbiter may take to answer a ping.
const arbiterPatience = 2 * time.Second

// PingArbiter asks the arbiter of run how it is.
func PingArbiter(run string) (says string, hidden bool, err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", false, err
	}
	defer func() { _ = unix.Close(fd) }()
	wait := unix.NsecToTimeval(int64(arbiterPatience))
	if err := errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait),
	); err != nil {
		return "", false, err
	}
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: filepath.Join(run, "arbiter.ctl")})
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return "", true, nil
	}
	if err == nil {
		_, err = unix.Write(fd, []byte("ping"))
	}
	if err != nil {
		return "", false, err
	}
	answer := make([]byte, 256)
	n, err := unix.Read(fd, answer)
	if err != nil {
		return "", false, err
	}
	line := string(bytes.TrimSpace(answer[:n]))
	rest, ok := strings.CutPrefix(line, "ok")
	if !ok {
		return "", false, fmt.Errorf("it answered %q", line)
	}
	if fields := strings.Fields(rest); len(fields) > 0 {
		return "version " + fields[0], false, nil
	}
	return "ok", false, nil
}
