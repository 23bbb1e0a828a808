package local

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/local/cgroup"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/internal/point"
	"github.com/aliquot-dev/aliquot/node"
)

// starting is what a start needs of a workload. It is a copy, for use beside the loop.
type starting struct {
	of       api.Workload
	uid      string
	spec     api.WorkloadSpec
	keep     keep
	task     node.Task
	stopping <-chan struct{}
	streams  chan *handed
}

func startingOf(w *work, task node.Task) starting {
	return starting{w.now, w.now.UID, w.now.Spec, w.keep, task, w.stopping, w.streams}
}

// letGo lets go of streams that were taken, or keeps them for another start.
func (s starting) letGo(streams *handed, another bool) {
	if streams == nil {
		return
	}
	if another {
		select {
		case s.streams <- streams:
			return
		default: // its client handed over others
		}
	}
	streams.close()
}

// start makes the grants real and runs the program, beside the loop.
func (h *Host) start(w *work) {
	one := startingOf(w, nodeTask(w))
	h.spawn(func(ctx context.Context) {
		launch, err := h.Agent.Prepare(ctx, one.task)
		if err != nil {
			h.notPrepared(ctx, w, err)
			return
		}
		point.Here("local.task.prepared")
		h.run(ctx, w, one, launch)
	})
}

// run runs the program of a workload whose grants are real.
func (h *Host) run(ctx context.Context, w *work, one starting, launch node.Launch) {
	started, streams, notes, err := h.supervise(ctx, one, launch)
	switch {
	case ctx.Err() != nil && started == nil:
		return // the next daemon takes it up
	case errors.Is(err, supervise.ErrRunning):
		h.adopt(ctx, w) // one was started before a crash, after all
	case err != nil:
		h.finish(ctx, w, h.notStarted(err))
	default:
		point.Here("local.supervisor.started")
		h.follow(ctx, w, started, notes, func(another bool) { one.letGo(streams, another) })
	}
}

// notPrepared puts the workload back in line: the engine tries again, later each time.
func (h *Host) notPrepared(ctx context.Context, w *work, err error) {
	if ctx.Err() != nil {
		return
	}
	h.Log.Warn("a task could not be prepared", "workload", w.now.UID, "error", err)
	h.tell(func() {
		if w.keep.Stop != nil {
			h.spawn(func(ctx context.Context) { h.finish(ctx, w, verdict{outcome: api.Stopped, never: true}) })
			return
		}
		if w.number() > 0 {
			h.growthFailed(w, err)
			return
		}
		place := w.place
		w.place, w.keep.Placing = 0, nil
		w.now.Status.Phase, w.now.Status.Grants, w.now.Status.Reason = api.Waiting, nil, err.Error()
		h.touch(w)
		h.note(w, "could not be started, and is tried again: "+err.Error())
		h.memory.fresh = false // others may have come to hold what was to be its floor
		h.step(engine.Refused{At: h.time(), ID: place, Reason: err.Error()})
	})
}

// notStarted is the verdict on a workload whose program was never started.
func (h *Host) notStarted(err error) verdict {
	if errors.Is(err, errStopping) {
		return verdict{outcome: api.Stopped, never: true}
	}
	code := 126
	return verdict{outcome: api.Refused, code: &code, reason: err.Error()}
}

var errNoClient = errors.New("the client that it was to be attached to did not hand over its streams; run it again")

// supervise writes the recipe and starts the supervisor.
func (h *Host) supervise(ctx context.Context, one starting, launch node.Launch) (started *supervise.Started, streams *handed, notes []string, err error) {
	streams, err = h.streamsOf(ctx, one)
	if err != nil {
		return nil, streams, nil, err
	}
	defer func() {
		if err != nil {
			one.letGo(streams, errors.Is(err, errStopping))
		}
	}()
	notes = slices.Clone(launch.Notes)
	groups, err := h.groups.Make(one.uid, limitsOf(one.spec))
	if err != nil {
		notes = append(notes, notHeld(one.spec, err))
	}
	folder := h.folder(one.uid)
	if err := folder.Prepare(h.recipe(one, launch, groups)); err != nil {
		return nil, streams, nil, err
	}
	select {
	case <-one.stopping:
		return nil, streams, nil, errStopping
	default:
	}
	started, err = folder.Start(h.Supervisor, streams.list())
	return started, streams, notes, err
}

func limitsOf(spec api.WorkloadSpec) cgroup.Limits {
	return cgroup.Limits{CPU: spec.CPU, Memory: spec.Memory}
}

// notHeld says that the limits that were asked for do not hold.
func notHeld(spec api.WorkloadSpec, err error) string {
	var limits []string
	if spec.CPU > 0 {
		limits = append(limits, fmt.Sprintf("--cpu %s", spec.CPU))
	}
	if spec.Memory > 0 {
		limits = append(limits, fmt.Sprintf("--host-memory %s", spec.Memory))
	}
	return fmt.Sprintf("%s is not held by this server, and it may use more: %v; one that runs as root, or as a service (deploy/aliquot.service), holds it",
		strings.Join(limits, " with "), err)
}

// streamsOf waits for the streams of an attached workload's client.
func (h *Host) streamsOf(ctx context.Context, one starting) (*handed, error) {
	if !one.spec.Attach {
		return nil, nil
	}
	patience := time.NewTimer(h.AttachGrace)
	defer patience.Stop()
	select {
	case streams := <-one.streams:
		return streams, nil
	case <-one.stopping:
		return nil, errStopping
	case <-patience.C:
		return nil, errNoClient
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (h *Host) recipe(one starting, launch node.Launch, groups []string) supervise.Recipe {
	recipe := supervise.Recipe{
		UID: one.uid, Command: one.spec.Command, Program: string(one.keep.Program), Dir: one.spec.Dir,
		Env: taskEnvironment(one.spec, one.uid, append(environmentOf(one.of), launch.Env...)), User: one.keep.User, LibraryPath: filepath.Join(h.Run, "lib"),
		TimeLimit: time.Duration(one.spec.TimeLimit), Grace: supervise.DefaultGrace, Cgroups: groups,
	}
	for _, mount := range launch.Mounts {
		recipe.Mounts = append(recipe.Mounts, supervise.Mount{Source: mount.Source, Target: mount.Target, ReadOnly: mount.ReadOnly})
	}
	if !one.spec.Attach {
		recipe.Log, recipe.LogLimit = h.logPath(one.uid), h.LogLimit
	}
	return recipe
}

// taskEnvironment is the user's environment with what the task needs put over it, sorted so that it is the same each time.
func taskEnvironment(spec api.WorkloadSpec, uid string, launch []string) []string {
	const library = "LD_LIBRARY_PATH"
	merged := map[string]string{}
	for name, value := range spec.Env {
		merged[name] = value
	}
	for _, one := range launch {
		name, value, _ := strings.Cut(one, "=")
		if own := merged[name]; name == library && own != "" {
			value += ":" + own
		}
		merged[name] = value
	}
	merged[supervise.Marker] = uid
	env := make([]string, 0, len(merged))
	for name, value := range merged {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}

// follow reports that the program runs, and waits for its end. LetGo lets go of its streams, or keeps them for another start.
func (h *Host) follow(ctx context.Context, w *work, started *supervise.Started, notes []string, letGo func(another bool)) {
	ended := make(chan string, 1)
	// Not counted among what Close waits for: it ends with the supervisor, which outlives the daemon, also where that cannot even
	// start the program because its file lies on a server that does not answer.
	go func() {
		child, exit := started.Report()
		letGo(exit != nil && exit.NotStarted)
		if child != nil {
			h.tell(func() { h.runs(w, child, append(notes, child.Notes...)) })
		}
		ended <- started.Wait()
	}()
	select {
	case how := <-ended:
		h.afterSupervisor(ctx, w, how)
	case <-ctx.Done():
	}
}

// runs takes note of a program that runs.
func (h *Host) runs(w *work, child *supervise.Child, notes []string) {
	if w.over {
		return
	}
	w.child = child
	w.dropStreams() // of a client that came back before its program was known to have some
	for _, sig := range w.signals {
		_ = child.Signal(sig) // one that has ended meanwhile needs none
	}
	w.signals = nil
	at := child.At.UTC()
	h.fared(w, at)
	w.now.Status.PID, w.now.Status.Started = child.PID, &at
	if !w.now.Spec.Attach {
		w.now.Status.LogPath = h.logPath(w.now.UID)
	}
	if w.now.Status.Phase == api.Starting {
		w.now.Status.Phase = api.Running
		if w.keep.Stop != nil {
			w.now.Status.Phase = api.Stopping
		}
	}
	h.placed(w)
	h.step(engine.Started{At: h.time(), ID: w.gang(), Task: w.number()})
	h.noteAt(w, at, fmt.Sprintf("started as process %d", child.PID))
	h.addNotes(w, notes...)
	h.after(func() { point.Here("local.started.stored") })
}

// placed answers the proposal to place a workload, if that is still open.
func (h *Host) placed(w *work) {
	if w.place != 0 {
		place := w.place
		w.place = 0
		h.step(engine.Done{At: h.time(), ID: place})
	}
}
