package engine

import (
	"slices"
	"strings"
)

// lentTo says of a pool, by its place, whether it lends to a workload, so far as nobody waits whom it is for.
func (e *Engine) lentTo(w *workload) func(pool int) bool {
	return func(i int) bool {
		pool := &e.policy.Pools[i]
		return pool.Lends && !slices.Contains(pool.Classes, w.Class)
	}
}

// mayBorrow says that a workload would fit in what pools lend it if nothing else were there.
func (e *Engine) mayBorrow(w *workload) bool {
	if e.config.NoBackfill || !w.Preemptible || !slices.ContainsFunc(e.policy.Pools, func(p Pool) bool { return p.Lends }) {
		return false
	}
	return e.placer.Possible(w.shape.Within(e.fenceOf(false, e.lentTo(w))))
}

// explainLent says why a workload waits that fits in no pool that is for it, and may have what others lend.
func (p *pass) explainLent(w *workload, asks string, why *Why) {
	demand := w.demand()
	if r, no := w.queue.Smaller(demand); no {
		p.explainQuota(w, largerThanQuota, r, why)
		return
	}
	if r, no := w.queue.Over(demand); no {
		p.explainQuota(w, overQuota, r, why)
		return
	}
	if at := slices.IndexFunc(p.closed, func(c closure) bool { return c.Concerns(w.queue, demand) }); at >= 0 {
		p.explainQuota(w, behindInQueue, p.closed[at].Refusal, why)
		return
	}
	var names []string
	for i := range p.policy.Pools {
		if p.lentTo(w)(i) {
			names = append(names, p.policy.Pools[i].Name)
		}
	}
	why.Code = WhyLent
	why.Message = "no pool that is for it could hold " + asks + "; it may have what is idle of " + strings.Join(names, ", ") +
		", and there is too little of that, or somebody waits whom it is for"
	why.Unblock = "work there ending while nobody waits whom the pool is for"
	p.counts(w, false, why)
}
