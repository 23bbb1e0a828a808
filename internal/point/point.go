// Package point names the moments at which a crash would be worst, so that tests can crash there: Here does nothing unless the
// environment asked this process to die at that name. It comes in as ALIQUOT_KILL_AT=NAME or NAME:N (the Nth time); before the
// process kills itself with SIGKILL it appends the name to the file ALIQUOT_KILL_LOG, so that a point never reached is noticed.
package point

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// wish is what the environment asks of this process.
type wish struct {
	name  string
	times int64
	hits  atomic.Int64
}

// wanted reads the environment, once: points are passed often.
var wanted = sync.OnceValue(func() *wish {
	name, count, _ := strings.Cut(os.Getenv("ALIQUOT_KILL_AT"), ":")
	times, _ := strconv.ParseInt(count, 10, 64)
	return &wish{name: name, times: times}
})

// Here kills this process if it was asked to die at the point called at.
func Here(at string) {
	if one := wanted(); one.name != at || one.hits.Add(1) < one.times {
		return
	}
	if log := os.Getenv("ALIQUOT_KILL_LOG"); log != "" {
		if file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
			_, _ = file.WriteString(at + "\n")
			_ = file.Close()
		}
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
