package driver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node"
	"github.com/aliquot-dev/aliquot/node/device"
)

// agentOf stands in for node's agent: it keeps what it was given in a folder, so that it is there for the next process as well.
type agentOf struct {
	testing.TB
	folder  string
	refuses error
	hides   error            // why no container can be made
	version string           // of the driver
	breaks  error            // what it says of tasks that it has
	used    map[string][]int // processes of tasks
	stalled []string         // devices whose work that does not end was to be ended
	covered []device.Library // of which images may have their own
	gone    bool             // its device

	mu      sync.Mutex       // of the folder's files and of what follows
	refused error            // why ceilings are not changed
	health  api.DeviceHealth // of the device; empty: healthy
	reason  string
}

func (a *agentOf) Devices() []node.Device {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return nil
	}
	device := h200
	device.Health, device.Reason = cmp.Or(a.health, h200.Health), a.reason
	return []node.Device{device}
}

func (a *agentOf) Prepare(_ context.Context, t node.Task) (node.Launch, error) {
	if _, ok := a.tasks()[t.UID]; ok && a.breaks != nil {
		return node.Launch{}, a.breaks
	}
	if have, ok := a.tasks()[t.UID]; ok && !reflect.DeepEqual(have, t) {
		return node.Launch{}, errors.New("prepared with other grants")
	}
	if a.refuses != nil {
		return node.Launch{}, a.refuses
	}
	a.put(t)
	return node.Launch{}, nil
}

func (a *agentOf) Container(uid string) (node.Container, error) {
	return node.Container{
		Env:       []string{"ALIQUOT_TASK=/run/aliquot/tasks/" + uid},
		Mounts:    []node.Mount{{Source: "/run/aliquot/lib", Target: "/lib", ReadOnly: true}, {Source: "/run/aliquot/tasks/" + uid + "/tel", Target: "/tel"}},
		Devices:   []string{"/dev/nvidia0"},
		Libraries: a.covered, Behind: []string{"/run/aliquot/driver/libcuda-real.so.1"}, Pages: "/run/aliquot/tasks/" + uid,
	}, a.hides
}

func (a *agentOf) Administrator(devices []string) (node.Container, error) {
	return node.Container{
		Env:     []string{"CUDA_VISIBLE_DEVICES=" + strings.Join(devices, ",")},
		Mounts:  []node.Mount{{Source: "/run/driver/" + a.version, Target: "/lib", ReadOnly: true}},
		Devices: []string{"/dev/nvidia0"},
	}, a.hides
}

func (a *agentOf) Update(_ context.Context, uid string, grants []node.Grant, flags node.Flags) error {
	a.mu.Lock()
	refused := a.refused
	a.mu.Unlock()
	have, ok := a.tasks()[uid]
	if !ok {
		return errors.New("not prepared")
	}
	if refused == nil {
		have.Grants, have.Flags = grants, flags
		a.put(have)
	}
	return refused
}

func (a *agentOf) refuseChange(why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused = why
}

func (a *agentOf) Unprepare(_ context.Context, uid string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return os.RemoveAll(filepath.Join(a.folder, uid))
}

func (a *agentOf) Prepared() []node.Task { return slices.Collect(maps.Values(a.tasks())) }

func (a *agentOf) Sample(context.Context) (node.Sample, error) {
	var sample node.Sample
	for uid, processes := range a.used {
		sample.Tasks = append(sample.Tasks, node.Usage{Task: uid, Processes: processes})
	}
	return sample, nil
}

func (a *agentOf) put(t node.Task) {
	a.mu.Lock()
	defer a.mu.Unlock()
	raw, err := json.Marshal(t)
	if err = errors.Join(err, os.WriteFile(filepath.Join(a.folder, t.UID), raw, 0o600)); err != nil {
		a.Fatal(err)
	}
}

func (a *agentOf) tasks() map[string]node.Task {
	a.mu.Lock()
	defer a.mu.Unlock()
	entries, err := os.ReadDir(a.folder)
	if err != nil {
		a.Fatal(err)
	}
	tasks := map[string]node.Task{}
	for _, entry := range entries {
		raw, err := os.ReadFile(filepath.Join(a.folder, entry.Name()))
		var t node.Task
		if err = errors.Join(err, json.Unmarshal(raw, &t)); err != nil {
			a.Fatal(err)
		}
		tasks[t.UID] = t
	}
	return tasks
}
