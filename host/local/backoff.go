package local

import (
	"fmt"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// What borrows memory floors and goes back into the line when it is evicted for them could start, borrow and be evicted without end, for nothing:
// from the second time in a row on it is not started before a while is over, longer each time.

const (
	backOffFirst   = 15 * time.Second
	backOffMost    = 30 * time.Minute
	backOffForgets = time.Hour // one that has run for so long has got something done: it begins anew
)

// codeBackOff is why such a workload waits.
const codeBackOff = "back_off"

// backOff is how long what was evicted for memory so often in a row is not started.
func backOff(times int) time.Duration {
	if times < 2 {
		return 0
	}
	return min(backOffFirst<<min(times-2, 16), backOffMost)
}

// class is which nodes a workload may use, as the engine knows it; empty: all.
func (w *work) class() string {
	if w.keep.Again == nil {
		return ""
	}
	return "back-off of " + w.now.Spec.Name
}

// holdBack says of a workload that goes back into the line, having begun then, when it may be started.
func (h *Host) holdBack(old, w *work, how *order, began *time.Time) {
	if !how.Memory {
		return
	}
	w.keep.Reclaimed = old.keep.Reclaimed + 1
	now := h.Now().Round(0)
	if began != nil && now.Sub(*began) >= backOffForgets {
		w.keep.Reclaimed = 1
	}
	if pause := backOff(w.keep.Reclaimed); pause > 0 {
		w.keep.Again = new(now.Add(pause).UTC())
	}
}

// awaitTurn has a workload that is held back be started when its time comes, or from now on where it has. It comes before the engine has it.
func (h *Host) awaitTurn(w *work) {
	again := w.keep.Again
	if again == nil {
		return
	}
	now := h.Now().Round(0)
	if !now.Before(*again) {
		h.step(engine.Feasibility{At: h.time(), Class: w.class(), Allowed: []string{h.name}})
		return
	}
	h.step(engine.Feasibility{At: h.time(), Class: w.class(), Barred: []engine.NodeReason{{Node: h.name, Code: codeBackOff}}})
	if h.dates.again == nil {
		h.dates.again = map[*work]bool{}
	}
	h.dates.again[w] = true
	h.ruling.sooner(now, *again)
}

// endBackOffs lets those be started whose time has come.
func (h *Host) endBackOffs(now time.Time) {
	for _, uid := range h.byOrder() {
		if w := h.work[uid]; h.dates.again[w] && !now.Before(*w.keep.Again) {
			delete(h.dates.again, w)
			h.step(engine.Feasibility{At: h.time(), Class: w.class(), Allowed: []string{h.name}})
		}
	}
}

// explainBackOff says why a workload waits that is held back.
func (h *Host) explainBackOff(w *work, why *api.Why) {
	if !h.dates.again[w] {
		return
	}
	why.Code = codeBackOff
	why.Message = fmt.Sprintf("waits until %s: the memory that it had borrowed was taken back %d times in a row", w.keep.Again.Local().Format(time.TimeOnly), w.keep.Reclaimed)
	why.Unblock = "that time; with as much memory as it needs for its floor (--mem) nobody takes it back"
	why.Counts = nil
}
