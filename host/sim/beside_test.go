package sim

import (
	"math"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// sloped is an interference in which every program loses so much beside a neighbour that keeps all of the device busy.
func sloped(slope float64) *Interference {
	x := newInterference()
	x.slope = [4]float64{slope, slope, slope, slope}
	return x
}

// steady are duty cycles of services that are at these thousandths, one after the other, for ten seconds each.
func steady(services map[string][]api.Milli) *Duty {
	d := &Duty{Step: 10_000_000, known: map[string]int{}}
	for name, busy := range services {
		d.add(Service{Name: name, Busy: busy})
	}
	return d
}

func runShared(t *testing.T, trace *Trace, of Sharing, until float64) *JobResult {
	t.Helper()
	r, err := RunJobs(t.Context(), trace, JobOptions{Order: Backfill, Sharing: &of, Until: engine.Time(until * 1e6)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-3*max(1, math.Abs(b)) }

// What is shared by hand.
func TestDevicesByHand(t *testing.T) {
	for name, c := range map[string]struct {
		lines []string
		of    Sharing
		until float64
		jct   float64 // mean
		want  SharingResult
	}{
		"two want 0.6 each and get half": {
			lines: []string{"job a run=100s gpu=0.5..1 busy=0.6", "job b run=100s gpu=0.5..1 busy=0.6"},
			jct:   120,
			want:  SharingResult{Useful: 100, Busy: 100, Speed: 500 / 6.0, AtOnce: 2},
		},
		"the rest goes by weight, which is the floor": { // 0.6 + 0.1 × 3/4 … until both want no more: 0.675 and 0.225 of 0.9
			lines: []string{"job a run=100s gpu=0.6..1", "job b run=100s gpu=0.2..1"},
			until: 10,
			want:  SharingResult{Useful: 100, Busy: 100, Speed: 50, AtOnce: 2, Left: 2},
		},
		"a ceiling holds where nobody else is": {
			lines: []string{"job a run=100s gpu=0.2..0.3 busy=0.6"},
			jct:   200,
			want:  SharingResult{Useful: 30, Busy: 30, Speed: 50, AtOnce: 1},
		},
		"neighbours slow what has room enough, also below its floor": { // 1 - 0.1 × 0.4 beside the other
			lines: []string{"job a run=96s gpu=0.4..1 busy=0.4", "job b run=96s gpu=0.4..1 busy=0.4"},
			of:    Sharing{Interference: sloped(0.1)},
			jct:   100,
			want:  SharingResult{Useful: 76.8, Busy: 80, FloorsMissed: 100, Slowed: 4, SlowedP99: 4, Speed: 96, AtOnce: 2},
		},
		"not below a floor that leaves room": {
			lines: []string{"job a run=96s gpu=0.3..1 busy=0.4", "job b run=96s gpu=0.3..1 busy=0.4"},
			of:    Sharing{Interference: sloped(0.1)},
			jct:   100,
			want:  SharingResult{Useful: 76.8, Busy: 80, Speed: 96, AtOnce: 2},
		},
		"who is alone again is as fast again": { // 48 s at 0.96 make 46.08; b goes on alone with 50
			lines: []string{"job a run=46.08s gpu=0.4..1 busy=0.4", "job b run=96.08s gpu=0.4..1 busy=0.4"},
			of:    Sharing{Interference: sloped(0.1)},
			jct:   (48 + 98) / 2.0,
			want: SharingResult{
				Useful: 40 * (46.08 + 96.08) / 98, Busy: 40 * (48 + 98) / 98.0, FloorsMissed: 96 / 146.0 * 100, Slowed: 4 * 96 / 146.0, SlowedP99: 4,
				Speed: (96*0.96 + 50) / 146 * 100, AtOnce: 146 / 98.0,
			},
		},
		"a service takes its floor back and bursts into the rest": { // 0.1 of 0.1 wanted, then 0.5 of 0.9 beside 0.5
			lines: []string{"job a run=40s gpu=0.5..1 busy=0.5", "job s run=40s gpu=0.5..1 service=s"},
			of:    Sharing{Duty: steady(map[string][]api.Milli{"s": {100, 900}})},
			jct:   40,
			want:  SharingResult{Useful: 80, Busy: 80, Speed: 100, Served: 60, AtOnce: 2},
		},
		"a service that is slowed needs the device for longer": { // 0.3 at 0.95 are 0.316
			lines: []string{"job a run=40s gpu=0.5..1 busy=0.5", "job s run=40s gpu=0.4..1 service=s"},
			of:    Sharing{Interference: sloped(0.1), Duty: steady(map[string][]api.Milli{"s": {300}})},
			until: 40,
			want:  SharingResult{Useful: 30 + 50*0.97, Busy: 81.6, FloorsMissed: 50, Slowed: 100 * 0.03 * 0.5 / 0.8, SlowedP99: 3, Speed: 97, Served: 100, AtOnce: 2, Left: 1},
		},
		"nothing is wanted and nothing missed": {
			lines: []string{"job s run=40s gpu=0.4..1 service=s"},
			of:    Sharing{Duty: steady(map[string][]api.Milli{"s": {0}})},
			jct:   40,
			want:  SharingResult{AtOnce: 1},
		},
		"a program is as busy as it was measured": {
			lines: []string{"job a run=10s gpu=0.5..1 program=made-11"},
			of:    Sharing{Interference: MadeInterference()},
			jct:   10,
			want:  SharingResult{Useful: 7, Busy: 7, Speed: 100, AtOnce: 1},
		},
	} {
		r := runShared(t, few(t, append([]string{"nodes 1 devices=1"}, c.lines...)...), c.of, c.until)
		got := r.Sharing
		same := near(r.MeanJCT, c.jct) || c.jct == 0
		for i, figure := range got.figures() {
			same = same && near(figure.Value, c.want.figures()[i].Value)
		}
		if !same {
			t.Errorf("%s: mean JCT %g s, want %g\n got %+v\nwant %+v", name, r.MeanJCT, c.jct, got.figures(), c.want.figures())
		}
	}
}

// A job on two devices goes on as fast as on the one where it is the slower, and what it leaves of the other is another's.
func TestGangIsAsFastAsItsSlowestDevice(t *testing.T) {
	r := runShared(t, few(t, "nodes 2 devices=1", "job gang run=60s tasks=2 gpu=0.6..1", "job a run=100s gpu=0.4..1"), Sharing{}, 0)
	// 100 s at 0.6 of the speed; a has 40 of its 100 s done by then.
	if !near(r.MeanJCT, (100+160)/2.0) || !near(r.Sharing.Useful, (2*60+100)/320.0*100) {
		t.Errorf("mean JCT %g s, useful %g %%", r.MeanJCT, r.Sharing.Useful)
	}
}

// At a horizon the run is over, with what runs then; also where nothing happens there any more.
func TestHorizon(t *testing.T) {
	trace := few(t, "nodes 1 devices=1", "job a run=10s", "job b run=100s", "job c run=10s at=5s")
	for until, want := range map[float64]struct {
		jobs, left int
		used       float64
	}{25: {1, 1, 100}, 200: {3, 0, 60}, 10: {1, 1, 100}} {
		r := runShared(t, trace, Sharing{}, until)
		if r.Jobs != want.jobs || r.Sharing.Left != want.left || !near(r.Utilisation, want.used) || r.Makespan != until || !near(r.Sharing.Useful, want.used) {
			t.Errorf("after %g s: %d jobs ended and %d run, %g %% used, %g %% useful, %g s", until, r.Jobs, r.Sharing.Left, r.Utilisation, r.Sharing.Useful, r.Makespan)
		}
	}
}

func TestUnknownService(t *testing.T) {
	trace := few(t, "nodes 1", "job a run=10s service=s")
	for _, of := range []Sharing{{}, {Duty: steady(map[string][]api.Milli{"other": {1}})}} {
		if _, err := RunJobs(t.Context(), trace, JobOptions{Order: Backfill, Sharing: &of}); err == nil || !strings.Contains(err.Error(), "job a follows service s, which is not among the duty cycles") {
			t.Errorf("the error is %v", err)
		}
	}
}

// Whatever runs beside what, and whatever is stopped and moved: once all have ended, what was useful is the work that there was, all of it on devices
// that did no more than they can.
func TestUsefulIsTheWorkThatThereWas(t *testing.T) {
	for seed := range uint64(4) {
		trace, err := GenerateMix(Mix{Nodes: 1, Seed: seed, Load: 2, Horizon: 36_000_000_000, Memory: 80 << 30, TrainerFloor: 500, ServiceFloor: 200}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var work float64 // µs × devices, of trainers
		for i := range trace.Jobs {
			work += float64(trace.Jobs[i].Duration) * float64(trace.Jobs[i].Busy) / 1000
		}
		for _, order := range orders {
			r, err := RunJobs(t.Context(), trace, JobOptions{Order: order, Sharing: MadeSharing(seed)})
			if err != nil {
				t.Fatal(err)
			}
			var trained float64
			for _, tenant := range r.Sharing.Tenants {
				if tenant.Name != "research" && tenant.Name != "product" {
					continue
				}
				for k, v := range tenant.Useful {
					step := min(r.Plots.Step, r.Makespan-float64(k)*r.Plots.Step)
					trained += v / 100 * float64(perNode) * step * 1e6
				}
			}
			s := r.Sharing
			if math.Abs(trained/work-1) > 2e-3 || s.Useful > s.Busy || s.Busy > 100 || r.Jobs != len(trace.Jobs) || s.Left != 0 {
				t.Errorf("%s, seed %d: of %g device-hours of work %g were done; useful %g, busy %g", order, seed, work/3.6e9, trained/3.6e9, s.Useful, s.Busy)
			}
		}
	}
}
