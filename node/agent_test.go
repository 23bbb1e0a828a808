package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node/device"
	"github.com/aliquot-dev/aliquot/node/page"
)

func TestPrepareWritesPages(t *testing.T) {
	folder := fakeRun(t)
	a := openFake(t, folder, newFakeDevices("GPU-a", "GPU-b"))
	task := aTask("w.0", 250, 800, "GPU-b", "GPU-a")
	task.Grants[1].Weight = 7
	task.Flags = Flags{LatencyClass: true}
	launch, err := a.Prepare(testContext(t), task)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"ALIQUOT_TASK=" + filepath.Join(folder, "tasks/w.0"), "DEVICES=GPU-b,GPU-a"}; !reflect.DeepEqual(launch.Env, want) {
		t.Errorf("environment %q, want %q", launch.Env, want)
	}
	ctl, err := page.Open[page.Ctl](filepath.Join(folder, "tasks/w.0/ctl"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer ctl.Close()
	_ = ctl.View(func(c *page.Ctl) error {
		if page.Text(c.Header.UID[:]) != "w.0" || c.Header.Grants != 2 {
			t.Errorf("header: %q, %d grants", page.Text(c.Header.UID[:]), c.Header.Grants)
		}
		want := page.Policy{
			Flags: page.PolicyLatency, Floor: 250, Ceiling: 800, Weight: 7,
			MemFloor: 1 << 30, MemCeiling: 2 << 30, MemDevice: 16 << 30,
		}
		g := &c.Grant[1]
		if p, ok := g.Policy(); !ok || p != want || page.Text(g.Device[:]) != "GPU-a" {
			t.Errorf("on %s: %+v, want %+v", page.Text(g.Device[:]), p, want)
		}
		if g.MemGranted.Load() != 1<<30 || g.Gate.Load() != 0 || g.LeaseEndNS.Load() != 0 {
			t.Errorf("granted %d, gate %d, lease until %d; want the floor and a closed gate", g.MemGranted.Load(), g.Gate.Load(), g.LeaseEndNS.Load())
		}
		return nil
	})
	for name, mode := range map[string]os.FileMode{"ctl": 0o644, "tel": 0o600, "book": 0o600, "task.json": 0o600} {
		if info, err := os.Stat(filepath.Join(folder, "tasks/w.0", name)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v; want mode %v", name, info, err, mode)
		}
	}
	if got := known(t, a); got != "w.0" {
		t.Errorf("the arbiter knows %q", got)
	}
}

func TestTelIsTheUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to prepare a task of another user")
	}
	folder := fakeRun(t)
	a := openFake(t, folder, newFakeDevices("GPU-a"))
	task := aTask("w.0", 250, 800, "GPU-a")
	task.UserID = 12345
	if _, err := a.Prepare(testContext(t), task); err != nil {
		t.Fatal(err)
	}
	for name, owner := range map[string]uint32{"tel": 12345, "ctl": 0, "book": 0} {
		var stat unix.Stat_t
		if err := unix.Stat(filepath.Join(folder, "tasks/w.0", name), &stat); err != nil || stat.Uid != owner {
			t.Errorf("%s belongs to %d (%v), want %d", name, stat.Uid, err, owner)
		}
	}
}

func TestPrepareAndUnprepareAgain(t *testing.T) {
	folder := fakeRun(t)
	a := openFake(t, folder, newFakeDevices("GPU-a"))
	ctx := testContext(t)
	task := aTask("w.0", 250, 800, "GPU-a")
	first, err := a.Prepare(ctx, task)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(filepath.Join(folder, "tasks/w.0/ctl"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := a.Prepare(ctx, task)
	if err != nil || !reflect.DeepEqual(first, second) {
		t.Errorf("prepared again: %+v, %v; first %+v", second, err, first)
	}
	after, err := os.Stat(filepath.Join(folder, "tasks/w.0/ctl"))
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("prepared again made another page: %v", err)
	}
	other := aTask("w.0", 300, 800, "GPU-a")
	if _, err := a.Prepare(ctx, other); err == nil || !strings.Contains(err.Error(), "use Update") {
		t.Errorf("prepared with other grants: %v", err)
	}
	for range 2 {
		if err := a.Unprepare(ctx, "w.0"); err != nil {
			t.Fatal(err)
		}
	}
	if entries, _ := os.ReadDir(filepath.Join(folder, "tasks")); len(entries) != 0 {
		t.Errorf("left in tasks: %v", entries)
	}
	if got := known(t, a); got != "" || len(a.Prepared()) != 0 {
		t.Errorf("the arbiter knows %q, prepared %v", got, a.Prepared())
	}
}

// A task ends also where that it does cannot be written into its record, as on a full disk.
func TestEndsWithoutRecord(t *testing.T) {
	folder := fakeRun(t)
	a := openFake(t, folder, newFakeDevices("GPU-a"))
	ctx := testContext(t)
	if _, err := a.Prepare(ctx, aTask("w.0", 250, 800, "GPU-a")); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(folder, "tasks/w.0", recordName)
	if err := errors.Join(os.Remove(record), os.MkdirAll(filepath.Join(record, "in the way"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := a.Unprepare(ctx, "w.0"); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(filepath.Join(folder, "tasks")); len(entries) != 0 {
		t.Errorf("left in tasks: %v", entries)
	}
	if got := known(t, a); got != "" || len(a.Prepared()) != 0 {
		t.Errorf("the arbiter knows %q, prepared %v", got, a.Prepared())
	}
}

func TestFloorsNeverExceedADevice(t *testing.T) {
	a := openFake(t, fakeRun(t), newFakeDevices("GPU-a", "GPU-b"))
	ctx := testContext(t)
	if _, err := a.Prepare(ctx, aTask("one", 600, 1000, "GPU-a")); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Prepare(ctx, aTask("two", 401, 1000, "GPU-b", "GPU-a")); err == nil || !strings.Contains(err.Error(), "floors of 600") {
		t.Errorf("floors of 1001 thousandths: %v", err)
	}
	if got := known(t, a); got != "one" {
		t.Errorf("the arbiter knows %q after a refusal", got)
	}
	big := aTask("big", 0, 1000, "GPU-a")
	big.Grants[0].MemFloor, big.Grants[0].MemCeiling = 15<<30+1, 16<<30
	if _, err := a.Prepare(ctx, big); err == nil || !strings.Contains(err.Error(), "memory floor") {
		t.Errorf("memory floors over the device's: %v", err)
	}
	if _, err := a.Prepare(ctx, aTask("two", 400, 1000, "GPU-a")); err != nil {
		t.Errorf("floors of exactly one device: %v", err)
	}
	up := aTask("two", 401, 1000, "GPU-a").Grants
	if err := a.Update(ctx, "two", up, Flags{}); err == nil {
		t.Error("raised a floor past the device")
	}
	if err := a.Update(ctx, "one", aTask("one", 599, 900, "GPU-a").Grants, Flags{}); err != nil {
		t.Error(err)
	}
	if err := a.Update(ctx, "two", up, Flags{}); err != nil {
		t.Errorf("raised a floor to what is left: %v", err)
	}
}

func TestPrepareRefuses(t *testing.T) {
	a := openFake(t, fakeRun(t), newFakeDevices("GPU-a", "GPU-b"))
	change := func(f func(*Task)) Task {
		task := aTask("w.0", 250, 800, "GPU-a")
		f(&task)
		return task
	}
	grant := func(f func(*Grant)) Task { return change(func(task *Task) { f(&task.Grants[0]) }) }
	tests := map[string]Task{
		"no UID":            change(func(t *Task) { t.UID = "" }),
		"a path":            change(func(t *Task) { t.UID = "a/b" }),
		"hidden":            change(func(t *Task) { t.UID = ".new-a" }),
		"long":              change(func(t *Task) { t.UID = strings.Repeat("u", page.UIDLen) }),
		"no grants":         change(func(t *Task) { t.Grants = nil }),
		"two on one device": change(func(t *Task) { t.Grants = append(t.Grants, t.Grants[0]) }),
		"unknown device":    grant(func(g *Grant) { g.Device = "GPU-z" }),
		"negative floor":    grant(func(g *Grant) { g.Floor = -1 }),
		"floor too high":    grant(func(g *Grant) { g.Floor, g.Ceiling = 1001, 1001 }),
		"ceiling too low":   grant(func(g *Grant) { g.Ceiling = 249 }),
		"ceiling nothing":   grant(func(g *Grant) { g.Floor, g.Ceiling = 0, 0 }),
		"ceiling too high":  grant(func(g *Grant) { g.Ceiling = 1001 }),
		"no weight":         grant(func(g *Grant) { g.Weight = 0 }),
		"negative memory":   grant(func(g *Grant) { g.MemFloor = -1 }),
		"memory upside down": grant(func(g *Grant) {
			g.MemFloor, g.MemCeiling = 2, 1
		}),
		"more memory than the device": grant(func(g *Grant) { g.MemCeiling = 16<<30 + 1 }),
	}
	for name, task := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := a.Prepare(testContext(t), task); err == nil {
				t.Error("prepared")
			}
		})
	}
	if got := known(t, a); got != "" {
		t.Errorf("the arbiter knows %q", got)
	}
	if entries, _ := os.ReadDir(a.run.tasks()); len(entries) != 0 {
		t.Errorf("left in tasks: %v", entries)
	}
}

func TestUpdateInPlace(t *testing.T) {
	folder := fakeRun(t)
	a := openFake(t, folder, newFakeDevices("GPU-a", "GPU-b"))
	ctx := testContext(t)
	if _, err := a.Prepare(ctx, aTask("w.0", 250, 800, "GPU-a", "GPU-b")); err != nil {
		t.Fatal(err)
	}
	ctl, err := page.Open[page.Ctl](filepath.Join(folder, "tasks/w.0/ctl"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer ctl.Close()
	// In another order than the page's: each grant must still reach its own entry.
	grants := aTask("w.0", 100, 600, "GPU-b", "GPU-a").Grants
	grants[0].Floor = 50
	if err := a.Update(ctx, "w.0", grants, Flags{LatencyClass: true}); err != nil {
		t.Fatal(err)
	}
	_ = ctl.View(func(c *page.Ctl) error {
		for i, floor := range []uint32{100, 50} {
			if p, ok := c.Grant[i].Policy(); !ok || p.Floor != floor || p.Ceiling != 600 || p.Flags != page.PolicyLatency {
				t.Errorf("entry %d: %+v, %v", i, p, ok)
			}
		}
		return nil
	})
	prepared := a.Prepared()
	if len(prepared) != 1 || prepared[0].Grants[0].Device != "GPU-a" || prepared[0].Grants[0].Floor != 100 || !prepared[0].Flags.LatencyClass {
		t.Errorf("prepared: %+v", prepared)
	}
	if err := a.Update(ctx, "w.0", aTask("w.0", 1, 1, "GPU-a").Grants, Flags{}); err == nil || !strings.Contains(err.Error(), "keeps its devices") {
		t.Errorf("took a device away: %v", err)
	}
	if err := a.Update(ctx, "w.1", grants, Flags{}); err == nil || !strings.Contains(err.Error(), "not prepared") {
		t.Errorf("updated what is not prepared: %v", err)
	}
}

// TestUpdateThatTheArbiterRefuses leaves everything as it was: the record, the page, and what the agent says.
func TestUpdateThatTheArbiterRefuses(t *testing.T) {
	folder := fakeRun(t)
	a := openFake(t, folder, newFakeDevices("GPU-a"))
	ctx := testContext(t)
	task := aTask("w.0", 250, 800, "GPU-a")
	if _, err := a.Prepare(ctx, task); err != nil {
		t.Fatal(err)
	}
	if _, err := a.arbiter.request(ctx, "del w.0"); err != nil { // as one that could not take it up
		t.Fatal(err)
	}
	if err := a.Update(ctx, "w.0", aTask("w.0", 100, 600, "GPU-a").Grants, Flags{}); err == nil {
		t.Fatal("the arbiter took a policy of a task that it does not know")
	}
	if got := a.Prepared(); len(got) != 1 || !reflect.DeepEqual(got[0], task) {
		t.Errorf("prepared: %+v, want %+v", got, task)
	}
	ctl, err := page.Open[page.Ctl](filepath.Join(folder, "tasks/w.0/ctl"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer ctl.Close()
	_ = ctl.View(func(c *page.Ctl) error {
		if p, ok := c.Grant[0].Policy(); !ok || p.Floor != 250 || p.Ceiling != 800 {
			t.Errorf("its page: %+v, %v", p, ok)
		}
		return nil
	})
	closeAgent(t, a)
	if got := openFake(t, folder, newFakeDevices("GPU-a")).Prepared(); len(got) != 1 || !reflect.DeepEqual(got[0], task) {
		t.Errorf("its record: %+v, want %+v", got, task)
	}
}

// TestNewAgentTakesOver: what one agent prepared the next finds, by its files alone, and the arbiter is left running.
func TestNewAgentTakesOver(t *testing.T) {
	folder := fakeRun(t)
	ctx := testContext(t)
	a := openFake(t, folder, newFakeDevices("GPU-a", "GPU-b"))
	task := aTask("w.0", 250, 800, "GPU-a", "GPU-b")
	task.Flags.LatencyClass = true
	launch, err := a.Prepare(ctx, task)
	if err != nil {
		t.Fatal(err)
	}
	arbiter := a.arbiter.current().pid
	if _, err := tryFake(ctx, folder, newFakeDevices("GPU-a")); err == nil || !strings.Contains(err.Error(), "a server works there already") {
		t.Errorf("a second agent beside the first: %v", err)
	}
	closeAgent(t, a)
	closeAgent(t, a)

	b := openFake(t, folder, newFakeDevices("GPU-a", "GPU-b"))
	if b.arbiter.current().pid != arbiter {
		t.Errorf("arbiter %d was replaced by %d", arbiter, b.arbiter.current().pid)
	}
	if got := b.Prepared(); len(got) != 1 || !reflect.DeepEqual(got[0], task) {
		t.Errorf("prepared: %+v, want %+v", got, task)
	}
	if again, err := b.Prepare(ctx, task); err != nil || !reflect.DeepEqual(again, launch) {
		t.Errorf("prepared again: %+v, %v; want %+v", again, err, launch)
	}
}

// TestLockOfOneThatIsGone: the lock of an agent that has ended, which something that it was starting still holds, is waited for, also where its pid
// is another process' by now; that of one that works is refused at once.
func TestLockOfOneThatIsGone(t *testing.T) {
	r, err := prepareRun(filepath.Join(t.TempDir(), "run"))
	if err != nil {
		t.Fatal(err)
	}
	held, err := lockRun(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockRun(r); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("a server works there already (pid %d)", os.Getpid())) {
		t.Errorf("of this process: %v", err)
	}
	for _, whose := range []string{strconv.Itoa(os.Getpid()) + " 1\n", "1073741824 1\n", "1073741824\n"} {
		if err := os.WriteFile(r.path("agent.lock"), []byte(whose), 0o600); err != nil {
			t.Fatal(err)
		}
		type taken struct {
			file *os.File
			err  error
		}
		got := make(chan taken)
		go func() {
			file, err := lockRun(r)
			got <- taken{file, err}
		}()
		if err := held.Close(); err != nil {
			t.Fatal(err)
		}
		next := <-got
		if next.err != nil {
			t.Fatalf("of %q: %v", whose, next.err)
		}
		held = next.file
	}
	if err := held.Close(); err != nil {
		t.Error(err)
	}
}

// A host's run folder is taken by its like alone, also when nobody works in it: another would take back what runs there.
func TestRunOfAnotherHost(t *testing.T) {
	folder := t.TempDir()
	take := func(host string) error {
		a, err := newAgent(Config{Run: folder, Host: host})
		if err != nil {
			return err
		}
		return a.lock.Close()
	}
	for _, step := range []struct{ host, error string }{{host: ""}, {host: "local"}, {host: "kube", error: "it serves host local"}, {host: "local"}, {host: ""}} {
		err := take(step.host)
		if step.error == "" && err != nil || step.error != "" && (err == nil || !strings.Contains(err.Error(), step.error)) {
			t.Errorf("host %q: got %v, want %q", step.host, err, step.error)
		}
	}
}

func TestShutdown(t *testing.T) {
	folder := fakeRun(t)
	ctx := testContext(t)
	a := openFake(t, folder, newFakeDevices("GPU-a"))
	if _, err := a.Prepare(ctx, aTask("w.0", 250, 800, "GPU-a")); err != nil {
		t.Fatal(err)
	}
	if err := a.Shutdown(ctx, false); err == nil || !strings.Contains(err.Error(), "1 tasks are prepared") {
		t.Errorf("shut down with a task prepared: %v", err)
	}
	if err := a.Unprepare(ctx, "w.0"); err != nil {
		t.Fatal(err)
	}
	if err := a.Shutdown(ctx, false); err != nil {
		t.Fatal(err)
	}
	if p := server(run(folder).control()); p != nil {
		t.Errorf("process %d still serves as arbiter", p.pid)
		p.close()
	}
}

func TestDeviceHealth(t *testing.T) {
	folder := fakeRun(t)
	devices := newFakeDevices("GPU-a", "GPU-b")
	a := openFake(t, folder, devices)
	ctx := testContext(t)
	steps := []struct {
		condition device.Condition
		kind      NoticeKind
		health    api.DeviceHealth
		state     uint32
	}{
		{device.Sick, DeviceSick, api.Draining, page.DeviceDraining},
		{device.Gone, DeviceDown, api.Down, page.DeviceDown},
		{device.Well, DeviceBack, api.Healthy, page.DeviceOK},
	}
	for _, step := range steps {
		devices.events <- device.Event{UUID: "GPU-b", Condition: step.condition, Reason: "a reason"}
		if n := nextNotice(t, a, step.kind); n.Device != "GPU-b" || !strings.Contains(n.Message, "a reason") {
			t.Errorf("notice %+v", n)
		}
		if d := a.Devices()[1]; d.Health != step.health {
			t.Errorf("health %s, want %s", d.Health, step.health)
		}
		m, err := page.Open[page.Device](filepath.Join(folder, "devices/GPU-b"), false)
		if err != nil {
			t.Fatal(err)
		}
		_ = m.View(func(d *page.Device) error {
			if d.State.Load() != step.state {
				t.Errorf("the page says %d, want %d", d.State.Load(), step.state)
			}
			return nil
		})
		m.Close()
		_, err = a.Prepare(ctx, aTask("w.0", 250, 800, "GPU-b"))
		if refused := err != nil; refused != (step.health != api.Healthy) {
			t.Errorf("prepare on a device that is %s: %v", step.health, err)
		}
	}
}

// TestDeviceVanishes: a device that the driver no longer lists is down for the tasks on it, and forgotten when there are none.
func TestDeviceVanishes(t *testing.T) {
	folder := fakeRun(t)
	a := openFake(t, folder, newFakeDevices("GPU-a", "GPU-b", "GPU-c"))
	if _, err := a.Prepare(testContext(t), aTask("w.0", 250, 800, "GPU-b")); err != nil {
		t.Fatal(err)
	}
	closeAgent(t, a)
	b := openFake(t, folder, newFakeDevices("GPU-a"))
	if n := nextNotice(t, b, DeviceDown); n.Device != "GPU-b" {
		t.Errorf("notice %+v", n)
	}
	devices := b.Devices()
	if len(devices) != 2 || devices[1].UUID != "GPU-b" || devices[1].Health != api.Down {
		t.Errorf("devices %+v", devices)
	}
	if _, err := os.Stat(filepath.Join(folder, "devices/GPU-c")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the page of a device that is gone remains: %v", err)
	}
	if err := b.Unprepare(testContext(t), "w.0"); err != nil {
		t.Error(err)
	}
}

func TestRunFolder(t *testing.T) {
	if _, err := newAgent(Config{Run: "/tmp/" + strings.Repeat("x", 120)}); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("too long a path: %v", err)
	}
	open := filepath.Join(shortFolder(t), "open")
	if err := errors.Join(os.Mkdir(open, 0o755), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := newAgent(Config{Run: open}); err == nil || !strings.Contains(err.Error(), "others may write") {
		t.Errorf("a folder that others may write to: %v", err)
	}
	link := open + ".link"
	if err := os.Symlink(filepath.Dir(open), link); err != nil {
		t.Fatal(err)
	}
	if _, err := newAgent(Config{Run: link}); err == nil || !strings.Contains(err.Error(), "not a folder") {
		t.Errorf("a link: %v", err)
	}
}

// TestContainer: of the run folder a container of a task is given what its devices need and the task's own folder, and may write of that the tenant's page alone.
func TestContainer(t *testing.T) {
	folder := fakeRun(t)
	a := openFake(t, folder, newFakeDevices("GPU-a", "GPU-b"))
	if _, err := a.Container("w.0"); err == nil || !strings.Contains(err.Error(), "prepare it first") {
		t.Errorf("of a task that is not prepared: %v", err)
	}
	if _, err := a.Prepare(testContext(t), aTask("w.0", 250, 800, "GPU-b", "GPU-a")); err != nil {
		t.Fatal(err)
	}
	task := filepath.Join(folder, "tasks/w.0")
	want := Container{
		Env: []string{"ALIQUOT_TASK=" + task, "DEVICES=GPU-b,GPU-a"},
		Mounts: []Mount{
			{Source: "/from", Target: "/to", ReadOnly: true},
			{Source: task, Target: task, ReadOnly: true},
			{Source: task + "/tel", Target: task + "/tel"},
			{Source: task, Target: "/place", ReadOnly: true},
			{Source: task + "/tel", Target: "/place/tel"},
		},
		Devices:   []string{"/dev/fake0"},
		Libraries: []device.Library{{Name: "libfake.so", By: "/to"}}, Behind: []string{"/real"},
		Pages: task,
	}
	if got, err := a.Container("w.0"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}
