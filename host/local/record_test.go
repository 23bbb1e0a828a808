package local

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/local/internal/until"
)

// heard keeps what is written to it.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *heard) Write(data []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(data)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

// Whoever records is given a snapshot and then, step by step, what the event log has, over the begin of another of its files, too.
func TestRecordIsTheEventLog(t *testing.T) {
	s := newSite(t, func(config *Config) { config.EventLimit = 3000 })
	s.running(s.submit(spec("0.5", "sleep 1000")).UID)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var text heard
	done := make(chan error, 1)
	go func() { done <- s.Record(ctx, me, &text) }()
	until.Polled(t, "the record begins", func() bool { return strings.Count(text.String(), "\n") >= 2 })
	for range 3 {
		one := s.submit(spec("0.5", "true"))
		s.ended(one.UID)
	}
	last := s.submit(spec("1", "sleep 1000"))
	s.running(last.UID)
	until.Polled(t, "the last start is recorded", func() bool {
		return strings.Contains(text.String(), `"kind":"started","data":{"at":`) && strings.Contains(text.String()[strings.LastIndex(text.String(), `"started"`):], last.UID)
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	replayed, err := engine.Replay(strings.NewReader(text.String()))
	if err != nil || replayed.Steps < 12 || replayed.Torn > 0 || replayed.Engine.Phase(last.UID) != api.Running {
		t.Fatalf("what was recorded: %+v %v", replayed, err)
	}
	files, err := filepath.Glob(filepath.Join(s.root, "state", "events", "*.events"))
	if err != nil || len(files) < 2 {
		t.Fatalf("the event log has the files %v: %v", files, err)
	}
	var log strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		log.Write(data)
	}
	for i, line := range strings.SplitAfter(text.String(), "\n")[2:] {
		if !strings.Contains(log.String(), line) {
			t.Errorf("line %d of the record is in no file of the event log: %s", i+2, line)
		}
	}
	refused(t, s.Record(context.Background(), other, &text), api.CodeForbidden, "set by root")
}

// One who does not read is let go, and the host goes on.
func TestRecordWaitsForNobody(t *testing.T) {
	slow := &tap{more: make(chan []byte, 1)}
	slow.give([]byte("one\n"))
	slow.give([]byte("two\n"))
	slow.give([]byte("three\n"))
	if first := string(<-slow.more); first != "one\n" {
		t.Errorf("it is given %q", first)
	}
	if more, ok := <-slow.more; ok || !slow.lost {
		t.Errorf("and then %q", more)
	}
}
