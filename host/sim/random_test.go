package sim

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/policy"
)

// drawn writes lines of words at random.
type drawn struct {
	*rapid.T
	lines []string
}

func (d *drawn) line(format string, args ...any) {
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// add writes more words to the last line, one time in so many.
func (d *drawn) add(oneIn int, words func() string) {
	if rapid.IntRange(1, oneIn).Draw(d.T, "says") == 1 {
		d.lines[len(d.lines)-1] += " " + words()
	}
}

func (d *drawn) number(least, most int) int { return rapid.IntRange(least, most).Draw(d.T, "number") }

func (d *drawn) one(of ...string) string { return rapid.SampledFrom(of).Draw(d.T, "one") }

func (d *drawn) text() string { return strings.Join(d.lines, "\n") + "\n" }

// randomTrace writes a small trace: nodes that are few, so that jobs are in each other's way.
func randomTrace(t *rapid.T) string {
	d := &drawn{T: t, lines: []string{formatLine}}
	nodes := 0
	for range d.number(1, 2) {
		count := d.number(1, 2)
		nodes += count
		d.line("nodes %d devices=%s", count, d.one("1", "2", "4"))
		d.add(4, func() string { return d.one("cpu=32 ram=128Gi", "in=rack/r1", "linked=2 numa=2", "model=L4") })
	}
	d.line("queue org quota=8")
	d.line("queue a parent=org quota=0 weight=2")
	d.line("queue b parent=org")
	d.line("queue c quota=%d", d.number(0, 4))
	for i := range d.number(2, 14) {
		d.line("job j%d at=%dm run=%dm queue=%s user=u%d", i, d.number(0, 200), d.number(1, 200), d.one("a", "b", "c"), d.number(0, 2))
		d.add(2, func() string { return "tasks=" + d.one("2", "3", "1..4", "2..6") })
		d.add(3, func() string { return fmt.Sprintf("devices=%d", d.number(1, 4)) })
		d.add(2, func() string { return "gpu=" + d.one("0.25", "0.5..", "0.1..0.3", "0.7") })
		d.add(4, func() string { return "mem=" + d.one("4Gi", "10Gi..20Gi") })
		d.add(4, func() string { return "preemptible=no" })
		d.add(3, func() string { return fmt.Sprintf("priority=%d", d.number(-5, 50)) })
		d.add(6, func() string { return fmt.Sprintf("priority-until=%dm", d.number(1, 300)) })
		d.add(3, func() string { return fmt.Sprintf("limit=%dm", d.number(1, 300)) })
		d.add(4, func() string { return "checkpoint=" + d.one("10m", "never", "1h") + " restart=" + d.one("1m", "5m") })
		d.add(8, func() string { return d.one("same=rack", "prefer=rack", "cpu=2") })
	}
	for range d.number(0, 2) {
		d.line("fail node-%05d at=%dm for=%dm", d.number(0, nodes-1), d.number(0, 300), d.number(1, 100))
	}
	return d.text()
}

// randomPolicy writes a policy file for the queues of such a trace.
func randomPolicy(t *rapid.T) string {
	d := &drawn{T: t, lines: []string{policy.FormatLine}}
	orders := []string{"fair", "fair+priority", "fair+priority:1h", "priority+served:1m", "shortest:2", "fifo", "held:1m"}
	d.line("queue org quota=8 order=%s", d.one(orders...))
	d.line("queue a parent=org quota=%d weight=%d", d.number(0, 3), d.number(1, 5))
	d.add(2, func() string {
		return d.one("hours=3/day", "hours=30/day", "longest-run=2h", "min-run=15m", "disruptions=2/24h", "limit=4", "priority=5 priority-until=2026-01-05T03:00")
	})
	d.line("queue b parent=org quota=%d", d.number(0, 4))
	d.add(2, func() string { return d.one("min-run=30m", "order=priority", "order=shortest:3") })
	d.line("queue c quota=%d", d.number(0, 6))
	d.line("%s", d.one("backfill predicted", "half-life 1d", "defragment moves-per-hour=5 free=2", "placement cost=5 power=1 linked=10", "# nothing"))
	d.line("%s", d.one("pool p classes=training,batch,inference,interactive devices=0-1 lends=yes", "# none", "# none"))
	d.line("window w days=mon-sun from=%02d:00 to=%02d:30", d.number(0, 23), d.number(0, 23))
	d.line("queue a quota=%d order=%s", d.number(0, 3), d.one(orders...))
	return d.text()
}

// Whatever a trace and a policy say that hold together, the run comes to an end, all jobs are accounted for, and nothing is held by then.
func TestRandomTracesEnd(t *testing.T) {
	for name, with := range map[string]func(*rapid.T, *Trace, *JobOptions){
		"by the orders": func(t *rapid.T, _ *Trace, o *JobOptions) { o.Order = rapid.SampledFrom(orders).Draw(t, "order") },
		"by a policy":   func(*rapid.T, *Trace, *JobOptions) {},
		"among more failures": func(t *rapid.T, trace *Trace, _ *JobOptions) {
			trace.Fail(20*3_600_000_000, 3_600_000_000, rapid.Uint64().Draw(t, "seed"))
		},
		"on devices that are shared": func(_ *rapid.T, _ *Trace, o *JobOptions) {
			o.Sharing = &Sharing{Interference: MadeInterference(), Duty: MadeDuty(1)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				lines, ruled := randomTrace(t), ""
				trace, err := scanLines("random.trace", strings.NewReader(lines), nil)
				if err != nil {
					t.Fatalf("%v\n%s", err, lines)
				}
				o := JobOptions{Order: Fair}
				if with(t, trace, &o); o.Order == Fair {
					ruled = randomPolicy(t)
					named, err := policy.Read("random.policy", ruled)
					if err != nil {
						t.Fatalf("%v\n%s", err, ruled)
					}
					o.Rules = &Rules{Policy: named, Start: time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)}
				}
				if err := runToItsEnd(t, trace, o); err != nil {
					t.Fatalf("%s: %v\n%s%s", o.Order, err, lines, ruled)
				}
			})
		})
	}
}

// runToItsEnd runs a trace and looks at all that it leaves.
func runToItsEnd(t *rapid.T, trace *Trace, o JobOptions) error {
	var text bytes.Buffer
	log, err := engine.NewLogWriter(&text, engine.New(engine.Config{NoBackfill: o.Order == FirstCome}).Snapshot())
	if err != nil {
		return err
	}
	o.Log = log
	r, err := newJobRun(trace, o)
	if err != nil {
		return err
	}
	var broken error
	o.Told = func(Progress) {
		if broken == nil {
			broken = r.engine.CheckInvariants()
		}
		for m := range r.running {
			if long := r.now - m.began; broken == nil && m.job.TimeLimit > 0 && long >= m.job.TimeLimit {
				broken = fmt.Errorf("job %s still runs after %d µs, and its limit is %d", m.job.ID, long, m.job.TimeLimit)
			}
		}
	}
	if err := r.all(t.Context(), trace, o); err != nil {
		return err
	}
	if broken != nil {
		return broken
	}
	if all := r.out.Jobs + len(r.out.NeverRun); all != len(trace.Jobs) || len(r.byID) > 0 {
		return fmt.Errorf("%d jobs ended and %d never ran, of %d; %d are left", r.out.Jobs, len(r.out.NeverRun), len(trace.Jobs), len(r.byID))
	}
	var held int64
	for _, c := range r.usage {
		held += c.amount
	}
	if held != 0 || r.wanted != 0 || len(r.running) > 0 || len(r.energy.held) > 0 || len(r.pieces.held) > 0 {
		return fmt.Errorf("at the end %d thousandths are held and %d wanted, %d jobs run, and %d and %d tasks are on devices", held, r.wanted, len(r.running), len(r.energy.held), len(r.pieces.held))
	}
	for _, f := range r.ended {
		if whole := f.job.Takes(); f.job.Max <= f.job.Tasks && f.completion < whole {
			return fmt.Errorf("job %s takes %d µs and is over after %d", f.job.ID, whole, f.completion)
		}
	}
	return sameByItsRecord(r, text.Bytes())
}

// sameByItsRecord says what the record of a run has otherwise than the run. Where the simulator itself stops jobs a record does not know that they were stopped.
func sameByItsRecord(r *jobRun, text []byte) error {
	if r.order.chooses() {
		return nil
	}
	record, err := ReadRecord("record", text)
	if err != nil {
		return err
	}
	state, err := record.state()
	if err != nil {
		return err
	}
	var read Recording
	read.listen(state, record.taken())
	is, want := read.Was, &r.out
	if is.Jobs != want.Jobs || is.Preemptions != want.Preemptions || math.Abs(is.MeanJCT-want.MeanJCT) > 1e-6 || math.Abs(is.MeanWait-want.MeanWait) > 1e-6 {
		return fmt.Errorf("by its record %d jobs ended, %d were preempted, mean JCT %g s, wait %g s; in the run %d, %d, %g s and %g s", is.Jobs, is.Preemptions, is.MeanJCT, is.MeanWait, want.Jobs, want.Preemptions, want.MeanJCT, want.MeanWait)
	}
	return nil
}

// What a gang's tasks are to be told of comes in turn, whatever is decided on what was told of the first, and of a job that is over nothing more is told.
func TestAnswersComeInTurn(t *testing.T) {
	for name, c := range map[string]struct{ trace, policy []string }{
		"evicted while its second task starts": {
			[]string{"nodes 1 devices=2", "job j19 run=146m", "job j26 run=187m queue=a tasks=2", "job j36 run=81m queue=b"},
			[]string{"queue org order=held:1m", "queue a parent=org", "queue b parent=org quota=4"},
		},
		"evicted while its second task ends": {
			[]string{"nodes 3 devices=1", "job j8 at=72m run=49m queue=b tasks=2", "job j20 at=88m run=111m queue=b", "job j51 at=32m run=100m queue=c", "job j54 at=85m run=121m queue=a"},
			[]string{"queue org quota=8 order=held:1m", "queue a quota=2", "queue b parent=org", "queue c quota=3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			trace := few(t, c.trace...)
			r, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: rules(t, "2026-01-05 00:00:00", c.policy...)})
			if err != nil || r.Jobs != len(trace.Jobs) {
				t.Errorf("%v, %+v", err, r)
			}
		})
	}
}

// A run in which time stands still ends with a sentence: a node that goes and comes back over and over at one moment.
func TestStandstillEnds(t *testing.T) {
	trace := few(t, "nodes 1", "job a run=1h")
	at := engine.At{At: 60_000_000}
	node := trace.Nodes[0]
	node.At = at
	for range maxDecided {
		trace.Events = append(trace.Events, engine.NodeGone{At: at, Node: node.Node}, node)
	}
	_, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair})
	if err == nil || !strings.HasPrefix(err.Error(), "1m0s into the run the engine starts and ends job a over and over at one moment") {
		t.Errorf("it ends with %v", err)
	}
}
