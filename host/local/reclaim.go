package local

import (
	"fmt"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node"
)

// reclaimGrace is how long a workload has between SIGTERM and SIGKILL that is ended for memory of another's floor: the other waits meanwhile.
const reclaimGrace = 2 * time.Second

// reclaim ends workloads that borrowed memory, in the order that the agent found, until what owners wait for comes back, and no more. One that
// ends already comes first, and sooner where it had longer. What is wanted is told of again for as long as it is, so that what a daemon
// that died had not decided yet the next one decides.
func (h *Host) reclaim(wanted *node.Reclaim) {
	missing := wanted.Memory
	counted := map[*work]bool{}
	ends := func(w *work) bool { return w == nil || w.over || w.keep.Stop != nil }
	for _, one := range wanted.Borrowers {
		w := h.work[one.Task]
		if !ends(w) {
			continue
		}
		missing -= one.Held
		counted[w] = true
		if w != nil && !w.over && w.keep.Stop.Grace > reclaimGrace {
			h.stop(w, order{Outcome: w.keep.Stop.Outcome, Reason: w.keep.Stop.Reason, Grace: reclaimGrace})
		}
	}
	for _, one := range wanted.Borrowers {
		w := h.work[one.Task]
		if missing <= 0 || counted[w] {
			continue
		}
		missing -= one.Held
		if ends(w) { // with one of its workload, in this
			continue
		}
		if owner := h.work[wanted.Owner]; owner != nil && !owner.over {
			h.note(owner, fmt.Sprintf("waits for memory of its floor that %s has borrowed, which is ended for it", w.now.Spec.Name))
		}
		least, _ := w.now.Whole().Tasks()
		h.stop(w, order{Outcome: api.Evicted, Reason: "memory taken back for " + h.nameOf(wanted.Owner) + "'s floor", Grace: reclaimGrace, Memory: true, Whole: w.number() < least})
		h.evictRest(w)
	}
}

// lentOf is how much of a workload's memory floors is lent now, and the names of the workloads that have borrowed where it is.
func (h *Host) lentOf(uid string) (lent api.Bytes, to []string) {
	all := h.Agent.MemoryHeld()
	on := map[string]bool{}
	for _, held := range all {
		if held.Task == uid && held.Granted < held.Grant.MemFloor {
			lent += held.Grant.MemFloor - held.Granted
			on[held.Grant.Device] = true
		}
	}
	for _, held := range all {
		if on[held.Grant.Device] && held.Granted > held.Firm {
			to = append(to, h.nameOf(held.Task))
		}
	}
	slices.Sort(to)
	return lent, slices.Compact(to)
}
