package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// cpuTime is what the machine's CPUs did since it started, in ticks of its clock (100 a second): all of it, and what of it the machine that
// runs this one took for others ("steal", proc(5)); 0 on a machine that is no guest.
type cpuTime struct{ all, taken uint64 }

func readCPUTime() (cpuTime, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return cpuTime{}, err
	}
	return parseCPUTime(string(text))
}

// parseCPUTime reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal; what follows is in the first two.
func parseCPUTime(text string) (t cpuTime, err error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return t, fmt.Errorf("/proc/stat begins with %q, not with the time of all CPUs", line)
	}
	for _, field := range fields[1:9] {
		ticks, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return t, fmt.Errorf("/proc/stat begins with %q: %w", line, err)
		}
		t.all, t.taken = t.all+ticks, ticks
	}
	return t, nil
}

// takenSince is how much of the machine's CPU time was taken from it since an earlier moment, in percent.
func (t cpuTime) takenSince(before cpuTime) float64 {
	if t.all <= before.all || t.taken < before.taken {
		return 0
	}
	return 100 * float64(t.taken-before.taken) / float64(t.all-before.all)
}
