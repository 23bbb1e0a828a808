package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/internal/until"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/server"
)

// What must hold whenever a daemon of the test of chaos has taken over. Programs end and others start meanwhile, so what does not hold
// is looked at again; only floors granted twice never may be.

// check takes over and looks until everything holds.
func (l *life) check() (err error) {
	var wrong []error
	until.Within(20*time.Second, func() bool {
		if err = settle(l.Host); err == nil {
			err = l.grantedOnce()
		}
		if err != nil {
			return true
		}
		wrong = l.look()
		return len(wrong) == 0
	})
	return errors.Join(append(wrong, err)...)
}

// grantedOnce: the floors of what is prepared never exceed a device.
func (l *life) grantedOnce() error {
	floors := map[string]api.Milli{}
	memory := map[string]api.Bytes{}
	for _, task := range l.agent.Prepared() {
		for _, grant := range task.Grants {
			floors[grant.Device] += grant.Floor
			memory[grant.Device] += grant.MemFloor
		}
	}
	for _, device := range l.agent.Devices() {
		if floors[device.UUID] > api.WholeDevice || memory[device.UUID] > device.Memory {
			return fmt.Errorf("floors of %d thousandths and %d bytes are prepared on %s", floors[device.UUID], memory[device.UUID], device.UUID)
		}
	}
	return nil
}

// look returns what does not hold now.
func (l *life) look() (wrong []error) {
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	checkBooks(l.Host, l.agent, complain)
	l.checkArbiter(complain)
	ctx := context.Background()
	all, err := l.Workloads(ctx, true)
	if err != nil {
		complain("list everything: %v", err)
	}
	known := map[string]api.Workload{}
	for _, work := range all {
		known[work.UID] = work
	}
	for _, one := range recorded(l.root, "accepted") {
		if work, there := known[one[1]]; !there || work.Spec.Name != one[0] {
			complain("%v was accepted and is lost", one)
		}
	}
	l.checkPromises(known, complain)
	for _, work := range all {
		l.checkWorkload(work, complain)
	}
	return wrong
}

// checkArbiter: the arbiter has in its books what is prepared, and nothing else that ever was.
func (l *life) checkArbiter(complain complaint) {
	prepared := map[string]bool{}
	for _, task := range l.agent.Prepared() {
		prepared[task.UID] = true
	}
	for _, one := range recorded(l.root, "accepted") {
		if known, err := arbiterKnows(l.root, one[1]); err != nil || known != prepared[one[1]] {
			complain("%s is prepared: %v, known to the arbiter: %v, %v", one[0], prepared[one[1]], known, err)
		}
	}
}

// checkPromises: what was told to run and was not let go runs on as the same process, or has ended by itself.
func (l *life) checkPromises(known map[string]api.Workload, complain complaint) {
	letGo := l.letGo()
	endless := func(name string) bool {
		return strings.Contains(name, "stays0") || strings.Contains(name, "family0") || strings.Contains(name, "trains0") || strings.Contains(name, "takes0")
	}
	for _, promise := range recorded(l.root, "promised") {
		work := known[promise[0]]
		// That it was accepted may not have been written down before its daemon died.
		if letGo[promise[0]] || strings.HasPrefix(work.Spec.Name, doomed) || work.Status.Phase == api.Ended && !endless(work.Spec.Name) {
			continue
		}
		pid, _ := strconv.Atoi(promise[1])
		process, err := supervise.Find(pid)
		if work.Status.Phase == api.Ended {
			complain("%s ran, nobody ended it, and it ended: %+v", work.Spec.Name, work.Status)
		} else if work.Status.Phase != api.Running || work.Status.PID != pid || err != nil || !process.Alive() {
			complain("%s ran as %d and is %+v, %v", work.Spec.Name, pid, work.Status, err)
		}
	}
}

// letGo are the workloads that a user stopped or of which a process was killed: these may end. So may those that are killed at a
// point of their own.
func (l *life) letGo() map[string]bool {
	set := map[string]bool{}
	for _, name := range []string{"let go", "victims"} {
		for _, one := range recorded(l.root, name) {
			set[one[0]] = true
		}
	}
	for _, one := range recorded(l.root, "accepted") {
		if strings.HasPrefix(one[0], doomed) {
			set[one[1]] = true
		}
	}
	return set
}

// checkWorkload checks one: why it waits is known, it ran at most once, its log is whole, how it ended is known.
func (l *life) checkWorkload(work api.Workload, complain complaint) {
	status, name := work.Status, work.Spec.Name
	if runs := recorded(l.root, "ran-"+work.UID); len(runs) > 1 {
		complain("%s was started %d times", name, len(runs))
	}
	if status.Phase == api.Waiting {
		if why, err := l.Why(context.Background(), work.UID); err != nil || why.Message == "" {
			complain("%s waits and nobody says why: %+v, %v", name, why, err)
		}
	}
	l.checkLines(work, complain)
	if status.Phase != api.Ended {
		return
	}
	digits := strings.TrimLeft(strings.TrimSuffix(name, name[strings.LastIndex(name, "-"):]), "abcdefghijklmnopqrstuvwxyz-")
	want, err := strconv.Atoi(digits)
	if err != nil {
		complain("%s has an unknown name", name)
	}
	killed := l.letGo()[work.UID] || strings.HasPrefix(name, doomed)
	switch {
	case status.Outcome == "":
		complain("%s has no outcome: %+v", name, status)
	case status.Outcome == api.Unknown && !strings.Contains(status.Reason, "its exit status is unknown: "):
		complain("%s does not say why its status is unknown: %q", name, status.Reason)
	case (status.Outcome == api.Succeeded || status.Outcome == api.Failed) && !killed && (status.ExitCode == nil || *status.ExitCode != want):
		l.checkStatus(work, want, complain)
	case status.Outcome == api.Evicted && strings.Contains(name, borrowing) && strings.Contains(status.Reason, "memory taken back for "):
	case status.Outcome == api.Evicted || status.Outcome == api.TimedOut:
		complain("%s was ended by nobody's wish: %+v", name, status)
	case status.Outcome == api.Refused && !strings.Contains(status.Reason, "before it started the program"):
		complain("%s was refused: %+v", name, status)
	}
}

// checkStatus takes note of a status that a program does not end with, but of one: what it holds above its floor is the arbiter's to
// give, and while that is dead it gives nothing.
func (l *life) checkStatus(work api.Workload, want int, complain complaint) {
	var out bytes.Buffer
	if err := l.Logs(context.Background(), me, work.UID, server.LogPart{}, &out); err != nil {
		complain("the log of %s: %v", work.Spec.Name, err)
	}
	if strings.Contains(work.Spec.Name, "grows") && strings.Contains(out.String(), "CUDA_ERROR_OUT_OF_MEMORY") {
		return
	}
	text := out.String()
	complain("%s ended with %+v instead of %d and printed %q", work.Spec.Name, work.Status, want, text[max(0, len(text)-500):])
}

// checkLines: the lines that a program counts are in its log, each once, and all if it said that it was done.
func (l *life) checkLines(work api.Workload, complain complaint) {
	if !strings.Contains(work.Spec.Name, "lines3") && !strings.Contains(work.Spec.Name, "slow7") {
		return
	}
	_, undone := os.Stat(filepath.Join(l.root, "done-"+work.UID)) // before the log is read
	var out bytes.Buffer
	if err := l.Logs(context.Background(), me, work.UID, server.LogPart{}, &out); err != nil {
		complain("the log of %s: %v", work.Spec.Name, err)
		return
	}
	lines := slices.Collect(strings.Lines(out.String()))
	for i, line := range lines {
		if whole := fmt.Sprintf("line %d\n", i); line != whole && (i < len(lines)-1 || !strings.HasPrefix(whole, line)) {
			complain("line %d of %s is %q", i, work.Spec.Name, line)
			return
		}
	}
	want := 200
	if strings.Contains(work.Spec.Name, "slow7") {
		want = 40
	}
	if undone == nil && len(lines) != want {
		complain("%s printed %d lines and its log has %d", work.Spec.Name, want, len(lines))
	}
}
