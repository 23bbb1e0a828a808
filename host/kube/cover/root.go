package cover

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// What is read of an image at most. What images have is far below.
const (
	foldersMax = 2_000     // in which libraries are looked for
	filesMax   = 2_000     // of the dynamic linker's configuration
	bytesMax   = 4 << 20   // in these, together
	namesMax   = 1_000_000 // of files in folders, together
)

// root is a container's file system, and what was read of it so far.
type root struct {
	top                 int // its descriptor
	files, bytes, names int
}

func openRoot(folder string) (*root, error) {
	top, err := unix.Open(folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the container's root %s: %w", folder, err)
	}
	return &root{top: top}, nil
}

func (r *root) close() { _ = unix.Close(r.top) }

// openTries is how often a path is looked up while others rename what it leads over.
const openTries = 100

// open finds what the container would at a path, following links inside of the root alone; it reads and begins nothing, whatever is there. The error is
// errNothing where nothing is found.
func (r *root) open(name string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for try := 0; ; try++ {
		file, err := unix.Openat2(r.top, name, &how)
		switch {
		case err == nil:
			return file, nil
		case errors.Is(err, unix.ENOSYS):
			return 0, errors.New("look into the image: this needs Linux 5.8 or newer")
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN) && try < openTries:
		case slices.ContainsFunc(lacks, func(one syscall.Errno) bool { return errors.Is(err, one) }):
			return 0, fmt.Errorf("look for %s of the image: %w", name, err)
		default: // the dynamic linker does not find it either
			return 0, errNothing
		}
	}
}

// lacks are errors that say nothing of the image: what lacks here the program may have.
var lacks = []syscall.Errno{unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.EAGAIN}

var errNothing = errors.New("nothing is there")

// about is which file a descriptor is, and of which mount.
func about(file int) (unix.Statx_t, error) {
	var is unix.Statx_t
	err := unix.Statx(file, "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE|unix.STATX_INO|unix.STATX_MNT_ID, &is)
	if err == nil && is.Mask&unix.STATX_MNT_ID == 0 {
		err = errors.New("the kernel does not say of which mount it is; this needs Linux 5.8 or newer")
	}
	if err != nil {
		return is, fmt.Errorf("look at a file of the image: %w", err)
	}
	return is, nil
}

// node is a file, whatever it is called.
type node struct {
	major, minor uint32
	inode        uint64
}

func nodeOf(is unix.Statx_t) node { return node{is.Dev_major, is.Dev_minor, is.Ino} }

// read is the content of a file of the linker's; empty where there is none, or something else.
func (r *root) read(name string) (content []byte, of node, err error) {
	file, err := r.open(name)
	if errors.Is(err, errNothing) {
		return nil, of, nil
	}
	if err != nil {
		return nil, of, err
	}
	defer func() { _ = unix.Close(file) }()
	is, err := about(file)
	if err != nil || is.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, of, err
	}
	if r.files++; r.files > filesMax {
		return nil, of, fmt.Errorf("the image has more than %d files of configuration for the dynamic linker (/etc/ld.so.conf and what it includes)", filesMax)
	}
	// By the descriptor, since what is at the path may be another by now.
	opened, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", file))
	if err != nil {
		return nil, of, fmt.Errorf("read %s of the image: %w", name, err)
	}
	defer opened.Close()
	content, err = io.ReadAll(io.LimitReader(opened, int64(bytesMax-r.bytes+1)))
	if err != nil {
		return nil, of, fmt.Errorf("read %s of the image: %w", name, err)
	}
	if r.bytes += len(content); r.bytes > bytesMax {
		return nil, of, fmt.Errorf("the image has more than %d bytes of configuration for the dynamic linker, up to %s", bytesMax, name)
	}
	return content, nodeOf(is), nil
}

// list does something with each name in a folder; nothing where there is none.
func (r *root) list(name string, each func(string) error) error {
	folder, err := r.open(name)
	if errors.Is(err, errNothing) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(folder) }()
	return r.listOpen(folder, name, each)
}

// listOpen is list of a folder that is open.
func (r *root) listOpen(folder int, name string, each func(string) error) error {
	descriptor, err := unix.Openat(folder, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // it is no folder, or root may not look into it
	}
	opened := os.NewFile(uintptr(descriptor), name)
	defer opened.Close()
	for {
		names, err := opened.Readdirnames(1000)
		if r.names += len(names); r.names > namesMax {
			return fmt.Errorf("the folders in which the image has libraries have more than %d files, up to %s", namesMax, name)
		}
		for _, one := range names {
			if err := each(one); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look into %s of the image: %w", name, err)
		}
	}
}

// below is a path in a folder. It is not made shorter: a name before `..` may be a link.
func below(folder, name string) string { return strings.TrimSuffix(folder, "/") + "/" + name }

// match are the paths that a pattern means.
func (r *root) match(pattern string) ([]string, error) {
	found := []string{"/"}
	for _, part := range splitPath(pattern) {
		var next []string
		for _, folder := range found {
			if !hasMeta(part) {
				next = append(next, below(folder, part))
				continue
			}
			err := r.list(folder, func(name string) error {
				if fits, err := path.Match(part, name); err == nil && fits {
					next = append(next, below(folder, name))
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
		if found = next; len(found) > filesMax {
			return nil, fmt.Errorf("the image has more than %d files that are meant by %s", filesMax, pattern)
		}
	}
	return found, nil
}
