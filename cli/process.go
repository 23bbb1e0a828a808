package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// endPatience is how long a server may take to end: it only closes what it holds.
const endPatience = 30 * time.Second

// waitGone returns when a process that is no child of this one has ended.
func waitGone(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("wait for process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	ctx, cancel := context.WithTimeout(ctx, endPatience)
	defer cancel()
	for ctx.Err() == nil {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 100)
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for process %d: %w", pid, err)
		}
	}
	return fmt.Errorf("process %d was asked to end and has not after %s: see its log", pid, endPatience)
}
