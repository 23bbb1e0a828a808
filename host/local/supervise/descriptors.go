package supervise

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// CloseOnExecFrom sets close-on-exec on every descriptor of this process from first on, so that what it was started with by chance
// (a file of root's shell, a pipe that somebody waits for the end of) goes no further than this process: what it starts gets only
// what is handed to it on purpose. It must be called before anything is started.
func CloseOnExecFrom(first uint) error {
	err := unix.CloseRange(first, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("keep open files from what is started: %w", err)
	}
	return closeOnExecEach(first) // a kernel before 5.11, or a sandbox that does not know the call
}

// closeOnExecEach does the same, one descriptor after the other.
func closeOnExecEach(first uint) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("keep open files from what is started: %w", err)
	}
	for _, entry := range entries {
		if number, err := strconv.ParseUint(entry.Name(), 10, 31); err == nil && uint(number) >= first {
			unix.CloseOnExec(int(number)) // the folder that was read is closed by now, and that does no harm
		}
	}
	return nil
}
