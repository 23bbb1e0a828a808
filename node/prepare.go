package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/internal/point"
	"github.com/aliquot-dev/aliquot/node/page"
)

// Prepare makes a task's grants real and says how to start its processes. For a task that is prepared already it changes nothing
// and says the same again. It refuses a task whose floors, with those prepared before, would be more than a device has, or whose
// memory floor others hold above theirs; then nothing is left of it.
func (a *Agent) Prepare(ctx context.Context, t Task) (Launch, error) {
	a.ops.Lock()
	defer a.ops.Unlock()
	refuse := func(err error) (Launch, error) { return Launch{}, fmt.Errorf("prepare task %s: %w", t.UID, err) }
	if err := a.validate(t); err != nil {
		return refuse(err)
	}
	if have := a.find(t.UID); have != nil {
		switch {
		case have.Ending:
			return refuse(errors.New("it is being unprepared; unprepare it again to finish that"))
		case have.broken != nil:
			return refuse(have.broken)
		case !reflect.DeepEqual(have.Task, t):
			return refuse(errors.New("it is prepared with other grants; use Update to change them"))
		}
		return a.launch(t), nil
	}
	if err := a.room(t, ""); err != nil {
		return refuse(err)
	}
	if err := a.makeReal(ctx, t); err != nil {
		return refuse(err)
	}
	return a.launch(t), nil
}

// makeReal makes the task's folder and has the arbiter take it in. After an error nothing is left of it.
func (a *Agent) makeReal(ctx context.Context, t Task) error {
	temporary, folder := filepath.Join(a.run.tasks(), making+t.UID), a.run.task(t.UID)
	if err := os.RemoveAll(temporary); err != nil {
		return err
	}
	err := makeTask(temporary, t, a.capacity)
	if err == nil {
		point.Here("node.prepare.filled")
		err = os.Rename(temporary, folder)
	}
	if err != nil {
		_ = os.RemoveAll(temporary)
		return err
	}
	point.Here("node.prepare.renamed")
	made, err := openTask(folder)
	if err != nil {
		made.close()
		return errors.Join(err, a.removeFolder(t.UID))
	}
	// In the books from here on: if the arbiter took it in but its answer was lost, unprepare takes it out again.
	a.put(made)
	_, err = a.arbiter.request(ctx, "add "+t.UID)
	if err == nil {
		point.Here("node.prepare.added")
		err = a.crowded(t, nil)
	}
	if err != nil {
		if undo := a.unprepare(context.WithoutCancel(ctx), made); undo != nil {
			a.log.Error("a task that could not be prepared could not be removed either; it is removed when it is unprepared", "task", t.UID, "error", undo)
		}
		return err
	}
	return nil
}

// Update changes a prepared task's grants and flags in place, while it runs. The grants must be on the same devices. A memory ceiling
// below what the task holds is refused, and a higher memory floor that others hold above theirs; then it keeps what it had.
func (a *Agent) Update(ctx context.Context, uid string, grants []Grant, flags Flags) error {
	a.ops.Lock()
	defer a.ops.Unlock()
	refuse := func(err error) error { return fmt.Errorf("update task %s: %w", uid, err) }
	have := a.find(uid)
	if have == nil || have.Ending {
		return refuse(errors.New("it is not prepared; prepare it first"))
	}
	if have.broken != nil {
		return have.broken // which is a sentence of its own
	}
	changed := have.Task
	changed.Grants, changed.Flags = slices.Clone(grants), flags
	order := make(map[string]int, len(have.Task.Grants))
	for i, g := range have.Task.Grants {
		order[g.Device] = i
	}
	if len(grants) != len(order) {
		return refuse(fmt.Errorf("%d grants; it has %d, and a prepared task keeps its devices", len(grants), len(order)))
	}
	for _, g := range grants {
		i, ok := order[g.Device]
		if !ok {
			return refuse(fmt.Errorf("a grant on device %s; it has none there, and a prepared task keeps its devices", g.Device))
		}
		changed.Grants[i] = g // the page's order stays
	}
	if err := a.validate(changed); err != nil {
		return refuse(err)
	}
	if err := a.room(changed, uid); err != nil {
		return refuse(err)
	}
	was := have.Task
	if err := a.belowUse(have, was, changed); err != nil {
		return refuse(err)
	}
	if err := a.change(ctx, have, changed); err != nil {
		return refuse(errors.Join(err, a.change(ctx, have, was))) // what it had is what its record and its page must say
	}
	floors := map[string]api.Bytes{}
	for _, g := range was.Grants {
		floors[g.Device] = g.MemFloor
	}
	// The arbiter took back what nobody uses. What others, or its own processes meanwhile, do use stays theirs.
	if err := errors.Join(a.crowded(changed, floors), a.belowUse(have, was, changed)); err != nil {
		return refuse(errors.Join(err, a.change(ctx, have, was)))
	}
	return nil
}

// change makes other grants of a prepared task real.
func (a *Agent) change(ctx context.Context, have *task, changed Task) error {
	uid := changed.UID
	if err := (record{Task: changed}).write(filepath.Join(a.run.task(uid), recordName)); err != nil {
		return err
	}
	point.Here("node.update.recorded")
	a.mu.Lock()
	have.Task = changed
	a.mu.Unlock()
	if _, err := have.order(a.capacity, 0); err != nil {
		return err
	}
	point.Here("node.update.ordered")
	// The page is what counts: an arbiter that is away reads it when it is back.
	if _, err := a.arbiter.request(ctx, "policy "+uid); err != nil {
		var refused *refusal
		if errors.As(err, &refused) {
			return err
		}
		a.log.Warn("the arbiter reads changed limits when it is back", "task", uid, "error", err)
	}
	return nil
}

// Unprepare takes a task's grants back and removes its pages. Its processes should have ended; one that has not finds its gates
// closed. For a task that is not prepared it does nothing.
func (a *Agent) Unprepare(ctx context.Context, uid string) error {
	a.ops.Lock()
	defer a.ops.Unlock()
	have := a.find(uid)
	if have == nil {
		return nil
	}
	if err := a.unprepare(ctx, have); err != nil {
		return fmt.Errorf("unprepare task %s: %w", uid, err)
	}
	return nil
}

func (a *Agent) unprepare(ctx context.Context, t *task) error {
	uid := t.Task.UID
	if !t.Ending {
		ending := record{Task: t.Task, Ending: true}
		if err := ending.write(filepath.Join(a.run.task(uid), recordName)); err != nil && !errors.Is(err, fs.ErrNotExist) { // its folder is lost
			// Where the disk is full, what ends makes room. An agent that starts before it has ended takes the task for one that is prepared, and is asked again.
			a.log.Warn("that a task ends could not be written into its record", "task", uid, "error", err)
		}
		a.mu.Lock()
		t.Ending = true
		a.mu.Unlock()
	}
	point.Here("node.unprepare.marked")
	if _, err := t.order(a.capacity, page.PolicyStopped); err != nil {
		a.log.Warn("a task that ends could not be told so in its page", "task", uid, "error", err)
	}
	if _, err := a.arbiter.request(ctx, "del "+uid); err != nil {
		var refused *refusal
		if !errors.As(err, &refused) {
			return err
		}
		// It answered and does not know the task: an earlier attempt got so far.
		a.log.Info("the arbiter had forgotten the task already", "task", uid, "answer", refused.answer)
	}
	point.Here("node.unprepare.deleted")
	if err := a.removeFolder(uid); err != nil {
		return err
	}
	a.mu.Lock()
	delete(a.tasks, uid)
	delete(a.unknown, uid)
	a.mu.Unlock()
	t.close()
	return nil
}

// removeFolder removes a task's folder, under another name first so that no half of it is ever taken for a task.
func (a *Agent) removeFolder(uid string) error {
	gone := filepath.Join(a.run.tasks(), removing+uid)
	if err := os.RemoveAll(gone); err != nil {
		return err
	}
	if err := os.Rename(a.run.task(uid), gone); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	point.Here("node.unprepare.renamed")
	return os.RemoveAll(gone)
}

// Prepared lists the tasks that are prepared, by UID, with what they were last given. One whose Unprepare has begun but did not
// end is among them, until it is unprepared again.
func (a *Agent) Prepared() []Task {
	a.mu.Lock()
	defer a.mu.Unlock()
	var tasks []Task
	for _, t := range a.tasks {
		task := t.Task
		task.Grants = slices.Clone(task.Grants)
		tasks = append(tasks, task)
	}
	slices.SortFunc(tasks, func(x, y Task) int { return strings.Compare(x.UID, y.UID) })
	return tasks
}

// validate checks a task against what pages and devices can hold.
func (a *Agent) validate(t Task) error {
	if err := fileName("its UID", t.UID, page.UIDLen-1); err != nil {
		return err
	}
	if socket := a.run.path("tasks", t.UID, "arbiter.sock"); len(socket) > socketPathMax {
		return fmt.Errorf("the path of its socket, %s, has %d characters and may have %d; choose a shorter run folder with --run", socket, len(socket), socketPathMax)
	}
	if len(t.Grants) == 0 || len(t.Grants) > page.MaxGrants {
		return fmt.Errorf("%d grants; a task has 1 to %d on one node", len(t.Grants), page.MaxGrants)
	}
	seen := map[string]bool{}
	for _, g := range t.Grants {
		if seen[g.Device] {
			return fmt.Errorf("two grants on device %s; one task has at most one there", g.Device)
		}
		seen[g.Device] = true
		d, ok := a.device(g.Device)
		if !ok {
			return fmt.Errorf("a grant on device %s; this node has no such device", g.Device)
		}
		if err := checkGrant(g, d.Memory); err != nil {
			return fmt.Errorf("the grant on device %s: %w", g.Device, err)
		}
	}
	return nil
}

func checkGrant(g Grant, capacity api.Bytes) error {
	switch {
	case g.Floor < 0 || g.Floor > api.WholeDevice:
		return fmt.Errorf("a compute floor of %d thousandths; it must be 0 to %d", g.Floor, api.WholeDevice)
	case g.Ceiling < max(1, g.Floor) || g.Ceiling > api.WholeDevice:
		return fmt.Errorf("a compute ceiling of %d thousandths; it must be %d (the floor, at least 1) to %d", g.Ceiling, max(1, g.Floor), api.WholeDevice)
	case g.Weight < 1:
		return fmt.Errorf("a weight of %d; it must be at least 1", g.Weight)
	case g.MemFloor < 0 || g.MemCeiling < g.MemFloor:
		return fmt.Errorf("memory of %d to %d bytes; the floor must not be negative nor above the ceiling", g.MemFloor, g.MemCeiling)
	case g.MemCeiling > capacity:
		return fmt.Errorf("a memory ceiling of %s; the device has %s: ask for at most that", api.Bytes(g.MemCeiling), capacity)
	}
	return nil
}

// room is the second defence of what must always hold: floors granted on a device never exceed it. The engine is the first.
// Grants of the task `except` are left out of the sum, and what is lowered is never refused.
func (a *Agent) room(t Task, except string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range t.Grants {
		compute, memory := g.Floor, g.MemFloor
		var before Grant
		for uid, other := range a.tasks {
			for _, o := range other.Task.Grants {
				switch {
				case o.Device != g.Device:
				case uid == except:
					before = o
				default:
					compute += o.Floor
					memory += o.MemFloor
				}
			}
		}
		d := a.devices[g.Device]
		if except == "" && d.Health != api.Healthy {
			return fmt.Errorf("device %s is %s (%s) and takes no new grants", g.Device, d.Health, d.Reason)
		}
		if compute > api.WholeDevice && g.Floor > before.Floor {
			return fmt.Errorf("a compute floor of %d thousandths on device %s; floors of %d are granted there already, and a device has %d", g.Floor, g.Device, compute-g.Floor, api.WholeDevice)
		}
		if memory > d.Memory && g.MemFloor > before.MemFloor {
			return fmt.Errorf("a memory floor of %d bytes on device %s; floors of %d are granted there already, and it has %d", g.MemFloor, g.Device, memory-g.MemFloor, d.Memory)
		}
	}
	return nil
}
