package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/policy"
	"github.com/aliquot-dev/aliquot/server"
)

// policySetting is where the policy file is kept, as an api.Policy; empty: none is set.
const policySetting = "policy"

// windowPace is how often, at least, it is looked whether another window holds: the clock may be set, and the machine may sleep.
const windowPace = time.Minute

// rules are the queues of a server by themselves and its policy file.
type rules struct {
	own    []api.QueueSpec // as users set them, the default queue included; the store has the same
	file   api.Policy
	policy *policy.Policy                    // nil: none is set
	quotas map[*policy.Window]*engine.Quotas // by the window that holds, as far as they were asked for
	holds  *policy.Window                    // nil: none does
	looked time.Time                         // when it was last found out which does
	next   time.Time                         // when it is to be found out again; zero: never
	failed string                            // why a window could not begin, or the policy does not hold
	doubt  string                            // what is wrong with a policy that holds: by now, or since no device is in a pool of it
}

// under is what the engine is told at a moment, with queues that are so by themselves.
func (r *rules) under(own []api.QueueSpec, now time.Time) engine.Policy {
	told := engine.Policy{Queues: own}
	if r.policy != nil {
		told = r.policy.During(r.holds, own)
	}
	told.Queues, _ = policy.Holding(told.Queues, now)
	return told
}

// quotasIn are the quotas and limits while a window holds, nil: while none does. They are kept until the queues change.
func (r *rules) quotasIn(w *policy.Window) *engine.Quotas {
	if known := r.quotas[w]; known != nil {
		return known
	}
	quotas, err := engine.QuotasOf(r.policy.During(w, r.own))
	if err != nil { // what was checked before adds up
		return nil
	}
	if r.quotas == nil {
		r.quotas = map[*policy.Window]*engine.Quotas{}
	}
	r.quotas[w] = quotas
	return quotas
}

// set has the queues be others by themselves.
func (r *rules) set(own []api.QueueSpec) { r.own, r.quotas = own, nil }

// checks says what does not add up with queues that are so by themselves: under the policy at any time, and without it.
func (r *rules) checks(own []api.QueueSpec) error {
	if r.policy != nil {
		if err := r.policy.Check(own); err != nil {
			return err
		}
	}
	return (&policy.Policy{}).Check(own)
}

// with are queues with one more, or with one changed.
func with(own []api.QueueSpec, spec api.QueueSpec) []api.QueueSpec {
	own = slices.Clone(own)
	if i := slices.IndexFunc(own, func(q api.QueueSpec) bool { return q.Name == spec.Name }); i >= 0 {
		own[i] = spec
		return own
	}
	return append(own, spec)
}

// recoverPolicy takes up the policy file that was set. A server whose policy cannot be read any more starts without it, and says so.
func (h *Host) recoverPolicy(ctx context.Context) error {
	text, err := h.store.Setting(ctx, policySetting)
	if err != nil || text == "" {
		return err
	}
	var file api.Policy
	if err := json.Unmarshal([]byte(text), &file); err != nil {
		h.ruling.failed = fmt.Sprintf("the policy that was set cannot be read: %v; set it again with `aliquot policy set`", err)
		h.Log.Error("the server starts without its policy", "error", err)
		return nil
	}
	if err := h.usePolicy(file, true); err != nil {
		h.ruling.failed = fmt.Sprintf("the policy %s does not hold: %v; set it again with `aliquot policy set`", file.Name, err)
		h.Log.Error("the server starts without its policy", "policy", file.Name, "error", err)
	}
	return nil
}

// readPolicy reads a policy file, with whole names of the models that there are. Where it holds again, after a restart, models that are gone,
// windows that overlap by new rules of a zone and placements in which nothing counts are doubts, and no reason to have none of it hold: of two
// windows the first does. Pools without devices always are.
func (h *Host) readPolicy(file api.Policy, again bool) (read *policy.Policy, doubts error, err error) {
	if again {
		read, err = policy.Read(file.Name, file.Text)
	} else {
		read, err = policy.Parse(file.Name, file.Text, h.Now())
	}
	if err != nil {
		return nil, nil, err
	}
	read, wrong, err := read.For(h.models())
	if err != nil {
		return nil, nil, err
	}
	if again {
		wrong = append(wrong, read.Overlap(h.Now()), read.Indifferent())
	} else if len(wrong) > 0 {
		return nil, nil, wrong[0]
	}
	return read, errors.Join(append(wrong, h.withoutDevices(read, wrong)...)...), nil
}

// withoutDevices are the doubts about pools that no device is in, but for those in whose line something else is wrong.
func (h *Host) withoutDevices(p *policy.Policy, wrong []error) []error {
	var devices []policy.Device
	for _, device := range h.devices {
		devices = append(devices, policy.Device{Node: h.name, Model: device.Model, Index: device.Index})
	}
	told := func(line int) bool {
		return slices.ContainsFunc(wrong, func(err error) bool {
			var at *policy.Error
			return errors.As(err, &at) && at.Line == line
		})
	}
	return slices.DeleteFunc(p.Unmatched(devices), func(err error) bool {
		var at *policy.Error
		return errors.As(err, &at) && told(at.Line)
	})
}

// usePolicy has a policy file hold from now on, or again.
func (h *Host) usePolicy(file api.Policy, again bool) error {
	parsed, doubts, err := h.readPolicy(file, again)
	if err != nil {
		return err
	}
	now := h.Now()
	next := rules{file: file, policy: parsed, holds: parsed.At(now)}
	if doubts != nil {
		next.doubt = "the policy holds, but something in it is wrong: " + strings.ReplaceAll(doubts.Error(), "\n", "; ")
		h.Log.Warn("something is wrong with the policy that holds", "policy", file.Name, "error", doubts)
	}
	made := parsed.New(h.ruling.own)
	next.own = append(slices.Clone(h.ruling.own), made...)
	if err := next.checks(next.own); err != nil {
		return err
	}
	if rejected := h.step(engine.PolicySet{At: h.time(), Policy: h.marked(next.under(next.own, now))}); rejected != nil {
		return errors.New(rejected.Reason)
	}
	h.ruling = next
	h.reckon(now)
	h.setHours(now)
	h.pending.Queues = append(h.pending.Queues, made...)
	return nil
}

// reckon finds out when it is to be looked again which window holds and whose priority is over, and notes those of queues that hold.
func (h *Host) reckon(now time.Time) {
	r := &h.ruling
	r.looked, r.next = now.Round(0), time.Time{}
	queues := r.queuesNow()
	h.dates.queues = dated(queues, now)
	if _, at := policy.Holding(queues, now); !at.IsZero() {
		r.sooner(r.looked, at)
	}
	for w := range h.dates.work {
		r.sooner(r.looked, *w.now.Spec.PriorityUntil)
	}
	for w := range h.dates.again {
		r.sooner(r.looked, *w.keep.Again)
	}
	if r.policy == nil || len(r.policy.Windows) == 0 {
		return
	}
	at, ok := r.policy.Next(now)
	if !ok {
		at = r.looked.Add(windowPace)
	}
	r.sooner(r.looked, at)
}

// turn has another window hold where one begins or ends by now, and priorities be over that held until now, by the clock of the machine.
func (h *Host) turn() {
	now := h.Now().Round(0)
	h.turnHours(now)
	r := &h.ruling
	if r.next.IsZero() || now.Before(r.next) && !now.Before(r.looked) {
		return
	}
	h.endPriorities(now)
	h.endBackOffs(now)
	was := r.holds
	if r.policy != nil {
		r.holds = r.policy.At(now)
	}
	if priorities := dated(r.queuesNow(), now); r.holds != was || !samePriorities(priorities, h.dates.queues) {
		if rejected := h.step(engine.PolicySet{At: h.time(), Policy: h.marked(r.under(r.own, now))}); rejected != nil {
			r.failed = "what holds from now on by the policy could not be set: " + rejected.Reason
			h.Log.Error("a window cannot begin or end", "policy", r.file.Name, "error", rejected.Reason)
			r.holds = was
		} else {
			r.failed = ""
			if r.holds != was {
				h.say("queue", nil, windowSentence(r.holds))
			}
			h.sayPriorities(priorities)
		}
	} else { // what could not begin is over
		r.failed = ""
	}
	h.reckon(now)
}

func windowSentence(w *policy.Window) string {
	if w == nil {
		return "no window of the policy holds any more"
	}
	return "window " + w.Name + " of the policy holds"
}

// setQueue makes or changes a queue, under the policy where one is set.
func (h *Host) setQueue(spec api.QueueSpec) error {
	own := spec
	now := h.Now()
	told, _ := policy.Holding([]api.QueueSpec{spec}, now)
	h.hours.Mark(told)
	var event engine.Event = engine.QueueSet{At: h.time(), Queue: told[0]}
	if r := &h.ruling; r.policy != nil {
		old := api.QueueSpec{Name: spec.Name, Quota: api.Unlimited}
		if i := slices.IndexFunc(r.own, func(q api.QueueSpec) bool { return q.Name == spec.Name }); i >= 0 {
			old = r.own[i]
		}
		var err error
		if own, err = r.policy.Own(r.holds, old, spec, now); err != nil {
			return refuse(api.CodeConflict, "%v", err)
		}
		all := with(r.own, own)
		if err := r.checks(all); err != nil {
			return refuse(api.CodeConflict, "%v", err)
		}
		event = engine.PolicySet{At: h.time(), Policy: h.marked(r.under(all, now))}
	}
	if rejected := h.step(event); rejected != nil {
		return refuse(codeOf(rejected.Code), "%s", rejected.Reason)
	}
	h.ruling.set(with(h.ruling.own, own))
	if h.ruling.policy != nil {
		h.reckon(now)
	} else {
		h.setDated(own, now)
	}
	h.setHours(now)
	h.pending.QueuesGone = slices.DeleteFunc(h.pending.QueuesGone, func(gone string) bool { return gone == own.Name })
	h.pending.Queues = append(h.pending.Queues, own)
	return nil
}

// nameModels puts whole names of models where a queue that is to be set has bounds on a part of one, and refuses a model that no device is of,
// for a bound on it would bind nobody. One that the queue has bounds on already stays: its devices may come back.
func (h *Host) nameModels(spec *api.QueueSpec) error {
	known := h.models()
	for _, q := range h.engine.Queues() {
		for _, m := range q.Models {
			if q.Name == spec.Name && !slices.Contains(known, m.Model) {
				known = append(known, m.Model)
			}
		}
	}
	spec.Models = slices.Clone(spec.Models)
	for i := range spec.Models {
		name := &spec.Models[i].Model
		switch like := policy.Model(*name, known); len(like) {
		case 0:
			return api.Invalid("queue %s is to have bounds on model %s and no device is of it: name one of the models there are (%s), or leave it out",
				spec.Name, *name, strings.Join(slices.Compact(slices.Sorted(slices.Values(known))), ", "))
		case 1:
			*name = like[0]
		default:
			return api.Invalid("queue %s is to have bounds on model %s, and that is a part of several names: write one of them, %s", spec.Name, *name, strings.Join(like, " or "))
		}
	}
	return nil
}

// checkQuota says why a workload could never hold its floors in its queue: not now, and in no window of the policy.
func (h *Host) checkQuota(asked engine.Workload) error {
	err := h.engine.CheckQuota(asked)
	if p := h.ruling.policy; err != nil && p != nil {
		for _, w := range append([]*policy.Window{nil}, p.Windows...) {
			if quotas := h.ruling.quotasIn(w); quotas != nil && quotas.Check(asked) == nil {
				return nil // it waits for that
			}
		}
	}
	return err
}

// awaitWindow says of work that asks for more than its queue may hold now which window of the policy lets it, and from when.
func (h *Host) awaitWindow(w *work, why *api.Why) {
	r := &h.ruling
	if why.Code != engine.WhyOverQuota || r.policy == nil {
		return
	}
	asked := engineWorkload(w)
	window, at, ok := r.policy.First(h.Now(), func(w *policy.Window) bool {
		quotas := r.quotasIn(w)
		return quotas != nil && quotas.Check(asked) == nil
	})
	if !ok {
		return
	}
	name, from := "the time when no window of the policy holds", at.Format("Mon 2 Jan 2006 15:04 MST")
	if window != nil {
		name = "window " + window.Name + " of the policy"
	}
	why.Message += "; it fits in " + name + ", next from " + from
	why.Unblock = name + ", from " + from + "; until then " + why.Unblock
}

// Policy is the policy file that is set, with what holds now; without a name: none is.
func (h *Host) Policy(ctx context.Context) (api.Policy, error) {
	var out api.Policy
	err := h.look(ctx, func() { out = h.policyNow() })
	return out, err
}

func (h *Host) policyNow() api.Policy {
	r := &h.ruling
	out := r.file
	out.Warning = cmp.Or(r.failed, r.doubt)
	for _, m := range h.engine.Moved() {
		out.Moved = append(out.Moved, api.Moved{At: h.shown(m.At), Workload: m.Workload, Frees: h.worded(m.Frees), Plan: uint64(m.Plan)})
	}
	if r.policy == nil {
		return out
	}
	if r.holds != nil {
		out.Window = r.holds.Name
	}
	if at, ok := r.policy.Next(h.Now()); ok {
		out.Until = new(at.UTC())
	}
	return out
}

// SetPolicy has a policy file hold in place of the one before. It is refused whole where anything in it does not add up with the queues there are.
func (h *Host) SetPolicy(ctx context.Context, who server.Caller, file api.Policy) (api.Policy, error) {
	if err := h.mayRule(who); err != nil {
		return api.Policy{}, err
	}
	file = api.Policy{Name: file.Name, Text: file.Text}
	if err := file.Validate(); err != nil {
		return api.Policy{}, refusal(err)
	}
	var out api.Policy
	err := h.request(ctx, func() error {
		if err := h.usePolicy(file, false); err != nil {
			return refuse(api.CodeInvalid, "%v", err)
		}
		kept, err := json.Marshal(file)
		if err != nil {
			return err
		}
		h.set(map[string]string{policySetting: string(kept)})
		h.say("queue", nil, "the policy "+file.Name+" is set; "+windowSentence(h.ruling.holds))
		out = h.policyNow()
		return nil
	})
	return out, err
}

// RemovePolicy has queues be as they are by themselves.
func (h *Host) RemovePolicy(ctx context.Context, who server.Caller) error {
	if err := h.mayRule(who); err != nil {
		return err
	}
	return h.request(ctx, func() error {
		if h.ruling.file.Name == "" && h.ruling.failed == "" {
			return refuse(api.CodeNotFound, "no policy is set: there is none to remove")
		}
		now := h.Now()
		if rejected := h.step(engine.PolicySet{At: h.time(), Policy: h.marked((&rules{}).under(h.ruling.own, now))}); rejected != nil {
			return refuse(api.CodeConflict, "%s", rejected.Reason)
		}
		h.ruling = rules{own: h.ruling.own}
		h.reckon(now)
		h.setHours(now)
		h.set(map[string]string{policySetting: ""})
		h.say("queue", nil, "the policy is removed")
		return nil
	})
}
