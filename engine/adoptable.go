package engine

import (
	"fmt"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/queue"
)

// Free is what is under no floor on a device, less than nothing where more was adopted than there is; false: the device is not known.
func (e *Engine) Free(uuid string) (compute api.Milli, memory api.Bytes, known bool) {
	d, ok := e.fleet.DeviceOf(uuid)
	if !ok || e.fleet.DeviceGone(d) {
		return 0, 0, false
	}
	compute, memory = e.fleet.Free(d)
	return compute, memory, true
}

// CheckRoom says why the floors of a workload do not fit where its host would start it and have it adopted: a device that others hold, or what is wrong
// with what it says. What runs already is adopted whatever this says. It changes nothing.
func (e *Engine) CheckRoom(w Workload, tasks []Placing) error {
	if err := validate(&w); err != nil {
		return err
	}
	if err := e.checkAdopt(&workload{Workload: w}, tasks); err != nil {
		return err
	}
	type floors struct {
		compute api.Milli
		memory  api.Bytes
	}
	asked := map[string]floors{}
	for _, p := range tasks {
		for _, g := range p.Grants {
			all := asked[g.Device]
			all = floors{all.compute + g.Compute.Floor, all.memory + g.Floor}
			asked[g.Device] = all
			if compute, memory, known := e.Free(g.Device); !known || all.compute > compute || all.memory > memory {
				return fmt.Errorf("device %s has %s of compute and %s of memory free, and workload %s asks for %s and %s there: look for another", g.Device, compute, memory, w.ID, all.compute, all.memory)
			}
		}
	}
	return nil
}

// CheckHold says which quota or limit of its queue a workload would pass that is started where its host found room for it, as CheckRoom says.
func (e *Engine) CheckHold(w Workload, tasks []Placing) error {
	q, ok := e.queues.Get(w.Queue)
	if !ok {
		return fmt.Errorf("workload %s names queue %s, which is not there: make the queue or name another", w.ID, w.Queue)
	}
	var uses []use
	for _, p := range tasks {
		for _, g := range p.Grants {
			model := ""
			if d, known := e.fleet.DeviceOf(g.Device); known {
				model = e.fleet.Device(d).Model
			}
			uses = addUse(uses, use{model, queue.Amounts{int64(g.Compute.Floor), int64(g.Floor), 1}})
		}
	}
	kind := (&workload{Workload: w}).kind()
	for _, u := range uses {
		r, over := q.Over(queue.Demand{Amounts: u.amounts, Model: u.model, Firm: kind == queue.Firm})
		if over && r.Spent() {
			return fmt.Errorf("queue %s has used its device-hours up: it starts when the next period begins", r.Queue.Name)
		}
		if over {
			return fmt.Errorf("it asks for %s in queue %s, which has a %s of %s and %s held by others: ask for less, wait until others end, or raise the %s",
				queue.Format(r.Resource, u.amounts[r.Resource]), r.Queue.Name, boundName(&r), plain(&r, r.Bound()), plain(&r, r.Held()), boundName(&r))
		}
		q.Pretend(u.model, u.amounts, kind, 1)
		defer q.Pretend(u.model, u.amounts, kind, -1)
	}
	return nil
}
