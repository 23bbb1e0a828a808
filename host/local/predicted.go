package local

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// pastLearned is of how much work that ended the engine learns when a daemon begins: what was submitted last.
const pastLearned = 1000

// learnPast has the engine learn from work that ended before this daemon began: how long what is like it will run, and what it will use. No guarantee
// hangs on that, so a server starts without it, too.
func (h *Host) learnPast(ctx context.Context) {
	rows, err := h.store.LastEnded(ctx, pastLearned)
	if err != nil {
		h.Log.Warn("estimates begin anew: what ended before cannot be read", "error", err)
		return
	}
	var past []engine.Past
	now := h.Now()
	for _, row := range rows {
		status := row.Status
		byItself := status.Outcome == api.Succeeded || status.Outcome == api.Failed || status.Outcome == api.TimedOut
		used := usedBy(row.Workload)
		if !byItself && used == nil || status.Started == nil || status.Ended == nil {
			continue
		}
		w := newWork(row.Seq, row.Workload, keep{})
		past = append(past, engine.Past{
			Workload: engineWorkload(w),
			Ago:      micros(now.Sub(*status.Ended)), Ran: micros(status.Ended.Sub(*status.Started)),
			Stopped: !byItself, Used: used,
		})
	}
	slices.SortStableFunc(past, func(a, b engine.Past) int { return cmp.Compare(b.Ago, a.Ago) })
	if len(past) == 0 {
		return
	}
	if rejected := h.step(engine.Learn{At: h.time(), Past: past}); rejected != nil {
		h.Log.Warn("estimates begin anew: what ended before could not be learned from", "error", rejected.Reason)
	}
}

// mostUsed is the most memory that the engine is told was used.
const mostUsed = api.Bytes(1) << 50

// usedBy is what a workload that ended used of each of its devices; nil where that is not known, or not all of it.
func usedBy(work api.Workload) *engine.Used {
	status := &work.Status
	evaded := slices.ContainsFunc(status.Usage, func(one api.Usage) bool { return !one.Enforced })
	if status.Started == nil || status.Ended == nil || len(status.Usage) == 0 || evaded {
		return nil
	}
	var busy time.Duration
	var memory api.Bytes
	for i := range status.Usage {
		busy += status.Usage[i].DeviceTime
		memory = max(memory, min(status.Usage[i].MemoryPeak, mostUsed))
	}
	ran := status.Ended.Sub(*status.Started)
	if ran <= 0 {
		return nil
	}
	return &engine.Used{Compute: rate(min(busy/time.Duration(len(status.Usage)), ran), ran), Memory: memory}
}

// micros is a time in µs, 0 where a clock was set back meanwhile.
func micros(d time.Duration) engine.Time { return engine.Time(max(d, 0).Microseconds()) }
