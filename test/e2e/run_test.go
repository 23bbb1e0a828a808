package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What a program sees under `run` is what it would see without it: streams, directory, environment, signals, exit status.
func TestRun(t *testing.T) {
	s := up(t, "h200x1")
	t.Run("streams, directory, environment, status", func(t *testing.T) {
		s := s.in(t)
		folder := t.TempDir()
		cmd := s.prepare("run", "--gpu", "0.25..0.80", "--mem", "4Gi..8Gi", "--", "sh", "-c", `cat; pwd; echo "$GREETING"; echo bad >&2; exit 3`)
		cmd.Dir = folder
		cmd.Stdin = strings.NewReader("typed\n")
		if got := finish(cmd); got.status != 3 || got.out != "typed\n"+folder+"\nfrom afar\n" || got.err != "bad\n" {
			t.Errorf("%s", got)
		}
	})
	t.Run("in the background of a terminal there is no input", func(t *testing.T) {
		s := s.in(t)
		inside := s.prepare("run", "--gpu", "0.1", "--", "cat")
		cmd := s.prepare()
		cmd.Path, cmd.Err = "/usr/bin/script", nil
		cmd.Args = []string{"script", "-qec", "set -m; " + strings.Join(inside.Args, " ") + " & wait $!; echo ended $?", "/dev/null"}
		typed, err := cmd.StdinPipe() // and nobody types
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = typed.Close() }()
		if got := finish(cmd); got.status != 0 || !strings.Contains(got.out, "ended 0") {
			t.Errorf("%s", got)
		}
	})
	t.Run("ends by the program's signal", func(t *testing.T) {
		s := s.in(t)
		if got := s.command("run", "--gpu", "0.1", "--", "sh", "-c", "kill -TERM $$"); got.status != 128+int(syscall.SIGTERM) || got.err != "" {
			t.Errorf("%s", got)
		}
	})
	t.Run("signals", func(t *testing.T) {
		s := s.in(t)
		job := s.background("run", "--name", "trap", "--gpu", "0.1", "--", "sh", "-c",
			`trap 'echo usr1' USR1; trap 'echo int; exit 9' INT; echo ready; while :; do sleep 0.05; done`)
		hears := func(what string) {
			eventually(t, what, func() bool { out, _ := job.said(); return strings.Contains(out, what) })
		}
		hears("ready")
		job.signal(syscall.SIGUSR1)
		hears("usr1")
		job.signal(syscall.SIGINT)
		if got := job.end(); got.status != 9 || got.out != "ready\nusr1\nint\n" {
			t.Errorf("%s", got)
		}
	})
	t.Run("every signal that can be passed on", func(t *testing.T) {
		s := s.in(t)
		signals := []syscall.Signal{1, 3, 4, 5, 6, 7, 8, 10, 11, 12, 14, 15, 16, 24, 25, 26, 28, 29, 30, 31, 35, 50, 64}
		script := ""
		for _, sig := range signals {
			script += fmt.Sprintf("trap 'echo got %d.' %[1]d; ", int(sig))
		}
		job := s.background("run", "--gpu", "0.1", "--", "sh", "-c", script+"trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done")
		hears := func(what string) {
			t.Helper()
			eventually(t, what, func() bool { out, _ := job.said(); return strings.Contains(out, what) })
		}
		hears("ready")
		for _, sig := range signals {
			job.signal(sig)
			hears(fmt.Sprintf("got %d.", int(sig)))
		}
		job.signal(syscall.SIGINT)
		if got := job.end(); got.status != 9 || strings.Contains(got.err, "goroutine") {
			t.Errorf("%s", got)
		}
	})
	// A shell that forks all the time may be stopped while it waits for a child that has not begun its program, and does not look it then.
	t.Run("Ctrl-Z and fg", func(t *testing.T) {
		s := s.in(t)
		job := s.background("run", "--name", "paused", "--gpu", "0.1", "--", "sh", "-c", `trap 'exit 9' INT; sleep 1000 & echo ready; wait`)
		eventually(t, "program", func() bool { out, _ := job.said(); return strings.Contains(out, "ready") })
		job.signal(syscall.SIGTSTP) // whether the server has noted already that it runs, or not
		pid := s.after("paused", unstarted...).Status.PID
		stopped := func(pid int) bool {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil {
				t.Fatal(err)
			}
			return strings.Contains(string(text), ") T ")
		}
		for _, step := range []struct {
			sig  syscall.Signal
			want bool
		}{{0, true}, {syscall.SIGCONT, false}, {syscall.SIGTSTP, true}, {syscall.SIGCONT, false}} {
			job.signal(step.sig)
			eventually(t, step.sig.String(), func() bool { return stopped(pid) == step.want && stopped(job.cmd.Process.Pid) == step.want })
		}
		job.signal(syscall.SIGINT)
		if got := job.end(); got.status != 9 {
			t.Errorf("%s", got)
		}
	})
	t.Run("a terminal that is closed", func(t *testing.T) {
		s := s.in(t)
		job := s.background("run", "--name", "left", "--gpu", "0.1", "--", "sleep", "1000")
		s.appears("left")
		s.after("left", unstarted...)
		job.signal(syscall.SIGKILL)
		if work := s.after("left", live...); work.Status.Signal != "SIGHUP" {
			t.Errorf("a task whose client is gone ended as %+v", work.Status)
		}
	})
	t.Run("programs that cannot be started", func(t *testing.T) {
		s := s.in(t)
		folder := t.TempDir()
		plain := filepath.Join(folder, "plain")
		if err := os.WriteFile(plain, []byte("no program"), 0o600); err != nil {
			t.Fatal(err)
		}
		garbage := filepath.Join(folder, "garbage")
		if err := os.WriteFile(garbage, []byte("#!/no/such/interpreter\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if got := s.command("submit", "--gpu", "0.1", "--", garbage); got.status != 1 || !oneSentence(got.err) {
			t.Errorf("submitted %s: %s", garbage, got)
		}
		for program, status := range map[string]int{garbage: 127, filepath.Join(folder, "missing"): 127, "no-such-program-anywhere": 127, plain: 126, folder: 126} {
			got := s.command("run", "--gpu", "0.1", "--", program)
			if got.status != status || !oneSentence(got.err) || !strings.Contains(got.err, filepath.Base(program)) {
				t.Errorf("%s: %s", program, got)
			}
		}
	})
	t.Run("a program on the device", func(t *testing.T) {
		s := s.in(t)
		got := s.command("run", "--gpu", "0.5..", "--mem", "1Gi", "--", trainer, "--seconds", "0.3", "--kernel-us", "200")
		if got.status != 0 || got.out == "" {
			t.Errorf("%s", got)
		}
	})
}
