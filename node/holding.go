package node

import (
	"fmt"
	"maps"

	"github.com/aliquot-dev/aliquot/api"
)

// Of memory the shim keeps the sums, in a page that its task's user may write to. The driver's figure of what each process holds is held
// against what the share may hold, which stands in a page that only the arbiter and the agent write.

// driverTakes is what a process may hold beyond, in bytes: what a driver takes of itself after the shim has measured what a context
// and each module cost (kernels that are loaded when they are first launched, their local memory). Uncalibrated.
const driverTakes = 256 << 20

// shareOn names the share of a task on one device.
type shareOn struct{ task, device string }

// mayHold is the memory that each share may hold now, at least: the larger of that and what it was before.
func (a *Agent) mayHold(before map[shareOn]api.Bytes) map[shareOn]api.Bytes {
	may := map[shareOn]api.Bytes{}
	for _, held := range a.MemoryHeld() {
		on := shareOn{held.Task, held.Grant.Device}
		may[on] = max(held.Granted, before[on])
	}
	return may
}

// doubtMemory holds what the driver says of a device's memory against what its shares may hold. It gives a notice of each that holds more
// at a second look in a row (what it may hold can have risen and fallen around one), and of each that does so no longer. It returns the
// processes of those that hold more.
func (a *Agent) doubtMemory(l *looking, uuid string, s *survey, may map[shareOn]api.Bytes) (over []suspect) {
	if s.unseen {
		return nil
	}
	var cleared []string
	for on, most := range may {
		if on.device != uuid {
			continue
		}
		held := s.held[on.task]
		if held == nil || held.memory <= most+driverTakes*api.Bytes(len(held.processes)) {
			delete(l.heavy, on)
			if a.lighter(on) {
				cleared = append(cleared, on.task)
			}
			continue
		}
		if l.heavy[on] {
			a.noticeHeavy(on, held.memory, most)
		}
		l.heavy[on] = true
		for _, key := range held.processes {
			over = append(over, suspect{key, on.task, fmt.Sprintf("the share's processes hold %s by the driver's word and may hold %s", held.memory, most)})
		}
	}
	a.noticeCleared(uuid, cleared)
	return over
}

// noticeHeavy gives a notice of a share that holds too much, once.
func (a *Agent) noticeHeavy(on shareOn, held, most api.Bytes) {
	a.mu.Lock()
	known := a.heavy[on]
	a.heavy[on] = true
	if d := a.devices[on.device]; !known && d != nil {
		d.doubts++
	}
	a.mu.Unlock()
	if !known {
		a.notify(Notice{Kind: Unenforced, Device: on.device, Task: on.task, Message: fmt.Sprintf(
			"Processes of task %s hold %s on device %s by the driver's word and may hold %s: they pass the shim, or say less than they hold.",
			on.task, held, on.device, most)})
	}
}

// lighter forgets that a share held too much. It says whether a notice was given of it.
func (a *Agent) lighter(on shareOn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	told := a.heavy[on]
	delete(a.heavy, on)
	return told
}

// forgetHeavy forgets shares that are no more.
func (a *Agent) forgetHeavy(l *looking, may map[shareOn]api.Bytes) {
	gone := func(on shareOn, _ bool) bool { _, there := may[on]; return !there }
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.heavy, gone)
	maps.DeleteFunc(l.heavy, gone)
}
