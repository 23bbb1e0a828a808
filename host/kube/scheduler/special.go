package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/kube/demand"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

// Claims for devices of ours which the engine has no words for (alternatives, all devices of a node, constraints, shares that differ, devices of other
// drivers beside, access as an administrator) are allocated by upstream's own allocator on the engine's books, which have what is being written for others, too, and for other drivers'
// on the filters', who hold what is found. The engine adopts what it finds before anything is written, as it does what another scheduler allocated; it must
// fit there and in the queue, and nobody with devices is evicted for it. Access as an administrator takes nothing: the engine never hears of it.

// placeSpecial has devices looked for, for a pod that the engine does not decide for, on the nodes that take it but for those that refused it just now.
func (s *Scheduler) placeSpecial(p *pod, a *ask, refused map[string]error) {
	if key, _, err := s.gangOf(p.object); err != nil || key != "" {
		s.wait(p, errors.Join(err, fmt.Errorf("it is of a gang, and %s, which pods of a gang cannot; ask for devices that are all alike", a.special)))
		return
	}
	c := s.classOf(p, a)
	if c.answer == nil {
		s.awaitNodes(p, a, errors.New("the nodes that it may run on are looked for"))
		return
	}
	looked := s.searchOn(a, slices.DeleteFunc(nominatedFirst(p, s.byRoom(c)), func(n *node) bool { return refused[n.name] != nil }))
	p.searching = true
	c.enter(s)
	s.spawn(func(ctx context.Context) {
		found := looked.run(ctx)
		s.inbox.put(func() {
			p.searching = false
			s.foundDevices(p, a, found, refused)
			c.leave(s) // after it may have entered anew, so that what was answered is not forgotten
		})
	})
}

// searchOn is one for devices on some nodes.
func (s *Scheduler) searchOn(a *ask, nodes []*node) search {
	looked := search{classes: maps.Clone(s.deviceClasses)}
	for _, open := range a.open {
		looked.claims = append(looked.claims, s.distinct(open.object))
	}
	if a.mixed {
		looked.others = s.config.Filters
	}
	for _, n := range nodes {
		if len(n.offered) > 0 || a.mixed { // what another driver's is an alternative to need not be there
			looked.nodes = append(looked.nodes, s.offerOf(n))
		}
	}
	return looked
}

// distinct is a claim that is given no two parts of one device of ours, for the node agent prepares no such.
func (s *Scheduler) distinct(object *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	attribute := apart
	object = object.DeepCopy()
	var ours []string
	for i := range object.Spec.Devices.Requests {
		for _, one := range demand.Ours(&object.Spec.Devices.Requests[i], s.deviceClass) {
			ours = append(ours, one.Name)
		}
	}
	object.Spec.Devices.Constraints = append(object.Spec.Devices.Constraints, resourceapi.DeviceConstraint{DistinctAttribute: &attribute, Requests: ours})
	return object
}

// offerOf is what a node offers by the engine's books.
func (s *Scheduler) offerOf(n *node) offer {
	o := offer{node: n.object, slices: slices.Collect(maps.Values(n.slices)), state: noneTaken()}
	for _, d := range n.offered {
		id := structured.MakeDeviceID(driver.Name, n.name, d.Name)
		compute, memory, known := s.engine.Free(deviceID(n.name, d.Name))
		has := d.Capacity[driver.Memory]
		switch taken := has.Value.Value() - int64(memory); {
		case !known, !shareable(d) && (compute < api.WholeDevice || taken > 0):
			o.state.AllocatedDevices.Insert(id)
		case shareable(d):
			o.state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, map[resourceapi.QualifiedName]resource.Quantity{
				driver.Compute: *resource.NewQuantity(int64(api.WholeDevice-compute), resource.DecimalSI), driver.Memory: *resource.NewQuantity(taken, resource.BinarySI),
			}))
		}
	}
	return o
}

// foundDevices takes in what a search came to. What it was done on may have changed since.
func (s *Scheduler) foundDevices(p *pod, a *ask, found finding, refused map[string]error) {
	if !s.mine(p) || p.task != nil || p.beside != nil {
		return
	}
	if now, err := s.askOf(p); err != nil || !slices.Equal(now.open, a.open) || !slices.Equal(now.have, a.have) {
		s.consider(p)
		return
	} else {
		a = now
	}
	why := errors.New("no node that takes it has such devices free")
	switch {
	case found.node == "" && len(refused) > 0:
		why = refused[slices.Sorted(maps.Keys(refused))[0]]
	case found.why != nil:
		why = found.why
	}
	if found.node != "" {
		why = s.grant(p, a, found)
		switch {
		case why == nil:
			return
		case errors.Is(why, errOvertaken):
			s.placeSpecial(p, a, refused)
			return
		case errors.As(why, new(barred)):
			more := maps.Clone(refused)
			if more == nil {
				more = map[string]error{}
			}
			more[found.node] = why
			s.placeSpecial(p, a, more)
			return
		}
	}
	s.awaitDevices(p, a, why)
}

// awaitDevices has devices looked for again when some come free, or it is known anew which nodes the pod may use.
func (s *Scheduler) awaitDevices(p *pod, a *ask, why error) {
	c := s.classOf(p, a)
	s.awaitNodes(p, a, fmt.Errorf("%s, and so is placed beside those in line: %w", a.special, why))
	s.specials[p] = true
	if c.answer != nil && s.mayGainRoom(p) {
		s.seek(p)
	}
}

// devicesFree has those looked at again that wait for devices beside the engine, for some have come free.
func (s *Scheduler) devicesFree() {
	for p := range s.specials {
		if p.beside == nil {
			delete(s.specials, p)
			continue
		}
		p.beside.stale = true
	}
}

// othersFree is devicesFree for those of other drivers, of which the filters hear by themselves, which may be later.
func (s *Scheduler) othersFree() {
	s.devicesFree()
	for p := range s.specials {
		p.beside.outdated = s.config.Now()
	}
}

// barred is why a node does not take a pod, where another may.
type barred struct{ error }

func (b barred) Unwrap() error { return b.error }

// errOvertaken is that others have what was found of other drivers' devices.
var errOvertaken = errors.New("devices of other drivers were taken meanwhile")

// grant has what was found adopted, written and the pod bound, or says why not.
func (s *Scheduler) grant(p *pod, a *ask, found finding) error {
	one := jobTask{pod: p.object, node: found.node}
	for _, c := range a.have {
		one.claims = append(one.claims, jobClaim{object: c.object})
	}
	given, err := a.given(found)
	if err != nil {
		return err
	}
	for i, c := range a.open {
		one.claims = append(one.claims, jobClaim{object: c.object, allocation: given[i].Status.Allocation})
	}
	if a.mixed {
		if held, err := s.config.Filters.Hold(s.ctx, found.node, found.taken, given); err != nil || !held {
			return cmp.Or(err, errOvertaken)
		}
	}
	t, adopted, err := s.toAdopt(p, a, found.node, given)
	if err == nil {
		at, refused := s.admit(p, found.node)
		if err = refused; refused != nil && at != "" {
			err = barred{refused}
		}
	}
	if err != nil {
		if t != nil {
			delete(s.work, t.work.id)
		}
		s.settleOthers(a, given, false)
		return err
	}
	for _, c := range a.open {
		c.writing = true
	}
	if t != nil {
		p.task, p.carried = t, true
		for _, c := range t.claims {
			c.task = t
		}
		s.charge(p)
		s.step(*adopted)
	}
	p.busy, p.binding, p.reason = true, true, ""
	s.carryOut(job{one}, func(out outcome) {
		if out.refused == nil {
			given = out.claims[0][len(a.have):]
		}
		s.settleOthers(a, given, out.refused == nil)
		s.granted(p, a, one, out)
	})
	return nil
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
	if err != nil || !a.stillOpen() {
		return false
	}
	t, _, err := s.toAdopt(p, a, found.node, given)
	if t != nil {
		delete(s.work, t.work.id)
	}
	return err == nil
}

// toAdopt is the task by which the engine is to know what a pod is given of our devices, or why it does not have it so. No task: it is given none, where
// another driver's was an alternative.
func (s *Scheduler) toAdopt(p *pod, a *ask, node string, given []*resourceapi.ResourceClaim) (*task, *engine.Adopt, error) {
	t, placing := &task{pod: p, ask: a}, engine.Placing{Node: node}
	for i, c := range a.open {
		if _, grants := s.grantsOf(given[i]); len(grants) > 0 {
			t.claims, placing.Grants = append(t.claims, c), merge(placing.Grants, grants)
		}
	}
	if len(t.claims) == 0 {
		return nil, nil, nil
	}
	w := s.newWork(p.name())
	w.state, w.tasks, w.preemptible, t.work = placed, []*task{t}, a.preemptible, w
	adopted := &engine.Adopt{At: s.at(), Tasks: []engine.Placing{placing}, Workload: engine.Workload{
		ID: w.id, Queue: a.queue, Class: a.class, Preemptible: a.preemptible, Restart: engine.Time(a.restart.Microseconds()),
	}}
	s.describe(&adopted.Workload, p)
	adoptRoles(&adopted.Workload, w.tasks, [][]engine.Grant{placing.Grants})
	taken := s.engine.CheckRoom(adopted.Workload, adopted.Tasks)
	if taken == nil {
		_, taken = s.keptFrom(p, adopted.Tasks, false)
	}
	if taken != nil {
		return t, adopted, barred{taken}
	}
	return t, adopted, s.engine.CheckHold(adopted.Workload, adopted.Tasks)
}

// settleOthers ends what was held of other drivers' devices for claims.
func (s *Scheduler) settleOthers(a *ask, claims []*resourceapi.ResourceClaim, written bool) {
	if a.mixed {
		s.config.Filters.Settle(claims, written)
	}
}

// granted takes in what became of writing what was found for a pod.
func (s *Scheduler) granted(p *pod, a *ask, one jobTask, out outcome) {
	p.busy, p.binding = false, false
	if out.refused == nil {
		p.bound = one.node
		s.metrics.bound.Inc()
	} else {
		s.config.Filters.Forget(one.pod)
		s.metrics.refused.Inc()
		s.learn(out.left)
	}
	for k, c := range a.open {
		c.writing = false
		if out.refused == nil {
			c.update(out.claims[0][len(a.have)+k])
		} else {
			s.free(c)
		}
	}
	s.charge(p)
	for _, c := range a.open {
		s.claimSettled(c)
	}
	if out.refused != nil && s.mine(p) && p.task == nil && p.beside == nil && !p.busy {
		s.awaitDevices(p, a, out.refused)
	}
	s.hearSaved(p)
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
