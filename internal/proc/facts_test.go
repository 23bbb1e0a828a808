package proc

import (
	"errors"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"testing"
	"time"
)

// TestFacts: who runs a process, and with which variables; of no process, an error.
func TestFacts(t *testing.T) {
	command := exec.Command("cat")
	command.Env = []string{"ONE=1", "TWO="}
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	pid := command.Process.Pid
	if user, err := RealUser(pid); err != nil || user != uint32(os.Getuid()) {
		t.Errorf("runs as %d, %v", user, err)
	}
	if got, err := Environment(pid, time.Minute); err != nil || !reflect.DeepEqual(got, command.Env) {
		t.Errorf("with %q, %v", got, err)
	}
	if err := errors.Join(input.Close(), command.Wait()); err != nil {
		t.Error(err)
	}
	if _, err := RealUser(pid); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("user of no process: %v", err)
	}
	if _, err := Environment(pid, time.Minute); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("variables of no process: %v", err)
	}
}

// TestMemoryThatNeverAnswers: a process whose environment cannot be read does not hang who looks.
func TestMemoryThatNeverAnswers(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	if _, err := within(time.Millisecond, func() ([]string, error) { <-never; return nil, nil }); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("answered with %v", err)
	}
}

// TestEnvironmentOfWhoBecomesAProgram: a process that has just said that it will become another program shows its environment, at
// whatever moment it is looked at.
func TestEnvironmentOfWhoBecomesAProgram(t *testing.T) {
	for range 200 {
		command := exec.Command("sh", "-c", "echo; exec cat")
		command.Env = []string{"PATH=/usr/bin:/bin", "MARK=1"}
		input, err := command.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		output, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := output.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if got, err := Environment(command.Process.Pid, time.Minute); err != nil || !slices.Contains(got, "MARK=1") {
				t.Fatalf("with %q, %v", got, err)
			}
		}
		if err := errors.Join(input.Close(), command.Wait()); err != nil {
			t.Fatal(err)
		}
	}
}
