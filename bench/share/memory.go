package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/bench/judge"
	"github.com/aliquot-dev/aliquot/bench/report"
)

// The race for memory: processes of one share that hold contexts of 2 GiB together and race for what its ceiling leaves. Its floor is less, so that
// the rest is asked for while they race.
const (
	raceTries   = 100_000 // of all repeats together
	raceFloor   = 5 << 29
	raceCeiling = 3 << 30
)

// measureMemory lets processes race for the memory under their share's ceiling, and reports by how much the most that the device ever
// held, by its own record, was over it: once with pieces of all sizes, once with those of 1 MiB and more. Nothing else may have
// used the device before.
func (b *bench) measureMemory(ctx context.Context, r *report.Report) error {
	for _, one := range []struct{ name, small string }{{"pieces of 1 MiB and more", "0"}, {"pieces of all sizes", "0.5"}} {
		var all judge.Raced
		for range b.repeats {
			did, err := b.race(ctx, one.small)
			if err != nil {
				return err
			}
			all.Tries, all.Refused = all.Tries+did.Tries, all.Refused+did.Refused
		}
		now, err := b.daemon.record.read(ctx, 0)
		if err != nil {
			return err
		}
		r.AtMost("memory_over_ceiling, "+one.name, float64(now.Peak-raceCeiling), 0, "bytes")
		r.Beside("memory_tries, "+one.name, float64(all.Tries), "allocations")
		r.Beside("memory_refused, "+one.name, float64(all.Refused), "allocations")
	}
	return nil
}

// race is one repeat.
func (b *bench) race(ctx context.Context, small string) (judge.Raced, error) {
	w, err := b.daemon.submit(ctx, api.Share{
		Compute: api.Compute{Floor: 100, Ceiling: 1000},
		Memory:  api.Memory{Floor: api.Amount{Bytes: raceFloor}, Ceiling: api.Amount{Bytes: raceCeiling}},
	}, api.Training, []string{b.racer, "--processes", fmt.Sprint(judge.Racers), "--tries", fmt.Sprint(b.tries), "--small", small})
	if err != nil {
		return judge.Raced{}, err
	}
	printed, err := b.daemon.ended(ctx, w.UID)
	if err != nil {
		return judge.Raced{}, err
	}
	did, err := judge.ParseRaced(printed)
	if err == nil && did.Refused == 0 {
		err = errors.New("nothing was refused: the race never came to the ceiling")
	}
	return did, err
}
