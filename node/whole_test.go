package node

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/native"
)

// This file tests the agent with everything real but the devices: the arbiter, the shim and the simulated driver, as `make native`
// built them, and programs that know nothing of shares.

// openWhole opens an agent on simulated devices. They and the arbiter end with the test.
func openWhole(t *testing.T, folder, devices string) *Agent {
	t.Helper()
	a, err := Open(testContext(t), Config{Run: folder, Simulate: devices})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAgent(t, a) })
	return a
}

// tenantFolder holds the program, and is removed by TestMain.
var tenantFolder string

// tenantProgram builds the program once for all tests.
var tenantProgram = sync.OnceValues(func() (program string, err error) {
	if tenantFolder, err = os.MkdirTemp("", "tenant"); err != nil {
		return "", err
	}
	program = filepath.Join(tenantFolder, "tenant")
	out, err := exec.Command("cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I../native", "-o", program, "testdata/tenant.c", "-ldl").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return program, nil
})

// tenant is a running program.
type tenant struct {
	t     *testing.T
	pid   int
	input io.WriteCloser
	lines *bufio.Scanner
	end   func()
}

// start runs the program with an environment beside this one's, and waits until it has its device.
func start(t *testing.T, environment []string) *tenant {
	t.Helper()
	program, err := tenantProgram()
	if err != nil {
		t.Fatal(err)
	}
	return startCommand(t, exec.Command(program), environment)
}

func startCommand(t *testing.T, command *exec.Cmd, environment []string) *tenant {
	t.Helper()
	command.Env, command.Stderr = append(os.Environ(), environment...), os.Stderr
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	p := &tenant{t: t, pid: command.Process.Pid, input: input, lines: bufio.NewScanner(output)}
	p.end = sync.OnceFunc(func() { _ = input.Close(); _ = command.Process.Kill(); _ = command.Wait() })
	// A program that hangs is ended, so that what waits for its answer fails instead.
	stop := context.AfterFunc(testContext(t), func() { _ = command.Process.Kill() })
	t.Cleanup(func() { stop() })
	t.Cleanup(p.end)
	if got := p.line(); got != "ready" {
		t.Fatalf("the program said %q", got)
	}
	return p
}

func (p *tenant) line() string {
	p.t.Helper()
	if !p.lines.Scan() {
		p.t.Fatalf("the program ended: %v", p.lines.Err())
	}
	return p.lines.Text()
}

// tell gives the program a line and returns its answer.
func (p *tenant) tell(line string) string {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.input, line); err != nil {
		p.t.Fatal(err)
	}
	return p.line()
}

func prepareAndStart(t *testing.T, a *Agent, task Task) *tenant {
	t.Helper()
	launch, err := a.Prepare(testContext(t), task)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, launch.Env)
}

// until samples until a condition holds.
func until(t *testing.T, a *Agent, what string, holds func(Sample) bool) Sample {
	t.Helper()
	ctx := testContext(t)
	for {
		s, err := a.Sample(ctx)
		if err != nil {
			t.Fatalf("%s never came to be: %v", what, err)
		}
		if holds(s) {
			return s
		}
	}
}

// TestTwoTasks: two programs share a device. Each sees its share, is metered, is changed live, and leaves nothing behind.
func TestTwoTasks(t *testing.T) {
	a := openWhole(t, shortFolder(t), "h200x2")
	ctx := testContext(t)
	device := a.Devices()[1]
	if !device.Simulated || device.Health != api.Healthy || !a.Simulated() || a.Mounts() {
		t.Errorf("device %+v, simulated %v, mounts %v", device, a.Simulated(), a.Mounts())
	}
	one, two := aTask("one", 250, 800, device.UUID), aTask("two", 500, 1000, device.UUID)
	first, second := prepareAndStart(t, a, one), prepareAndStart(t, a, two)
	if got, want := first.tell("see"), fmt.Sprintf("%s %d 1", device.UUID, int64(2<<30)>>20); got != want {
		t.Errorf("the program sees %q, want %q: its device, its memory ceiling, no other device", got, want)
	}
	if got := first.tell("hold 512"); got != "held" {
		t.Errorf("within its memory: %s", got)
	}
	if got := second.tell("hold 4096"); got != "refused" {
		t.Errorf("over its memory: %s", got)
	}
	for range 3 {
		if a, b := first.tell("launch 20"), second.tell("launch 10"); a != "launched" || b != "launched" {
			t.Fatalf("launches: %s, %s", a, b)
		}
	}
	s := until(t, a, "the books being settled", func(s Sample) bool { return s.Tasks[0].Held > 0 && s.Tasks[1].Held > 0 })
	for i, want := range []struct {
		task     string
		launches uint64
		pid      int
		memory   api.Bytes
	}{{"one", 60, first.pid, 512 << 20}, {"two", 30, second.pid, 0}} {
		u := s.Tasks[i]
		if u.Task != want.task || u.Launches != want.launches || !slices.Equal(u.Processes, []int{want.pid}) || u.Memory < want.memory {
			t.Errorf("usage %+v, want %+v", u, want)
		}
	}
	for _, d := range s.Devices {
		if len(d.Unenforced) > 0 || d.MemoryUsed == nil || d.Busy == nil {
			t.Errorf("device %+v; want readings, and nobody unenforced", d)
		}
	}
	checkRows(t, a)

	up := one
	up.Grants = slices.Clone(one.Grants)
	up.Grants[0].MemCeiling = 3 << 30
	if err := a.Update(ctx, "one", up.Grants, Flags{}); err != nil {
		t.Fatal(err)
	}
	if got, want := first.tell("see"), fmt.Sprintf("%s %d 1", device.UUID, int64(3<<30)>>20); got != want {
		t.Errorf("after the change the program sees %q, want %q", got, want)
	}

	first.end()
	s = until(t, a, "the end of a program being seen", func(s Sample) bool { return len(s.Tasks[0].Processes) == 0 })
	s = until(t, a, "its launches being kept", func(s Sample) bool { return s.Tasks[0].Launches == 60 && s.Tasks[0].Memory == 0 })
	held := s.Tasks[0].Held
	if err := a.Unprepare(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	s = sample(t, a)
	if len(s.Tasks) != 1 || s.Devices[1].Own+s.Devices[1].Burst+s.Devices[1].Lent < held {
		t.Errorf("after it is unprepared: %+v; want what it held (%v) still in the device's rows", s, held)
	}
	checkRows(t, a)
	if got := second.tell("launch 5"); got != "launched" {
		t.Errorf("the other program: %s", got)
	}
}

// checkRows: each nanosecond of a device is in exactly one row. The pages are read one after the other, so the arbiter may settle
// between two of them; of a few readings one must be whole.
func checkRows(t *testing.T, a *Agent) {
	t.Helper()
	const tries = 50
	for try := range tries {
		wrong := ""
		for _, d := range sample(t, a).Devices {
			if sum := d.Own + d.Burst + d.Lent + d.Reserved + d.Idle + d.Down; sum != d.Since || sum == 0 {
				wrong = fmt.Sprintf("device %s: the rows add up to %v, its books are %v long: %+v", d.UUID, sum, d.Since, d)
			}
		}
		if wrong == "" {
			return
		}
		if try == tries-1 {
			t.Error(wrong)
		}
	}
}

// TestArbiterDiesUnderLoad: the real arbiter is killed under running programs; they go on, and the new one has their books.
func TestArbiterDiesUnderLoad(t *testing.T) {
	a := openWhole(t, shortFolder(t), "h200x1")
	task := aTask("w.0", 500, 1000, a.Devices()[0].UUID)
	p := prepareAndStart(t, a, task)
	if got := p.tell("launch 20"); got != "launched" {
		t.Fatal(got)
	}
	held := until(t, a, "the books being settled", func(s Sample) bool { return s.Tasks[0].Held > 0 }).Tasks[0].Held
	if err := a.arbiter.current().signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := p.tell("launch 20"); got != "launched" {
		t.Fatal(got)
	}
	nextNotice(t, a, ArbiterBack)
	s := until(t, a, "the program registering again", func(s Sample) bool { return slices.Equal(s.Tasks[0].Processes, []int{p.pid}) })
	if s.Tasks[0].Held < held {
		t.Errorf("held %v before the arbiter died, %v after", held, s.Tasks[0].Held)
	}
	if got := p.tell("launch 20"); got != "launched" {
		t.Fatal(got)
	}
	until(t, a, "the launches being counted", func(s Sample) bool { return s.Tasks[0].Launches == 60 })
}

// TestNewAgentUnderLoad: agents come and go; programs, arbiter and devices do not notice.
func TestNewAgentUnderLoad(t *testing.T) {
	folder := shortFolder(t)
	a := openWhole(t, folder, "h200x1")
	task := aTask("w.0", 500, 1000, a.Devices()[0].UUID)
	p := prepareAndStart(t, a, task)
	if got := p.tell("launch 10"); got != "launched" {
		t.Fatal(got)
	}
	arbiter, simulator := a.arbiter.current().pid, a.sim.process.pid
	closeAgent(t, a)
	if got := p.tell("launch 10"); got != "launched" {
		t.Fatal(got)
	}
	if _, err := Open(testContext(t), Config{Run: folder, Simulate: "a10x1"}); err == nil || !strings.Contains(err.Error(), "--simulate h200x1") {
		t.Errorf("other devices under a running task: %v", err)
	}
	b := openWhole(t, folder, "h200x1")
	if b.arbiter.current().pid != arbiter || b.sim.process.pid != simulator {
		t.Errorf("arbiter %d and devices %d became %d and %d", arbiter, simulator, b.arbiter.current().pid, b.sim.process.pid)
	}
	s := until(t, b, "the launches being counted", func(s Sample) bool { return s.Tasks[0].Launches == 20 })
	if !slices.Equal(s.Tasks[0].Processes, []int{p.pid}) || len(s.Devices[0].Unenforced) != 0 {
		t.Errorf("processes %v, unenforced %v", s.Tasks[0].Processes, s.Devices[0].Unenforced)
	}
	if got := p.tell("launch 10"); got != "launched" {
		t.Fatal(got)
	}
}

// TestUnenforcedProgram: a program that goes around the shim is seen, shown and alerted.
func TestUnenforcedProgram(t *testing.T) {
	folder := shortFolder(t)
	a := openWhole(t, folder, "h200x1")
	task := aTask("w.0", 500, 1000, a.Devices()[0].UUID)
	enforced := prepareAndStart(t, a, task)
	around := start(t, []string{"LD_LIBRARY_PATH=" + filepath.Join(folder, native.Sim)})
	n := nextNotice(t, a, Unenforced) // although nobody samples
	if n.Device != a.Devices()[0].UUID || n.Task != "" || !strings.Contains(n.Message, fmt.Sprintf("Process %d (tenant", around.pid)) {
		t.Errorf("notice %+v, want one of process %d", n, around.pid)
	}
	found := sample(t, a).Devices[0].Unenforced
	if len(found) != 1 || found[0].PID != around.pid || found[0].Memory == nil || *found[0].Memory == 0 {
		t.Errorf("unenforced: %+v, want process %d alone with its memory, not %d", found, around.pid, enforced.pid)
	}
	around.end()
	until(t, a, "the process being gone", func(s Sample) bool { return len(s.Devices[0].Unenforced) == 0 })
}

// TestFaultInjected: a fatal XID and a device that vanishes become notices and stop new work there, and only there.
func TestFaultInjected(t *testing.T) {
	folder := shortFolder(t)
	a := openWhole(t, folder, "h200x2")
	inject := func(words ...string) {
		t.Helper()
		arguments := append([]string{"inject", "--control", simControl(a.run)}, words...)
		if out, err := exec.Command(filepath.Join(folder, native.SimGPU), arguments...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	inject("--device", "1", "xid", "79")
	if n := nextNotice(t, a, DeviceDown); n.Device != a.Devices()[1].UUID || n.Message == "" {
		t.Errorf("notice %+v", n)
	}
	if _, err := a.Prepare(testContext(t), aTask("w.1", 100, 100, a.Devices()[1].UUID)); err == nil || !strings.Contains(err.Error(), "is down") {
		t.Errorf("prepared on a device that is down: %v", err)
	}
	if got := prepareAndStart(t, a, aTask("w.0", 100, 100, a.Devices()[0].UUID)).tell("launch 1"); got != "launched" {
		t.Errorf("on the other device: %s", got)
	}
}

// TestSimulatorDies: the simulated devices are down and stay down; nobody pretends that they are as they were.
func TestSimulatorDies(t *testing.T) {
	folder := shortFolder(t)
	a := openWhole(t, folder, "h200x2")
	if err := a.sim.process.signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	down := map[string]bool{}
	for range 2 {
		down[nextNotice(t, a, DeviceDown).Device] = true
	}
	for _, d := range a.Devices() {
		if !down[d.UUID] || d.Health != api.Down || d.Reason == "" {
			t.Errorf("device %+v", d)
		}
	}
	if err := a.sim.process.waitFor(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if p := server(simSocket(a.run)); p != nil {
		t.Errorf("started again as %d", p.pid)
		p.close()
	}
}

// TestSimulatorKilledAtStart: an agent that is killed when it has just started the devices leaves them to the next.
func TestSimulatorKilledAtStart(t *testing.T) {
	folder := shortFolder(t)
	log := filepath.Join(folder, "killed")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(testContext(t), self)
	command.Env = append(os.Environ(), "ALIQUOT_TEST_OPEN="+folder, "ALIQUOT_KILL_AT=node.simulator.started", "ALIQUOT_KILL_LOG="+log)
	if out, err := command.CombinedOutput(); err == nil {
		t.Fatalf("it was not killed: %s", out)
	}
	if content, err := os.ReadFile(log); err != nil || strings.TrimSpace(string(content)) != "node.simulator.started" {
		t.Fatalf("killed at %q, %v", content, err)
	}
	left := server(simSocket(run(folder)))
	if left == nil {
		t.Fatal("nobody serves the devices")
	}
	defer left.close()
	if a := openWhole(t, folder, "h200x1"); a.sim.process.pid != left.pid {
		t.Errorf("devices served by %d, left were %d", a.sim.process.pid, left.pid)
	}
}
