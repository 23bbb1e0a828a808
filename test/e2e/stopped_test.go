package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node/page"
)

// held is a task and what its pages say.
type held struct {
	t   *testing.T
	pid int
	ctl *page.Map[page.Ctl]
	tel *page.Map[page.Tel]
}

func hold(s *server, work api.Workload) held {
	s.t.Helper()
	folders, err := filepath.Glob(filepath.Join(s.run, "tasks", work.UID+"*"))
	if err != nil || len(folders) != 1 {
		s.t.Fatalf("folders of %s: %q %v", work.UID, folders, err)
	}
	return held{s.t, work.Status.PID, open[page.Ctl](s.t, folders[0], "ctl"), open[page.Tel](s.t, folders[0], "tel")}
}

func open[T page.Layout](t *testing.T, folder, name string) *page.Map[T] {
	t.Helper()
	m, err := page.Open[T](filepath.Join(folder, name), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// leased is whether it has a lease and work queued under it.
func (h held) leased() bool {
	const gateOpen = 1 // ALQ_GATE_OPEN of native/abi.h
	var open, queued bool
	if err := h.ctl.View(func(c *page.Ctl) error { open = c.Grant[0].Gate.Load()&gateOpen != 0; return nil }); err != nil {
		h.t.Fatal(err)
	}
	if err := h.tel.View(func(tel *page.Tel) error {
		for _, p := range tel.Processes() {
			g := &tel.Slot[p.Slot].Grant[0]
			queued = queued || g.Launched.Load() > g.Completed.Load()
		}
		return nil
	}); err != nil {
		h.t.Fatal(err)
	}
	return open && queued
}

// stop stops the task (SIGSTOP) while it has a lease and work queued under it, and returns when that was, as the record tells time.
func (h held) stop() time.Duration {
	h.t.Helper()
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		if !h.leased() {
			runtime.Gosched()
			continue
		}
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			h.t.Fatal(err)
		}
		h.signal(syscall.SIGSTOP)
		for !stopped(h.t, h.pid) {
			runtime.Gosched()
		}
		if h.leased() {
			return time.Duration(now.Nano())
		}
		h.signal(syscall.SIGCONT) // too late: the lease was over first
	}
	h.t.Fatalf("in %s it was never stopped with a lease", patience)
	return 0
}

func (h held) signal(signal syscall.Signal) {
	h.t.Helper()
	if err := syscall.Kill(h.pid, signal); err != nil {
		h.t.Fatal(err)
	}
}

// stopped is whether all threads of a process are.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads of %d: %v", pid, err)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			t.Fatal(err)
		}
		if _, rest, _ := strings.Cut(string(stat), ") "); rest[0] != 'T' {
			return false
		}
	}
	return true
}

// three are tasks with these floors on one device that always want more.
func three(s *server, records recorder, floors [3]float64) (tasks [3]held) {
	s.t.Helper()
	for i := range tasks {
		name := fmt.Sprintf("tenant-%d", i)
		s.must("submit", "--name", name, "--gpu", fmt.Sprint(floors[i], ".."), "--mem", "1Gi", "--", trainer, "--seconds", "1000", "--progress", "0", "--kernel-us", "500")
		tasks[i] = hold(s, s.after(name, unstarted...))
	}
	eventually(s.t, "work of all three", func() bool {
		now := records.read()
		return !slices.ContainsFunc(tasks[:], func(h held) bool { return now.busy[h.pid] < 50*time.Millisecond })
	})
	return tasks
}

// behind is how far one that has this floor falls behind it at most in so long after `since`, in time of its floor; what it had before the reading
// does not count.
func behind(records recorder, since time.Duration, from reading, others []held, floors []float64, long time.Duration) (worst time.Duration) {
	again := time.NewTicker(20 * time.Millisecond) // reading takes of the machine, too
	defer again.Stop()
	worst = from.at - since
	for now := from; now.at-since < long; now = records.read() {
		for i, other := range others {
			got := time.Duration(float64(now.busy[other.pid]-from.busy[other.pid]) / floors[i])
			worst = max(worst, now.at-since-got)
		}
		<-again.C
	}
	return worst
}

// TestStopped: a task that is stopped (SIGSTOP) with a lease and work queued keeps the device from nobody: the others go on, with -judge with their
// floors again within 100 ms, and it goes on when it may. What is late on a machine that is busy with other things is nobody's doing, so that is
// tried until it has come out often enough; each time, to the microsecond, it is tested under virtual time (native/arbiter/test/luck.c).
func TestStopped(t *testing.T) {
	const within, watched, enough, most = 100 * time.Millisecond, 200 * time.Millisecond, 4, 24
	s := up(t, "h200x1")
	records, floors := newRecorder(t, s.run), [3]float64{0.3, 0.35, 0.35}
	tasks := three(s, records, floors)
	var late []time.Duration
	for soon := 0; soon < enough; {
		since := tasks[0].stop()
		from := records.read()
		late = append(late, behind(records, since, from, tasks[1:], floors[1:], watched))
		if !*judge || late[len(late)-1] <= within {
			soon++
		}
		eventually(t, "work of the others", func() bool {
			now := records.read()
			return !slices.ContainsFunc(tasks[1:], func(h held) bool { return now.busy[h.pid]-from.busy[h.pid] < 50*time.Millisecond })
		})
		ran := records.read().busy[tasks[0].pid]
		if more := ran - from.busy[tasks[0].pid]; more > 10*time.Millisecond {
			t.Errorf("stopped with launches of 1 ms queued, it ran for %s more", more)
		}
		tasks[0].signal(syscall.SIGCONT)
		eventually(t, "work of the task that goes on", func() bool { return records.read().busy[tasks[0].pid] > ran+20*time.Millisecond })
		if len(late) == most {
			t.Fatalf("others were behind their floors by %v, %d times by no more than %s", late, soon, within)
		}
	}
	t.Logf("others were behind their floors by %v", late)
}
