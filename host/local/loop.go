package local

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/internal/point"
	"github.com/aliquot-dev/aliquot/store"
)

// message is something for the loop. Of the first three one is set.
type message struct {
	intake  *intake
	request func() error // a user's: refused while nothing can be stored; answered once its outcome is stored
	news    func()       // what happened, or a look at the state
	reply   chan<- error // nil: nobody waits
	look    bool         // news that changes nothing: answered at once
	anyway  bool         // a request that is decided also while nothing can be stored
}

// intake is a workload to take in.
type intake struct {
	check func() (*work, error) // against the state as it is
	work  *work
	taken api.Workload // as stored
}

// batchLimit is how many messages are stored together at most.
const batchLimit = 512

// retryEvery is how often a commit that failed is tried again.
const retryEvery = 500 * time.Millisecond

// loop owns all state until Close.
func (h *Host) loop() {
	defer h.running.Done()
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for {
		h.commit()
		if h.broken != nil {
			retry.Reset(retryEvery)
		}
		h.setTick()
		h.memory.fresh = false
		var batch []message
		select {
		case <-h.quit:
			return
		case one := <-h.inbox:
			batch = h.gather(one)
		case <-h.tick.C:
			h.measure()
			if now := h.time(); h.engine.Next() <= now.At {
				h.step(engine.Tick{At: now})
			}
		case <-retry.C:
		}
		h.handle(batch)
	}
}

// gather takes what has come in meanwhile too.
func (h *Host) gather(first message) []message {
	batch := []message{first}
	for len(batch) < batchLimit {
		select {
		case one := <-h.inbox:
			batch = append(batch, one)
		default:
			return batch
		}
	}
	return batch
}

func (h *Host) handle(batch []message) {
	if h.broken == nil {
		h.turn()
	}
	h.takeIn(batch)
	h.probe(batch)
	for _, one := range batch {
		switch {
		case one.news != nil:
			one.news()
			if one.look {
				one.reply <- nil
				continue
			}
		case one.request != nil:
			if h.broken != nil && !one.anyway {
				one.reply <- h.cannotStore()
				continue
			}
			if err := one.request(); err != nil {
				one.reply <- err
				continue
			}
		default:
			continue
		}
		if one.reply != nil {
			h.replies = append(h.replies, func(err error) { one.reply <- err })
		}
	}
}

// takeIn stores the submissions of a batch in one transaction, answers them, and only then shows them to the engine: what was not
// stored was never there.
func (h *Host) takeIn(batch []message) {
	var taken []message
	var write store.Batch
	for _, one := range batch {
		if one.intake == nil {
			continue
		}
		err := h.cannotStore()
		if h.broken == nil {
			one.intake.work, err = one.intake.check()
		}
		if err != nil {
			one.reply <- err
			continue
		}
		w := one.intake.work
		h.names[w.now.Spec.Name] = w // the next of the batch must not take it
		write.Workloads = append(write.Workloads, w.row())
		write.Records = append(write.Records, store.Record{UID: w.now.UID, At: w.now.Status.Submitted, Message: "submitted by " + w.now.User})
		taken = append(taken, one)
	}
	if len(taken) == 0 {
		return
	}
	err := h.store.Write(h.ctx, &write)
	if err != nil {
		err = unavailable(err)
	} else {
		point.Here("local.submit.stored")
	}
	for _, one := range taken {
		w := one.intake.work
		if err != nil {
			delete(h.names, w.now.Spec.Name)
			one.reply <- err
			continue
		}
		w.shown, one.intake.taken = w.now, w.now
		h.work[w.now.UID] = w
		h.awaitDate(w)
		one.reply <- nil
		h.say("workload", w, "submitted")
		if w.now.Spec.Attach {
			h.expectClient(w)
		}
		if rejected := h.step(engine.Submit{At: h.time(), Workload: engineWorkload(w)}); rejected != nil {
			// Checked before it was stored; what is rejected all the same must not wait for ever.
			h.conclude(w, verdict{outcome: api.Refused, reason: rejected.Reason})
		}
	}
}

// probe writes a little before the first request of a batch is carried out: on a full disk it is refused, and nothing has changed.
// Where that little fits and the request's outcome does not, whoever asked is told that it is done later.
func (h *Host) probe(batch []message) {
	for _, one := range batch {
		if one.request == nil || h.broken != nil {
			continue
		}
		last := map[string]string{"last request": h.Now().UTC().Format(time.RFC3339Nano)}
		if err := h.store.Write(h.ctx, &store.Batch{Settings: last}); err != nil {
			h.broken = err // the next commit that succeeds clears it
		}
		return
	}
}

// commit stores what was decided since the last one, and only then acts upon it and answers.
func (h *Host) commit() {
	if err := h.save(); err != nil {
		if h.broken == nil {
			h.Log.Error("nothing is decided until the state can be written again", "error", err)
		}
		h.broken = err
		for _, reply := range h.replies {
			reply(refuse(api.CodeUnavailable, "this was decided but cannot be stored yet, and is done as soon as it can: %v", err))
		}
		h.replies = nil
		return
	}
	if h.broken != nil {
		h.Log.Info("the state can be written again")
		h.broken = nil
	}
	for _, w := range h.dirty {
		w.dirty = false
		w.shown = w.now
		close(w.changed)
		w.changed = make(chan struct{})
	}
	h.dirty = nil
	for _, reply := range h.replies {
		reply(nil)
	}
	h.replies = nil
	if err := h.journal.rotate(h.engine); err != nil {
		h.Log.Warn("the event log goes on in its old file", "error", err)
	}
	effects := h.effects
	h.effects = nil
	for _, effect := range effects {
		effect()
	}
}

// set has settings stored with the next commit.
func (h *Host) set(settings map[string]string) {
	if h.pending.Settings == nil {
		h.pending.Settings = map[string]string{}
	}
	maps.Copy(h.pending.Settings, settings)
}

func (h *Host) save() error {
	if len(h.dirty) == 0 && h.pending.Empty() && !h.journal.dirty {
		return nil
	}
	// The log first: it may know of more than the store, never of less than what was acted upon.
	synced := make(chan error, 1)
	go func() { synced <- h.journal.sync() }()
	h.pending.Workloads = nil
	for _, w := range h.dirty {
		h.pending.Workloads = append(h.pending.Workloads, w.row())
	}
	h.keepHours()
	h.keepQueuesUsed()
	actions := h.actions
	if h.engine.NextAction()+actionsAtOnce/2 > actions {
		actions = h.engine.NextAction() + actionsAtOnce
		h.set(setAside(actions))
	}
	err := h.store.Write(context.WithoutCancel(h.ctx), &h.pending)
	if err == nil {
		h.pending, h.actions = store.Batch{}, actions
	}
	return errors.Join(err, <-synced)
}

// unavailable refuses a request of which nothing was decided.
func unavailable(err error) error {
	if errors.Is(err, store.ErrFull) {
		return refuse(api.CodeUnavailable, "the server cannot store this, and nothing was changed: %v", err)
	}
	return refuse(api.CodeUnavailable, "the server cannot store this, and nothing was changed: %v; see the server's log", err)
}

func (h *Host) cannotStore() error {
	if h.broken == nil {
		return nil
	}
	return unavailable(h.broken)
}

// setTick has the engine asked when it wants to be, and memory measured while that matters.
func (h *Host) setTick() {
	next := h.nextMeasure()
	if at := h.engine.Next(); at != engine.Never {
		if wanted := h.wall(at); next.IsZero() || wanted.Before(next) {
			next = wanted
		}
	}
	if at := h.ruling.next; h.broken == nil && !at.IsZero() && (next.IsZero() || at.Before(next)) {
		next = at
	}
	if h.broken == nil && !h.hours.None() {
		now := h.Now().Round(0)
		at := h.hours.Next(now, h.engine.Held)
		if pace := now.Add(windowPace); pace.Before(at) {
			at = pace
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if next.IsZero() {
		h.tick.Stop()
		return
	}
	h.tick.Reset(max(0, next.Sub(h.Now())))
}

// send hands a message to the loop; false if the host is being closed.
func (h *Host) send(one message) bool {
	select {
	case h.inbox <- one:
		return true
	case <-h.quit:
		return false
	}
}

// ask hands a message to the loop and waits for the answer.
func (h *Host) ask(ctx context.Context, one message) error {
	answer := make(chan error, 1)
	one.reply = answer
	select {
	case h.inbox <- one:
	case <-h.quit:
		return refuse(api.CodeUnavailable, "the server is stopping: ask again when it is back")
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-answer:
		return err
	case <-h.quit:
		return refuse(api.CodeUnavailable, "the server is stopping: ask again when it is back")
	}
}

// tell says what happened. It waits for room, not for the outcome.
func (h *Host) tell(news func()) { h.send(message{news: news}) }

// look runs f on the loop, to read.
func (h *Host) look(ctx context.Context, f func()) error {
	return h.ask(ctx, message{news: f, look: true})
}

// request runs f on the loop and returns once what it changed is stored.
func (h *Host) request(ctx context.Context, f func() error) error {
	return h.ask(ctx, message{request: f})
}
