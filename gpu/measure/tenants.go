package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// sample says how much of its work a program had done at a moment.
type sample struct {
	at   time.Duration // of the monotonic clock
	done float64
}

// doneBy is how much was done at a moment: on a line between the samples around it. ok is false outside of them.
func doneBy(samples []sample, at time.Duration) (done float64, ok bool) {
	i, _ := slices.BinarySearchFunc(samples, at, func(s sample, at time.Duration) int { return cmp.Compare(s.at, at) })
	if i < len(samples) && samples[i].at == at && (i > 0 || len(samples) > 1) {
		return samples[i].done, true
	}
	if i == 0 || i == len(samples) {
		return 0, false
	}
	a, b := samples[i-1], samples[i]
	return a.done + (b.done-a.done)*float64(at-a.at)/float64(b.at-a.at), true
}

// rate is what was done per second between two moments.
func rate(samples []sample, from, to time.Duration) (float64, bool) {
	a, okA := doneBy(samples, from)
	b, okB := doneBy(samples, to)
	if !okA || !okB || to <= from {
		return 0, false
	}
	return (b - a) / (to - from).Seconds(), true
}

// load is a program that runs beside others and says how far it is.
type load struct {
	name string
	out  io.Closer

	mu      sync.Mutex
	samples []sample
	text    []string // other lines
	counts  chan struct{}
	more    chan struct{} // has one where there is a sample that nobody waited for
	ended   chan error
}

// begin starts a program whose lines of two numbers are samples: the monotonic clock in ns, and what is done.
func (s *suite) begin(ctx context.Context, name string, l line) (*load, error) {
	started := &load{name: name, counts: make(chan struct{}), more: make(chan struct{}, 1), ended: make(chan error, 1)}
	cmd, said := command(ctx, l)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started.out = out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		pump(out, started.take)
		err := cmd.Wait()
		sweep(cmd)
		s.logged(l, strings.Join(started.other(), "\n")+"\n", said.String(), err)
		if err != nil {
			err = fmt.Errorf("%s: %w: %s", name, err, last(strings.TrimSpace(said.String()), 400))
		}
		started.ended <- err
	}()
	return started, nil
}

func (l *load) take(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var at, done int64
	words := strings.Fields(text)
	if len(words) == 2 {
		var errs [2]error
		at, errs[0] = strconv.ParseInt(words[0], 10, 64)
		done, errs[1] = strconv.ParseInt(words[1], 10, 64)
		if errors.Join(errs[:]...) == nil {
			l.samples = append(l.samples, sample{time.Duration(at), float64(done)})
			if len(l.samples) == 1 {
				close(l.counts)
			}
			select {
			case l.more <- struct{}{}:
			default:
			}
			return
		}
	}
	l.text = append(l.text, text)
}

func (l *load) other() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.text...)
}

func (l *load) read() []sample {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]sample(nil), l.samples...)
}

// working waits for the first sample.
func (l *load) working(ctx context.Context) error {
	select {
	case <-l.counts:
		return nil
	case err := <-l.ended:
		l.ended <- err
		if err == nil {
			err = fmt.Errorf("%s ended before it had done anything: %s", l.name, strings.Join(l.other(), "; "))
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("%s did nothing: %w", l.name, ctx.Err())
	}
}

// crew is programs that run beside each other until leave.
type crew struct {
	loads  []*load
	cancel context.CancelFunc
}

// together starts programs and waits until all of them work.
func (s *suite) together(ctx context.Context, names []string, lines []line) (*crew, error) {
	bounded, cancel := context.WithCancel(ctx)
	c := &crew{cancel: cancel}
	for i, l := range lines {
		started, err := s.begin(bounded, names[i], l)
		if err != nil {
			return nil, errors.Join(err, c.leave())
		}
		c.loads = append(c.loads, started)
	}
	for _, l := range c.loads {
		if err := l.working(ctx); err != nil {
			return nil, errors.Join(err, c.leave())
		}
	}
	return c, nil
}

// still fails if one of the programs has ended by itself.
func (c *crew) still() error {
	for _, l := range c.loads {
		select {
		case err := <-l.ended:
			l.ended <- err
			return fmt.Errorf("%s ended too early: %w", l.name, errors.Join(err, errors.New(strings.Join(l.other(), "; "))))
		default:
		}
	}
	return nil
}

// saidBy waits until each program has said what it had done by a moment. It fails if one has ended by itself, or is silent for too long.
func (c *crew) saidBy(ctx context.Context, at time.Duration) error {
	bounded, cancel := context.WithTimeout(ctx, 2*grace)
	defer cancel()
	for _, l := range c.loads {
		for {
			if samples := l.read(); len(samples) > 0 && samples[len(samples)-1].at >= at {
				break
			}
			select {
			case <-l.more:
				continue
			case err := <-l.ended:
				l.ended <- err
				return c.still()
			case <-bounded.Done():
				return fmt.Errorf("%s says no more how far it is: %w", l.name, bounded.Err())
			}
		}
	}
	return c.still()
}

// leave ends the programs and waits for them. How they end when they are told to is not judged, only that they do: one that a
// device holds up forever must not hold up the run.
func (c *crew) leave() error {
	c.cancel()
	limit := time.NewTimer(2 * grace)
	defer limit.Stop()
	for _, l := range c.loads {
		select {
		case <-l.ended:
		case <-limit.C:
			return errors.Join(fmt.Errorf("%s did not end when it was told to, nor when it was killed", l.name), l.out.Close())
		}
	}
	return nil
}

// pause lets time pass in which something is measured.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
