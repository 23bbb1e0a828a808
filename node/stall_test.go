package node

import (
	"context"
	"encoding/binary"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node/device"
	"github.com/aliquot-dev/aliquot/node/page"
)

// writeStall writes what an arbiter says of work that does not end; since 0: there is none.
func writeStall(t *testing.T, folder, uuid string, since uint64, uid string, pid int) {
	t.Helper()
	m, err := page.Open[page.Device](filepath.Join(folder, "devices", uuid), true)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var text [page.UIDLen]byte
	copy(text[:], uid)
	err = m.View(func(d *page.Device) error {
		d.Seq.Add(1)
		d.UpdatedNS.Store(monotonic() + uint64(time.Hour)) // it is believed whenever the agent comes to look
		d.StallSinceNS.Store(since)
		for i := range d.StallUID {
			d.StallUID[i].Store(binary.LittleEndian.Uint64(text[8*i:]))
		}
		d.StallPID.Store(int32(pid))
		d.Seq.Add(1)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestStall: a device on which work that does not end takes others' floors takes no new task, with whose work it is, until that is over.
func TestStall(t *testing.T) {
	folder := fakeRun(t)
	a := openFake(t, folder, newFakeDevices("GPU-a", "GPU-b"))
	ctx := testContext(t)
	writeStall(t, folder, "GPU-b", monotonic()-uint64(stallDoubt), "hog.0", 77)
	n := nextNotice(t, a, DeviceSick)
	if !n.Stall || n.Device != "GPU-b" || n.Task != "hog.0" || !strings.HasPrefix(n.Reason, "it is sick: work of task hog.0 (process 77) has not ended since ") {
		t.Errorf("notice %+v", n)
	}
	if d := a.Devices(); d[0].Health != api.Healthy || d[1].Health != api.Draining || d[1].Reason != n.Reason {
		t.Errorf("devices %+v", d)
	}
	if _, err := a.Prepare(ctx, aTask("w.0", 250, 800, "GPU-b")); err == nil {
		t.Error("a task was prepared on a device that is sick")
	}
	if _, err := a.Prepare(ctx, aTask("w.1", 250, 800, "GPU-a")); err != nil {
		t.Errorf("beside it: %v", err)
	}
	writeStall(t, folder, "GPU-b", 0, "", 0)
	if n := nextNotice(t, a, DeviceBack); n.Device != "GPU-b" {
		t.Errorf("notice %+v", n)
	}
	if _, err := a.Prepare(ctx, aTask("w.0", 250, 800, "GPU-b")); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// TestStallAndFault: what the driver reports goes before it, also where that comes second, and stays when the work has ended.
func TestStallAndFault(t *testing.T) {
	folder := fakeRun(t)
	devices := newFakeDevices("GPU-a")
	a := openFake(t, folder, devices)
	writeStall(t, folder, "GPU-a", monotonic()-uint64(stallDoubt), "hog.0", 77)
	nextNotice(t, a, DeviceSick)
	devices.events <- device.Event{UUID: "GPU-a", Condition: device.Sick, Reason: "XID 48"}
	if n := nextNotice(t, a, DeviceSick); n.Reason != "XID 48" || n.Task != "" {
		t.Errorf("notice %+v", n)
	}
	writeStall(t, folder, "GPU-a", 0, "", 0)
	a.lookForStall("GPU-a", monotonic())
	if d := a.Devices()[0]; d.Health != api.Draining || d.Reason != "XID 48" {
		t.Errorf("device %+v", d)
	}
}

// read is a page with this of such work, written at this time.
func read(stall page.Stall, updated uint64) page.DeviceEntry {
	return page.DeviceEntry{Stall: stall, Updated: updated}
}

// kinds are the notices' kinds, in order.
func kinds(notices []Notice) string {
	var list []string
	for _, n := range notices {
		list = append(list, string(n.Kind))
	}
	return strings.Join(list, ", ")
}

// healthy is a device as an agent with this rule begins with it.
func healthy(rule api.UnenforcedRule) (*Agent, *deviceState) {
	return &Agent{rule: rule}, &deviceState{Device: Device{UUID: "GPU-a", Health: api.Healthy}}
}

// TestStallIsStopped: only where the rule says so, once, and not before the agent has read of it for long, however long ago the work began.
func TestStallIsStopped(t *testing.T) {
	const first = uint64(2 * time.Hour)
	after := func(length time.Duration) uint64 { return first + uint64(length) }
	stall := page.Stall{Since: first - uint64(time.Hour), Task: "hog.0", PID: os.Getpid()}
	other := page.Stall{Since: first - uint64(time.Minute), Task: "hog.1", PID: os.Getpid()}
	for _, rule := range []api.UnenforcedRule{api.ShowUnenforced, api.StopUnenforced} {
		a, d := healthy(rule)
		stopped := ""
		if rule == api.StopUnenforced {
			stopped = string(Stalled)
		}
		steps := []struct {
			stall page.Stall
			now   uint64
			want  string
		}{
			{page.Stall{}, first - 1, ""},
			{stall, after(0), string(DeviceSick)},
			{stall, after(stallPatience - 1), ""},
			{stall, after(stallPatience), stopped},
			{stall, after(2 * stallPatience), ""},
			{other, after(3 * stallPatience), string(DeviceSick)},
			{page.Stall{}, after(3*stallPatience + 1), ""},
			{other, after(3*stallPatience + 2), ""}, // it is sick all the time, but the time counts anew
			{other, after(4*stallPatience + 1), ""},
			{other, after(4*stallPatience + 2), stopped},
			{page.Stall{}, after(5 * stallPatience), ""},
			{page.Stall{}, after(5*stallPatience + stallWell - 1), ""},
			{page.Stall{}, after(5*stallPatience + stallWell), string(DeviceBack)},
			{page.Stall{}, after(6 * stallPatience), ""},
			{stall, after(7 * stallPatience), string(DeviceSick)},
			{other, after(7*stallPatience + 1), ""}, // whose work it is changes to and fro
			{stall, after(7*stallPatience + 2), ""},
			{other, after(8*stallPatience - 1), ""},
			{other, after(8 * stallPatience), string(DeviceSick)},
		}
		for i, step := range steps {
			if got := kinds(a.takeStall(d, read(step.stall, step.now), step.now)); got != step.want {
				t.Errorf("%s, step %d: told %q, want %q", rule, i, got, step.want)
			}
		}
	}
}

// TestEndStalled: the process is ended once its task is to be, and no other: not before, and not one that has its number.
func TestEndStalled(t *testing.T) {
	folder := fakeRun(t)
	a := openStopping(t, folder, newFakeDevices("GPU-a"), api.StopUnenforced)
	if _, err := a.Prepare(testContext(t), aTask("w.0", 250, 800, "GPU-a")); err != nil {
		t.Fatal(err)
	}
	const sleeps = "echo ready; exec sleep 1000"
	hog, beside := startChild(t, sleeps, uint32(os.Geteuid())), startChild(t, sleeps, uint32(os.Geteuid()))
	tel, _ := pages(t, folder, "w.0")
	register(tel, 0, hog.pid)
	for _, c := range []struct {
		child child
		told  bool
		ends  bool
	}{{hog, false, false}, {beside, true, false}, {hog, true, true}} {
		stall := page.Stall{Since: monotonic() - uint64(stallDoubt), Task: "w.0", PID: c.child.pid}
		writeStall(t, folder, "GPU-a", stall.Since, stall.Task, stall.PID)
		a.mu.Lock()
		d := a.devices["GPU-a"]
		d.stall, d.stallRead, d.stallTold = stall, monotonic()-uint64(stallPatience), c.told
		a.mu.Unlock()
		a.EndStalled(testContext(t), "GPU-a")
		if c.ends {
			c.child.await(t)
			if n := nextNotice(t, a, Stopped); n.Task != "w.0" || !strings.Contains(n.Message, "its work has not ended") {
				t.Errorf("notice %+v", n)
			}
		}
		a.mu.Lock()
		ending := len(a.ending) > 0
		a.mu.Unlock()
		if !c.ends && (ending || !c.child.lives()) {
			t.Errorf("with %+v it was ended", c)
		}
	}
	if !beside.lives() {
		t.Error("another process was ended")
	}
}

// TestStallInDoubt: work that is late for a moment, as on a machine that has no time for programs, makes no device sick, nor keeps one from being well again.
func TestStallInDoubt(t *testing.T) {
	a, d := healthy(api.StopUnenforced)
	now := uint64(time.Hour)
	for range 100 { // each look finds other work that is late
		now += uint64(stallLook)
		young := page.Stall{Since: now - uint64(stallDoubt) + 1, Task: "w.0", PID: os.Getpid()}
		if got := kinds(a.takeStall(d, read(young, now), now)); got != "" || d.Health != api.Healthy {
			t.Fatalf("told %q, it is %v", got, d.Health)
		}
	}
	old := page.Stall{Since: now - uint64(stallDoubt), Task: "hog.0", PID: os.Getpid()}
	if got := kinds(a.takeStall(d, read(old, now), now)); got != string(DeviceSick) || d.Health != api.Draining {
		t.Errorf("of work that is late for %v it tells %q, and the device is %v", stallDoubt, got, d.Health)
	}
	var told []Notice
	for range int(stallWell/stallLook) + 1 {
		now += uint64(stallLook)
		told = append(told, a.takeStall(d, read(page.Stall{Since: now, Task: "w.0", PID: os.Getpid()}, now), now)...)
	}
	if got := kinds(told); got != string(DeviceBack) || d.Health != api.Healthy {
		t.Errorf("while only moments are late it tells %q, and the device is %v", got, d.Health)
	}
}

// TestStallOfSeveral: where work of several does not end it says so, and nobody is stopped for it.
func TestStallOfSeveral(t *testing.T) {
	for _, c := range []struct {
		stall page.Stall
		want  string
	}{
		{page.Stall{Since: 1}, "it is sick: work of several tasks has not ended since "},
		{page.Stall{Since: 1, Task: "hog.0"}, "it is sick: work of task hog.0 (several processes) has not ended since "},
	} {
		a, d := healthy(api.StopUnenforced)
		now := uint64(time.Hour)
		if told := a.takeStall(d, read(c.stall, now), now); kinds(told) != string(DeviceSick) || !told[0].Stall || !strings.HasPrefix(d.Reason, c.want) {
			t.Errorf("told %+v", told)
		}
		now += uint64(2 * stallPatience)
		if got := kinds(a.takeStall(d, read(c.stall, now), now)); got != "" {
			t.Errorf("told %q of work of several", got)
		}
	}
}

// TestStallOfStoppedProcess: a process that is stopped itself cannot say that its work has ended, and its task is not stopped for it.
func TestStallOfStoppedProcess(t *testing.T) {
	process := exec.Command("sleep", "1000")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Process.Kill(); _ = process.Wait() })
	signal := func(signal unix.Signal, event int) {
		t.Helper()
		if err := process.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Wait4(process.Process.Pid, nil, event, nil); err != nil {
			t.Fatal(err)
		}
	}
	a, d := healthy(api.StopUnenforced)
	stall, now := page.Stall{Since: 1, Task: "hog.0", PID: process.Process.Pid}, uint64(time.Hour)
	a.takeStall(d, read(stall, now), now)
	now += uint64(stallPatience)
	signal(unix.SIGSTOP, unix.WUNTRACED)
	if got := kinds(a.takeStall(d, read(stall, now), now)); got != "" {
		t.Errorf("told %q of a process that is stopped", got)
	}
	signal(unix.SIGCONT, unix.WCONTINUED)
	if got := kinds(a.takeStall(d, read(stall, now), now)); got != string(Stalled) {
		t.Errorf("told %q once it goes on", got)
	}
}

// TestStaleStall: what nobody writes any more makes no device sick and has nobody stopped; that there is none is believed.
func TestStaleStall(t *testing.T) {
	a, d := healthy(api.StopUnenforced)
	written := uint64(time.Hour)
	stale := written + uint64(stallStale) + 1
	stall := page.Stall{Since: 1, Task: "hog.0", PID: os.Getpid()}
	for i, step := range []struct {
		entry page.DeviceEntry
		now   uint64
		want  string
	}{
		{read(stall, written), stale, ""},
		{read(stall, written), written + uint64(stallStale), string(DeviceSick)},
		{read(stall, written), written + uint64(2*stallPatience), ""},
		{read(stall, written+uint64(2*stallPatience)+1), written + uint64(2*stallPatience) + 1, ""}, // for what was not seen meanwhile
		{read(stall, written+uint64(3*stallPatience)), written + uint64(3*stallPatience), string(Stalled)},
		{read(page.Stall{}, written), written + uint64(4*stallPatience), ""},
		{read(page.Stall{}, written), written + uint64(4*stallPatience+stallWell), string(DeviceBack)},
	} {
		if got := kinds(a.takeStall(d, step.entry, step.now)); got != step.want {
			t.Errorf("step %d: told %q, want %q", i, got, step.want)
		}
	}
}

// interrupted has something else begin, and lets it run, when an agent is about to tell that a device is back.
type interrupted struct {
	slog.Handler
	begin func()
}

func (h interrupted) Enabled(context.Context, slog.Level) bool { return true }

func (h interrupted) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(attr slog.Attr) bool {
		if attr.Key != "kind" || attr.Value.String() != string(DeviceBack) {
			return true
		}
		h.begin()
		for range 10_000 {
			runtime.Gosched()
		}
		return false
	})
	return h.Handler.Handle(ctx, r)
}

// TestStallIsToldInOrder: a device that goes down just as it is told to be back is told to be down after that.
func TestStallIsToldInOrder(t *testing.T) {
	a := openFake(t, fakeRun(t), newFakeDevices("GPU-a"))
	var down sync.WaitGroup
	a.log = slog.New(interrupted{a.log.Handler(), func() {
		down.Go(func() { a.changeHealth("GPU-a", api.Down, "XID 79") })
	}})
	now := monotonic()
	a.takeStall(a.devices["GPU-a"], read(page.Stall{Since: 1, Task: "hog.0", PID: 77}, now), now)
	a.lookForStall("GPU-a", now) // its page has none
	a.lookForStall("GPU-a", now+uint64(stallWell))
	down.Wait()
	for _, want := range []NoticeKind{DeviceBack, DeviceDown} {
		select {
		case n := <-a.Notices():
			if n.Kind != want {
				t.Fatalf("told %q, want %q first", n.Kind, want)
			}
		case <-testContext(t).Done():
			t.Fatalf("no notice %q", want)
		}
	}
}
