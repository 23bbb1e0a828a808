package local

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/internal/until"
	"github.com/aliquot-dev/aliquot/node"
	"github.com/aliquot-dev/aliquot/server"
)

func (s *site) attach(uid string) (net.Conn, *os.File, *os.File) {
	s.Helper()
	conn, err := net.Dial("unix", filepath.Join(s.Host.Run, AttachName))
	if err != nil {
		s.Fatal(err)
	}
	in, feed, err := os.Pipe()
	if err != nil {
		s.Fatal(err)
	}
	out, sink, err := os.Pipe()
	if err != nil {
		s.Fatal(err)
	}
	rights := syscall.UnixRights(int(in.Fd()), int(sink.Fd()), int(sink.Fd()))
	if _, _, err := conn.(*net.UnixConn).WriteMsgUnix([]byte(uid+"\n"), rights, nil); err != nil {
		s.Fatal(err)
	}
	_, _ = in.Close(), sink.Close()
	s.Cleanup(func() { _, _, _ = conn.Close(), feed.Close(), out.Close() })
	return conn, feed, out
}

func TestAttachedProgramHasItsClientsStreams(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("1", "cat; echo err >&2; exit 5")
	asked.Attach = true
	work := s.submit(asked)
	_, feed, out := s.attach(work.UID)
	_, _ = feed.WriteString("through\n")
	_ = feed.Close()
	got, err := io.ReadAll(out) // ends only if nobody else keeps the stream
	if err != nil || string(got) != "through\nerr\n" {
		t.Errorf("got %q, %v", got, err)
	}
	if status := s.ended(work.UID).Status; status.ExitCode == nil || *status.ExitCode != 5 {
		t.Errorf("ended with %+v", status)
	}
	refused(t, s.Logs(context.Background(), me, work.UID, server.LogPart{}, io.Discard), api.CodeConflict, "no log")
}

// Who only looks whether the socket is served is no client whose streams were lost.
func TestLookAtTheSocketIsNoClient(t *testing.T) {
	var log syncedLog
	s := newSite(t, func(config *Config) { config.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	path := filepath.Join(s.Host.Run, AttachName)
	if conn, err := net.Dial("unix", path); err != nil || conn.Close() != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("nobody\n")); err != nil || conn.Close() != nil {
		t.Fatal(err)
	}
	log.heard(t, "the second is known", func() bool { return strings.Contains(log.String(), "workload=nobody") })
	if err := s.Host.Close(); err != nil { // which waits for the first
		t.Fatal(err)
	}
	if count := strings.Count(log.String(), "streams were not taken"); count != 1 {
		t.Errorf("%d lines, want the one of nobody:\n%s", count, log.String())
	}
	s.open()
}

// syncedLog is a log that may be read while it is written.
type syncedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // closed when there is more; nil: nobody waits
}

func (l *syncedLog) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
	return l.text.Write(data)
}

// heard waits for a condition on what the log says.
func (l *syncedLog) heard(t *testing.T, what string, met func() bool) {
	t.Helper()
	next := func() <-chan struct{} {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.more == nil {
			l.more = make(chan struct{})
		}
		return l.more
	}
	until.Told(t, next, what, met)
}

func (l *syncedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestClientThatGoesAwayHangsUp(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("1", "trap 'exit 33' HUP; echo ready; while :; do sleep 0.01; done")
	asked.Attach = true
	work := s.submit(asked)
	conn, _, out := s.attach(work.UID)
	ready := make([]byte, 6)
	if _, err := io.ReadFull(out, ready); err != nil {
		t.Fatal(err)
	}
	s.running(work.UID)
	_ = conn.Close()
	if status := s.ended(work.UID).Status; status.ExitCode == nil || *status.ExitCode != 33 {
		t.Errorf("ended with %+v", status)
	}
}

func TestClientThatNeverComesFreesItsPlace(t *testing.T) {
	s := newSite(t, func(config *Config) { config.AttachGrace = time.Millisecond })
	asked := spec("1", "true")
	asked.Attach = true
	if status := s.ended(s.submit(asked).UID).Status; status.Outcome != api.Stopped && status.Outcome != api.Refused {
		t.Errorf("ended with %+v", status)
	}
}

func TestLogsFollowToTheEnd(t *testing.T) {
	s := newSite(t, nil)
	gate := filepath.Join(s.root, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	work := s.submit(spec("1", "echo first; read x < "+gate+"; echo second"))
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := s.Logs(context.Background(), me, work.UID, server.LogPart{Follow: true}, writer)
		_ = writer.Close()
		done <- err
	}()
	first := make([]byte, 6)
	if _, err := io.ReadFull(reader, first); err != nil || string(first) != "first\n" {
		t.Fatalf("%q, %v", first, err)
	}
	if err := os.WriteFile(gate, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(reader)
	if err != nil || string(rest) != "second\n" {
		t.Errorf("%q, %v", rest, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestUsageIsMadeOfTwoSamplesAndUnknownIsNotZero(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("0.25..0.80", "sleep 1000")
	asked.Name = "one"
	work := s.submit(asked)
	grant := s.running("one").Status.Grants[0]
	at := time.Now()
	sample := func(after, held, burst, waited time.Duration) node.Sample {
		return node.Sample{At: at.Add(after), Tasks: []node.Usage{{
			Task: work.UID, Grant: node.Grant{UID: grant.UID, Device: grant.Device}, Held: held, Burst: burst, Waited: waited, Memory: 1 << 30,
		}}}
	}
	s.agent.mu.Lock()
	s.agent.samples = []node.Sample{sample(0, 0, 0, 0), sample(time.Second, 600*time.Millisecond, 350*time.Millisecond, 100*time.Millisecond)}
	s.agent.mu.Unlock()
	devices, err := s.Devices(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	usage := devices[grant.DeviceIndex].Grants[0]
	if usage.Compute == nil || *usage.Compute != 600 || usage.Borrowing != 350 || usage.WaitedShare != 100 || *usage.Memory != 1<<30 || !usage.Enforced {
		t.Errorf("usage %+v", usage)
	}
	if device := devices[grant.DeviceIndex]; device.ComputeFree != 750 || device.Busy != nil || device.MemoryUsed != nil {
		t.Errorf("device %+v", device)
	}
}

func TestEventsAreHeardInOrder(t *testing.T) {
	s := newSite(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	seen := make(chan api.Event, 100)
	began := s.events.last()
	go func() {
		_ = s.Listen(ctx, began, func(event api.Event) error { seen <- event; return nil })
	}()
	asked := spec("1", "true")
	asked.Name = "one"
	s.submit(asked)
	last := began
	for _, want := range []string{"submitted", "placed on", "started as", "ended: succeeded"} {
		event := <-seen
		if event.Seq <= last || event.Workload != "one" || !strings.HasPrefix(event.Message, want) {
			t.Errorf("heard %+v, want %s", event, want)
		}
		last = event.Seq
	}
}

func TestEventLogReplays(t *testing.T) {
	s := newSite(t, func(config *Config) { config.EventLimit = 2000 })
	for range 10 {
		s.ended(s.submit(spec("1", "true")).UID)
	}
	s.restart()
	files, err := filepath.Glob(filepath.Join(s.State, "events", "*"+journalSuffix))
	if err != nil || len(files) < 3 || len(files) > journalsKept {
		t.Fatalf("%d event logs, %v", len(files), err)
	}
	for _, path := range files {
		if _, err := Replay(path); err != nil {
			t.Error(err)
		}
	}
}

// TestClientGoneWhileStopped: a program that is stopped when its client goes away hears of it, as in a terminal that is closed.
func TestClientGoneWhileStopped(t *testing.T) {
	s := newSite(t, nil)
	marker := filepath.Join(s.root, "stopped")
	asked := spec("1", "(kill -STOP $$; until grep -q ') T ' /proc/$$/stat; do :; done; echo > "+marker+") & wait; exec sleep 1000")
	asked.Attach = true
	uid := s.submit(asked).UID
	conn, _, _ := s.attach(uid)
	until.File(t, marker, "it is stopped", func() bool {
		_, err := os.Stat(marker)
		return err == nil
	})
	s.running(uid)
	_ = conn.Close()
	if status := s.ended(uid).Status; status.Signal != "SIGHUP" {
		t.Errorf("ended with %+v", status)
	}
}
