package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// loadTasks opens what earlier agents prepared and removes what they left half made or half removed.
func (a *Agent) loadTasks() error {
	entries, err := os.ReadDir(a.run.tasks())
	if err != nil {
		return fmt.Errorf("list the prepared tasks: %w", err)
	}
	for _, entry := range entries {
		uid := entry.Name()
		if strings.HasPrefix(uid, making) || strings.HasPrefix(uid, removing) {
			if err := os.RemoveAll(a.run.task(uid)); err != nil {
				return fmt.Errorf("remove what an earlier agent left: %w", err)
			}
			continue
		}
		if !entry.IsDir() {
			a.log.Warn("what lies among the tasks is none of ours and is left alone", "file", a.run.task(uid))
			continue
		}
		t, err := openTask(a.run.task(uid))
		if err != nil {
			a.breaks(t, err)
		}
		a.tasks[uid] = t
	}
	return nil
}

// repair finishes what an earlier agent began: limits that were recorded but not ordered, tasks that the arbiter was not told of,
// tasks that were being unprepared. A task that cannot be taken over any more holds up nobody else: it is broken.
func (a *Agent) repair(ctx context.Context, found bool) error {
	if found {
		for uuid := range a.devices {
			if _, err := a.arbiter.request(ctx, "device "+uuid); err != nil {
				return err
			}
		}
	}
	for uid, t := range a.tasks {
		if t.Ending {
			if err := a.unprepare(ctx, t); err != nil {
				return fmt.Errorf("finish unpreparing task %s: %w", uid, err)
			}
			continue
		}
		if t.broken != nil {
			continue
		}
		changed, err := t.order(a.capacity, 0)
		if err != nil {
			a.breaks(t, err)
			continue
		}
		// It may have been killed between the folder and the arbiter's being told of it; and the arbiter may not have adopted it.
		_, err = a.arbiter.request(ctx, "add "+uid)
		if err == nil && changed {
			_, err = a.arbiter.request(ctx, "policy "+uid)
		}
		var refused *refusal
		if errors.As(err, &refused) {
			a.breaks(t, err)
		} else if err != nil {
			return fmt.Errorf("take over task %s: %w", uid, err)
		}
	}
	return nil
}
