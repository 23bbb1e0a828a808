package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// impossibleGang measures how long it takes to find that a gang cannot start for which there is enough in total: because what is
// free lies in fragments, because the nodes that its class may use are taken, and because one of higher priority is first in line.
func (b *bench) impossibleGang() error {
	for _, blocked := range []struct {
		by   string
		gang func(*world) (engine.Workload, error)
	}{{"fragments", b.byFragments}, {"class", b.byClass}, {"priority", b.byPriority}} {
		x := newWorld(b.nodes, b.shapes)
		gang, err := blocked.gang(x)
		if err != nil {
			return err
		}
		took, err := x.refusals(gang, b.gangTimes)
		if err != nil {
			return fmt.Errorf("blocked by %s: %w", blocked.by, err)
		}
		b.AtMost("impossible_gang_"+strconv.Itoa(b.gang)+"/"+blocked.by, milliseconds(took), 1, "ms")
	}
	return nil
}

// refusals is the 99th percentile of submitting a gang that cannot start; in between something comes and goes, so that nothing is
// known of it any more.
func (x *world) refusals(gang engine.Workload, times int) (time.Duration, error) {
	var took []time.Duration
	for i := range times {
		if err := x.depart(); err != nil {
			return 0, err
		}
		gang.ID = "gang" + strconv.Itoa(i)
		begin := time.Now()
		actions := x.engine.Step(engine.Submit{At: engine.At{At: x.now}, Workload: gang})
		took = append(took, time.Since(begin))
		if len(actions) != 0 {
			return 0, fmt.Errorf("the gang is placed: %d actions", len(actions))
		}
		if err := x.step(engine.Cancel{At: engine.At{At: x.now}, ID: gang.ID}); err != nil {
			return 0, err
		}
	}
	return quantile(took, 99), nil
}

// byFragments: a quarter of the fleet is free, three tenths of a device here and there, and the gang wants four tenths for each task.
func (b *bench) byFragments(x *world) (engine.Workload, error) {
	part := whole("", "default", 1, 1)
	part.Share.Compute.Floor = 700
	for i := range b.nodes * perNode {
		part.ID = "part" + strconv.Itoa(i)
		if err := x.place(part); err != nil {
			return part, err
		}
	}
	gang := whole("", "default", b.gang, 1)
	gang.Share.Compute.Floor = 400
	return gang, nil
}

// byClass: half of the nodes are free, and the gang may use the others alone, on which one device of eight is free.
func (b *bench) byClass(x *world) (engine.Workload, error) {
	full := engine.Feasibility{Class: "full"}
	for i := range b.nodes / 2 {
		full.Allowed = append(full.Allowed, "node"+strconv.Itoa(i))
	}
	if err := x.step(full); err != nil {
		return engine.Workload{}, err
	}
	for i := range b.nodes / 2 {
		w := whole("seven"+strconv.Itoa(i), "default", 1, perNode-1)
		w.Feasibility = "full"
		if err := x.place(w); err != nil {
			return w, err
		}
	}
	gang := whole("", "default", b.gang, 2)
	gang.Feasibility = "full"
	return gang, nil
}

// byPriority: what is free is kept for a larger gang of higher priority, which waits for more than there is now.
func (b *bench) byPriority(x *world) (engine.Workload, error) {
	for i := range b.nodes {
		w := whole("half"+strconv.Itoa(i), "default", 1, perNode/2)
		if err := x.place(w); err != nil {
			return w, err
		}
	}
	first := whole("first", "default", b.nodes*3/4, perNode)
	first.Priority = 10
	if err := x.step(engine.Submit{At: engine.At{At: x.now}, Workload: first}); err != nil {
		return first, err
	}
	return whole("", "default", b.gang, 1), nil
}

// place submits a workload that must be placed at once.
func (x *world) place(w engine.Workload) error {
	actions := x.engine.Step(engine.Submit{At: engine.At{At: x.now}, Workload: w})
	if len(actions) == 1 {
		if p, ok := actions[0].(engine.Place); ok {
			return x.started(p, &w)
		}
	}
	return fmt.Errorf("workload %s gives %+v instead of its placement", w.ID, actions)
}

// reclaim measures taking devices back: a queue holds the whole fleet with preemptible work of one device each, and the owner of
// half of it submits a gang.
func (b *bench) reclaim() error {
	var took []time.Duration
	for range 5 {
		d, err := b.reclaimOnce()
		if err != nil {
			return err
		}
		took = append(took, d)
	}
	b.AtMost(fmt.Sprintf("reclaim_%d@%d_nodes", b.reclaimDevices, b.reclaimNodes), milliseconds(quantile(took, 99)), 20, "ms")
	return nil
}

func (b *bench) reclaimOnce() (time.Duration, error) {
	x := newWorld(b.reclaimNodes, 1)
	half := api.Quota(b.reclaimNodes * perNode / 2 * int(api.WholeDevice))
	for _, name := range []string{"owner", "borrower"} {
		if err := x.step(engine.QueueSet{Queue: api.QueueSpec{Name: name, Quota: half}}); err != nil {
			return 0, err
		}
	}
	for i := range b.reclaimNodes * perNode {
		x.now += 1000
		w := whole("w"+strconv.Itoa(i), "borrower", 1, 1)
		w.Preemptible = true
		if err := x.place(w); err != nil {
			return 0, err
		}
	}
	gang := whole("gang", "owner", b.reclaimDevices, 1)
	begin := time.Now()
	actions := x.engine.Step(engine.Submit{At: engine.At{At: x.now}, Workload: gang})
	took := time.Since(begin)
	for _, a := range actions {
		if e, ok := a.(engine.Evict); !ok || e.Code != engine.EvictReclaim {
			return 0, fmt.Errorf("a gang of the owner gives %+v", a)
		}
	}
	if len(actions) != b.reclaimDevices {
		return 0, fmt.Errorf("%d devices are taken back instead of %d", len(actions), b.reclaimDevices)
	}
	return took, nil
}
