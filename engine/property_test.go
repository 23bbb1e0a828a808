package engine

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// generator draws events that a host could send to an engine in its present state.
type generator struct {
	t     *rapid.T
	world *world
	next  int // of workloads
	tame  bool
	moved []string // workloads that were to be moved
}

const gi = api.Bytes(1) << 30

func (g *generator) pick(label string, of ...string) string {
	return rapid.SampledFrom(of).Draw(g.t, label)
}

func (g *generator) int(label string, low, high int) int {
	return rapid.IntRange(low, high).Draw(g.t, label)
}

func (g *generator) node() NodeSet {
	name := g.pick("node", "n1", "n2", "n3")
	ev := NodeSet{At: g.world.at(), Node: name, Resources: []Resource{{"cpu", int64(g.int("cpu", 0, 8))}}}
	if rack := g.pick("rack", "", "r1", "r1", "r2"); rack != "" {
		ev.Domains = []fleet.Domain{{Level: "rack", Name: rack}}
	}
	for i := range g.int("devices", 1, 3) {
		model, size := "big", 8*gi
		if g.int("model", 0, 2) == 0 {
			model, size = "small", 4*gi
		}
		if g.tame { // a node that comes again is the same, so that grants never pass what it has
			model, size = []string{"big", "small", "big"}[i], []api.Bytes{8 * gi, 4 * gi, 8 * gi}[i]
		}
		ev.Devices = append(ev.Devices, Device{UUID: fmt.Sprintf("%s-%d", name, i), Index: i, Model: model, Memory: size, Health: api.Healthy, Link: fmt.Sprint(i / 2), NUMA: name[:1]})
		ev.Devices[i].Traits = fleet.Traits{Capability: map[string]int32{"big": 90, "small": 75}[model], Bandwidth: int32(300 * (i + 1)), Cost: int32(size / gi), Idle: 20, Peak: 300, Latency: int32(i)}
	}
	return ev
}

// least is now and then what only some of the devices have.
func (g *generator) least() (l fleet.Least) {
	switch g.int("least", 0, 9) {
	case 1:
		l.Capability = 80
	case 2:
		l.Bandwidth = 600
	case 3:
		l.Latency = int32(g.int("class", 1, 2))
	}
	return l
}

func (g *generator) share() api.Share {
	floor := api.Milli(rapid.SampledFrom([]int{0, 100, 250, 300, 500, 600, 1000}).Draw(g.t, "floor"))
	s := api.Share{Compute: api.Compute{Floor: floor, Ceiling: api.WholeDevice}}
	if m := g.int("memory", 0, 5); m > 0 {
		s.Memory.Floor = api.Amount{Bytes: api.Bytes(m) * gi}
		s.Memory.Ceiling = s.Memory.Floor
	}
	if g.int("part", 0, 4) == 0 {
		s.Memory.Floor = api.Amount{Part: 500}
		s.Memory.Ceiling = api.Amount{Part: 1000}
		if g.int("ceiling in bytes", 0, 2) == 0 {
			s.Memory.Ceiling = api.Amount{Bytes: 3 * gi} // under the floor on a large device
		}
	}
	return s
}

func (g *generator) submit() Submit {
	g.next++
	w := Workload{
		ID: fmt.Sprintf("w%d", g.next), Queue: g.pick("queue", "default", "org", "team", "other"), Class: api.Class(g.pick("work", string(api.Training), string(api.Inference), string(api.Batch))),
		Priority: int32(g.int("priority", 0, 2) / 2), Tasks: 1, Devices: 1, Share: g.share(),
		Model: g.pick("model", "", "", "big", "small"), Least: g.least(), Feasibility: g.pick("class", "", "", "", "zone", "zone", "near"),
		TimeLimit: Time(g.int("limit", 0, 4)) * 1_000_000, Preemptible: g.int("preemptible", 0, 1) == 1,
		User: g.pick("user", "", "ann", "bob"), Restart: Time(g.int("restart", 0, 3)/2) * 20 * second, Patient: g.int("patient", 0, 7) == 0,
	}
	if g.int("several", 0, 3) == 0 {
		w.Tasks, w.Devices = g.int("tasks", 1, 3), g.int("devices", 1, 3)
	}
	switch g.int("together", 0, 7) {
	case 0:
		w.Same = "rack"
	case 1:
		w.Prefer = "rack"
	}
	if g.int("elastic", 0, 2) == 0 {
		w.Max = w.Tasks + g.int("more", 0, 3)
	}
	if g.int("resources", 0, 2) == 0 {
		w.Resources = []Resource{{"cpu", int64(g.int("cpu", 1, 4))}}
	}
	if g.int("roles", 0, 5) == 0 {
		w.Max = 0
		for i := range g.int("more roles", 1, 2) {
			w.Roles = append(w.Roles, g.role(fmt.Sprint("role", i)))
		}
	}
	was := ""
	if !g.tame {
		w.Requeue = g.int("requeue", 0, 2) > 0
		if g.int("comes again", 0, 3) == 0 && len(g.moved) > 0 {
			was = rapid.SampledFrom(g.moved).Draw(g.t, "was")
		}
	}
	return Submit{At: g.world.at(), Workload: w, Was: was, Waited: Time(g.int("waited", 0, 3)) * second, Served: Time(max(0, g.int("served", -3, 3))) * second, Disrupted: g.disrupted()}
}

// disrupted is when a workload was evicted for others, that comes again; most do not.
func (g *generator) disrupted() (ago []Time) {
	for range g.int("disruptions", -4, 3) {
		ago = append(ago, Time(g.int("ago", 0, 12))*second)
	}
	return ago
}

func (g *generator) role(name string) Role {
	r := Role{Name: name, Tasks: g.int("tasks of role", 1, 2), Devices: 1 + g.int("devices of role", 0, 3)/3, Model: g.pick("model of role", "", "", "big"), Feasibility: g.pick("class of role", "", "", "zone")}
	r.Share.Compute = api.Compute{Floor: api.Milli(rapid.SampledFrom([]int{0, 100, 300, 500, 1000}).Draw(g.t, "floor of role")), Ceiling: api.WholeDevice}
	if m := api.Bytes(g.int("memory of role", 0, 6)/3) * gi; m > 0 {
		r.Share.Memory = api.Memory{Floor: api.Amount{Bytes: m}, Ceiling: api.Amount{Bytes: m}}
	}
	if g.int("part of role", 0, 4) == 0 {
		r.Share.Memory = api.Memory{Floor: api.Amount{Part: 500}, Ceiling: api.Amount{Part: 500}}
	}
	if g.int("resources of role", 0, 2) == 0 {
		r.Resources = []Resource{{"cpu", int64(g.int("cpu of role", 1, 3))}}
	}
	return r
}

// queue gives a queue other quotas, limits and weights, most of them none.
func (g *generator) queue(at At) QueueSet {
	return QueueSet{at, g.spec(g.pick("queue", "org", "team", "default", "other"))}
}

func (g *generator) spec(name string) api.QueueSpec {
	q := api.QueueSpec{
		Name: name, Quota: *g.quota(),
		Weight: api.QueueWeight{All: int32(g.int("weight", 0, 3)), Memory: int32(g.int("memory weight", 0, 5) / 3)},
	}
	if q.Name == "team" || q.Name == "other" && g.int("under", 0, 1) == 0 {
		q.Parent = "org"
	}
	q.HoursSpent = g.int("hours spent", 0, 7) == 0
	if g.int("has priority", 0, 2) == 0 {
		q.Priority = int32(g.int("priority of queue", -1, 2))
	}
	if g.int("shortest first", 0, 2) == 0 {
		q.ShortestFirst = 1500
	}
	switch g.int("more", 0, 5) {
	case 0:
		q.Limit.Compute = g.quota()
	case 1:
		memory := api.Bytes(g.int("quota memory", 0, 8)) * gi
		q.QuotaMemory = &memory
	case 2:
		memory, shares := api.Bytes(g.int("limit memory", 0, 8))*gi, int64(g.int("shares", 0, 4))
		q.Limit.Memory, q.Limit.Devices = &memory, &shares
	case 3:
		m := api.QueueModel{Model: g.pick("for model", "big", "small")}
		m.Quota.Compute = g.quota()
		m.Limit.Compute = g.quota()
		if g.int("memory of model", 0, 1) == 0 {
			memory := api.Bytes(g.int("model memory", 0, 8)) * gi
			m.Limit.Memory = &memory
		}
		q.Models = []api.QueueModel{m}
	}
	if g.int("weighs models", 0, 1) == 0 {
		for _, model := range []string{"big", "small"} {
			weight := api.QueueWeight{All: int32(g.int("weight of model", 0, 4)), Compute: int32(g.int("compute weight of model", 0, 8) / 4)}
			if i := slices.IndexFunc(q.Models, func(m api.QueueModel) bool { return m.Model == model }); i >= 0 {
				q.Models[i].Weight = weight
			} else if weight != (api.QueueWeight{}) {
				q.Models = append(q.Models, api.QueueModel{Model: model, Weight: weight})
			}
		}
	}
	q.Order = g.order()
	q.MinRun = g.minRun()
	if g.int("budget", 0, 3) == 0 {
		q.Disruptions = api.DisruptionBudget{Most: int32(g.int("most", 1, 2)), Per: api.Duration(g.int("per", 1, 20)) * api.Duration(2*time.Second)}
	}
	return q
}

// minRun is for how long work is not evicted for others; most queues say nothing.
func (g *generator) minRun() api.Duration {
	if g.int("guarded", 0, 3) > 0 {
		return 0
	}
	return api.Duration(g.int("min run", 1, 20)) * api.Duration(2*time.Second)
}

// order is what counts in the line of a queue; half of them say nothing.
func (g *generator) order() (o api.QueueOrder) {
	kind := g.int("order", 0, 11)
	o.OneLine = kind < 4
	switch {
	case kind == 11:
	case kind%4 == 1:
		o.NoPriority = true
	case kind%4 == 2:
		o.PriorityWorth = api.Duration(time.Second)
	}
	if g.int("levels", 0, 2) == 0 {
		o.Served, o.Held = api.LeastServed, g.int("held", 0, 1) == 1
	}
	return o
}

func (g *generator) quota() *api.Quota {
	q := rapid.SampledFrom([]api.Quota{api.Unlimited, api.Unlimited, 0, 500, 1000, 2000}).Draw(g.t, "quota")
	return &q
}

// holding are the tasks that hold grants.
func (g *generator) holding() []Ended {
	var all []Ended
	for _, w := range g.world.engine.byID() {
		for _, t := range w.tasks {
			if t.live() {
				all = append(all, Ended{g.world.at(), w.ID, t.number(), nil})
			}
		}
	}
	return all
}

// shrunk has a task hold less of some of its devices, and now and then more, or of others.
func (g *generator) shrunk(of Ended) Shrunk {
	ev := Shrunk{of.At, of.ID, of.Task, nil}
	for _, grant := range g.world.engine.task(of.ID, of.Task).grants {
		switch g.int("keeps", 0, 9) {
		case 0:
			ev.Holds = append(ev.Holds, Holding{grant.Device, grant.compute + 1, grant.memory})
		case 1:
			ev.Holds = append(ev.Holds, Holding{grant.Device + "x", 0, 0})
		case 2, 3, 4:
			ev.Holds = append(ev.Holds, Holding{grant.Device, grant.compute / 2, grant.memory / 2})
		case 5, 6:
			ev.Holds = append(ev.Holds, Holding{grant.Device, grant.compute, grant.memory})
		}
	}
	return ev
}

func (g *generator) known() []string {
	var ids []string
	for _, w := range g.world.engine.byID() {
		ids = append(ids, w.ID)
	}
	return ids
}

// event draws one. A tame event is one that the naive engine knows and that is not rejected.
func (g *generator) event() Event {
	e := g.world.engine
	g.world.now += Time(g.int("wait", 0, 3)) * 500_000
	if !g.tame && g.int("long", 0, 15) == 0 {
		g.world.now += 30 * 60 * second
	}
	at := g.world.at()
	switch kind := g.int("kind", 0, 24); {
	case kind == 0:
		return g.node()
	case kind == 1:
		return g.health(at)
	case kind == 2:
		if g.int("policy", 0, 1) == 0 {
			return g.policy(at)
		}
		return g.queue(at)
	case kind == 3:
		return g.feasibility(at)
	case kind == 4:
		ids := g.known()
		if g.tame {
			ids = e.Waiting()
		}
		if len(ids) > 0 {
			return g.change(at, rapid.SampledFrom(ids).Draw(g.t, "id"))
		}
	case kind == 5:
		if ids := g.cancellable(); len(ids) > 0 {
			return Cancel{at, rapid.SampledFrom(ids).Draw(g.t, "id"), "asked"}
		}
	case kind <= 9:
		if tasks := g.holding(); len(tasks) > 0 {
			ev := rapid.SampledFrom(tasks).Draw(g.t, "task")
			if !g.tame && g.int("shrunk", 0, 3) == 0 {
				return g.shrunk(ev)
			}
			ev.Used = g.used(!g.tame)
			return ev
		}
	case kind <= 13:
		if open := e.Unanswered(); len(open) > 0 {
			return g.answer(at, rapid.SampledFrom(open).Draw(g.t, "action"))
		}
	case kind == 14:
		if tasks := g.holding(); len(tasks) > 0 {
			t := rapid.SampledFrom(tasks).Draw(g.t, "task")
			if !g.tame || !e.task(t.ID, t.Task).started {
				return Started{t.At, t.ID, t.Task}
			}
		}
	case kind == 15 && !g.tame:
		return g.adopt(at)
	case kind == 23:
		if ev := g.checkpoint(at); ev.ID != "" {
			return ev
		}
	case kind == 24:
		return g.feasibilityGone(at)
	case kind == 22:
		if g.int("of queues", 0, 2) == 0 {
			return g.queuesUsed(at)
		}
		return g.past(at)
	case kind >= 20:
		if ev := g.usage(at); len(ev.Grants) > 0 {
			return ev
		}
	case kind == 16 && !g.tame:
		return NodeGone{at, g.pick("node", "n1", "n2", "n3")}
	}
	if g.int("idle", 0, 5) == 0 {
		return Tick{at}
	}
	return g.submit()
}

// used is what a task used; half of them do not say. Where it may be wrong, it is now and then what none can use.
func (g *generator) used(wrong bool) *Used {
	if g.int("says use", 0, 1) == 0 {
		return nil
	}
	u := &Used{api.Milli(g.int("used", 0, 10) * 100), api.Bytes(g.int("peak", 0, 9)) * gi}
	if wrong && g.int("wrong", 0, 19) == 0 {
		u.Compute = api.WholeDevice + 1
	}
	return u
}

// queuesUsed is of a queue, there or not, that used some thousandths of a device for a while, or more than can be.
func (g *generator) queuesUsed(at At) QueuesUsed {
	used := func(what string) int64 {
		if !g.tame && g.int("wrong", 0, 29) == 0 {
			return MostQueueUsed + 1
		}
		return int64(g.int(what, 0, 9)) * 1_000_000
	}
	name := rapid.SampledFrom([]string{"org", "team", "other", api.DefaultQueue}).Draw(g.t, "queue that used")
	return QueuesUsed{at, Time(g.int("ago", 0, 4)) * second, []QueueUsed{{name, used("all"), used("own")}}}
}

// past is of work that ended before, or after, what was learned already: often so much of what is like one that waits that something is predicted of that.
func (g *generator) past(at At) Learn {
	ev := Learn{At: at}
	waiting := g.world.engine.Waiting()
	like := len(waiting) > 0 && g.int("like one that waits", 0, 3) > 0
	one, many := Workload{}, g.int("past", 1, 3)
	if like {
		one, _ = g.world.engine.Workload(rapid.SampledFrom(waiting).Draw(g.t, "like"))
		many = 4
	}
	for range many {
		of, ran := one, Time(g.int("ran", 0, 3))*500_000
		if !like {
			of, ran = g.submit().Workload, Time(g.int("ran", 0, 9))*second
		}
		ev.Past = append(ev.Past, Past{Workload: of, Ago: Time(g.int("ago", 0, 4)) * second, Ran: ran, Stopped: !like && g.int("stopped", 0, 3) == 0, Used: g.used(false)})
	}
	slices.SortStableFunc(ev.Past, func(a, b Past) int { return cmp.Compare(b.Ago, a.Ago) })
	return ev
}

// checkpoint is of one that was placed; without an ID where there is none.
func (g *generator) checkpoint(at At) Checkpoint {
	ids := g.known()
	if g.tame {
		ids = slices.DeleteFunc(ids, func(id string) bool { return g.world.engine.work[id].waiting() })
	}
	if len(ids) == 0 {
		return Checkpoint{}
	}
	return Checkpoint{at, rapid.SampledFrom(ids).Draw(g.t, "id"), Time(g.int("ago", 0, 3)) * 10 * second}
}

// usage is of one or two grants, now and then of one that is not there or of an amount that cannot be.
func (g *generator) usage(at At) Usage {
	ev := Usage{At: at}
	var uids []string
	for _, d := range g.world.engine.Devices() {
		uids = append(uids, d.Grants...)
	}
	uids = append(uids, "w0.0.0-1")
	for range g.int("grants", 1, 2) {
		u := GrantUsage{rapid.SampledFrom(uids).Draw(g.t, "grant"), api.Bytes(g.int("memory", 0, 9)) * gi}
		if !g.tame && g.int("wrong", 0, 19) == 0 {
			u.Memory = 2 * maxMemory
		}
		ev.Grants = append(ev.Grants, u)
	}
	return ev
}

func (g *generator) health(at At) Event {
	all := g.world.engine.Devices()
	all = slices.DeleteFunc(all, func(d DeviceBook) bool { return d.Gone })
	if len(all) == 0 {
		return Tick{at}
	}
	d := rapid.SampledFrom(all).Draw(g.t, "device")
	h := rapid.SampledFrom([]api.DeviceHealth{api.Healthy, api.Healthy, api.Draining, api.Down}).Draw(g.t, "health")
	return DeviceHealth{at, d.Node, d.UUID, h, "drawn"}
}

func (g *generator) feasibility(at At) Event {
	ev := Feasibility{At: at, Class: g.pick("class", "", "zone", "zone", "near", "nearer")}
	switch {
	case g.tame:
	case ev.Class == "near":
		ev.Prefer = g.pick("prefer", "", "nearer", "zone")
	case ev.Class != "nearer":
		ev.Prefer = g.pick("prefer", "", "near")
	}
	node := g.pick("node", "n1", "n2", "n3")
	if g.int("allow", 0, 2) > 0 {
		ev.Allowed = []string{node}
	} else {
		ev.Barred = []NodeReason{{node, "drawn"}}
	}
	return ev
}

// feasibilityGone is of one or two classes, which may be in use, or not known.
func (g *generator) feasibilityGone(at At) Event {
	ev := FeasibilityGone{At: at}
	for range g.int("classes gone", 1, 2) {
		ev.Classes = append(ev.Classes, g.pick("class gone", "", "zone", "zone", "near", "nearer"))
	}
	return ev
}

func (g *generator) change(at At, id string) Event {
	ev := Change{At: at, ID: id}
	if one, _ := g.world.engine.Workload(id); g.int("share", 0, 1) == 0 && (!g.tame || len(one.Roles) == 0) {
		share := g.share()
		ev.Share = &share
	}
	if g.int("priority", 0, 1) == 0 {
		p := int32(g.int("to", 0, 2))
		ev.Priority = &p
	}
	if !g.tame && g.int("queue", 0, 3) == 0 {
		q := g.pick("to queue", "default", "org", "team")
		ev.Queue = &q
	}
	return ev
}

func (g *generator) cancellable() []string {
	ids := g.known()
	if g.tame { // the second time it is rejected
		ids = slices.DeleteFunc(ids, func(id string) bool { return g.world.engine.work[id].cancelled })
	}
	return ids
}

func (g *generator) answer(at At, a Action) Event {
	refuse := g.int("refuse", 0, 2) == 0
	p, isPlace := a.(Place)
	if g.tame && refuse {
		refuse = isPlace && !slices.ContainsFunc(g.world.engine.task(p.Workload, p.Tasks[0].Task).w.tasks, func(t *task) bool { return t.started || !t.live() })
	}
	if !refuse {
		return Done{at, a.Action()}
	}
	ev := Refused{At: at, ID: a.Action(), Reason: "drawn"}
	if !isPlace && g.int("retry", 0, 1) == 0 {
		ev.Retry = Time(g.int("after", 1, 100)) * 100_000
	}
	if isPlace && g.int("node", 0, 1) == 0 {
		ev.Node = p.Tasks[0].Node
	}
	return ev
}

func (g *generator) adopt(at At) Event {
	s := g.submit()
	w := s.Workload
	w.Tasks, w.Devices, w.Roles = 1, 1, nil
	node := g.pick("on", "n1", "n2", "n4")
	floor, ceiling := w.Share.Memory.On(8 * gi)
	return Adopt{At: at, Workload: w, Tasks: []Placing{{0, node, []Grant{{
		UID: w.ID + ".0.0", Device: fmt.Sprintf("%s-%d", node, g.int("device", 0, 3)), Compute: w.Share.Compute,
		Floor: floor, Ceiling: ceiling, Weight: 1,
	}}}}}
}

func queues(at At) []Event {
	return []Event{
		QueueSet{at, api.QueueSpec{Name: "org", Quota: api.Unlimited}},
		QueueSet{at, api.QueueSpec{Name: "team", Quota: api.Unlimited, Parent: "org"}},
		QueueSet{at, api.QueueSpec{Name: "other", Quota: api.Unlimited}},
	}
}

// tooSmall says that a node that comes again lacks a device that it had: the naive engine does not know that.
func tooSmall(w *world, n NodeSet) bool {
	for _, d := range w.engine.Devices() {
		if d.Node == n.Node && !slices.ContainsFunc(n.Devices, func(o Device) bool { return o.UUID == d.UUID }) {
			return true
		}
		if d.Node == n.Node && d.Health == api.Down {
			return true // it would come back healthy while its tasks are being evicted: the same to both, but not tame
		}
	}
	return false
}

// TestInvariants throws everything at the engine, also what is wrong; the world checks what must hold after every step.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, Config{})
		w.t = rt
		g := &generator{t: rt, world: w}
		for _, ev := range queues(w.at()) {
			w.step(ev)
		}
		w.step(g.node())
		for range g.int("steps", 20, 120) {
			for _, a := range w.step(g.event()) {
				if evict, ok := a.(Evict); ok && evict.Code == EvictMove {
					g.moved = append(g.moved, evict.Workload)
				}
			}
		}
		replayed, err := Replay(bytes.NewReader(w.log.Bytes()))
		if err != nil {
			rt.Fatalf("replay: %v", err)
		}
		if !bytes.Equal(replayed.Engine.Snapshot(), w.engine.Snapshot()) {
			rt.Fatalf("the replayed engine is another")
		}
	})
}
