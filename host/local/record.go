package local

import (
	"bytes"
	"context"
	"io"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/server"
)

// tapRoom is for how many commits what is on disk is kept for one who has not read it yet; who falls behind further is let go, for the host waits
// for nobody.
const tapRoom = 4096

// tap is given the records of the event log from a moment on.
type tap struct {
	skip int         // bytes of the journal's buffer that its snapshot has already
	more chan []byte // closed: it fell behind
	lost bool
}

// give hands over what is on disk now.
func (t *tap) give(records []byte) {
	records, t.skip = records[t.skip:], 0
	if t.lost || len(records) == 0 {
		return
	}
	select {
	case t.more <- bytes.Clone(records):
	default:
		t.lost = true
		close(t.more)
	}
}

// Record writes the engine's event log from now on, in the form of the files in STATE/events: a snapshot, then every step once it is on disk.
func (h *Host) Record(ctx context.Context, who server.Caller, to io.Writer) error {
	if err := h.mayRule(who); err != nil {
		return err
	}
	t := &tap{more: make(chan []byte, tapRoom)}
	var snapshot []byte
	if err := h.look(ctx, func() {
		snapshot, t.skip = h.engine.Snapshot(), h.journal.buffer.Len()
		h.journal.taps = append(h.journal.taps, t)
	}); err != nil {
		return err
	}
	defer func() {
		_ = h.look(context.WithoutCancel(ctx), func() {
			h.journal.taps = slices.DeleteFunc(h.journal.taps, func(o *tap) bool { return o == t })
		})
	}()
	if _, err := engine.NewLogWriter(to, snapshot); err != nil {
		return err
	}
	for {
		select {
		case records, ok := <-t.more:
			if !ok {
				return refuse(api.CodeUnavailable, "whoever reads the record fell %d commits behind: read faster, or take the files in the folder events of the server's state", tapRoom)
			}
			if _, err := to.Write(records); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-h.quit:
			return refuse(api.CodeUnavailable, "the server is stopping: ask again when it is back")
		}
	}
}
