package local

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/server"
)

// TestLogsAreFollowedWhileTheyAreTrimmed: a program prints as fast as it can and its log is trimmed all the time. Whoever follows it,
// faster or slower than that, gets whole lines in their order, and the last ones without a gap.
func TestLogsAreFollowedWhileTheyAreTrimmed(t *testing.T) {
	const lines, limit, last = 150_000, 1 << 20, 10_000
	s := newSite(t, nil)
	asked := spec("1", fmt.Sprintf(`exec awk 'BEGIN { for (i = 0; i < %d; i++) printf "%%d ......................%%d\n", i, i }'`, lines))
	asked.Name = "one"
	uid := s.submit(asked).UID
	s.running("one")
	followed := make(chan error, 3)
	for i := range cap(followed) {
		go func() { followed <- followLines(s, "one", i*20, lines, last) }()
	}
	trims := 0
	for s.wait("one").Status.Phase != api.Ended {
		if err := supervise.Trim(s.logPath(uid), limit); err != nil {
			t.Fatal(err)
		}
		trims++
	}
	for range cap(followed) {
		if err := <-followed; err != nil {
			t.Error(err)
		}
	}
	if text := s.log("one"); len(text) > limit+1<<20+1 || !strings.HasSuffix(text, fmt.Sprintf("%d\n", lines-1)) || strings.ContainsRune(text, 0) {
		t.Errorf("after %d trims the log has %d bytes and ends with %q", trims, len(text), text[max(0, len(text)-50):])
	}
}

// TestTailOfALog: the last lines are found over blocks, beside what was trimmed, and where the last one is not at its end yet.
func TestTailOfALog(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	for _, c := range []struct {
		text, want string
		tail       int
	}{
		{"a\nb\nc\n", "c\n", 1},
		{"a\nb\nc", "b\nc", 2},
		{"a\nb\nc\n", "a\nb\nc\n", 9},
		{"a\n\n", "\n", 1},
		{"a\nb", "", 0},
		{"", "", 3},
		{"a\n" + long + "\n" + long + "\nb\n", long + "\nb\n", 2},
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		log := &logReader{path: path, to: &out}
		if err := errors.Join(log.skip(c.tail), log.copy()); err != nil || out.String() != c.want {
			t.Errorf("the last %d lines of %d bytes: %d bytes, %v", c.tail, len(c.text), out.Len(), err)
		}
		log.close()
	}
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte(strings.Repeat("a line\n", 1<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	log := &logReader{path: path, to: &out}
	defer log.close()
	if err := errors.Join(log.skip(1<<19), supervise.Trim(path, 1<<20), log.copy()); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); len(text) > 2<<20+1 || strings.Count(text, "a line\n")*7 != len(text) {
		t.Errorf("trimmed while it was looked through: %d bytes of %d whole lines", len(text), strings.Count(text, "a line\n"))
	}
}

// followLines follows a log, with a pause of work after each line, and checks the lines.
func followLines(s *site, name string, work, lines, last int) error {
	reader, writer := io.Pipe()
	go func() {
		_ = writer.CloseWithError(s.Logs(context.Background(), me, name, server.LogPart{Follow: true}, writer))
	}()
	scanner := bufio.NewScanner(reader)
	defer func() { _ = reader.Close() }()
	next := 0
	for scanner.Scan() {
		var number, again int
		if _, err := fmt.Sscanf(scanner.Text(), "%d ......................%d", &number, &again); err != nil || number != again {
			if whole := fmt.Sprintf("%d ......................%d", number, number); strings.HasPrefix(whole, scanner.Text()) {
				continue // the rest of this one was trimmed before it was read
			}
			return fmt.Errorf("line %q after %d: %w", scanner.Text(), next-1, err)
		}
		if number < next || number > next && number >= lines-last {
			return fmt.Errorf("line %d follows %d", number, next-1)
		}
		next = number + 1
		for range work { // slower than the program prints
			_ = fmt.Sprint(number)
		}
	}
	if scanner.Err() != nil || next != lines {
		return fmt.Errorf("the last of %d lines was %d: %w", lines, next-1, scanner.Err())
	}
	return nil
}
