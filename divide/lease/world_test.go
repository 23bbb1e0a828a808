package lease

import (
	"math"
	"math/rand/v2"
	"slices"
)

const (
	latency  = 50 * microsecond // how long a bell takes to the arbiter, and a gate to the tenant
	runAhead = millisecond      // what a tenant may have queued; or one kernel behind the one that should end within half of it
	endless  = math.MaxUint64   // a backlog that is never done
)

// tenant is a program with its shim. It launches kernels while its gate is open, its lease's end is ahead and its run-ahead allows it, else it
// waits and rings. It brings what it wants in batches, with pauses; the numbers that it says are the truth, its durations are learned.
type tenant struct {
	policy Policy
	kernel NS      // of device time, in the mean; what its shim takes one for
	spread NS      // what one lasts more or less, the same for all kernels of a run
	batch  float64 // kernels that it brings at a time, in the mean; 0: it always has more
	pause  float64 // ns, from when one batch is done to when the next comes, in the mean

	grant GrantSlot
	task  TaskSlot
	gate  Gate

	backlog                      uint64 // kernels wanted and not launched
	launched, completed          uint64
	measured                     NS   // device time of the completed
	waitSince                    NS   // 0: does not wait
	rang                         bool // its work has drained, and it has said so
	arriveAt, bellAt, lookAt, at NS   // when a batch comes, its bell is heard, it sees its gate, something happens to it next

	judged
}

// run is work that one tenant has on the device without a gap: kernels one after the other, each as long.
type run struct {
	tenant *tenant
	asked  NS // the first was launched
	start  NS // the first began, which is when the run before has ended
	kernel NS // how long one lasts
	queued uint64
	done   uint64
}

func (r *run) end() NS { return r.start + NS(r.queued)*r.kernel }

// world is one device with tenants under virtual time. The device runs what comes first: kernels are never cut. What it ran for each is the
// truth that shares are judged by; the rule never sees it.
type world struct {
	rule    *Rule
	random  *rand.Rand
	tenants []*tenant
	all     []*tenant // those who have left too
	byGrant []*tenant
	runs    []run // in the order in which they run; the last may still grow
	now     NS
	wake    NS // of the rule
	beat    NS // when books are settled next, as the arbiter does
	steps   int

	worst     worst
	idleSince NS // of the device, while nothing runs
	wasted    NS // for so long the device was idle although somebody who may run waited
}

func newWorld(seed uint64) *world {
	w := &world{worst: worst{}, random: rand.New(rand.NewPCG(seed, 0)), now: 5 * second, idleSince: 5 * second}
	w.rule = New(Defaults(), w)
	if _, err := w.rule.AddDevice(w.now, DeviceOK); err != nil {
		panic(err)
	}
	w.wake = w.now
	return w
}

// add lets a tenant begin.
func (w *world) add(t *tenant) *tenant {
	task, err := w.rule.AddTask(w.now, []Share{{Policy: t.policy}})
	if err != nil {
		panic(err)
	}
	t.task, t.grant = task, w.rule.TaskGrants(task)[0]
	for len(w.byGrant) <= int(t.grant) {
		w.byGrant = append(w.byGrant, nil)
	}
	w.byGrant[t.grant] = t
	w.tenants, w.all = append(w.tenants, t), append(w.all, t)
	t.judgeFrom(w.now, t.policy)
	if t.batch == 0 {
		t.backlog = endless
		t.wants(w.now)
		t.lookAt = w.now
	} else {
		t.arriveAt = w.now + w.about(t.pause)
	}
	w.plan(t)
	w.wake = w.now
	return t
}

// remove ends a tenant. What it has on the device runs out.
func (w *world) remove(t *tenant) {
	w.advance(w.now)
	w.rule.RemoveTask(t.task, w.now)
	w.byGrant[t.grant] = nil
	w.tenants = slices.DeleteFunc(w.tenants, func(other *tenant) bool { return other == t })
	t.backlog, t.gate = 0, Gate{}
	w.wake = w.now
}

// resize changes the limits of a tenant.
func (w *world) resize(t *tenant, policy Policy) {
	w.advance(w.now)
	t.policy = policy
	t.judgeFrom(w.now, policy)
	w.rule.SetPolicy(t.grant, w.now, policy)
	w.wake = w.now
}

func (w *world) about(mean float64) NS { return 1 + NS(w.random.ExpFloat64()*mean) }

// Observe is what a tenant's shim says.
func (w *world) Observe(grant GrantSlot, _ NS, o *Observation) {
	t := w.byGrant[grant]
	o.Waiting, o.WaitSince = t.waitSince != 0, t.waitSince
	o.Launched, o.Completed = t.launched, t.completed
	o.LaunchedNS, o.MeasuredNS = NS(t.launched)*t.kernel, t.measured
	if left := t.launched - t.completed; left > 0 {
		o.Outstanding = true
		o.Coming = t.backlog > 0 && t.gate.Open && w.now < t.gate.End // its program stands at its run-ahead
		o.OutstandingNS = NS(left) * t.kernel
		o.BusyUntil = w.saidEnd(t, left)
	}
}

// saidEnd is when the shim takes the tenant's work to end: it knows when a kernel ended last, or else when the first was launched.
func (w *world) saidEnd(t *tenant, left uint64) NS {
	for i := range w.runs {
		r := &w.runs[i]
		switch {
		case r.tenant != t:
		case r.done > 0:
			return r.start + NS(r.done)*r.kernel + NS(left)*t.kernel
		default:
			return r.asked + NS(left)*t.kernel
		}
	}
	return 0
}

// last is the tenant's last run, and whether it is at the end of the queue, so that it may grow; nil: it has none.
func (w *world) last(t *tenant) (r *run, end bool) {
	for i := len(w.runs) - 1; i >= 0; i-- {
		if w.runs[i].tenant == t {
			return &w.runs[i], i == len(w.runs)-1
		}
	}
	return nil, false
}

// mayLaunch is how many kernels a growing run may have had launched by now, by the lease and the run-ahead.
func (t *tenant) mayLaunch(r *run, now NS) uint64 {
	// The lease: nothing goes behind work that fills it.
	most := uint64(endless)
	if end := t.gate.End; end != Never {
		most = 0
		if end > r.start {
			most = uint64((end - r.start + r.kernel - 1) / r.kernel)
		}
	}
	past := now - min(now, r.start)
	if ahead := uint64(runAhead / t.kernel); ahead > 1 {
		return min(most, uint64(past/r.kernel)+ahead)
	}
	if past == 0 {
		return min(most, 1)
	}
	return min(most, uint64((past+runAhead/2)/r.kernel)+1)
}

// grow launches what the tenant of the last run would have launched by now.
func (w *world) grow(now NS) {
	n := len(w.runs)
	if n == 0 {
		return
	}
	r := &w.runs[n-1]
	t := r.tenant
	if !t.gate.Open || t.backlog == 0 || t.waitSince != 0 {
		return
	}
	now = min(now, t.gate.End-1)
	if may := t.mayLaunch(r, now); may > r.queued {
		t.launch(r, min(may-r.queued, t.backlog))
	}
}

func (t *tenant) launch(r *run, kernels uint64) {
	t.rang = false
	r.queued += kernels
	t.launched += kernels
	if t.backlog < endless {
		t.backlog -= kernels
	}
}

// advance lets the device run until now.
func (w *world) advance(now NS) {
	w.grow(now)
	for len(w.runs) > 0 {
		r := &w.runs[0]
		if now <= r.start {
			break
		}
		done := min(uint64((now-r.start)/r.kernel), r.queued)
		r.tenant.completed += done - r.done
		r.tenant.measured += NS(done-r.done) * r.kernel
		r.done = done
		if done < r.queued {
			break
		}
		w.idleSince = r.end()
		r.tenant.hasRun(r.start, r.end())
		w.runs = w.runs[:copy(w.runs, w.runs[1:])]
	}
	w.now = now
}

// look is what the shim does when its program wants to launch.
func (w *world) look(t *tenant) {
	if t.backlog == 0 {
		t.waitSince = 0
		return
	}
	if !t.gate.Open || w.now >= t.gate.End {
		if t.waitSince == 0 {
			t.waitSince = w.now
			w.ring(t)
		}
		return
	}
	if len(w.runs) == 0 {
		w.countWaste()
	}
	t.waitSince = 0
	if _, end := w.last(t); !end {
		w.begin(t)
	}
	w.grow(w.now)
}

// begin puts a run of the tenant behind what is queued.
func (w *world) begin(t *tenant) {
	start := w.now
	if n := len(w.runs); n > 0 {
		start = max(start, w.runs[n-1].end())
	}
	kernel := t.kernel
	if t.spread > 0 {
		kernel += NS(w.random.Uint64N(uint64(2*t.spread+1))) - t.spread
	}
	w.runs = append(w.runs, run{tenant: t, asked: w.now, start: start, kernel: kernel})
	t.launch(&w.runs[len(w.runs)-1], 1)
}

// countWaste: the device was idle until now although somebody waited whom no ceiling holds back.
func (w *world) countWaste() {
	since := Never
	for _, t := range w.tenants {
		if t.waitSince != 0 && t.policy.Ceiling == milli {
			since = min(since, t.waitSince)
		}
	}
	if since = max(since, w.idleSince); since < w.now {
		w.wasted += w.now - since
	}
}

func (w *world) ring(t *tenant) {
	if t.bellAt == 0 {
		t.bellAt = w.now + latency
	}
}

// plan says when something happens to a tenant next.
func (w *world) plan(t *tenant) {
	at := Never
	for _, due := range [...]NS{t.arriveAt, t.bellAt, t.lookAt} {
		if due != 0 {
			at = min(at, due)
		}
	}
	if r, end := w.last(t); r != nil {
		at = min(at, w.turn(t, r, end))
	}
	t.at = at
}

// turn is when the next of its kernels ends at which a tenant does something: it has drained, or finds its lease over.
func (w *world) turn(t *tenant, r *run, grows bool) NS {
	switch {
	case t.backlog == 0 || t.waitSince != 0:
		return r.end()
	case !t.gate.Open || !grows:
		return min(r.firstEnd(w.now), r.end())
	case t.backlog != endless:
		// It may be done before its lease is.
		return min(r.firstEnd(t.gate.End), r.start+NS(r.queued+t.backlog)*r.kernel)
	default:
		return r.firstEnd(t.gate.End)
	}
}

// firstEnd is when the first kernel ends that does not end before a time, and is not done.
func (r *run) firstEnd(at NS) NS {
	if at == Never {
		return Never
	}
	kernels := uint64(0)
	if at > r.start {
		kernels = uint64((at - r.start + r.kernel - 1) / r.kernel)
	}
	return r.start + NS(max(kernels, r.done+1))*r.kernel
}

// step does what is due for a tenant.
func (w *world) step(t *tenant) {
	if t.arriveAt != 0 && t.arriveAt <= w.now {
		t.arriveAt = 0
		t.backlog = 1 + uint64(w.random.ExpFloat64()*t.batch)
		t.wants(w.now)
	}
	if t.lookAt != 0 && t.lookAt <= w.now {
		t.lookAt = 0
		w.look(t)
	}
	if t.launched == t.completed {
		if t.backlog == 0 && t.wanting {
			t.content(w.now)
			t.arriveAt = w.now + w.about(t.pause)
			w.ring(t)
		} else if t.backlog > 0 && t.waitSince != 0 && !t.rang {
			w.ring(t) // drained
		}
		t.rang = true
	} else {
		t.rang = false
	}
	if t.backlog > 0 && t.waitSince == 0 {
		w.look(t)
	}
	if t.bellAt != 0 && t.bellAt <= w.now {
		t.bellAt = 0
		w.rule.Touch(t.task, w.now)
		w.wake = w.now
	}
}

// until lets time go by.
func (w *world) until(end NS) {
	publish := func(grant GrantSlot, gate Gate) {
		t := w.byGrant[grant]
		t.gate = gate
		if gate.Open && t.waitSince != 0 && t.lookAt == 0 {
			t.lookAt = w.now + latency
		}
		w.plan(t)
	}
	for {
		at := min(w.wake, w.beat, end)
		for _, t := range w.tenants {
			at = min(at, t.at)
		}
		w.advance(max(at, w.now))
		if w.now >= end {
			return
		}
		for _, t := range w.tenants {
			if t.at <= w.now {
				w.step(t)
				w.plan(t)
			}
		}
		if w.beat <= w.now {
			w.rule.Settle(0, w.now)
			w.beat = w.now + 100*millisecond
		}
		if w.wake <= w.now {
			w.wake = w.rule.Run(w.now)
			w.steps++
			w.rule.Gates(publish)
		}
	}
}
