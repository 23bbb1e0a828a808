package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/host/sim"
)

// progressEach is after how long a run that is not on a terminal says again how far it is.
const progressEach = 5 * time.Second

// simProgress says on standard error how far runs are: in one line in place on a terminal, in a line after each progressEach elsewhere, if that is
// asked for. Of a run that is over before the first is due nothing is said.
type simProgress struct {
	line *waitingLine
	now  func() time.Time
	each time.Duration
	next time.Time
}

func progressFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("progress", false, "say on standard error every five seconds how far the run is, as on a terminal it is said anyway")
}

// progress is how far runs are; nil: nobody wants to know.
func (c *invocation) progress(asked bool) *simProgress {
	line := newWaitingLine(c.Err, c.colourful(c.Err))
	p := &simProgress{line: line, now: c.Now, each: progressEach}
	switch {
	case line.terminal:
		p.each = pace
	case !asked:
		return nil
	}
	p.next = p.now().Add(p.each)
	return p
}

// of is what a run of that name is to tell; nil: nothing.
func (p *simProgress) of(name, done string) func(sim.Progress) {
	if p == nil {
		return nil
	}
	return func(r sim.Progress) {
		now := p.now()
		if now.Before(p.next) {
			return
		}
		p.next = now.Add(p.each)
		p.line.show(fmt.Sprintf("%s: %s of the trace, %d events, %d of %d %s (%d %%)", name, age(time.Duration(r.At)*time.Microsecond),
			r.Events, r.Done, r.All, done, r.Done*100/max(1, r.All)))
	}
}

// ofSeeds is what a series of that name is to tell of each of its runs; nil: nothing.
func (p *simProgress) ofSeeds(name string) func(uint64, sim.Progress) {
	if p == nil {
		return nil
	}
	return func(seed uint64, r sim.Progress) { p.of(fmt.Sprintf("%s, seed %d", name, seed), "pods have come")(r) }
}

// ofMoves is what pods that come and leave are to tell of each of their runs; nil: nothing.
func (p *simProgress) ofMoves(name string) func(int32, uint64, sim.Progress) {
	if p == nil {
		return nil
	}
	return func(moves int32, seed uint64, r sim.Progress) {
		p.of(fmt.Sprintf("%s, %d moves an hour, seed %d", name, moves, seed), "pods have come")(r)
	}
}

// over takes the line back from a terminal.
func (p *simProgress) over() {
	if p != nil {
		p.line.clear()
	}
}
