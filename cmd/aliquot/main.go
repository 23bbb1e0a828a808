// Command aliquot is Aliquot on one server: the daemon, the commands that ask it, and the supervisors of its tasks. It wires them;
// what they do is in their packages.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/aliquot-dev/aliquot/cli"
	"github.com/aliquot-dev/aliquot/host/local"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/node"
)

// version is set when it is built, by -ldflags "-X main.version=…".
var version = "development"

func main() {
	// A supervisor is started for every task and stays as long: it is told from the commands before anything is made for them.
	if len(os.Args) > 1 && os.Args[1] == superviseWord {
		os.Exit(supervise.Main(os.Args[2:]))
	}
	// What this was started with by chance must reach neither the server nor, through it, other users' programs.
	if err := supervise.CloseOnExecFrom(firstInherited); err != nil {
		fmt.Fprintln(os.Stderr, "aliquot:", err)
		os.Exit(1)
	}
	folder, lost := os.Getwd()
	if lost != nil {
		folder = "/"
	}
	program := &cli.Program{
		Version: version, In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Environ(), Dir: folder, DirLost: lost,
		Serve: serve, Halt: halt, Replay: local.Replay, Driver: node.DriverPresent, Devices: node.DriverDevices, Supervise: supervise.Main,
	}
	end(program.Main(context.Background(), os.Args[1:]))
}

// firstInherited is the first descriptor behind the three standard streams.
const firstInherited = 3

// endPatience is how long a signal to oneself may take.
const endPatience = time.Second

// end ends this process as the command ended.
func end(exit cli.Exit) {
	if exit.Signal != 0 && endsQuietly(exit.Signal) {
		endBy(exit.Signal)
	}
	os.Exit(exit.Status)
}

// endsQuietly says whether ending by a signal leaves no core file of this program, which did nothing wrong.
func endsQuietly(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGPIPE, syscall.SIGALRM, syscall.SIGUSR1, syscall.SIGUSR2:
		return true
	default:
		return false
	}
}

// endBy ends this process by a signal, so that a shell sees what ended the program: a script that is interrupted stops. It returns
// where the signal does not end this process: one that was started in the background of a script ignores SIGINT, and the one it
// was started with may also be blocked.
func endBy(sig syscall.Signal) {
	signal.Reset(sig)
	if sig == syscall.SIGPIPE || signal.Ignored(sig) || syscall.Kill(os.Getpid(), sig) != nil {
		return
	}
	// The signal is on its way, unless it is blocked: then it never comes.
	time.Sleep(endPatience)
}
