// Command share measures on simulated devices what `make bench-share` reports: whether shares are delivered as the rule of
// package divide says, whether ceilings hold, how busy the device is kept, how soon an owner gets its floor back, and what all
// that costs. It starts servers of its own, one after the other; the programs are the examples; delivered time is the device model's own
// record, which nothing that is measured can write. The worst of all repeats stands, and beside it the same programs without Aliquot.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/aliquot-dev/aliquot/bench/judge"
	"github.com/aliquot-dev/aliquot/bench/report"
)

// bench is one run of the benchmark.
type bench struct {
	daemon  *daemon // nil: none runs
	binary  string  // of aliquot
	trainer string
	waker   string
	server  string
	racer   string
	calls   string

	repeats int
	wakes   int // of an owner, in each repeat
	tries   int // allocations of those that race, in each repeat
	burst   int // tasks submitted at once
	window  time.Duration
	minute  bool // shares are observed for a minute each
	bare    int  // how often, without Aliquot
	only    *regexp.Regexp
	taken   float64 // percent of the machine's CPU time that may be taken from it in a run of shares that counts
	before  string  // a command of the shell, run before each measurement; empty: none
	kept    *kept   // what is measured already; nil: it is not kept

	outcomes []outcome // of the scenarios measured so far
}

// The least that a whole run measures. Figures of less are those of a part.
const (
	wholeRepeats = 5
	wholeWakes   = 2000
	wholeTries   = raceTries / wholeRepeats
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
		{"-repeats", b.repeats, wholeRepeats},
		{"-wakes", b.wakes, wholeWakes},
		{"-tries", b.tries, wholeTries},
		{"-burst", b.burst, wholeBurst},
		{"-bare", b.bare, wholeBare},
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
	out, err := b.parse()
	if err != nil {
		return 0, err
	}
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
	fmt.Printf("\nSimulated devices, uncalibrated. Worst of %d repeats, shares over %v of %v; timers and loads as on this machine now.\n", b.repeats, b.window, b.span())
	return r.Missed(), r.Write(out)
}

// parse reads the command line; out is where the report goes.
func (b *bench) parse() (out string, err error) {
	keep := flag.String("keep", "", "keep each measurement in this file as soon as it is taken, and take those that the same programs came to with the same flags from there: a run that was cut short goes on")
	build := flag.String("build", "build", "folder of what make built")
	flag.StringVar(&out, "out", "build/bench/share.json", "where the report of a whole run goes; that of a part goes beside it, as share-part.json")
	flag.StringVar(&b.before, "before", "", "a command of the shell, run before each measurement: one that waits until the machine has nothing else to do, say")
	flag.Float64Var(&b.taken, "taken", 100, "run shares again where more of the machine's CPU time than these percent was taken from it meanwhile (the \"steal\" of a guest)")
	only := flag.String("only", "", "measure only what matches this regular expression; the figures are not the whole then")
	flag.IntVar(&b.repeats, "repeats", wholeRepeats, "how often each figure is measured; the worst stands")
	flag.DurationVar(&b.window, "window", wholeWindow, "over which shares are judged")
	flag.BoolVar(&b.minute, "minute", false, fmt.Sprintf("observe shares for a minute, not for the window and %v: every window in it counts", slack))
	flag.IntVar(&b.wakes, "wakes", wholeWakes, "how often an owner wakes, in each repeat")
	flag.IntVar(&b.tries, "tries", wholeTries, "how many allocations are tried by those that race for memory, in each repeat")
	flag.IntVar(&b.burst, "burst", wholeBurst, "how many tasks are submitted at once")
	flag.IntVar(&b.bare, "bare", wholeBare, "how often the same programs are measured without Aliquot; the worst stands")
	flag.Parse()
	if b.repeats < 1 || b.bare < 0 || b.wakes < 1 || b.tries < judge.Racers || b.burst < 1 || b.window <= 0 || flag.NArg() > 0 {
		return "", fmt.Errorf("-repeats, -wakes, -burst and -window must be over 0, -tries at least %d, -bare at least 0, and there are no arguments", judge.Racers)
	}
	if b.only, err = regexp.Compile(*only); err != nil {
		return "", err
	}
	folder, err := filepath.Abs(*build)
	if err != nil {
		return "", err
	}
	for program, path := range map[*string]string{
		&b.binary: "aliquot", &b.trainer: "examples/trainer", &b.server: "examples/inference", &b.waker: "bench/waker", &b.racer: "bench/racer",
		&b.calls: "native/shim/test/gate_cost",
	} {
		*program = filepath.Join(folder, path)
		if _, err := os.Stat(*program); err != nil {
			return "", fmt.Errorf("a program is missing: %w; make bench-share builds it", err)
		}
	}
	if *keep == "" {
		return out, nil
	}
	of, err := b.identity()
	if err == nil {
		b.kept, err = readKept(*keep, of)
	}
	return out, err
}

// step is one measurement, on a server with one device.
type step struct {
	name    string
	device  string
	measure func(context.Context, *report.Report) error
}

// steps are all measurements. That of memory is the first on its server: it goes by the most that the device ever held.
func (b *bench) steps() []step {
	giveBack := func(kernel time.Duration) func(context.Context, *report.Report) error {
		return func(ctx context.Context, r *report.Report) error { return b.measureGiveBack(ctx, r, kernel) }
	}
	return []step{
		{"memory", plainDevice, b.measureMemory},
		{"timer", plainDevice, b.measureTimer},
		{"idle", plainDevice, b.measureIdle},
		{"run", plainDevice, b.measureRun},
		{"burst", plainDevice, b.measureBurst},
		{"give_back 500µs", plainDevice, giveBack(500 * time.Microsecond)},
		{"give_back 20ms", plainDevice, giveBack(20 * time.Millisecond)},
		{"inference", plainDevice, b.measureInference},
		{"calls", plainDevice, b.measureCalls},
		{"throughput", plainDevice, b.measureThroughput},
		{"shares", plainDevice, b.measureScenarios},
		{"shares", switchingDevice, b.measureScenarios},
	}
}

// wanted says whether anything of a step was asked for.
func (b *bench) wanted(s step) bool {
	if s.name != "shares" {
		return b.only.MatchString(s.name)
	}
	for _, each := range scenarios() {
		if each.device == s.device && b.only.MatchString("shares "+each.Name) {
			return true
		}
	}
	return false
}

// measure takes every figure that was asked for.
func (b *bench) measure(ctx context.Context, r *report.Report) (err error) {
	defer func() { err = errors.Join(err, b.stop()) }()
	for _, s := range b.steps() {
		if !b.wanted(s) || b.takeKept(s, r) {
			continue
		}
		if b.daemon == nil || b.daemon.device != s.device {
			if err := b.stop(); err != nil {
				return err
			}
			if b.daemon, err = startDaemon(ctx, b.binary, s.device); err != nil {
				return err
			}
		}
		if s.name != "shares" {
			if err := b.ready(ctx); err != nil {
				return err
			}
		}
		b.say("%s", s.name)
		before := len(r.Metrics)
		if err := s.measure(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if s.name == "shares" {
			continue
		}
		if err := b.kept.addStep(s.name, r.Metrics[before:]); err != nil {
			return err
		}
	}
	b.reportShares(r)
	return nil
}

// takeKept reports what a measurement came to before; false: it is to be taken. Sets of shares are looked up one by one.
func (b *bench) takeKept(s step, r *report.Report) bool {
	metrics, ok := b.kept.step(s.name)
	if !ok {
		return false
	}
	b.say("%s: measured before", s.name)
	for _, m := range metrics {
		r.Add(m)
	}
	return true
}

// ready runs what is to be run before each measurement.
func (b *bench) ready(ctx context.Context) error {
	if b.before == "" {
		return nil
	}
	before := exec.CommandContext(ctx, "sh", "-c", b.before)
	before.Stdout, before.Stderr = os.Stderr, os.Stderr
	if err := before.Run(); err != nil {
		return fmt.Errorf("-before %q: %w", b.before, err)
	}
	return nil
}

// stop ends the server that runs, if one does.
func (b *bench) stop() error {
	if b.daemon == nil {
		return nil
	}
	err := b.daemon.stop()
	b.daemon = nil
	return err
}

// say tells how far the run is, on standard error.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}
