package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/internal/point"
	"github.com/aliquot-dev/aliquot/node"
)

// fakeAgent is a node whose pages are files with the grants in them, so that they outlive a daemon as real ones do. It holds the
// host to the node's rules: no more floors than a device has, one set of grants a task.
type fakeAgent struct {
	dir     string
	devices []node.Device
	notices chan node.Notice

	mu      sync.Mutex
	passes  int   // that it does not refuse before
	refuse  error // of Prepare
	refused func()
	samples []node.Sample
	held    map[string]api.Bytes // by task, on each of its devices; else its floor
	lent    map[string]api.Bytes // by task, of that
	used    func(node.Grant) node.Usage
}

func newFakeAgent(dir string, devices int) (*fakeAgent, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	agent := &fakeAgent{dir: dir, notices: make(chan node.Notice)}
	for i := range devices {
		agent.devices = append(agent.devices, node.Device{
			UUID: fmt.Sprintf("GPU-%d", i), Index: i, Model: "H200", Memory: 140 << 30, Simulated: true, Health: api.Healthy,
		})
	}
	return agent, nil
}

func (a *fakeAgent) Devices() []node.Device      { return a.devices }
func (a *fakeAgent) Notices() <-chan node.Notice { return a.notices }
func (a *fakeAgent) Simulated() bool             { return true }
func (a *fakeAgent) Mounts() bool                { return false }
func (a *fakeAgent) Notes() []string             { return nil }
func (a *fakeAgent) Close()                      {}
func (a *fakeAgent) page(uid string) string      { return filepath.Join(a.dir, uid) }
func (a *fakeAgent) violation(text string, of any) {
	a.write("VIOLATION", fmt.Sprintf("%s: %+v", text, of))
}

func (a *fakeAgent) write(name string, what any) {
	data, _ := json.Marshal(what)
	temporary := filepath.Join(a.dir, "."+name)
	if err := errors.Join(os.WriteFile(temporary, data, 0o644), os.Rename(temporary, a.page(name))); err != nil {
		panic(err)
	}
}

func (a *fakeAgent) Prepare(_ context.Context, task node.Task) (node.Launch, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refuse != nil && a.passes > 0 {
		a.passes--
	} else if a.refuse != nil {
		if a.refused != nil {
			a.refused()
		}
		return node.Launch{}, a.refuse
	}
	floors := map[string]api.Milli{}
	for _, other := range a.Prepared() {
		if other.UID == task.UID && !reflect.DeepEqual(other, task) {
			a.violation("prepared with other grants", other)
			return node.Launch{}, errors.New("it is prepared with other grants")
		}
		for _, grant := range other.Grants {
			if other.UID != task.UID {
				floors[grant.Device] += grant.Floor
			}
		}
	}
	for _, grant := range task.Grants {
		if floors[grant.Device]+grant.Floor > api.WholeDevice {
			a.violation("granted twice", task)
			return node.Launch{}, errors.New("no room")
		}
	}
	point.Here("fake.prepare.begun")
	a.write(task.UID, task)
	return node.Launch{Env: []string{"ALIQUOT_TASK=" + a.page(task.UID), "LD_LIBRARY_PATH=/shim"}}, nil
}

func (a *fakeAgent) Update(_ context.Context, uid string, grants []node.Grant, flags node.Flags) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, task := range a.Prepared() {
		if task.UID == uid {
			task.Grants, task.Flags = grants, flags
			a.write(uid, task)
			return nil
		}
	}
	return errors.New("it is not prepared")
}

func (a *fakeAgent) Unprepare(_ context.Context, uid string) error {
	if err := os.Remove(a.page(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (a *fakeAgent) Prepared() []node.Task {
	entries, _ := os.ReadDir(a.dir)
	var tasks []node.Task
	for _, entry := range entries {
		var task node.Task
		data, err := os.ReadFile(a.page(entry.Name()))
		if err == nil && json.Unmarshal(data, &task) == nil && task.UID == entry.Name() {
			tasks = append(tasks, task)
		}
	}
	return tasks
}

// MemoryHeld is what the test said; what is used is what is granted.
func (a *fakeAgent) MemoryHeld() []node.MemoryHeld {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []node.MemoryHeld
	for _, task := range a.Prepared() {
		for _, grant := range task.Grants {
			held := max(grant.MemFloor, a.held[task.UID])
			firm := held
			if task.Flags.Revocable {
				firm = grant.MemFloor
			}
			held -= a.lent[task.UID]
			firm = min(firm, held)
			all = append(all, node.MemoryHeld{Task: task.UID, Grant: grant, Granted: held, Firm: firm, Used: a.held[task.UID]})
		}
	}
	return all
}

// Used is what the test says, on each device of a task.
func (a *fakeAgent) Used(_ context.Context, uid string) []node.Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []node.Usage
	for _, task := range a.Prepared() {
		for _, grant := range task.Grants {
			if task.UID == uid && a.used != nil {
				all = append(all, a.used(grant))
			}
		}
	}
	return all
}

func (a *fakeAgent) hold(uid string, memory api.Bytes) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held == nil {
		a.held = map[string]api.Bytes{}
	}
	a.held[uid] = memory
}

func (a *fakeAgent) Sample(context.Context) (node.Sample, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.samples) == 0 {
		return node.Sample{At: time.Now()}, nil
	}
	sample := a.samples[0]
	if len(a.samples) > 1 {
		a.samples = a.samples[1:]
	}
	return sample, nil
}
