package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/aliquot-dev/aliquot/bench/judge"
)

// race lets the processes of one share race for what its ceiling leaves, and finds out what they held at most: by their own count, which is
// of their pieces and from below, and by NVML, which is looked at every half millisecond and has contexts and all in it.
func (s *suite) race(ctx context.Context) (figures, error) {
	const gib = 1 << 30
	asked, ceiling, most := "8Gi..10Gi", int64(10*gib), "256" // a context takes half a GiB on a real device
	if s.simulate {
		asked, ceiling, most = "2.5Gi..3Gi", 3*gib, "64"
	}
	watcher, err := s.bare(s.program("probe"), "peak")
	if err != nil {
		return nil, err
	}
	racer, err := s.shared(share{gpu: "0.1..1", mem: asked}, s.program("racer"), "--processes", strconv.Itoa(judge.Racers), "--small", "0",
		"--most-mib", most, "--tries", strconv.Itoa(s.scale.tries), "--seconds", fmt.Sprint(s.scale.race.Seconds()))
	if err != nil {
		return nil, err
	}
	c, err := s.together(ctx, []string{"the watcher"}, []line{watcher})
	if err != nil {
		return nil, err
	}
	out, err := s.output(ctx, racer)
	if err = errors.Join(err, c.leave()); err != nil {
		return nil, err
	}
	did, err := judge.ParseRaced(out)
	if err != nil {
		return nil, err
	}
	found := figures{
		"tries": float64(did.Tries), "refused": float64(did.Refused), "ceiling_bytes": float64(ceiling),
		"pieces_most_bytes": float64(did.Most), "pieces_over_ceiling_bytes": float64(did.Most - ceiling),
	}
	if did.Refused == 0 {
		return found, errors.New("nothing was refused: the race never came to the ceiling")
	}
	said := c.loads[0].other()
	if len(said) == 0 {
		return found, errors.New("what watched NVML said nothing")
	}
	seen, err := object(said[len(said)-1])
	if err != nil {
		return found, fmt.Errorf("what watched NVML printed %q: %w", said, err)
	}
	first, _ := seen["first_bytes"].(float64)
	peak, _ := seen["most_bytes"].(float64)
	found["nvml_looks"], found["nvml_most_bytes"] = seen["looks"], peak-first
	found["nvml_over_ceiling_bytes"] = peak - first - float64(ceiling)
	return found, nil
}
