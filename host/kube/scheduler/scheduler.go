package scheduler

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/aliquot-dev/aliquot/engine"
)

// Scheduler is the loop's state. Only the loop touches it, but for the inbox.
type Scheduler struct {
	config Config
	ctx    context.Context // of Run
	inbox  inbox
	write  writer
	beside sync.WaitGroup // what runs beside the loop

	engine   *engine.Engine
	record   *engine.LogWriter // of its steps; nil: none
	events   []engine.Event    // to be stepped
	stepping bool
	began    bool // everything there was at the start is known

	nodes         map[string]*node
	wholes        map[*node]bool // those with devices that are handed out whole alone
	dirty         map[*node]bool // the engine is to be told of
	levels        []string       // labels of nodes by which gangs were to be together, sorted: the engine is told of those
	pods          map[types.UID]*pod
	users         map[string]map[*pod]bool // pods by the claims that they name, namespace/name
	claims        map[string]*claim        // by namespace/name
	deviceClasses map[string]*resourceapi.DeviceClass
	extended      []string // resources by which limits ask for devices of these, sorted: names that they give themselves
	classes       map[string]*class
	left          map[string]*class // of one pod each, in which that does not wait any more
	forgot        time.Time         // when it was looked last whether there are classes to forget
	forgetAt      int               // from so many classes on it is looked again
	gangs         map[string]*gang
	jobs          map[types.UID]*batchv1.Job
	owned         map[types.UID]map[*pod]bool // pods by the Job that made them
	sets          map[types.UID]*setOfJobs
	leaders       map[string]*leader // by group of a LeaderWorkerSet
	asking        int                // JobSets and LeaderWorkerSets that are asked how they start
	selections    map[string]*selection
	work          map[string]*work // by the engine's ID
	named         uint64           // counts the IDs
	tenants       tenants
	uses          uses
	sayings       sayings
	stuck         map[types.UID]string                  // why a write for a pod is refused again and again, and is tried on
	tainted       map[string]*resourceapi.ResourceSlice // Config.Tainted, as last looked at
	recorder      record.EventRecorder
	metrics       *metrics
	classifying   bool
	distinctions  uint64        // Filters.Distinctions by which those in line are of their classes
	released      *released     // who followed these is to be looked at; nil: nobody
	outdated      time.Time     // when something changed last by which classes may use other nodes
	specials      map[*pod]bool // that wait for devices beside the engine
	freed         uint64        // how often devices came free
	keeps         map[*pod]keep // of pods in line for which others are evicted
	seekers       []*pod        // for which room is to be looked for
	least         struct {      // see leastPriority
		priority int32
		due      time.Time
	}
	seeks     bool // it is, for one
	evictions int  // under way
	tick      *time.Timer
}

// New returns a scheduler that has seen nothing yet.
func New(config Config) *Scheduler {
	config.Name = cmp.Or(config.Name, Name)
	config.Writers = cmp.Or(config.Writers, 64)
	config.Grace, config.Spare = cmp.Or(config.Grace, Grace), cmp.Or(config.Spare, spareFor)
	config.AskEvery, config.UsesPace = cmp.Or(config.AskEvery, askEvery), cmp.Or(config.UsesPace, usesPace)
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	s := &Scheduler{
		config: config, engine: engine.New(engine.Config{}), inbox: inbox{more: make(chan struct{}, 1)},
		write: writer{
			client: config.Client, log: config.Log, filters: config.Filters,
			pace:  flowcontrol.NewTokenBucketPassiveRateLimiter(assignedPace, assignedBurst),
			turns: turns{writing: make(chan struct{}, config.Writers), preparing: make(chan struct{}, prepareMost)},
		},
		nodes: map[string]*node{}, dirty: map[*node]bool{}, pods: map[types.UID]*pod{}, users: map[string]map[*pod]bool{}, claims: map[string]*claim{},
		deviceClasses: map[string]*resourceapi.DeviceClass{}, classes: map[string]*class{}, left: map[string]*class{}, gangs: map[string]*gang{}, jobs: map[types.UID]*batchv1.Job{}, owned: map[types.UID]map[*pod]bool{}, sets: map[types.UID]*setOfJobs{}, leaders: map[string]*leader{}, selections: map[string]*selection{}, work: map[string]*work{},
		specials: map[*pod]bool{}, keeps: map[*pod]keep{}, wholes: map[*node]bool{}, metrics: newMetrics(), tenants: newTenants(), tick: time.NewTimer(time.Hour), stuck: map[types.UID]string{},
	}
	s.write.tell = s.toldStuck
	s.write.says = func(pod *corev1.Pod, reason, text string) {
		s.recorder.Event(pod, corev1.EventTypeNormal, reason, text)
	}
	return s
}

// Run schedules until the context ends, and returns once nothing of it writes any more. What it was writing then may be half written:
// the next one completes it. It runs once.
func (s *Scheduler) Run(ctx context.Context) error {
	s.ctx = ctx
	seen, err := s.watch()
	if err != nil {
		return err
	}
	var done func()
	s.recorder, done = recorder(s.config)
	defer done()
	s.config.Informers.Start(ctx.Done())
	defer s.config.Informers.Shutdown()
	defer s.beside.Wait()
	defer s.tick.Stop()
	if !cache.WaitForCacheSync(ctx.Done(), seen...) {
		return errors.New("it was ended before it had seen what there is in the cluster")
	}
	if err := s.config.Filters.WaitForSync(ctx); err != nil {
		return err
	}
	if s.config.Record != nil {
		if s.record, err = engine.NewLogWriter(s.config.Record, s.engine.Snapshot()); err != nil {
			return err
		}
	}
	s.take()
	s.awaitOwners()
	s.begin()
	s.metrics.leads.Store(1)
	defer s.metrics.leads.Store(0)
	for {
		s.settle()
		select {
		case <-ctx.Done():
			return nil
		case <-s.inbox.more:
			s.take()
		case <-s.tick.C:
			if now := s.at(); s.engine.Next() <= now.At {
				s.step(engine.Tick{At: now})
			}
		}
	}
}

// begin tells the engine of everything that there is: nodes, what is allocated on them, and then who waits, the oldest first.
func (s *Scheduler) begin() {
	s.began = true
	s.config.Log.Info("scheduling", "nodes", len(s.nodes), "claims", len(s.claims), "pods", len(s.pods))
	s.tellQueues()
	s.knowLevelsOfPods()
	s.leadersApart()
	s.jobsApart()
	works := s.found() // before the nodes, for what its pods request is theirs then
	for _, n := range s.nodes {
		s.dirty[n] = true
	}
	s.tellNodes()
	for _, tasks := range works {
		s.adoptTasks(tasks)
	}
	for _, p := range s.allPods() {
		s.hearSaved(p)
	}
	s.goOn()
	for _, p := range s.allPods() {
		if p.leaves() {
			s.ending(p)
		}
	}
	s.resumeHours()
	s.recallQueuesUsed()
	for _, p := range slices.SortedFunc(maps.Values(s.pods), byAge) {
		s.consider(p)
	}
}

// settle does what waits for the end of a batch, and sets the clock for what comes by time.
func (s *Scheduler) settle() {
	next := s.tellQueues()
	s.tellNodes()
	s.reclass()
	s.forgetClasses()
	next = min(next, s.endKeeping(), s.classify(), s.tell(), s.sayUses())
	if at := s.engine.Next(); at != engine.Never {
		if wait := time.Duration(at-s.at().At) * time.Microsecond; wait < next {
			next = wait
		}
	}
	s.tick.Reset(max(0, next))
}

func (s *Scheduler) take() {
	for _, one := range s.inbox.take() {
		one()
	}
}

// at is the time of an event that happens now.
func (s *Scheduler) at() engine.At { return engine.At{At: engine.Time(s.config.Now().UnixMicro())} }

// step shows the engine an event and carries out what it answers, and then the events that follow from that.
func (s *Scheduler) step(event engine.Event) {
	s.events = append(s.events, event)
	if s.stepping {
		return
	}
	s.stepping = true
	for len(s.events) > 0 {
		event := s.events[0]
		s.events = s.events[1:]
		before := s.config.Now()
		s.countHours()
		actions := s.engine.Step(event)
		s.metrics.deciding.Observe(s.config.Now().Sub(before).Seconds())
		s.recordStep(event, actions)
		var evictions []engine.Evict
		for _, action := range actions {
			if evict, is := action.(engine.Evict); is {
				evictions = append(evictions, evict)
			} else {
				s.act(action)
			}
		}
		s.evictAll(evictions)
	}
	s.stepping = false
}

// recordStep appends a step to the event log. One that cannot be written ends the log, and not the scheduling.
func (s *Scheduler) recordStep(event engine.Event, actions []engine.Action) {
	if s.record == nil {
		return
	}
	if err := s.record.Append(event, actions); err != nil {
		s.config.Log.Warn("what is decided is not recorded any more", "error", err)
		s.record = nil
	}
}

func (s *Scheduler) act(action engine.Action) {
	switch action := action.(type) {
	case engine.Place:
		s.metrics.decisions.Inc()
		s.place(action)
	case engine.Resize:
		s.step(engine.Refused{At: s.at(), ID: action.ID, Reason: "a claim's floors are fixed for its life"})
	case engine.Reject:
		s.rejected(action)
	}
}

// rejected notes that the engine would not take an event.
func (s *Scheduler) rejected(action engine.Reject) {
	s.config.Log.Warn("the engine refused an event", "workload", action.Workload, "code", action.Code, "reason", action.Reason)
	if w := s.work[action.Workload]; w != nil && w.state == inLine && !s.engine.Known(w.id) {
		s.dissolve(w, action.Reason)
	}
}

// spawn runs something beside the loop.
func (s *Scheduler) spawn(f func(ctx context.Context)) {
	s.beside.Go(func() { f(s.ctx) })
}

// besideLoop has something written beside the loop, and the loop do what follows from it, unless the context has ended by then.
func (s *Scheduler) besideLoop(f func(w writer) (then func())) {
	w := s.write
	s.spawn(func(ctx context.Context) {
		if then := f(w); ctx.Err() == nil {
			s.inbox.put(then)
		}
	})
}

// inbox is what waits for the loop. Whoever puts something in never waits: the informers must not.
type inbox struct {
	mu      sync.Mutex
	waiting []func()
	more    chan struct{}
}

func (b *inbox) put(f func()) {
	b.mu.Lock()
	b.waiting = append(b.waiting, f)
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
}

func (b *inbox) take() []func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.waiting
	b.waiting = nil
	return all
}
