package local

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
)

// The exit statuses that shells have for a program that cannot be run and for one that is not there.
const (
	exitCannot  = 126
	exitMissing = 127
)

// unfit says why a program cannot be run, and with which of these statuses.
type unfit struct {
	exit int
	err  error
}

func (u *unfit) Error() string { return u.err.Error() }
func (u *unfit) Unwrap() error { return u.err }

func cannot(format string, args ...any) error { return &unfit{exitCannot, fmt.Errorf(format, args...)} }

// program finds the file that a command names, as a shell would: by its path, else along the PATH of its environment. It refuses
// one that is missing, that the user may not execute, or that the kernel would not take for a program.
func program(spec api.WorkloadSpec, as *supervise.User) (string, error) {
	name := spec.Command[0]
	if info, err := os.Stat(spec.Dir); (err != nil || !info.IsDir()) && !unseen(spec.Dir, err) {
		return "", api.Invalid("the folder %s cannot be entered: %v", spec.Dir, reason(err, syscall.ENOTDIR))
	}
	if strings.Contains(name, "/") {
		path := within(spec.Dir, name)
		err := runnable(path, spec.Dir, as)
		var why *unfit
		switch {
		case err == nil || unseen(path, err):
			return path, nil
		case errors.As(err, &why):
			return "", noProgram(name, why.exit, why)
		case errors.Is(err, fs.ErrNotExist):
			return "", noProgram(name, exitMissing, fmt.Errorf("%w; check its path, which is looked for from %s", err, spec.Dir))
		default:
			return "", noProgram(name, exitCannot, err)
		}
	}
	return programInPath(name, spec, as)
}

// programInPath takes the first that may be executed. What it holds is then looked at: a shell would not look further either.
func programInPath(name string, spec api.WorkloadSpec, as *supervise.User) (string, error) {
	var denied error
	folders := filepath.SplitList(spec.Env["PATH"])
	for _, folder := range folders {
		path := filepath.Join(within(spec.Dir, folder), name)
		err := executable(path, as)
		if err == nil {
			err = form(path, spec.Dir, as, scriptDepth)
			var why *unfit
			if errors.As(err, &why) {
				return "", noProgram(name, why.exit, fmt.Errorf("%s: %w", path, why))
			}
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			denied = errors.Join(denied, fmt.Errorf("%s: %w", path, err))
		}
	}
	switch {
	case denied != nil:
		return "", noProgram(name, exitCannot, denied)
	case len(folders) == 0:
		return "", noProgram(name, exitMissing, errors.New("there is no PATH to look for it in; name its path"))
	default:
		return "", noProgram(name, exitMissing, fmt.Errorf("it is in none of the %d folders of PATH; name its path, or change PATH", len(folders)))
	}
}

func noProgram(name string, exit int, why error) error {
	refused := api.Invalid("the program %s cannot be run: %v", name, why)
	refused.ExitCode = exit
	return refused
}

// within is a path as seen from a folder.
func within(folder, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(folder, path)
}

// runnable says why a user could not run a file, started in a folder.
func runnable(path, dir string, as *supervise.User) error {
	if err := executable(path, as); err != nil {
		return err
	}
	return form(path, dir, as, scriptDepth)
}

// executable says why a user could not execute a file. It judges by the file's mode; what else stands in the way is found when it
// is started.
func executable(path string, as *supervise.User) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return reason(err, nil)
	case info.IsDir():
		return cannot("%w; name a program in it", syscall.EISDIR)
	case !info.Mode().IsRegular():
		return cannot("it is no regular file; name a program")
	}
	mode := info.Mode().Perm()
	owner, ok := info.Sys().(*syscall.Stat_t)
	uid, gid, groups := uint32(os.Geteuid()), uint32(os.Getegid()), []uint32(nil)
	if as != nil {
		uid, gid, groups = as.UID, as.GID, as.Groups
	} else if list, err := os.Getgroups(); err == nil {
		for _, group := range list {
			groups = append(groups, uint32(group))
		}
	}
	allowed := mode&0o001 != 0
	switch {
	case !ok:
	case uid == 0:
		allowed = mode&0o111 != 0
	case owner.Uid == uid:
		allowed = mode&0o100 != 0
	case owner.Gid == gid || slices.Contains(groups, owner.Gid):
		allowed = mode&0o010 != 0
	}
	switch {
	case allowed:
		return nil
	case ok && uid != 0 && owner.Uid != uid:
		return cannot("%w: %s belongs to %s, and only %s can let you run it", syscall.EACCES, path, userName(owner.Uid), whoMay(owner.Uid))
	default:
		return cannot("%w; `chmod +x %s` lets it be run", syscall.EACCES, path)
	}
}

// whoMay names those who may change the rights to a user's files.
func whoMay(owner uint32) string {
	if owner == 0 {
		return userName(0)
	}
	return userName(owner) + " or " + userName(0)
}

// userName is the name of a user, else the number.
func userName(uid uint32) string {
	number := strconv.FormatUint(uint64(uid), 10)
	if found, err := user.LookupId(number); err == nil {
		return found.Username
	}
	return "user " + number
}

const (
	firstBytes  = 256 // of a file, from which the kernel tells what it is (BINPRM_BUF_SIZE in include/uapi/linux/binfmts.h)
	scriptDepth = 4   // scripts that are the interpreters of scripts; the kernel has a limit near it
)

// form says why the kernel would not take a file for a program, as far as its first bytes show: it is neither an ELF file nor a script
// whose interpreter can be executed (execve(2)). A file that can be executed but not read is judged when it is started.
func form(path, dir string, as *supervise.User, depth int) error {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	head := make([]byte, firstBytes)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	head = head[:n]
	line, script := bytes.CutPrefix(head, []byte("#!"))
	switch {
	case !script && foreignForms():
		return nil
	case bytes.HasPrefix(head, []byte(elf.ELFMAG)):
		return elfForm(head)
	case !script:
		return cannot("not a program: a script must begin with #! and its interpreter")
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	words := bytes.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' || r == 0 })
	if len(words) == 0 {
		return cannot("not a program: its first line names no interpreter after #!")
	}
	interpreter := string(words[0])
	if depth == 0 || 2+len(line) == firstBytes && len(words) == 1 { // cut off in the middle
		return nil
	}
	return interpreted(interpreter, within(dir, interpreter), dir, as, depth)
}

// interpreted says why a script's interpreter could not be run.
func interpreted(name, path, dir string, as *supervise.User, depth int) error {
	err := executable(path, as)
	switch {
	case err == nil:
		var why *unfit
		if errors.As(form(path, dir, as, depth-1), &why) {
			return &unfit{why.exit, fmt.Errorf("its interpreter %s: %w", name, why)}
		}
		return nil
	case unseen(path, err):
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return &unfit{exitMissing, fmt.Errorf("its interpreter %s does not exist; install it, or correct the first line", name)}
	default:
		return cannot("its interpreter %s: %w", name, err)
	}
}

// foreignForms says that the kernel may take more for programs than it does by itself (binfmt_misc), or that this cannot be seen.
func foreignForms() bool {
	entries, err := os.ReadDir("/proc/sys/fs/binfmt_misc")
	return err != nil && !errors.Is(err, fs.ErrNotExist) ||
		slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() != "register" && e.Name() != "status" })
}
