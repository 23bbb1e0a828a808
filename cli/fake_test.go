package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/client"
)

// now is when the tests happen.
var now = time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)

const gib = api.Bytes(1 << 30)

func ptr[T any](v T) *T { return &v }

// fakeServer is the documented HTTP API over a Unix socket, with one user's workloads in memory.
type fakeServer struct {
	t    *testing.T
	run  string
	http *httptest.Server

	mu       sync.Mutex
	changed  *sync.Cond
	info     api.Info
	devices  []api.Device
	works    []*api.Workload
	queues   []api.Queue
	policy   api.Policy // its window and until are the test's
	warning  string     // of a policy that is set
	notes    []string   // on what is submitted
	why      api.Why
	plan     api.Plan
	log      string
	record   string   // of the engine
	calls    []string // METHOD PATH BODY
	events   []api.Event
	refuse   *api.Error // the next call that changes something gets this
	streams  [3]*os.File
	lines    []*net.UnixConn
	attached chan string // UIDs whose streams came
	closed   chan string // UIDs whose attachment ended
}

func newFakeServer(t *testing.T) *fakeServer {
	t.Helper()
	// Paths of sockets are short by the kernel's rule, shorter than a test's folder may be.
	run, err := os.MkdirTemp("", "alq")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeServer{
		t: t, run: run, attached: make(chan string, 8), closed: make(chan string, 8),
		info:   api.Info{Version: "1.0", Node: "gpu-server", User: "ann", Simulated: true, Devices: 2, ShimMode: "library path"},
		queues: []api.Queue{{QueueSpec: api.QueueSpec{Name: "default", Quota: api.Unlimited}, Running: 1}},
	}
	f.changed = sync.NewCond(&f.mu)
	listener, err := net.Listen("unix", filepath.Join(run, client.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	f.http = &httptest.Server{Listener: listener, Config: &http.Server{Handler: f.routes(), ReadHeaderTimeout: time.Minute}}
	f.http.Start()
	f.serveAttach()
	t.Cleanup(func() {
		f.http.CloseClientConnections()
		f.http.Close()
		_ = os.RemoveAll(run)
	})
	return f
}

func (f *fakeServer) serveAttach() {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(f.run, client.AttachName), Net: "unix"})
	if err != nil {
		f.t.Fatal(err)
	}
	done := make(chan struct{})
	f.t.Cleanup(func() { _ = listener.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			f.takeStreams(conn)
		}
	}()
}

func (f *fakeServer) takeStreams(conn *net.UnixConn) {
	line, rights := make([]byte, 128), make([]byte, 128)
	n, oob, _, _, err := conn.ReadMsgUnix(line, rights)
	if err != nil {
		f.t.Errorf("read the attachment: %v", err)
		return
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:oob])
	if err != nil || len(messages) != 1 {
		f.t.Errorf("the attachment has %d control messages: %v", len(messages), err)
		return
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 3 {
		f.t.Errorf("the attachment has %d descriptors: %v", len(fds), err)
		return
	}
	f.mu.Lock()
	for i, fd := range fds {
		f.streams[i] = os.NewFile(uintptr(fd), fmt.Sprint("stream", i))
	}
	f.mu.Unlock()
	uid := strings.TrimSuffix(string(line[:n]), "\n")
	f.attached <- uid
	go func() {
		_, _ = conn.Read(make([]byte, 1)) // until the client lets go
		_ = conn.Close()
		f.closed <- uid
	}()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines = append(f.lines, conn)
}

// hangUp closes the lines of those who are attached, as the end of the server does.
func (f *fakeServer) hangUp() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropLines()
}

func (f *fakeServer) dropLines() {
	for _, line := range f.lines {
		_ = line.Close()
	}
	f.lines = nil
}

// change changes the state and wakes those who wait for it.
func (f *fakeServer) change(how func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	how()
	f.events = append(f.events, api.Event{Seq: uint64(len(f.events) + 1), Kind: "workload"})
	f.changed.Broadcast()
}

// eventually waits for a condition on the state.
func (f *fakeServer) eventually(what string, is func() bool) {
	f.t.Helper()
	deadline := time.AfterFunc(time.Minute, f.changed.Broadcast)
	defer deadline.Stop()
	began := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for !is() {
		if time.Since(began) > time.Minute {
			f.t.Fatalf("in a minute there was no %s; calls: %q", what, f.calls)
		}
		f.changed.Wait()
	}
}

func (f *fakeServer) called(prefix string) bool {
	return slices.ContainsFunc(f.calls, func(call string) bool { return strings.HasPrefix(call, prefix) })
}

func (f *fakeServer) find(name string) *api.Workload {
	for _, work := range f.works {
		if work.UID == name || work.Spec.Name == name {
			return work
		}
	}
	return nil
}

func (f *fakeServer) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, answer func(r *http.Request) (any, *api.Error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			f.mu.Lock()
			defer f.mu.Unlock()
			f.calls = append(f.calls, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
			f.changed.Broadcast()
			if r.Method != http.MethodGet && f.refuse != nil {
				refuse(w, f.refuse)
				f.refuse = nil
				return
			}
			out, err := answer(r)
			if err != nil {
				refuse(w, err)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(out)
		})
	}
	handle("GET /v1/info", func(*http.Request) (any, *api.Error) { return f.info, nil })
	handle("GET /v1/devices", func(*http.Request) (any, *api.Error) { return f.devices, nil })
	handle("GET /v1/queues", func(*http.Request) (any, *api.Error) { return f.queues, nil })
	handle("PUT /v1/queues/{name}", f.setQueue)
	handle("DELETE /v1/queues/{name}", func(*http.Request) (any, *api.Error) { return nil, nil })
	handle("GET /v1/policy", func(*http.Request) (any, *api.Error) { return f.policy, nil })
	handle("PUT /v1/policy", f.setPolicy)
	handle("DELETE /v1/policy", func(*http.Request) (any, *api.Error) {
		f.policy = api.Policy{}
		return nil, nil
	})
	mux.HandleFunc("GET /v1/record", func(w http.ResponseWriter, r *http.Request) { // then it is silent
		f.mu.Lock()
		text := f.record
		f.mu.Unlock()
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	handle("GET /v1/workloads", f.list)
	handle("POST /v1/workloads", f.submit)
	handle("GET /v1/workloads/{name}", f.wait)
	handle("POST /v1/plan", func(*http.Request) (any, *api.Error) {
		if f.plan.Phase == "" {
			return api.Plan{
				Phase: f.why.Phase, Place: f.why.Place, Message: f.why.Message, Counts: f.why.Counts, Unblock: f.why.Unblock, Ahead: f.why.Ahead,
				Start: f.why.Start, Behind: 1, Promise: "it takes its place in line, and nothing before its turn",
				Evict:  []api.PlanEvict{{Workload: "train", Reason: "queue default would take back what it is guaranteed"}},
				Delays: []api.PlanDelay{{Workload: "late", From: now.Add(time.Hour), To: ptr(now.Add(2 * time.Hour))}, {Workload: "lost", From: now.Add(time.Hour)}}, Delayed: 3,
			}, nil
		}
		return f.plan, nil
	})
	handle("GET /v1/workloads/{name}/why", func(*http.Request) (any, *api.Error) { return f.why, nil })
	handle("POST /v1/workloads/{name}/stop", f.stop)
	handle("POST /v1/workloads/{name}/signal", f.signal)
	handle("POST /v1/workloads/{name}/resize", f.resize)
	handle("POST /v1/workloads/{name}/checkpoint", f.checkpoint)
	mux.HandleFunc("GET /v1/workloads/{name}/logs", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, f.log) })
	mux.HandleFunc("GET /v1/events", f.stream)
	return mux
}

func refuse(w http.ResponseWriter, err *api.Error) {
	status := map[string]int{"not_found": 404, "forbidden": 403, "conflict": 409, "unavailable": 503}[err.Code]
	if status == 0 {
		status = 422
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"title": http.StatusText(status), "status": status, "detail": err.Message, "code": err.Code, "exit_code": err.ExitCode})
}

func (f *fakeServer) list(r *http.Request) (any, *api.Error) {
	out := []api.Workload{}
	for _, work := range f.works {
		if work.Status.Phase != api.Ended || r.URL.Query().Get("ended") == "true" {
			out = append(out, *work)
		}
	}
	return out, nil
}

func (f *fakeServer) submit(r *http.Request) (any, *api.Error) {
	work := &api.Workload{UID: fmt.Sprintf("u%d", len(f.works)+1), User: "ann", UserID: 1000}
	if err := json.NewDecoder(r.Body).Decode(&work.Spec); err != nil {
		return nil, &api.Error{Code: "invalid", Message: err.Error()}
	}
	if work.Spec.Name == "" {
		work.Spec.Name = "job-1"
	}
	work.Status = api.WorkloadStatus{Phase: api.Waiting, Place: 1, Submitted: now, Notes: f.notes}
	f.works = append(f.works, work)
	return *work, nil
}

func (f *fakeServer) wait(r *http.Request) (any, *api.Error) {
	work := f.find(r.PathValue("name"))
	if work == nil {
		return nil, &api.Error{Code: "not_found", Message: "there is no workload " + r.PathValue("name")}
	}
	phases := strings.Split(r.URL.Query().Get("while"), ",")
	wake := context.AfterFunc(r.Context(), f.changed.Broadcast)
	defer wake()
	for slices.Contains(phases, string(work.Status.Phase)) && r.Context().Err() == nil {
		f.changed.Wait()
	}
	return *work, nil
}

func (f *fakeServer) stop(r *http.Request) (any, *api.Error) {
	work := f.find(r.PathValue("name"))
	if work == nil {
		return nil, &api.Error{Code: "not_found", Message: "there is no workload " + r.PathValue("name") + ": see `aliquot ps`"}
	}
	if work.Status.Phase == api.Ended {
		return nil, &api.Error{Code: "conflict", Message: work.Spec.Name + " has ended: there is nothing left to stop"}
	}
	work.Status.Phase, work.Status.Outcome = api.Ended, api.Stopped
	f.changed.Broadcast()
	return *work, nil
}

func (f *fakeServer) signal(r *http.Request) (any, *api.Error) {
	if work := f.find(r.PathValue("name")); work == nil || work.Status.Phase == api.Waiting {
		return nil, &api.Error{Code: "conflict", Message: "it does not run yet (waiting): there is nothing to signal"}
	}
	return nil, nil
}

func (f *fakeServer) resize(r *http.Request) (any, *api.Error) {
	var change client.ShareChange
	work := f.find(r.PathValue("name"))
	if err := json.NewDecoder(r.Body).Decode(&change); err != nil || work == nil {
		return nil, &api.Error{Code: "invalid", Message: "no such workload or share"}
	}
	if change.Compute != nil {
		work.Spec.Share.Compute = *change.Compute
	}
	if change.Weight != nil {
		work.Spec.Share.Weight = *change.Weight
	}
	return *work, nil
}

func (f *fakeServer) checkpoint(r *http.Request) (any, *api.Error) {
	work := f.find(r.PathValue("name"))
	if work == nil {
		return nil, &api.Error{Code: "not_found", Message: "there is no workload " + r.PathValue("name")}
	}
	return *work, nil
}

func (f *fakeServer) setQueue(r *http.Request) (any, *api.Error) {
	var spec api.QueueSpec
	if err := json.NewDecoder(r.Body).Decode(&spec); err != nil {
		return nil, &api.Error{Code: "invalid", Message: err.Error()}
	}
	return api.Queue{QueueSpec: spec}, nil
}

func (f *fakeServer) setPolicy(r *http.Request) (any, *api.Error) {
	if err := json.NewDecoder(r.Body).Decode(&f.policy); err != nil {
		return nil, &api.Error{Code: "invalid", Message: err.Error()}
	}
	f.policy.Warning = f.warning
	f.policy.Window, f.policy.Until = "night", new(time.Date(2026, 11, 21, 5, 0, 0, 0, time.UTC))
	return f.policy, nil
}

func (f *fakeServer) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	wake := context.AfterFunc(r.Context(), f.changed.Broadcast)
	defer wake()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, "GET /v1/events")
	for sent := len(f.events); r.Context().Err() == nil; f.changed.Wait() {
		for ; sent < len(f.events); sent++ {
			text, _ := json.Marshal(f.events[sent])
			_, _ = fmt.Fprintf(w, ": a comment\nid: %d\nevent: workload\ndata: %s\n\n", f.events[sent].Seq, text)
		}
		_ = http.NewResponseController(w).Flush()
	}
}

// result is what one command did.
type result struct {
	exit     Exit
	out, err string
}

// command runs a command against the server, in this process.
func (f *fakeServer) command(line ...string) result {
	f.t.Helper()
	return invoke(f.t, Program{Version: "1.0"}, append([]string{"--run", f.run}, line...)...)
}

// invoke runs a command with files for its streams.
func invoke(t *testing.T, program Program, line ...string) result {
	t.Helper()
	folder := t.TempDir()
	file := func(name string) *os.File {
		file, err := os.OpenFile(filepath.Join(folder, name), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		return file
	}
	program.In, program.Out, program.Err = file("in"), file("out"), file("err")
	if program.Env == nil {
		program.Env = []string{"HOME=" + folder, "PATH=/bin", "LANG=C.UTF-8"}
	}
	program.Dir = "/srv/job"
	if program.Now == nil {
		program.Now = func() time.Time { return now }
	}
	exit := program.Main(t.Context(), line)
	read := func(file *os.File) string {
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	return result{exit, read(program.Out), read(program.Err)}
}
