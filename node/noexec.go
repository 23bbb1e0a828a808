package node

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Many machines mount the file system that a run folder is in so that no program in it can be started and no library loaded: Debian's and Ubuntu's /run is.

// allowPrograms mounts the run folder over itself, without that, where it is so. Where that may not be done the folder is refused.
func (r run) allowPrograms() error {
	flags, err := mountFlags(string(r))
	if err != nil || flags&unix.ST_NOEXEC == 0 {
		return err
	}
	err = unix.Mount(string(r), string(r), "", unix.MS_BIND, "")
	if err == nil {
		const kept = unix.MS_NOSUID | unix.MS_NODEV // the flags of statfs(2) that have the values of mount(2)'s
		err = unix.Mount("", string(r), "", unix.MS_BIND|unix.MS_REMOUNT|uintptr(flags)&kept, "")
		if err != nil {
			_ = unix.Unmount(string(r), unix.MNT_DETACH)
		}
	}
	if err != nil {
		return fmt.Errorf("use run folder %s: programs in it cannot be started, as it is mounted with noexec, and to mount it over itself without takes a right that is lacking (%w); choose another folder with --run", r, err)
	}
	return nil
}

// forbidPrograms takes back what allowPrograms mounted, by whichever agent.
func (r run) forbidPrograms() error {
	above, err := mountFlags(filepath.Dir(string(r)))
	if err != nil || above&unix.ST_NOEXEC == 0 {
		return err
	}
	var is unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, string(r), unix.AT_SYMLINK_NOFOLLOW, 0, &is); err != nil || is.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return err
	}
	return unix.Unmount(string(r), unix.MNT_DETACH)
}

func mountFlags(path string) (int64, error) {
	var is unix.Statfs_t
	if err := unix.Statfs(path, &is); err != nil {
		return 0, fmt.Errorf("look at the file system of %s: %w", path, err)
	}
	return is.Flags, nil
}
