package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// startLog makes the log of a server in the background and opens it as `up --detach` does, for both streams.
func startLog(t *testing.T, state string) (out, err *os.File, log *daemonLog) {
	t.Helper()
	for _, one := range []**os.File{&out, &err} {
		file, failed := os.OpenFile(filepath.Join(state, daemonLogName), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
		if failed != nil {
			t.Fatal(failed)
		}
		t.Cleanup(func() { _ = file.Close() })
		*one = file
	}
	if log = newDaemonLog(state, out, err); log == nil {
		t.Fatal("it is not known for the server's own log")
	}
	log.limit = 100
	return out, err, log
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// However much a server says, its log and the one before it hold only so much, the last lines are there, and nothing else is made.
func TestDaemonLogIsBounded(t *testing.T) {
	state := t.TempDir()
	out, errs, log := startLog(t, state)
	path := filepath.Join(state, daemonLogName)
	log.own()
	const lines = 500
	for i := range lines {
		if _, err := fmt.Fprintf(log, "line %03d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = out.WriteString("up\n")
	_, _ = errs.WriteString("panic\n") // as the runtime does, past the log
	now, before := content(t, path), content(t, path+".1")
	if len(now) > 120 || len(before) > 120 {
		t.Errorf("the log holds %d bytes, the one before it %d", len(now), len(before))
	}
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %03d\n", i)
	}
	want.WriteString("up\npanic\n")
	if all := before + now; !strings.HasSuffix(want.String(), all) || len(all) < 100 {
		t.Errorf("lines are lost or in another order: %q", all)
	}
	if files, err := os.ReadDir(state); err != nil || len(files) != 2 {
		t.Errorf("files %v, %v", files, err)
	}
}

// A log that was large already is put aside by the server that starts, and by none that is refused because another runs.
func TestDaemonLogIsPutAsideByItsOwnServer(t *testing.T) {
	state := t.TempDir()
	path := filepath.Join(state, daemonLogName)
	if err := os.WriteFile(path, []byte(strings.Repeat("x", 200)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, log := startLog(t, state)
	_, _ = log.Write([]byte("refused\n"))
	if got := content(t, path); !strings.HasSuffix(got, "xrefused\n") {
		t.Errorf("the other server's log was put aside: %q", got)
	}
	log.own()
	_, _ = log.Write([]byte("up\n"))
	if got := content(t, path); got != "up\n" {
		t.Errorf("the log is %q", got)
	}
	if got := content(t, path+".1"); !strings.HasSuffix(got, "xrefused\n") {
		t.Errorf("the one before it is %q", got)
	}
}

// Where the log cannot be put aside nothing is lost, and it is said once, not for every line.
func TestDaemonLogThatCannotBePutAside(t *testing.T) {
	state := t.TempDir()
	path := filepath.Join(state, daemonLogName)
	_, _, log := startLog(t, state)
	log.own()
	if err := os.Mkdir(path+".1", 0o700); err != nil {
		t.Fatal(err)
	}
	log.limit = 1000 // more than what is said of it
	for i := range 150 {
		_, _ = fmt.Fprintf(log, "line %03d\n", i)
	}
	got := content(t, path)
	if strings.Count(got, "could not be put aside") != 1 || strings.Count(got, "line") != 150 {
		t.Errorf("the log is %q", got)
	}
	if err := os.Remove(path + ".1"); err != nil {
		t.Fatal(err)
	}
	for range 150 {
		_, _ = fmt.Fprintln(log, "more")
	}
	if got := content(t, path+".1"); !strings.Contains(got, "line 149") {
		t.Errorf("once it could be, it was not: %q", got)
	}
}

// Other files than its own a server leaves alone: its streams may be a terminal, the journal or any file of its user's.
func TestOnlyTheDaemonLogIsPutAside(t *testing.T) {
	state := t.TempDir()
	other, err := os.Create(filepath.Join(state, "mine.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if log := newDaemonLog(state, other, other); log != nil {
		t.Error("another file is taken for the server's log")
	}
	startLog(t, state)
	if log := newDaemonLog(state, other, other); log != nil {
		t.Error("another file is taken for the server's log")
	}
}
