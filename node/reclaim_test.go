package node

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node/page"
)

const gib = api.Bytes(1) << 30

// revocable is a task that may be stopped for what it borrows, and holds so much.
func revocable(t *testing.T, a *Agent, uid string, held api.Bytes, launched uint64) Task {
	t.Helper()
	task := aTask(uid, 10, 1000, "GPU-a")
	task.Grants[0].MemFloor, task.Grants[0].MemCeiling = gib, 10*gib
	task.Flags.Revocable = true
	if _, err := a.Prepare(testContext(t), task); err != nil {
		t.Fatal(err)
	}
	tel, err := page.Open[page.Tel](filepath.Join(a.run.task(uid), "tel"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer tel.Close()
	_ = tel.View(func(tel *page.Tel) error { register(tel, 0, 1).LastLaunchNS.Store(launched); return nil })
	_ = a.task(t, uid).ctl.View(func(c *page.Ctl) error { c.Grant[0].MemGranted.Store(uint64(held)); return nil })
	return task
}

// writeWanted writes what an arbiter says of memory that owners wait for.
func writeWanted(t *testing.T, folder, uuid string, memory api.Bytes, uid string, updated uint64) {
	t.Helper()
	m, err := page.Open[page.Device](filepath.Join(folder, "devices", uuid), true)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var text [page.UIDLen]byte
	copy(text[:], uid)
	_ = m.View(func(d *page.Device) error {
		d.Seq.Add(1)
		d.UpdatedNS.Store(updated)
		d.MemWanted.Store(uint64(memory))
		d.MemWantedSinceNS.Store(updated)
		for i := range d.MemWantedUID {
			d.MemWantedUID[i].Store(binary.LittleEndian.Uint64(text[8*i:]))
		}
		d.Seq.Add(1)
		return nil
	})
}

// TestWantedMemory: a notice says what an owner waits for and who has borrowed it, those first whose end costs least, again while it is so,
// and nothing by a page that nobody writes.
func TestWantedMemory(t *testing.T) {
	folder := fakeRun(t)
	a := openFake(t, folder, newFakeDevices("GPU-a"))
	now := uint64(2 * time.Minute) // long ago by the machine's clock: what the agent itself reads in this test it takes for stale
	lately, long := now-uint64(time.Second), now-uint64(time.Minute)
	revocable(t, a, "busy.big", 6*gib, lately)
	revocable(t, a, "idle.small", 2*gib, long)
	revocable(t, a, "busy.small", 3*gib, lately)
	revocable(t, a, "idle.big", 4*gib, long)
	revocable(t, a, "modest", gib, long)
	keeps := aTask("keeps", 10, 1000, "GPU-a")
	if _, err := a.Prepare(testContext(t), keeps); err != nil {
		t.Fatal(err)
	}
	if got := a.lendingDevices(); len(got) != 1 || got[0] != "GPU-a" {
		t.Errorf("floors may be lent on %v", got)
	}
	for _, held := range a.MemoryHeld() {
		if firm := min(held.Granted, gib); held.Firm != firm {
			t.Errorf("of %s that %s has %s cannot be taken back, not %s", held.Granted, held.Task, held.Firm, firm)
		}
	}
	writeWanted(t, folder, "GPU-a", 5*gib, "keeps", now-2*uint64(stallStale))
	a.lookForWanted("GPU-a", now)
	writeWanted(t, folder, "GPU-a", 5*gib, "keeps", now)
	a.lookForWanted("GPU-a", now)
	n := nextNotice(t, a, MemoryWanted)
	var order []string
	for _, one := range n.Reclaim.Borrowers {
		order = append(order, fmt.Sprintf("%s %s %v", one.Task, one.Held, one.Idle))
	}
	if got := strings.Join(order, ", "); n.Device != "GPU-a" || n.Reclaim.Owner != "keeps" || n.Reclaim.Memory != 5*gib ||
		got != "idle.big 4Gi true, idle.small 2Gi true, busy.big 6Gi false, busy.small 3Gi false" {
		t.Errorf("notice %+v of %s", n.Reclaim, got)
	}
	a.lookForWanted("GPU-a", now+1)
	a.lookForWanted("GPU-a", now+uint64(wantedAgain)-1)
	writeWanted(t, folder, "GPU-a", 3*gib, "keeps", now)
	a.lookForWanted("GPU-a", now+2)
	if n := nextNotice(t, a, MemoryWanted); n.Reclaim.Memory != 3*gib {
		t.Errorf("told again too soon: %+v", n.Reclaim)
	}
	a.lookForWanted("GPU-a", now+2+uint64(wantedAgain)/2)
	again := now + 2 + uint64(wantedAgain)
	if err := touched(folder, "GPU-a", again); err != nil {
		t.Fatal(err)
	}
	a.lookForWanted("GPU-a", again)
	if n := nextNotice(t, a, MemoryWanted); n.Reclaim.Memory != 3*gib {
		t.Errorf("told again: %+v", n.Reclaim)
	}
}

// touched has a device's page be written by an arbiter that has no news.
func touched(folder, uuid string, at uint64) error {
	m, err := page.Open[page.Device](filepath.Join(folder, "devices", uuid), true)
	if err != nil {
		return err
	}
	defer m.Close()
	return m.View(func(d *page.Device) error { d.UpdatedNS.Store(at); return nil })
}

// TestLentFloor: with everything real. An idle floor is lent to a task that may be stopped for it and to no other; its owner's allocation
// waits for it, the agent tells of that, and once the borrower has ended the owner has all of its floor by the driver's word. A
// new task's floor is had in the same way.
func TestLentFloor(t *testing.T) {
	a := openWhole(t, shortFolder(t), "a10x1")
	device := a.Devices()[0]
	owner := aTask("owner", 100, 1000, device.UUID)
	owner.Grants[0].MemFloor, owner.Grants[0].MemCeiling = 12*gib, 12*gib
	owns := prepareAndStart(t, a, owner)
	firm := aTask("firm", 100, 1000, device.UUID)
	firm.Grants[0].MemFloor, firm.Grants[0].MemCeiling = gib, device.Memory
	if got := prepareAndStart(t, a, firm).tell("hold 12288"); got != "refused" {
		t.Errorf("a floor that is lent to one that cannot be stopped: %s", got)
	}
	borrower := aTask("borrower", 100, 1000, device.UUID)
	borrower.Grants[0].MemFloor, borrower.Grants[0].MemCeiling, borrower.Flags.Revocable = gib, device.Memory, true
	borrows := prepareAndStart(t, a, borrower)
	if got := borrows.tell("hold 18432"); got != "held" {
		t.Fatalf("an idle floor: %s", got)
	}
	late := aTask("late", 100, 1000, device.UUID)
	late.Grants[0].MemFloor, late.Grants[0].MemCeiling = 2*gib, 2*gib
	starts := prepareAndStart(t, a, late)
	for _, one := range []struct {
		program *tenant
		task    Task
		hold    int
	}{{owns, owner, 11 << 10}, {starts, late, 1 << 10}} {
		if _, err := fmt.Fprintf(one.program.input, "hold %d\n", one.hold); err != nil {
			t.Fatal(err)
		}
		if one.task.UID == "owner" {
			n := nextNotice(t, a, MemoryWanted)
			if r := n.Reclaim; r.Owner != "owner" || r.Memory < gib || len(r.Borrowers) != 1 || r.Borrowers[0].Task != "borrower" || r.Borrowers[0].Held < 18*gib {
				t.Fatalf("notice %+v", n.Reclaim)
			}
			borrows.end()
		}
		if got := one.program.line(); got != "held" {
			t.Errorf("%s has its floor: %s", one.task.UID, got)
		}
	}
	for _, use := range sample(t, a).Tasks {
		if use.MemoryByDriver == nil || *use.MemoryByDriver != use.Memory {
			t.Errorf("%s holds %s, by the driver's word %v", use.Task, use.Memory, use.MemoryByDriver)
		}
	}
}
