package e2e

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What the shell of whoever starts the server has open reaches neither the server nor other programs: no task reads its files, and
// whoever waits for the end of its pipes waits for `up` only.
func TestUpKeepsNoOpenFiles(t *testing.T) {
	folder, err := os.MkdirTemp("", "alq")
	if err != nil {
		t.Fatal(err)
	}
	s := serverIn(t, folder)
	secret, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = secret.Close() }()
	end, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = end.Close() }()
	up := s.prepare("up", "--detach", "--simulate", "a10x1", "--state", s.state, "--http", s.http)
	up.ExtraFiles = []*os.File{secret, pipe}
	if got := finish(up); got.status != 0 {
		t.Fatalf("up: %s", got)
	}
	if err := pipe.Close(); err != nil {
		t.Fatal(err)
	}
	if err := end.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(end); err != nil || len(text) > 0 {
		t.Errorf("the pipe of whoever started the server is still open: %q, %v", text, err)
	}
	if open := strings.Fields(s.must("run", "--gpu", "0.1", "--", "sh", "-c", "ls /proc/$$/fd")); strings.Join(open, " ") != "0 1 2" {
		t.Errorf("a program has descriptors %q open", open)
	}
	for process := range processesOf(t, s.run) {
		links, _ := filepath.Glob(filepath.Join(process, "fd", "*")) // one that has ended has none
		for _, link := range links {
			if target, _ := os.Readlink(link); target == os.Args[0] {
				t.Errorf("%s holds the file that whoever started the server had open", process)
			}
		}
	}
}
