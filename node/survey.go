package node

import (
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node/device"
)

// stray is a process on a device that no share covers.
type stray struct {
	device string
	pid    int
	start  uint64
}

// registered is what the pages of all tasks say of processes, by pid. Their users write them: several may name the same process, and one
// that names another's hides nothing of it.
type registered map[int][]registration

type registration struct {
	task    string
	user    uint32
	devices []string
	start   uint64
}

// covering lists the tasks that a process is registered for on a device, each once.
func (k registered) covering(pid int, start uint64, uuid string) (tasks []string) {
	for _, r := range k[pid] {
		if r.start == start && slices.Contains(r.devices, uuid) && !slices.Contains(tasks, r.task) {
			tasks = append(tasks, r.task)
		}
	}
	return tasks
}

// survey is what computes on one device: the processes that no share covers, with what is known of each at the same index, those that need none for they are
// administrators', and what the others hold, by task.
type survey struct {
	strays []api.Process
	keys   []stray
	tasks  []string // whose they are; empty: no task's

	theirs         []api.Process // the administrators'
	administrators []stray

	held   map[string]*holding
	unseen bool // the driver does not tell of all
}

// holding is what the registered processes of one task hold on a device by the driver's word.
type holding struct {
	memory    api.Bytes
	processes []stray
}

// surveys sorts the processes of all devices that were read. The driver's lists must have been read before the registrations: a process
// registers before it reaches a device, so one that is covered is always found. One that has ended meanwhile is left out.
func surveys(readings map[string]device.Reading, known registered, owners owners) map[string]*survey {
	all := make(map[string]*survey, len(readings))
	for uuid, reading := range readings {
		s := &survey{held: map[string]*holding{}, unseen: reading.Unseen != ""}
		for _, p := range reading.Processes {
			s.add(uuid, p, known, owners)
		}
		all[uuid] = s
	}
	return all
}

func (s *survey) add(uuid string, p device.Process, known registered, owners owners) {
	fact, ok := factsOf(p.PID)
	if !ok || fact.dead {
		return
	}
	key := stray{uuid, p.PID, fact.start}
	covering := known.covering(p.PID, fact.start, uuid)
	for _, task := range covering {
		if s.held[task] == nil {
			s.held[task] = &holding{}
		}
		held := s.held[task]
		held.processes = append(held.processes, key)
		if p.Memory != nil {
			held.memory += *p.Memory
		}
	}
	s.unseen = s.unseen || p.Memory == nil
	if len(covering) > 0 {
		return
	}
	process := api.Process{PID: p.PID, Name: fact.name, User: fact.user, Memory: p.Memory}
	if owners.administers(p.PID) {
		s.theirs, s.administrators = append(s.theirs, process), append(s.administrators, key)
		return
	}
	s.strays, s.keys, s.tasks = append(s.strays, process), append(s.keys, key), append(s.tasks, owners.of(key))
}

// memoryOf is what the registered processes of a task hold; nil: not known.
func (s *survey) memoryOf(task string) *api.Bytes {
	if s == nil || s.unseen {
		return nil
	}
	memory := api.Bytes(0)
	if held := s.held[task]; held != nil {
		memory = held.memory
	}
	return &memory
}
