package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// run is the run folder: RUN of docs/architecture.md.
type run string

func (r run) path(elements ...string) string {
	return filepath.Join(append([]string{string(r)}, elements...)...)
}
func (r run) tasks() string             { return r.path("tasks") }
func (r run) devices() string           { return r.path("devices") }
func (r run) task(uid string) string    { return r.path("tasks", uid) }
func (r run) device(uuid string) string { return r.path("devices", uuid) }
func (r run) control() string           { return r.path("arbiter.ctl") }

// Names that begin so are half made or half removed; nobody but the agent looks at them.
const (
	making   = ".new-"
	removing = ".del-"
)

// socketPathMax is what fits into a sockaddr_un with its NUL.
const socketPathMax = 107

// prepareRun makes the folders. A run folder that others could have made or could write to is refused: what lies in it is
// believed.
func prepareRun(folder string) (run, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return "", fmt.Errorf("use run folder: %w", err)
	}
	r := run(folder)
	if longest := r.path("tasks", "x", "arbiter.sock"); len(longest) > socketPathMax {
		return "", fmt.Errorf("use run folder %s: its path is %d characters too long for sockets in it; choose a shorter one with --run", folder, len(longest)-socketPathMax)
	}
	if err := makeFolder(folder); err != nil {
		return "", fmt.Errorf("use run folder: %w", err)
	}
	info, err := os.Lstat(folder)
	if err != nil {
		return "", fmt.Errorf("use run folder: %w", err)
	}
	var stat unix.Stat_t
	if err := unix.Lstat(folder, &stat); err != nil {
		return "", fmt.Errorf("use run folder %s: %w", folder, err)
	}
	switch {
	case !info.IsDir():
		return "", fmt.Errorf("use run folder %s: it is not a folder; remove it or choose another with --run", folder)
	case int(stat.Uid) != os.Geteuid():
		return "", fmt.Errorf("use run folder %s: it belongs to user %d, this is user %d; choose another with --run", folder, stat.Uid, os.Geteuid())
	case info.Mode().Perm()&0o022 != 0:
		return "", fmt.Errorf("use run folder %s: others may write to it (mode %#o); run `chmod go-w %s` or choose another with --run", folder, info.Mode().Perm(), folder)
	}
	for _, sub := range []string{"tasks", "devices", "driver", "sim"} {
		if err := makeFolder(r.path(sub)); err != nil {
			return "", fmt.Errorf("use run folder: %w", err)
		}
	}
	return r, nil
}

// makeFolder makes a folder that every user may look into, whatever the umask; one that exists stays as it is.
func makeFolder(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return os.Chmod(path, 0o755)
}

// How often, and how far apart, the lock of an agent that is gone is tried.
const (
	lockTries = 1000
	lockPause = 10 * time.Millisecond
)

// lockRun makes sure that one agent works in a run folder. The lock ends with the file, and so with the process.
func lockRun(r run) (*os.File, error) {
	file, err := os.OpenFile(r.path("agent.lock"), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock run folder: %w", err)
	}
	for tries := 0; ; tries++ {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock run folder %s: %w", r, err), file.Close())
		}
		pid, gone := lockedBy(file)
		// A killed agent's lock lives on for a moment in what it was just starting: between fork and exec a child holds what its
		// parent did, for longer where it gets no CPU.
		if gone && tries < lockTries {
			time.Sleep(lockPause)
			continue
		}
		_ = file.Close()
		return nil, fmt.Errorf("use run folder %s: a server works there already (pid %s): use that one, stop it with `aliquot down`, or choose another folder with --run", r, pid)
	}
	self, _ := factsOf(os.Getpid())
	_ = file.Truncate(0)
	_, _ = fmt.Fprintf(file, "%d %d\n", os.Getpid(), self.start)
	return file, nil
}

// Occupied says whether an agent works in a run folder, which need not be there.
func Occupied(folder string) (bool, error) {
	file, err := os.OpenFile(run(folder).path("agent.lock"), os.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look into run folder: %w", err)
	}
	defer file.Close()
	err = unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// claimRun writes down which host the run folder serves. Another's is refused: a host takes back every task that it knows nothing of,
// and so would end what the other has running there. One in which nobody wrote it down is taken.
func claimRun(r run, host string) error {
	if host == "" {
		return nil
	}
	was, err := os.ReadFile(r.path("host"))
	switch whose := strings.TrimSpace(string(was)); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("use run folder: %w", err)
	case whose == host:
		return nil
	case whose != "":
		return fmt.Errorf("use run folder %s: it serves host %s, this is host %s, which would take back all tasks of the other; choose another with --run", r, whose, host)
	}
	if err := writeFile(r.path("host"), []byte(host+"\n"), 0o644); err != nil {
		return fmt.Errorf("use run folder: %w", err)
	}
	return nil
}

// lockedBy reads whose lock it is: the pid of the agent that took it last, and whether that has ended. Its number may be another's by now.
func lockedBy(file *os.File) (pid string, gone bool) {
	holder := make([]byte, 64)
	n, _ := file.ReadAt(holder, 0)
	fields := strings.Fields(string(holder[:n]))
	if len(fields) == 0 {
		return "", false
	}
	number, err := strconv.Atoi(fields[0])
	if err != nil {
		return fields[0], false
	}
	fact, there := factsOf(number)
	return fields[0], !there || fact.dead || len(fields) > 1 && fields[1] != strconv.FormatUint(fact.start, 10)
}

// writeFile replaces a file by rename, so that it is always whole.
func writeFile(name string, content []byte, mode fs.FileMode) error {
	temporary := filepath.Join(filepath.Dir(name), making+filepath.Base(name))
	if err := os.WriteFile(temporary, content, mode); err != nil {
		return err
	}
	return os.Rename(temporary, name)
}

// fileName checks that a UID can be the name of a file and fits a page's field.
func fileName(what, name string, longest int) error {
	if name == "" || len(name) > longest || strings.HasPrefix(name, ".") {
		return fmt.Errorf("%s %q: it must have 1 to %d characters and not begin with a dot", what, name, longest)
	}
	for _, c := range name {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("._-", c)) {
			return fmt.Errorf("%s %q: the character %q cannot be in it; use letters, digits, `.`, `_` and `-`", what, name, c)
		}
	}
	return nil
}
