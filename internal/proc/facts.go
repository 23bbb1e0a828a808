package proc

import (
	"bytes"
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

// Environment is what a process was started with, VARIABLE=VALUE each; empty for a thread of the kernel and for one that has ended but
// was not collected. One that is just becoming its program has none to show for a moment, also to whoever has started it and was
// told that this went well: that moment is waited out. The memory of a process can lie in a file of its user's own making, which
// never answers: after `patience` the error is os.ErrDeadlineExceeded.
func Environment(pid int, patience time.Duration) ([]string, error) {
	return within(patience, func() ([]string, error) {
		folder := "/proc/" + strconv.Itoa(pid)
		settled := false // it was seen to have a place for its environment, before that was read
		for began := time.Now(); time.Since(began) <= patience; time.Sleep(50 * time.Microsecond) {
			data, err := os.ReadFile(folder + "/environ")
			if err != nil {
				return nil, err
			}
			if len(data) > 0 {
				return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00"), nil
			}
			if _, err := os.Readlink(folder + "/exe"); settled || err != nil {
				return nil, nil // it has none, is a thread of the kernel, or has ended
			}
			settled = hasEnvironment(folder)
		}
		return nil, os.ErrDeadlineExceeded
	})
}

// hasEnvironment says that a process has a place for its environment, be it empty. Between two programs it has none.
func hasEnvironment(folder string) bool {
	data, err := os.ReadFile(folder + "/stat")
	if err != nil {
		return true // it has ended, which the next look finds
	}
	const end = 51 - 3 // field 51, env_end, counted from 1; the first two are before the ')'
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	return len(fields) <= end || fields[end] != "0"
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
