package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrRunning says that the task has a supervisor already.
var ErrRunning = errors.New("the task has a supervisor already")

// report is what a new supervisor tells the one who started it, once.
type report struct {
	Child *Child `json:"child,omitempty"`
	Exit  *Exit  `json:"exit,omitempty"` // it could not be started
}

// descriptors that a supervisor is started with.
const (
	lockDescriptor   = 3
	reportDescriptor = 4
	firstStream      = 5 // three of them where streams are handed over
)

// Started is a supervisor that was started. Wait must be called once.
type Started struct {
	command *exec.Cmd
	reports *os.File
}

// Start starts a supervisor on the folder with the command given (`aliquot supervise`), in a session of its own, and hands it the
// lock and, if there are any, the three streams for the program.
func (f Folder) Start(command []string, streams []*os.File) (*Started, error) {
	lock, free, err := f.lock()
	if err != nil {
		return nil, err
	}
	if !free {
		return nil, ErrRunning
	}
	defer func() { _ = lock.Close() }()
	reports, tell, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = tell.Close() }()
	words, err := os.OpenFile(filepath.Join(string(f), "words"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, errors.Join(err, reports.Close())
	}
	defer func() { _ = words.Close() }()

	supervisor := exec.Command(command[0], append(command[1:len(command):len(command)], string(f))...)
	supervisor.Dir = "/"
	supervisor.Stdout, supervisor.Stderr = words, words
	supervisor.ExtraFiles = append([]*os.File{lock, tell}, streams...)
	supervisor.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := supervisor.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the task's supervisor: %w", err), reports.Close())
	}
	return &Started{supervisor, reports}, nil
}

// Report waits until the program runs, or could not be started. Both nil: the supervisor died before it could say.
func (s *Started) Report() (*Child, *Exit) {
	var said report
	if err := json.NewDecoder(s.reports).Decode(&said); err != nil {
		said = report{}
	}
	_ = s.reports.Close()
	return said.Child, said.Exit
}

// PID is the supervisor's.
func (s *Started) PID() int { return s.command.Process.Pid }

// Wait returns when the supervisor has ended, and says how if it did not end by itself.
func (s *Started) Wait() string {
	err := s.command.Wait()
	var failed *exec.ExitError
	if !errors.As(err, &failed) {
		return ""
	}
	if status, ok := failed.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return "killed by " + signalName(status.Signal())
	}
	return failed.String()
}

// Words returns the end of what supervisors of this task said on their standard error, for an operator.
func (f Folder) Words() string {
	data, err := os.ReadFile(filepath.Join(string(f), "words"))
	if err != nil {
		return ""
	}
	if len(data) > 1000 {
		data = data[len(data)-1000:]
	}
	return strings.TrimSpace(string(data))
}
