package local

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/store"
)

// memoryEvery is how often memory is measured while something waits and memory is held above floors, which may come back.
const memoryEvery = time.Second

// memory is what the engine was told of the memory that grants hold.
type memory struct {
	told  map[string]api.Bytes // by grant
	above bool                 // some hold more than their floors
	fresh bool                 // measured since the loop last turned
	at    time.Time
}

// measure tells the engine which grants hold more memory than when it was last told. It reads the tasks' pages, which is cheap, and
// comes before every decision, so that none is made on memory that someone holds.
func (h *Host) measure() {
	var usage engine.Usage
	h.memory, usage = h.heldNow()
	if len(usage.Grants) > 0 {
		h.step(usage)
	}
}

// heldNow is what grants hold of memory, and the news in that for the engine.
func (h *Host) heldNow() (memory, engine.Usage) {
	m := memory{told: map[string]api.Bytes{}, fresh: true, at: h.Now()}
	usage := engine.Usage{At: h.time()}
	for _, held := range h.Agent.MemoryHeld() {
		uid, floor := held.Grant.UID, held.Grant.MemFloor
		m.above = m.above || held.Firm > floor
		// Up to the floor it makes no difference, nor does what can be taken back: room is made of it for floors.
		if told := h.memory.told[uid]; max(told, floor) == max(held.Firm, floor) {
			m.told[uid] = told
			continue
		}
		m.told[uid] = held.Firm
		usage.Grants = append(usage.Grants, engine.GrantUsage{UID: uid, Memory: held.Firm})
	}
	return m, usage
}

// nextMeasure is when memory is to be measured without another cause; zero: not at all. Only what comes back matters then, and only
// to what waits: before any decision it is measured anyway.
func (h *Host) nextMeasure() time.Time {
	if !h.memory.above || !h.engine.Waits() {
		return time.Time{}
	}
	return h.memory.at.Add(memoryEvery)
}

// nameAbove puts names in place of UIDs of workloads in what the engine says of memory that they hold.
func (h *Host) nameAbove(why *api.Why, above []engine.Above) {
	for _, one := range above {
		other := h.work[one.ID]
		if other == nil {
			continue
		}
		rename := func(text *string) { *text = strings.ReplaceAll(*text, one.ID, other.now.Spec.Name) }
		rename(&why.Message)
		for i := range why.Counts {
			rename(&why.Counts[i].Message)
		}
	}
}

// Every start has a new engine, whose actions begin where no earlier one's can have been: IDs are set aside in the store, many at a
// time, before they are used.
const (
	actionsSetting = "actions set aside"
	actionsAtOnce  = 1 << 16
)

// firstAction is the first ID of this start's engine.
func (h *Host) firstAction(ctx context.Context) (engine.ActionID, error) {
	text, err := h.store.Setting(ctx, actionsSetting)
	if err != nil {
		return 0, err
	}
	last := uint64(0)
	if text != "" {
		if last, err = strconv.ParseUint(text, 10, 64); err != nil {
			return 0, fmt.Errorf("%w: the number of actions that are set aside cannot be read: %w", store.ErrDamaged, err)
		}
	}
	h.actions = engine.ActionID(last) + actionsAtOnce
	return engine.ActionID(last) + 1, h.store.Write(ctx, &store.Batch{Settings: setAside(h.actions)})
}

func setAside(last engine.ActionID) map[string]string {
	return map[string]string{actionsSetting: strconv.FormatUint(uint64(last), 10)}
}
