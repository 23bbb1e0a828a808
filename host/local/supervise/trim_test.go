package supervise

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
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
	if len(next) == 0 {
		t.Error("no line is left")
	}
	for i, line := range next { // of one that ended long before the others all may be trimmed
		if line != lines {
			t.Errorf("writer %d: the last line is %d of %d", i, line, lines)
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

// TestLogOfAFastWriterIsTrimmedAtItsEnd: what a task prints faster than its log is looked at is bounded once it has ended.
func TestLogOfAFastWriterIsTrimmedAtItsEnd(t *testing.T) {
	one := newTask(t, "head -c 20000000 /dev/zero | tr '\\0' x; echo last")
	one.recipe.LogLimit = 2 << 20
	one.start().wait()
	info, err := os.Stat(one.recipe.Log)
	if err != nil {
		t.Fatal(err)
	}
	if taken := info.Sys().(*syscall.Stat_t).Blocks * 512; taken > one.recipe.LogLimit+2*trimStep || info.Size() != 20_000_005 {
		t.Errorf("it takes %d bytes of %d; the limit is %d", taken, info.Size(), one.recipe.LogLimit)
	}
	if !strings.HasSuffix(one.log(), "xlast\n") {
		t.Error("its end is not there")
	}
}

// TestLogsThatGrowAreLookedAtSoon: each second while they grow, else more and more rarely.
func TestLogsThatGrowAreLookedAtSoon(t *testing.T) {
	const limit = 1 << 20
	path := filepath.Join(t.TempDir(), "log")
	log := Trimmer{Path: path, Limit: limit}
	var pauses []time.Duration
	for look := range 8 {
		if look == 0 || look == 6 {
			file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err == nil {
				_, err = file.Write(make([]byte, 3*limit))
			}
			if err := errors.Join(err, file.Close()); err != nil {
				t.Fatal(err)
			}
		}
		pauses = append(pauses, log.Look()/time.Second)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if taken := info.Sys().(*syscall.Stat_t).Blocks * 512; taken > limit+trimStep {
			t.Errorf("look %d left %d bytes", look, taken)
		}
	}
	if want := []time.Duration{1, 2, 4, 8, 10, 10, 1, 2}; !slices.Equal(pauses, want) {
		t.Errorf("looked at after %d s, want %d", pauses, want)
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
