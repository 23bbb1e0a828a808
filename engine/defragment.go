package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// EvictMove is the code of evictions by which work is moved: it is to come again, and has room elsewhere.
const EvictMove = "move"

// movesOver is the time in which moves are counted, in µs; a workload that was moved stays for so long.
const movesOver = 3_600_000_000

// movesPace is how long after one look for moves the next may come, in µs.
const movesPace = 60_000_000

// Defragment has work moved so that whole devices come free, or the first in line fits: preemptible work of a fixed number of tasks, all of which run, which its host
// submits again, when the host has answered everything and no plan is under way. A gang moves as a whole: it starts anew, with at least one task elsewhere.
//
// With a first in line that waits for room it is moved for that, and where others would be evicted for a workload and moves do as well, they are moved instead; else devices are emptied into others that hold something already, so that every
// plan leaves fewer devices in use. A plan is made only when each that it moves has room elsewhere, all of them together, and none was moved in the hour before.
type Defragment struct {
	MovesPerHour int32 `json:"movesPerHour"`      // workloads at the most, in any hour; 1 to MaxMoves
	MinRun       Time  `json:"minRun,omitempty"`  // µs for which work runs before it is moved
	MaxLoss      Time  `json:"maxLoss,omitempty"` // most that a plan may cost, in µs of a device: what it moves has run for, and a minute each; 0: any
	Free         int32 `json:"free,omitempty"`    // devices are emptied only while fewer are free; 0: always
}

// MaxMoves is the largest Defragment.MovesPerHour, and the largest Free.
const MaxMoves = 1_000_000

// Validate says what is wrong with it.
func (d *Defragment) Validate() error {
	switch {
	case d.MovesPerHour < 1 || d.MovesPerHour > MaxMoves:
		return fmt.Errorf("%d moves an hour were asked for: write 1 to %d, or leave defragmentation out", d.MovesPerHour, MaxMoves)
	case d.MinRun < 0 || d.MinRun > maxPast || d.MaxLoss < 0 || d.MaxLoss > maxPast:
		return fmt.Errorf("work that has run for %d µs may be moved at a loss of %d µs: write times from 0 to %d", d.MinRun, d.MaxLoss, maxPast)
	case d.Free < 0 || d.Free > MaxMoves:
		return fmt.Errorf("defragmentation ends with %d free devices: write 0 to %d", d.Free, MaxMoves)
	}
	return nil
}

func (d *Defragment) clone() *Defragment {
	if d == nil {
		return nil
	}
	c := *d
	return &c
}

// Moved is a workload that was moved in the last hour.
type Moved struct {
	At       Time     `json:"at"`
	Plan     ActionID `json:"plan"`     // the first action of its plan
	Workload string   `json:"workload"` // by its ID then
	Frees    string   `json:"frees"`    // what the plan is for, half a sentence
}

// Moved are the moves of the last hour, the earliest first.
func (e *Engine) Moved() []Moved {
	return slices.DeleteFunc(slices.Clone(e.moving.recent), func(m Moved) bool { return after(m.At, movesOver) <= e.now })
}

// moving is what is known of moves.
type moving struct {
	next   Time             // of the next look; Never: not before something changes
	until  Time             // before which there is none
	recent []Moved          // of the last hour
	gone   map[string]leave // by workload: evicted to be moved, and not come again yet
}

// leave is what is kept of a workload while it is moved.
type leave struct {
	Came  Time     `json:"came"`  // it keeps its turn
	Stays Time     `json:"stays"` // it is not moved again before
	To    []string `json:"to"`    // the devices that it has room on
}

// forget drops what is over an hour old.
func (m *moving) forget(now Time) {
	m.recent = slices.DeleteFunc(m.recent, func(one Moved) bool { return after(one.At, movesOver) <= now })
	maps.DeleteFunc(m.gone, func(_ string, l leave) bool { return l.Stays <= now })
}

// nextMoves is when moves are to be looked for.
func (e *Engine) nextMoves() Time {
	if e.ahead != nil || e.policy.Defragment == nil {
		return Never
	}
	return e.moving.next
}

// defragment looks for moves, if it is time to, after an event that may have changed something.
func (e *Engine) defragment(event Event) {
	if e.ahead != nil {
		return
	}
	m := &e.moving
	if e.policy.Defragment == nil {
		m.next = Never
		return
	}
	switch event.(type) {
	case Tick, Usage:
	default:
		m.next = min(m.next, max(e.now, m.until))
	}
	if m.next > e.now {
		return
	}
	m.next = Never
	if len(e.pending) > 0 || len(e.plans) > 0 {
		return // when that is over, something has changed
	}
	m.until = after(e.now, movesPace)
	m.forget(e.now)
	l := look{trial: trial{pass: &pass{Engine: e}}, rule: e.policy.Defragment, again: Never}
	if l.left = int(l.rule.MovesPerHour) - len(m.recent); l.left <= 0 {
		m.next = after(m.recent[0].At, movesOver)
		return
	}
	switch first := e.firstForRoom(); {
	case first != nil && l.makeRoom(first):
	case first == nil && l.emptyOne():
	default:
		m.next = l.again
	}
}

// firstForRoom is the first in line that quotas let start and that has no room; nil: there is none.
func (e *Engine) firstForRoom() *workload {
	p := pass{Engine: e}
	for _, groups := range e.parts() {
		p.head, p.reserve = nil, nil
		for order := p.newOrder(groups); order.first != nil; order.next(true) {
			if v, _ := p.look(order.first); v == noRoom && !order.first.Patient {
				return order.first
			}
		}
	}
	return nil
}

// move asks for the evictions of a plan that moves workloads, for the first in line or, nil, to leave devices free.
func (e *Engine) move(first *workload, all []*workload, to map[*workload][]string, frees string) {
	pl := &plan{id: e.nextID, w: first}
	if first == nil {
		pl.w = &workload{}
	} else {
		e.setPlan(first, pl.id)
	}
	e.plans[pl.id] = pl
	if e.ahead != nil {
		recent, gone := e.moving.recent, maps.Clone(e.moving.gone)
		e.ahead.later(func() {
			delete(e.plans, pl.id)
			e.moving.recent, e.moving.gone = recent, gone
		})
	}
	for _, v := range all {
		for _, t := range v.tasks {
			if t.live() {
				e.evict(t, EvictMove, fmt.Sprintf("it is moved so that %s (plan %d)", frees, pl.id))
				t.plan = pl.id
				pl.tasks = append(pl.tasks, t)
			}
		}
		e.moving.recent = append(e.moving.recent, Moved{e.now, pl.id, v.ID, frees})
		e.moving.gone[v.ID] = leave{Came: v.came, Stays: after(e.now, movesOver), To: to[v]}
	}
}

// comesBack has a workload that was moved keep its turn, and go where the plan has it as long as there is room.
func (e *Engine) comesBack(w *workload, was string) {
	l, ok := e.moving.gone[was]
	if !ok {
		return
	}
	delete(e.moving.gone, was)
	w.came = min(w.came, l.Came)
	w.setRarely(func(r *rare) { r.stays, r.to = l.Stays, l.To })
}

// fitMoved places a workload that was moved where the plan has it, else beside others.
func (p *pass) fitMoved(w *workload) ([]place.Spot, bool) {
	request := *p.request(w)
	if spots, ok := p.spotsOn(&request, w.rarely().to); ok && p.placer.At(&request, spots) {
		return spots, true
	}
	over := request.Avoid
	request.Avoid = func(d fleet.DeviceID) bool { return p.fleet.BookOf(d).Grants == 0 || over != nil && over(d) }
	return p.placer.Place(&request)
}

// keptForMoved are the nodes on which those have room that are being moved for a workload. Until all have ended it does not start there: what is free by the first
// of them may be what the last one is to have.
func (p *pass) keptForMoved(w *workload) map[fleet.NodeID]bool {
	if w.plan == 0 || p.plans[w.plan] == nil {
		return nil
	}
	kept := map[fleet.NodeID]bool{}
	for _, m := range p.moving.recent {
		if m.Plan != w.plan {
			continue
		}
		for _, name := range p.moving.gone[m.Workload].To {
			if d, ok := p.fleet.DeviceOf(name); ok {
				kept[p.fleet.NodeOf(d)] = true
			}
		}
	}
	return kept
}

// spotsOn are the spots of tasks on devices that are named, task by task; false: there are too few or too many, or one is gone.
func (e *Engine) spotsOn(r *place.Request, names []string) ([]place.Spot, bool) {
	spots := make([]place.Spot, 0, r.All())
	for i := range r.All() {
		n := r.Of(i).Devices
		if len(names) < n {
			return nil, false
		}
		s := place.Spot{}
		for _, name := range names[:n] {
			d, ok := e.fleet.DeviceOf(name)
			if !ok {
				return nil, false
			}
			s.Node, s.Devices = e.fleet.NodeOf(d), append(s.Devices, d)
		}
		spots, names = append(spots, s), names[n:]
	}
	return spots, len(names) == 0
}

// checkMoves holds what is known of moves to its order.
func (e *Engine) checkMoves() error {
	if !slices.IsSortedFunc(e.moving.recent, func(a, b Moved) int { return cmp.Compare(a.At, b.At) }) {
		return fmt.Errorf("moves are listed out of order: %v", e.moving.recent)
	}
	for id := range e.moving.gone {
		if w := e.work[id]; w != nil && !slices.ContainsFunc(w.tasks, func(t *task) bool { return t.evicting }) {
			return fmt.Errorf("workload %s is said to be moved and is not being ended", id)
		}
	}
	for _, w := range e.byID() {
		if stays := w.rarely().stays; stays != 0 && after(e.now, movesOver) < stays {
			return fmt.Errorf("workload %s stays until %d, which is more than an hour after %d", w.ID, stays, e.now)
		}
	}
	return nil
}

// savedMoving is moving as a snapshot has it.
type savedMoving struct {
	Next   Time             `json:"next"`
	Until  Time             `json:"until"`
	Recent []Moved          `json:"recent,omitempty"`
	Gone   map[string]leave `json:"gone,omitempty"`
}

func (m *moving) save() *savedMoving {
	if m.next == Never && m.until == 0 && len(m.recent) == 0 && len(m.gone) == 0 {
		return nil
	}
	return &savedMoving{m.next, m.until, m.recent, m.gone}
}

func (s *savedMoving) load() moving {
	m := moving{next: Never, gone: map[string]leave{}}
	if s != nil {
		m.next, m.until, m.recent = s.Next, s.Until, s.Recent
		maps.Copy(m.gone, s.Gone)
	}
	return m
}

// freeDevices is how many devices could be granted whole now.
func (e *Engine) freeDevices() (n int32) {
	for node := range e.fleet.Nodes {
		for _, d := range e.fleet.DevicesOf(node) {
			if e.fleet.Placeable(d) && e.fleet.BookOf(d).Grants == 0 {
				n++
			}
		}
	}
	return n
}

// deviceName is what a device is called in half a sentence.
func (e *Engine) deviceName(d fleet.DeviceID) string {
	return "device " + e.fleet.Device(d).UUID + " on node " + e.fleet.NodeName(e.fleet.NodeOf(d))
}
