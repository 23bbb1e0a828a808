// Command share measures on simulated devices what `make bench-share` reports: whether shares are delivered as the rule of
// package divide says, whether ceilings hold, how busy the device is kept, how soon an owner gets its floor back, and what all
// that costs. It starts a server of its own; the programs are the examples; delivered time is the device model's own record, which
// nothing that is measured can write. The worst of all repeats stands, and beside it the same programs without Aliquot.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/bench/report"
)

// memory is what every program of the benchmark gets of the device's memory.
var memory = api.Memory{Floor: api.Amount{Bytes: 1 << 30}, Ceiling: api.Amount{Bytes: 1 << 30}}

// bench is one run of the benchmark.
type bench struct {
	daemon  *daemon
	trainer string
	waker   string
	server  string

	repeats int
	wakes   int // of an owner, in each repeat
	burst   int // tasks submitted at once
	window  time.Duration
	bare    int // how often, without Aliquot
	only    *regexp.Regexp
}

// The least that a whole run measures. Figures of less are those of a part.
const (
	wholeRepeats = 5
	wholeWakes   = 1000
	wholeBurst   = 1000
	wholeWindow  = 10 * time.Second
	wholeBare    = 1
)

// part says by what this run is less than the whole; empty: it is whole.
func (b *bench) part() string {
	var less []string
	if only := b.only.String(); only != "" {
		less = append(less, "-only "+only)
	}
	for _, one := range []struct {
		name        string
		have, whole int
	}{
		{"-repeats", b.repeats, wholeRepeats}, {"-wakes", b.wakes, wholeWakes}, {"-burst", b.burst, wholeBurst}, {"-bare", b.bare, wholeBare},
	} {
		if one.have < one.whole {
			less = append(less, fmt.Sprintf("%s %d of %d", one.name, one.have, one.whole))
		}
	}
	if b.window < wholeWindow {
		less = append(less, fmt.Sprintf("-window %v of %v", b.window, wholeWindow))
	}
	return strings.Join(less, ", ")
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	missed, err := run(ctx)
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench-share: %v\n", err)
		os.Exit(2)
	}
	if missed > 0 {
		fmt.Fprintf(os.Stderr, "bench-share: %d goals were missed\n", missed)
		os.Exit(1)
	}
}

func run(ctx context.Context) (missed int, err error) {
	b := bench{}
	build := flag.String("build", "build", "folder of what make built")
	out := flag.String("out", "build/bench/share.json", "where the report of a whole run goes; that of a part goes beside it, as share-part.json")
	only := flag.String("only", "", "measure only what matches this regular expression; the figures are not the whole then")
	flag.IntVar(&b.repeats, "repeats", wholeRepeats, "how often each figure is measured; the worst stands")
	flag.DurationVar(&b.window, "window", wholeWindow, "over which shares are judged")
	flag.IntVar(&b.wakes, "wakes", wholeWakes, "how often an owner wakes, in each repeat")
	flag.IntVar(&b.burst, "burst", wholeBurst, "how many tasks are submitted at once")
	flag.IntVar(&b.bare, "bare", wholeBare, "how often the same programs are measured without Aliquot; the worst stands")
	flag.Parse()
	if b.repeats < 1 || b.bare < 0 || b.wakes < 1 || b.burst < 1 || b.window <= 0 || flag.NArg() > 0 {
		return 0, errors.New("-repeats, -wakes, -burst and -window must be over 0, -bare at least 0, and there are no arguments")
	}
	if b.only, err = regexp.Compile(*only); err != nil {
		return 0, err
	}
	folder, err := filepath.Abs(*build)
	if err != nil {
		return 0, err
	}
	b.trainer, b.waker = filepath.Join(folder, "examples", "trainer"), filepath.Join(folder, "bench", "waker")
	b.server = filepath.Join(folder, "examples", "inference")
	for _, need := range []string{b.trainer, b.waker, b.server, filepath.Join(folder, "aliquot")} {
		if _, err := os.Stat(need); err != nil {
			return 0, fmt.Errorf("a program is missing: %w; make bench-share builds it", err)
		}
	}
	if b.daemon, err = startDaemon(ctx, filepath.Join(folder, "aliquot"), "h200x1"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.daemon.stop()) }()

	r := report.Report{Part: b.part()}
	if err := b.measure(ctx, &r); err != nil {
		return 0, err
	}
	if len(r.Metrics) == 0 {
		return 0, fmt.Errorf("-only %s: no measurement has such a name", b.only)
	}
	if err := r.Table(os.Stdout); err != nil {
		return 0, err
	}
	fmt.Printf("\nSimulated devices, uncalibrated. Worst of %d repeats, shares over %v; timers and loads as on this machine now.\n", b.repeats, b.window)
	return r.Missed(), r.Write(*out)
}

// measure takes every figure that was asked for.
func (b *bench) measure(ctx context.Context, r *report.Report) error {
	for _, step := range []struct {
		name    string
		measure func(context.Context, *report.Report) error
	}{
		{"timer", b.measureTimer},
		{"idle", b.measureIdle},
		{"run", b.measureRun},
		{"burst", b.measureBurst},
		{"give_back 500µs", func(ctx context.Context, r *report.Report) error {
			return b.measureGiveBack(ctx, r, 500*time.Microsecond)
		}},
		{"give_back 20ms", func(ctx context.Context, r *report.Report) error {
			return b.measureGiveBack(ctx, r, 20*time.Millisecond)
		}},
		{"inference", b.measureInference},
		{"shares", b.measureAllShares},
	} {
		if step.name != "shares" && !b.only.MatchString(step.name) {
			continue
		}
		b.say("%s", step.name)
		if err := step.measure(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// measureAllShares runs every scenario, says how each went, and reports the worst over all of them.
func (b *bench) measureAllShares(ctx context.Context, r *report.Report) error {
	var worst outcome
	measured := 0
	for _, s := range scenarios() {
		if !b.only.MatchString("shares " + s.name) {
			continue
		}
		o, err := b.measureShares(ctx, s)
		if err != nil {
			return err
		}
		b.say("shares %s: error %.2f (without %.2f) points, over a ceiling %.2f (%.2f), busy %.1f (%.1f) %%, arbiter %.1f %%", s.name,
			o.with.shareError, o.without.shareError, o.with.overshoot, o.without.overshoot, o.with.busy, o.without.busy, o.arbiter)
		b.say("  worst: got %.1f, due %.1f", o.with.got, o.with.due)
		if measured == 0 {
			worst = o
		}
		worst.with, worst.without = worst.with.worse(o.with), worst.without.worse(o.without)
		worst.arbiter = max(worst.arbiter, o.arbiter)
		measured++
	}
	if measured == 0 {
		return nil
	}
	r.AtMost("share_error", worst.with.shareError, 2, "points")
	if b.bare > 0 {
		r.Beside("share_error without Aliquot", worst.without.shareError, "points")
		r.Beside("ceiling_overshoot without Aliquot", worst.without.overshoot, "points")
		r.Beside("device_busy without Aliquot", worst.without.busy, "% of what the demand allows")
	}
	r.AtMost("ceiling_overshoot", worst.with.overshoot, 1, "points")
	r.AtLeast("device_busy", worst.with.busy, 97, "% of what the demand allows")
	r.AtMost("arbiter_contended", worst.arbiter, 6, "% of a core")
	return nil
}

// say tells how far the run is, on standard error.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}
