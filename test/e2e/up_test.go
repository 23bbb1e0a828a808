package e2e

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A server that cannot start leaves nothing behind, whatever is in its way.
func TestFailedUpLeavesNothing(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for name, test := range map[string]struct {
		before func(*testing.T, *server)
		want   string
	}{
		"address": {func(_ *testing.T, s *server) { s.http = taken.Addr().String() }, "address already in use; choose another address with --http"},
		"database": {func(t *testing.T, s *server) {
			if err := os.MkdirAll(filepath.Join(s.state, "aliquot.db"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, "aliquot.db"},
		"token": {func(t *testing.T, s *server) {
			if err := os.MkdirAll(filepath.Join(s.state, "token"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, "read the token"},
		"devices": {func(_ *testing.T, s *server) { s.simulate = "nonsense" }, `the server did not start: simulate nonsense: there is no model "nonsense"; the models are`},
	} {
		t.Run(name, func(t *testing.T) {
			folder, err := os.MkdirTemp("", "alq")
			if err != nil {
				t.Fatal(err)
			}
			s := serverIn(t, folder)
			s.simulate = "a10x1"
			test.before(t, s)
			got := s.command("up", "--detach", "--simulate", s.simulate, "--state", s.state, "--http", s.http)
			if got.status != 1 || !strings.Contains(got.err, test.want) || !oneSentence(got.err) {
				t.Errorf("up: %s", got)
			}
			if left := processesOf(t, s.run); len(left) > 0 {
				t.Errorf("it left %q behind", left)
			}
		})
	}
}

// A port that nobody asked for may be another's: the server then does without, and says so.
func TestUpWithoutTheUsualPort(t *testing.T) {
	if taken, err := net.Listen("tcp", "127.0.0.1:8787"); err == nil { // else somebody else has taken it, which is as good
		defer func() { _ = taken.Close() }()
	}
	folder, err := os.MkdirTemp("", "alq")
	if err != nil {
		t.Fatal(err)
	}
	s := serverIn(t, folder)
	cmd := s.prepare("up", "--detach", "--simulate", "a10x1", "--state", s.state)
	cmd.Env = slices.DeleteFunc(cmd.Env, func(one string) bool { return strings.HasPrefix(one, "ALIQUOT_HTTP=") })
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+folder) // with no settings in it
	if got := finish(cmd); got.status != 0 || !strings.Contains(got.out, "HTTP is not served: 127.0.0.1:8787 is taken") {
		t.Errorf("up: %s", got)
	}
	if got := s.command("ps"); got.status != 0 {
		t.Errorf("ps: %s", got)
	}
}

// What was asked of a server that would be another than the one that runs is refused, and says what runs.
func TestUpBesideAServer(t *testing.T) {
	s := up(t, "a10x1")
	for line, want := range map[string]string{
		"--detach --simulate h200x2":            "--simulate h200x2 was asked for",
		"--detach --http off":                   "--http off was asked for",
		"--detach --state /nowhere":             "--state /nowhere was asked for",
		"--detach --simulate a10x2 --http off ": "--simulate a10x2 and --http off was asked for",
		"":                                      "a server runs at " + s.run,
		"--simulate a10x1":                      "a server runs at " + s.run,
	} {
		got := s.command(append([]string{"up"}, strings.Fields(line)...)...)
		runs := "--simulate a10x1, --http " + s.http + ", --state " + s.state
		if got.status != 1 || !oneSentence(got.err) || !strings.Contains(got.err, want) || !strings.Contains(got.err, runs) || !strings.Contains(got.err, "aliquot down") {
			t.Errorf("up %s: %s", line, got)
		}
	}
	for _, line := range [][]string{{}, {"--simulate", "a10x1", "--state", s.state, "--http", s.http}} {
		if got := s.command(append([]string{"up", "--detach"}, line...)...); got.status != 0 || !strings.Contains(got.out, "answers at "+s.run) {
			t.Errorf("up %q: %s", line, got)
		}
	}
}
