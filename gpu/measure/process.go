package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// log is log.txt: every command, what it printed and how it ended.
type log struct {
	mu    sync.Mutex
	file  *os.File
	began time.Time
}

func openLog(path string) (*log, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &log{file: file, began: time.Now()}, nil
}

func (l *log) close() error { return l.file.Close() }

// printf adds a line. A log that cannot be written costs no figure, so its errors are not looked at.
func (l *log) printf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = fmt.Fprintf(l.file, "%7.2f "+format+"\n", append([]any{time.Since(l.began).Seconds()}, args...)...)
}

const (
	grace   = 3 * time.Second // between SIGTERM and SIGKILL
	keptLog = 64 << 10        // bytes of one command's output in the log
)

// line is a command with its environment.
type line struct {
	args []string
	env  []string // as os.Environ
}

// command prepares a program in a process group of its own; when the context ends, the whole group does. What it writes to
// standard error goes into the returned buffer, which may be read when it has ended.
func command(ctx context.Context, l line) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.CommandContext(ctx, l.args[0], l.args[1:]...)
	cmd.Env = l.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = grace
	said := &bytes.Buffer{}
	cmd.Stderr = said
	return cmd, said
}

// sweep ends what may be left of a command's group.
func sweep(cmd *exec.Cmd) {
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // nothing is left as a rule
	}
}

// output runs a command and returns what it printed; its standard error is in the error if it fails.
func (s *suite) output(ctx context.Context, l line) (string, error) {
	cmd, said := command(ctx, l)
	var out bytes.Buffer
	cmd.Stdout = &out
	err := cmd.Run()
	sweep(cmd)
	s.logged(l, out.String(), said.String(), err)
	if err != nil {
		words := strings.TrimSpace(said.String())
		if words == "" {
			words = strings.TrimSpace(out.String())
		}
		return out.String(), fmt.Errorf("%s: %w: %s", strings.Join(l.args, " "), err, last(words, 600))
	}
	return out.String(), nil
}

func (s *suite) logged(l line, out, said string, err error) {
	end := "done"
	if err != nil {
		end = err.Error()
	}
	s.log.printf("$ %s\n%s%s-- %s", strings.Join(l.args, " "), last(out, keptLog), last(said, keptLog), end)
}

// last is the end of a text.
func last(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return "…" + strings.ToValidUTF8(text[len(text)-most:], "")
}

// pump reads lines until the end and hands each to take.
func pump(from io.Reader, take func(string)) {
	var rest []byte
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		rest = append(rest, buffer[:n]...)
		for {
			text, after, ok := bytes.Cut(rest, []byte("\n"))
			if !ok {
				break
			}
			take(string(text))
			rest = append([]byte{}, after...)
		}
		if err != nil {
			return
		}
	}
}
