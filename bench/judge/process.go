package judge

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Process finds the process that runs one of the native programs of the server with this run folder.
func Process(run, name string) (int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	want := filepath.Join(run, "bin", name)
	for _, entry := range entries {
		if link, err := os.Readlink(filepath.Join("/proc", entry.Name(), "exe")); err == nil && link == want {
			var pid int
			if _, err := fmt.Sscan(entry.Name(), &pid); err == nil {
				return pid, nil
			}
		}
	}
	return 0, fmt.Errorf("no process runs %s", want)
}

// CPUTime is what a process has used of the cores, to the nanosecond, threads that have ended included.
func CPUTime(pid int) (time.Duration, error) {
	// The clock of another process: ~pid in the upper bits, 2 for the scheduler's clock (clock_getcpuclockid).
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// CoreUse is how much of one core a process uses over a span, in percent.
func CoreUse(ctx context.Context, pid int, span time.Duration) (float64, error) {
	before, err := CPUTime(pid)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(span):
	}
	after, err := CPUTime(pid)
	if err != nil {
		return 0, err
	}
	return 100 * float64(after-before) / float64(time.Since(began)), nil
}
