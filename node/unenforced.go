package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node/device"
)

// lookEvery is how often processes that no share covers are looked for while nobody reads the meters.
const lookEvery = 3 * time.Second

// watchStrays looks for processes that no share covers, so that they are noticed although nobody samples, and for shares whose word does
// not agree with their device's. Of the tasks that it took over it says once which are held to their shares: whoever knows otherwise
// from an earlier agent knows what is over.
func (a *Agent) watchStrays(ctx context.Context, took []string) {
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	doubts := map[string]*doubt{}
	for {
		a.checkPages()
		readings := a.readDevices()
		known := registered{}
		var shares []Usage
		for _, t := range a.listTasks() {
			shares = append(shares, t.task.meter(t.asked, a.capacity, known)...)
		}
		a.noticeUnknown(shares)
		owners := a.owners(known)
		for _, uuid := range slices.Sorted(maps.Keys(readings)) {
			reading := readings[uuid]
			list, keys, tasks := strays(uuid, reading.Processes, known, owners)
			a.noticeStrays(uuid, list, keys, tasks)
			if reading.Busy != nil && len(list) == 0 { // else who used it is known
				a.doubtShares(ctx, doubts, time.Now(), uuid, *reading.Busy, shares)
			}
		}
		if len(took) > 0 && a.allRead(readings) {
			a.noticeHeld(took)
			took = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// allRead says that every device that is not down was read.
func (a *Agent) allRead(readings map[string]device.Reading) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for uuid, d := range a.devices {
		if _, read := readings[uuid]; !read && d.Health != api.Down {
			return false
		}
	}
	return true
}

// noticeHeld says of each task of a list of which no process is past its share that it is so.
func (a *Agent) noticeHeld(list []string) {
	a.mu.Lock()
	evading := map[string]bool{}
	for _, task := range a.seen {
		evading[task] = true
	}
	a.mu.Unlock()
	for _, task := range list {
		if !evading[task] {
			a.notices.add(Notice{Kind: Enforced, Task: task, Message: fmt.Sprintf("Every process of task %s that computes is held to its share.", task)})
		}
	}
}

// noticeUnknown says once of each task that its programs looked up functions of the driver that the shim does not know.
func (a *Agent) noticeUnknown(shares []Usage) {
	for _, u := range shares {
		a.mu.Lock()
		fresh := u.UnknownCalls > 0 && a.tasks[u.Task] != nil && !a.unknown[u.Task]
		if fresh {
			a.unknown[u.Task] = true
		}
		a.mu.Unlock()
		if fresh {
			a.notify(Notice{Kind: UnknownCalls, Task: u.Task, Message: fmt.Sprintf(
				"Programs of task %s looked up functions of the driver that this version of Aliquot does not know, %d times; what they do by calling those is not held to the share.", u.Task, u.UnknownCalls)})
		}
	}
}

// stray is a process on a device that no share covers.
type stray struct {
	device string
	pid    int
	start  uint64
}

// registered is the processes of all tasks by pid: the devices of the task, and its UID.
type registered map[int]registration

type registration struct {
	task    string
	devices []string
	start   uint64
}

// strays picks from what computes on a device those that are not registered for it. The driver's list must have been read before
// the registrations: a process registers before it reaches a device, so one that is covered is always found. One that has
// ended meanwhile is left out.
func strays(uuid string, computing []device.Process, known registered, owners owners) (list []api.Process, keys []stray, tasks []string) {
	for _, p := range computing {
		fact, ok := factsOf(p.PID)
		if !ok || fact.dead {
			continue
		}
		if r, ok := known[p.PID]; ok && slices.Contains(r.devices, uuid) && r.start == fact.start {
			continue
		}
		list = append(list, api.Process{PID: p.PID, Name: fact.name, User: fact.user, Memory: p.Memory})
		key := stray{uuid, p.PID, fact.start}
		keys = append(keys, key)
		tasks = append(tasks, owners.of(key))
	}
	return list, keys, tasks
}

// noticeStrays gives a notice of each stray that was not there before, and of each task of which the last one has gone. A device
// whose processes are not known now must be left out.
func (a *Agent) noticeStrays(uuid string, list []api.Process, keys []stray, tasks []string) {
	var fresh []int
	var gone, still []string
	a.mu.Lock()
	for i, key := range keys {
		if _, known := a.seen[key]; !known {
			fresh = append(fresh, i)
		}
		a.seen[key] = tasks[i] // a process may come to belong to a task
	}
	for key, task := range a.seen {
		if key.device == uuid && !slices.Contains(keys, key) {
			delete(a.seen, key)
			gone = append(gone, task)
		} else {
			still = append(still, task)
		}
	}
	a.mu.Unlock()
	slices.Sort(gone)
	for _, task := range slices.Compact(gone) {
		if task != "" && !slices.Contains(still, task) {
			a.notify(Notice{Kind: Enforced, Device: uuid, Task: task, Message: fmt.Sprintf("Every process of task %s that computes is held to its share again.", task)})
		}
	}
	for _, i := range fresh {
		p := list[i]
		message := fmt.Sprintf("Process %d (%s, user %s) computes on device %s and no share covers it.", p.PID, p.Name, cmp.Or(p.User, "unknown"), uuid)
		if tasks[i] != "" {
			message = fmt.Sprintf("Process %d (%s) of task %s computes on device %s past the shim, and is not held to a share.", p.PID, p.Name, tasks[i], uuid)
		}
		a.notify(Notice{Kind: Unenforced, Device: uuid, Task: tasks[i], Message: message})
	}
}
