package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/aliquot-dev/aliquot/api"
)

// fakeHost answers with what it was asked, so that tests see both ways.
type fakeHost struct {
	asked  chan string
	work   api.Workload
	spec   api.WorkloadSpec
	change ShareChange
	fail   error
	events chan api.Event
}

func (f *fakeHost) note(format string, args ...any) {
	select {
	case f.asked <- fmt.Sprintf(format, args...):
	default:
	}
}

func (f *fakeHost) Info(_ context.Context, who Caller) (api.Info, error) {
	return api.Info{User: who.Name, Warnings: []string{}}, f.fail
}

func (f *fakeHost) Devices(context.Context) ([]api.Device, error) {
	milli, bytes := api.Milli(600), api.Bytes(1<<30)
	return []api.Device{{
		UUID: "GPU-0", Model: "H200", Memory: 140 << 30, ComputeFree: 750, Health: api.Healthy, Stopped: 2, MemoryDoubts: 3,
		Grants: []api.Usage{
			{Workload: "known", Compute: &milli, Memory: &bytes, MemoryByDriver: &bytes, Grant: api.Grant{ComputeFloor: 250, ComputeLimit: 800}, DeviceTime: 1500 * time.Millisecond, Enforced: true},
			{Workload: "unknown", Grant: api.Grant{ComputeFloor: 100, ComputeLimit: 100}},
			{Workload: "unseen", Enforced: true}, // by default: nobody could look
		},
	}}, f.fail
}

func (f *fakeHost) Submit(_ context.Context, who Caller, spec api.WorkloadSpec) (api.Workload, error) {
	f.note("submit %d", who.UID)
	f.spec = spec
	return api.Workload{UID: "u1", UserID: who.UID, Spec: spec}, f.fail
}

func (f *fakeHost) Plan(_ context.Context, who Caller, spec api.WorkloadSpec) (api.Plan, error) {
	f.note("plan %s by %s", spec.Name, who.Name)
	return api.Plan{Phase: api.Starting, Message: "on device 0"}, f.fail
}

func (f *fakeHost) Starts(context.Context) (*api.PastStart, error) {
	return &api.PastStart{Starts: 4, Median: api.Duration(2 * time.Second), P90: api.Duration(5 * time.Second), Late: 1}, f.fail
}

func (f *fakeHost) Workloads(_ context.Context, ended bool) ([]api.Workload, error) {
	f.note("workloads %v", ended)
	return []api.Workload{f.work}, f.fail
}

func (f *fakeHost) Workload(context.Context, string) (api.Workload, error) { return f.work, f.fail }

func (f *fakeHost) Wait(ctx context.Context, name string, while ...api.Phase) (api.Workload, error) {
	f.note("wait %s %v", name, while)
	if name == "forever" {
		<-ctx.Done()
		return api.Workload{}, ctx.Err()
	}
	return f.work, f.fail
}

func (f *fakeHost) Why(_ context.Context, name string) (api.Why, error) {
	return api.Why{Workload: name, Code: "no_room"}, f.fail
}

func (f *fakeHost) Resize(_ context.Context, _ Caller, name string, change ShareChange) (api.Workload, error) {
	f.note("resize %s", name)
	f.change = change
	return f.work, f.fail
}

func (f *fakeHost) Checkpoint(_ context.Context, _ Caller, name string) (api.Workload, error) {
	f.note("checkpoint %s", name)
	return f.work, f.fail
}

func (f *fakeHost) Stop(_ context.Context, _ Caller, name string, grace api.Duration) (api.Workload, error) {
	f.note("stop %s %s", name, grace)
	return f.work, f.fail
}

func (f *fakeHost) Signal(_ context.Context, _ Caller, name string, sig syscall.Signal) error {
	f.note("signal %s %d", name, int(sig))
	return f.fail
}

func (f *fakeHost) Logs(ctx context.Context, _ Caller, name string, part LogPart, to io.Writer) error {
	if f.fail != nil && name != "half" {
		return f.fail
	}
	_, err := io.WriteString(to, "a line\n")
	if part.Follow {
		<-ctx.Done()
	}
	if name == "half" {
		return f.fail
	}
	return err
}

func (f *fakeHost) Queues(context.Context) ([]api.Queue, error) {
	return []api.Queue{{QueueSpec: api.QueueSpec{Name: "vision", Quota: 2000}, Held: 500}, {QueueSpec: api.QueueSpec{Name: "default", Quota: api.Unlimited}}}, f.fail
}

func (f *fakeHost) SetQueue(_ context.Context, _ Caller, spec api.QueueSpec) (api.Queue, error) {
	return api.Queue{QueueSpec: spec}, f.fail
}

func (f *fakeHost) Policy(context.Context) (api.Policy, error) {
	return api.Policy{Name: "office.policy"}, f.fail
}

func (f *fakeHost) SetPolicy(_ context.Context, who Caller, file api.Policy) (api.Policy, error) {
	file.Window = "set by " + who.Name
	return file, f.fail
}

func (f *fakeHost) RemovePolicy(context.Context, Caller) error { return f.fail }

func (f *fakeHost) RemoveQueue(_ context.Context, _ Caller, name string) error {
	f.note("remove %s", name)
	return f.fail
}

func (f *fakeHost) Record(_ context.Context, who Caller, to io.Writer) error {
	if f.fail != nil {
		return f.fail
	}
	_, err := io.WriteString(to, "recorded for "+who.Name+"\n")
	return err
}

func (f *fakeHost) Listen(ctx context.Context, seq uint64, each func(api.Event) error) error {
	f.note("listen %d", seq)
	for {
		select {
		case event := <-f.events:
			if err := each(event); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// site is a server under test.
type site struct {
	*testing.T
	host   *fakeHost
	run    string
	state  string
	http   string
	client *http.Client
}

func newSite(t *testing.T) *site {
	t.Helper()
	root, err := os.MkdirTemp("", "alq") // short, for a socket
	if err != nil {
		t.Fatal(err)
	}
	loopback, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{T: t, host: &fakeHost{asked: make(chan string, 10), events: make(chan api.Event)}, run: root, state: root, http: loopback.Addr().String()}
	socket := filepath.Join(root, SocketName)
	s.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", socket)
	}}}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- Serve(ctx, Config{
			Host: s.host, Version: "v1", Run: root, Token: filepath.Join(root, "token"), HTTP: loopback,
			Names: func(uid uint32) string { return fmt.Sprintf("user-%d", uid) }, Log: slog.New(slog.DiscardHandler), Ready: func() { close(ready) },
		})
	}()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(root)
	})
	return s
}

// call asks through the Unix socket and returns status and body.
func (s *site) call(method, path, body string) (int, string) {
	s.Helper()
	request, err := http.NewRequest(method, "http://aliquot"+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := s.client.Do(request)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		s.Fatal(err)
	}
	return answer.StatusCode, string(data)
}

func TestCallerIsWhomTheKernelNames(t *testing.T) {
	s := newSite(t)
	status, body := s.call("GET", "/v1/info", "")
	var info api.Info
	if err := json.Unmarshal([]byte(body), &info); err != nil || status != 200 || info.User != fmt.Sprintf("user-%d", os.Geteuid()) {
		t.Errorf("%d %s", status, body)
	}
}

func TestSubmissionComesThroughWhole(t *testing.T) {
	s := newSite(t)
	want := api.WorkloadSpec{
		Name: "night", Command: []string{"./train", "--x"}, Dir: "/", Env: map[string]string{"A": "b c"}, Devices: 2,
		Share:     api.Share{Compute: api.Compute{Floor: 250, Ceiling: 800}, Memory: api.Memory{Floor: api.Amount{Bytes: 4 << 30}, Ceiling: api.Amount{Part: 800}}},
		TimeLimit: api.Duration(time.Hour), CPU: 2000, Memory: 8 << 30,
	}
	body, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	status, answer := s.call("POST", "/v1/workloads", string(body))
	if status != 200 || !reflect.DeepEqual(s.host.spec, want) {
		t.Errorf("%d %s\ngot  %+v\nwant %+v", status, answer, s.host.spec, want)
	}
}

func TestEachCallReachesTheHost(t *testing.T) {
	s := newSite(t)
	for _, test := range []struct{ method, path, body, want string }{
		{"GET", "/v1/workloads", "", "workloads false"},
		{"GET", "/v1/workloads?ended=true", "", "workloads true"},
		{"GET", "/v1/workloads/night", "", "wait night []"},
		{"GET", "/v1/workloads/night?while=waiting,starting", "", "wait night [waiting starting]"},
		{"GET", "/v1/workloads/night?while=waiting%2Cstarting", "", "wait night [waiting starting]"},
		{"POST", "/v1/workloads/night/stop", `{"grace":"3s"}`, "stop night 3s"},
		{"POST", "/v1/workloads/night/signal", `{"signal":"SIGUSR1"}`, "signal night 10"},
		{"POST", "/v1/workloads/night/signal", `{"signal":"usr2"}`, "signal night 12"},
		{"POST", "/v1/workloads/night/resize", `{"gpu":"0.25..0.60"}`, "resize night"},
		{"POST", "/v1/workloads/night/checkpoint", "", "checkpoint night"},
		{"POST", "/v1/plan", `{"name":"night"}`, "plan night by user-0"},
		{"DELETE", "/v1/queues/vision", "", "remove vision"},
	} {
		status, body := s.call(test.method, test.path, test.body)
		if status >= 300 {
			t.Errorf("%s %s: %d %s", test.method, test.path, status, body)
			continue
		}
		if got := <-s.host.asked; got != test.want {
			t.Errorf("%s %s asked %q, want %q", test.method, test.path, got, test.want)
		}
	}
	if s.host.change.Compute == nil || *s.host.change.Compute != (api.Compute{Floor: 250, Ceiling: 600}) || s.host.change.Memory != nil {
		t.Errorf("resized by %+v", s.host.change)
	}
	if status, body := s.call("PUT", "/v1/policy", `{"name":"office","text":"`+strings.Repeat("x", 2*bodyLimit)+`"}`); status != 200 || !strings.Contains(body, `"name":"office"`) || !strings.Contains(body, `"window":"set by `) {
		t.Errorf("a policy longer than other bodies may be: %d %.200s", status, body)
	}
	if status, body := s.call("GET", "/v1/policy", ""); status != 200 || !strings.Contains(body, "office.policy") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := s.call("DELETE", "/v1/policy", ""); status != 200 && status != 204 {
		t.Errorf("%d %s", status, body)
	}
	if status, body := s.call("PUT", "/v1/queues/vision", `{"quota":"2"}`); status != 200 || !strings.Contains(body, `"name":"vision"`) || !strings.Contains(body, `"quota":"2"`) {
		t.Errorf("%d %s", status, body)
	}
}

func TestRefusalsAreProblemsWithCodeAndOneSentence(t *testing.T) {
	s := newSite(t)
	for code, want := range map[string]int{"invalid": 422, "not_found": 404, "forbidden": 403, "conflict": 409, "unavailable": 503} {
		s.host.fail = &api.Error{Code: code, Message: "what is true, and what to do"}
		for _, path := range []string{"/v1/workloads/x", "/v1/workloads/x/logs"} {
			status, body := s.call("GET", path, "")
			var said problem
			if err := json.Unmarshal([]byte(body), &said); err != nil || status != want || said.Status != want || said.Code != code || said.Detail != "what is true, and what to do" {
				t.Errorf("%s %s: %d %s", code, path, status, body)
			}
		}
	}
	s.host.fail = nil
	for _, test := range []struct{ method, path, body, words string }{
		{"POST", "/v1/workloads", `{"share":{"gpu":"NaN"}}`, "NaN"},
		{"POST", "/v1/workloads", `{`, ""},
		{"POST", "/v1/workloads", `{"nonsense":1}`, "nonsense"},
		{"POST", "/v1/workloads/x/signal", `{"signal":"SIGNONE"}`, "SIGNONE"},
		{"PUT", "/v1/queues/a", `{"name":"b"}`, "b"},
	} {
		status, body := s.call(test.method, test.path, test.body)
		if status < 400 || status >= 500 || !strings.Contains(body, test.words) {
			t.Errorf("%s %s %s: %d %s", test.method, test.path, test.body, status, body)
		}
		var said problem
		if err := json.Unmarshal([]byte(body), &said); test.words != "" && (err != nil || said.Code != api.CodeInvalid || !strings.Contains(said.Detail, test.words)) {
			t.Errorf("%s %s %s: not one sentence: %s", test.method, test.path, test.body, body)
		}
	}
}

// Also what no operation answers is a problem.
func TestUnknownPathsAndMethodsAreProblems(t *testing.T) {
	s := newSite(t)
	for _, test := range []struct {
		method, path, code, words string
		status                    int
	}{
		{"GET", "/v1/nothing", "not_found", "there is nothing at /v1/nothing", 404},
		{"GET", "/", "not_found", "GET /openapi.json", 404},
		{"DELETE", "/v1/info", "invalid", "there is no DELETE of /v1/info, only GET", 405},
	} {
		status, body := s.call(test.method, test.path, "")
		var said problem
		if err := json.Unmarshal([]byte(body), &said); err != nil || status != test.status || said.Status != status || said.Code != test.code || !strings.Contains(said.Detail, test.words) {
			t.Errorf("%s %s: %d %s", test.method, test.path, status, body)
		}
	}
}

func TestTooLargeARequestIsRefused(t *testing.T) {
	s := newSite(t)
	status, body := s.call("POST", "/v1/workloads/x/stop", `{"grace":"`+strings.Repeat("1", bodyLimit)+`"}`)
	if status != http.StatusRequestEntityTooLarge || !strings.Contains(body, "the body has more than 65536 bytes, which is the most that this call takes") {
		t.Errorf("status %d, %s", status, body)
	}
}

// An environment may hold secrets: only its own user sees it, and only when asking for that workload.
func TestEnvironmentIsHidden(t *testing.T) {
	s := newSite(t)
	env := map[string]string{"SECRET": "x"}
	for _, test := range []struct {
		method, path, body string
		own, others        bool // it is shown
	}{
		{"GET", "/v1/workloads", "", false, false},
		{"GET", "/v1/workloads?ended=true", "", false, false},
		{"GET", "/v1/workloads/night", "", true, false},
		{"POST", "/v1/workloads/night/stop", `{}`, false, false},
		{"POST", "/v1/workloads/night/resize", `{"gpu":"0.25"}`, false, false},
		{"POST", "/v1/workloads/night/checkpoint", "", false, false},
	} {
		for user, shown := range map[int]bool{os.Geteuid(): test.own, 4242: test.others} {
			s.host.work = api.Workload{UserID: uint32(user), Spec: api.WorkloadSpec{Name: "night", Env: env}}
			status, body := s.call(test.method, test.path, test.body)
			if status != 200 || strings.Contains(body, "SECRET") != shown || !strings.Contains(body, "night") {
				t.Errorf("%s %s of user %d: %d %s", test.method, test.path, user, status, body)
			}
		}
	}
}

func TestLoopbackWantsTheTokenAndALoopbackName(t *testing.T) {
	s := newSite(t)
	data, err := os.ReadFile(filepath.Join(s.state, "token"))
	if err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(filepath.Join(s.state, "token")); info.Mode().Perm() != 0o600 {
		t.Errorf("the token's mode is %v", info.Mode())
	}
	token := strings.TrimSpace(string(data))
	for _, test := range []struct {
		host, authorization string
		want                int
	}{
		{"", "Bearer " + token, 200},
		{"localhost:8787", "Bearer " + token, 200},
		{"[::1]:8787", "Bearer " + token, 200},
		{"", "bearer " + token, 200},
		{"", "Basic " + token, 401},
		{"", "Bearer wrong", 401},
		{"", "Bearer ", 401},
		{"", token, 401},
		{"", "", 401},
		{"evil.example:8787", "Bearer " + token, 403},
		{"127.0.0.1.evil.example", "Bearer " + token, 403},
	} {
		for _, path := range []string{"/v1/info", "/metrics", "/openapi.json"} {
			request, err := http.NewRequest("GET", "http://"+s.http+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Host = test.host
			if test.authorization != "" {
				request.Header.Set("Authorization", test.authorization)
			}
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if answer.StatusCode != test.want {
				t.Errorf("%+v %s: %d %s", test, path, answer.StatusCode, body)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestTokenThatIsTooShortIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadToken(path); err == nil || !strings.Contains(err.Error(), "too short") {
		t.Errorf("loaded with %v", err)
	}
}

func TestListenRefusesAnAddressThatIsNotLoopback(t *testing.T) {
	for _, address := range []string{"0.0.0.0:8787", ":8787", "example.com:8787", "8787"} {
		_, err := Listen(context.Background(), address)
		if err == nil || !strings.Contains(err.Error(), "loopback only") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestEventsAreStreamed(t *testing.T) {
	s := newSite(t)
	answer, err := s.client.Get("http://aliquot/v1/events?since=7")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if media := answer.Header.Get("Content-Type"); media != "text/event-stream" {
		t.Errorf("content type %q", media)
	}
	if asked := <-s.host.asked; asked != "listen 7" {
		t.Errorf("asked %q", asked)
	}
	lines := bufio.NewScanner(answer.Body)
	for i := uint64(8); i < 10; i++ {
		s.host.events <- api.Event{Seq: i, Kind: "workload", Message: "line\nbreak"}
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "data: ") {
			continue
		}
		var event api.Event
		if err := json.Unmarshal([]byte(strings.TrimPrefix(lines.Text(), "data: ")), &event); err != nil || event.Seq != i || event.Message != "line\nbreak" {
			t.Errorf("got %q, %v", lines.Text(), err)
		}
	}
}

func TestLogsAreStreamedAndHalfOfOneIsNotTakenForAll(t *testing.T) {
	s := newSite(t)
	if status, body := s.call("GET", "/v1/workloads/x/logs", ""); status != 200 || body != "a line\n" {
		t.Errorf("%d %q", status, body)
	}
	if status, body := s.call("GET", "/v1/record", ""); status != 200 || !strings.HasPrefix(body, "recorded for ") {
		t.Errorf("%d %q", status, body)
	}
	answer, err := s.client.Get("http://aliquot/v1/workloads/x/logs?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(answer.Body).ReadString('\n') // before the end
	if err != nil || line != "a line\n" {
		t.Errorf("%q, %v", line, err)
	}
	_ = answer.Body.Close()
	s.host.fail = &api.Error{Code: "unavailable", Message: "gone"}
	if answer, err = s.client.Get("http://aliquot/v1/workloads/half/logs"); err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(answer.Body); err == nil {
		t.Errorf("half a log ended well: %q", data)
	}
	_ = answer.Body.Close()
}

func TestEndOfTheServerEndsWhatWaits(t *testing.T) {
	s := newSite(t) // its Cleanup fails if Serve does not end
	go func() {
		if answer, err := s.client.Get("http://aliquot/v1/workloads/forever"); err == nil {
			_ = answer.Body.Close()
		}
	}()
	if asked := <-s.host.asked; asked != "wait forever []" {
		t.Errorf("asked %q", asked)
	}
}

func TestMetricsNeverShowZeroForUnknown(t *testing.T) {
	s := newSite(t)
	held := api.Bytes(1 << 30)
	s.host.work = api.Workload{
		Spec:   api.WorkloadSpec{Name: "known", Queue: "vision"},
		Status: api.WorkloadStatus{Phase: api.Running, Usage: []api.Usage{{Memory: &held, UnknownCalls: 4}, {Memory: &held, UnknownCalls: 4}}},
	}
	status, body := s.call("GET", "/metrics", "")
	if status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	for _, want := range []string{
		`aliquot_share_device_seconds_total{device="GPU-0",index="0",workload="known"} 1.5`,
		`aliquot_share_compute_floor_ratio{device="GPU-0",index="0",workload="unknown"} 0.1`,
		`aliquot_share_enforced{device="GPU-0",index="0",workload="unknown"} 0`,
		`aliquot_share_enforced{device="GPU-0",index="0",workload="known"} 1`,
		`aliquot_share_memory_by_driver_bytes{device="GPU-0",index="0",workload="known"} 1.073741824e+09`,
		`aliquot_device_stopped_processes_total{device="GPU-0",index="0",model="H200"} 2`,
		`aliquot_device_memory_doubts_total{device="GPU-0",index="0",model="H200"} 3`,
		`aliquot_workload_unknown_calls{workload="known"} 4`, // once, however many devices it is on
		`aliquot_workloads{phase="running",queue="vision"} 1`,
		`aliquot_queue_quota_devices{queue="vision"} 2`,
		`aliquot_start_estimate_error_seconds{quantile="0.9"} 5`, `aliquot_start_estimates 4`, `aliquot_start_estimates_late 1`,
		`aliquot_host_up 1`,
		`aliquot_info{version="v1"} 1`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("missing: %s", want)
		}
	}
	for _, unknown := range []string{
		"aliquot_device_unenforced_processes{", `aliquot_share_enforced{device="GPU-0",index="0",workload="unseen"}`,
		"aliquot_device_busy_ratio{", "aliquot_device_memory_used_bytes{", `aliquot_queue_quota_devices{queue="default"}`,
		`aliquot_share_memory_bytes{device="GPU-0",index="0",workload="unknown"}`, "aliquot_oldest_waiting_seconds ",
		`aliquot_share_device_seconds_total{device="GPU-0",index="0",workload="unknown"}`,
		`aliquot_share_memory_by_driver_bytes{device="GPU-0",index="0",workload="unknown"}`,
	} {
		if strings.Contains(body, unknown) {
			t.Errorf("shown although unknown: %s", unknown)
		}
	}
	s.host.work.Status.Usage = []api.Usage{{}}
	if _, body := s.call("GET", "/metrics", ""); strings.Contains(body, "aliquot_workload_unknown_calls{") {
		t.Error("what the meters do not say is shown")
	}
	s.host.fail = &api.Error{Code: "unavailable", Message: "stopping"}
	if _, body := s.call("GET", "/metrics", ""); !strings.Contains(body, "aliquot_host_up 0\n") {
		t.Error("a host that does not answer is shown as up")
	}
}

// TestProcessesThatAreNotListed: where the driver lists no processes there is no count of those outside any share, not even 0.
func TestProcessesThatAreNotListed(t *testing.T) {
	busy := api.Milli(500)
	for unseen, want := range map[api.Unseen]bool{"": true, api.UnseenMemory: true, api.UnseenProcesses: false} {
		found := make(chan prometheus.Metric, 100)
		collectDevice(found, api.Device{UUID: "GPU-0", Busy: &busy, Unseen: unseen})
		close(found)
		shown := false
		for one := range found {
			shown = shown || one.Desc() == deviceUnenforced
		}
		if shown != want {
			t.Errorf("where %q: shown %v", unseen, shown)
		}
	}
}

func TestBodyThatIsNotJSON(t *testing.T) {
	s := newSite(t)
	if _, body := s.call("POST", "/v1/workloads", `{"share":{"weight":1e400}}`); !strings.Contains(body, "the body has the number 1e400, which is larger than any amount there is") {
		t.Errorf("a number that is too large: %s", body)
	}
	if status, body := s.call("POST", "/v1/workloads", "gpu=1"); status != 400 || !strings.Contains(body, "the body is not JSON: ") {
		t.Errorf("%d %s", status, body)
	}
	answer, err := s.client.Post("http://aliquot/v1/workloads", "application/x-www-form-urlencoded", strings.NewReader("gpu=1"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusUnsupportedMediaType || !strings.Contains(string(body), "Content-Type: application/json") {
		t.Errorf("%d %s, %v", answer.StatusCode, body, err)
	}
}
