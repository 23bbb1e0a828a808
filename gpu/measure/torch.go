package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	eager  = "eager"
	graphs = "graphs"

	simulatedTorch = "simulated: simulated devices run no code, and PyTorch needs a real GPU"
	torchMemory    = 8 << 30 // of each program's share
)

// torchSteps are training and inference, alone and beside each other, in one mode.
func (s *suite) torchSteps(mode string) []step {
	one := func(name string, limit, needs time.Duration, run func(context.Context, string) (figures, error)) step {
		return step{"torch", name + ", " + mode, limit, s.long(needs), func(ctx context.Context) (figures, error) {
			if err := s.canTorch(ctx); err != nil {
				return nil, err
			}
			return run(ctx, mode)
		}}
	}
	return []step{
		one("training alone", 70*time.Second, 22*time.Second, s.trainAlone),
		one("inference alone", 50*time.Second, 14*time.Second, s.inferAlone),
		one("beside each other", 80*time.Second, 30*time.Second, s.torchBeside),
	}
}

// canTorch says why PyTorch cannot be run here, with notRun; nil: it can. It is found out when it is first asked.
func (s *suite) canTorch(ctx context.Context) error {
	s.asked.Do(func() {
		switch {
		case s.simulate:
			s.noTorch = notRun(simulatedTorch)
		case s.python == "":
			s.noTorch = notRun("there is no python3 here")
		default:
			if _, err := s.output(ctx, line{[]string{s.python, "-c", "import torch; assert torch.cuda.is_available()"}, nil}); err != nil {
				s.noTorch = notRun("this python3 has no PyTorch that sees a GPU; log.txt says more")
			}
		}
	})
	return s.noTorch
}

// pytorch finds out what PyTorch loads, and what it is shown inside a share.
func (s *suite) pytorch(ctx context.Context) (figures, error) {
	if err := s.canTorch(ctx); err != nil {
		return nil, err
	}
	found := figures{}
	script := filepath.Join(s.folder, "torch", "loads.py")
	bare, err := s.bare(s.python, script)
	if err != nil {
		return nil, err
	}
	if found["bare"], err = s.json(ctx, bare); err != nil {
		return found, err
	}
	l, err := s.shared(share{gpu: "0.5..1", mem: "8Gi"}, s.python, script)
	if err != nil {
		return found, err
	}
	under, err := s.json(ctx, l)
	found["under_a_share_of_8_gib"] = under
	if err != nil {
		return found, err
	}
	if total, ok := under["total_bytes"].(float64); !ok || total != torchMemory {
		return found, fmt.Errorf("torch.cuda.mem_get_info under a share of 8 GiB shows %v bytes", under["total_bytes"])
	}
	return found, nil
}

// frameworks does what programs of PyTorch, JAX and CuPy do, each in a share of its own beside the others.
func (s *suite) frameworks(ctx context.Context) (figures, error) {
	if err := s.canTorch(ctx); err != nil {
		return nil, err
	}
	script := filepath.Join(s.folder, "torch", "frameworks.py")
	list, err := s.bare(s.python, script, "list")
	if err != nil {
		return nil, err
	}
	can, err := s.json(ctx, list)
	if err != nil {
		return nil, err
	}
	names, _ := can["names"].([]any)
	if len(names) == 0 {
		return nil, notRun("this python3 has none of the frameworks")
	}
	found, failed := figures{}, make([]error, len(names))
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, each := range names {
		name := fmt.Sprint(each)
		l, err := s.shared(share{gpu: "0.05..1", mem: "4Gi..8Gi"}, s.python, script, name)
		if err != nil {
			return nil, err
		}
		all.Go(func() {
			got, err := s.json(ctx, l)
			if ok, _ := got["ok"].(bool); err == nil && !ok {
				err = fmt.Errorf("what came out is not what must: %v", got)
			}
			if err != nil {
				failed[i] = fmt.Errorf("%s: %w", name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			found[name] = got
		})
	}
	all.Wait()
	return found, errors.Join(failed...)
}

// trainLine is examples/train.py, which trains until it is told to end.
func (s *suite) trainLine(mode string) []string {
	args := []string{s.python, s.example("train.py"), "--counts", "--seconds", "1000"}
	if mode == graphs {
		args = append(args, "--graph")
	}
	return args
}

func (s *suite) inferLine(mode string) []string {
	args := []string{s.python, filepath.Join(s.folder, "torch", "infer.py"), "--seconds", fmt.Sprint(s.scale.torch.Seconds())}
	if mode == graphs {
		args = append(args, "--graph")
	}
	if rate := s.requests[mode]; rate > 0 {
		args = append(args, "--rate", fmt.Sprint(rate))
	}
	return args
}

// trainAlone measures training steps bare and gated.
func (s *suite) trainAlone(ctx context.Context, mode string) (figures, error) {
	found := figures{}
	bare, err := s.bare(s.trainLine(mode)...)
	if err != nil {
		return nil, err
	}
	steps, err := s.steady(ctx, bare)
	if err != nil {
		return nil, err
	}
	s.training[mode] = steps
	found["bare_steps_per_s"] = steps
	l, err := s.shared(share{gpu: "0.5..1", mem: "8Gi"}, s.trainLine(mode)...)
	if err != nil {
		return found, err
	}
	under, err := s.steady(ctx, l)
	if err != nil {
		return found, err
	}
	found["gated_steps_per_s"], found["gated_percent_of_bare"] = under, 100*under/steps
	return found, nil
}

// steady is what a program that counts does per second by itself.
func (s *suite) steady(ctx context.Context, l line) (perSecond float64, err error) {
	c, err := s.together(ctx, []string{strings.Join(l.args, " ")}, []line{l})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.leave()) }()
	rates, err := s.watch(ctx, c, s.scale.torch/2)
	if err != nil {
		return 0, err
	}
	return rates[0], nil
}

// inferAlone measures the latency of requests, bare. It settles how many come a second in all later ones.
func (s *suite) inferAlone(ctx context.Context, mode string) (figures, error) {
	found := figures{}
	bare, err := s.bare(s.inferLine(mode)...)
	if err != nil {
		return nil, err
	}
	alone, err := s.json(ctx, bare)
	if err != nil {
		return nil, err
	}
	rate, ok := alone["rate_per_s"].(float64)
	if !ok || rate <= 0 {
		return figures{"bare": alone}, errors.New("infer.py did not say how many requests came")
	}
	s.requests[mode] = rate
	found["bare"] = alone
	return found, nil
}

// torchBeside measures inference, at 40 % of its floor of half a device, beside training: under Aliquot, then by the driver.
func (s *suite) torchBeside(ctx context.Context, mode string) (figures, error) {
	if s.requests[mode] == 0 || s.training[mode] == 0 {
		return nil, notRun("what both do alone is not known: see those steps")
	}
	found := figures{}
	kinds := []string{"shared", "by_the_driver"}
	if s.noDriver {
		kinds = kinds[:1]
	}
	for _, kind := range kinds {
		trainer, err := s.bare(s.trainLine(mode)...)
		if err != nil {
			return found, err
		}
		server, err := s.bare(s.inferLine(mode)...)
		if err != nil {
			return found, err
		}
		if kind == "shared" {
			if trainer, err = s.shared(share{gpu: "0.3..1", mem: "8Gi"}, s.trainLine(mode)...); err != nil {
				return found, err
			}
			if server, err = s.shared(share{gpu: "0.5..1", mem: "8Gi", class: "inference"}, s.inferLine(mode)...); err != nil {
				return found, err
			}
		}
		run := s.servedBeside
		if kind == "shared" {
			run = func(ctx context.Context, trainer, server line) (figures, float64, error) {
				return s.sharedBeside(ctx, trainer, server, found)
			}
		}
		served, steps, err := run(ctx, trainer, server)
		if err != nil {
			return found, fmt.Errorf("%s: %w", kind, err)
		}
		found[kind+"_inference"] = served
		found[kind+"_training_percent_of_alone"] = 100 * steps / s.training[mode]
	}
	return found, nil
}

// sharedBeside runs a server beside a trainer, both in shares, and finds how often the lease went from one to the other while it served, and
// what part of the device those changes took, where that is known.
func (s *suite) sharedBeside(ctx context.Context, trainer, server line, found figures) (served figures, steps float64, err error) {
	stop := s.countChanges()
	served, steps, err = s.servedBeside(ctx, trainer, server)
	counted, failed := stop()
	if err = errors.Join(err, failed); err != nil {
		return served, steps, err
	}
	from, to := servedFrom(served)
	changes, ok := rate(counted, from, to)
	if !ok {
		return served, steps, errors.New("changes of leases were not counted for all the time that the server says it served")
	}
	found["lease_changes_per_s"] = changes
	if s.change > 0 {
		found["switching_percent"] = 100 * changes * s.change.Seconds()
	}
	return served, steps, nil
}

// servedFrom is from when to when a server says it served, of the monotonic clock.
func servedFrom(served figures) (from, to time.Duration) {
	began, _ := served["from_s"].(float64)
	ended, _ := served["to_s"].(float64)
	return time.Duration(began * 1e9), time.Duration(ended * 1e9)
}

// servedBeside runs a server beside a trainer and returns what it says, and the trainer's steps a second meanwhile.
func (s *suite) servedBeside(ctx context.Context, trainer, server line) (served figures, steps float64, err error) {
	c, err := s.together(ctx, []string{"the trainer"}, []line{trainer})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, c.leave()) }()
	if served, err = s.json(ctx, server); err != nil {
		return nil, 0, err
	}
	from, to := servedFrom(served)
	if err := c.saidBy(ctx, to); err != nil {
		return served, 0, err
	}
	steps, ok := rate(c.loads[0].read(), from, to)
	if !ok {
		return served, 0, errors.New("the trainer said too seldom how far it was")
	}
	return served, steps, nil
}
