package node

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node/page"
)

// reserve writes into a device's page what the arbiter would: the memory that is taken, floors or more.
func reserve(t *testing.T, a *Agent, device string, memory api.Bytes) {
	t.Helper()
	if err := a.devices[device].page.View(func(p *page.Device) error { p.MemReserved.Store(uint64(memory)); return nil }); err != nil {
		t.Fatal(err)
	}
}

// TestFloorOnHeldMemory: a memory floor that others hold above theirs is refused, and nothing is left of the attempt.
func TestFloorOnHeldMemory(t *testing.T) {
	folder := fakeRun(t)
	ctx := testContext(t)
	a := openFake(t, folder, newFakeDevices("GPU-a"))
	reserve(t, a, "GPU-a", 17<<30)
	task := aTask("w.0", 250, 800, "GPU-a")
	_, err := a.Prepare(ctx, task)
	if err == nil || !strings.Contains(err.Error(), "a memory floor of 1Gi on device 0: others there hold memory above their floors, and with it 17Gi of 16Gi would be taken") {
		t.Errorf("prepared on memory that is held: %v", err)
	}
	entries, _ := os.ReadDir(a.run.tasks())
	if left := a.Prepared(); len(left) != 0 || len(entries) != 0 || known(t, a) != "" {
		t.Errorf("left behind: %+v, folders %v, and the arbiter knows %q", left, entries, known(t, a))
	}
	free := task
	free.Grants = append([]Grant(nil), task.Grants...)
	free.Grants[0].MemFloor = 0
	if _, err := a.Prepare(ctx, free); err != nil {
		t.Errorf("one without a memory floor takes nothing: %v", err)
	}

	higher := append([]Grant(nil), free.Grants...)
	higher[0].MemFloor = 1 << 30
	if err := a.Update(ctx, "w.0", higher, Flags{LatencyClass: true}); err == nil || !strings.Contains(err.Error(), "a memory floor of 1Gi on device 0") {
		t.Errorf("raised a floor on memory that is held: %v", err)
	}
	if got := a.Prepared(); len(got) != 1 || !reflect.DeepEqual(got[0], free) {
		t.Errorf("after a refused change it has %+v, want %+v", got, free)
	}
	if err := a.task(t, "w.0").ctl.View(func(c *page.Ctl) error {
		if p, ok := c.Grant[0].Policy(); !ok || p.MemFloor != 0 || p.Flags != 0 {
			t.Errorf("after a refused change its page says %+v", p)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	reserve(t, a, "GPU-a", 16<<30)
	if err := a.Update(ctx, "w.0", higher, Flags{}); err != nil {
		t.Errorf("a floor that just fits: %v", err)
	}
	// What was taken over runs, whatever the sum; a change that takes nothing more goes through.
	reserve(t, a, "GPU-a", 20<<30)
	closeAgent(t, a)
	b := openFake(t, folder, newFakeDevices("GPU-a"))
	if got := b.Prepared(); len(got) != 1 {
		t.Errorf("taken over: %+v", got)
	}
	if err := b.Update(ctx, "w.0", free.Grants, Flags{}); err != nil {
		t.Errorf("a lower floor on a device that is too full: %v", err)
	}
}

func (a *Agent) task(t *testing.T, uid string) *task {
	t.Helper()
	found := a.find(uid)
	if found == nil {
		t.Fatalf("%s is not prepared", uid)
	}
	return found
}

// TestHeldMemory: with everything real. What a program holds above its floor is told, cannot be granted to another as a floor nor be
// taken by a lower ceiling; what it does not use is taken back for a floor.
func TestHeldMemory(t *testing.T) {
	a := openWhole(t, shortFolder(t), "a10x1")
	ctx := testContext(t)
	device := a.Devices()[0]
	hog := aTask("hog", 100, 1000, device.UUID)
	hog.Grants[0].MemFloor, hog.Grants[0].MemCeiling = 1<<30, 20<<30
	program := prepareAndStart(t, a, hog)
	if got := program.tell("hold 12288"); got != "held" {
		t.Fatalf("memory above its floor: %s", got)
	}
	held := a.MemoryHeld()
	if len(held) != 1 || held[0].Task != "hog" || held[0].Grant != hog.Grants[0] || held[0].Used < 12<<30 || held[0].Granted < held[0].Used {
		t.Fatalf("held: %+v", held)
	}

	second := aTask("second", 100, 1000, device.UUID)
	second.Grants[0].MemFloor, second.Grants[0].MemCeiling = 12<<30, 12<<30
	if _, err := a.Prepare(ctx, second); err == nil || !strings.Contains(err.Error(), "others there hold memory above their floors") {
		t.Errorf("a floor of 12Gi beside 12Gi that are held: %v", err)
	}
	if got := a.Prepared(); len(got) != 1 {
		t.Errorf("prepared: %+v", got)
	}

	lower := append([]Grant(nil), hog.Grants...)
	lower[0].MemCeiling = 5 << 30
	if err := a.Update(ctx, "hog", lower, Flags{}); err == nil || !strings.Contains(err.Error(), "a memory ceiling of 5Gi on device 0: it holds 12") || !strings.Contains(err.Error(), "ask for at least that") {
		t.Errorf("a ceiling below what is held: %v", err)
	}
	lower[0].MemCeiling = held[0].Used
	if err := a.Update(ctx, "hog", lower, Flags{}); err != nil {
		t.Errorf("a ceiling of what is held: %v", err)
	}
	// What it was granted beyond its use came back with the ceiling: the rest of the device can be a floor to the byte.
	second.Grants[0].MemFloor = device.Memory - held[0].Used
	second.Grants[0].MemCeiling = second.Grants[0].MemFloor
	if _, err := a.Prepare(ctx, second); err != nil {
		t.Errorf("a floor of all that is left: %v", err)
	}
	if s := sample(t, a); s.Tasks[0].Memory != held[0].Used {
		t.Errorf("the meters say %s, its processes %s", s.Tasks[0].Memory, held[0].Used)
	}
}

// TestUnusedMemoryComesBack: memory that was granted above a floor and is not used is taken back for a new floor at once.
func TestUnusedMemoryComesBack(t *testing.T) {
	a := openWhole(t, shortFolder(t), "a10x1")
	device := a.Devices()[0]
	first := aTask("first", 100, 1000, device.UUID)
	first.Grants[0].MemFloor, first.Grants[0].MemCeiling = 1<<30, 20<<30
	program := prepareAndStart(t, a, first)
	if got := program.tell("hold 4100"); got != "held" {
		t.Fatalf("memory above its floor: %s", got)
	}
	held := a.MemoryHeld()[0]
	if held.Granted == held.Used {
		t.Fatalf("nothing is granted beyond use (%s), so there is nothing to take back", held.Used)
	}
	second := aTask("second", 100, 1000, device.UUID)
	second.Grants[0].MemFloor = device.Memory - held.Used
	second.Grants[0].MemCeiling = second.Grants[0].MemFloor
	if _, err := a.Prepare(testContext(t), second); err != nil {
		t.Errorf("a floor of all that is not used: %v", err)
	}
}
