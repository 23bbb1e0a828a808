package engine

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// world drives an engine as a host does, and holds it to everything that must hold after every step: its invariants, the same
// actions from an engine restored a step ago, and grants that fit their devices.
type world struct {
	t interface {
		Helper()
		Fatalf(string, ...any)
	}
	engine *Engine
	now    Time
	log    bytes.Buffer
	writer *LogWriter
	steps  int
}

func newWorld(t testing.TB, config Config) *world {
	w := &world{t: t, engine: New(config)}
	w.begin()
	return w
}

func (w *world) begin() {
	w.log.Reset()
	var err error
	if w.writer, err = NewLogWriter(&w.log, w.engine.Snapshot()); err != nil {
		w.t.Fatalf("begin the log: %v", err)
	}
}

// step takes one event and checks what must hold.
func (w *world) step(event Event) []Action {
	w.t.Helper()
	twin, err := Restore(w.engine.Snapshot())
	if err != nil {
		w.t.Fatalf("restore: %v", err)
	}
	actions := w.engine.Step(event)
	if err := w.engine.CheckInvariants(); err != nil {
		w.t.Fatalf("after %T %+v: %v", event, event, err)
	}
	if got := twin.Step(event); show(got) != show(actions) {
		w.t.Fatalf("after %T %+v a restored engine gives\n%sinstead of\n%s", event, event, show(got), show(actions))
	}
	if a, b := w.engine.Snapshot(), twin.Snapshot(); !bytes.Equal(a, b) {
		w.t.Fatalf("after %T a restored engine is\n%s\ninstead of\n%s", event, b, a)
	}
	w.checkRoom(actions)
	w.checkReservations(twin)
	w.checkReasons()
	if _, err := MarshalEvent(event); err == nil {
		if err := w.writer.Append(event, actions); err != nil {
			w.t.Fatalf("log: %v", err)
		}
	}
	return actions
}

// checkRoom: no floor that the engine granted passes what its device has, and the device was fit to take it.
func (w *world) checkRoom(actions []Action) {
	w.t.Helper()
	for _, a := range actions {
		var grants []Grant
		switch a := a.(type) {
		case Place:
			w.checkTogether(a)
			for _, p := range a.Tasks {
				grants = append(grants, p.Grants...)
			}
		case Resize:
			continue // a smaller floor on a device that was adopted too full is no harm
		}
		for _, g := range grants {
			d, _ := w.engine.fleet.DeviceOf(g.Device)
			if compute, memory := w.engine.fleet.Free(d); compute < 0 || memory < 0 || !w.engine.fleet.Placeable(d) {
				w.t.Fatalf("grant %s on device %s leaves %d and %d", g.UID, g.Device, compute, memory)
			}
		}
	}
}

// checkTogether: tasks that are to be in one domain are.
func (w *world) checkTogether(a Place) {
	w.t.Helper()
	wl, ok := w.engine.Workload(a.Workload)
	if !ok || wl.Same == "" {
		return
	}
	domain := ""
	for _, p := range w.engine.Grants(a.Workload) {
		n, _ := w.engine.fleet.Node(p.Node)
		at := w.engine.fleet.DomainOf(n, wl.Same)
		if domain == "" && p.Task == a.Tasks[0].Task {
			domain = at
		}
		if slices.ContainsFunc(a.Tasks, func(o Placing) bool { return o.Task == p.Task }) && (at == "" || at != domain) {
			w.t.Fatalf("task %d of workload %s is in %s %q and not in %q", p.Task, a.Workload, wl.Same, at, domain)
		}
	}
}

// checkReasons: everything that waits has a reason, and asking changes nothing.
func (w *world) checkReasons() {
	w.t.Helper()
	before := w.engine.Snapshot()
	for i, id := range w.engine.Waiting() {
		why := w.engine.Why(id)
		if why.Code == "" || why.Message == "" || why.Unblock == "" || why.Place != i+1 || why.Phase != api.Waiting {
			w.t.Fatalf("%s waits at place %d without a full reason: %+v", id, i+1, why)
		}
		if (why.Code == WhyBehind || why.Code == WhyQueue) && len(why.Ahead) == 0 {
			w.t.Fatalf("%s waits behind nobody: %+v", id, why)
		}
	}
	if !bytes.Equal(before, w.engine.Snapshot()) {
		w.t.Fatalf("asking why changed the state")
	}
}

// checkReservations: what waits starts when trying says, which knows nothing of single nodes. A twin tries, for that has all be looked at anew, and
// says the same of the devices.
func (w *world) checkReservations(twin *Engine) {
	w.t.Helper()
	if w.steps++; w.steps*2654435761>>7%3 > 0 { // what is remembered is to be out of date by more than one event
		return
	}
	for wl := range w.engine.line.All {
		p, tries, fresh := pass{Engine: w.engine}, pass{Engine: twin}, twin.work[wl.ID]
		got, want := p.reserveFor(wl), tries.reserveByTrying(fresh, nil)
		if got.known != want.known || got.at != want.at {
			w.t.Fatalf("%s is to start at %d (%v), and by trying at %d (%v)", wl.ID, got.at, got.known, want.at, want.known)
		}
		if got.gathers != nil {
			want = tries.reserveFor(fresh)
		}
		if got, want := got.show(w.engine), want.show(twin); got != want {
			w.t.Fatalf("%s is to start on %s instead of %s", wl.ID, got, want)
		}
	}
}

// show is what a reservation leaves, by the names of all in it.
func (r *reservation) show(e *Engine) (text string) {
	if r.gathers != nil {
		r.gather(e)
	}
	holds := slices.Clone(r.holds)
	slices.SortFunc(holds, func(a, b *hold) int { return strings.Compare(e.fleet.NodeName(a.node), e.fleet.NodeName(b.node)) })
	for _, h := range holds {
		text += " " + e.fleet.NodeName(h.node)
		var devices []string
		for _, s := range h.devices {
			devices = append(devices, fmt.Sprintf(" %s:%d,%d", e.fleet.UUIDOf(s.device), s.compute, s.memory))
		}
		text += strings.Join(slices.Sorted(slices.Values(devices)), "")
		for i, free := range h.free {
			if free != 0 {
				text += fmt.Sprintf(" %s:%d", e.fleet.ResourceName(fleet.ResourceID(i)), free)
			}
		}
	}
	return text
}

// at is the time of the next event.
func (w *world) at() At { return At{w.now} }

// settle answers everything as a host does for which all goes well, until nothing is left to answer.
func (w *world) settle() []Action {
	var all []Action
	for open := w.engine.Unanswered(); len(open) > 0; open = w.engine.Unanswered() {
		for _, a := range open {
			all = append(all, w.step(Done{w.at(), a.Action()})...)
			switch a := a.(type) {
			case Place:
				for _, p := range a.Tasks {
					all = append(all, w.step(Started{w.at(), a.Workload, p.Task})...)
				}
			case Evict:
				all = append(all, w.step(Ended{w.at(), a.Workload, a.Task, nil})...)
			}
		}
	}
	return all
}

// finish ends all tasks of a workload, which used nobody knows what.
func (w *world) finish(id string) []Action { return w.finishUsed(id, nil) }

// finishUsed ends all tasks of a workload, each of which used so much.
func (w *world) finishUsed(id string, used *Used) []Action {
	var all []Action
	for _, p := range w.engine.Grants(id) {
		all = append(all, w.step(Ended{w.at(), id, p.Task, used})...)
	}
	return all
}

// show writes actions as lines.
func show(actions []Action) string {
	var b strings.Builder
	for _, a := range actions {
		switch a := a.(type) {
		case Place:
			fmt.Fprintf(&b, "%d place %s:", a.ID, a.Workload)
			for _, p := range a.Tasks {
				fmt.Fprintf(&b, " [%d %s]%s", p.Task, p.Node, grantLine(p.Grants))
			}
		case Resize:
			fmt.Fprintf(&b, "%d resize %s: [%d]%s", a.ID, a.Workload, a.Task, grantLine(a.Grants))
		case Evict:
			fmt.Fprintf(&b, "%d evict %s: [%d] %s: %s", a.ID, a.Workload, a.Task, a.Code, a.Reason)
		case Reject:
			fmt.Fprintf(&b, "%d reject %s: %s", a.ID, a.Code, a.Reason)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func grantLine(grants []Grant) string {
	var b strings.Builder
	for _, g := range grants {
		memory := g.Floor.String()
		if g.Ceiling != g.Floor {
			memory += ".." + g.Ceiling.String()
		}
		fmt.Fprintf(&b, " %s on %s (%s, %s, weight %d)", g.UID, g.Device, g.Compute, memory, g.Weight)
	}
	return b.String()
}

// showWhy writes an explanation.
func showWhy(why Why) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", why.Phase)
	if why.Place > 0 {
		fmt.Fprintf(&b, ", place %d", why.Place)
	}
	fmt.Fprintf(&b, "\n%s: %s\n", why.Code, why.Message)
	if why.Unblock != "" {
		fmt.Fprintf(&b, "unblock: %s\n", why.Unblock)
	}
	for i, text := range api.CountTexts(why.Counts) {
		fmt.Fprintf(&b, "%d %s: %s\n", why.Counts[i].Devices, why.Counts[i].Code, text)
	}
	if len(why.Ahead) > 0 {
		fmt.Fprintf(&b, "ahead: %s\n", strings.Join(why.Ahead, " "))
	}
	if why.Estimate != Never {
		fmt.Fprintf(&b, "at the latest at %s\n", time.Duration(why.Estimate)*time.Microsecond)
	}
	if why.Guarded != Never {
		fmt.Fprintf(&b, "guarded until %s\n", time.Duration(why.Guarded)*time.Microsecond)
	}
	if why.NextTry != Never {
		fmt.Fprintf(&b, "next try at %s\n", time.Duration(why.NextTry)*time.Microsecond)
	}
	return b.String()
}

// showBooks writes what is free of every device.
func showBooks(e *Engine) string {
	var b strings.Builder
	for _, d := range e.Devices() {
		fmt.Fprintf(&b, "%s %s: %d‰ and %s free", d.Node, d.UUID, d.ComputeFree, amount(d.MemoryFree))
		if d.Health != api.Healthy {
			fmt.Fprintf(&b, ", %s", d.Health)
		}
		if d.Gone {
			b.WriteString(", gone")
		}
		if len(d.Grants) > 0 {
			fmt.Fprintf(&b, ": %s", strings.Join(d.Grants, " "))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func amount(b api.Bytes) string {
	if b < 0 {
		return "-" + (-b).String()
	}
	return b.String()
}

// devices makes devices of one model, named after their node.
func devices(node string, n int, model string, memory api.Bytes) []Device {
	all := make([]Device, n)
	for i := range all {
		all[i] = Device{UUID: fmt.Sprintf("%s-%d", node, i), Index: i, Model: model, Memory: memory, Health: api.Healthy}
	}
	return slices.Clip(all)
}
