package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node/page"
)

const (
	// wantedLook is how often devices on which memory floors may be lent are asked for owners that want theirs back.
	wantedLook = 50 * time.Millisecond

	// wantedAgain is how often a notice is given again of what is still wanted.
	wantedAgain = time.Second

	// idleAfter is how long ago the last launch of a borrower must be for it to count as idle.
	idleAfter = 10 * time.Second
)

// Reclaim is memory within floors that owners wait for and others have borrowed on one device.
type Reclaim struct {
	Owner     string     // the task that has waited longest
	Memory    api.Bytes  // that is missing for all who wait
	Borrowers []Borrower // in the order in which they are to end
}

// Borrower is a task that holds memory above its floor on a device and may be stopped for it.
type Borrower struct {
	Task string
	Held api.Bytes // that comes back when it ends
	Idle bool      // nothing of it computes or waits to, by its own word, nor did in the last 10 s
}

// watchWanted takes in what the arbiter says of owners that wait for memory, until ctx ends.
func (a *Agent) watchWanted(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		next := stallLook
		for _, uuid := range a.lendingDevices() {
			next = wantedLook
			a.lookForWanted(uuid, monotonic())
		}
		pause.Reset(next)
	}
}

// lendingDevices are those with a task that may borrow floors.
func (a *Agent) lendingDevices() (uuids []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.tasks {
		if !t.Task.Flags.Revocable {
			continue
		}
		for _, g := range t.Task.Grants {
			if !slices.Contains(uuids, g.Device) {
				uuids = append(uuids, g.Device)
			}
		}
	}
	return uuids
}

// lookForWanted reads one device's page and gives a notice of what is wanted there; now is a time of the pages' clock. A page that cannot be
// read, or that nobody has written of late, says nothing.
func (a *Agent) lookForWanted(uuid string, now uint64) {
	a.mu.Lock()
	d := a.devices[uuid]
	a.mu.Unlock()
	var entry page.DeviceEntry
	ok := false
	if d == nil || d.page.View(func(p *page.Device) error { entry, ok = p.Read(); return nil }) != nil || !ok {
		return
	}
	wanted := entry.Wanted
	if wanted.Memory != 0 && now > entry.Updated && duration(now-entry.Updated) > stallStale {
		return
	}
	a.mu.Lock()
	known := wanted.Memory == 0 || wanted == d.wanted && now >= d.wantedTold && duration(now-d.wantedTold) < wantedAgain
	d.wanted = wanted
	if !known {
		d.wantedTold = now
	}
	a.mu.Unlock()
	if known {
		return
	}
	reclaim := &Reclaim{Owner: wanted.Task, Memory: api.Bytes(min(wanted.Memory, uint64(d.Memory))), Borrowers: a.borrowers(uuid, now)}
	a.notify(Notice{Kind: MemoryWanted, Device: uuid, Task: wanted.Task, Reclaim: reclaim, Message: fmt.Sprintf(
		"Task %s waits for memory of its floor on device %s, where %s of floors are lent and wanted.", wanted.Task, uuid, reclaim.Memory)})
}

// borrowers lists the tasks that hold memory above their floors on a device and may be stopped for it, those first whose end costs least:
// idle ones, and of these, as of the others, those that have borrowed most, so that few end.
func (a *Agent) borrowers(uuid string, now uint64) []Borrower {
	var list []Borrower
	borrowed := map[string]api.Bytes{}
	for _, t := range a.listTasks() {
		i := slices.IndexFunc(t.asked.Grants, func(g Grant) bool { return g.Device == uuid })
		held := make([]MemoryHeld, len(t.asked.Grants))
		if i < 0 || !t.asked.Flags.Revocable || t.task.readMemory(t.asked, a.capacity, held) != nil || held[i].Granted <= held[i].Firm {
			continue
		}
		borrowed[t.asked.UID] = held[i].Granted - held[i].Firm
		list = append(list, Borrower{Task: t.asked.UID, Held: held[i].Granted, Idle: t.task.idle(i, now)})
	}
	slices.SortFunc(list, func(x, y Borrower) int {
		if x.Idle != y.Idle {
			if x.Idle {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(borrowed[y.Task], borrowed[x.Task]), cmp.Compare(x.Task, y.Task))
	})
	return list
}

// idle says that nothing of a task computes on a device or waits to, nor did of late; now is a time of the pages' clock.
func (t *task) idle(grant int, now uint64) bool {
	idle := true
	if t.tel == nil {
		return false
	}
	err := t.tel.View(func(tel *page.Tel) error {
		for _, p := range tel.Processes() {
			entry := &tel.Slot[p.Slot].Grant[grant]
			idle = idle && entry.WaitSinceNS.Load() == 0 && entry.Launched.Load() <= entry.Completed.Load() &&
				entry.LastLaunchNS.Load()+uint64(idleAfter) < now
		}
		return nil
	})
	return err == nil && idle
}
