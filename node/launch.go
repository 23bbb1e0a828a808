package node

import (
	"fmt"
	"path/filepath"

	"github.com/aliquot-dev/aliquot/native"
)

// taskVariable begins the environment variable by which the shim finds its task.
const taskVariable = "ALIQUOT_TASK="

// launch says how to start a process of a prepared task.
func (a *Agent) launch(t Task) Launch {
	found := a.backend.Launch(devicesOf(t))
	launch := Launch{Env: append([]string{taskVariable + a.run.task(t.UID)}, found.Env...), Notes: found.Notes}
	for _, m := range found.Mounts {
		launch.Mounts = append(launch.Mounts, Mount{Source: m.Source, Target: m.Target})
	}
	if len(launch.Mounts) > 0 {
		// For a program that throws its environment away. The backend's mounts lay out the place for it.
		launch.Mounts = append(launch.Mounts, Mount{Source: a.run.task(t.UID), Target: a.run.path(native.Task)})
	}
	return launch
}

// Container says how to make a container of a task that is prepared.
//
// The run folder's own path is kept, since the shim has it in its run path. Of the task's folder, which is read-only, the tenant itself writes one page.
// Folders are mounted rather than files where what is in them may be replaced while the container runs: the arbiter's socket is made anew when that starts.
func (a *Agent) Container(uid string) (Container, error) {
	have := a.find(uid)
	if have == nil {
		return Container{}, fmt.Errorf("make a container of task %s: it is not prepared; prepare it first", uid)
	}
	found, err := a.backend.Container(devicesOf(have.Task))
	if err != nil {
		return Container{}, fmt.Errorf("make a container of task %s: %w", uid, err)
	}
	folder := a.run.task(uid)
	page := filepath.Join(folder, "tel")
	c := Container{Env: append([]string{taskVariable + folder}, found.Env...), Devices: found.Devices, Libraries: found.Libraries, Behind: found.Behind, Pages: folder}
	for _, m := range found.Mounts {
		c.Mounts = append(c.Mounts, Mount{Source: m.Source, Target: m.Target, ReadOnly: true})
	}
	c.Mounts = append(c.Mounts,
		Mount{Source: folder, Target: folder, ReadOnly: true}, Mount{Source: page, Target: page},
		Mount{Source: folder, Target: found.Task, ReadOnly: true}, Mount{Source: page, Target: filepath.Join(found.Task, "tel")})
	return c, nil
}

func devicesOf(t Task) []string {
	devices := make([]string, len(t.Grants))
	for i, g := range t.Grants {
		devices[i] = g.Device
	}
	return devices
}
