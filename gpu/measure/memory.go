package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/aliquot-dev/aliquot/bench/judge"
)

// race lets the processes of one share race for what its ceiling leaves, and finds out what they held at most: by their own count, which is
// of their pieces and from below, and by NVML, whose figures have contexts and all in them.
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
	nvmlHeld(seen, float64(ceiling), found)
	return found, nil
}

// nvmlHeld is what NVML showed of a race beyond what it showed before: of the device, and of its processes together, which the ceiling is held
// against. What the device holds and no process has, the driver keeps for their contexts; it is the middle of the looks at which both were known and
// the device held over half of the most.
func nvmlHeld(seen figures, ceiling float64, found figures) {
	bytes := func(name string) float64 { value, _ := seen[name].(float64); return value }
	found["nvml_looks"], found["nvml_look_us"] = seen["looks"], seen["look_us"]
	found["nvml_most_bytes"] = bytes("most_bytes") - bytes("first_bytes")
	found["nvml_processes_looks"] = seen["processes_looks"]
	if bytes("processes_looks") == 0 {
		found["nvml_processes"] = fmt.Sprintf("cannot tell: it says %v when it is asked for the processes and their memory", seen["processes_result"])
		return
	}
	held := bytes("processes_most_bytes") - bytes("processes_first_bytes")
	found["nvml_processes_most_bytes"], found["nvml_processes_look_us"] = held, seen["processes_look_us"]
	found["nvml_processes_over_ceiling_bytes"] = held - ceiling
	if bytes("nobody_looks") > 0 {
		found["nvml_held_by_nobody_bytes"], found["nvml_held_by_nobody_looks"] = seen["nobody_bytes"], seen["nobody_looks"]
	}
}
