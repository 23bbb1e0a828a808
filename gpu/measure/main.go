// Command measure is what gpu.sh runs: it asks a real GPU, or a simulated one, what Aliquot depends on, and measures what Aliquot
// promises there, beside the same programs alone and beside the driver's own time-slicing. What comes in is the folder that
// `make gpu` built; what goes out are gpu.json, summary.txt and log.txt. Each step has its own time limit and fails alone. It
// changes no setting of a device and leaves nothing behind but its output.
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
	"sync"
	"syscall"
	"time"
)

// Of the nine minutes a run may take, the last is for stopping what is still under way.
const longest = 9 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	failed, err := run(ctx)
	if err != nil {
		fmt.Fprintf(os.Stderr, "measure: %v\n", err)
		os.Exit(2)
	}
	if failed > 0 {
		fmt.Fprintf(os.Stderr, "measure: %d steps failed\n", failed)
		os.Exit(1)
	}
}

// suite is one run.
type suite struct {
	folder   string // what make gpu built
	out      string
	simulate bool
	short    bool
	noDriver bool           // leave out what is left to the driver's own time-slicing
	only     *regexp.Regexp // nil: all steps
	python   string         // empty: none
	log      *log
	server   *server // nil: none answers
	scale    scale

	rates    map[string]float64 // kernels a second of tenants that have the device to themselves, by kind
	loops    int64              // that take 500 µs on this device; 0: not known yet
	change   time.Duration      // that the device takes to change from one context to another; 0: not known
	named    int                // tenants that were given a name
	noTorch  error              // why PyTorch cannot be run, once that was asked; nil: it can
	asked    sync.Once          // whether it can
	training map[string]float64 // steps a second alone, for each mode
	requests map[string]float64 // that come a second, for each mode
}

// scale says how long things are measured.
type scale struct {
	settle               time.Duration // between the first work and what counts
	alone, window, slide time.Duration // a tenant alone; tenants beside each other; the part of it that is judged
	wakes, longWakes     int           // of an owner, beside kernels of 500 µs and of 20 ms
	requests             time.Duration // inference beside a trainer
	tries                int           // allocations of those that race for memory
	race                 time.Duration // after which they end all the same
	torch                time.Duration
	again                bool // sets are measured a second time if there is time left
}

func run(ctx context.Context) (failed int, err error) {
	s := suite{rates: map[string]float64{}, training: map[string]float64{}, requests: map[string]float64{}}
	limit, err := s.parse()
	if err != nil {
		return 0, err
	}
	if s.log, err = openLog(filepath.Join(s.out, "log.txt")); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.log.close()) }()

	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found := report{Command: os.Args, Began: began.UTC(), Simulated: s.simulate, Short: s.short, Machine: s.machine(limited)}
	defer func() {
		found.Seconds = time.Since(began).Seconds()
		err = errors.Join(err, found.write(s.out))
	}()
	defer func() { err = errors.Join(err, s.stopServer()) }()
	for _, step := range s.steps() {
		if s.only != nil && step.name != theServer && !s.only.MatchString(step.part+" "+step.name) {
			continue
		}
		r := s.take(limited, step)
		found.Steps = append(found.Steps, r)
		if err := found.save(s.out); err != nil { // whatever happens next, this much is known
			return failed, err
		}
		if r.Status == failedStatus {
			failed++
		}
	}
	if ctx.Err() != nil {
		return failed, errors.New("it was interrupted: what was found by then is written")
	}
	return failed, nil
}

// parse reads the command line; after limit no step begins or goes on.
func (s *suite) parse() (limit time.Duration, err error) {
	flag.StringVar(&s.folder, "folder", ".", "folder that make gpu built")
	flag.StringVar(&s.out, "out", "out", "folder for what is found")
	flag.BoolVar(&s.simulate, "simulate", false, "use simulated devices; PyTorch is not run then")
	flag.BoolVar(&s.short, "short", false, "measure for moments only: the figures are good for nothing but to see that it runs")
	flag.BoolVar(&s.noDriver, "without-driver", false, "leave out what is left to the driver's own time-slicing")
	flag.Func("only", "take only the steps whose part and name match, as 'probe|share 4 x|torch'; the server is always started", func(text string) (err error) {
		s.only, err = regexp.Compile(text)
		return err
	})
	flag.DurationVar(&limit, "limit", 8*time.Minute+20*time.Second, "no step begins or goes on after so long")
	flag.Parse()
	if flag.NArg() > 0 || limit <= 0 || limit >= longest {
		return 0, fmt.Errorf("-limit must be over 0 and below %v, and there are no arguments", longest)
	}
	if s.folder, err = filepath.Abs(s.folder); err != nil {
		return 0, err
	}
	if s.out, err = filepath.Abs(s.out); err != nil {
		return 0, err
	}
	s.scale = scale{
		settle: time.Second, alone: 2500 * time.Millisecond, window: 10500 * time.Millisecond, slide: 10 * time.Second,
		wakes: 5000, longWakes: 1000, requests: 20 * time.Second, tries: 50_000, race: 12 * time.Second, torch: 6 * time.Second, again: true,
	}
	if s.short {
		s.scale = scale{
			settle: time.Second / 10, alone: time.Second / 4, window: time.Second / 2, slide: time.Second / 4,
			wakes: 20, longWakes: 10, requests: time.Second, tries: 2000, race: time.Second, torch: time.Second,
		}
	}
	return limit, nil
}
