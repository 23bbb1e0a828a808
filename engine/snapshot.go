package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/place"
	"github.com/aliquot-dev/aliquot/engine/predict"
	"github.com/aliquot-dev/aliquot/engine/queue"
)

// A snapshot is one line that names format, version and the checksum (CRC-32C, in hexadecimal) of the rest, and the rest: JSON of
// the types here. The same state gives the same bytes.
const snapshotHeader = "aliquot-engine 1 "

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type savedEngine struct {
	Config    Config          `json:"config"`
	Policy    Policy          `json:"policy,omitzero"`
	Now       Time            `json:"now"`
	NextID    ActionID        `json:"nextID"`
	Seq       uint64          `json:"seq"`
	LastCame  Time            `json:"lastCame,omitempty"`
	Ungrown   bool            `json:"ungrown,omitempty"`
	Rise      Time            `json:"rise,omitempty"` // 0: never
	Guarded   *Time           `json:"guarded,omitempty"`
	Fleet     fleet.State     `json:"fleet"`
	Queues    []api.QueueSpec `json:"queues"`
	Uses      []queue.Use     `json:"uses,omitempty"`
	Workloads []savedWorkload `json:"workloads"`
	Seen      *place.Seen     `json:"seen,omitempty"` // by the placement policy

	Learned    []predict.Learned   `json:"learned,omitempty"`    // of durations
	Wide       predict.Wide        `json:"wide,omitzero"`        // how wide the intervals of these are
	LearnedUse *predict.LearnedUse `json:"learnedUse,omitempty"` // of use
	Moving     *savedMoving        `json:"moving,omitempty"`
}

type savedWorkload struct {
	Workload  Workload           `json:"workload"`
	Of        string             `json:"of,omitempty"`    // of a further replica: the workload that it is of
	First     int                `json:"first,omitempty"` // and its number
	Final     bool               `json:"final,omitempty"` // it grows no more
	Seq       uint64             `json:"seq"`
	Came      Time               `json:"came,omitempty"`
	Turn      Time               `json:"turn,omitempty"`
	Tasks     []savedTask        `json:"tasks,omitempty"`
	Placing   ActionID           `json:"placing,omitempty"`
	Cancelled bool               `json:"cancelled,omitempty"`
	RetryAt   Time               `json:"retryAt,omitempty"`
	Refusals  int                `json:"refusals,omitempty"`
	Refused   string             `json:"refused,omitempty"`
	Resize    *savedResize       `json:"resize,omitempty"`
	Plan      ActionID           `json:"plan,omitempty"`
	Spared    bool               `json:"spared,omitempty"`
	Until     Time               `json:"sparedUntil,omitempty"`
	Stays     Time               `json:"stays,omitempty"`
	Said      *predict.Quantiles `json:"said,omitempty"` // of how long it runs, when it began
	To        []string           `json:"to,omitempty"`
	Had       Time               `json:"had,omitempty"`
	Disrupted []Time             `json:"disrupted,omitempty"`
	Saved     *Time              `json:"saved,omitempty"`
	Due       Time               `json:"due,omitempty"`
	Used      *savedUse          `json:"used,omitempty"`
}

// savedUse is what those tasks of a workload used that are over.
type savedUse struct {
	Compute int64 `json:"compute"` // thousandths of a device, summed up over devices
	Memory  int64 `json:"memory"`
	Devices int64 `json:"devices"`
}

type savedTask struct {
	Node     string       `json:"node,omitempty"`
	Grants   []savedGrant `json:"grants,omitempty"`
	Started  bool         `json:"started,omitempty"`
	Since    Time         `json:"since"`
	Evicting bool         `json:"evicting,omitempty"`
	Evict    ActionID     `json:"evict,omitempty"`
	Code     string       `json:"code,omitempty"`
	Reason   string       `json:"reason,omitempty"`
	Plan     ActionID     `json:"plan,omitempty"`
}

// savedGrant is a grant and what the books hold for it; Milli and Bytes as plain integers, for what is held need be no share.
type savedGrant struct {
	Grant
	HeldCompute int32 `json:"heldCompute"`
	HeldMemory  int64 `json:"heldMemory"`
	Used        int64 `json:"used,omitempty"`
	Busy        int32 `json:"busy,omitempty"` // predicted use of compute
}

type savedResize struct {
	Share   api.Share       `json:"share"`
	Back    bool            `json:"back,omitempty"`
	Refused bool            `json:"refused,omitempty"`
	Tasks   []savedResizing `json:"tasks"`
}

type savedResizing struct {
	Action ActionID `json:"action,omitempty"`
	Done   bool     `json:"done,omitempty"`
	Grants []Grant  `json:"grants,omitempty"`
}

// Snapshot is the whole state: Restore makes an engine of it that answers every later event as this one would.
func (e *Engine) Snapshot() []byte {
	saved := e.state()
	saved.Learned, saved.Wide, saved.LearnedUse = e.predictor.Export(), e.predictor.Wide(), e.uses.Export()
	body := saved.text()
	return append(fmt.Appendf(nil, "%s%08x\n", snapshotHeader, crc32.Checksum(body, castagnoli)), body...)
}

// state is the whole state, but for what predictions learned.
func (e *Engine) state() *savedEngine {
	saved := &savedEngine{
		Config: e.config, Policy: e.policy, Now: e.now, NextID: e.nextID, Seq: e.seq, LastCame: e.lastCame, Ungrown: e.ungrown,
		Fleet: e.fleet.Export(), Queues: e.queues.Specs(), Uses: e.queues.Uses(), Workloads: []savedWorkload{}, Seen: e.placer.Seen(),
		Moving: e.moving.save(),
	}
	if e.rise != Never {
		saved.Rise = e.rise
	}
	if e.guarded != Never {
		saved.Guarded = new(e.guarded)
	}
	for _, w := range e.byID() {
		saved.Workloads = append(saved.Workloads, e.save(w))
	}
	return saved
}

func (s *savedEngine) text() []byte {
	body, err := json.Marshal(s)
	if err != nil {
		panic("engine: the state cannot be written: " + err.Error()) // every type here can be: a defect, not a condition
	}
	return body
}

func (e *Engine) save(w *workload) savedWorkload {
	s := savedWorkload{
		Workload: w.Workload, Seq: w.seq, Came: w.came, Turn: w.turn, Placing: w.placing, Cancelled: w.cancelled,
		RetryAt: w.retryAt, Refused: w.whyRefused(), Plan: w.plan, Spared: w.spared, Said: w.said,
	}
	if w.base != nil {
		s.Of, s.First = w.base.ID, int(w.first)
	}
	r := w.rarely()
	s.Stays, s.To, s.Until, s.Had, s.Saved, s.Disrupted, s.Due = r.stays, r.to, r.sparedUntil, r.had, r.saved, r.disrupted, r.due
	if r.used != (savedUse{}) {
		s.Used = &r.used
	}
	s.Final = w.replicas != nil && w.replicas.final
	if w.refused != nil {
		s.Refusals = w.refused.times
	}
	for _, t := range w.tasks {
		st := savedTask{Started: t.started, Since: t.since, Evicting: t.evicting, Evict: t.evict, Code: t.evictCode(), Reason: t.evictReason(), Plan: t.plan}
		if t.live() {
			st.Node = e.fleet.NodeName(t.node)
		}
		for _, g := range t.grants {
			st.Grants = append(st.Grants, savedGrant{g.Grant, int32(g.compute), int64(g.memory), int64(g.used), int32(g.busy)})
		}
		s.Tasks = append(s.Tasks, st)
	}
	if w.resize != nil {
		s.Resize = &savedResize{Share: w.resize.share, Back: w.resize.back, Refused: w.resize.refused}
		for _, r := range w.resize.tasks {
			s.Resize.Tasks = append(s.Resize.Tasks, savedResizing{r.action, r.done, r.grants})
		}
	}
	return s
}

// Restore makes an engine of a snapshot, or says what is wrong with it.
func Restore(snapshot []byte) (*Engine, error) {
	line, body, ok := bytes.Cut(snapshot, []byte("\n"))
	sum, found := bytes.CutPrefix(line, []byte(snapshotHeader))
	switch {
	case !ok || !found:
		return nil, fmt.Errorf("this is no engine snapshot of version 1: it begins with %.40q", line)
	case string(sum) != fmt.Sprintf("%08x", crc32.Checksum(body, castagnoli)):
		return nil, errors.New("the engine snapshot is damaged: its checksum does not match; use an older one")
	}
	return restoreState(body)
}

// restoreState makes an engine of the text of a state.
func restoreState(body []byte) (*Engine, error) {
	var saved savedEngine
	if err := decodeStrictly(body, &saved); err != nil {
		return nil, fmt.Errorf("the engine snapshot cannot be read: %w", err)
	}
	e, err := saved.restore()
	if err != nil {
		return nil, fmt.Errorf("the engine snapshot contradicts itself: %w", err)
	}
	return e, nil
}

// decodeStrictly reads one JSON value and nothing else, with no field that is not known.
func decodeStrictly(data []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if d.InputOffset() != int64(len(data)) {
		return errors.New("something follows the value")
	}
	return nil
}

func (s *savedEngine) restore() (*Engine, error) {
	f, err := fleet.Import(s.Fleet)
	if err != nil {
		return nil, err
	}
	for _, p := range []*place.Policy{s.Config.Placement, s.Policy.Placement} {
		if p == nil {
			continue
		}
		if err := p.Validate(); err != nil {
			return nil, err
		}
	}
	if err := checkPools(s.Policy.Pools); err != nil {
		return nil, err
	}
	if err := checkHalfLife(s.Policy.HalfLife); err != nil {
		return nil, err
	}
	e := newEngine(s.Config, f)
	if e.policy = s.Policy; e.policy.Placement != nil {
		e.placer.ChangePolicy(e.policy.Placement)
	}
	e.moving = s.Moving.load()
	if d := s.Policy.Defragment; d != nil {
		if err := d.Validate(); err != nil {
			return nil, err
		}
	}
	e.now, e.looked, e.nextID, e.seq, e.lastCame, e.ungrown = s.Now, s.Now, s.NextID, s.Seq, s.LastCame, s.Ungrown
	if s.Rise != 0 {
		e.rise = s.Rise
	}
	if s.Guarded != nil {
		e.guarded = *s.Guarded
	}
	e.queues.Now = int64(s.Now)
	e.queues.SetHalfLife(int64(s.Policy.HalfLife))
	e.placer.SetSeen(s.Seen)
	if e.predictor, err = predict.Import(predict.Config{}, s.Learned, s.Wide); err != nil {
		return nil, err
	}
	if e.uses, err = predict.ImportUses(predict.Config{}, s.LearnedUse); err != nil {
		return nil, err
	}
	for _, q := range s.Queues {
		if err := e.queues.Set(q); err != nil {
			return nil, err
		}
	}
	for i := range s.Workloads {
		if err := e.load(&s.Workloads[i]); err != nil {
			return nil, err
		}
	}
	maps.DeleteFunc(e.plans, func(_ ActionID, pl *plan) bool { return len(pl.tasks) == 0 }) // carried out
	e.nextDue()
	if err := e.queues.SetUses(s.Uses); err != nil {
		return nil, err
	}
	return e, e.CheckInvariants()
}

func (e *Engine) load(s *savedWorkload) error {
	w := &workload{
		Workload: s.Workload, seq: s.Seq, came: s.Came, turn: s.Turn, placing: s.Placing, cancelled: s.Cancelled,
		retryAt: s.RetryAt, plan: s.Plan, spared: s.Spared, said: s.Said,
	}
	if one := (refusal{s.Refusals, s.Refused}); one != (refusal{}) {
		w.refused = &one
	}
	if w.plan != 0 {
		e.joinPlan(w.plan).w = w
		e.planned[w] = true
	}
	if s.Stays != 0 || len(s.To) > 0 || s.Until != 0 || s.Used != nil || s.Had != 0 || s.Saved != nil || len(s.Disrupted) > 0 || s.Due != 0 {
		w.rare = &rare{stays: s.Stays, to: s.To, sparedUntil: s.Until, had: s.Had, saved: s.Saved, disrupted: s.Disrupted, due: s.Due}
	}
	if s.Used != nil {
		if w.rare.used = *s.Used; !w.rare.used.valid() {
			return fmt.Errorf("workload %s has used %+v, which no tasks can", w.ID, *s.Used)
		}
	}
	if s.Until != 0 {
		e.sparing[w] = true
	}
	if s.Due != 0 {
		e.early[w] = true
	}
	if err := validate(&w.Workload); err != nil {
		return err
	}
	if s.Of != "" {
		if err := e.loadReplica(w, s); err != nil {
			return err
		}
	}
	q, ok := e.queues.Get(w.Queue)
	switch {
	case !ok:
		return fmt.Errorf("workload %s is in queue %s, which is not there", w.ID, w.Queue)
	case e.work[w.key()] != nil || w.seq >= e.seq:
		return fmt.Errorf("workload %s comes twice or out of order", w.ID)
	case len(s.Tasks) != 0 && len(s.Tasks) != w.AllTasks():
		return fmt.Errorf("workload %s has %d tasks and %d are listed", w.ID, w.AllTasks(), len(s.Tasks))
	}
	w.queue, w.shape = q, e.shapeOf(&w.Workload)
	w.setRank()
	if w.base != nil {
		e.enterReplica(w)
		return e.loadTasks(w, s)
	}
	e.work[w.ID] = w
	e.noteLowest(w)
	if len(s.Tasks) == 0 {
		w.level = e.levelOf(w)
		if w.placing != 0 || s.Resize != nil {
			return fmt.Errorf("workload %s waits and is being started or resized", w.ID)
		}
		e.line.Insert(w)
		w.queue.Waiting++
		w.queue.Want(w.demand(), 1)
		if w.retryAt > 0 {
			e.parked.Insert(w)
		} else {
			e.regroup(w)
		}
		return nil
	}
	w.queue.Holds++
	if e.runs(w); w.replicas != nil {
		w.replicas.final = s.Final
		if w.retryAt > 0 {
			e.parked.Insert(w)
		}
	}
	return e.loadTasks(w, s)
}

// loadReplica finds the workload that a further replica is of.
func (e *Engine) loadReplica(w *workload, s *savedWorkload) error {
	base := e.work[s.Of]
	if base == nil || base.replicas == nil || w.ID != s.Of || s.First < base.Tasks || s.First >= base.Max || w.Tasks != 1 || len(s.Tasks) != 1 || s.RetryAt != 0 || s.Resize != nil {
		return fmt.Errorf("replica %d of workload %s is of none that could have it", s.First, s.Of)
	}
	w.base, w.first = base, int32(s.First)
	return nil
}

// loadTasks enters what the tasks of a workload, or of a further replica, hold.
func (e *Engine) loadTasks(w *workload, s *savedWorkload) error {
	for i := range s.Tasks {
		if err := e.loadTask(w, i, &s.Tasks[i]); err != nil {
			return err
		}
	}
	if err := e.expect(w, 0, placeProposal, w.placing); err != nil {
		return err
	}
	return e.loadResize(w, s.Resize)
}

func (e *Engine) loadTask(w *workload, i int, s *savedTask) error {
	t := &task{
		w: w, index: i, node: fleet.None, started: s.Started, since: s.Since,
		evicting: s.Evicting, evict: s.Evict, plan: s.Plan,
	}
	if s.Code != "" || s.Reason != "" {
		t.why = &evicted{s.Code, s.Reason}
	}
	if t.evicting {
		e.ending[t] = true
	}
	if t.plan != 0 {
		pl := e.joinPlan(t.plan)
		pl.tasks = append(pl.tasks, t)
	}
	w.tasks = append(w.tasks, t)
	if len(s.Grants) == 0 {
		return nil
	}
	n, ok := e.fleet.Node(s.Node)
	if !ok {
		return fmt.Errorf("task %d of workload %s is on node %s, which is not there", i, w.ID, s.Node)
	}
	t.node = n
	for _, g := range s.Grants {
		d, ok := e.fleet.DeviceOf(g.Device)
		if !ok || g.HeldCompute < 0 || g.HeldCompute > int32(api.WholeDevice) || g.HeldMemory < 0 || g.Used < 0 || g.Busy < 0 || g.Busy > int32(api.WholeDevice) {
			return fmt.Errorf("grant %s is on a device %s that is not there, or holds less than nothing", g.UID, g.Device)
		}
		held := grant{Grant: g.Grant, device: d, compute: api.Milli(g.HeldCompute), busy: api.Milli(g.Busy), memory: api.Bytes(g.HeldMemory), used: api.Bytes(g.Used)}
		e.fleet.Adjust(d, held.compute, held.taken(), 1)
		t.grants = append(t.grants, held)
	}
	e.fleet.Take(n, t.request().Resources)
	e.settle(t)
	return e.expect(w, i, evictProposal, t.evict)
}

func (e *Engine) loadResize(w *workload, s *savedResize) error {
	if s == nil {
		return nil
	}
	if len(s.Tasks) != len(w.tasks) {
		return fmt.Errorf("the resize of workload %s is of %d tasks, not %d", w.ID, len(s.Tasks), len(w.tasks))
	}
	if err := validShare(s.Share); err != nil {
		return err
	}
	w.resize = &resize{share: s.Share, back: s.Back, refused: s.Refused}
	for i, r := range s.Tasks {
		if len(r.Grants) != 0 && len(r.Grants) != len(w.tasks[i].grants) || r.Action != 0 && len(r.Grants) == 0 {
			return fmt.Errorf("the resize of workload %s is not of the grants that task %d has", w.ID, i)
		}
		w.resize.tasks = append(w.resize.tasks, resizing{r.Action, r.Grants, r.Done})
		if r.Action != 0 {
			w.resize.open++
		}
		if err := e.expect(w, i, resizeProposal, r.Action); err != nil {
			return err
		}
	}
	return nil
}

// expect enters a proposal that waits for its answer; ID 0 is none.
func (e *Engine) expect(w *workload, task int, kind proposalKind, id ActionID) error {
	if id == 0 {
		return nil
	}
	if e.pending[id] != nil || id >= e.nextID {
		return fmt.Errorf("action %d of workload %s is another's or yet to come", id, w.ID)
	}
	e.pending[id] = &proposal{w: w, task: task, kind: kind}
	return nil
}
