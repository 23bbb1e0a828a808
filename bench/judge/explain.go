package judge

import (
	"fmt"
	"time"
)

// out says that a wake-up is to be explained: it took long, and not just because a neighbour's kernel had to end first.
func (w WakeUp) Out(kernel time.Duration) bool { return w.Gate > max(Outlier, kernel+Allowance) }

// explainAll explains every Outlier, and says how many of the other long ones only waited for a neighbour's kernel.
func ExplainAll(wakes []WakeUp, kernel time.Duration) []string {
	var lines []string
	behind := 0
	for i, w := range wakes {
		switch {
		case w.Out(kernel):
			lines = append(lines, fmt.Sprintf("wake-up %d: %s", i+1, w.explain(kernel)))
		case w.Gate > Outlier:
			behind++
		}
	}
	if behind > 0 {
		lines = append(lines, fmt.Sprintf("%d wake-ups took more than %v, and no more than the neighbour's kernel of %v and %v", behind, Outlier, kernel, Allowance))
	}
	return lines
}

// explain says what made a wake-up take long: of what was measured meanwhile, the longest that accounts for half of what is beyond the
// neighbour's kernel. Where a CPU stood still, that is why the arbiter or the program waited for one, so it goes first.
func (w WakeUp) explain(kernel time.Duration) string {
	beyond := w.Gate - kernel
	because := "nothing of that says why: the arbiter chose another, or a neighbour's work took longer than it said"
	switch {
	case 2*w.Still >= beyond:
		because = "the machine stood still"
	case 2*w.Arbiter >= beyond:
		because = "the arbiter waited for a CPU"
	case 2*(w.Gate-w.Lease) >= beyond:
		because = "the lease was there, and the program waited for a CPU"
	case 2*w.Others >= beyond:
		because = "a neighbour or the simulated driver waited for a CPU, and so its work was not heard to have ended"
	}
	return fmt.Sprintf("%v at the gate, %v of it beyond a kernel of %v; %v to its lease and %v from there; a CPU stood still for %v, the arbiter waited %v for one, "+
		"a neighbour or the driver %v, the owner had woken %v late: %s", w.Gate, beyond, kernel, w.Lease, w.Gate-w.Lease, w.Still, w.Arbiter, w.Others, w.Late, because)
}
