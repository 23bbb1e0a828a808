package sim

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/engine"
)

// What an eviction takes of a job, and when it ends, can be told by hand: it runs from 0 to 40 s, makes way for 10 s, and starts again.
func TestSavesByHand(t *testing.T) {
	for _, c := range []struct {
		says, more    string
		jct           float64 // of the one that is evicted
		work, restart float64
	}{
		{"", "", 110, 0, 0},
		{"checkpoint=30s", "", 120, 10, 0},
		{"checkpoint=40s", "", 110, 0, 0}, // saved as it is evicted
		{"checkpoint=never", "", 150, 40, 0},
		{"checkpoint=2m", "", 150, 40, 0},
		{"restart=5s", "", 115, 0, 5},
		{"checkpoint=30s restart=5s", "", 125, 10, 5},
		// Evicted again 2 s after its second start, it has nothing to lose: 70 s more from 62 + 5 s on.
		{"checkpoint=30s restart=5s", "job again at=52s run=10s", 137, 10, 7},
		// And at 90 s, 35 s after it went on, it has saved once more: 100 + 5 + 40.
		{"checkpoint=30s restart=5s", "job again at=90s run=10s", 145, 15, 10},
	} {
		trace := few(t, "nodes 1 devices=1", "job long run=100s "+c.says, "job short at=40s run=10s", c.more)
		r := runJobs(t, trace, ShortestTime)
		got := [3]float64{r.P99JCT}
		if r.Lost != nil {
			got[1], got[2] = r.Lost.Work, r.Lost.Restart
			if held := r.Makespan; math.Abs(r.Lost.Percent-(c.work+c.restart)/held*100) > 1e-9 {
				t.Errorf("%q: %g %% of %g s are lost", c.says, r.Lost.Percent, held)
			}
		}
		if want := [3]float64{c.jct, c.work, c.restart}; got != want || (r.Lost != nil) != (c.says != "") {
			t.Errorf("%q, %q: JCT, work lost and starting again are %v, want %v", c.says, c.more, got, want)
		}
	}
}

// A plan of the engine counts what would be lost: of two that started together the one goes that has saved more lately, and starts again faster.
func TestPlansCountWhatIsLost(t *testing.T) {
	for _, c := range []struct {
		a, b string
		lost LostResult
	}{
		// At 95 s one has saved 5 s ago and the other 35 s ago.
		{"checkpoint=10s", "checkpoint=1m", LostResult{Work: 5 * 4}},
		{"checkpoint=never", "checkpoint=1m", LostResult{Work: 35 * 4}},
		{"checkpoint=10s restart=5m", "checkpoint=1m restart=1s", LostResult{Work: 35 * 4, Restart: 4}},
	} {
		for _, says := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
			trace := few(t, "nodes 1", "queue owner quota=4", "queue lent", "job first run=1000s devices=4 queue=lent "+says[0], "job second run=1000s devices=4 queue=lent "+says[1],
				"job owner at=95s run=10s devices=4 queue=owner")
			var log bytes.Buffer
			writer, err := engine.NewLogWriter(&log, engine.New(engine.Config{}).Snapshot())
			if err != nil {
				t.Fatal(err)
			}
			r, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Log: writer})
			if err != nil {
				t.Fatal(err)
			}
			if r.Preemptions != 1 || r.Lost.Work != c.lost.Work || r.Lost.Restart != c.lost.Restart {
				t.Errorf("%q: %d preempted, %+v lost, want %+v", says, r.Preemptions, *r.Lost, c.lost)
			}
			if _, err := engine.Replay(&log); err != nil {
				t.Errorf("%q: its log does not replay: %v", says, err)
			}
		}
	}
}

// An elastic job has saved what all its replicas did by then: of 10 s with four of them the last 2 s are lost.
func TestElasticJobSaves(t *testing.T) {
	trace := few(t, "nodes 1 devices=4", "job grows run=100s tasks=1..4 checkpoint=4s restart=1s", "fail node-00000 at=10s for=1s")
	// From 11 s on it starts again, with 68 s of work left for four, which start at the same moment.
	if r := runJobs(t, trace, Backfill); r.P99JCT != 12+17 || r.Lost.Work != 8 || r.Lost.Restart != 1 {
		t.Errorf("it ends after %g s with %+v lost", r.P99JCT, *r.Lost)
	}
}

// Where devices are shared, what was lost was of no use, and what starts again keeps nothing busy.
func TestSavesWhereDevicesAreShared(t *testing.T) {
	trace := few(t, "nodes 1 devices=1", "queue owner quota=0.5", "queue lent", "job evicted run=100s gpu=0.6..1 checkpoint=30s restart=5s busy=0.6 queue=lent",
		"job beside run=200s gpu=0.4..1 busy=0.8 queue=lent preemptible=no", "job owner at=40s run=10s gpu=0.5..0.5 busy=0.5 queue=owner")
	r, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Sharing: &Sharing{}})
	if err != nil {
		t.Fatal(err)
	}
	// evicted has its floor, so runs at full speed: 0..40 s, 50..55 s starting, 70 s left: until 125 s. beside gets 0.4 of its 0.8 until 40 s, 0.5 until
	// 50 s, all it wants until 55 s, 0.4 until 125 s: 20 + 6.25 + 5 + 35 s are done, and it ends 133.75 s later.
	if want := (125 + 258.75 + 10) / 3; !near(r.MeanJCT, want) || r.Lost.Work != 6 || r.Lost.Restart != 3 {
		t.Errorf("the mean JCT is %g s, want %g; %+v is lost", r.MeanJCT, want, *r.Lost)
	}
	if useful := (100*0.6 + 200*0.8 + 10*0.5) / 258.75 * 100; !near(r.Sharing.Useful, useful) {
		t.Errorf("%g %% are useful, want %g", r.Sharing.Useful, useful)
	}
	var sum float64
	for _, tenant := range r.Sharing.Tenants {
		for _, v := range tenant.Useful {
			sum += v / float64(len(tenant.Useful))
		}
	}
	if math.Abs(sum-r.Sharing.Useful) > 0.3 {
		t.Errorf("the tenants' useful parts make %g %%, and %g %% are useful", sum, r.Sharing.Useful)
	}
}

// Under every order what jobs held is what they do, what they lost of that, and what starting again took.
func TestWhatIsHeldIsDoneOrLost(t *testing.T) {
	for seed := range uint64(4) {
		trace := GenerateJobs(2, 1.1, seed)
		random := newRandom(seed)
		var work float64
		for i := range trace.Jobs {
			j := &trace.Jobs[i]
			j.Checkpoint = []engine.Time{0, NeverSaves, 60_000_000, 1_800_000_000}[random.below(4)]
			j.Restart = engine.Time(random.below(3)) * 300_000_000
			work += float64(j.Duration) * float64(j.Compute()) / 1e9
		}
		trace.Fail(2_400_000_000, 300_000_000, seed)
		for _, o := range orders {
			r := runJobs(t, trace, o)
			held := r.Utilisation / 100 * r.Makespan * float64(r.Capacity) / 1000
			if sum := work + r.Lost.Work + r.Lost.Restart; math.Abs(held-sum) > 1e-4*sum {
				t.Errorf("seed %d, %s: %g device-seconds are held, and %g are work, %g lost and %g starting again", seed, o, held, work, r.Lost.Work, r.Lost.Restart)
			}
			if r.Lost.Work <= 0 || r.Lost.Restart <= 0 {
				t.Errorf("seed %d, %s: %+v: nothing is lost, so nothing is shown", seed, o, *r.Lost)
			}
		}
	}
}

// Two that take each other's place each day before either has saved would go on for ever.
func TestEvictedInVain(t *testing.T) {
	trace := few(t, "nodes 1 devices=1", "job a run=20h checkpoint=never queue=light", "job b run=20h checkpoint=never queue=dark")
	at := rules(t, "2026-01-05 08:00:00", "queue light quota=1", "queue dark quota=0", "window night from=20:00 to=08:00", "queue light quota=0", "queue dark quota=1")
	_, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: at})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("were evicted %d times in a row", maxVain)) {
		t.Errorf("it comes to %v", err)
	}
	trace.Jobs[0].Checkpoint = 3_600_000_000
	if r, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: at}); err != nil || r.Jobs != 2 {
		t.Errorf("where one of them saves: %v", err)
	}
}
