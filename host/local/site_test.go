package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/internal/until"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/server"
)

func TestMain(m *testing.M) {
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // a supervisor under the race detector would end a second late
	if len(os.Args) > 2 && os.Args[1] == "supervise" {
		os.Exit(supervise.Main(os.Args[2:]))
	}
	if len(os.Args) > 3 && os.Args[1] == "daemon" {
		os.Exit(daemon(os.Args[2], os.Args[3]))
	}
	if len(os.Args) == 5 && os.Args[1] == "live" {
		seed, err := strconv.ParseUint(os.Args[3], 10, 64)
		if err != nil {
			panic(err)
		}
		os.Exit(live(os.Args[2], seed, os.Args[4] == "true"))
	}
	if len(os.Args) == 3 && os.Args[1] == "cleared" {
		if err := serveCleared(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// me is who runs the tests, other is somebody else.

var (
	me    = server.Caller{UID: uint32(os.Geteuid()), Name: "me"}
	other = server.Caller{UID: 4242, Name: "other"}
)

// site is a host under test with its folders. They are short, for sockets.

type site struct {
	*testing.T
	*Host
	root  string
	agent *fakeAgent
	edit  func(*Config)
}

func newSite(t *testing.T, edit func(*Config)) *site {
	t.Helper()
	root, err := os.MkdirTemp("", "alq")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{T: t, root: root, edit: edit}
	s.open()
	t.Cleanup(func() {
		s.stopAll()
		if err := s.Host.Close(); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *site) open() { s.Helper(); s.openOn(func(*fakeAgent) {}) }

// openOn opens a host on a node on which something has changed.

func (s *site) openOn(change func(*fakeAgent)) {
	s.Helper()
	var err error
	former := s.agent
	if s.agent, err = newFakeAgent(filepath.Join(s.root, "pages"), 2); err != nil {
		s.Fatal(err)
	}
	if former != nil { // what processes hold outlives a daemon
		s.agent.held = former.held
	}
	change(s.agent)
	config := Config{
		State: filepath.Join(s.root, "state"), Run: filepath.Join(s.root, "run"), Version: "test", Agent: s.agent,
		Supervisor: []string{os.Args[0], "supervise"}, Log: slog.New(slog.DiscardHandler), SamplePace: time.Hour,
	}
	if s.edit != nil {
		s.edit(&config)
	}
	if s.Host, err = Open(context.Background(), config); err != nil {
		s.Fatal(err)
	}
}

// restart closes the host and opens the next one on what it left.

func (s *site) restart() {
	s.Helper()
	if err := s.Host.Close(); err != nil {
		s.Fatal(err)
	}
	s.open()
}

// reopenWithout has another server find everything as the last one left it, but that one task never began.
func (s *site) reopenWithout(w api.Workload) {
	s.Helper()
	if err := s.Host.Close(); err != nil {
		s.Fatal(err)
	}
	folder := s.folder(w.UID)
	if err := syscall.Kill(w.Status.PID, syscall.SIGKILL); err != nil {
		s.Fatal(err)
	}
	until.Polled(s.T, "its supervisor has ended", func() bool {
		found, err := folder.Look()
		return err == nil && !found.Supervised && found.Exit != nil
	})
	if err := folder.Remove(); err != nil {
		s.Fatal(err)
	}
	s.open()
}

func (s *site) stopAll() {
	live, err := s.Workloads(context.Background(), false)
	if err != nil {
		s.Error(err)
	}
	for _, work := range live {
		if _, err := s.Stop(context.Background(), me, work.UID, 0); err == nil {
			s.ended(work.UID)
		}
	}
}

// spec is a workload that runs a shell command with a share of a device.

func spec(gpu, shell string) api.WorkloadSpec {
	compute, err := api.ParseCompute(gpu)
	if err != nil {
		panic(err)
	}
	return api.WorkloadSpec{
		Command: []string{"sh", "-c", shell}, Dir: "/", Env: map[string]string{"PATH": "/usr/bin:/bin"},
		Share: api.Share{Compute: compute, Memory: api.Memory{Floor: api.Amount{Bytes: 1 << 30}, Ceiling: api.Amount{Bytes: 2 << 30}}},
	}
}

func (s *site) submit(spec api.WorkloadSpec) api.Workload {
	s.Helper()
	work, err := s.Submit(context.Background(), me, spec)
	if err != nil {
		s.Fatal(err)
	}
	return work
}

func (s *site) wait(name string, while ...api.Phase) api.Workload {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	work, err := s.Wait(ctx, name, while...)
	if err != nil {
		s.Fatal(err)
	}
	return work
}

func (s *site) ended(name string) api.Workload {
	s.Helper()
	return s.wait(name, api.Waiting, api.Starting, api.Running, api.Stopping)
}

func (s *site) running(name string) api.Workload {
	s.Helper()
	work := s.wait(name, api.Waiting, api.Starting)
	if work.Status.Phase != api.Running {
		s.Fatalf("%s is %+v", name, work.Status)
	}
	return work
}

func (s *site) log(name string) string {
	s.Helper()
	var out bytes.Buffer
	if err := s.Logs(context.Background(), me, name, server.LogPart{}, &out); err != nil {
		s.Fatal(err)
	}
	return out.String()
}

// refused checks that an error is a refusal with this code and these words.

func refused(t *testing.T, err error, code, words string) {
	t.Helper()
	var refusal *api.Error
	if !errors.As(err, &refusal) || refusal.Code != code || !strings.Contains(refusal.Message, words) || strings.Contains(refusal.Message, "\n") {
		t.Errorf("got %#v, want %s with %q", err, code, words)
	}
}

// heard waits for a condition that the host tells an event of.
func (s *site) heard(what string, met func() bool) {
	s.Helper()
	next := func() <-chan struct{} {
		_, more := s.events.since(math.MaxUint64)
		return more
	}
	until.Told(s.T, next, what, met)
}

// attach hands streams over as `aliquot run` does.
