package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/aliquot-dev/aliquot/engine"
)

// NeverRun is a job that never ran, or was evicted and never went on: nothing was to come any more by which it could have started, or at the end of a run no
// node served it or its queue could never hold it.
type NeverRun struct {
	Job    string  `json:"job"` // its ID
	Name   string  `json:"name,omitempty"`
	User   string  `json:"user,omitempty"`
	Queue  string  `json:"queue,omitempty"`
	Ran    float64 `json:"ranSeconds,omitempty"` // before it was evicted
	Code   string  `json:"code"`                 // as Why has it, or as the engine rejects it
	Reason string  `json:"reason"`
	index  int
}

// fitsFleet says that a job would fit if nothing else ran. What is found out of one holds of all of its kind, until the nodes change.
func (r *jobRun) fitsFleet(m *member) bool {
	w := &m.job.Workload
	if m.kind == "" {
		m.kind = fmt.Sprintf("%#v", []any{w.Tasks, w.Devices, w.Share, w.Model, w.Least, w.Resources, w.Same, w.Prefer, w.Feasibility, w.Class, w.Roles})
	}
	fits, known := r.fits[m.kind]
	if !known {
		if r.fits == nil {
			r.fits = map[string]bool{}
		}
		fits = r.engine.Check(*w) == nil && r.engine.Fits(*w)
		r.fits[m.kind] = fits
	}
	return fits
}

// want counts what a job wants among what all want: from when it could run.
func (r *jobRun) want(m *member) {
	if !m.counted {
		m.counted = true
		r.wanted += m.job.Wants()
	}
}

// lineUp puts a job in line under an order that the simulator chooses by, or aside where no node serves it: in line it would take the place of others for nothing.
func (r *jobRun) lineUp(m *member) {
	if !r.fitsFleet(m) {
		r.aside = append(r.aside, m)
		return
	}
	r.want(m)
	m.key = r.order.key(m, r.now)
	r.waiting.push(m)
}

// nodesChanged looks again at what waits, for other nodes may serve it now.
func (r *jobRun) nodesChanged() {
	r.fits = nil
	again := r.aside
	r.aside = nil
	if r.order.chooses() {
		for _, m := range append(again, r.waiting.drain()...) {
			r.lineUp(m)
		}
		return
	}
	for _, m := range again {
		if m.counted || r.byID[m.id] != m {
			continue
		}
		if r.fitsFleet(m) {
			r.want(m)
		} else {
			r.aside = append(r.aside, m)
		}
	}
}

// refused takes a job out of the run that the engine rejects.
func (r *jobRun) refused(m *member, a engine.Reject) {
	delete(r.byID, m.id)
	r.forget(m, a.Code, a.Reason)
}

// forget counts a job as one that never ran.
func (r *jobRun) forget(m *member, code, reason string) {
	if m.counted {
		r.wanted -= m.job.Wants()
	}
	j := m.job
	r.out.NeverRun = append(r.out.NeverRun, NeverRun{
		Job: j.ID, Name: j.Name, User: j.User, Queue: j.Queue, Ran: seconds(m.ran), Code: code, Reason: reason, index: m.index,
	})
}

// neverRun counts as jobs that never ran those that wait and could not run among the nodes and in the queues that there are or, where nothing is to come
// any more, all that wait.
func (r *jobRun) neverRun(over bool) error {
	var all []*member
	for _, m := range r.byID {
		if !m.running && (over || r.cannotRun(m)) {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b *member) int { return cmp.Compare(a.index, b.index) })
	type why struct{ code, reason string }
	whys := make([]why, len(all))
	for i, m := range all { // before the first is forgotten: some wait for others
		var err error
		if whys[i].code, whys[i].reason, err = r.whyNever(m); err != nil {
			return err
		}
	}
	for i, m := range all {
		if r.byID[m.id] == m { // else the engine rejected it
			delete(r.byID, m.id)
			r.forget(m, whys[i].code, whys[i].reason)
		}
	}
	return nil
}

// cannotRun says that a job that waits could never run among the nodes and in the queue that there are.
func (r *jobRun) cannotRun(m *member) bool {
	return !r.fitsFleet(m) || r.order == Fair && r.engine.CheckQuota(m.job.Workload) != nil
}

// whyNever is why a job that waits never runs.
func (r *jobRun) whyNever(m *member) (code, reason string, err error) {
	w := m.job.Workload
	if err := r.engine.Check(w); err != nil {
		return engine.WhyNever, err.Error(), nil
	}
	if r.order == Fair {
		if err := r.engine.CheckQuota(w); err != nil {
			return engine.WhyOverQuota, err.Error(), nil
		}
	}
	if !r.order.chooses() {
		why := r.engine.Why(m.id)
		return why.Code, why.Message, nil
	}
	if err := r.submit(m); err != nil || r.byID[m.id] != m {
		return "", "", err
	}
	why := r.engine.Why(m.id)
	return why.Code, why.Message, r.step(engine.Cancel{At: engine.At{At: r.now}, ID: m.id})
}

// lastUse is when what jobs hold changed last, or the first job came.
func (r *jobRun) lastUse(first engine.Time) engine.Time {
	if n := len(r.usage); n > 0 {
		return max(first, r.usage[n-1].at)
	}
	return first
}
