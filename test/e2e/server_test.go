// Package e2e runs the binary as a user does: a server with simulated devices, commands, programs under the shim. Nothing in it is
// faked.
package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/client"
)

// patience is how long anything may take here: much longer than it does, so that a busy machine fails no test.
const patience = 2 * time.Minute

// judge has programs held to what a machine that is busy with other things may keep from them.
var judge = flag.Bool("judge", false, "hold programs to their floors in real time: on a machine that is busy with other things they may have less")

// binary is aliquot as built for these tests, trainer a program that keeps a device busy.
var binary, trainer string

func TestMain(m *testing.M) {
	os.Exit(build(m))
}

func build(m *testing.M) int {
	folder, err := os.MkdirTemp("", "alq-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(folder) }()
	// Another user runs it too.
	if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // so
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binary = filepath.Join(folder, "aliquot")
	compile := exec.Command("go", "build", "-o", binary, "../../cmd/aliquot")
	compile.Stderr = os.Stderr
	if err := compile.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the binary:", err)
		return 1
	}
	trainer, err = filepath.Abs(filepath.Join("..", "..", "build", "examples", "trainer"))
	if _, missing := os.Stat(trainer); err != nil || missing != nil {
		fmt.Fprintln(os.Stderr, "the example programs are not built: run `make examples` first:", errors.Join(err, missing))
		return 1
	}
	return m.Run()
}

// server is a running `aliquot up` with folders of its own.
type server struct {
	t                *testing.T
	run, state, http string
	simulate         string
	binary           string // empty: that of these tests
	client           *client.Client
}

// up starts a server; the test's end stops it with everything it started.
func up(t *testing.T, simulate string) *server {
	t.Helper()
	folder, err := os.MkdirTemp("", "alq") // short: sockets lie in it
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // other users find the socket in it
		t.Fatal(err)
	}
	s := serverIn(t, folder)
	s.start(simulate)
	return s
}

// serverIn is a server that is not started yet.
func serverIn(t *testing.T, folder string) *server {
	s := &server{t: t, run: filepath.Join(folder, "run"), state: filepath.Join(folder, "state"), http: freeAddress(t)}
	s.client = client.New(s.run)
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(s.state, "daemon.log"))
			t.Logf("the server's log:\n%s", log[max(0, len(log)-8000):])
		}
		if got := s.command("down", "--all", "--grace", "1s"); got.status != 0 && !strings.Contains(got.err, "no server answers") {
			t.Errorf("down --all: %s", got)
		}
		s.client.Close()
		_ = os.RemoveAll(folder)
	})
	return s
}

func (s *server) start(simulate string) {
	s.t.Helper()
	got := s.command("up", "--detach", "--simulate", simulate, "--state", s.state, "--http", s.http)
	if got.status != 0 || !strings.Contains(got.out, "aliquot is up") || !strings.Contains(got.out, "simulated device") {
		s.t.Fatalf("up: %s", got)
	}
}

// freeAddress is an address on loopback that nobody listens on, nor comes to: whoever wants just any port has one of 127.0.0.1.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// result is what a command did.
type result struct {
	status   int // 128 + n when a signal ended it
	out, err string
}

func (r result) String() string {
	return fmt.Sprintf("status %d\nout: %s\nerror: %s", r.status, r.out, r.err)
}

// prepare makes a command of the binary for this server.
func (s *server) prepare(line ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	s.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, cmp.Or(s.binary, binary), append([]string{"--run", s.run}, line...)...)
	cmd.Env = append(os.Environ(), "GREETING=from afar")
	return cmd
}

func (s *server) command(line ...string) result { return finish(s.prepare(line...)) }

func finish(cmd *exec.Cmd) result {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		return result{-1, out.String(), err.Error()}
	}
	return result{statusOf(cmd.ProcessState), out.String(), errs.String()}
}

func statusOf(state *os.ProcessState) int {
	if wait := state.Sys().(syscall.WaitStatus); wait.Signaled() {
		return 128 + int(wait.Signal())
	}
	return state.ExitCode()
}

// must runs a command that has to succeed and returns what it printed.
func (s *server) must(line ...string) string {
	s.t.Helper()
	got := s.command(line...)
	if got.status != 0 {
		s.t.Fatalf("aliquot %s: %s", strings.Join(line, " "), got)
	}
	return got.out
}

// read runs a command with -o json and reads what it printed.
func read[T any](s *server, line ...string) T {
	s.t.Helper()
	var out T
	text := s.must(append(line, "-o", "json")...)
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		s.t.Fatalf("aliquot %s: %v in %s", strings.Join(line, " "), err, text)
	}
	return out
}

// in is the same server for a test within the test.
func (s *server) in(t *testing.T) *server {
	within := *s
	within.t = t
	return &within
}

// appears waits until a workload has been submitted.
func (s *server) appears(name string) {
	s.t.Helper()
	eventually(s.t, "workload "+name, func() bool {
		_, err := s.client.Workload(s.t.Context(), name)
		return err == nil
	})
}

// after returns a workload once its phase is none of the given ones.
func (s *server) after(name string, phases ...api.Phase) api.Workload {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	work, err := s.client.Wait(ctx, name, phases...)
	if err != nil {
		s.t.Fatalf("wait for %s: %v", name, err)
	}
	return work
}

var (
	unstarted = []api.Phase{api.Waiting, api.Starting}
	live      = []api.Phase{api.Waiting, api.Starting, api.Running, api.Stopping}
)

// eventually asks until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for !holds() {
		select {
		case <-again.C:
		case <-deadline.C:
			t.Fatalf("in %s there was no %s", patience, what)
		}
	}
}

// background is a command that goes on beside the test.
type background struct {
	t         *testing.T
	cmd       *exec.Cmd
	out, errs *os.File
	done      chan struct{}
}

func (s *server) background(line ...string) *background {
	s.t.Helper()
	b := &background{t: s.t, cmd: s.prepare(line...), done: make(chan struct{})}
	file := func(name string) *os.File {
		file, err := os.CreateTemp(s.t.TempDir(), name)
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { _ = file.Close() })
		return file
	}
	b.out, b.errs = file("out"), file("err")
	b.cmd.Stdout, b.cmd.Stderr = b.out, b.errs
	if err := b.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { defer close(b.done); _ = b.cmd.Wait() }()
	s.t.Cleanup(func() { _ = b.cmd.Process.Kill(); <-b.done })
	return b
}

func (b *background) signal(sig syscall.Signal) {
	b.t.Helper()
	if err := b.cmd.Process.Signal(sig); err != nil {
		b.t.Fatal(err)
	}
}

func (b *background) said() (out, errs string) {
	b.t.Helper()
	first, err1 := os.ReadFile(b.out.Name())
	second, err2 := os.ReadFile(b.errs.Name())
	if err := errors.Join(err1, err2); err != nil {
		b.t.Fatal(err)
	}
	return string(first), string(second)
}

func (b *background) end() result {
	b.t.Helper()
	select {
	case <-b.done:
	case <-time.After(patience):
		b.t.Fatalf("%v does not end", b.cmd.Args)
	}
	out, errs := b.said()
	return result{statusOf(b.cmd.ProcessState), out, errs}
}
