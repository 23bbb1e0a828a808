package engine

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/place"
	"github.com/aliquot-dev/aliquot/engine/queue"
)

// Policy is what holds from one moment on: what the queues are, the order at the top of their tree and how places are scored. Which window it
// is of, and when the next one begins, is the host's to know: it sends a PolicySet at each begin and end.
type Policy struct {
	Window string `json:"window,omitempty"` // that it is of, for people; empty: none holds
	// Queues are whole, as they are to be from now on. Those that are not named stay as they are.
	Queues []api.QueueSpec `json:"queues,omitempty"`
	// OneLine has the queues that are under none stand in one line, as QueueOrder.OneLine does those under a queue.
	OneLine bool `json:"oneLine,omitempty"`
	// Pools are devices for work of some classes; none: every device is for all work.
	Pools []Pool `json:"pools,omitempty"`
	// Predicted has preemptible work start before the first in line that is predicted to be over when that starts at the latest, and evicted for it where it
	// is not.
	Predicted bool `json:"predicted,omitempty"`
	// Defragment has work moved so that devices come free; nil: none is.
	Defragment *Defragment `json:"defragment,omitempty"`
	// HalfLife is after how long what queues used counts half in their order, from now on, in µs; 0: a week, else LeastHalfLife to MostHalfLife.
	HalfLife Time `json:"halfLife,omitempty"`
	// Placement scores places; nil: Config.Placement does.
	Placement *place.Policy `json:"placement,omitempty"`
}

// LeastHalfLife and MostHalfLife are the bounds of Policy.HalfLife, in µs: a minute and 365 days.
const (
	LeastHalfLife Time = 60_000_000
	MostHalfLife  Time = 365 * 24 * 3600 * 1_000_000
)

// PolicySet has a policy hold in place of the one before. It is taken whole or rejected: quotas may change hands in it. What runs, runs
// on.
type PolicySet struct {
	At
	Policy Policy `json:"policy"`
}

// Policy is what holds. Its Queues are not kept: what they are now, Queues says.
func (e *Engine) Policy() Policy { return e.policy }

// CheckPolicy says why a PolicySet would be rejected now. It changes nothing.
func (e *Engine) CheckPolicy(p Policy) error {
	if p.Placement != nil {
		if err := p.Placement.Validate(); err != nil {
			return err
		}
	}
	if p.Defragment != nil {
		if err := p.Defragment.Validate(); err != nil {
			return err
		}
	}
	if err := checkHalfLife(p.HalfLife); err != nil {
		return err
	}
	if err := checkPools(p.Pools); err != nil {
		return err
	}
	return e.queues.CheckAll(p.Queues)
}

// checkHalfLife says what is wrong with the half-life of use.
func checkHalfLife(life Time) error {
	if life != 0 && (life < LeastHalfLife || life > MostHalfLife) {
		return fmt.Errorf("use is to count half after %d µs: give %d to %d, a minute to 365 days, or 0 for a week", life, LeastHalfLife, MostHalfLife)
	}
	return nil
}

// checkPools says what is wrong with pools together.
func checkPools(all []Pool) error {
	for i := range all {
		if err := all[i].Validate(); err != nil {
			return err
		}
		if slices.ContainsFunc(all[:i], func(o Pool) bool { return o.Name == all[i].Name }) {
			return fmt.Errorf("pool %s comes twice: give each pool a name of its own", all[i].Name)
		}
	}
	return nil
}

func (e *Engine) policySet(ev PolicySet) bool {
	p := ev.Policy
	if err := e.CheckPolicy(p); err != nil {
		return e.reject("", "invalid", "%v", err)
	}
	before := e.lineOrders(p.Queues)
	if err := e.queues.SetAll(p.Queues); err != nil {
		panic("engine: queues that were checked cannot be set: " + err.Error()) // a defect, not a condition
	}
	e.lineUp(before)
	e.queues.SetHalfLife(int64(p.HalfLife))
	e.setPredicted(p.Predicted)
	was, pools := e.placement(), e.policy.Pools
	e.policy = Policy{Window: p.Window, OneLine: p.OneLine, Predicted: p.Predicted, HalfLife: p.HalfLife, Placement: p.Placement.Clone(), Pools: clonePools(p.Pools), Defragment: p.Defragment.clone()}
	if !reflect.DeepEqual(e.policy.Pools, pools) {
		e.reshape()
	}
	if now := e.placement(); !reflect.DeepEqual(now, was) {
		e.placer.ChangePolicy(now)
		if weighsUse(was) != weighsUse(now) {
			e.rebusy()
		}
	}
	return true
}

// placement is the policy that scores places now; nil: best fit.
func (e *Engine) placement() *place.Policy {
	if e.policy.Placement != nil {
		return e.policy.Placement
	}
	return e.config.Placement
}

// lineOrder is what decides where work stands in its line.
type lineOrder struct {
	noPriority    bool
	priorityWorth api.Duration
	shortestFirst api.Milli
	priority      int64 // that is added
	served        api.Duration
	held          bool
}

// orderOf is what decides where the work of a queue itself stands.
func orderOf(q *queue.Node) lineOrder {
	ruler := q.Ruler()
	o := ruler.Order()
	return lineOrder{o.NoPriority, o.PriorityWorth, ruler.ShortestFirst(), q.Priority(), o.Served, o.Held}
}

// lineOrders is what decides in the lines of the queues given that are there, and of all under them.
func (e *Engine) lineOrders(of []api.QueueSpec) map[*queue.Node]lineOrder {
	all := map[*queue.Node]lineOrder{}
	var enter func(q *queue.Node)
	enter = func(q *queue.Node) {
		if _, been := all[q]; been {
			return
		}
		all[q] = orderOf(q)
		for _, under := range q.Children() {
			enter(under)
		}
	}
	for _, spec := range of {
		if q, ok := e.queues.Get(spec.Name); ok {
			enter(q)
		}
	}
	return all
}

// lineUp has what waits stand in line anew in those queues in whose lines something else decides now.
func (e *Engine) lineUp(before map[*queue.Node]lineOrder) {
	maps.DeleteFunc(before, func(q *queue.Node, order lineOrder) bool { return orderOf(q) == order })
	if len(before) == 0 {
		return
	}
	var waiting []*workload
	for w := range e.line.All {
		if _, changed := before[w.queue]; changed {
			waiting = append(waiting, w)
		}
	}
	for _, w := range waiting {
		retryAt := w.retryAt
		e.dequeue(w)
		w.retryAt = retryAt
		e.enqueue(w)
	}
}

// cleanPolicy is a policy with all its text in UTF-8.
func cleanPolicy(p Policy) Policy {
	p.Window = text(p.Window)
	p.Queues = slices.Clone(p.Queues)
	for i := range p.Queues {
		p.Queues[i] = cleanQueue(p.Queues[i])
	}
	p.Pools = clonePools(p.Pools)
	for i := range p.Pools {
		pool := &p.Pools[i]
		pool.Name = text(pool.Name)
		pool.Nodes, pool.Models = cleaned(pool.Nodes, text), cleaned(pool.Models, text)
		pool.Classes = cleaned(pool.Classes, func(c api.Class) api.Class { return api.Class(text(string(c))) })
	}
	if p.Placement != nil {
		p.Placement = p.Placement.Clone()
		p.Placement.Name, p.Placement.Device = text(p.Placement.Name), place.DeviceRule(text(string(p.Placement.Device)))
		for i := range p.Placement.Workload {
			w := &p.Placement.Workload[i]
			w.Model, w.Class = text(w.Model), text(w.Class)
			for k := range w.Resources {
				w.Resources[k].Name = text(w.Resources[k].Name)
			}
		}
	}
	return p
}
