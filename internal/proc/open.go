// Package proc looks at processes by their numbers, on kernels old and new. It says nothing of whether a number still belongs to the
// process that was meant: who asks looks after that.
package proc

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Open opens the process with a number as a file that can be polled, without blocking reads. Errors are those of pidfd_open(2): ESRCH where there is none.
func Open(pid int) (int, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.EINVAL) { // a kernel before 5.10
		return openBlocking(pid)
	}
	return fd, err
}

// openBlocking opens a process where the kernel cannot do so without blocking, and says the rest afterwards.
func openBlocking(pid int) (int, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}
