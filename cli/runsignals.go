package cli

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// ending are the signals that end a `run` whose program does not run yet, as they would end the program.
var ending = []syscall.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGALRM, syscall.SIGXCPU, syscall.SIGXFSZ,
	// Sent by somebody: where this process itself is at fault they are still the Go runtime's.
	syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGSEGV, syscall.SIGSTKFLT, syscall.SIGSYS, syscall.SIGTRAP,
}

// The first real-time signal that is nobody's: the C library has 32 and 33 and the Go runtime leaves 34 to one, too. And the last.
const firstRealTime, lastRealTime = 35, 64

// passedOn are the signals that `run` hands to the program instead of obeying them. Not those that nobody can take (KILL, STOP); those
// that this process has for itself (CHLD, PROF, URG, which the runtime sends itself, PIPE, which writing to a server that went away gives);
// and those with which the kernel stops who uses a terminal in the background (TTIN, TTOU), for the program is in a session of its own.
func passedOn() []os.Signal {
	all := []os.Signal{
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT,
		syscall.SIGVTALRM, syscall.SIGIO, syscall.SIGPWR,
	}
	for _, sig := range ending {
		all = append(all, sig)
	}
	for number := firstRealTime; number <= lastRealTime; number++ {
		all = append(all, syscall.Signal(number))
	}
	return all
}

// signalName is how the server is told of a signal: by its name, or by its number where it has none.
func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return strconv.Itoa(int(sig))
}

func (c *invocation) notify(to chan<- os.Signal, which ...os.Signal) {
	if c.Notify != nil {
		c.Notify(to, which...)
		return
	}
	signal.Notify(to, which...)
}

// suspend stops this process as the terminal asked; it returns when the process goes on.
func (a *attached) suspend() {
	a.waiting.clear()
	if a.Suspend != nil {
		a.Suspend()
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
}
