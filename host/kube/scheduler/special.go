package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

// Claims for devices of ours which the engine has no words for (alternatives, all devices of a node, constraints, shares that differ) are allocated by
// upstream's own allocator on the engine's books, which have what is being written for others, too. The engine adopts what it finds before anything is
// written, as it does what another scheduler allocated; it must fit there and in the queue, and nobody is evicted for it.

// searchWithin is for how long devices for one pod are looked for on one node: an adverse claim has exponentially many ways to be tried.
const searchWithin = 200 * time.Millisecond

// search is one for devices for a pod's open claims: a copy of what the loop knows, which it is done on beside it.
type search struct {
	claims  []*resourceapi.ResourceClaim
	classes map[string]*resourceapi.DeviceClass
	nodes   []offer // in the order in which they are tried
}

// offer is what a node offers.
type offer struct {
	node   *corev1.Node
	slices []*resourceapi.ResourceSlice
	state  structured.AllocatedState
}

// Get is a device class, for upstream's allocator.
func (s search) Get(name string) (*resourceapi.DeviceClass, error) {
	if class := s.classes[name]; class != nil {
		return class, nil
	}
	return nil, fmt.Errorf("there is no device class %s", name)
}

// List are all device classes.
func (s search) List() ([]*resourceapi.DeviceClass, error) {
	return slices.Collect(maps.Values(s.classes)), nil
}

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
	looked := search{classes: maps.Clone(s.deviceClasses)}
	for _, open := range a.open {
		looked.claims = append(looked.claims, distinct(open.object))
	}
	for _, n := range s.byRoom(c) {
		if len(n.offered) > 0 && refused[n.name] == nil {
			looked.nodes = append(looked.nodes, s.offerOf(n))
		}
	}
	p.searching = true
	c.enter(s)
	s.spawn(func(ctx context.Context) {
		node, found, err := looked.run(ctx)
		s.inbox.put(func() {
			p.searching = false
			s.foundDevices(p, a, node, found, err, refused)
			c.leave(s) // after it may have entered anew, so that what was answered is not forgotten
		})
	})
}

// distinct is a claim that is given no two parts of one device, for the node agent prepares no such.
func distinct(object *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	attribute := apart
	object = object.DeepCopy()
	object.Spec.Devices.Constraints = append(object.Spec.Devices.Constraints, resourceapi.DeviceConstraint{DistinctAttribute: &attribute})
	return object
}

// offerOf is what a node offers by the engine's books.
func (s *Scheduler) offerOf(n *node) offer {
	o := offer{node: n.object, slices: slices.Collect(maps.Values(n.slices)), state: structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](), AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}}
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

// run is the first node on which the claims can be had together, and their allocations, or why there is none.
func (s search) run(ctx context.Context) (node string, found []resourceapi.AllocationResult, why error) {
	features := structured.Features{PrioritizedList: true, DeviceTaints: true, ConsumableCapacity: true}
	programs := cel.NewCache(16, cel.Features{EnableConsumableCapacity: true})
	for _, o := range s.nodes {
		allocator, err := structured.NewAllocator(ctx, features, o.state, s, o.slices, programs)
		if err == nil {
			within, cancel := context.WithTimeout(ctx, searchWithin)
			found, err = allocator.Allocate(within, o.node, s.claims)
			cancel()
		}
		switch {
		case err != nil:
			why = fmt.Errorf("node %s: %w", o.node.Name, err)
		case len(found) == len(s.claims) && !slices.ContainsFunc(found, twice):
			return o.node.Name, found, nil
		}
	}
	return "", nil, why
}

// twice says whether an allocation has two parts of one device: upstream's constraint compares a request's last device alone.
func twice(one resourceapi.AllocationResult) bool {
	seen := map[string]bool{}
	return slices.ContainsFunc(one.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
		before := seen[r.Device]
		seen[r.Device] = true
		return before
	})
}

// foundDevices takes in what a search came to. What it was done on may have changed since.
func (s *Scheduler) foundDevices(p *pod, a *ask, node string, found []resourceapi.AllocationResult, err error, refused map[string]error) {
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
	case node == "" && len(refused) > 0:
		why = refused[slices.Sorted(maps.Keys(refused))[0]]
	case err != nil:
		why = err
	}
	if node != "" {
		if why = s.grant(p, a, node, found); why == nil {
			return
		}
		if errors.As(why, new(barred)) {
			more := maps.Clone(refused)
			if more == nil {
				more = map[string]error{}
			}
			more[node] = why
			s.placeSpecial(p, a, more)
			return
		}
	}
	s.awaitDevices(p, a, why)
}

// awaitDevices has devices looked for again when some come free, or it is known anew which nodes the pod may use.
func (s *Scheduler) awaitDevices(p *pod, a *ask, why error) {
	s.awaitNodes(p, a, fmt.Errorf("%s, and so is placed beside those in line: %w", a.special, why))
	s.specials[p] = true
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

// barred is why a node does not take a pod, where another may.
type barred struct{ error }

func (b barred) Unwrap() error { return b.error }

// grant has what was found adopted, written and the pod bound, or says why not.
func (s *Scheduler) grant(p *pod, a *ask, node string, found []resourceapi.AllocationResult) error {
	t := &task{pod: p, ask: a, claims: slices.Clone(a.open)}
	one := jobTask{pod: p.object, node: node}
	for _, c := range a.have {
		one.claims = append(one.claims, jobClaim{object: c.object})
	}
	placing := engine.Placing{Node: node}
	for i, c := range a.open {
		as := c.object.DeepCopy()
		as.Status.Allocation = &found[i]
		as.Status.Allocation.NodeSelector = onNode(node)
		if err := sound(as.Status.Allocation); err != nil {
			return err
		}
		_, grants := s.grantsOf(as)
		placing.Grants = merge(placing.Grants, grants)
		one.claims = append(one.claims, jobClaim{object: c.object, allocation: as.Status.Allocation})
	}
	w := s.newWork(p.name())
	w.state, w.tasks, w.preemptible, t.work = placed, []*task{t}, a.preemptible, w
	adopted := engine.Adopt{At: s.at(), Tasks: []engine.Placing{placing}, Workload: engine.Workload{
		ID: w.id, Queue: a.queue, Class: a.class, Preemptible: a.preemptible, Restart: engine.Time(a.restart.Microseconds()),
	}}
	s.describe(&adopted.Workload, p)
	adoptRoles(&adopted.Workload, w.tasks, [][]engine.Grant{placing.Grants})
	var err error
	if taken := s.engine.CheckRoom(adopted.Workload, adopted.Tasks); taken != nil {
		err = barred{taken}
	} else if err = s.engine.CheckHold(adopted.Workload, adopted.Tasks); err == nil {
		if at, refused := s.admit(p, node); refused != nil {
			err = refused
			if at != "" {
				err = barred{refused}
			}
		}
	}
	if err != nil {
		delete(s.work, w.id)
		return err
	}
	p.task, p.carried, p.reason = t, true, ""
	for _, c := range a.open {
		c.task, c.writing = t, true
	}
	s.charge(p)
	s.step(adopted)
	p.busy, p.binding = true, true
	s.carryOut(job{one}, func(out outcome) { s.granted(p, a, one, out) })
	return nil
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
