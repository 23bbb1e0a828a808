package testcluster

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is in what Linux counts the CPU time of processes for their readers.
const tick = 10 * time.Millisecond

// CPU is the time that it has used of processors, with those of its children that have ended.
func (p *Process) CPU() (time.Duration, error) { return cpu(p.PID()) }

// CPU is the time that the cluster's processes have used of processors, of those that run now.
func (c *Cluster) CPU() (all time.Duration, err error) {
	running, err := c.group.processes()
	if err != nil {
		return 0, err
	}
	for _, pid := range running {
		used, err := cpu(pid)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has ended
		}
		if err != nil {
			return 0, err
		}
		all += used
	}
	return all, nil
}

// cpu reads /proc/PID/stat, whose second field is a name in parentheses that may hold anything.
func cpu(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read how much CPU time process %d has used: %w", pid, err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from the third of all on
	if len(fields) < 15 {
		return 0, fmt.Errorf("read how much CPU time process %d has used: %q has too few fields", pid, stat)
	}
	var all time.Duration
	for _, field := range fields[11:15] { // in user mode and in the kernel, its own and its children's
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read how much CPU time process %d has used: %w", pid, err)
		}
		all += time.Duration(n) * tick
	}
	return all, nil
}
