package local

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/node"
	"github.com/aliquot-dev/aliquot/server"
)

// complaint says what does not hold after a crash.
type complaint func(format string, args ...any)

// checkBooks holds the engine's books, the API's word and the pages against one another.
func checkBooks(host *Host, agent Agent, complain complaint) {
	pages := map[string]node.Task{}
	for _, task := range agent.Prepared() {
		pages[task.UID] = task
	}
	err := host.look(context.Background(), func() {
		granted := map[string]bool{}
		for _, book := range host.engine.Devices() {
			if book.ComputeFree < 0 || book.MemoryFree < 0 {
				complain("more is granted than there is: %+v", book)
			}
			for _, uid := range book.Grants {
				granted[uid] = true
			}
		}
		for uid, w := range host.work {
			page, prepared := pages[uid]
			if prepared != w.running() {
				complain("%s is %s and prepared: %v", w.now.Spec.Name, w.now.Status.Phase, prepared)
			}
			delete(pages, uid)
			if !w.running() {
				continue
			}
			if !reflect.DeepEqual(page.Grants, nodeGrants(w.keep.Placing.Grants)) {
				complain("the page of %s says %+v, the books %+v", w.now.Spec.Name, page.Grants, w.keep.Placing.Grants)
			}
			for _, grant := range w.now.Status.Grants {
				if !granted[grant.UID] {
					complain("%s is not in the books: %+v", grant.UID, granted)
				}
				delete(granted, grant.UID)
			}
		}
		if len(granted) > 0 || len(pages) > 0 {
			complain("granted to nobody: %v; prepared for nobody: %v", granted, pages)
		}
	})
	if err != nil {
		complain("the books cannot be read: %v", err)
	}
}

// checkEnd checks that a workload's end is known, that it ran at most once, and that its log is whole.
func checkEnd(host *Host, root string, work api.Workload, complain complaint) {
	status := work.Status
	if status.Phase != api.Ended || status.Outcome == "" {
		complain("%s has no known end: %+v", work.Spec.Name, status)
	}
	switch status.Outcome {
	case api.Stopped: // all that lives at the end is
	case api.Unknown:
		if !strings.Contains(status.Reason, "its exit status is unknown: ") {
			complain("%s does not say why its status is unknown: %q", work.Spec.Name, status.Reason)
		}
	case api.Failed: // only one program of the story ends by itself
		if work.Spec.Name != "exits" || status.ExitCode == nil || *status.ExitCode != 3 {
			complain("%s ended with %+v", work.Spec.Name, status)
		}
	case api.Refused: // its supervisor was killed before it began
		if status.Reason == "" {
			complain("%s does not say why it was not started", work.Spec.Name)
		}
	default: // no program of the story succeeds, has a time limit, or is in anybody's way
		complain("%s ended with %+v", work.Spec.Name, status)
	}
	if runs := recorded(root, "ran-"+work.UID); len(runs) > 1 {
		complain("%s was started %d times", work.Spec.Name, len(runs))
	}
	if _, err := os.Stat(filepath.Join(root, "done-"+work.UID)); err == nil {
		var out bytes.Buffer
		if err := host.Logs(context.Background(), me, work.UID, server.LogPart{}, &out); err != nil || bytes.Count(out.Bytes(), []byte("\n")) != storyLines {
			complain("%d of %d lines are in the log of %s, %v", bytes.Count(out.Bytes(), []byte("\n")), storyLines, work.Spec.Name, err)
		}
	}
	if left, err := supervise.Leftover(supervise.Task{UID: work.UID, User: work.UserID}); err != nil || len(left) > 0 {
		complain("processes of %s are left: %v, %v", work.Spec.Name, left, err)
	}
}
