// Package main measures how fast pods with fractions of devices are placed on a real API server, whose nodes only seem to be there (KWOK):
// beside a loop that makes the same writes and decides nothing, and beside the stock scheduler on the same claims. What comes in are sizes; what
// goes out are a table and kube.json. It needs root, and builds etcd, Kubernetes and KWOK into ALIQUOT_KUBE_CACHE where they are not there yet.
// It ends with status 1 if a goal was missed, 2 if it could not measure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/aliquot-dev/aliquot/bench/report"
	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
	"github.com/aliquot-dev/aliquot/host/sim"
)

func main() {
	b := &bench{size: full}
	flag.IntVar(&b.nodes, "nodes", full.nodes, "nodes, of 8 devices each")
	flag.IntVar(&b.pods, "pods", full.pods, "pods that wait, each with a fraction of a device")
	flag.IntVar(&b.stockNodes, "stock-nodes", full.stockNodes, "nodes beside the stock scheduler")
	flag.IntVar(&b.stockPods, "stock-pods", full.stockPods, "pods beside the stock scheduler")
	flag.DurationVar(&b.stockLimit, "stock-limit", full.stockLimit, "for how long the stock scheduler may try")
	flag.IntVar(&b.turns, "turns", full.turns, "how often our scheduler places all pods: the bare loop runs before and after each time")
	flag.StringVar(&b.only, "only", "", "measure a part: "+strings.Join(parts, ", "))
	flag.StringVar(&b.root, "root", filepath.Join("..", ".."), "the repository")
	flag.StringVar(&b.state, "state", "/var/lib/aliquot-bench", "folder of the cluster while it runs")
	flag.StringVar(&b.profiles, "profiles", "", "keep profiles of the scheduler in this folder")
	flag.Parse()
	b.cache = os.Getenv("ALIQUOT_KUBE_CACHE")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := b.run(ctx)
	if err == nil {
		err = errors.Join(b.Table(os.Stdout), b.Write(filepath.Join(b.root, "build", "bench", "kube.json")))
	} else if len(b.Metrics) > 0 {
		b.Part = "it ended early"
		err = errors.Join(err, b.Table(os.Stdout))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-kube:", err)
		stop()
		os.Exit(2)
	}
	if b.Missed() > 0 {
		os.Exit(1)
	}
}

// size is how large everything is that is measured.
type size struct {
	nodes, pods           int
	turns                 int
	stockNodes, stockPods int
	stockLimit            time.Duration
}

// full is what the goals are for.
var full = size{nodes: 5000, pods: 10_000, turns: 2, stockNodes: 500, stockPods: 1000, stockLimit: 3 * time.Minute}

// parts are what can be measured alone.
var parts = []string{"bare", "ours", "stock"}

// bench is one run of the benchmark.
type bench struct {
	size
	report.Report
	only        string
	root, cache string
	state       string
	profiles    string
	bares       []written // the bare loop, before our scheduler and after each of its turns
	drains      []drained // our scheduler's turns
	records     int       // of our scheduler that the simulator was given
	replayed    int       // steps in them
	differs     float64   // in how many of them it decided otherwise
	program     string
}

func (b *bench) run(ctx context.Context) error {
	if b.only != "" && !slices.Contains(parts, b.only) {
		return fmt.Errorf("there is no part %q: give one of %s", b.only, strings.Join(parts, ", "))
	}
	if b.turns < 1 {
		return fmt.Errorf("%d turns: give 1 or more", b.turns)
	}
	if b.nodes < 1 || b.stockNodes < 1 || b.pods < 2*triedPart || b.stockPods < 2 {
		return fmt.Errorf("%d nodes and %d pods, %d and %d beside the stock scheduler: there must be a node, %d pods and 2 beside the stock scheduler", b.nodes, b.pods, b.stockNodes, b.stockPods, 2*triedPart)
	}
	b.Part = b.less()
	folder, err := os.MkdirTemp("", "bench-kube-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if b.program, err = program(ctx, folder); err != nil {
		return err
	}
	// The speed of a machine changes from minute to minute: the bare loop and our scheduler take turns.
	order := []string{"bare", "ours", "bare"}
	for range b.turns - 1 {
		order = append(order, "again", "bare")
	}
	order = append(order, "stock")
	if b.only != "" {
		order = []string{b.only}
	}
	measure := map[string]func(context.Context) error{"bare": b.bare, "ours": b.ours, "again": b.again, "stock": b.stock}
	for _, part := range order {
		begun := time.Now()
		if err := measure[part](ctx); err != nil {
			return fmt.Errorf("measure %s: %w", part, err)
		}
		fmt.Fprintf(os.Stderr, "%s: measured in %.0f s\n", part, time.Since(begun).Seconds())
	}
	b.compare()
	return nil
}

// compare tells of the bare loop and of our scheduler, and how each of its turns was beside the mean of the bare loop before and after it.
func (b *bench) compare() {
	var bare, ours written
	for i, one := range b.bares {
		bare.rate, bare.cpu = bare.rate+one.rate/float64(len(b.bares)), bare.cpu+one.cpu/time.Duration(len(b.bares))
		b.Beside(fmt.Sprintf("bare_per_second/%d", i+1), one.rate, "pods/s")
		b.Beside(fmt.Sprintf("bare_writers/%d", i+1), float64(one.at), "")
	}
	for i, one := range b.drains {
		ours.rate, ours.cpu = ours.rate+one.rate/float64(len(b.drains)), ours.cpu+one.cpu/time.Duration(len(b.drains)*b.pods)
		b.Beside(fmt.Sprintf("bound_per_second/%d", i+1), one.rate, "pods/s")
	}
	if len(b.bares) > 0 {
		b.Beside("bare_per_second", bare.rate, "pods/s")
		b.Beside("bare_cpu_per_pod", milliseconds(bare.cpu), "ms")
	}
	if len(b.drains) > 0 {
		b.Beside("bound_per_second", ours.rate, "pods/s")
		b.Beside("cpu_per_pod", milliseconds(ours.cpu), "ms")
	}
	if b.records > 0 {
		b.Beside("replayed_steps", float64(b.replayed), "")
		b.AtMost("replay_differs", b.differs, 0, "")
	}
	if len(b.bares) != len(b.drains)+1 || len(b.drains) == 0 {
		return
	}
	var rate, cpu float64
	for i, one := range b.drains {
		before, after := b.bares[i], b.bares[i+1]
		turns := float64(len(b.drains))
		rate += one.rate / ((before.rate + after.rate) / 2) / turns
		cpu += float64(before.cpu+after.cpu) / 2 / float64(one.cpu/time.Duration(b.pods)) / turns
	}
	b.AtLeast("bound_per_second_vs_bare", rate, 0.8, "")
	b.Beside("bare_cpu_over_ours", cpu, "")
}

// less is by what a run is less than the whole; empty: it is whole.
func (b *bench) less() string {
	var all []string
	if b.only != "" {
		all = append(all, "-only "+b.only)
	}
	if b.size != full {
		all = append(all, fmt.Sprintf("-nodes %d -pods %d -turns %d -stock-nodes %d -stock-pods %d -stock-limit %s", b.nodes, b.pods, b.turns, b.stockNodes, b.stockPods, b.stockLimit))
	}
	return strings.Join(all, " ")
}

// on runs do on a fleet of its own, with pods that wait.
func (b *bench) on(ctx context.Context, nodes, pods int, name string, do func(f *fleet, tasks []task) error) error {
	begun := time.Now()
	f, err := b.begin(ctx, nodes)
	if err != nil {
		return err
	}
	tasks, err := f.submit(ctx, "waits", pods, name)
	if err == nil {
		err = f.settled(ctx)
	}
	if err == nil {
		fmt.Fprintf(os.Stderr, "%d nodes and %d pods are there after %.0f s\n", nodes, pods, time.Since(begun).Seconds())
		err = do(f, tasks)
	}
	return errors.Join(err, f.Stop())
}

func (b *bench) bare(ctx context.Context) error {
	return b.on(ctx, b.nodes, b.pods, scheduler.Name, func(f *fleet, tasks []task) error {
		best, err := f.bare(ctx, tasks)
		b.bares = append(b.bares, best)
		return err
	})
}

// The rate at which pods arrive, per second, and how many.
const (
	arriveRate = 50
	arrivePart = 20
)

func (b *bench) ours(ctx context.Context) error {
	return b.on(ctx, b.nodes, b.pods, scheduler.Name, func(f *fleet, tasks []task) error {
		o, d, err := f.drain(ctx, b.program, len(tasks), b.profiles)
		if err != nil {
			return err
		}
		b.drains = append(b.drains, d)
		b.Beside("cpu_per_pod/scheduler", milliseconds(d.own/time.Duration(len(tasks))), "ms")
		b.Beside("start_to_all_seen", d.seeing.Seconds(), "s")
		more := max(1, b.pods/arrivePart)
		took, err := f.arrive(ctx, "arrives", len(tasks), more, arriveRate)
		if err != nil {
			return err
		}
		slices.Sort(took)
		b.Beside("creation_to_bound_p50", milliseconds(quantile(took, 0.5)), "ms")
		b.Beside("creation_to_bound_p99", milliseconds(quantile(took, 0.99)), "ms")
		memory := 0.0 // of the first, and of those that begin where all its pods run
		weigh := func() error {
			most, err := peak(o.PID())
			memory = max(memory, most)
			return err
		}
		if err := weigh(); err != nil {
			return err
		}
		o, again, err := f.restart(ctx, o.End, b.program, "after-end")
		if err != nil {
			return err
		}
		if err := weigh(); err != nil {
			return err
		}
		b.AtMost("restart_to_first_decision", again.Seconds(), 10, "s")
		record := filepath.Join(f.Folder(), "events.log")
		o, again, err = f.restart(ctx, o.Kill, b.program, "after-kill", "--record", record)
		if err != nil {
			return err
		}
		b.AtMost("killed_to_first_decision", again.Seconds(), 10, "s")
		if _, err := f.arrive(ctx, "recorded", len(tasks)+more+2, more, arriveRate); err != nil {
			return err
		}
		if err := weigh(); err != nil {
			return err
		}
		b.AtMost("scheduler_memory_peak", memory, 1024, "MiB")
		o.End()
		return b.replay(record)
	})
}

// again has our scheduler place the same pods once more, in a cluster of its own, and record what it hears and decides.
func (b *bench) again(ctx context.Context) error {
	return b.on(ctx, b.nodes, b.pods, scheduler.Name, func(f *fleet, tasks []task) error {
		record := filepath.Join(f.Folder(), "events.log")
		o, d, err := f.drain(ctx, b.program, len(tasks), "", "--record", record)
		if err != nil {
			return err
		}
		b.drains = append(b.drains, d)
		o.End()
		return b.replay(record)
	})
}

// replay has the simulator decide on the events that a scheduler recorded.
func (b *bench) replay(record string) error {
	read, err := sim.ReadLog(record)
	if err != nil {
		return err
	}
	b.records, b.replayed = b.records+1, b.replayed+read.Steps
	if read.Differs != nil {
		fmt.Fprintln(os.Stderr, "the simulator decides otherwise:", read.Differs)
		b.differs++
	}
	return nil
}

func (b *bench) stock(ctx context.Context) error {
	at := fmt.Sprintf("@%d_nodes", b.stockNodes)
	err := b.on(ctx, b.stockNodes, b.stockPods, "default-scheduler", func(f *fleet, tasks []task) error {
		placed, rate, err := f.drainStock(ctx, len(tasks), b.stockLimit)
		b.Beside("stock_bound_per_second"+at, rate, "pods/s")
		b.Beside("stock_bound"+at, float64(placed), "pods")
		return err
	})
	if err != nil {
		return err
	}
	return b.on(ctx, b.stockNodes, b.stockPods, scheduler.Name, func(f *fleet, tasks []task) error {
		_, d, err := f.drain(ctx, b.program, len(tasks), "")
		b.Beside("bound_per_second"+at, d.rate, "pods/s")
		return err
	})
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

// quantile is of what is sorted.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
