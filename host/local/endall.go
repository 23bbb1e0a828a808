package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/aliquot-dev/aliquot/host/local/supervise"
)

// EndTasks ends the tasks of a STATE folder on which no daemon works, as an order to stop does: SIGTERM, after grace SIGKILL. How
// each ended stays in its folder, where the next daemon takes it up. It returns how many there were.
func EndTasks(ctx context.Context, state string, grace time.Duration) (count int, err error) {
	tasks := filepath.Join(state, "tasks")
	entries, err := os.ReadDir(tasks)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("end the tasks: %w", err)
	}
	lock, err := lockFolder(ctx, state)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	running := map[string]supervise.Found{}
	for _, entry := range entries {
		folder := supervise.Folder(filepath.Join(tasks, entry.Name()))
		found, err := folder.Look()
		if err != nil {
			return 0, fmt.Errorf("end task %s: %w", entry.Name(), err)
		}
		if !found.Supervised && (found.Child == nil || !found.Child.Alive()) {
			continue
		}
		running[entry.Name()] = found
		if err := folder.Order(supervise.Order{Grace: grace}); err != nil {
			return 0, fmt.Errorf("end task %s: %w", entry.Name(), err)
		}
	}
	// All were told first, so that their graces pass together.
	for uid, found := range running {
		patience := grace
		if found.Supervised {
			if err := found.Supervisor.Ended(ctx); err != nil {
				return 0, fmt.Errorf("end task %s: %w", uid, err)
			}
			patience = 0 // it had its grace
		}
		if err := supervise.EndLeftover(ctx, found.Task(uid), patience); err != nil {
			return 0, fmt.Errorf("end task %s: %w", uid, err)
		}
	}
	return len(running), nil
}
