package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// RealUser is who started a process: a program that is another user's by its file is still of the one who runs it. Errors are those
// of reading /proc/PID/status, and one where that has an unknown form.
func RealUser(pid int) (uint32, error) {
	path := "/proc/" + strconv.Itoa(pid) + "/status"
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok && len(strings.Fields(ids)) > 0 {
			user, err := strconv.ParseUint(strings.Fields(ids)[0], 10, 32)
			return uint32(user), err
		}
	}
	return 0, fmt.Errorf("%s has an unknown form", path)
}

// Environment is what a process was started with, VARIABLE=VALUE each; empty for a thread of the kernel, and for a moment while a
// process becomes its program. The memory of a process can lie in a file of its user's own making, which never answers: after
// `patience` the error is os.ErrDeadlineExceeded.
func Environment(pid int, patience time.Duration) ([]string, error) {
	return within(patience, func() ([]string, error) {
		data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		if err != nil || len(data) == 0 {
			return nil, err
		}
		return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00"), nil
	})
}

// within waits for an answer for a limited time.
func within[T any](patience time.Duration, ask func() (T, error)) (T, error) {
	type answer struct {
		got T
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		got, err := ask()
		answered <- answer{got, err}
	}()
	end := time.NewTimer(patience)
	defer end.Stop()
	select {
	case one := <-answered:
		return one.got, one.err
	case <-end.C:
		var none T
		return none, os.ErrDeadlineExceeded
	}
}
