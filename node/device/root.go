package device

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Root is the file system that the driver is installed in, where that is not this process's own: the driver is in a container, or this process is. The zero
// Root is this process's own.
type Root struct {
	Here    string // where this process sees it
	Machine string // where the machine does
}

func (r Root) own() bool { return r.Here == "" }

// here is where this process sees a file of it.
func (r Root) here(path string) string { return filepath.Join(r.Here, path) }

// machine is where the machine sees a file of it.
func (r Root) machine(path string) string { return filepath.Join(r.Machine, path) }

// resolve follows the links of a path as processes in that file system would, and returns the file's path there.
func (r Root) resolve(path string) (string, error) {
	if r.own() {
		return filepath.EvalSymlinks(path)
	}
	top, err := unix.Open(r.Here, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("look into %s: %w", r.Here, err)
	}
	defer func() { _ = unix.Close(top) }()
	file, err := unix.Openat2(top, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if err != nil {
		return "", fmt.Errorf("look for %s in %s: %w", path, r.Here, err)
	}
	defer func() { _ = unix.Close(file) }()
	var at [2]string
	for i, descriptor := range []int{top, file} {
		if at[i], err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", descriptor)); err != nil {
			return "", err
		}
	}
	inside, err := filepath.Rel(at[0], at[1])
	if err != nil {
		return "", err
	}
	return filepath.Join("/", inside), nil
}
