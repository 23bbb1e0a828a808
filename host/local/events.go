package local

import (
	"context"
	"sync"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// eventsKept is how many events a listener may have missed and still be given.
const eventsKept = 4096

// broadcast gives events to those who listen. Numbers rise across restarts, because they begin with the time.
type broadcast struct {
	now    func() time.Time
	mu     sync.Mutex
	recent []api.Event   // the last eventsKept
	more   chan struct{} // closed when there are more
	next   uint64
}

func newBroadcast(now func() time.Time) *broadcast {
	return &broadcast{now: now, more: make(chan struct{}), next: uint64(now().UnixMicro())}
}

func (b *broadcast) publish(event api.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	event.Seq, event.At = b.next, b.now().UTC()
	b.next++
	if len(b.recent) == eventsKept {
		b.recent = append(b.recent[:0:0], b.recent[eventsKept/4:]...)
	}
	b.recent = append(b.recent, event)
	close(b.more)
	b.more = make(chan struct{})
}

// since returns the events after seq that are kept, and a channel that is closed when there are more.
func (b *broadcast) since(seq uint64) ([]api.Event, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, event := range b.recent {
		if event.Seq > seq {
			return append([]api.Event(nil), b.recent[i:]...), b.more
		}
	}
	return nil, b.more
}

func (b *broadcast) last() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.next - 1
}

// Listen calls each for every event after seq (0: from now on) until ctx ends or each returns an error.
func (h *Host) Listen(ctx context.Context, seq uint64, each func(api.Event) error) error {
	if seq == 0 {
		seq = h.events.last()
	}
	for {
		events, more := h.events.since(seq)
		for _, event := range events {
			if err := each(event); err != nil {
				return err
			}
			seq = event.Seq
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		case <-h.quit:
			return refuse(api.CodeUnavailable, "the server is stopping: listen again when it is back")
		}
	}
}
