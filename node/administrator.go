package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The mark by which processes of administrators' containers are known. It lies in the run folder and, in these containers alone, under the second name, too:
// what has no container finds nothing there, and who has another cannot come by that very file. A file of the same name does not do.
const (
	mark      = "administrator"
	markThere = "administrator.mounted"
)

// Administrator says how to make a container that has devices as an administrator does: with the driver itself and no share, so that it sees all of a device
// and everything that runs there, and nothing that it does is counted. There is nothing to take back of it.
func (a *Agent) Administrator(devices []string) (Container, error) {
	refuse := func(err error) (Container, error) {
		return Container{}, fmt.Errorf("make a container with access as an administrator: %w", err)
	}
	for _, uuid := range devices {
		if _, there := a.device(uuid); !there {
			return refuse(fmt.Errorf("this node has no device %s", uuid))
		}
	}
	file, err := os.OpenFile(a.run.path(mark), os.O_CREATE|os.O_RDONLY, 0o444) // never replaced: containers that run have this one
	if err != nil {
		return refuse(err)
	}
	_ = file.Close()
	found, err := a.backend.Administrator(devices)
	if err != nil {
		return refuse(err)
	}
	c := Container{Env: found.Env, Devices: found.Devices}
	for _, m := range found.Mounts {
		c.Mounts = append(c.Mounts, Mount{Source: m.Source, Target: m.Target, ReadOnly: true})
	}
	c.Mounts = append(c.Mounts, Mount{Source: a.run.path(mark), Target: a.run.path(markThere), ReadOnly: true})
	return c, nil
}

// administers says whether a process is in a container that was made so.
func (a *Agent) administers(pid int) bool {
	var own unix.Stat_t
	if err := unix.Lstat(a.run.path(mark), &own); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			a.log.Warn("it is not known which processes are administrators'", "error", err)
		}
		return false
	}
	top, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(top) }()
	// Links of the container's lead to files of the container's alone.
	inside, err := filepath.Rel("/", a.run.path(markThere))
	if err != nil {
		return false
	}
	there, err := unix.Openat2(top, inside, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(there) }()
	var found unix.Stat_t
	return unix.Fstat(there, &found) == nil && found.Dev == own.Dev && found.Ino == own.Ino
}

// noticeAdministrators says once of each process of an administrator's that it computes on a device. One whose device was read and which is not there any more
// is forgotten.
func (a *Agent) noticeAdministrators(uuid string, s *survey) {
	now := map[stray]bool{}
	for i, key := range s.administrators {
		now[key] = true
		a.mu.Lock()
		known := a.administering[key]
		a.administering[key] = true
		a.mu.Unlock()
		if p := s.theirs[i]; !known {
			a.notices.add(Notice{Kind: Administers, Device: uuid, Message: fmt.Sprintf(
				"Process %d (%s) computes on device %s by its container's access as an administrator, and is held to no share.", p.PID, p.Name, uuid)})
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for key := range a.administering {
		if key.device == uuid && !now[key] {
			delete(a.administering, key)
		}
	}
}
