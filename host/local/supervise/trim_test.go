package supervise

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A log is trimmed again and again while several processes append to it: what is left must be each one's lines without a gap up to
// its last, and the space taken must be bounded.
func TestTrimLosesNoLineOfConcurrentWriters(t *testing.T) {
	const writers, lines, limit = 4, 60_000, 2 << 20
	path := filepath.Join(t.TempDir(), "log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	ended := make(chan error, writers)
	for i := range writers {
		writer := exec.Command("awk", fmt.Sprintf(`BEGIN { for (i = 0; i < %d; i++) { printf "%d %%d ........................\n", i; fflush() } }`, lines, i))
		writer.Stdout = log
		if err := writer.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { ended <- writer.Wait() }()
	}
	trims := 0
	trim := func() {
		if err := Trim(path, limit); err != nil {
			t.Fatal(err)
		}
		trims++
	}
	for left := writers; left > 0; {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			left--
		default:
			trim()
		}
	}
	trim()

	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	start, err := FirstByte(file)
	if err != nil || start == 0 || start%trimStep != 0 {
		t.Fatalf("content begins at %d, %v: nothing was trimmed", start, err)
	}
	scanner := bufio.NewScanner(file)
	scanner.Scan() // the rest of a line whose head was trimmed
	next := map[int]int{}
	for scanner.Scan() {
		var writer, line int
		if _, err := fmt.Sscanf(scanner.Text(), "%d %d", &writer, &line); err != nil || strings.ContainsRune(scanner.Text(), 0) {
			t.Fatalf("a broken line: %q: %v", scanner.Text(), err)
		}
		if want, seen := next[writer]; seen && line != want {
			t.Fatalf("writer %d: line %d follows %d", writer, line, want-1)
		}
		next[writer] = line + 1
	}
	for i := range writers {
		if next[i] != lines {
			t.Errorf("writer %d: the last line is %d of %d", i, next[i], lines)
		}
	}
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if taken := info.Sys().(*syscall.Stat_t).Blocks * 512; taken > limit+2*trimStep {
		t.Errorf("it takes %d bytes; the limit is %d (after %d trims)", taken, limit, trims)
	}
}

func TestTrimLeavesAShortLogAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("a line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Trim(path, 1<<20); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(path); string(data) != "a line\n" {
		t.Errorf("left %q", data)
	}
	if err := Trim(filepath.Join(t.TempDir(), "none"), 1); !os.IsNotExist(err) {
		t.Errorf("a log that is not there: %v", err)
	}
}
