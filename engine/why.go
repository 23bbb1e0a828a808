package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/queue"
)

// Codes of Why. They are stable.
const (
	WhyUnknown   = "unknown"         // no such workload, or not any more
	WhyHolds     = "placed"          // it does not wait: it is starting, running or stopping
	WhyNever     = "impossible"      // nothing that may be used could hold it, even empty
	WhyLent      = "nothing_lent"    // it fits in no pool that is for it, and may have what others lend, which is nothing that fits now
	WhyOverQuota = "more_than_quota" // it alone is more than its queue may hold
	WhyQuota     = "quota"           // its queue holds as much as it may
	WhyHours     = "hours"           // its queue has used its device-hours up
	WhyQueue     = "behind_in_queue" // one in front waits for the same quota
	WhyNoRoom    = "no_room"         // first in line, and not enough is free
	WhyReclaim   = "reclaiming"      // what its queue is guaranteed is being taken back for it, or work of a lower priority there is being ended for it, or work that can run elsewhere is moved
	WhyHeld      = "memory_held"     // first in line, and fits beside the floors, but others hold the memory above theirs
	WhyBehind    = "behind_first"    // starting it might delay the first in line
	WhyRefused   = "refused"         // the host refused it and it is tried again later
)

// Codes of the counts in Why: why a device does not take the workload now.
const (
	CountModel    = "model"      // of another model
	CountLeast    = "too_little" // can do less than is asked for, or it is not known to
	CountSmall    = "too_small"  // has less memory than the floor, or so much that the floor is over the ceiling there
	CountPool     = "pool"       // it is of a pool for work of other classes
	CountBarred   = "barred"     // its node is not for this workload
	CountRefused  = "node_refused"
	CountDraining = "draining"
	CountDown     = "down"
	CountCompute  = "compute"     // too little compute free
	CountMemory   = "memory"      // too little memory free
	CountHeld     = "memory_held" // enough memory beside the floors, but others hold it above theirs
	CountResource = "resource"    // its node has too little else free
	CountApart    = "apart"       // has room, but not enough such devices on one node, or not for all tasks
	CountKept     = "kept"        // has room, but might be needed by the first in line
)

// Why is why a workload waits. Messages name no other workload, but for those of Above and for what hosts say of sick devices: others that hold it back are in
// Ahead.
type Why struct {
	Phase   api.Phase
	Place   int    // in line, from 1; 0: it does not wait
	Code    string // the dominant reason
	Message string // the same in one sentence
	Unblock string // what would let it start
	Counts  []api.WhyCount
	Role    int      // whose devices Counts are of: 0 its own tasks, else one of its Roles, from 1
	Ahead   []string // IDs of those in front that hold it back
	Above   []Above  // those that hold memory above their floors which it could have; messages name them by their IDs
	// Estimate is the latest time it starts if all that runs keeps to its time limit; Never: not known.
	Estimate Time
	// NextTry is when one that the host refused is tried again; Never: it was not refused.
	NextTry Time
	// Guarded is when the first of the work that it wants to have evicted may be, by the MinRun and Disruptions of its queue; Never: it waits for no such.
	Guarded Time
}

// Why explains a workload. It changes nothing; it costs a walk along the line and over the fleet.
func (e *Engine) Why(id string) Why {
	w, ok := e.work[id]
	if !ok {
		return Why{
			Phase: api.Ended, Code: WhyUnknown, Estimate: Never, NextTry: Never, Guarded: Never,
			Message: "no such workload waits or runs", Unblock: "check the name",
		}
	}
	if !w.waiting() {
		why := Why{Phase: e.Phase(id), Code: WhyHolds, Estimate: Never, NextTry: Never, Guarded: Never, Message: "it has its share and is " + string(e.Phase(id))}
		if w.elastic() {
			e.whyGrown(w, &why)
		}
		return why
	}
	p := pass{Engine: e}
	why := Why{Phase: api.Waiting, Estimate: Never, NextTry: Never, Guarded: Never}
	why.Place = e.placeInLine(w)
	verdict, r := mayStart, queue.Refusal{}
	if w.retryAt <= e.now {
		verdict, r = p.lookUpTo(w)
	}
	if pl := e.plans[w.plan]; pl != nil && verdict != mayStart {
		why.Code = WhyReclaim
		what := "what its queue " + w.queue.Name + " is guaranteed is being taken back for it; tasks of others"
		if slices.ContainsFunc(pl.tasks, func(t *task) bool { return t.evictCode() == EvictMove }) {
			what = "work that has room elsewhere is being moved for it; tasks"
		} else if slices.ContainsFunc(pl.tasks, func(t *task) bool { return t.evictCode() == EvictPool }) {
			what = "what others borrowed of a pool that is for it is being taken back; tasks of others"
		} else if !slices.ContainsFunc(pl.tasks, func(t *task) bool { return t.evictCode() != EvictShrink }) {
			what = "replicas above those that their workloads are sure of are being ended for it; tasks"
		} else if !slices.ContainsFunc(pl.tasks, func(t *task) bool { return t.evictCode() != EvictShrink && t.evictCode() != EvictBackfill }) {
			what = "work that was let in before the first in line, and was to be over by now, is being ended for it; tasks"
		} else if !slices.ContainsFunc(pl.tasks, func(t *task) bool { return t.evictCode() == EvictReclaim }) {
			what = "work of a lower priority in its queue " + w.queue.Name + " is being ended for it; tasks"
		}
		why.Message = fmt.Sprintf("%s that are still to end: %d (plan %d)", what, len(pl.tasks), pl.id)
		why.Unblock = "those tasks ending, as they were asked to"
		return why
	}
	p.explain(w, verdict, r, &why)
	return why
}

// placeInLine is a waiting workload's place, from 1.
func (e *Engine) placeInLine(w *workload) int {
	if w.queue.Waiting == e.line.Len() { // all in one queue
		return e.line.Rank(w) + 1
	}
	at := 0
	for o := range e.inOrder {
		if at++; o == w {
			break
		}
	}
	return at
}

// lookUpTo goes through the line as a pass would, and starts nothing, up to a workload; nil: all of it.
func (p *pass) lookUpTo(w *workload) (verdict, queue.Refusal) {
	for _, groups := range p.parts() {
		p.head, p.reserve = nil, nil
		for order := p.newOrder(groups); order.first != nil; order.next(true) {
			o, g := order.first, order.group()
			v, r := p.look(o)
			switch {
			case o == w:
				return v, r
			case w != nil && g.groupKey == p.groupKey(w):
				return p.look(w)
			}
		}
	}
	return mayStart, queue.Refusal{}
}

// look judges a workload as a pass would, and starts nothing.
func (p *pass) look(w *workload) (verdict, queue.Refusal) {
	v, r := p.judge(w)
	switch {
	case v != mayStart:
		if v == overQuota && w.plan != 0 && p.head == nil {
			p.head = w // see keepsRoom
		}
		return v, r
	case p.head != nil:
		p.short = append(p.short, w)
		return behindFirst, r
	}
	mark := p.fleet.Begin()
	_, fits := p.fit(w)
	p.fleet.Rollback(mark)
	if fits {
		return mayStart, r
	}
	p.short = append(p.short, w)
	if at := len(p.closed); p.closedByModel(w) {
		if at < len(p.closed) {
			r = p.closed[at].Refusal
		}
		return overOnModel, r
	}
	if !w.Patient {
		p.head = w
	}
	return noRoom, r
}

// nothingFree is why a workload waits behind the first in line that would wait without that one, too.
const nothingFree = "not enough is free, and another is first in line"

func (p *pass) explain(w *workload, v verdict, r queue.Refusal, why *Why) {
	asks := asksOf(&w.Workload)
	if v == impossible && p.mayBorrow(w) {
		p.explainLent(w, asks, why)
		return
	}
	switch v {
	case impossible:
		why.Code = WhyNever
		why.Message = "nothing that may be used now could hold " + asks + ", even empty"
		if reason := p.noDomain(w, true); reason != "" {
			why.Message += ": " + reason
		}
		if reason := w.whyRefused(); reason != "" {
			why.Message += "; the last try to start it was refused: " + reason
		}
		why.Unblock = "a smaller request, or a node or device that serves it"
		p.counts(w, false, why)
	case largerThanQuota, overQuota, overOnModel, behindInQueue:
		p.explainQuota(w, v, r, why)
	case noRoom:
		first := "it is first in line for "
		if why.Place > 1 {
			first = "those in front wait for what it does not need; it is the first for "
		}
		why.Code = WhyNoRoom
		why.Message = first + asks + ", and not enough is free"
		if reason := p.noDomain(w, false); reason != "" {
			why.Message = first + asks + ", and " + reason
		}
		why.Unblock = "running work ending or getting smaller"
		if w.Patient {
			why.Unblock += "; it asked that nobody is evicted for it"
		} else if p.guardedFrom(w, why) {
			why.Unblock += "; what could be evicted for it is not yet, by the min-run or disruptions of its queue"
		} else if w.queue.InQuota(w.demand()) {
			why.Unblock += "; queue " + w.queue.Name + " is guaranteed as much, but only preemptible work of queues over their quota is taken back, and not enough of what runs is"
		}
		p.counts(w, false, why)
		if _, role := p.lacking(w); role > 0 {
			why.Message += ": there is room for its own tasks, and none for its role " + w.Roles[role-1].Name
		}
		if above := p.heldFrom(w); len(above) > 0 {
			why.Code = WhyHeld
			why.Message = first + asks + ", and the memory that it lacks is held above their floors by " + names(above)
			why.Unblock = "those that hold memory above their floors giving it back or ending, or a smaller memory floor"
			for _, a := range above {
				if !slices.ContainsFunc(why.Above, func(o Above) bool { return o.ID == a.ID }) {
					why.Above = append(why.Above, a)
				}
			}
		}
		if r := p.reserveFor(w); r.known {
			why.Estimate = r.at
		}
	case behindFirst:
		why.Code = WhyBehind
		why.Ahead = []string{p.head.ID}
		p.counts(w, true, why)
		why.Message = nothingFree
		if slices.ContainsFunc(why.Counts, func(c api.WhyCount) bool { return c.Code == CountKept }) {
			why.Message = "there is room for it, but kept for the one first in line"
		}
		why.Unblock = "the first in line starting, or a time limit short enough to end before that"
		if p.reserve == nil {
			p.reserve = p.reserveFor(p.head)
		}
		if !p.reserve.known {
			why.Unblock = "the first in line starting; when is not known, since work without a time limit is in its way"
		} else if limit := p.likelyLimit(w); limit > 0 && why.Message != nothingFree {
			why.Unblock += fmt.Sprintf("; %s would be, and most work of its user that is like it ran for less", api.Duration(limit)*1000)
		}
	case mayStart:
		why.Code = WhyRefused
		why.Message = "the last try to start it was refused: " + w.whyRefused()
		why.Unblock = "the next try, which comes by itself"
		why.NextTry = w.retryAt
	}
}

// explainQuota says which quota or limit a workload waits for.
func (p *pass) explainQuota(w *workload, v verdict, r queue.Refusal, why *Why) {
	if r.Queue == nil { // the devices on which it would fit are closed to it by bounds that someone in front waits for, or for ever
		why.Code = WhyQuota
		why.Message = "on every device that it fits on now a quota or limit of its queue " + w.queue.Name + " has no room for it"
		why.Unblock = "work of that queue ending there, or a larger quota or limit"
		return
	}
	name, kind := r.Queue.Name, boundName(&r)
	demand := w.demand()
	if r.Model != "" || r.Resource == queue.Memory {
		demand = p.demandUnder(w, &r)
	}
	asks := queue.Format(r.Resource, demand.Amounts[r.Resource])
	if r.Spent() {
		why.Code = WhyHours
		why.Message = "queue " + name + " has used its device-hours up: what runs goes on, and nothing with a compute floor is started"
		why.Unblock = "the next period of queue " + name + ", more device-hours for it, or another queue"
		return
	}
	switch v {
	case largerThanQuota:
		why.Code = WhyOverQuota
		why.Message = fmt.Sprintf("it asks for %s and queue %s may hold no more than %s now", asks, name, plain(&r, r.Bound()))
		why.Unblock = "a larger " + kind + " for queue " + name + ", another queue, or a smaller request"
	case behindInQueue:
		why.Code = WhyQueue
		why.Message = "one in front waits for the " + kind + " of queue " + name + ", which this one would use up"
		why.Unblock = "the one in front starting or being stopped, a higher priority, or a larger " + kind + " for queue " + name
		for _, c := range p.closed {
			if c.Refusal == r {
				why.Ahead = []string{c.w.ID}
				break
			}
		}
	default:
		why.Code = WhyQuota
		why.Message = fmt.Sprintf("it asks for %s and queue %s holds %s of its %s of %s", asks, name, plain(&queue.Refusal{Resource: r.Resource}, r.Held()), kind, plain(&r, r.Bound()))
		if more := r.Uncounted(); more > 0 {
			why.Message += fmt.Sprintf(" (and preemptible work of %s, which its quota does not count)", plain(&queue.Refusal{Resource: r.Resource}, more))
		}
		why.Unblock = "work in queue " + name + " ending, or a larger " + kind + " for it"
		if v == overQuota && r.Limit && !w.Patient && p.guardedFrom(w, why) {
			why.Unblock += "; what could be evicted for it there is not yet, by the min-run or disruptions of its queue"
		}
	}
}

// guardedFrom finds out whether a workload would start in the place of others that are guarded, and when the first of them is no more.
func (p *pass) guardedFrom(w *workload, why *Why) bool {
	if p.guarded == Never { // nobody's plan is missing such
		return false
	}
	t := trial{pass: p, w: w}
	mark := p.fleet.Begin()
	t.assumePlans()
	all := t.candidates(entitled(w))
	if open, guarded := t.open(all); guarded != Never && !t.fitsWithout(open) && t.fitsWithout(all) {
		why.Guarded = guarded
	}
	t.putBack(0)
	p.fleet.Rollback(mark)
	return why.Guarded != Never
}

// demandUnder is a workload's demand on the first device that a bound counts for.
func (p *pass) demandUnder(w *workload, r *queue.Refusal) queue.Demand {
	demand := w.demand()
	for n := range p.fleet.Nodes {
		for _, d := range p.fleet.DevicesOf(n) {
			dev := p.fleet.Device(d)
			on := demand.On(dev.Model, dev.Memory)
			if over, no := w.queue.Over(on); no && over == *r {
				return on
			}
		}
	}
	return demand
}

// heldFrom is who holds memory above their floors where a workload would start at once without that.
func (p *pass) heldFrom(w *workload) []Above {
	if len(p.above) == 0 {
		return nil
	}
	mark := p.fleet.Begin()
	p.withoutAbove()
	spots, _ := p.placer.Place(&w.shape.Request)
	p.fleet.Rollback(mark)
	var above []Above
	for _, spot := range spots {
		for _, d := range spot.Devices {
			above = p.aboveOn(d, above)
		}
	}
	return sortAbove(above)
}

// names lists who holds how much.
func names(above []Above) string {
	text := make([]string, len(above))
	for i, a := range above {
		text[i] = fmt.Sprintf("%s (%s)", a.ID, a.Memory)
	}
	return strings.Join(text, ", ")
}

// fitsNow says that a workload would be placed, were it its turn.
func (p *pass) fitsNow(w *workload) bool {
	if w.shape.unfitAt == p.fleet.Gains()+1 {
		return false
	}
	mark := p.fleet.Begin()
	_, ok := p.placer.Place(&w.shape.Request)
	p.fleet.Rollback(mark)
	return ok
}
