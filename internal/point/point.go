// Package point names the moments at which a crash would be worst, so that tests can crash there: Here does nothing unless the
// environment asked this process to die, or to stop, at that name. It comes in as ALIQUOT_KILL_AT=NAME or NAME:N (the Nth time), and as
// ALIQUOT_STOP_AT=NAME,NAME…; before the process kills itself with SIGKILL, or stops itself with SIGSTOP at each of these once, it appends the name
// to the file ALIQUOT_KILL_LOG, so that a point never reached is noticed. One that stopped goes on with SIGCONT. With ALIQUOT_POINTS_AFTER=NAME
// what is passed before that point counts for nothing: what a process does once it has begun it may do while it begins, too.
package point

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// wish is what the environment asks of this process.
type wish struct {
	name  string
	times int64
	hits  atomic.Int64
	stops map[string]*atomic.Bool // whether it has stopped there
	after string                  // the point from which on others count; empty: from the begin
	begun atomic.Bool             // it was passed
}

// wanted reads the environment, once: points are passed often.
var wanted = sync.OnceValue(func() *wish {
	name, count, _ := strings.Cut(os.Getenv("ALIQUOT_KILL_AT"), ":")
	times, _ := strconv.ParseInt(count, 10, 64)
	w := &wish{name: name, times: times, stops: map[string]*atomic.Bool{}, after: os.Getenv("ALIQUOT_POINTS_AFTER")}
	w.begun.Store(w.after == "")
	for at := range strings.SplitSeq(os.Getenv("ALIQUOT_STOP_AT"), ",") {
		w.stops[at] = &atomic.Bool{}
	}
	return w
})

// Here kills or stops this process if it was asked to die or to stop at the point called at.
func Here(at string) {
	one := wanted()
	if !one.begun.Load() {
		if at == one.after {
			one.begun.Store(true)
		}
		return
	}
	if stopped := one.stops[at]; stopped != nil && stopped.CompareAndSwap(false, true) {
		note(at)
		stop()
	}
	if one.name != at || one.hits.Add(1) < one.times {
		return
	}
	note(at)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// stop stops this process at once: the signal is for the thread that sends it, for another one would take its time, and this one go on meanwhile.
func stop() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
}

// note says that a point was reached.
func note(at string) {
	if log := os.Getenv("ALIQUOT_KILL_LOG"); log != "" {
		if file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
			_, _ = file.WriteString(at + "\n")
			_ = file.Close()
		}
	}
}
