package scheduler

import (
	"context"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// turns bound what is under way beside the loop, a token for each workload: those that are written, and those that wait for what is prepared before a
// binding, which takes minutes where a volume is made and keeps nobody else from being written.
type turns struct {
	writing, preparing chan struct{}
}

// prepareMost is how many workloads may wait at once for what is prepared. The others wait for them, as each costs memory and may write.
const prepareMost = 1024

// restMost is how long a write is left alone at most that must be done and is refused again and again.
const restMost = 30 * time.Second

// take waits until it is this writer's turn; false: the context has ended.
func (w *writer) take(ctx context.Context) bool {
	w.writes = enter(ctx, w.turns.writing)
	return w.writes
}

// give lets another write, if it was this one's turn.
func (w *writer) give() {
	if w.writes {
		<-w.turns.writing
		w.writes = false
	}
}

func enter(ctx context.Context, tokens chan struct{}) bool {
	select {
	case tokens <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// prepare has done what an assumed pod needs before it is bound, with its claims as they were written. If there is anything to do, others write meanwhile.
func (w *writer) prepare(ctx context.Context, j job, t jobTask, claims []*resourceapi.ResourceClaim) error {
	waits := slices.ContainsFunc(claims, func(c *resourceapi.ResourceClaim) bool { return conditioned(c.Status.Allocation) })
	if !waits && !w.filters.Prepares(ctx, t.pod) {
		return w.filters.PreBind(ctx, t.pod)
	}
	w.give()
	if waits {
		w.filters.Settle(claims, true) // it is told again when all is done, and until then what is held would count twice
	}
	if !enter(ctx, w.turns.preparing) {
		return ctx.Err()
	}
	err := w.filters.PreBind(ctx, t.pod)
	if err == nil {
		err = w.usable(ctx, j, t, claims)
	}
	<-w.turns.preparing
	if !w.take(ctx) {
		return ctx.Err()
	}
	return err
}

// insist waits until something may be tried once more that must be done. Once it was refused often, others write meanwhile, and why it is not done is
// told for the pod that it is done for. False: the context has ended.
func (w *writer) insist(ctx context.Context, try int, pod types.UID, why string, err error) bool {
	if try < tries {
		return again(ctx, try)
	}
	why += ", and that is tried on: " + err.Error()
	if try == tries {
		w.log.Warn("a write is refused, and is tried on", "pod", pod, "why", why)
	}
	w.tell(pod, why)
	most := againMost
	if refusal(err) {
		most = restMost
	}
	turn := w.writes
	w.give()
	return pause(ctx, min(againAfter<<min(try, 20), most)) && (!turn || w.take(ctx))
}

// insisted tells, after so many tries, that what was told is over.
func (w *writer) insisted(tried int, pod types.UID) {
	if tried > tries {
		w.tell(pod, "")
	}
}

// toldStuck has the loop know why a write for a pod is refused again and again; empty: it is not any more. It is called from beside the loop.
func (s *Scheduler) toldStuck(uid types.UID, why string) {
	s.inbox.put(func() {
		if why == "" {
			delete(s.stuck, uid)
		} else {
			s.stuck[uid] = why
		}
		s.metrics.stuck.Store(int64(len(s.stuck)))
		if p := s.pods[uid]; p != nil && why != "" && s.mine(p) {
			s.tellNow(p)
		}
	})
}
