package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/native"
	"github.com/aliquot-dev/aliquot/node/device"
)

// This file holds what stands in for the machine in tests of the agent alone: an arbiter that only keeps the control protocol, as a
// real process (this test binary under another name), and devices that are a table.

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "aliquot-arbiter" {
		fakeArbiter(os.Args[len(os.Args)-1])
		return
	}
	if folder := os.Getenv("ALIQUOT_TEST_STORY"); folder != "" {
		tellStory(folder)
		return
	}
	if mounts := os.Getenv("ALIQUOT_TEST_MOUNTED"); mounts != "" {
		fmt.Println(becomeMounted(mounts))
		os.Exit(1)
	}
	if told := os.Getenv("ALIQUOT_TEST_REAL"); told != "" {
		if err := openReal(told); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	if folder := os.Getenv("ALIQUOT_TEST_OPEN"); folder != "" {
		if _, err := Open(context.Background(), Config{Run: folder, Simulate: "h200x1"}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	_ = os.RemoveAll(tenantFolder)
	os.Exit(code)
}

// fakeArbiter answers the agent's lines. RUN/fake.mode tells it to misbehave: `refuse LINE` refuses lines that begin so, `die LINE`
// dies before it answers one, once; `hang LINE` never answers one.
func fakeArbiter(folder string) {
	r := run(folder)
	known := map[string]bool{}
	entries, _ := os.ReadDir(r.tasks())
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), ".") {
			known[entry.Name()] = true
		}
	}
	_ = os.Remove(r.control())
	listener, err := net.Listen("unixpacket", r.control())
	if err != nil {
		fmt.Println("cannot listen:", err)
		os.Exit(1)
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			os.Exit(1)
		}
		buffer := make([]byte, 4096)
		n, err := conn.Read(buffer)
		if err != nil || n == 0 {
			_ = conn.Close()
			continue
		}
		line := strings.TrimSpace(string(buffer[:n]))
		content, _ := os.ReadFile(r.path("fake.mode"))
		mode, about, _ := strings.Cut(string(content), " ")
		if mode != "" && strings.HasPrefix(line, about) {
			switch mode {
			case "die":
				_ = os.Remove(r.path("fake.mode"))
				fmt.Println("dying as told")
				os.Exit(3)
			case "refuse":
				_, _ = conn.Write([]byte("error: told to refuse\n"))
				_ = conn.Close()
				continue
			case "hang":
				defer conn.Close()
				continue
			}
		}
		answer, quit := answerFake(line, known)
		_, _ = conn.Write([]byte(answer + "\n"))
		_ = conn.Close()
		if quit {
			return
		}
	}
}

func answerFake(line string, known map[string]bool) (answer string, quit bool) {
	verb, uid, _ := strings.Cut(line, " ")
	switch verb {
	case "ping":
		return "ok fake 1", false
	case "quit":
		return "ok", true
	case "device":
		return "ok", false
	case "list":
		var uids []string
		for uid := range known {
			uids = append(uids, uid)
		}
		slices.Sort(uids)
		return strings.TrimSpace("ok " + strings.Join(uids, " ")), false
	case "add":
		known[uid] = true
		return "ok", false
	}
	if !known[uid] {
		return "error: no such task", false
	}
	if verb == "del" {
		delete(known, uid)
	}
	return "ok", false
}

// fakeDevices is a backend whose devices are a table.
type fakeDevices struct {
	infos  []device.Info
	events chan device.Event

	mu        sync.Mutex
	processes map[string][]device.Process
}

func newFakeDevices(uuids ...string) *fakeDevices {
	f := &fakeDevices{events: make(chan device.Event), processes: map[string][]device.Process{}}
	for i, uuid := range uuids {
		f.infos = append(f.infos, device.Info{UUID: uuid, Index: i, Model: "Fake", Memory: 16 << 30})
	}
	return f
}

func (f *fakeDevices) Capabilities() device.Capabilities {
	return device.Capabilities{Discover: true, LimitCompute: true, LimitMemory: true, Meter: true}
}
func (f *fakeDevices) Devices() []device.Info      { return f.infos }
func (f *fakeDevices) Notes() []string             { return nil }
func (f *fakeDevices) Events() <-chan device.Event { return f.events }
func (f *fakeDevices) Replaced() error             { return nil }
func (f *fakeDevices) Close() error                { close(f.events); return nil }

func (f *fakeDevices) Launch(devices []string) device.Launch {
	return device.Launch{Env: []string{"DEVICES=" + strings.Join(devices, ",")}}
}

func (f *fakeDevices) Container(devices []string) (device.Container, error) {
	return device.Container{
		Env: []string{"DEVICES=" + strings.Join(devices, ",")}, Mounts: []device.Mount{{Source: "/from", Target: "/to"}}, Devices: []string{"/dev/fake0"}, Task: "/place",
		Libraries: []device.Library{{Name: "libfake.so", By: "/to"}}, Behind: []string{"/real"},
	}, nil
}

func (f *fakeDevices) Administrator(devices []string) (device.Container, error) {
	return device.Container{
		Env: []string{"DEVICES=" + strings.Join(devices, ",")}, Mounts: []device.Mount{{Source: "/driver", Target: "/to"}}, Devices: []string{"/dev/fake0"},
	}, nil
}

func (f *fakeDevices) Read(uuid string) (device.Reading, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	used, busy := api.Bytes(1<<30), api.Milli(500)
	return device.Reading{MemoryUsed: &used, Busy: &busy, Processes: f.processes[uuid]}, nil
}

func (f *fakeDevices) compute(uuid string, pids ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.processes[uuid] = nil
	for _, pid := range pids {
		f.processes[uuid] = append(f.processes[uuid], device.Process{PID: pid})
	}
}

// hold lets a process compute on a device beside the others, with so much memory by the driver's word.
func (f *fakeDevices) hold(uuid string, pid int, memory api.Bytes) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.processes[uuid] = append(slices.Clone(f.processes[uuid]), device.Process{PID: pid, Memory: &memory})
}

// fakeRun makes a run folder whose arbiter is fake. Whatever serves there is ended with the test.
func fakeRun(t *testing.T) string {
	t.Helper()
	folder := shortFolder(t)
	linkFakeArbiter(t, folder)
	return folder
}

func linkFakeArbiter(t *testing.T, folder string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(folder, native.Arbiter)
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
}

// shortFolder is a folder whose path leaves room for sockets. The servers in it are ended before it is removed.
func shortFolder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("/tmp", "alq")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		endServer(t, run(folder).control())
		endServer(t, simSocket(run(folder)))
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	return folder
}

func endServer(t testing.TB, socket string) {
	t.Helper()
	p := server(socket)
	if p == nil || p.pid == os.Getpid() {
		return
	}
	defer p.close()
	_ = p.signal(unix.SIGKILL)
	if err := p.waitFor(testContext(t)); err != nil {
		t.Error(err)
	}
}

// testContext bounds what should not hang. It is generous, so that it never judges speed.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// openFake opens an agent on fake devices and a fake arbiter.
func openFake(t *testing.T, folder string, devices *fakeDevices) *Agent {
	t.Helper()
	a, err := tryFake(testContext(t), folder, devices)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAgent(t, a) })
	return a
}

func tryFake(ctx context.Context, folder string, devices *fakeDevices) (*Agent, error) {
	a, err := newAgent(Config{Run: folder})
	if err != nil {
		return nil, err
	}
	a.backend = devices
	if err = a.loadTasks(); err == nil {
		err = a.takeOver(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// setMode tells the fake arbiter to misbehave.
func setMode(t *testing.T, folder, mode string) {
	t.Helper()
	if err := writeFile(filepath.Join(folder, "fake.mode"), []byte(mode), 0o600); err != nil {
		t.Fatal(err)
	}
}

// known asks the fake arbiter which tasks it knows.
func known(t *testing.T, a *Agent) string {
	t.Helper()
	answer, err := a.arbiter.request(testContext(t), "list")
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// aTask is a task of this user with one grant on each device.
func aTask(uid string, floor, ceiling api.Milli, devices ...string) Task {
	t := Task{UID: uid, UserID: uint32(os.Geteuid())}
	for i, d := range devices {
		t.Grants = append(t.Grants, Grant{
			UID: fmt.Sprintf("%s.%d", uid, i), Device: d, Floor: floor, Ceiling: ceiling, Weight: 1, MemFloor: 1 << 30, MemCeiling: 2 << 30,
		})
	}
	return t
}

// nextNotice waits for a notice of a kind; others in front of it are passed over.
func nextNotice(t *testing.T, a *Agent, kind NoticeKind) Notice {
	t.Helper()
	ctx := testContext(t)
	for {
		select {
		case n, ok := <-a.Notices():
			if !ok {
				t.Fatalf("no notice %q before the agent closed", kind)
			}
			if n.Kind == kind {
				return n
			}
		case <-ctx.Done():
			t.Fatalf("no notice %q", kind)
		}
	}
}

func closeAgent(t *testing.T, a *Agent) {
	t.Helper()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}
