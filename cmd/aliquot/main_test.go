package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/aliquot-dev/aliquot/cli"
)

// endVariable makes this test's program a process that ends as a command does whose program was ended by SIGINT.
const endVariable = "ALIQUOT_TEST_END"

func TestMain(m *testing.M) {
	if os.Getenv(endVariable) == "" {
		os.Exit(m.Run())
	}
	taken := make(chan os.Signal, 1)
	signal.Notify(taken, syscall.SIGINT) // as `run` does
	end(cli.Exit{Status: 130, Signal: syscall.SIGINT})
}

// A command that ends by a signal is seen to; where its parent had it ignore the signal, as a shell has programs in the background
// of a script do, it ends with the status that a shell would give.
func TestEndsBySignal(t *testing.T) {
	for name, test := range map[string]struct {
		before string
		signal syscall.Signal
		status int
	}{
		"signal":  {"", syscall.SIGINT, -1},
		"ignored": {`trap "" INT; `, 0, 130},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.Command("sh", "-c", test.before+`exec "$0"`, os.Args[0])
			command.Env = append(os.Environ(), endVariable+"=1")
			err := command.Run()
			var failed *exec.ExitError
			if !errors.As(err, &failed) {
				t.Fatalf("it ended with %v", err)
			}
			status := failed.Sys().(syscall.WaitStatus)
			if by := syscall.Signal(0); status.Signaled() {
				if by = status.Signal(); by != test.signal {
					t.Errorf("ended by %v", by)
				}
			} else if status.ExitStatus() != test.status {
				t.Errorf("ended with status %d", status.ExitStatus())
			}
		})
	}
}
