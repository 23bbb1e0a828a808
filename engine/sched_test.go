package engine

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// TestScenarios runs testdata/*.sched. Each file is a story; `go test ./engine -run Scenarios -rewrite` writes down what the engine
// does now. Commands:
//
//	node NAME devices=N model=M mem=SIZE [cpu=N] [in=(LEVEL/DOMAIN, …)]   N devices NAME-0 …; or one device a line of input: UUID MODEL SIZE [HEALTH];
//	      [capability=N] [bandwidth=N] [cost=N] [idle=N] [peak=N] [link=NAME] [numa=NAME] of all devices, or in the line of one
//	gone NODE · health NODE DEVICE STATE [reason=(…)]
//	queue NAME [parent=Q] [quota=N] [quota-mem=SIZE] [quota-shares=N] [limit=N] [limit-mem=SIZE] [limit-shares=N] [weight=N] [order=O] [shortest=N] [prio=N] [spent=yes] [min-run=TIME] [disruptions=N/TIME]
//	      [weight-gpu=N] [weight-mem=N] [weight-shares=N]; for single models one a line of input: MODEL and quotas and limits as above
//	policy [window=W] [one-line=yes] [placement=default|best_fit|apart|(FEATURE=WEIGHT, …)] [moves=N [min-run=TIME] [max-loss=TIME] [free=N]]   queues one a line of input: NAME and the arguments of queue;
//	      or a pool: pool NAME classes=(A,B) [nodes=(A,B)] [models=(A,B)] [first=INDEX] [last=INDEX] [lends=yes]
//	queue-gone NAME
//	class NAME|- [allow=(A,B)] [bar=(A,B)] [code=C]
//	submit ID gpu=SHARE [mem=SHARE] [weight=N] [devices=N] [tasks=N] [max=N] [queue=Q] [prio=N] [model=M] [limit=TIME] [restart=TIME] [cpu=N] [class=C] [preempt=yes]
//	      [user=U] [name=N] [of=CLASS (training)] [requeue=yes] [patient=yes] [was=ID] [same=LEVEL] [prefer=LEVEL] [capability=N] [bandwidth=N]
//	      and its roles one a line of input: role NAME [tasks=N] [gpu=SHARE] [mem=SHARE] [weight=N] [devices=N] [model=M] [cpu=N] [class=C]
//	change ID [gpu=…] [mem=…] [prio=N] [queue=Q] · cancel ID [reason=(…)]
//	adopt ID node=N device=D (and the arguments of submit)
//	done ACTION · refuse ACTION [node=N] [reason=(…)] [retry=TIME] · started ID [task=N] · ended ID [task=N] [used=PART] [peak=SIZE]
//	shrunk ID [task=N] DEVICE=PART/SIZE …   a running task holds less: of these devices so much at most, of its others nothing
//	checkpoint ID [ago=TIME]   what ID has done is saved
//	usage UID=SIZE …    what grants hold of memory
//	settle              the host answers everything: done, started, ended
//	finish ID [used=PART] [peak=SIZE]   all tasks of ID end, each of which used so much of its devices
//	advance TIME        time passes; ticks come when the engine wants them
//	restore             go on with an engine restored from a snapshot · replay: and with one replayed from the log
//	why ID · books · line · queues · moved · shares (of queues: compute/memory/shares) · check (as submit) · use (as submit)
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/sched", func(t *testing.T, path string) {
		w := newWorld(t, Config{})
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t = t
			out, err := w.command(d)
			if err != nil {
				t.Fatal(err)
			}
			return out
		})
		if _, err := Replay(bytes.NewReader(w.log.Bytes())); err != nil {
			t.Fatalf("the log of this scenario does not replay: %v", err)
		}
	})
}

// command carries out one command and says what comes of it. What it cannot read is an error that says where and why; nothing has happened then.
func (w *world) command(d *datadriven.TestData) (out string, err error) {
	defer func() {
		switch is := recover().(type) {
		case nil:
		case misread:
			out, err = "", fmt.Errorf("%s: %s: %s", d.Pos, d.Cmd, string(is))
		default:
			panic(is)
		}
	}()
	return w.answer(newArgs(d)), nil
}

func (w *world) answer(a args) string {
	switch a.d.Cmd {
	case "settle":
		a.done()
		return orNothing(show(w.settle()))
	case "finish":
		id, used := a.word(0), a.used()
		a.done()
		return orNothing(show(w.finishUsed(id, used)))
	case "advance":
		by := Time(a.duration(a.word(0)))
		a.done()
		if by < 0 || by > longest {
			a.fail("write a time from 0s to ten years")
		}
		return orNothing(show(w.advance(by)))
	case "restore":
		a.done()
		restored, err := Restore(w.engine.Snapshot())
		if err != nil {
			a.fail("%v", err)
		}
		w.engine = restored
		w.begin()
		return "ok"
	case "replay":
		a.done()
		replayed, err := Replay(bytes.NewReader(w.log.Bytes()))
		if err != nil {
			a.fail("%v", err)
		}
		w.engine = replayed.Engine
		return fmt.Sprintf("%d steps", replayed.Steps)
	case "why":
		id := a.word(0)
		a.done()
		return showWhy(w.engine.Why(id))
	case "books":
		a.done()
		return showBooks(w.engine)
	case "line":
		a.done()
		return orNothing(strings.Join(w.engine.Waiting(), " "))
	case "queues":
		a.done()
		var b strings.Builder
		for _, q := range w.engine.Queues() {
			fmt.Fprintf(&b, "%s: quota %s, holds %s, %d running, %d waiting\n", q.Name, q.Quota, q.Held, q.Running, q.Waiting)
		}
		return b.String()
	case "moved":
		a.done()
		var b strings.Builder
		for _, m := range w.engine.Moved() {
			fmt.Fprintf(&b, "%s: %s, so that %s (plan %d)\n", time.Duration(m.At)*time.Microsecond, m.Workload, m.Frees, m.Plan)
		}
		return orNothing(b.String())
	case "shares":
		a.done()
		var b strings.Builder
		for _, q := range w.engine.Queues() {
			fmt.Fprintf(&b, "%s: holds %s, due %s, borrowed %s, at risk %s, lent %s\n", q.Name, useText(q.Use), useText(q.Fair), useText(q.Borrowed), useText(q.AtRisk), useText(q.Lent))
			for _, on := range q.OnModels {
				fmt.Fprintf(&b, "  on %s: holds %s, due %s\n", on.Model, useText(on.Use), useText(on.Fair))
			}
		}
		return b.String()
	case "use":
		of := a.workload()
		a.done()
		said, ok := w.engine.PredictUse(&of)
		if !ok {
			return "too little is known"
		}
		return fmt.Sprintf("%s (%s to %s) of each device and %s (%s to %s), as %s", api.Milli(said.Compute.Median), api.Milli(said.Compute.Low), api.Milli(said.Compute.High),
			api.Bytes(said.Memory.Median), api.Bytes(said.Memory.Low), api.Bytes(said.Memory.High), said.Compute.Like)
	case "check":
		of := a.workload()
		a.done()
		if err := w.engine.Check(of); err != nil {
			return err.Error()
		}
		if err := w.engine.CheckQuota(of); err != nil {
			return err.Error()
		}
		return "could run"
	}
	event := w.event(a)
	a.done()
	return orNothing(show(w.step(event)))
}

func useText(u api.QueueUse) string {
	return fmt.Sprintf("%s/%s/%d", api.Quota(u.Compute), u.Memory, u.Devices)
}

// advance lets time pass, with the ticks that the engine wants on the way.
func (w *world) advance(by Time) []Action {
	until := w.now + by
	var all []Action
	for next := w.engine.Next(); next <= until; next = w.engine.Next() {
		w.now = max(w.now, next)
		all = append(all, w.step(Tick{w.at()})...)
	}
	w.now = until
	return append(all, w.step(Tick{w.at()})...)
}

func (w *world) event(a args) Event {
	switch a.d.Cmd {
	case "node":
		return a.node(w.at())
	case "gone":
		return NodeGone{w.at(), a.word(0)}
	case "health":
		return DeviceHealth{w.at(), a.word(0), a.word(1), api.DeviceHealth(a.word(2)), a.text("reason", "")}
	case "queue":
		return QueueSet{w.at(), a.queue()}
	case "policy":
		return PolicySet{w.at(), a.policy()}
	case "queue-gone":
		return QueueGone{w.at(), a.word(0)}
	case "class":
		ev := Feasibility{At: w.at(), Class: strings.Trim(a.word(0), "-"), Allowed: a.list("allow"), Prefer: a.text("prefer", "")}
		for _, n := range a.list("bar") {
			ev.Barred = append(ev.Barred, NodeReason{n, a.text("code", "")})
		}
		return ev
	case "class-gone":
		ev := FeasibilityGone{At: w.at()}
		for i := range a.d.CmdArgs {
			ev.Classes = append(ev.Classes, strings.Trim(a.word(i), "-"))
		}
		return ev
	case "submit":
		return Submit{At: w.at(), Workload: a.workload(), Was: a.text("was", ""), Served: Time(a.duration(a.text("served", "0s"))), Disrupted: a.times("disrupted")}
	case "change":
		return a.change(w)
	case "cancel":
		return Cancel{w.at(), a.word(0), a.text("reason", "stopped")}
	case "adopt":
		wl := a.workload()
		g := Grant{UID: wl.ID + ".0.0", Device: a.text("device", ""), Compute: wl.Share.Compute, Weight: wl.Share.EffectiveWeight()}
		g.Floor, g.Ceiling = wl.Share.Memory.On(1 << 40)
		return Adopt{At: w.at(), Workload: wl, Tasks: []Placing{{0, a.text("node", ""), []Grant{g}}}}
	case "done":
		return Done{w.at(), ActionID(a.number("", a.word(0)))}
	case "refuse":
		return Refused{w.at(), ActionID(a.number("", a.word(0))), a.text("node", ""), a.text("reason", "it failed"), Time(a.duration(a.text("retry", "0s")))}
	case "started":
		return Started{w.at(), a.word(0), a.number("task", "0")}
	case "checkpoint":
		return Checkpoint{w.at(), a.word(0), Time(a.duration(a.text("ago", "0s")))}
	case "usage":
		ev := Usage{At: w.at()}
		for _, arg := range a.d.CmdArgs {
			ev.Grants = append(ev.Grants, GrantUsage{arg.Key, parsed(a, api.ParseBytes, a.text(arg.Key, ""))})
		}
		return ev
	case "shrunk":
		ev := Shrunk{At: w.at(), ID: a.word(0), Task: a.number("task", "0")}
		for _, arg := range a.d.CmdArgs[1:] {
			if arg.Key == "task" {
				continue
			}
			compute, memory, _ := strings.Cut(a.text(arg.Key, ""), "/")
			ev.Holds = append(ev.Holds, Holding{arg.Key, parsed(a, api.ParseMilli, compute), parsed(a, api.ParseBytes, memory)})
		}
		return ev
	case "ended":
		return Ended{w.at(), a.word(0), a.number("task", "0"), a.used()}
	}
	a.fail("there is no such command: see docs/scenarios.md")
	return nil
}

// longest is how far a scenario advances at once.
const longest = Time(10 * 365 * 24 * 3600 * 1_000_000)

// mostDevices is how many devices a node of a scenario has at the most.
const mostDevices = 4096

// misread is why a command cannot be read.
type misread string

// args reads the arguments of a command.
type args struct {
	d    *datadriven.TestData
	read []bool // by argument
}

func newArgs(d *datadriven.TestData) args { return args{d, make([]bool, len(d.CmdArgs))} }

// fail gives the command up.
func (a args) fail(format string, of ...any) { panic(misread(fmt.Sprintf(format, of...))) }

// done gives the command up if it has an argument that nobody read.
func (a args) done() {
	for i, arg := range a.d.CmdArgs {
		switch {
		case a.read[i]:
		case len(arg.Vals) > 0:
			a.fail("it has no %s= here: see docs/scenarios.md", arg.Key)
		default:
			a.fail("%q is one word too many", arg.Key)
		}
	}
}

// find is the argument of a key, nil if there is none.
func (a args) find(key string) (found *datadriven.CmdArg) {
	for i := range a.d.CmdArgs {
		if arg := &a.d.CmdArgs[i]; arg.Key == key && len(arg.Vals) > 0 {
			if found != nil {
				a.fail("%s= comes twice: write it once", key)
			}
			found, a.read[i] = arg, true
		}
	}
	return found
}

// word is the argument at place i that is not key=value.
func (a args) word(i int) string {
	if i >= len(a.d.CmdArgs) || len(a.d.CmdArgs[i].Vals) > 0 {
		a.fail("word %d is missing: see docs/scenarios.md", i+1)
	}
	a.read[i] = true
	return a.d.CmdArgs[i].Key
}

func (a args) text(key, otherwise string) string {
	if arg := a.find(key); arg != nil {
		return strings.Join(arg.Vals, ", ")
	}
	return otherwise
}

func (a args) list(key string) []string {
	if arg := a.find(key); arg != nil {
		return arg.Vals
	}
	return nil
}

func (a args) number(key, otherwise string) int {
	text := a.text(key, otherwise)
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		a.fail("%s: write a whole number of at most 2147483647", strings.TrimPrefix(key+"="+text, "="))
	}
	return int(n)
}

func (a args) duration(text string) int64 {
	d, err := time.ParseDuration(text)
	if err != nil {
		a.fail("%q is no time: write for example 90s or 2h", text)
	}
	return d.Microseconds()
}

func parsed[T any](a args, parse func(string) (T, error), text string) T {
	v, err := parse(text)
	if err != nil {
		a.fail("%v", err)
	}
	return v
}

// times is a list of times.
func (a args) times(key string) (all []Time) {
	for _, one := range a.list(key) {
		all = append(all, Time(a.duration(one)))
	}
	return all
}

func (a args) budget(key string) api.DisruptionBudget {
	b, err := api.ParseDisruptions(a.text(key, "none"))
	if err != nil {
		a.fail("%s: %v", key, err)
	}
	return b
}

func (a args) node(at At) NodeSet {
	ev := NodeSet{At: at, Node: a.word(0)}
	switch n := a.number("devices", "0"); {
	case n > mostDevices:
		a.fail("devices=%d: write at most %d", n, mostDevices)
	case n > 0:
		ev.Devices = devices(ev.Node, n, a.text("model", "h100"), parsed(a, api.ParseBytes, a.text("mem", "80Gi")))
	}
	for i := range ev.Devices {
		a.traits(&ev.Devices[i])
	}
	for i, line := range strings.Split(a.d.Input, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) < 3 {
			a.fail("%q is no device: write UUID MODEL SIZE [HEALTH]", line)
		}
		d := Device{UUID: f[0], Index: i, Model: f[1], Memory: parsed(a, api.ParseBytes, f[2]), Health: api.Healthy}
		if f = f[3:]; len(f) > 0 && !strings.Contains(f[0], "=") {
			d.Health, f = api.DeviceHealth(f[0]), f[1:]
		}
		of := a.line("device " + strings.Join(f, " "))
		of.traits(&d)
		of.done()
		ev.Devices = append(ev.Devices, d)
	}
	for _, one := range a.list("in") {
		level, name, _ := strings.Cut(one, "/")
		ev.Domains = append(ev.Domains, fleet.Domain{Level: level, Name: name})
	}
	if cpu := a.number("cpu", "0"); cpu > 0 {
		ev.Resources = []Resource{{"cpu", int64(cpu)}}
	}
	return ev
}

// traits reads what a device can do, costs and draws, and where it is.
func (a args) traits(d *Device) {
	for key, to := range map[string]*int32{
		"capability": &d.Traits.Capability, "bandwidth": &d.Traits.Bandwidth, "cost": &d.Traits.Cost, "idle": &d.Traits.Idle, "peak": &d.Traits.Peak,
		"latency-class": &d.Traits.Latency,
	} {
		*to = int32(a.number(key, "0"))
	}
	d.Link, d.NUMA = a.text("link", ""), a.text("numa", "")
}

func (a args) queue() api.QueueSpec {
	quota := a.amounts("quota")
	q := api.QueueSpec{
		Name: a.word(0), Parent: a.text("parent", ""), Quota: api.Unlimited, QuotaMemory: quota.Memory, QuotaDevices: quota.Devices,
		Limit:         a.amounts("limit"),
		Weight:        a.weight(),
		ShortestFirst: parsed(a, api.ParseMilli, a.text("shortest", "0")), Priority: int32(a.number("prio", "0")), HoursSpent: a.text("spent", "") == "yes",
		MinRun: api.Duration(1000 * a.duration(a.text("min-run", "0s"))), Disruptions: a.budget("disruptions"),
	}
	if text := a.text("order", ""); text != "" {
		var err error
		if q.Order, q.ShortestFirst, err = api.ParseOrder(text); err != nil {
			a.fail("%v", err)
		}
	}
	if quota.Compute != nil {
		q.Quota = *quota.Compute
	}
	for _, line := range strings.Split(a.d.Input, "\n") {
		if len(strings.Fields(line)) == 0 {
			continue
		}
		of := a.line("queue " + line)
		q.Models = append(q.Models, api.QueueModel{Model: of.word(0), Quota: of.amounts("quota"), Limit: of.amounts("limit"), Weight: of.weight()})
		of.done()
	}
	return q
}

// policy reads what holds from now on; each line of input is a queue, as the command queue has it.
func (a args) policy() Policy {
	p := Policy{Window: a.text("window", ""), OneLine: a.text("one-line", "") == "yes", Predicted: a.text("predicted", "") == "yes", HalfLife: Time(a.duration(a.text("half-life", "0s")))}
	if n := a.number("moves", "0"); n > 0 {
		p.Defragment = &Defragment{
			MovesPerHour: int32(n), MinRun: Time(a.duration(a.text("min-run", "0s"))), MaxLoss: Time(a.duration(a.text("max-loss", "0s"))), Free: int32(a.number("free", "0")),
		}
	}
	switch name := a.text("placement", ""); name {
	case "":
	case "default":
		p.Placement = new(place.Default())
	case "best_fit":
		p.Placement = new(place.BestFit())
	case "apart":
		p.Placement = &place.Policy{Name: name, Weights: place.Weights{place.Interference: 100, place.Remainder: 1}}
	default:
		p.Placement = &place.Policy{Name: "of the scenario", Weights: a.weights(name)}
	}
	for _, line := range strings.Split(a.d.Input, "\n") {
		if len(strings.Fields(line)) == 0 {
			continue
		}
		if of := a.line("queue " + line); of.word(0) != "pool" {
			p.Queues = append(p.Queues, of.queue())
			of.done()
			continue
		}
		of := a.line(line)
		p.Pools = append(p.Pools, of.pool())
		of.done()
	}
	return p
}

// weights reads what features of a placement count: `cost=5, power=1`.
func (a args) weights(text string) (w place.Weights) {
	for one := range strings.SplitSeq(text, ", ") {
		name, weight, ok := strings.Cut(one, "=")
		at := slices.IndexFunc(place.Features(), func(f place.Feature) bool { return f.String() == name })
		n, err := strconv.ParseInt(weight, 10, 32)
		switch {
		case !ok:
			a.fail("there is no placement %s", text)
		case at < 0 || err != nil:
			a.fail("placement: %s is no feature with a whole number as its weight", one)
		}
		w[at] = int32(n)
	}
	return w
}

func (a args) pool() Pool {
	p := Pool{Name: a.word(0), Nodes: a.list("nodes"), Models: a.list("models"), Lends: a.text("lends", "") == "yes"}
	for _, class := range a.list("classes") {
		p.Classes = append(p.Classes, api.Class(class))
	}
	if a.text("first", "") != "" {
		p.First = new(a.number("first", ""))
	}
	if a.text("last", "") != "" {
		p.Last = new(a.number("last", ""))
	}
	return p
}

func (a args) weight() api.QueueWeight {
	return api.QueueWeight{
		All: int32(a.number("weight", "0")), Compute: int32(a.number("weight-gpu", "0")), Memory: int32(a.number("weight-mem", "0")), Devices: int32(a.number("weight-shares", "0")),
	}
}

func (a args) amounts(kind string) (all api.QueueAmounts) {
	if text := a.text(kind, ""); text != "" {
		all.Compute = new(parsed(a, api.ParseQuota, text))
	}
	if text := a.text(kind+"-mem", ""); text != "" {
		all.Memory = new(parsed(a, api.ParseBytes, text))
	}
	if a.text(kind+"-shares", "") != "" {
		all.Devices = new(int64(a.number(kind+"-shares", "")))
	}
	return all
}

// line reads a line of input as a command.
func (a args) line(text string) args {
	cmd, words, err := datadriven.ParseLine(text)
	if err != nil {
		a.fail("%v", err)
	}
	return newArgs(&datadriven.TestData{Pos: a.d.Pos, Cmd: cmd, CmdArgs: words})
}

func (a args) workload() Workload {
	w := Workload{
		ID: a.word(0), User: a.text("user", ""), Name: a.text("name", ""), Queue: a.text("queue", ""), Class: api.Class(a.text("of", string(api.Training))), Priority: int32(a.number("prio", "0")),
		Tasks: a.number("tasks", "1"), Max: a.number("max", "0"), Devices: a.number("devices", "1"), Model: a.text("model", ""), Feasibility: a.text("class", ""),
		Share:     api.Share{Compute: parsed(a, api.ParseCompute, a.text("gpu", "1")), Weight: int32(a.number("weight", "0"))},
		TimeLimit: Time(a.duration(a.text("limit", "0"))), Restart: Time(a.duration(a.text("restart", "0"))), Preemptible: a.text("preempt", "") == "yes", Requeue: a.text("requeue", "") == "yes", Patient: a.text("patient", "") == "yes",
		Same: a.text("same", ""), Prefer: a.text("prefer", ""), Least: fleet.Least{Capability: int32(a.number("capability", "0")), Bandwidth: int32(a.number("bandwidth", "0")), Latency: int32(a.number("max-latency-class", "0"))},
	}
	if m := a.text("mem", ""); m != "" {
		w.Share.Memory = parsed(a, api.ParseMemory, m)
	}
	if cpu := a.number("cpu", "0"); cpu > 0 {
		w.Resources = []Resource{{"cpu", int64(cpu)}}
	}
	for _, line := range strings.Split(a.d.Input, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		of := a.line(line)
		if of.d.Cmd != "role" {
			a.fail("%q is no role: role NAME and the arguments of its tasks", line)
		}
		one := of.workload()
		of.done()
		w.Roles = append(w.Roles, Role{Name: one.ID, Tasks: one.Tasks, Devices: one.Devices, Share: one.Share, Model: one.Model, Resources: one.Resources, Feasibility: one.Feasibility})
	}
	return w
}

// used is what a task used; nil where nothing is said of it.
func (a args) used() *Used {
	if a.text("used", "")+a.text("peak", "") == "" {
		return nil
	}
	return &Used{parsed(a, api.ParseMilli, a.text("used", "0")), parsed(a, api.ParseBytes, a.text("peak", "0"))}
}

func (a args) change(w *world) Change {
	ev := Change{At: w.at(), ID: a.word(0)}
	gpu, mem := a.text("gpu", ""), a.text("mem", "")
	if old, ok := w.engine.Workload(ev.ID); ok && gpu+mem != "" {
		share := old.Share
		if gpu != "" {
			share.Compute = parsed(a, api.ParseCompute, gpu)
		}
		if mem != "" {
			share.Memory = parsed(a, api.ParseMemory, mem)
		}
		ev.Share = &share
	}
	if a.text("prio", "") != "" {
		p := int32(a.number("prio", ""))
		ev.Priority = &p
	}
	if q := a.text("queue", ""); q != "" {
		ev.Queue = &q
	}
	return ev
}

func orNothing(text string) string {
	if text == "" {
		return "nothing"
	}
	return text
}
