// Package point names the moments at which a crash would be worst, so that tests can crash there: Here does nothing unless the
// environment asked this process to die at that name. It comes in as ALIQUOT_KILL_AT=NAME or NAME:N (the Nth time); before the
// process kills itself with SIGKILL it appends the name to the file ALIQUOT_KILL_LOG, so that a point never reached is noticed.
package point

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var (
	name  string
	times int64
	hits  atomic.Int64
)

func init() {
	var count string
	name, count, _ = strings.Cut(os.Getenv("ALIQUOT_KILL_AT"), ":")
	times, _ = strconv.ParseInt(count, 10, 64)
}

// Here kills this process if it was asked to die at the point called at.
func Here(at string) {
	if name != at || hits.Add(1) < times {
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
