package sim

import (
	"context"
	"fmt"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// JobOptions are how the jobs of a trace are run.
type JobOptions struct {
	Order     Order
	Placement *place.Policy // nil: best fit
	// Rules are a policy file that holds, under the order Fair alone; nil: none.
	Rules *Rules
	// Sharing is what happens on devices that jobs share; nil: every job runs at the speed that it has alone.
	Sharing *Sharing
	// Until ends the run at a time of the trace, with what runs and waits then; 0: it goes on until all have ended.
	Until engine.Time
	// Told is called after each moment at which something was decided; nil: nobody is told.
	Told func(Progress)
	// Log keeps every step; nil: none is kept.
	Log *engine.LogWriter
}

// member is a job on its way through a run.
type member struct {
	job      *Job
	index    int    // in the trace
	id       string // in the engine, another after each eviction
	starts   int
	left     engine.Time // of running, as of since
	since    engine.Time // later than now: when it goes on
	started  engine.Time // first; -1: not yet
	running  bool
	over     bool // it has run its time, of which the engine is being told
	stopping bool // its eviction is the simulator's own, which puts it in line itself
	// How often the engine decided something of it at a moment; see decided.
	decidedAt engine.Time
	decisions int
	counted   bool    // among what all want
	kind      string  // what it asks for: see fitsFleet
	more      []int   // numbers of the replicas that it has above its tasks
	busy      float64 // contention × µs that had passed when it came
	level     int
	key       float64

	speed   int64 // while it runs, in millionths of its speed alone
	pace    int   // how often it started or changed its speed
	shared  bool  // it ran on devices that are shared
	sharers []*sharer
	// Of its floors, in µs × millionths of a device: what it wanted, and what of that it lacked.
	wanted, lacked float64
	// Since it started last, over its devices: what it had of their time, and the time.
	used, held engine.Time
	disrupted  []engine.Time // when it was evicted for others, the last times

	anew           engine.Time // of ran, what was lost by evictions
	ran            engine.Time // for how long it was on devices before it started last
	began, resumed engine.Time // when it started last, and when it went on then
	saved          engine.Time // what was left of running when it saved last
	lost, again    engine.Time // of running: what it did and lost, and what starting again took
	kept           engine.Time // what was left when it was evicted last; engine.Never: it was not
	keptAt         engine.Time // when that was
}

// jobRun is the state of a run of jobs.
type jobRun struct {
	engine    *engine.Engine
	log       *engine.LogWriter
	order     Order
	rules     *ruling     // nil: none
	moved     engine.Time // when something other than a window was last to come
	now       engine.Time
	capacity  int64              // thousandths of a device
	byID      map[string]*member // all that came and have not ended
	running   map[*member]bool
	waiting   line             // under an order that the simulator chooses by
	aside     []*member        // which no node serves, or which none did when they came; see lineUp
	fits      map[string]bool  // by kind of job: see fitsFleet
	dated     []*member        // whose priority holds until a date that has not come, by that
	there     map[string]int64 // thousandths of a device by node
	room      int64            // the sum of these
	beside    *besides         // nil: nothing slows anything
	energy    *energy
	answers   []answer // that the engine is to be given, in turn
	answering bool     // it is being given them
	rounds    int      // how often it was asked in a row at one moment
	ends      endings
	saves     saves          // of which the engine is to be told
	lost      *LostResult    // nil: evictions cost nothing
	toCome    int            // jobs that have not come
	vain      int            // how often jobs were evicted since one kept something or ended
	events    []engine.Event // of the trace, that are to come
	seq       int
	pieces    *fragments // nil: of a recorded run it is not known
	told      int        // events that the engine was told of
	wanted    int64      // by all that came, could run and have not ended
	busy      float64    // contention × µs so far
	usage     []change
	ended     []finished
	out       JobResult
}

// change is what a tenant got or gave back, in thousandths of a device.
type change struct {
	at     engine.Time
	tenant string
	amount int64
}

// RunJobs runs the jobs of a trace from their coming until all have run as long as they do, or until the time that it is given, and says how
// long those took that ended and which never ran. It fails where a job never ends, where two have one ID, and where the engine rejects what the trace
// says of nodes and queues.
func RunJobs(ctx context.Context, t *Trace, o JobOptions) (*JobResult, error) {
	r, err := newJobRun(t, o)
	if err != nil {
		return nil, err
	}
	if err := r.all(ctx, t, o); err != nil {
		return nil, err
	}
	return &r.out, nil
}

// all runs the jobs to the end.
func (r *jobRun) all(ctx context.Context, t *Trace, o JobOptions) (err error) {
	for i := 0; i < len(t.Jobs) || len(r.byID) > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		submit := engine.Never
		if i < len(t.Jobs) {
			submit = t.Jobs[i].Submit
		}
		next := r.next(submit)
		if demand := r.beside.next(r.now); demand < next && (o.Until == 0 || demand <= o.Until) {
			r.advance(demand) // nothing is to be decided then
			r.followDemand()
			continue
		}
		if over := next == engine.Never; over || o.Until > 0 && next > o.Until {
			if err := r.neverRun(over); err != nil {
				return err
			}
			if over {
				r.now = r.lastUse(t.Jobs[0].Submit) // what came later came to nothing
			}
			break
		}
		if r.rounds++; next > r.now {
			r.rounds = 0
		}
		if r.rounds > maxRounds {
			return &standstill{r.now, "wants to be asked again"}
		}
		r.advance(next)
		if i, err = r.live(t, i); err != nil {
			return err
		}
		if o.Told != nil {
			o.Told(Progress{At: r.now, Events: r.told, Done: len(r.ended), All: len(t.Jobs)})
		}
	}
	r.advance(max(r.now, o.Until))
	if len(t.Jobs) > 0 {
		r.figures(t.Jobs[0].Submit)
	}
	return nil
}

// live does all that is to be done at a moment, i being the first job that has not come, and returns the first that has not come then.
func (r *jobRun) live(t *Trace, i int) (int, error) {
	if err := r.tellSaves(); err != nil {
		return i, err
	}
	if err := r.endDue(); err != nil {
		return i, err
	}
	if err := r.endPriorities(); err != nil {
		return i, err
	}
	if err := r.turn(); err != nil {
		return i, err
	}
	if err := r.happen(); err != nil {
		return i, err
	}
	r.followDemand()
	for ; i < len(t.Jobs) && t.Jobs[i].Submit <= r.now; i++ {
		if err := r.arrive(&t.Jobs[i], i); err != nil {
			return i, err
		}
	}
	return i, r.decide()
}

// newJobRun is a run at its beginning, with all that is known before the first job.
func newJobRun(t *Trace, o JobOptions) (*jobRun, error) {
	config := engine.Config{NoBackfill: o.Order == FirstCome, Placement: o.Placement}
	r := &jobRun{engine: engine.New(config), log: o.Log, order: o.Order, byID: map[string]*member{}, running: map[*member]bool{}, there: map[string]int64{}, capacity: t.Capacity(), toCome: len(t.Jobs), pieces: newFragments(t), energy: newEnergy(o.Sharing != nil)}
	if t.keepsAccount() {
		r.lost = &LostResult{}
	}
	if o.Rules != nil {
		if o.Order != Fair {
			return nil, fmt.Errorf("a policy file rules the order of jobs itself: run it under the order %s, not %s", Fair, o.Order)
		}
		rules, err := o.Rules.of(t)
		if err != nil {
			return nil, err
		}
		r.rules = &ruling{Rules: rules, next: engine.Never, date: engine.Never}
	}
	if o.Sharing != nil {
		if err := o.Sharing.check(t); err != nil {
			return nil, err
		}
		r.beside = newBesides(o.Sharing)
	}
	return r, r.prepare(t)
}

// decide lets the order choose, or the engine know that time has passed.
func (r *jobRun) decide() error {
	if !r.order.chooses() {
		if r.engine.Next() > r.now {
			return nil
		}
		return r.step(engine.Tick{At: engine.At{At: r.now}})
	}
	r.raise()
	return r.arrange()
}

// prepare makes the nodes, classes and queues of a trace known.
func (r *jobRun) prepare(t *Trace) error {
	for _, n := range t.Nodes {
		r.nodeChanged(n)
		if err := r.step(n); err != nil {
			return err
		}
	}
	for _, c := range t.Classes {
		if err := r.step(c); err != nil {
			return err
		}
	}
	r.events = t.Events
	if err := r.happen(); err != nil {
		return err
	}
	if r.order == Predicted {
		return r.step(engine.QueueSet{Queue: api.QueueSpec{Name: api.DefaultQueue, Quota: api.Unlimited, ShortestFirst: predictedFactor}})
	}
	if r.order == Served || r.order == Held {
		return r.step(engine.QueueSet{Queue: api.QueueSpec{Name: api.DefaultQueue, Quota: api.Unlimited, Order: api.QueueOrder{Served: servedLevel, Held: r.order == Held}}})
	}
	if r.order != Fair {
		return nil
	}
	if r.rules != nil {
		if err := r.step(r.rules.turn(0)); err != nil {
			return err
		}
	}
	known := map[string]bool{"": true, api.DefaultQueue: true}
	for _, e := range t.Events {
		for _, q := range ofQueues(e) {
			known[q.Name] = true
		}
	}
	for _, q := range t.Queues {
		known[q.Name] = true
		if err := r.set(engine.QueueSet{Queue: q}); err != nil {
			return err
		}
	}
	for i := range t.Jobs {
		name := t.Jobs[i].Queue
		if known[name] {
			continue
		}
		known[name] = true
		if err := r.set(engine.QueueSet{Queue: api.QueueSpec{Name: name, Quota: api.Unlimited}}); err != nil {
			return err
		}
	}
	return nil
}

func (r *jobRun) advance(to engine.Time) {
	contention := max(1, float64(r.wanted)/float64(r.capacity))
	r.busy += contention * float64(to-r.now)
	r.now = to
}
