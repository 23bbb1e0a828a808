package local

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
)

// queuesUsedSetting is where what queues used is kept, by which those that used least go first.
const queuesUsedSetting = "queues-used"

// queuesUsedEvery is how often it is kept at most: until it is again, who holds something now is taken to have held it since.
const queuesUsedEvery = time.Minute

// keptQueuesUsed is what queues used up to a time.
type keptQueuesUsed struct {
	At     time.Time          `json:"at"`
	Queues []engine.QueueUsed `json:"queues"`
}

// keepQueuesUsed has what queues used stored with what else is, where that was last done some time ago.
func (h *Host) keepQueuesUsed() {
	now := h.passed(h.Now())
	if h.entering || now-h.usesKept < queuesUsedEvery {
		return
	}
	kept, err := json.Marshal(keptQueuesUsed{h.Now().Round(0), h.engine.QueuesUsed(h.time().At)})
	if err != nil { // it is made of strings, numbers and a time
		panic(err)
	}
	h.usesKept = now
	h.set(map[string]string{queuesUsedSetting: string(kept)})
}

// recallQueuesUsed has the order of queues go on where the server before this one stopped, once the engine knows what runs. No guarantee hangs on it, so a
// server starts without it, too.
func (h *Host) recallQueuesUsed(ctx context.Context, ended map[*work]supervise.Exit) error {
	text, err := h.store.Setting(ctx, queuesUsedSetting)
	if err != nil || text == "" {
		return err
	}
	var kept keptQueuesUsed
	err = json.Unmarshal([]byte(text), &kept)
	if err == nil && len(kept.Queues) > 0 {
		now := h.Now()
		rejected := h.step(engine.QueuesUsed{At: h.time(), Ago: micros(now.Sub(kept.At)), Queues: kept.Queues})
		if rejected == nil && len(ended) > 0 {
			rejected = h.step(engine.QueuesUsed{At: h.time(), Queues: h.usedBut(ended, kept.At, now)})
		}
		if rejected != nil {
			err = errors.New(rejected.Reason)
		}
	}
	if err != nil {
		h.Log.Error("what queues used cannot be taken up, and counts from now on", "error", err)
	}
	return nil
}

// usedBut is what queues used until now, but for what was counted since a time of what had ended then, or has since.
func (h *Host) usedBut(ended map[*work]supervise.Exit, since, now time.Time) []engine.QueueUsed {
	used := h.engine.QueuesUsed(h.time().At)
	for w, exit := range ended {
		from := exit.At
		if from.Before(since) {
			from = since
		}
		over := h.engine.UseOf(heldBy(w), micros(now.Sub(from)))
		above := h.above(w.now.Spec.Queue)
		for i := range used {
			u := &used[i]
			if !slices.Contains(above, u.Queue) {
				continue
			}
			u.All = max(0, u.All-over)
			if u.Queue == w.now.Spec.Queue {
				u.Own = max(0, u.Own-over)
			}
		}
	}
	return used
}
