package local

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/server"
)

// The host is what the server serves.
var _ server.Host = (*Host)(nil)

// find returns the live workload with this UID or name; nil if there is none.
func (h *Host) find(name string) *work {
	if w := h.work[name]; w != nil {
		return w
	}
	return h.names[name]
}

// owned returns the live workload of this name if the caller may have it changed.
func (h *Host) owned(ctx context.Context, who server.Caller, name, what string) (*work, error) {
	w := h.find(name)
	if w == nil {
		row, found, err := h.store.Find(ctx, name)
		switch {
		case err != nil:
			return nil, refusal(err)
		case !found:
			return nil, noSuch(name)
		default:
			return nil, hasEnded(row.Workload, what)
		}
	}
	if w.over {
		return nil, hasEnded(w.now, what)
	}
	if !h.may(who.UID, w.now.UserID) {
		return nil, refuse(api.CodeForbidden, "%s belongs to %s: only that user or root may %s it", w.now.Spec.Name, w.now.User, what)
	}
	return w, nil
}

func hasEnded(work api.Workload, what string) error {
	return refuse(api.CodeConflict, "%s has ended (%s): there is nothing left to %s", work.Spec.Name, work.Status.Outcome, what)
}

func noSuch(name string) error {
	return refuse(api.CodeNotFound, "there is no workload %s: see `aliquot ps --all`", name)
}

// Workloads lists those that are live and, with ended, those that are over, oldest first.
func (h *Host) Workloads(ctx context.Context, ended bool) ([]api.Workload, error) {
	live := []api.Workload{}
	err := h.look(ctx, func() {
		places := map[string]int{}
		for i, uid := range h.engine.Waiting() {
			places[uid] = i + 1
		}
		for _, uid := range h.byOrder() {
			one := h.shownNow(h.work[uid])
			if one.Status.Phase == api.Waiting {
				one.Status.Place = places[one.UID]
			}
			live = append(live, one)
		}
	})
	if err == nil {
		err = h.addUse(ctx, live)
	}
	if err != nil || !ended {
		return live, err
	}
	// After the live ones: one that ends between the two looks is then found twice, not missed, and is listed once.
	rows, err := h.store.Ended(ctx)
	if err != nil {
		return nil, refusal(err)
	}
	list := make([]api.Workload, 0, len(rows)+len(live))
	over := map[string]bool{}
	for _, row := range rows {
		list = append(list, row.Workload)
		over[row.UID] = true
	}
	live = slices.DeleteFunc(live, func(one api.Workload) bool { return over[one.UID] })
	return append(list, live...), nil
}

// Workload finds by name (the live one, else the latest) or UID.
func (h *Host) Workload(ctx context.Context, name string) (api.Workload, error) {
	return h.wait(ctx, name)
}

// Wait returns the workload once its phase is none of the given ones. Without any it says what the workload uses now, too.
func (h *Host) Wait(ctx context.Context, name string, while ...api.Phase) (api.Workload, error) {
	work, err := h.wait(ctx, name, while...)
	if err != nil || len(while) > 0 {
		return work, err
	}
	one := []api.Workload{work}
	err = h.addUse(ctx, one)
	return one[0], err
}

func (h *Host) wait(ctx context.Context, name string, while ...api.Phase) (api.Workload, error) {
	for {
		var shown api.Workload
		var changed <-chan struct{}
		err := h.look(ctx, func() {
			if w := h.find(name); w != nil {
				shown, changed = h.shownNow(w), w.changed
				if shown.Status.Phase == api.Waiting {
					shown.Status.Place = slices.Index(h.engine.Waiting(), shown.UID) + 1
				}
			}
		})
		switch {
		case err != nil:
			return api.Workload{}, err
		case changed == nil:
			row, found, err := h.store.Find(ctx, name)
			if err != nil {
				return api.Workload{}, refusal(err)
			}
			if !found {
				return api.Workload{}, noSuch(name)
			}
			return row.Workload, nil
		case !slices.Contains(while, shown.Status.Phase):
			return shown, nil
		}
		name = shown.UID // another may take the name meanwhile
		select {
		case <-changed:
		case <-ctx.Done():
			return api.Workload{}, ctx.Err()
		case <-h.quit:
			return api.Workload{}, refuse(api.CodeUnavailable, "the server is stopping: ask again when it is back")
		}
	}
}

// Why says why a workload waits, or what became of it.
func (h *Host) Why(ctx context.Context, name string) (api.Why, error) {
	work, err := h.Workload(ctx, name)
	if err != nil {
		return api.Why{}, err
	}
	status := work.Status
	why := api.Why{Workload: work.Spec.Name, Phase: status.Phase, Code: string(status.Phase), Message: status.Reason}
	switch status.Phase {
	case api.Waiting:
		err = h.look(ctx, func() { h.explain(work.UID, &why) })
	case api.Ended:
		why.Code, why.Message = strings.ReplaceAll(string(status.Outcome), " ", "_"), strings.TrimPrefix(sentence(status), "ended: ")
	case api.Running:
		err = h.look(ctx, func() {
			why.Message = strings.TrimPrefix(status.Reason+"; "+h.holding(work), "; ")
			h.whyReplicas(work, &why)
		})
	default:
		if why.Message == "" {
			err = h.look(ctx, func() { why.Message = h.holding(work) })
		}
	}
	if err == nil && status.Phase != api.Ended {
		err = h.look(ctx, func() { h.explainUnstored(work.UID, &why) })
	}
	if err != nil {
		return api.Why{}, err
	}
	if why.History, err = h.store.History(ctx, work.UID); err != nil {
		return api.Why{}, refusal(err)
	}
	return why, nil
}

// explain has the engine say why a workload waits, with names in place of UIDs.
func (h *Host) explain(uid string, why *api.Why) {
	engines := h.engine.Why(uid)
	h.nameWhy(&engines, why)
	if w := h.work[uid]; w != nil && engines.Phase == api.Waiting {
		if at := h.known(engines.Guarded); at != nil {
			why.Unblock += ", the first of it until " + moment(*at)
		}
		h.awaitWindow(w, why)
		h.explainHours(w, why)
		h.explainPriority(w, why)
		h.explainBackOff(w, why)
		why.Start = h.expectedOf(w)
		why.Estimate = why.Start.Latest
	}
}

// nameWhy says what the engine says, with names in place of UIDs.
func (h *Host) nameWhy(engines *engine.Why, why *api.Why) {
	why.Phase, why.Place, why.Code, why.Message = engines.Phase, engines.Place, engines.Code, engines.Message
	why.Unblock, why.Counts = engines.Unblock, engines.Counts
	if out, all := h.outOfService(); engines.Code == engine.WhyNever && out != "" {
		why.Unblock = "a device that takes work again: see `aliquot devices`"
		if all {
			why.Message = out
		} else {
			why.Message = out + "; and " + engines.Message
		}
	}
	h.nameAbove(why, engines.Above)
	for _, ahead := range engines.Ahead {
		why.Ahead = append(why.Ahead, h.nameOf(ahead))
	}
}

// explainUnstored says of a workload for which more was decided than could be stored that this is what it waits for.
func (h *Host) explainUnstored(uid string, why *api.Why) {
	if w := h.work[uid]; w != nil && w.dirty && h.broken != nil {
		why.Code, why.Message = api.CodeUnavailable, "what was decided for it is done as soon as it can be stored: "+h.broken.Error()
	}
}

// holding says what a workload that was placed holds, and what it may have beyond that.
func (h *Host) holding(work api.Workload) string {
	grants := work.Status.Grants
	if len(grants) == 0 {
		return "it is " + string(work.Status.Phase)
	}
	names := make([]string, len(grants))
	for i, grant := range grants {
		names[i] = "device " + grant.Device
		if device := h.devices[grant.Device]; device != nil {
			names[i] = fmt.Sprintf("device %d (%s)", device.Index, device.Model)
		}
	}
	each := ""
	if len(grants) > 1 {
		each = " of each"
	}
	one := grants[0]
	text := fmt.Sprintf("on %s, with %s of compute and %s of memory%s as its own", strings.Join(names, " and "), one.ComputeFloor, one.MemoryFloor.Short(), each)
	if one.ComputeLimit > one.ComputeFloor {
		text += fmt.Sprintf("; up to %s of compute while others leave it idle", one.ComputeLimit)
	}
	if one.MemoryCeiling > one.MemoryFloor {
		text += fmt.Sprintf("; up to %s of memory while it is free", one.MemoryCeiling.Short())
		if work.Spec.OnReclaim == api.ReclaimStop {
			text += " or others leave theirs idle, who have it ended when they want it"
		}
	}
	if lent, to := h.lentOf(work.UID); len(to) > 0 {
		text += fmt.Sprintf("; %s of its memory is lent to %s while it does not use it", lent.Short(), strings.Join(to, " and "))
	}
	return text
}

func codeOf(code string) string {
	switch code {
	case api.CodeInvalid, api.CodeNotFound:
		return code
	default:
		return api.CodeConflict
	}
}

// Queues lists the queues with what they hold.
func (h *Host) Queues(ctx context.Context) ([]api.Queue, error) {
	var queues []api.Queue
	err := h.look(ctx, func() { queues = h.withDates(h.engine.Queues()) })
	return queues, err
}

// SetQueue makes or changes a queue.
func (h *Host) SetQueue(ctx context.Context, who server.Caller, spec api.QueueSpec) (api.Queue, error) {
	if err := h.mayRule(who); err != nil {
		return api.Queue{}, err
	}
	if err := spec.Validate(); err != nil {
		return api.Queue{}, refusal(err)
	}
	spec.HoursSpent = false // is the host's to find
	if spec.PriorityUntil != nil {
		spec.PriorityUntil = new(spec.PriorityUntil.UTC())
	}
	err := h.request(ctx, func() error {
		if err := checkDate(spec.PriorityUntil, h.Now()); err != nil {
			return err
		}
		if err := h.nameModels(&spec); err != nil {
			return err
		}
		if err := h.setQueue(spec); err != nil {
			return err
		}
		h.say("queue", nil, "queue "+spec.Name+" has a quota of "+spec.Quota.String())
		return nil
	})
	if err != nil {
		return api.Queue{}, err
	}
	queues, err := h.Queues(ctx)
	if i := slices.IndexFunc(queues, func(queue api.Queue) bool { return queue.Name == spec.Name }); err == nil && i >= 0 {
		return queues[i], nil
	}
	return api.Queue{QueueSpec: spec}, err
}

// RemoveQueue removes a queue that holds nothing.
func (h *Host) RemoveQueue(ctx context.Context, who server.Caller, name string) error {
	if err := h.mayRule(who); err != nil {
		return err
	}
	return h.request(ctx, func() error {
		known := slices.ContainsFunc(h.engine.Queues(), func(queue api.Queue) bool { return queue.Name == name })
		if !known {
			return refuse(api.CodeNotFound, "there is no queue %s: see `aliquot queue list`", name)
		}
		if p := h.ruling.policy; p != nil && p.Names(name) {
			return refuse(api.CodeConflict, "queue %s is named in the policy %s: take it out there and set the policy again, then remove it", name, h.ruling.file.Name)
		}
		if i := slices.IndexFunc(h.ruling.own, func(q api.QueueSpec) bool { return q.Parent == name }); i >= 0 && h.ruling.policy != nil {
			return refuse(api.CodeConflict, "queue %s cannot be removed while %s is under it, be it only when no policy holds: move or remove that one first", name, h.ruling.own[i].Name)
		}
		if rejected := h.step(engine.QueueGone{At: h.time(), Queue: name}); rejected != nil {
			return refuse(api.CodeConflict, "%s", rejected.Reason)
		}
		h.pending.Queues = slices.DeleteFunc(h.pending.Queues, func(set api.QueueSpec) bool { return set.Name == name })
		h.pending.QueuesGone = append(h.pending.QueuesGone, name)
		h.ruling.set(slices.DeleteFunc(slices.Clone(h.ruling.own), func(q api.QueueSpec) bool { return q.Name == name }))
		delete(h.dates.queues, name)
		h.say("queue", nil, "queue "+name+" is removed")
		return nil
	})
}

func (h *Host) mayRule(who server.Caller) error {
	if h.rules(who.UID) {
		return nil
	}
	return refuse(api.CodeForbidden, "queues are set by root, and you are %s", who.Name)
}
