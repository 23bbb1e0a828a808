package sim

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/engine"
)

// few reads a trace in our own format.
func few(t *testing.T, lines ...string) *Trace {
	t.Helper()
	trace, err := scanLines("few", strings.NewReader(formatLine+"\n"+strings.Join(lines, "\n")), nil)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

func runJobs(t *testing.T, trace *Trace, o Order) *JobResult {
	t.Helper()
	r, err := RunJobs(t.Context(), trace, JobOptions{Order: o})
	if err != nil {
		t.Fatalf("%s: %v", o, err)
	}
	return r
}

// Two jobs that each want the whole node: what each order makes of them can be told by hand.
func TestOrdersByHand(t *testing.T) {
	trace := few(t, "nodes 1", "job long at=0 run=100s devices=8", "job short at=10s run=10s devices=8", "job small at=11s run=50s devices=2")
	for _, c := range []struct {
		order              Order
		mean, p99          float64
		wait               float64
		preemptions, moves int
	}{
		// long 0..100, short 100..110, small 110..160
		{FirstCome, (100 + 100 + 149) / 3.0, 149, (90 + 99) / 3.0, 0, 0},
		// short 10..20, small 20..70, long 0..10 and 70..160
		{ShortestTime, (160 + 10 + 59) / 3.0, 160, 9 / 3.0, 1, 0},
		// 8 × 90 s of long against 80 of short, then 100 of small
		{ShortestService, (160 + 10 + 59) / 3.0, 160, 9 / 3.0, 1, 0},
		// all on the first level until 3600 device-seconds, which none reaches
		{Tiresias, (100 + 100 + 149) / 3.0, 149, (90 + 99) / 3.0, 0, 0},
	} {
		r := runJobs(t, trace, c.order)
		if r.Jobs != 3 || r.Makespan < 160 {
			t.Errorf("%s: %d jobs in %g s", c.order, r.Jobs, r.Makespan)
		}
		got := []float64{r.MeanJCT, r.P99JCT, r.MeanWait, float64(r.Preemptions), float64(r.Moves)}
		want := []float64{c.mean, c.p99, c.wait, float64(c.preemptions), float64(c.moves)}
		for i := range got {
			if math.Abs(got[i]-want[i]) > 1e-9 {
				t.Errorf("%s: mean and p99 JCT, wait, preemptions and moves are %v, want %v", c.order, got, want)
				break
			}
		}
	}
}

// A job that had a minute of a device makes way for one that had less, and none does within a level.
func TestLeastServiceByHand(t *testing.T) {
	trace := few(t, "nodes 1 devices=1", "job long at=0 run=100s", "job short at=70s run=30s")
	for order, want := range map[Order]float64{LeastService: (130 + 30) / 2.0, Tiresias: (100 + 60) / 2.0} {
		r := runJobs(t, trace, order)
		if r.MeanJCT != want || (r.Preemptions > 0) != (order == LeastService) {
			t.Errorf("%s: mean JCT %g s with %d preemptions, want %g", order, r.MeanJCT, r.Preemptions, want)
		}
	}
	// Two that had as much take turns at the ends of levels only: 60 s each, then 60 more each.
	r := runJobs(t, few(t, "nodes 1 devices=1", "job a at=0 run=120s", "job b at=0 run=120s"), LeastService)
	if r.MeanJCT != (180+240)/2.0 || r.Preemptions != 1 {
		t.Errorf("two that take turns: mean JCT %g s, %d preemptions", r.MeanJCT, r.Preemptions)
	}
}

// What is left of devices in pieces on several nodes serves a whole node's job once what runs is moved together.
func TestMovesTogether(t *testing.T) {
	trace := few(t, "nodes 2", "job a at=0 run=5s devices=4", "job b at=0 run=100s devices=4", "job c at=0 run=5s devices=4", "job d at=0 run=100s devices=4",
		"job e at=5s run=10s devices=8")
	r := runJobs(t, trace, ShortestTime)
	if r.MeanWait != 0 || r.Preemptions != 0 {
		t.Errorf("jobs wait %g s on average and %d are preempted, where there is room for all", r.MeanWait, r.Preemptions)
	}
	if engineOwn := runJobs(t, trace, FirstCome); engineOwn.Moves != 0 || engineOwn.Preemptions != 0 {
		t.Errorf("under first come %d are moved and %d preempted", engineOwn.Moves, engineOwn.Preemptions)
	}
}

// What all wanted while a job was there makes what its part would have been.
func TestFairness(t *testing.T) {
	// Both want all. b waits 100 s while twice is wanted of what there is, then runs 100 s alone: it takes 200 s, and its part would
	// have been 100 s × 1.5. a is done in 100 s where its part would have been 200 s.
	r := runJobs(t, few(t, "nodes 1", "job a at=0 run=100s devices=8", "job b at=0 run=100s devices=8"), FirstCome)
	if math.Abs(r.FairnessWorst-200/150.0) > 1e-9 || r.Unfair != 50 {
		t.Errorf("the worst fairness is %g and %g %% are unfair, want %g and 50", r.FairnessWorst, r.Unfair, 200/150.0)
	}
}

// What tenants used adds up to what was allocated, and that to the work that was done.
func TestPlotsAddUp(t *testing.T) {
	trace := GenerateJobs(3, 0.9, 7)
	var work float64
	for i := range trace.Jobs {
		work += seconds(trace.Jobs[i].Duration) * float64(trace.Jobs[i].Compute())
	}
	for _, o := range orders {
		r := runJobs(t, trace, o)
		if want := work / float64(r.Capacity) / r.Makespan * 100; math.Abs(r.Utilisation-want) > 0.01 {
			t.Errorf("%s: %g %% are used, want %g", o, r.Utilisation, want)
		}
		for k, all := range r.Plots.Allocated {
			var sum float64
			for _, tenant := range r.Plots.Tenants {
				sum += tenant.Allocated[k]
			}
			if math.Abs(sum-all) > 0.01 || all > 100.001 {
				t.Fatalf("%s: in step %d tenants use %g %% and %g %% are allocated", o, k, sum, all)
			}
		}
		if len(r.Plots.Tenants) != 3 || len(r.Plots.Waits) != 101 || !slices.IsSorted(r.Plots.Waits) {
			t.Errorf("%s: %d tenants, waits %v", o, len(r.Plots.Tenants), r.Plots.Waits)
		}
		if again := runJobs(t, trace, o); !reflect.DeepEqual(r, again) {
			t.Errorf("%s: a second run comes to something else", o)
		}
	}
}

// naiveShortest is a run by ShortestTime or ShortestService with sizes that always fit together, written for clarity: from each
// coming or end to the next, the jobs are sorted and as many as fit run.
func naiveShortest(trace *Trace, service bool) (mean float64) {
	type job struct {
		left, submit engine.Time
		size         int64
	}
	var live []*job
	var now, sum engine.Time
	for next := 0; next < len(trace.Jobs) || len(live) > 0; {
		for ; next < len(trace.Jobs) && trace.Jobs[next].Submit <= now; next++ {
			j := &trace.Jobs[next]
			live = append(live, &job{j.Duration, j.Submit, j.Compute()})
		}
		slices.SortStableFunc(live, func(a, b *job) int {
			if service {
				return cmp.Or(cmp.Compare(int64(a.left)*a.size, int64(b.left)*b.size), cmp.Compare(a.submit, b.submit))
			}
			return cmp.Or(cmp.Compare(a.left, b.left), cmp.Compare(a.submit, b.submit))
		})
		until := engine.Never
		if next < len(trace.Jobs) {
			until = trace.Jobs[next].Submit
		}
		var run []*job
		room := trace.Capacity()
		for _, j := range live {
			if j.size <= room {
				room -= j.size
				run = append(run, j)
				until = min(until, now+j.left)
			}
		}
		for _, j := range run {
			if j.left -= until - now; j.left == 0 {
				sum += until - j.submit
			}
		}
		live = slices.DeleteFunc(live, func(j *job) bool { return j.left == 0 })
		now = until
	}
	return seconds(sum) / float64(len(trace.Jobs))
}

func TestAgainstNaive(t *testing.T) {
	for seed := range uint64(6) {
		trace := GenerateJobs(1+int(seed)%3, 1.2, seed)
		for _, o := range []Order{ShortestTime, ShortestService} {
			got, want := runJobs(t, trace, o).MeanJCT, naiveShortest(trace, o == ShortestService)
			if math.Abs(got-want) > 1e-6*want {
				t.Errorf("seed %d, %s: mean JCT %g s, and %g s by the naive run", seed, o, got, want)
			}
		}
	}
}

// A time limit ends a job as on a server, so that what is promised to the first in line holds.
func TestTimeLimitsEndJobs(t *testing.T) {
	trace := few(t, "nodes 1", "job a run=1h limit=1h devices=4", "job b at=1m run=1h devices=8", "job c at=2m run=3h limit=30m devices=4")
	for _, o := range []Order{Backfill, Fair, ShortestTime, ShortestService} {
		// a until 60 min, c from 2 to 32 min beside it, then b until 120 min: of its 60 min it waited 59.
		r := runJobs(t, trace, o)
		if r.TimedOut != 1 || r.P99JCT != 119*60 || math.Abs(r.MeanJCT-(60+119+30)*60/3.0) > 1e-6 || r.Preemptions != 0 {
			t.Errorf("%s: %d are ended, mean JCT %g s, p99 %g s, %d preempted", o, r.TimedOut, r.MeanJCT, r.P99JCT, r.Preemptions)
		}
	}
	if r := runJobs(t, few(t, "nodes 1 devices=1", "job a run=1h limit=1h"), Backfill); r.TimedOut != 0 || r.Fairness != 1 {
		t.Errorf("what is through when its limit comes: %+v", r)
	}
}

// The limit is by the clock: of an elastic job whatever its replicas do, of one that is slowed by others, and over evictions, but for what it did for nothing.
func TestTimeLimitsAreByTheClock(t *testing.T) {
	for name, c := range map[string]struct {
		lines []string
		jct   float64 // minutes, of the job that takes longest
		cut   int
	}{
		"more replicas are through":  {[]string{"nodes 1 devices=4", "job a run=2h limit=1h tasks=1..4"}, 30, 0},
		"more replicas are not":      {[]string{"nodes 1 devices=2", "job a run=3h limit=1h tasks=1..4"}, 60, 1},
		"it goes on where it was":    {[]string{"nodes 1 devices=1", "job a run=3h limit=1h", "fail node-00000 at=20m for=10m"}, 70, 1},
		"it begins anew":             {[]string{"nodes 1 devices=1", "job a run=3h limit=1h checkpoint=never restart=5m", "fail node-00000 at=20m for=10m"}, 90, 1},
		"it had saved something":     {[]string{"nodes 1 devices=1", "job a run=3h limit=1h checkpoint=15m", "fail node-00000 at=20m for=10m"}, 75, 1},
		"its start was for nothing":  {[]string{"nodes 1 devices=1", "job a run=3h limit=1h checkpoint=15m restart=5m", "fail node-00000 at=20m for=10m", "fail node-00000 at=33m for=7m"}, 85, 1},
		"it ends before and is over": {[]string{"nodes 1 devices=1", "job a run=50m limit=1h", "fail node-00000 at=20m for=10m"}, 60, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if r := runJobs(t, few(t, c.lines...), Backfill); r.P99JCT != c.jct*60 || r.TimedOut != c.cut {
				t.Errorf("it takes %g min, and %d were ended; want %g and %d", r.P99JCT/60, r.TimedOut, c.jct, c.cut)
			}
		})
	}
	slow := few(t, "nodes 1 devices=1", "job a run=1h limit=90m gpu=0.5", "job b run=1h gpu=0.5")
	r, err := RunJobs(t.Context(), slow, JobOptions{Order: Backfill, Sharing: &Sharing{}})
	if err != nil || r.TimedOut != 1 || r.P99JCT != 120*60 || r.MeanJCT != (90+120)*60/2.0 {
		t.Errorf("at half its speed: %v, %+v", err, r)
	}
}

// A queue that is guaranteed something gets it back from what others borrowed, and that goes on later: the engine's own eviction.
func TestFairGivesBackQuota(t *testing.T) {
	trace := few(t, "nodes 1", "queue a quota=4", "queue b quota=4", "job a1 at=0 run=100s devices=8 queue=a", "job b1 at=10s run=20s devices=4 queue=b")
	r := runJobs(t, trace, Fair)
	if r.Preemptions != 1 || r.P99JCT != 120 || r.MeanJCT != (120+20)/2.0 {
		t.Errorf("%d preemptions, p99 JCT %g s, mean %g s", r.Preemptions, r.P99JCT, r.MeanJCT)
	}
}
