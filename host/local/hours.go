package local

import (
	"context"
	"encoding/json"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/host/policy"
)

// hoursSetting is where what queues used of their device-hours is kept, as policy.KeptHours; empty: none have any.
const hoursSetting = "hours"

// zone is the one whose days, weeks and months count: that of the policy, else the machine's.
func (r *rules) zone() *time.Location {
	if r.policy != nil {
		return r.policy.Location()
	}
	return time.Local
}

// marked is what the engine is told, with the queues in it whose device-hours are used up.
func (h *Host) marked(told engine.Policy) engine.Policy {
	h.hours.Mark(told.Queues)
	return told
}

// toldHours notes what an event that was taken told the engine of device-hours.
func (h *Host) toldHours(event engine.Event) {
	switch event := event.(type) {
	case engine.PolicySet:
		h.hours.Told(event.Policy.Queues)
	case engine.QueueSet:
		h.hours.Told([]api.QueueSpec{event.Queue})
	}
}

// setHours has the device-hours counted that queues have from now on.
func (h *Host) setHours(now time.Time) {
	if h.counting {
		h.hours.Set(h.ruling.queuesNow(), h.ruling.zone(), now, h.time().At)
		h.tellHours(now)
	}
}

// turnHours counts until now, and tells the engine whose device-hours are used up, and who has some again.
func (h *Host) turnHours(now time.Time) {
	if h.hours.None() {
		return
	}
	h.hours.Count(h.time().At, h.engine.Held)
	h.hours.Turn(now)
	h.tellHours(now)
}

func (h *Host) tellHours(now time.Time) {
	changed := h.hours.Changed()
	if len(changed) == 0 {
		return
	}
	if rejected := h.step(engine.PolicySet{At: h.time(), Policy: h.marked(h.ruling.under(h.ruling.own, now))}); rejected != nil {
		h.Log.Error("the engine could not be told whose device-hours are used up", "error", rejected.Reason)
		return
	}
	for _, name := range changed {
		if text, next := h.hours.Spent(name); text != "" {
			h.say("queue", nil, text+": nothing more of it is started before "+next)
		} else {
			h.say("queue", nil, "queue "+name+" has device-hours again")
		}
	}
}

// resumeHours goes on counting where the server before this one stopped: what runs has run since, but for what has ended meanwhile.
func (h *Host) resumeHours(ctx context.Context, ended map[*work]supervise.Exit) error {
	text, err := h.store.Setting(ctx, hoursSetting)
	if err != nil {
		return err
	}
	var kept policy.KeptHours
	if text != "" {
		if err := json.Unmarshal([]byte(text), &kept); err != nil {
			h.Log.Error("what queues used of their device-hours cannot be read, and counts from now on", "error", err)
		}
	}
	now := h.Now()
	h.hours.Resume(kept)
	h.hours.Set(h.ruling.queuesNow(), h.ruling.zone(), now, h.time().At)
	h.hours.Count(h.time().At, h.engine.Held)
	h.counting = true
	for w, exit := range ended {
		for _, q := range h.above(w.now.Spec.Queue) {
			since := exit.At
			if used := h.hours.Used(q); used != nil && used.Begin.After(since) {
				since = used.Begin
			}
			if kept.At.After(since) {
				since = kept.At
			}
			if held := heldBy(w); since.Before(now) {
				h.hours.Forgive(q, held, now.Sub(since))
			}
		}
	}
	h.tellHours(now)
	return nil
}

// heldBy is the compute that a workload holds as floors.
func heldBy(w *work) (sum api.Milli) {
	for _, g := range w.keep.Placing.Grants {
		sum += g.Compute.Floor
	}
	return sum
}

// above are a queue and those above it.
func (h *Host) above(queue string) (all []string) {
	parents := map[string]string{}
	for _, q := range h.engine.Queues() {
		parents[q.Name] = q.Parent
	}
	for ; queue != ""; queue = parents[queue] {
		all = append(all, queue)
	}
	return all
}

// keepHours has what was counted stored with what else is: whatever was held since is known then from who held it.
func (h *Host) keepHours() {
	if h.hours.None() {
		return
	}
	h.hours.Count(h.time().At, h.engine.Held)
	kept, err := json.Marshal(h.hours.Keep(h.Now()))
	if err != nil { // it is made of strings, numbers and times
		panic(err)
	}
	h.set(map[string]string{hoursSetting: string(kept)})
}

// explainHours says of work whose queue has used its device-hours up how much that is, and when the next begin.
func (h *Host) explainHours(w *work, why *api.Why) {
	if why.Code != engine.WhyHours {
		return
	}
	if message, unblock := h.hours.Explain(h.above(w.now.Spec.Queue)); message != "" {
		why.Message, why.Unblock = message, unblock
	}
}
