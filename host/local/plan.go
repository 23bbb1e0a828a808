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

// Plan says what would happen if a workload were submitted now, or refuses it as Submit would. It changes nothing, and leaves nothing
// in the event log. Without a command no program is looked for.
func (h *Host) Plan(ctx context.Context, who server.Caller, spec api.WorkloadSpec) (api.Plan, error) {
	program := len(spec.Command) > 0
	if !program {
		spec.Command, spec.Dir, spec.Env = []string{"none"}, "/", nil
	}
	if _, _, err := h.admit(who, &spec, program); err != nil {
		return api.Plan{}, refusal(err)
	}
	given := api.Workload{UID: newUID(), User: who.Name, UserID: who.UID, Spec: spec, Status: api.WorkloadStatus{Phase: api.Waiting}}
	var out api.Plan
	var refused error
	err := h.look(ctx, func() {
		w := (*work)(nil)
		if refused = h.cannotStore(); refused == nil {
			w, refused = h.check(given, keep{})
		}
		if refused == nil {
			out, refused = h.planned(w)
			out.Notes = w.now.Status.Notes // the time limit of its queue
		}
	})
	if err == nil && refused != nil {
		err = refusal(refused)
	}
	if err == nil {
		out.Notes = append(h.limitsNotHeld(given), out.Notes...)
	}
	return out, err
}

// planned has the engine say what would happen, with names in place of UIDs.
func (h *Host) planned(w *work) (api.Plan, error) {
	_, news := h.heldNow()
	plan := h.engine.PlanSubmit(news, engineWorkload(w), h.coming()...)
	if plan.Rejected != nil {
		return api.Plan{}, refuse(codeOf(plan.Rejected.Code), "%s", plan.Rejected.Reason)
	}
	var out api.Plan
	if plan.Place != nil {
		placing := plan.Place.Tasks[0]
		w.now.Status.Phase = api.Starting
		for _, one := range plan.Place.Tasks {
			w.now.Status.Grants = append(w.now.Status.Grants, h.shownGrants(one.Grants)...)
		}
		out = api.Plan{Phase: api.Starting, Node: placing.Node, Grants: w.now.Status.Grants, Message: h.holdingAll(w.now, plan.Place.Tasks)}
	} else {
		why := api.Why{}
		h.nameWhy(&plan.Why, &why)
		h.awaitWindow(w, &why)
		h.explainHours(w, &why)
		h.explainPriority(w, &why)
		out = api.Plan{
			Phase: api.Waiting, Message: why.Message, Place: why.Place, Code: why.Code, Counts: why.Counts, Unblock: why.Unblock, Ahead: why.Ahead,
			Start: h.shownStart(plan.Estimate), Behind: plan.Behind,
		}
	}
	if w.now.Spec.Several() && plan.Place != nil {
		out.Message += "; " + replicasText(len(plan.Place.Tasks), w.now)
	}
	if out.Evict = h.planEvictions(plan.Evict, w); len(out.Evict) > 0 {
		out.Message = "what its queue " + w.now.Spec.Queue + " is guaranteed would be taken back for it"
		if slices.ContainsFunc(plan.Evict, func(one engine.Evict) bool { return one.Code == engine.EvictPool }) {
			out.Message = "what others borrowed of a pool that is for it would be taken back"
		} else if !slices.ContainsFunc(plan.Evict, func(one engine.Evict) bool { return one.Code != engine.EvictShrink }) {
			out.Message = "replicas above those that their workloads are sure of would be ended for it"
		} else if !slices.ContainsFunc(plan.Evict, func(one engine.Evict) bool { return one.Code != engine.EvictShrink && one.Code != engine.EvictBackfill }) {
			out.Message = "work that was let in before the first in line, and was to be over by now, would be ended for it"
		} else if !slices.ContainsFunc(plan.Evict, func(one engine.Evict) bool { return one.Code == engine.EvictReclaim }) {
			out.Message = "work of a lower priority in its queue " + w.now.Spec.Queue + " would be ended for it"
		}
		out.Unblock = "those that would be evicted ending"
	}
	out.Promise, out.Use = h.promise(&plan), h.likelyUse(w)
	out.Delayed = plan.Delayed
	for _, one := range plan.Delays {
		delay := api.PlanDelay{Workload: h.nameOf(one.ID), From: h.shown(one.From)}
		if one.To != engine.Never {
			delay.To = new(h.shown(one.To))
		}
		out.Delays = append(out.Delays, delay)
	}
	return out, nil
}

// likelyUse is what a workload may be expected to use; nil: too little is known.
func (h *Host) likelyUse(w *work) *api.PlanUse {
	said, ok := h.engine.PredictUse(new(engineWorkload(w)))
	if !ok {
		return nil
	}
	return &api.PlanUse{
		Like: said.Compute.Like.String(), Runs: said.Compute.Samples,
		Compute: api.Milli(said.Compute.Median), ComputeFrom: api.Milli(said.Compute.Low), ComputeTo: api.Milli(said.Compute.High), //nolint:gosec // at most a whole device
		Memory: api.Bytes(said.Memory.Median), MemoryFrom: api.Bytes(said.Memory.Low), MemoryTo: api.Bytes(said.Memory.High),
	}
}

// planEvictions are those that a plan of reclaim or preemption would evict, each once.
func (h *Host) planEvictions(evict []engine.Evict, owner *work) []api.PlanEvict {
	var out []api.PlanEvict
	for _, one := range evict {
		name := h.nameOf(one.Workload)
		if o := h.replica(one.Workload, one.Task); o != nil {
			name = o.now.Spec.Name
		}
		if slices.ContainsFunc(out, func(o api.PlanEvict) bool { return o.Workload == name }) {
			continue
		}
		reason := "queue " + owner.now.Spec.Queue + " would take back what it is guaranteed"
		switch known, ok := h.engine.Workload(one.Workload); {
		case one.Code == engine.EvictPreempt:
			reason = fmt.Sprintf("what would be submitted, of priority %d in its queue %s, goes before it, of priority %d", owner.now.Priority(), owner.now.Spec.Queue, known.Priority)
		case one.Code == engine.EvictShrink:
			reason = "it is above the replicas that its workload is sure of"
		case one.Code == engine.EvictBackfill:
			reason = "it was let in before the first in line as it was predicted to be over by now"
		case one.Code == engine.EvictPool:
			reason = "it has borrowed devices of a pool that is for work of class " + string(owner.now.Spec.Class)
		case ok:
			reason += ", and queue " + known.Queue + " has borrowed it"
		}
		out = append(out, api.PlanEvict{Workload: name, Reason: reason})
	}
	return out
}

// promise says why nobody in front of a workload starts later by it.
func (h *Host) promise(plan *engine.SubmitPlan) string {
	if plan.Promise == nil {
		if plan.Place == nil {
			return "it takes its place in line, and nothing before its turn"
		}
		return "it would start in its turn: nobody in front of it could start on what it takes"
	}
	first := h.nameOf(plan.Promise.First) + ", the first in line,"
	at := ""
	if plan.Promise.At != engine.Never {
		at = " (" + h.shown(plan.Promise.At).Local().Format("2006-01-02 15:04:05") + ")"
	}
	switch plan.Promise.Code {
	case engine.PromiseEnds:
		return "its time limit is over before " + first + " starts at the latest" + at
	case engine.PromisePredicted:
		return "it is predicted to be over before " + first + " starts at the latest" + at + ", and is evicted for that where it is not"
	case engine.PromiseBeside:
		return fmt.Sprintf("it leaves all that %s has from its latest start on%s", first, at)
	case engine.PromiseNothing:
		return "it holds nothing that anyone could miss"
	default:
		return "it takes only what " + strings.TrimSuffix(first, ",") + ", could never use, or leaves room for all of that"
	}
}
