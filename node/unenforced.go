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

// looking is what is kept from look to look.
type looking struct {
	doubts   map[string]*doubt
	suspects suspects
	heavy    map[shareOn]bool // shares that held too much memory at the last look
	took     []string         // tasks that were taken over and of which nothing was said yet
}

func newLooking(took []string) *looking {
	return &looking{doubts: map[string]*doubt{}, heavy: map[shareOn]bool{}, took: took}
}

// watchStrays looks for processes that no share covers, so that they are noticed although nobody samples, and for shares whose word does
// not agree with their device's. Of the tasks that it took over it says once which are held to their shares: whoever knows otherwise
// from an earlier agent knows what is over.
func (a *Agent) watchStrays(ctx context.Context, took []string) {
	again := time.NewTicker(a.every)
	defer again.Stop()
	l := newLooking(took)
	for {
		a.look(ctx, l)
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

func (a *Agent) look(ctx context.Context, l *looking) {
	a.checkPages()
	may := a.mayHold(nil)
	readings := a.readDevices()
	known := registered{}
	var shares []Usage
	for _, t := range a.listTasks() {
		shares = append(shares, t.task.meter(t.asked, a.capacity, known)...)
	}
	may = a.mayHold(may)
	a.forgetHeavy(l, may)
	a.noticeUnknown(shares)
	var found []suspect
	surveyed := surveys(readings, known, a.owners(known))
	for _, uuid := range slices.Sorted(maps.Keys(surveyed)) {
		s := surveyed[uuid]
		a.noticeStrays(uuid, s)
		a.noticeAdministrators(uuid, s)
		for i, key := range s.keys {
			found = append(found, suspect{key, s.tasks[i], "it computes past the shim"})
		}
		if busy := readings[uuid].Busy; busy != nil && len(s.keys)+len(s.administrators) == 0 { // else who used it is known
			a.doubtShares(ctx, l.doubts, time.Now(), uuid, *busy, shares)
		}
		found = append(found, a.doubtMemory(l, uuid, s, may)...)
	}
	a.enforce(ctx, l.suspects.look(a.arbiter.current(), found))
	if len(l.took) > 0 && a.allRead(readings) {
		a.noticeHeld(l)
		l.took = nil
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

// noticeHeld says of each task that was taken over, and of which nothing is past its share, that it is so.
func (a *Agent) noticeHeld(l *looking) {
	evading := a.evading()
	for on := range l.heavy { // what it holds is judged at the next look
		evading[on.task] = true
	}
	for _, task := range l.took {
		if !evading[task] {
			a.notices.add(Notice{Kind: Enforced, Task: task, Message: fmt.Sprintf("Every process of task %s that computes is held to its share.", task)})
		}
	}
}

// evading are the tasks of which a notice was given that something of them is past its share.
func (a *Agent) evading() map[string]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	tasks := map[string]bool{}
	for _, task := range a.seen {
		tasks[task] = true
	}
	for on := range a.heavy {
		tasks[on.task] = true
	}
	return tasks
}

// noticeCleared says of each task of a list that it is held to its share again, if nothing else of it is not.
func (a *Agent) noticeCleared(uuid string, list []string) {
	evading := a.evading()
	slices.Sort(list)
	for _, task := range slices.Compact(list) {
		if task != "" && !evading[task] {
			a.notify(Notice{Kind: Enforced, Device: uuid, Task: task, Message: fmt.Sprintf("Every process of task %s that computes is held to its share again.", task)})
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

// noticeStrays gives a notice of each stray that was not there before, and of each task of which the last one has gone. A device
// whose processes are not known now must be left out.
func (a *Agent) noticeStrays(uuid string, s *survey) {
	var fresh []int
	var gone []string
	a.mu.Lock()
	for i, key := range s.keys {
		if _, known := a.seen[key]; !known {
			fresh = append(fresh, i)
		}
		a.seen[key] = s.tasks[i] // a process may come to belong to a task
	}
	for key, task := range a.seen {
		if key.device == uuid && !slices.Contains(s.keys, key) {
			delete(a.seen, key)
			gone = append(gone, task)
		}
	}
	a.mu.Unlock()
	a.noticeCleared(uuid, gone)
	for _, i := range fresh {
		p, task := s.strays[i], s.tasks[i]
		message := fmt.Sprintf("Process %d (%s, user %s) computes on device %s and no share covers it.", p.PID, p.Name, cmp.Or(p.User, "unknown"), uuid)
		if task != "" {
			message = fmt.Sprintf("Process %d (%s) of task %s computes on device %s past the shim, and is not held to a share.", p.PID, p.Name, task, uuid)
		}
		a.notify(Notice{Kind: Unenforced, Device: uuid, Task: task, Message: message})
	}
}
