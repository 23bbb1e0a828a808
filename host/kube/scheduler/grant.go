package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

// grant has what was found adopted, written and the pods bound, or says why not.
func (s *Scheduler) grant(f *party, found []finding) error {
	j, given := make(job, len(f.seats)), make([][]*resourceapi.ResourceClaim, len(f.seats))
	for i, o := range f.seats {
		var err error
		if j[i], given[i], err = o.toWrite(found[i]); err != nil {
			return err
		}
	}
	if err := s.holdOthers(f, found, given); err != nil {
		return err
	}
	adopted, w, err := s.toAdopt(f, found, given)
	if err == nil {
		err = s.admitAll(f, found)
	}
	if err != nil {
		s.forgetWork(w)
		s.settleOthers(f, given, func(int) bool { return false })
		return err
	}
	for _, o := range f.seats {
		o.pod.busy, o.pod.binding, o.pod.reason = true, true, ""
		for _, c := range o.ask.open {
			c.writing = true
		}
	}
	if w != nil {
		for _, t := range w.tasks {
			t.pod.task, t.pod.carried = t, true
			for _, c := range t.claims {
				c.task = t
			}
			s.charge(t.pod)
		}
		s.step(*adopted)
	}
	s.carryOut(j, func(out outcome) { s.granted(f, j, given, out) })
	return nil
}

// toWrite is what is to be written for a pod with what was found for it, and its open claims as they are then.
func (o *seat) toWrite(found finding) (one jobTask, given []*resourceapi.ResourceClaim, err error) {
	one = jobTask{pod: o.pod.object, node: found.node}
	for _, c := range o.ask.have {
		one.claims = append(one.claims, jobClaim{object: c.object})
	}
	if given, err = o.ask.given(found); err != nil {
		return one, nil, err
	}
	for i, c := range o.ask.open {
		one.claims = append(one.claims, jobClaim{object: c.object, allocation: given[i].Status.Allocation})
	}
	return one, given, nil
}

// admitAll has the pods of a party assumed on their nodes, one after the other, or none. All are asked for, so that as much as can be is known for the next try.
func (s *Scheduler) admitAll(f *party, found []finding) (why error) {
	var assumed []*pod
	for i, o := range f.seats {
		at, refused := s.admit(o.pod, found[i].node)
		switch {
		case refused == nil:
			assumed = append(assumed, o.pod)
			continue
		case at != "":
			o.refuse(at, refused)
			refused = barred{refused}
		}
		if why == nil {
			why = refused
		}
	}
	if why != nil {
		for _, p := range assumed {
			s.config.Filters.Forget(p.object)
		}
	}
	return why
}

// given are a pod's open claims as they are with what was found for them, or what a node agent would refuse of that.
func (a *ask) given(found finding) (given []*resourceapi.ResourceClaim, err error) {
	for i, c := range a.open {
		as := c.object.DeepCopy()
		as.Status.Allocation = &found.allocations[i]
		as.Status.Allocation.NodeSelector = onNode(found.node)
		if err := sound(as.Status.Allocation); err != nil {
			return nil, err
		}
		given = append(given, as)
	}
	return given, nil
}

// wouldHave says whether a pod could be given what was found for it, did its node take it.
func (s *Scheduler) wouldHave(p *pod, a *ask, found finding) bool {
	given, err := a.given(found)
	if err != nil || !a.stands() {
		return false
	}
	_, w, err := s.toAdopt(&party{seats: []*seat{{pod: p, ask: a}}}, []finding{found}, [][]*resourceapi.ResourceClaim{given})
	s.forgetWork(w)
	return err == nil
}

// forgetWork forgets a workload that the engine never heard of.
func (s *Scheduler) forgetWork(w *work) {
	if w != nil {
		delete(s.work, w.id)
	}
}

// toAdopt is the workload by which the engine is to know what the pods of a party are given of our devices, or why they do not have it so. A pod has no task where
// it is given none, as where another driver's was an alternative, and none has: no workload.
func (s *Scheduler) toAdopt(f *party, found []finding, given [][]*resourceapi.ResourceClaim) (*engine.Adopt, *work, error) {
	var tasks []*task
	var held [][]engine.Grant
	var nodes []string
	for i, o := range f.seats {
		t, all := &task{pod: o.pod, ask: o.ask}, []engine.Grant(nil)
		for k, c := range o.ask.open {
			if _, grants := s.grantsOf(given[i][k]); len(grants) > 0 {
				t.claims, all = append(t.claims, c), merge(all, grants)
			}
		}
		if len(t.claims) > 0 {
			tasks, held, nodes = append(tasks, t), append(held, all), append(nodes, found[i].node)
		}
	}
	if len(tasks) == 0 {
		return nil, nil, nil
	}
	first := tasks[0]
	w := s.newWork(first.pod.name())
	w.state, w.tasks, w.preemptible = placed, make([]*task, len(tasks)), first.ask.preemptible
	adopted := &engine.Adopt{At: s.at(), Workload: engine.Workload{ID: w.id, Queue: first.ask.queue, Class: first.ask.class, Preemptible: w.preemptible}}
	for _, t := range tasks {
		adopted.Workload.Restart = max(adopted.Workload.Restart, engine.Time(t.ask.restart.Microseconds()))
	}
	var pods []*pod
	for _, t := range tasks {
		pods = append(pods, t.pod)
	}
	describe(&adopted.Workload, pods)
	adopted.Workload.Priority = highest(pods)
	for index, at := range adoptRoles(&adopted.Workload, tasks, held) {
		t := tasks[at]
		t.work, t.index, w.tasks[index] = w, index, t
		adopted.Tasks = append(adopted.Tasks, engine.Placing{Task: index, Node: nodes[at], Grants: held[at]})
	}
	return adopted, w, s.mayHold(f, adopted)
}

// mayHold says why the pods of a party are not to have what was found for them: others have it by now, or their queue does not let them.
func (s *Scheduler) mayHold(f *party, adopted *engine.Adopt) error {
	if taken := s.engine.CheckRoom(adopted.Workload, adopted.Tasks); taken != nil {
		if f.gang != nil {
			return fmt.Errorf("%w: %w", errOvertaken, taken) // where it goes then may be another place for each
		}
		f.seats[0].refuse(adopted.Tasks[0].Node, taken)
		return barred{taken}
	}
	least := slices.MinFunc(f.seats, func(a, b *seat) int { return cmp.Compare(priorityOf(a.pod.object), priorityOf(b.pod.object)) })
	if node, taken := s.keptFrom(least.pod, adopted.Tasks, false); taken != nil {
		for _, o := range f.seats {
			o.refuse(node, taken)
		}
		return barred{taken}
	}
	err := s.engine.CheckHold(adopted.Workload, adopted.Tasks)
	if err != nil && f.gang != nil {
		err = fmt.Errorf("its gang starts whole or not at all: %w", err)
	}
	return err
}

// holdOthers has what was found of other drivers' devices held until it is settled.
func (s *Scheduler) holdOthers(f *party, found []finding, given [][]*resourceapi.ResourceClaim) error {
	was := map[string]structured.AllocatedState{}
	var claims []*resourceapi.ResourceClaim
	for i, o := range f.seats {
		if o.ask.mixed {
			was[found[i].node] = found[i].taken
			claims = append(claims, given[i]...)
		}
	}
	if len(claims) == 0 {
		return nil
	}
	held, err := s.config.Filters.Hold(s.ctx, was, claims)
	if err == nil && !held {
		err = errOvertaken
	}
	return err
}

// settleOthers ends what was held of other drivers' devices. Claims are as they were written, of those pods for whom they were.
func (s *Scheduler) settleOthers(f *party, claims [][]*resourceapi.ResourceClaim, written func(seat int) bool) {
	for i, o := range f.seats {
		if o.ask.mixed {
			s.config.Filters.Settle(claims[i], written(i))
		}
	}
}

// granted takes in what became of writing what was found for pods.
func (s *Scheduler) granted(f *party, j job, given [][]*resourceapi.ResourceClaim, out outcome) {
	runs := func(i int) bool { return out.refused == nil && !out.gone[i] }
	for i, o := range f.seats {
		o.pod.busy, o.pod.binding = false, false
		if runs(i) {
			given[i] = out.claims[i][len(o.ask.have):]
			o.pod.bound = j[i].node
			s.metrics.bound.Inc()
		} else {
			s.config.Filters.Forget(j[i].pod)
		}
	}
	s.settleOthers(f, given, runs)
	s.learn(out.left)
	for i, o := range f.seats {
		for k, c := range o.ask.open {
			c.writing = false
			if runs(i) {
				c.update(given[i][k])
			} else {
				s.free(c)
			}
		}
		s.charge(o.pod)
	}
	if out.refused != nil {
		s.metrics.refused.Inc()
		for _, o := range f.seats {
			o.pod.rests = s.config.Now().Add(restAfter)
		}
		if !slices.ContainsFunc(f.seats, func(o *seat) bool {
			return !s.mine(o.pod) || o.pod.task != nil || o.pod.beside != nil || !o.ask.stands()
		}) {
			s.awaitDevices(f, f.seats[0], out.refused)
		}
	}
	for _, o := range f.seats {
		for _, c := range o.ask.open {
			s.claimSettled(c)
		}
	}
	for _, o := range f.seats {
		s.hearSaved(o.pod)
	}
	g := f.gang
	if g == nil { // it may have come to one that has begun
		g = f.seats[0].pod.gang
	}
	s.followers(g)
}

// sound says what a node agent would refuse of an allocation.
func sound(allocation *resourceapi.AllocationResult) error {
	for _, r := range allocation.Devices.Results {
		if r.Driver != driver.Name {
			continue
		}
		config, err := driver.ConfigOf(allocation.Devices.Config, r.Request)
		if err != nil {
			return fmt.Errorf("request %s: %w", r.Request, err)
		}
		compute, memory := r.ConsumedCapacity[driver.Compute], r.ConsumedCapacity[driver.Memory]
		if ceiling := config.Ceiling.Compute; ceiling != 0 && int64(ceiling) < compute.Value() {
			return fmt.Errorf("request %s: its compute ceiling %s is below its floor %s; give it at least the floor", r.Request, ceiling, api.Milli(compute.Value()))
		}
		if ceiling := config.Ceiling.Memory; ceiling.Bytes != 0 && int64(ceiling.Bytes) < memory.Value() {
			return fmt.Errorf("request %s: its memory ceiling %s is below its floor %s; give it at least the floor", r.Request, ceiling, api.Bytes(memory.Value()))
		}
	}
	return nil
}
