package node

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node/device"
	"github.com/aliquot-dev/aliquot/node/page"
)

// Sample reads all meters: the books for where time went, the tenants' own counters for launches and memory, the driver for
// what it sees of the devices. What cannot be read now (an arbiter that died while writing, a device that does not answer)
// stays as it was last read, or nil where that is allowed for.
//
// Times are as of now, or, where the arbiter is away, as it last settled them (each 100 ms while a device is in use). Launches of processes that have ended are
// kept in the book, so none is lost; while one is just ending the count may stand still for a moment. Memory is what the
// processes themselves account.
func (a *Agent) Sample(ctx context.Context) (Sample, error) {
	readings := a.readDevices() // before the pages: see strays
	a.settle(ctx)
	if err := ctx.Err(); err != nil {
		return Sample{}, err
	}
	sample := Sample{At: time.Now()}
	known := registered{}
	for _, t := range a.listTasks() {
		sample.Tasks = append(sample.Tasks, t.task.meter(t.asked, a.capacity, known)...)
	}
	found := surveys(readings, known, a.owners(known))
	rows := map[string]DeviceUsage{}
	for i, u := range sample.Tasks {
		sample.Tasks[i].MemoryByDriver = found[u.Grant.Device].memoryOf(u.Task)
		row := rows[u.Grant.Device]
		row.Own += u.Own
		row.Burst += u.Burst - u.BurstLent
		row.Lent += u.Lent
		row.Reserved += u.Reserved
		rows[u.Grant.Device] = row
	}
	for _, d := range a.Devices() {
		usage := a.meterDevice(d.UUID, rows[d.UUID])
		if reading, ok := readings[d.UUID]; ok {
			usage.MemoryUsed, usage.Busy, usage.Unseen = reading.MemoryUsed, reading.Busy, reading.Unseen
			usage.Unenforced = found[d.UUID].strays
			a.noticeStrays(d.UUID, found[d.UUID])
		}
		sample.Devices = append(sample.Devices, usage)
	}
	return sample, nil
}

// Used reads the meters of one prepared task, as Sample does: what each of its grants has used until now. Nil for a task that is not
// prepared.
func (a *Agent) Used(ctx context.Context, uid string) []Usage {
	a.mu.Lock()
	have := a.tasks[uid]
	var asked Task
	if have != nil {
		asked = have.Task
	}
	a.mu.Unlock()
	if have == nil {
		return nil
	}
	a.settle(ctx)
	return have.meter(asked, a.capacity, registered{})
}

// readDevices is the driver's word on each device that is not down and can be read.
func (a *Agent) readDevices() map[string]device.Reading {
	readings := map[string]device.Reading{}
	for _, d := range a.Devices() {
		if d.Health == api.Down {
			continue
		}
		reading, err := a.backend.Read(d.UUID)
		if err != nil {
			a.log.Debug("a device could not be read", "device", d.UUID, "error", err)
			continue
		}
		readings[d.UUID] = reading
	}
	return readings
}

// listed is a task with what was asked for it when it was listed.
type listed struct {
	task  *task
	asked Task
}

// listTasks lists the prepared tasks by UID.
func (a *Agent) listTasks() []listed {
	a.mu.Lock()
	defer a.mu.Unlock()
	tasks := make([]listed, 0, len(a.tasks))
	for _, t := range a.tasks {
		tasks = append(tasks, listed{t, t.Task})
	}
	slices.SortFunc(tasks, func(x, y listed) int { return strings.Compare(x.asked.UID, y.asked.UID) })
	return tasks
}

// settle has the arbiter bring its books up to now, which it does when it is asked whether it is there.
func (a *Agent) settle(ctx context.Context) {
	const patience = 500 * time.Millisecond // the books as they are do, too
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := ask(ctx, a.run.control(), "ping"); err != nil {
		a.log.Debug("the books were not settled", "error", err)
	}
}

// meterDevice adds the device's own rows to those of its grants.
func (a *Agent) meterDevice(uuid string, row DeviceUsage) DeviceUsage {
	a.mu.Lock()
	d := a.devices[uuid]
	a.mu.Unlock()
	var entry page.DeviceEntry
	ok := false
	err := d.page.View(func(p *page.Device) error { entry, ok = p.Read(); return nil })
	if err != nil || !ok {
		a.mu.Lock()
		row = d.last
		a.mu.Unlock()
	} else {
		row.UUID = uuid
		row.Since = duration(entry.Updated - min(entry.Since, entry.Updated))
		row.Own += duration(entry.Ended.Own)
		row.Burst += duration(entry.Ended.BurstFree)
		row.Lent += duration(entry.Ended.Lent)
		row.Reserved += duration(entry.Ended.ReservedIdle)
		row.Idle, row.Down = duration(entry.UnreservedIdle), duration(entry.Down)
		a.mu.Lock()
		d.last = row
		a.mu.Unlock()
	}
	row.UUID = uuid
	a.mu.Lock()
	row.Stopped, row.MemoryDoubts = d.stopped, d.doubts
	a.mu.Unlock()
	return row
}

// meter reads a task's pages and adds its processes to those that are known.
func (t *task) meter(asked Task, capacity func(device string) api.Bytes, known registered) []Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, g := range asked.Grants {
		usage := &t.last[i]
		usage.Task, usage.Grant = asked.UID, g
		t.readBook(i, usage)
	}
	devices := make([]string, len(asked.Grants))
	for i, g := range asked.Grants {
		devices[i] = g.Device
	}
	user := t.user(asked)
	t.readTel(asked, capacity, func(p page.Process) {
		known[p.PID] = append(known[p.PID], registration{task: asked.UID, user: user, devices: devices, start: p.StartTime})
	})
	return slices.Clone(t.last)
}

func (t *task) readBook(i int, usage *Usage) {
	var entry page.BookEntry
	ok := false
	err := t.viewBook(func(b *page.Book) error { entry, ok = b.Grant[i].Read(); return nil })
	if err != nil || !ok {
		return
	}
	usage.Held = duration(entry.Held)
	usage.Own = duration(entry.Split.Own)
	usage.Burst = duration(entry.Split.BurstFree + entry.Split.BurstLent)
	usage.BurstLent = duration(entry.Split.BurstLent)
	usage.Lent, usage.Reserved = duration(entry.Split.Lent), duration(entry.Split.ReservedIdle)
	usage.Waited = duration(entry.Wait)
	usage.MemPeak = api.Bytes(min(entry.MemPeak, math.MaxInt64))
}

// mostUnknown is more functions than a driver has: what a process says beyond it is cut.
const mostUnknown = 10_000

// readTel reads what the task's processes say. A page that its owner has spoiled leaves the last reading, without processes.
func (t *task) readTel(asked Task, capacity func(device string) api.Bytes, each func(page.Process)) {
	for i := range t.last {
		t.last[i].Processes, t.last[i].UnknownCalls = nil, 0
	}
	if t.tel == nil {
		return
	}
	// Launches of a process that ends move from its slot to the book. They are counted between two equal readings of the book, so
	// never twice; what is missed for a moment is bridged by never letting the count fall.
	const tries = 4
	for try := range tries {
		before := t.ended()
		launches := make([]uint64, len(t.last))
		memory := make([]api.Bytes, len(t.last))
		var unknown uint64
		var processes []page.Process
		err := t.tel.View(func(tel *page.Tel) error {
			processes = tel.Processes()
			for _, p := range processes {
				unknown += min(tel.Slot[p.Slot].Grant[0].UnknownCalls.Load(), mostUnknown)
				for i := range asked.Grants {
					launches[i] += tel.Slot[p.Slot].Grant[i].Launched.Load()
				}
			}
			for i, g := range asked.Grants {
				memory[i] = usedMemory(tel, processes, i, capacity(g.Device))
			}
			return nil
		})
		if err != nil {
			return
		}
		after := t.ended()
		if !slices.Equal(before, after) && try < tries-1 {
			continue
		}
		for i := range t.last {
			usage := &t.last[i]
			usage.Launches = max(usage.Launches, launches[i]+after[i])
			usage.Memory = memory[i]
			usage.UnknownCalls = unknown
			for _, p := range processes {
				usage.Processes = append(usage.Processes, p.PID)
			}
		}
		for _, p := range processes {
			each(p)
		}
		return
	}
}

// ended is the launches of processes that have ended, by grant.
func (t *task) ended() []uint64 {
	counts := make([]uint64, len(t.last))
	_ = t.viewBook(func(b *page.Book) error {
		for i := range counts {
			if entry, ok := b.Grant[i].Read(); ok {
				counts[i] = entry.LaunchesEnded
			}
		}
		return nil
	})
	return counts
}

func duration(ns uint64) time.Duration { return time.Duration(min(ns, math.MaxInt64)) }
