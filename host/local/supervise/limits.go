package supervise

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// ordinary are the limits that another user's program begins with where the server's own are higher: those that systemd gives a
// service or a login where nothing else is configured (systemd-system.conf(5), systemd 258; MEMLOCK: also the kernel's own since 5.16).
// A server has higher ones for itself, and a program must not take from the machine what its user could not.
var ordinary = []struct {
	name string
	what int
	unix.Rlimit
}{
	{"RLIMIT_NOFILE", unix.RLIMIT_NOFILE, unix.Rlimit{Cur: 1024, Max: 524288}},
	{"RLIMIT_MEMLOCK", unix.RLIMIT_MEMLOCK, unix.Rlimit{Cur: 8 << 20, Max: 8 << 20}},
	{"RLIMIT_RTPRIO", unix.RLIMIT_RTPRIO, unix.Rlimit{}},
	{"RLIMIT_NICE", unix.RLIMIT_NICE, unix.Rlimit{}},
}

// ordinaryUmask is a login's.
const ordinaryUmask = 0o022

// limit gives this process, and so what it starts, no more than the ordinary limits. What is lower stays.
func limit() error {
	for _, one := range ordinary {
		var has unix.Rlimit
		if err := unix.Getrlimit(one.what, &has); err != nil {
			return fmt.Errorf("read %s: %w", one.name, err)
		}
		has.Max = min(has.Max, one.Max)
		has.Cur = min(has.Cur, one.Cur, has.Max)
		// Also where nothing changes: the program then gets just this, not what this process itself began with.
		if err := unix.Setrlimit(one.what, &has); err != nil {
			return fmt.Errorf("lower %s: %w", one.name, err)
		}
	}
	unix.Umask(ordinaryUmask)
	return nil
}
