package sim

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// Order is the order in which the jobs of a trace get devices.
//
// The first six are the engine's own: it decides, and nothing that runs is ended for another job unless quotas or priorities say so. The others
// are for comparison, as others published them: the simulator chooses at every coming and end, and wherever the order changes by
// itself, which jobs run, ends what is not among them and lets the engine place the rest. What is ended so goes on later where it
// was; neither that nor moving costs anything.
type Order string

const (
	// FirstCome starts jobs strictly as they came: one that does not fit holds back all behind it.
	FirstCome Order = "fifo"
	// Backfill is first come, and what is behind one that does not fit starts where that provably does not delay it.
	Backfill Order = "backfill"
	// Fair is Backfill with a queue for each tenant: the tenant furthest below its fair share goes first.
	Fair Order = "fair"
	// Predicted is Backfill with the shortest first, by predictions from the jobs that have ended: see predictedFactor. It knows no duration.
	Predicted Order = "predicted"
	// Served is Backfill with the least served first: what had less device time takes the place of what had more, by levels, the first of servedLevel
	// (api.QueueOrder.Served). It knows no duration.
	Served Order = "served"
	// Held is the same, each device counted as a whole for as long as a job holds a share of it (api.QueueOrder.Held).
	Held Order = "held"
	// ShortestTime runs those first that have the least time left. It knows the durations.
	ShortestTime Order = "srtf"
	// ShortestService runs those first that have the least time × devices left. It knows the durations.
	ShortestService Order = "srsf"
	// Tiresias runs those first that had less than an hour of time × devices, then the others; first come among equal ones: discretised
	// two-dimensional least attained service with two queues (Gu et al., NSDI'19). It knows no duration.
	Tiresias Order = "tiresias"
	// LeastService is the same with a boundary at every power of two of device-minutes, as Served has them.
	LeastService Order = "las"
)

var orders = []Order{FirstCome, Backfill, Fair, Predicted, Served, Held, ShortestTime, ShortestService, Tiresias, LeastService}

// Orders are the names of all orders.
func Orders() []string {
	names := make([]string, len(orders))
	for i, o := range orders {
		names[i] = string(o)
	}
	return names
}

// ParseOrder reads the name of an order.
func ParseOrder(text string) (Order, error) {
	if o := Order(text); slices.Contains(orders, o) {
		return o, nil
	}
	return "", fmt.Errorf("there is no order %q: use one of %s", text, strings.Join(Orders(), ", "))
}

// chooses says that the simulator chooses what runs, not the engine.
func (o Order) chooses() bool {
	return !slices.Contains([]Order{FirstCome, Backfill, Fair, Predicted, Served, Held}, o)
}

// tiresiasService is where the first queue of Tiresias ends, and leastService where that of LeastService does, in seconds × devices.
const (
	tiresiasService = 3600
	leastService    = 60
)

// predictedFactor is ShortestFirst of the queue under Predicted: a job goes before what came up to ten times as much earlier as it is
// predicted to be shorter.
const predictedFactor = 10 * api.WholeDevice

// servedLevel is the first level of the queue under Served and Held.
const servedLevel = api.Duration(time.Minute)

// boundary is how much service, in seconds × devices, ends a level of an order that has levels; 0: there is no end.
func (o Order) boundary(level int) float64 {
	switch {
	case o == Tiresias && level == 0:
		return tiresiasService
	case o == LeastService && level < 40:
		return leastService * float64(int64(1)<<level)
	}
	return 0
}

// key is where a job stands in its order: the smaller, the earlier.
func (o Order) key(m *member, now engine.Time) float64 {
	switch o {
	case ShortestTime:
		return float64(m.remains(now))
	case ShortestService:
		return float64(m.remains(now)) * float64(m.job.Compute())
	}
	return float64(m.level)
}

// byKey are jobs that wait, a heap in their order. Their keys do not change while they wait.
type byKey []*member

func (q byKey) Len() int           { return len(q) }
func (q byKey) Less(i, j int) bool { return inOrder(q[i], q[j]) < 0 }
func (q byKey) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *byKey) Push(x any)        { *q = append(*q, x.(*member)) }
func (q *byKey) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}

func inOrder(a, b *member) int {
	return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.job.Submit, b.job.Submit), cmp.Compare(a.index, b.index))
}

// line is what waits under an order that the simulator chooses by: a heap for each size of job.
type line struct {
	sizes []int64 // thousandths of a device, ascending
	heaps map[int64]*byKey
}

func (l *line) push(m *member) {
	size := m.job.Compute()
	if l.heaps[size] == nil {
		if l.heaps == nil {
			l.heaps = map[int64]*byKey{}
		}
		l.heaps[size] = &byKey{}
		at, _ := slices.BinarySearch(l.sizes, size)
		l.sizes = slices.Insert(l.sizes, at, size)
	}
	heap.Push(l.heaps[size], m)
}

// first is the first of those that want at most so much; nil: there is none.
func (l *line) first(room int64) *member {
	var best *member
	for _, size := range l.sizes {
		if size > room {
			break
		}
		if h := *l.heaps[size]; len(h) > 0 && (best == nil || inOrder(h[0], best) < 0) {
			best = h[0]
		}
	}
	return best
}

// drain takes all out, in no order.
func (l *line) drain() []*member {
	var all []*member
	for _, size := range l.sizes {
		all = append(all, *l.heaps[size]...)
	}
	*l = line{}
	return all
}

func (l *line) pop(m *member) { heap.Pop(l.heaps[m.job.Compute()]) }

// choose says which jobs are to start and which to be ended so that those run that come first in the order, as many as fit by their
// size; one that is too large for what is left is passed over.
func (r *jobRun) choose() (start, end []*member) {
	running := r.runningMembers()
	for _, m := range running {
		m.key = r.order.key(m, r.now)
	}
	slices.SortFunc(running, inOrder)
	room := r.room
	for {
		next := r.waiting.first(room)
		if len(running) > 0 && (next == nil || running[0].key <= next.key) {
			if m := running[0]; m.job.Compute() <= room {
				room -= m.job.Compute()
			} else {
				end = append(end, m)
			}
			running = running[1:]
			continue
		}
		if next == nil {
			return start, end
		}
		r.waiting.pop(next)
		room -= next.job.Compute()
		start = append(start, next)
	}
}

// arrange makes those run that the order chooses. Where what is chosen does not fit in between what runs, everything is placed anew, the
// largest first; what does not fit then waits on.
func (r *jobRun) arrange() error {
	start, end := r.choose()
	for _, m := range end {
		if err := r.stop(m); err != nil {
			return err
		}
	}
	unfit, err := r.startAll(start)
	if err != nil || len(unfit) == 0 {
		return r.queueUp(end, err)
	}
	again := append(r.runningMembers(), unfit...)
	for _, m := range again {
		if m.running {
			r.out.Moves++
			r.out.Preemptions-- // it goes on at once
			if err := r.stop(m); err != nil {
				return err
			}
		}
	}
	unfit, err = r.startAll(again)
	return r.queueUp(append(end, unfit...), err)
}

func (r *jobRun) queueUp(members []*member, err error) error {
	for _, m := range members {
		r.lineUp(m)
	}
	return err
}

// startAll lets the engine place jobs, the largest first, and returns those that do not fit.
func (r *jobRun) startAll(members []*member) (unfit []*member, err error) {
	slices.SortStableFunc(members, func(a, b *member) int {
		return cmp.Or(cmp.Compare(b.job.Compute(), a.job.Compute()), inOrder(a, b))
	})
	for _, m := range members {
		if err := r.submit(m); err != nil {
			return nil, err
		}
		if m.running || r.byID[m.id] != m { // or it was rejected
			continue
		}
		if err := r.step(engine.Cancel{At: engine.At{At: r.now}, ID: m.id}); err != nil {
			return nil, err
		}
		unfit = append(unfit, m)
	}
	return unfit, nil
}

// crossing is when the first job that runs reaches the end of its level.
func (r *jobRun) crossing() engine.Time {
	at := engine.Never
	if r.order.boundary(0) == 0 {
		return at
	}
	for m := range r.running {
		if b := r.order.boundary(m.level); b > 0 && m.job.Wants() > 0 && m.speed > 0 {
			after := math.Ceil((b - m.serviceAt(r.now)) * 1e9 / float64(m.job.Wants())) // µs at the speed alone
			at = min(at, m.hasAt(r.now, engine.Time(min(maxTime, max(1, after)))))
		}
	}
	return at
}

// raise puts those that run on the level of what they had.
func (r *jobRun) raise() {
	if r.order.boundary(0) == 0 {
		return
	}
	for m := range r.running {
		for b := r.order.boundary(m.level); b > 0 && m.serviceAt(r.now) >= b; b = r.order.boundary(m.level) {
			m.level++
		}
	}
}

// runningMembers are the jobs that run, in the order of the trace.
func (r *jobRun) runningMembers() []*member {
	all := slices.Collect(maps.Keys(r.running))
	slices.SortFunc(all, func(a, b *member) int { return cmp.Compare(a.index, b.index) })
	return all
}
