package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/internal/point"
)

// cleanOrphans ends and removes what belongs to no live workload.
func (h *Host) cleanOrphans(ctx context.Context, known map[string]bool) error {
	entries, err := os.ReadDir(filepath.Join(h.State, "tasks"))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		uid := entry.Name()
		if known[uid] {
			continue
		}
		folder := h.folder(uid)
		found, err := folder.Look()
		if err == nil && found.Supervised {
			err = folder.Order(supervise.Order{})
			if err == nil {
				err = found.Supervisor.Ended(ctx)
			}
		}
		if err != nil {
			h.Log.Warn("the folder of a task without a workload", "task", uid, "error", err)
		}
		if err := supervise.EndLeftover(ctx, found.Task(uid), 0); err != nil {
			h.Log.Error("processes of a task without a workload could not be ended", "task", uid, "error", err)
		}
		h.groups.Remove(uid)
		if err := folder.Remove(); err != nil {
			return err
		}
		if found.Child != nil && found.Exit == nil {
			h.reportOrphan(uid)
		}
	}
	for _, task := range h.Agent.Prepared() {
		w := h.work[task.UID]
		if w != nil && w.keep.Placing != nil {
			continue
		}
		point.Here("local.orphan.found")
		if err := h.Agent.Unprepare(ctx, task.UID); err != nil {
			return fmt.Errorf("take back the grants of a task without a workload: %w", err)
		}
		if w == nil {
			h.reportOrphan(task.UID)
		}
	}
	return nil
}

func (h *Host) reportOrphan(uid string) {
	if !slices.Contains(h.orphaned, uid) {
		h.orphaned = append(h.orphaned, uid)
		h.Log.Warn("a task without a workload was found and cleaned up", "task", uid)
		h.say("node", nil, "a task without a workload was found and cleaned up: "+uid)
	}
}
