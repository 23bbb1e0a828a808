package local

import (
	"bufio"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/internal/until"
	"github.com/aliquot-dev/aliquot/node"
)

// heardLines reads so many lines, in whatever order they came.
func heardLines(t *testing.T, from *bufio.Reader, count int) string {
	t.Helper()
	var lines []string
	for range count {
		line, err := from.ReadString('\n')
		if err != nil {
			t.Fatalf("after %q: %v", lines, err)
		}
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

// TestAttachedReplicas: all replicas print where their client does, also those that come later, the first alone reads what is typed, a signal is for all of
// them, and when the last has ended nobody keeps the streams.
func TestAttachedReplicas(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("0.5", `trap 'echo told $ALIQUOT_REPLICA; exit 0' USR1; echo up $ALIQUOT_REPLICA; while read x; do echo $ALIQUOT_REPLICA read $x; done; sleep 1000 & wait; wait`)
	asked.Name, asked.Attach, asked.Replicas = "here", true, api.Replicas{Min: 2, Max: 3}
	s.agent.notices <- node.Notice{Kind: node.DeviceDown, Device: "GPU-1", Reason: "it is gone"}
	s.heard("the second device is down", func() bool {
		devices, err := s.Devices(t.Context())
		return err == nil && devices[1].Health == api.Down
	})
	work := s.submit(asked)
	_, feed, out := s.attach(work.UID)
	lines := bufio.NewReader(out)
	if got := heardLines(t, lines, 2); got != "up 0, up 1" {
		t.Errorf("they say %q", got)
	}
	_, _ = feed.WriteString("word\n")
	if got := heardLines(t, lines, 1); got != "0 read word" {
		t.Errorf("they say %q", got)
	}
	s.awaitRunning("here", "here-1")
	s.agent.notices <- node.Notice{Kind: node.DeviceBack, Device: "GPU-1"}
	if got := heardLines(t, lines, 1); got != "up 2" {
		t.Errorf("they say %q", got)
	}
	s.awaitRunning("here", "here-1", "here-2")
	_ = feed.Close() // so that the first waits for the signal, too
	if err := s.Signal(t.Context(), me, work.UID, syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if got := heardLines(t, lines, 3); got != "told 0, told 1, told 2" {
		t.Errorf("they say %q", got)
	}
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 { // ends only if nobody keeps the stream
		t.Errorf("then they say %q, %v", rest, err)
	}
	s.awaitRunning()
}

// TestAttachedRolesLoseTheirClient: what has roles and whose client goes away is told as a closed terminal does it, all of it, also what the first left
// behind; a signal for the first is for these then.
func TestAttachedRolesLoseTheirClient(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("0.25", `echo up; read x; exit 3`)
	asked.Name, asked.Attach = "here", true
	asked.Roles = []api.Role{{Name: "worker", Replicas: api.Replicas{Min: 2, Max: 2}, Share: spec("0.5", "").Share, Command: []string{"sh", "-c", `trap 'echo more' USR1; trap 'exit 9' HUP; echo up; while :; do sleep 1000 & wait; done`}}}
	work := s.submit(asked)
	conn, feed, out := s.attach(work.UID)
	lines := bufio.NewReader(out)
	if got := heardLines(t, lines, 3); got != "up, up, up" {
		t.Errorf("they say %q", got)
	}
	_, _ = feed.WriteString("\n")
	if status := s.ended(work.UID).Status; status.ExitCode == nil || *status.ExitCode != 3 {
		t.Errorf("the first ended with %+v", status)
	}
	s.awaitRunning("here-worker-0", "here-worker-1")
	if err := s.Signal(t.Context(), me, work.UID, syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if got := heardLines(t, lines, 2); got != "more, more" {
		t.Errorf("they say %q", got)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"here-worker-0", "here-worker-1"} {
		if status := s.ended(name).Status; status.ExitCode == nil || *status.ExitCode != 9 {
			t.Errorf("%s ended with %+v", name, status)
		}
	}
}

// TestAttachedReplicasOutliveTheServer: the next server has what their client hands over again for those that come.
func TestAttachedReplicasOutliveTheServer(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("0.5", `echo up $ALIQUOT_REPLICA; exec sleep 1000`)
	asked.Name, asked.Attach, asked.Replicas = "here", true, api.Replicas{Min: 2, Max: 3}
	big := spec("1", "exec sleep 1000")
	big.Name = "big"
	s.submit(big)
	s.running("big")
	work := s.submit(asked)
	_, _, out := s.attach(work.UID)
	lines := bufio.NewReader(out)
	if got := heardLines(t, lines, 2); got != "up 0, up 1" {
		t.Errorf("they say %q", got)
	}
	s.awaitRunning("big", "here", "here-1")
	s.restart()
	_, _, out = s.attach(work.UID)
	until.Polled(t, "its client is known again", func() (known bool) {
		_ = s.look(t.Context(), func() { known = s.work[work.UID].spare != nil })
		return known
	})
	if _, err := s.Stop(t.Context(), me, "big", 0); err != nil {
		t.Fatal(err)
	}
	if got := heardLines(t, bufio.NewReader(out), 1); got != "up 2" {
		t.Errorf("they say %q", got)
	}
	s.awaitRunning("here", "here-1", "here-2")
	if err := s.Signal(t.Context(), me, "here", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning()
	if _, err := os.Stat(s.logPath(work.UID)); err == nil {
		t.Error("it has a log")
	}
}
