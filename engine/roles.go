package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// MaxRoles is how many roles a workload has beside its own tasks at the most: what fits is looked for in every order of them.
const MaxRoles = 3

// Role is further tasks of a workload that ask for something else than its own: a launcher with a small part of a device beside workers with
// whole ones. They are numbered behind the workload's own, role after role, and start with them: all or none. The pools in which they may
// run, whose they are and what takes them back is as for the workload as a whole.
type Role struct {
	Name        string     `json:"name"`    // of it; no two roles of a workload have the same
	Tasks       int        `json:"tasks"`   // ≥ 1
	Devices     int        `json:"devices"` // per task, distinct, on one node; ≥ 1
	Share       api.Share  `json:"share"`   // of each device; a compute floor of 0 takes nothing of it
	Model       string     `json:"model,omitempty"`
	Resources   []Resource `json:"resources,omitempty"`   // of the node, per task
	Feasibility string     `json:"feasibility,omitempty"` // class; empty: the workload's
}

// as is a workload of the tasks of one role alone.
func (w *Workload) as(r *Role) Workload {
	one := *w
	one.Tasks, one.Max, one.Devices, one.Share, one.Model, one.Resources, one.Roles = r.Tasks, 0, r.Devices, r.Share, r.Model, r.Resources, nil
	one.Feasibility = w.feasibilityOf(r)
	return one
}

// feasibilityOf is the class of nodes that tasks of a role may use.
func (w *Workload) feasibilityOf(r *Role) string { return cmp.Or(r.Feasibility, w.Feasibility) }

// inRoles are workloads of the tasks of each role alone, the workload's own first; without roles it is the workload itself.
func (w *Workload) inRoles() []Workload {
	own := *w
	own.Roles = nil
	all := []Workload{own}
	for i := range w.Roles {
		all = append(all, w.as(&w.Roles[i]))
	}
	return all
}

// AllTasks is how many tasks a workload has in all its roles.
func (w *Workload) AllTasks() int {
	sum := w.Tasks
	for i := range w.Roles {
		sum += w.Roles[i].Tasks
	}
	return sum
}

// shareOf is the share of each device of a task, by its number.
func (w *Workload) shareOf(task int) *api.Share {
	if task -= w.Tasks; task >= 0 {
		for i := range w.Roles {
			if task < w.Roles[i].Tasks {
				return &w.Roles[i].Share
			}
			task -= w.Roles[i].Tasks
		}
	}
	return &w.Share
}

// roleOf is the number of the role that a task is of, 0 for the workload's own, by the task's number.
func (w *Workload) roleOf(task int) int {
	task -= w.Tasks
	for i := range w.Roles {
		if task < 0 {
			return i
		}
		task -= w.Roles[i].Tasks
	}
	return len(w.Roles)
}

// cloneRoles are roles that share nothing with the caller's.
func cloneRoles(roles []Role) []Role {
	roles = slices.Clone(roles)
	for i := range roles {
		roles[i].Resources = slices.Clone(roles[i].Resources)
	}
	return roles
}

// ValidRoles says what is wrong with the roles of a workload whose own tasks are right.
func ValidRoles(w *Workload) error {
	if len(w.Roles) == 0 {
		return nil
	}
	switch {
	case len(w.Roles) > MaxRoles:
		return fmt.Errorf("workload %s has %d roles: a workload has at most %d beside its own tasks", w.ID, len(w.Roles), MaxRoles)
	case w.Max > w.Tasks:
		return fmt.Errorf("workload %s has roles and %d..%d tasks: one with roles has as many tasks as it says, no more", w.ID, w.Tasks, w.Max)
	}
	for i := range w.Roles {
		r := &w.Roles[i]
		switch one := w.as(r); {
		case r.Name == "" || slices.ContainsFunc(w.Roles[:i], func(o Role) bool { return o.Name == r.Name }):
			return fmt.Errorf("workload %s has a role %q without a name of its own: name each of its roles differently", w.ID, r.Name)
		default:
			if err := validate(&one); err != nil {
				return fmt.Errorf("role %s: %w", r.Name, err)
			}
		}
	}
	if all := w.AllTasks(); all > MaxTasks {
		return fmt.Errorf("workload %s has %d tasks in all its roles: a workload has at most %d", w.ID, all, MaxTasks)
	}
	return nil
}

// addRoles gives a shape the requests of its roles, the workload's own tasks being the first.
func (e *Engine) addRoles(s *shape, w *Workload) {
	if len(w.Roles) == 0 {
		return
	}
	s.Roles = []place.Request{s.Request}
	for i := range w.Roles {
		r := &w.Roles[i]
		amounts := e.amountsOf(r.Resources)
		s.Roles = append(s.Roles, place.Request{
			Compute: r.Share.Compute.Floor, Memory: r.Share.Memory.Floor, Bound: r.Share.Memory.Bound(), Model: r.Model, Least: w.Least,
			Class: e.fleet.Class(w.feasibilityOf(r)), Devices: r.Devices, Tasks: r.Tasks, Resources: amounts, Fence: s.Fence,
		})
	}
	s.Roles[0].Same, s.Roles[0].Prefer = "", ""
}

// rolesKey is all that decides where the roles of a workload fit; empty: it has none.
func (e *Engine) rolesKey(w *Workload) string {
	if len(w.Roles) == 0 {
		return ""
	}
	var key strings.Builder
	for i := range w.Roles {
		r := &w.Roles[i]
		resources := e.resourcesKey(r.Resources)
		fmt.Fprintf(&key, "%d×%d %d %v %v %q %d %s;", r.Tasks, r.Devices, r.Share.Compute.Floor, r.Share.Memory.Floor, r.Share.Memory.Bound(), r.Model, e.fleet.Class(w.feasibilityOf(r)), resources)
	}
	return key.String()
}

// amountsOf are resources by their numbers, in the order of their names.
func (e *Engine) amountsOf(resources []Resource) []fleet.Amount {
	var amounts []fleet.Amount
	for _, r := range byName(resources) {
		if r.Amount != 0 {
			amounts = append(amounts, fleet.Amount{Resource: e.fleet.Resource(r.Name), Amount: r.Amount})
		}
	}
	return amounts
}

// resourcesKey is the same as text.
func (e *Engine) resourcesKey(resources []Resource) string {
	var room [128]byte
	key := room[:0]
	for _, r := range byName(resources) {
		if r.Amount != 0 {
			key = appendAmount(key, fleet.Amount{Resource: e.fleet.Resource(r.Name), Amount: r.Amount})
		}
	}
	return string(key)
}

func appendAmount(key []byte, a fleet.Amount) []byte {
	key = append(strconv.AppendInt(key, int64(a.Resource), 10), '=')
	return append(strconv.AppendInt(key, a.Amount, 10), ',')
}

// byName are resources in the order of their names: the same slice where they are so already.
func byName(resources []Resource) []Resource {
	order := func(a, b Resource) int { return strings.Compare(a.Name, b.Name) }
	if slices.IsSortedFunc(resources, order) {
		return resources
	}
	resources = slices.Clone(resources)
	slices.SortFunc(resources, order)
	return resources
}

// request is what a task asks for.
func (t *task) request() *place.Request { return t.w.shape.Of(t.index) }

// wants says that some role of a shape wants a resource of the node.
func (s *shape) wants() bool {
	return s.Any(func(r *place.Request) bool { return len(r.Resources) > 0 })
}

// barWhere bars a node, which the host refused, to those of a workload that were to run there: to the classes of these.
func (e *Engine) barWhere(w *workload, n fleet.NodeID, reason string) {
	classes := []fleet.ClassID{w.shape.Class}
	if len(w.shape.Roles) > 0 {
		var there []fleet.ClassID
		for _, t := range w.tasks {
			if class := t.request().Class; t.node == n && !slices.Contains(there, class) {
				there = append(there, class)
			}
		}
		if len(there) > 0 {
			classes = there
		}
	}
	for _, class := range classes {
		e.fleet.Refuse(class, n, reason)
	}
}

// servedBy says that a device could hold the share of some role of a shape if nothing else were on it and its node may be used.
// It is remembered until the fleet changes.
func (e *Engine) servedBy(s *shape, d fleet.DeviceID) bool {
	if at := e.fleet.Changes() + 1; s.servedAt != at {
		s.servedAt = at
		clear(s.served)
	}
	if more := int(d) + 1 - len(s.served); more > 0 {
		s.served = append(s.served, make([]answer, max(more, e.fleet.DeviceCount()-len(s.served)))...)
	}
	if s.served[d] == unasked {
		s.served[d] = answeredNo
		if s.Any(func(r *place.Request) bool { return e.placer.Serves(r, d) }) {
			s.served[d] = answeredYes
		}
	}
	return s.served[d] == answeredYes
}

// answer is one that is remembered.
type answer int8

const (
	unasked answer = iota
	answeredYes
	answeredNo
)

// lacking is the shape of the first role that finds no room by itself now, and which of the workload's it is: 0, and the shape as it is, for its own
// tasks, for one without roles, and where each would find room by itself.
func (e *Engine) lacking(w *workload) (*shape, int) {
	mark := e.fleet.Begin()
	defer e.fleet.Rollback(mark)
	for i := range w.shape.Roles {
		r := w.shape.Roles[i]
		if spots, ok := e.placer.Place(&r); !ok {
			return &shape{Request: r, side: w.shape.side}, i
		} else {
			for _, s := range spots {
				e.placer.Give(&r, s)
			}
		}
	}
	return w.shape, 0
}

// asksOf is what a workload asks for, in words.
func asksOf(w *Workload) string {
	asks := fmt.Sprintf("%s of a device", w.Share.Compute.Floor)
	if !w.Share.Memory.Floor.IsZero() {
		asks += " with " + w.Share.Memory.Floor.String() + " of memory"
	}
	if w.Devices > 1 {
		asks = fmt.Sprintf("%d devices on one node, %s each", w.Devices, asks)
	}
	if w.Tasks > 1 {
		asks = fmt.Sprintf("%d tasks at once, each of %s", w.Tasks, asks)
	}
	for i := range w.Roles {
		asks += fmt.Sprintf(", and with them for role %s %s", w.Roles[i].Name, asksOf(new(w.as(&w.Roles[i]))))
	}
	return asks
}
