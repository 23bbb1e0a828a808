package node

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/aliquot-dev/aliquot/node/page"
)

// ErrBroken is a task that cannot be held to its grants any more, because its pages or its record are damaged or lost: the arbiter
// does not serve it, and what its books say is not what happened. It is to be ended and unprepared; no other is harmed.
var ErrBroken = errors.New("it cannot be held to its share any more")

// breaks notes that a task is broken, and why. False: it is on its way out, or that was known.
func (a *Agent) breaks(t *task, why error) bool {
	a.mu.Lock()
	known := t.Ending || t.broken != nil
	if !known {
		t.broken = fmt.Errorf("%w: %w", ErrBroken, why)
	}
	a.mu.Unlock()
	if !known {
		a.log.Error("a task is broken", "task", t.Task.UID, "error", why)
	}
	return !known
}

// noticeBroken notes that a task is broken and tells whoever can end it. A task that is found so when the agent opens needs no notice:
// Update says it.
func (a *Agent) noticeBroken(t *task, why error) {
	if a.breaks(t, why) {
		a.notify(Notice{
			Kind: Broken, Task: t.Task.UID, Reason: t.broken.Error(),
			Message: fmt.Sprintf("Task %s is to be ended: %s.", t.Task.UID, t.broken),
		})
	}
}

// wholeTasks lists the tasks that are prepared and neither broken nor on their way out.
func (a *Agent) wholeTasks() []*task {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*task
	for _, t := range a.tasks {
		if t.broken == nil && !t.Ending {
			list = append(list, t)
		}
	}
	return list
}

// readopt sees to it that a new arbiter serves all that the last one did. What it does not take over is broken.
func (a *Agent) readopt(ctx context.Context) {
	a.ops.Lock()
	defer a.ops.Unlock()
	for _, t := range a.wholeTasks() {
		_, err := a.arbiter.request(ctx, "add "+t.Task.UID)
		var refused *refusal
		if errors.As(err, &refused) {
			a.noticeBroken(t, err)
		} else if err != nil && ctx.Err() == nil {
			a.log.Error("a new arbiter could not be asked for a task", "task", t.Task.UID, "error", err)
		}
	}
}

// checkPages looks whether the pages of the tasks are still what they were made as: an arbiter that has them in use does not look
// again, and its successor would not take them.
func (a *Agent) checkPages() {
	a.ops.Lock()
	defer a.ops.Unlock()
	for _, t := range a.wholeTasks() {
		_, err := os.Lstat(a.run.task(t.Task.UID))
		if err == nil {
			err = t.check()
		}
		if err != nil {
			a.noticeBroken(t, err)
		}
	}
}

// check says what is wrong with the pages that are the agent's and the arbiter's; tel is its user's to spoil.
func (t *task) check() error {
	return errors.Join(t.ctl.Check(), t.book.Check())
}

// viewBook reads the book, if it still is one.
func (t *task) viewBook(read func(*page.Book) error) error {
	if err := t.book.Check(); err != nil {
		return err
	}
	return t.book.View(read)
}
