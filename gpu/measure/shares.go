package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/bench/judge"
)

// standard is the tenant by which the device is known: kernels of 500 µs back to back.
var standard = judge.Tenant{Kernel: 500 * time.Microsecond, Demand: api.WholeDevice}

// long is from where a kernel is a batch of its own, three of them queued: what a tenant completed is known by the batch.
const long = 5 * time.Millisecond

func written(c api.Compute) string {
	return fmt.Sprintf("%g..%g", float64(c.Floor)/float64(api.WholeDevice), float64(c.Ceiling)/float64(api.WholeDevice))
}

func monotonic() (time.Duration, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano()), err
}

// tenantLine is the command of a tenant that says what it has completed, without the share.
func (s *suite) tenantLine(t judge.Tenant) []string {
	args := append(t.Line(s.example("trainer")), "--progress", "0", "--done-ms", "10")
	if t.Kernel >= long && !t.Graph && !t.Waits() {
		args = append(args, "--batch", "1", "--ahead", "3")
	}
	if s.loops > 0 { // so many take 500 µs
		args = append(args, "--loops", strconv.FormatInt(max(1, s.loops*int64(t.Kernel)/int64(standard.Kernel)), 10))
	}
	return args
}

// resolution is the device time after which a tenant is heard of again.
func resolution(t judge.Tenant) time.Duration {
	if t.Kernel >= long && !t.Graph {
		return t.Kernel
	}
	return t.Kernel * time.Duration(t.Kernels())
}

// tenantAlone measures what one tenant does alone: bare, with the whole device as its share, and gated.
func (s *suite) tenantAlone(ctx context.Context) (figures, error) {
	found := figures{}
	first, err := s.bareRate(ctx, standard)
	if err != nil {
		return nil, err
	}
	found["loops"] = float64(s.loops)
	for name, gpu := range map[string]string{"whole": "1", "gated": "0.5..1"} {
		l, err := s.shared(share{gpu: gpu, mem: "2Gi"}, s.tenantLine(standard)...)
		if err != nil {
			return found, err
		}
		under, err := s.rateAlone(ctx, l)
		if err != nil {
			return found, err
		}
		found[name+"_kernels_per_s"] = under
		found[name+"_part_of_bare_percent"] = 100 * under / first
	}
	// Once more, with the loops of the first: how far two runs of the same differ says how far the figures above can be trusted.
	second, err := s.bareRate(ctx, standard)
	if err != nil {
		return found, err
	}
	s.rates[kind(standard)] = (first + second) / 2
	found["bare_kernels_per_s"], found["bare_again_kernels_per_s"] = first, second
	return found, nil
}

// kind is what the rate of a tenant alone depends on.
func kind(t judge.Tenant) string {
	if t.Graph {
		return fmt.Sprintf("graphs of %v", t.Launch())
	}
	return t.Kernel.String()
}

// alone is how many kernels a second a tenant completes that has the device to itself; it is measured when it is first asked for.
func (s *suite) alone(ctx context.Context, t judge.Tenant) (float64, error) {
	if rate := s.rates[kind(t)]; rate > 0 {
		return rate, nil
	}
	t.Demand = api.WholeDevice
	if t.Waits() {
		t.Batch = 0
	}
	rate, err := s.bareRate(ctx, t)
	if err != nil {
		return 0, fmt.Errorf("what one tenant with %s does alone: %w", kind(t), err)
	}
	s.rates[kind(t)] = rate
	return rate, nil
}

func (s *suite) bareRate(ctx context.Context, t judge.Tenant) (float64, error) {
	l, err := s.bare(s.tenantLine(t)...)
	if err != nil {
		return 0, err
	}
	return s.rateAlone(ctx, l)
}

func (s *suite) rateAlone(ctx context.Context, l line) (perSecond float64, err error) {
	c, err := s.together(ctx, []string{"a tenant alone"}, []line{l})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.leave()) }()
	rates, err := s.watch(ctx, c, s.scale.alone)
	if err != nil {
		return 0, err
	}
	for _, text := range c.loads[0].other() {
		if found, ok := strings.CutPrefix(text, "loops "); ok && s.loops == 0 {
			if s.loops, err = strconv.ParseInt(found, 10, 64); err != nil {
				return 0, fmt.Errorf("a tenant printed %q: %w", text, err)
			}
		}
	}
	return rates[0], nil
}

// watch lets programs work for so long and returns what each did per second.
func (s *suite) watch(ctx context.Context, c *crew, window time.Duration) ([]float64, error) {
	from, to, err := s.span(ctx, c, window)
	if err != nil {
		return nil, err
	}
	var rates []float64
	for _, l := range c.loads {
		r, ok := rate(l.read(), from, to)
		if !ok {
			return nil, fmt.Errorf("%s said too seldom how far it was", l.name)
		}
		rates = append(rates, r)
	}
	return rates, nil
}

// span lets programs settle and then work for so long, and waits until each has said what it had done by the end.
func (s *suite) span(ctx context.Context, c *crew, window time.Duration) (from, to time.Duration, err error) {
	if err := pause(ctx, s.scale.settle); err != nil {
		return 0, 0, err
	}
	if from, err = monotonic(); err != nil {
		return 0, 0, err
	}
	if err := pause(ctx, window); err != nil {
		return 0, 0, err
	}
	return from, from + window, c.saidBy(ctx, from+window)
}
