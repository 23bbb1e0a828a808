package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/host/local/cgroup"
)

// mountedFlag makes a supervisor's program the step between a new user namespace and the program: it makes the mounts.
const mountedFlag = "-mounted"

// launch starts the program and returns its process and what does not hold on this machine.
func launch(dir Folder, recipe Recipe, streams []*os.File) (int, []string, error) {
	files, err := openStreams(recipe, streams)
	if err != nil {
		return 0, nil, err
	}
	if recipe.Log != "" {
		defer closeAll(files)
	}
	if recipe.User != nil {
		if err := limit(); err != nil {
			return 0, nil, fmt.Errorf("give another user's program a login's limits: %w", err)
		}
	}
	pid, notes, err := startApart(dir, recipe, files)
	var refused *mountError
	if errors.As(err, &refused) {
		recipe.Mounts, recipe.Env = nil, withLibraryPath(recipe.Env, recipe.LibraryPath)
		if pid, notes, err = startApart(dir, recipe, files); err == nil {
			notes = append(notes, fmt.Sprintf("the shim is found by LD_LIBRARY_PATH, because its mounts cannot be made here: %v", refused))
		}
	}
	return pid, notes, err
}

// mountError is why a program cannot be started with its mounts.
type mountError struct{ error }

// startApart starts the program from a thread of its own.
func startApart(dir Folder, recipe Recipe, files []*os.File) (int, []string, error) {
	type outcome struct {
		pid   int
		notes []string
		err   error
	}
	done := make(chan outcome)
	go func() {
		// Namespace and group are the thread's, and the thread is thrown away with the goroutine because it stays locked.
		runtime.LockOSThread()
		pid, notes, err := start(dir, recipe, files)
		done <- outcome{pid, notes, err}
	}()
	result := <-done
	return result.pid, result.notes, result.err
}

func start(dir Folder, recipe Recipe, files []*os.File) (int, []string, error) {
	var notes []string
	attributes := &syscall.SysProcAttr{Setsid: true}
	if recipe.User != nil {
		attributes.Credential = &syscall.Credential{Uid: recipe.User.UID, Gid: recipe.User.GID, Groups: recipe.User.Groups}
	}
	leave, err := cgroup.Enter(recipe.Cgroups, attributes)
	if err != nil {
		notes = append(notes, fmt.Sprintf("its limits of CPU and memory are not held: %v", err))
	}
	defer leave()
	if len(recipe.Mounts) > 0 {
		if os.Geteuid() != 0 {
			pid, err := startMounted(dir, recipe, files, *attributes)
			var refused *startError
			if err != nil && !errors.As(err, &refused) {
				err = &mountError{err}
			}
			return pid, notes, err
		}
		if err := mountHere(recipe.Mounts); err != nil {
			return 0, nil, &mountError{err} // what was mounted until then must not be seen by the program
		}
	}
	pid, err := fork(recipe.Program, recipe.Command, recipe.Env, recipe.Dir, files, attributes)
	if err != nil {
		return 0, nil, explainStart(recipe, err)
	}
	return pid, notes, nil
}

func fork(program string, args, env []string, dir string, files []*os.File, attributes *syscall.SysProcAttr) (int, error) {
	descriptors := make([]uintptr, len(files))
	for i, file := range files {
		descriptors[i] = file.Fd()
	}
	return syscall.ForkExec(program, args, &syscall.ProcAttr{Dir: dir, Env: env, Files: descriptors, Sys: attributes})
}

// openStreams opens the log, or takes the streams that were handed over.
func openStreams(recipe Recipe, streams []*os.File) ([]*os.File, error) {
	if recipe.Log == "" {
		return streams, nil
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(recipe.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the log: %w", err), null.Close())
	}
	if recipe.User != nil {
		if err := log.Chown(int(recipe.User.UID), int(recipe.User.GID)); err != nil {
			return nil, errors.Join(fmt.Errorf("give the log to its user: %w", err), log.Close(), null.Close())
		}
	}
	return []*os.File{null, log, log}, nil
}

func closeAll(files []*os.File) {
	for _, file := range files {
		_ = file.Close()
	}
}

// mountHere makes the mounts in a mount namespace of this thread.
func mountHere(mounts []Mount) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	return bind(mounts)
}

func bind(mounts []Mount) error {
	// What the machine mounts later still appears; what is mounted here appears nowhere else.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make the mount namespace private: %w", err)
	}
	for _, mount := range mounts {
		if err := unix.Mount(mount.Source, mount.Target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s over %s: %w", mount.Source, mount.Target, err)
		}
		if !mount.ReadOnly {
			continue
		}
		if err := unix.Mount("", mount.Target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
			return fmt.Errorf("make %s read-only: %w", mount.Target, err)
		}
	}
	return nil
}

// mountedReport is what the step in the user namespace says before it becomes the program: nothing, if all went well.
type mountedReport struct {
	Mounts  string `json:"mounts,omitempty"`  // why they could not be made
	Program string `json:"program,omitempty"` // why it could not be started
	Errno   int    `json:"errno,omitempty"`
}

// startMounted starts the program in a user and mount namespace of its own, as the same user.
func startMounted(dir Folder, recipe Recipe, files []*os.File, attributes syscall.SysProcAttr) (int, error) {
	said, say, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer func() { _ = said.Close() }()
	attributes.Cloneflags |= unix.CLONE_NEWUSER | unix.CLONE_NEWNS
	attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
	attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	attributes.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN} // for the mounts; dropped before the program
	self, err := os.Executable()
	if err != nil {
		return 0, errors.Join(err, say.Close())
	}
	pid, err := fork(self, []string{"aliquot", "supervise", mountedFlag, string(dir)}, append(os.Environ(), Marker+"="+recipe.UID), recipe.Dir,
		append(slices.Clone(files), say), &attributes)
	_ = say.Close()
	if err != nil {
		return 0, fmt.Errorf("make a user and mount namespace: %w", err)
	}
	data, _ := io.ReadAll(said)
	if len(data) == 0 {
		return pid, nil
	}
	_, _ = syscall.Wait4(pid, nil, 0, nil)
	var failed mountedReport
	if err := json.Unmarshal(data, &failed); err != nil {
		return 0, fmt.Errorf("the step in the user namespace failed: %s", data)
	}
	if failed.Program != "" {
		return 0, explainStart(recipe, syscall.Errno(failed.Errno))
	}
	return 0, errors.New(failed.Mounts)
}

// mounted is that step: it makes the mounts, lets go of its rights and becomes the program. Descriptor 3 is where it reports.
func mounted(dir Folder) int {
	const reports = 3
	fail := func(what mountedReport) int {
		to := os.NewFile(reports, "report")
		_ = json.NewEncoder(to).Encode(what)
		return 1
	}
	if err := CloseOnExecFrom(reports); err != nil {
		return fail(mountedReport{Mounts: err.Error()})
	}
	var recipe Recipe
	if there, err := read(string(dir), recipeFile, &recipe); err != nil || !there {
		return fail(mountedReport{Mounts: fmt.Sprintf("read the recipe: there %v: %v", there, err)})
	}
	if err := bind(recipe.Mounts); err != nil {
		return fail(mountedReport{Mounts: err.Error()})
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fail(mountedReport{Mounts: fmt.Sprintf("let go of the right to mount: %v", err)})
	}
	// The folder was entered before the mounts; enter it again to see them.
	if err := os.Chdir(recipe.Dir); err != nil {
		return fail(mountedReport{Program: err.Error(), Errno: int(errnoOf(err))})
	}
	err := syscall.Exec(recipe.Program, recipe.Command, recipe.Env)
	return fail(mountedReport{Program: err.Error(), Errno: int(errnoOf(err))})
}

// withLibraryPath puts a folder in front of LD_LIBRARY_PATH.
func withLibraryPath(env []string, folder string) []string {
	if folder == "" {
		return env
	}
	const name = "LD_LIBRARY_PATH="
	changed := slices.Clone(env)
	for i, one := range changed {
		if rest, ok := strings.CutPrefix(one, name); ok {
			if rest != "" {
				rest = ":" + rest
			}
			changed[i] = name + folder + rest
			return changed
		}
	}
	return append(changed, name+folder)
}

// startError is a program that could not be started, with the status that shells give.
type startError struct {
	code int
	text string
}

func (e *startError) Error() string { return e.text }

func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	errors.As(err, &errno)
	return errno
}

// explainStart says in one sentence why the program could not be started.
func explainStart(recipe Recipe, err error) error {
	errno := errnoOf(err)
	// Only where its user was told so too: what lies in folders that are closed to them is not to be learnt here.
	if errno == syscall.ENOENT || errno == syscall.ENOTDIR || recipe.User == nil {
		if info, missing := os.Stat(recipe.Dir); missing != nil || !info.IsDir() {
			return &startError{126, fmt.Sprintf("the folder %s cannot be entered: %v", recipe.Dir, errno)}
		}
	}
	switch {
	case errno == syscall.ENOENT && !exists(recipe.Program):
		return &startError{127, fmt.Sprintf("the program %s cannot be run: no such file or directory", recipe.Command[0])}
	case errno == syscall.ENOENT:
		return &startError{127, fmt.Sprintf("the program %s cannot be run: the interpreter or loader that it names does not exist", recipe.Command[0])}
	case errno == syscall.ENOEXEC:
		return &startError{126, fmt.Sprintf("the program %s cannot be run: not a program: a script must begin with #! and its interpreter", recipe.Command[0])}
	case errno == syscall.EACCES:
		return &startError{126, fmt.Sprintf("the program %s cannot be run: permission denied (it, or the folder %s, may not be used by this user)", recipe.Command[0], recipe.Dir)}
	case len(recipe.Cgroups) > 0 && (errno == syscall.ENFILE || errno == syscall.ENOMEM || errno == syscall.EAGAIN):
		// The kernel's word for a limit that is too low: whatever it could not get within it.
		return &startError{126, fmt.Sprintf("the program %s cannot be run: the kernel cannot start it within its limits of CPU and memory (%v): ask for more with --host-memory, or leave it out", recipe.Command[0], errno)}
	default:
		return &startError{126, fmt.Sprintf("the program %s cannot be run: %v", recipe.Command[0], err)}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// refusal is the exit status of a program that was not started.
func refusal(err error) Exit {
	exit := Exit{Code: 126, At: time.Now(), Refused: err.Error()}
	var refused *startError
	if errors.As(err, &refused) {
		exit.Code = refused.code
	}
	return exit
}

// overMemory says that the kernel killed for passing the memory limit, where that is known.
func overMemory(groups []string, sig syscall.Signal) string {
	if sig != syscall.SIGKILL {
		return ""
	}
	for _, group := range groups {
		if cgroup.OOMKills(filepath.Clean(group)) > 0 {
			return "it passed its limit of host memory and was killed by the kernel: ask for more with --host-memory"
		}
	}
	return ""
}
