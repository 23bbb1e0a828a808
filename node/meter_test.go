package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node/page"
)

// pages opens a task's pages as the arbiter and the tenant do.
func pages(t *testing.T, folder, uid string) (*page.Tel, *page.Book) {
	t.Helper()
	tel, err := page.Open[page.Tel](filepath.Join(folder, "tasks", uid, "tel"), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tel.Close)
	book, err := page.Open[page.Book](filepath.Join(folder, "tasks", uid, "book"), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(book.Close)
	var telPage *page.Tel
	var bookPage *page.Book
	_ = tel.View(func(p *page.Tel) error { telPage = p; return nil })
	_ = book.View(func(p *page.Book) error { bookPage = p; return nil })
	return telPage, bookPage
}

func devicePage(t *testing.T, folder, uuid string) *page.Device {
	t.Helper()
	m, err := page.Open[page.Device](filepath.Join(folder, "devices", uuid), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	var p *page.Device
	_ = m.View(func(d *page.Device) error { p = d; return nil })
	return p
}

func sample(t *testing.T, a *Agent) Sample {
	t.Helper()
	s, err := a.Sample(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// register does what the arbiter does when a process of a task registers.
func register(tel *page.Tel, slot, pid int) *page.TelGrant {
	s := &tel.Slot[slot]
	s.PID.Store(int32(pid))
	if f, ok := factsOf(pid); ok {
		s.StartTime.Store(f.start)
	}
	s.State.Store(page.SlotLive)
	return &s.Grant[0]
}

func TestSample(t *testing.T) {
	folder := fakeRun(t)
	a := openFake(t, folder, newFakeDevices("GPU-a"))
	if _, err := a.Prepare(testContext(t), aTask("w.0", 250, 800, "GPU-a")); err != nil {
		t.Fatal(err)
	}
	tel, book := pages(t, folder, "w.0")
	one, two := register(tel, 0, os.Getpid()), register(tel, 5, 1)
	one.Launched.Store(10)
	one.MemUsed.Store(100)
	one.MemOverhead.Store(11)
	two.Launched.Store(20)
	two.UnknownCalls.Store(3)
	two.MemUsed.Store(1000)
	g := &book.Grant[0]
	g.HeldNS.Store(900)
	g.Split.OwnNS.Store(500)
	g.Split.BurstFreeNS.Store(300)
	g.Split.BurstLentNS.Store(100)
	g.Split.LentNS.Store(7)
	g.Split.ReservedIdleNS.Store(8)
	g.WaitNS.Store(9)
	g.MemPeak.Store(2000)
	d := devicePage(t, folder, "GPU-a")
	d.SinceNS.Store(1000)
	d.UpdatedNS.Store(3000)
	d.UnreservedIdleNS.Store(60)
	d.DownNS.Store(5)
	d.Ended.OwnNS.Store(1)
	d.Ended.LentNS.Store(2)
	d.Ended.ReservedIdleNS.Store(3)
	d.Ended.BurstFreeNS.Store(4)

	s := sample(t, a)
	want := Usage{
		Task: "w.0", Grant: aTask("w.0", 250, 800, "GPU-a").Grants[0], Held: 900, Own: 500, Burst: 400, BurstLent: 100, Lent: 7, Reserved: 8, Waited: 9,
		Launches: 30, Memory: 1111, MemPeak: 2000, Processes: []int{os.Getpid(), 1}, MemoryByDriver: new(api.Bytes), UnknownCalls: 3,
	}
	if len(s.Tasks) != 1 || !reflect.DeepEqual(s.Tasks[0], want) {
		t.Errorf("usage  %+v\nwanted %+v", s.Tasks, want)
	}
	used, busy := api.Bytes(1<<30), api.Milli(500)
	wantDevice := DeviceUsage{UUID: "GPU-a", Since: 2000, Own: 501, Burst: 304, Lent: 9, Reserved: 11, Idle: 60, Down: 5, MemoryUsed: &used, Busy: &busy}
	if len(s.Devices) != 1 || !reflect.DeepEqual(s.Devices[0], wantDevice) {
		t.Errorf("device %+v\nwanted %+v", s.Devices, wantDevice)
	}
}

// TestLaunchesOfTheDead: what a process launched stays counted when its slot is freed, and once only.
func TestLaunchesOfTheDead(t *testing.T) {
	folder := fakeRun(t)
	a := openFake(t, folder, newFakeDevices("GPU-a"))
	if _, err := a.Prepare(testContext(t), aTask("w.0", 250, 800, "GPU-a")); err != nil {
		t.Fatal(err)
	}
	tel, book := pages(t, folder, "w.0")
	register(tel, 0, os.Getpid()).Launched.Store(10)
	register(tel, 1, 1).Launched.Store(5)
	launches := func(want uint64, when string) {
		t.Helper()
		if got := sample(t, a).Tasks[0].Launches; got != want {
			t.Errorf("%s: %d launches, want %d", when, got, want)
		}
	}
	launches(15, "both live")
	tel.Slot[0].State.Store(page.SlotFree)
	tel.Slot[0].Grant[0].Launched.Store(0)
	launches(15, "slot freed, book not yet written")
	book.Grant[0].LaunchesEnded.Store(10)
	launches(15, "book written")
	tel.Slot[1].Grant[0].Launched.Store(6)
	launches(16, "the other goes on")
	book.Grant[0].Seq.Store(1)
	launches(16, "the arbiter died while writing")
	closeAgent(t, a)
	book.Grant[0].Seq.Store(2)
	a = openFake(t, folder, newFakeDevices("GPU-a"))
	launches(16, "a new agent")
}

// TestArbiterDiedWriting: a reading that cannot be had stays as it was; it does not become zero.
func TestArbiterDiedWriting(t *testing.T) {
	folder := fakeRun(t)
	a := openFake(t, folder, newFakeDevices("GPU-a"))
	if _, err := a.Prepare(testContext(t), aTask("w.0", 250, 800, "GPU-a")); err != nil {
		t.Fatal(err)
	}
	_, book := pages(t, folder, "w.0")
	d := devicePage(t, folder, "GPU-a")
	book.Grant[0].HeldNS.Store(100)
	d.UnreservedIdleNS.Store(200)
	_ = sample(t, a)
	book.Grant[0].Seq.Store(3)
	d.Seq.Store(3)
	book.Grant[0].HeldNS.Store(0)
	d.UnreservedIdleNS.Store(0)
	s := sample(t, a)
	if s.Tasks[0].Held != 100 || s.Devices[0].Idle != 200 {
		t.Errorf("held %v, idle %v; want the last readings, 100ns and 200ns", s.Tasks[0].Held, s.Devices[0].Idle)
	}
}

// TestTenantSpoilsTel: a tenant that lies in its page or cuts it short hurts its own figures only.
func TestTenantSpoilsTel(t *testing.T) {
	folder := fakeRun(t)
	a := openFake(t, folder, newFakeDevices("GPU-a"))
	for _, uid := range []string{"liar", "other"} {
		if _, err := a.Prepare(testContext(t), aTask(uid, 250, 800, "GPU-a")); err != nil {
			t.Fatal(err)
		}
	}
	liar, _ := pages(t, folder, "liar")
	other, book := pages(t, folder, "other")
	for i := range 3 {
		g := register(liar, i, os.Getpid())
		g.MemUsed.Store(1 << 63)
		g.MemOverhead.Store(1<<64 - 1)
	}
	register(other, 0, os.Getpid()).MemUsed.Store(7)
	book.Grant[0].HeldNS.Store(42)
	s := sample(t, a)
	if s.Tasks[0].Memory != 16<<30 {
		t.Errorf("a liar's memory is %d, want all that its device has and no more", s.Tasks[0].Memory)
	}
	if err := os.Truncate(filepath.Join(folder, "tasks/liar/tel"), 100); err != nil {
		t.Fatal(err)
	}
	s = sample(t, a)
	if s.Tasks[0].Task != "liar" || len(s.Tasks[0].Processes) != 0 {
		t.Errorf("of a page cut short: %+v", s.Tasks[0])
	}
	if s.Tasks[1].Memory != 7 || s.Tasks[1].Held != 42*time.Nanosecond {
		t.Errorf("the other task: %+v", s.Tasks[1])
	}
}

// TestUnknownCalls: that a task's programs know functions which pass the shim is said once, whoever looks how often.
func TestUnknownCalls(t *testing.T) {
	folder := fakeRun(t)
	a := openFake(t, folder, newFakeDevices("GPU-a"))
	ctx := testContext(t)
	for _, uid := range []string{"new", "old"} {
		if _, err := a.Prepare(ctx, aTask(uid, 250, 800, "GPU-a")); err != nil {
			t.Fatal(err)
		}
	}
	looks := func() []Notice {
		a.noticeUnknown(sample(t, a).Tasks)
		a.notify(Notice{Kind: "end of this look"})
		var seen []Notice
		for n := range a.Notices() {
			if n.Kind == "end of this look" {
				break
			}
			if n.Kind == UnknownCalls {
				seen = append(seen, n)
			}
		}
		return seen
	}
	tel, _ := pages(t, folder, "new")
	process := register(tel, 0, os.Getpid())
	if seen := looks(); len(seen) != 0 {
		t.Errorf("before any: %+v", seen)
	}
	process.UnknownCalls.Store(1<<64 - 1) // a lie is no more than a driver has
	if seen := looks(); len(seen) != 1 || seen[0].Task != "new" || !strings.Contains(seen[0].Message, "10000 times") {
		t.Errorf("of programs with unknown functions: %+v", seen)
	}
	if seen := looks(); len(seen) != 0 {
		t.Errorf("again: %+v", seen)
	}
	if err := a.Unprepare(ctx, "new"); err != nil || a.unknown["new"] {
		t.Errorf("a task that has ended is remembered: %v", err)
	}
}

// TestUnenforced: a process that computes on a device without a share is shown and alerted once; one with a share is not.
func TestUnenforced(t *testing.T) {
	folder := fakeRun(t)
	devices := newFakeDevices("GPU-a", "GPU-b")
	a := openFake(t, folder, devices)
	if _, err := a.Prepare(testContext(t), aTask("w.0", 250, 800, "GPU-a")); err != nil {
		t.Fatal(err)
	}
	child := exec.Command("cat") // lives until its input ends
	input, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = input.Close(); _ = child.Wait() })
	tel, _ := pages(t, folder, "w.0")
	register(tel, 0, os.Getpid())
	// The task lists its child itself; without knowing when that started, as the arbiter does of who registers, it hides nothing.
	register(tel, 1, child.Process.Pid)
	tel.Slot[1].StartTime.Store(0)
	const nobody = 1 << 30 // no such pid
	devices.compute("GPU-a", os.Getpid(), child.Process.Pid, nobody)
	devices.compute("GPU-b", os.Getpid())

	s := sample(t, a)
	on := func(i int) []api.Process { return s.Devices[i].Unenforced }
	if len(on(0)) != 1 || on(0)[0].PID != child.Process.Pid || on(0)[0].Name != "cat" || on(0)[0].User == "" {
		t.Errorf("on GPU-a: %+v, want only process %d", on(0), child.Process.Pid)
	}
	if len(on(1)) != 1 || on(1)[0].PID != os.Getpid() {
		t.Errorf("on GPU-b, where its task has no grant: %+v, want this process", on(1))
	}
	// Whoever looks first tells of it: this sample, or the agent's own look.
	told := []Notice{nextNotice(t, a, Unenforced), nextNotice(t, a, Unenforced)}
	slices.SortFunc(told, func(x, y Notice) int { return strings.Compare(x.Device, y.Device) })
	if n := told[0]; n.Device != "GPU-a" || n.Task != "w.0" || !strings.Contains(n.Message, "cat") {
		t.Errorf("of a child of the task that is not registered: %+v", n)
	}
	if n := told[1]; n.Device != "GPU-b" || n.Task != "w.0" {
		t.Errorf("of a process past its devices: %+v", n)
	}
	_ = sample(t, a)
	devices.compute("GPU-b")
	_ = sample(t, a)
	devices.compute("GPU-b", 1)
	_ = sample(t, a)
	if n := nextNotice(t, a, Unenforced); n.Device != "GPU-b" || n.Task != "" || !strings.Contains(n.Message, "Process 1 ") {
		t.Errorf("notice %+v, want none again of those that were there before, and one of process 1", n)
	}
	devices.compute("GPU-a", os.Getpid(), nobody)
	_ = sample(t, a)
	if n := nextNotice(t, a, Enforced); n.Task != "w.0" || n.Message == "" {
		t.Errorf("after the last process without a share has gone: %+v, want that w.0 is held again", n)
	}
}

// TestEvasionThatEndedWithoutAnAgent: of the tasks that an agent takes over it says which are held to their shares, and only of those.
func TestEvasionThatEndedWithoutAnAgent(t *testing.T) {
	folder := fakeRun(t)
	devices := newFakeDevices("GPU-a", "GPU-b")
	a := openFake(t, folder, devices)
	for _, uid := range []string{"over.0", "still.0"} {
		if _, err := a.Prepare(testContext(t), aTask(uid, 250, 800, "GPU-a")); err != nil {
			t.Fatal(err)
		}
	}
	tel, _ := pages(t, folder, "still.0")
	register(tel, 0, os.Getpid())
	devices.compute("GPU-b", os.Getpid())
	if n := nextNotice(t, a, Unenforced); n.Task != "still.0" { // although nobody samples
		t.Errorf("notice %+v", n)
	}
	closeAgent(t, a)
	next := newFakeDevices("GPU-a", "GPU-b")
	next.compute("GPU-b", os.Getpid())
	b := openFake(t, folder, next)
	ctx := testContext(t)
	for told := []Notice{}; len(told) < 2; {
		select {
		case n := <-b.Notices():
			if told = append(told, n); n.Kind == Enforced && n.Task != "over.0" || n.Kind == Unenforced && n.Task != "still.0" || n.Kind != Enforced && n.Kind != Unenforced {
				t.Errorf("notice %+v", n)
			}
		case <-ctx.Done():
			t.Fatalf("told only %+v", told)
		}
	}
}
