package local

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/store"
)

const (
	// startsKept is how many of the last starts are counted in how estimates fared.
	startsKept = 256
	// forecastLasts is how long a forecast holds while nothing is decided.
	forecastLasts = time.Second

	startsSetting = "errors of start estimates"
)

// starts are the estimates of starts: the last forecast, and how those that were given fared.
type starts struct {
	forecast *engine.Outlook // nil: something was decided since
	errors   []int64         // µs that the last starts came later than was said; less than nothing: sooner. The oldest first
}

// loadStarts reads how the estimates of earlier daemons fared.
func (h *Host) loadStarts(ctx context.Context) error {
	text, err := h.store.Setting(ctx, startsSetting)
	if err != nil || text == "" {
		return err
	}
	if err := json.Unmarshal([]byte(text), &h.starts.errors); err != nil {
		return fmt.Errorf("%w: how estimates of starts fared cannot be read: %w", store.ErrDamaged, err)
	}
	return nil
}

// expectedOf is when a workload that waits is expected to start. The first time that is known counts when it starts.
func (h *Host) expectedOf(w *work) *api.Start {
	if f, now := h.starts.forecast, h.time().At; f == nil || now-f.At > engine.Time(forecastLasts.Microseconds()) {
		h.starts.forecast = h.engine.Outlook(now, h.coming()...)
	}
	out := h.shownStart(h.engine.Estimate(h.starts.forecast, w.now.UID))
	if w.keep.Expected == nil {
		w.keep.Expected = cmp.Or(out.Expected, out.Latest) // stored when something happens to it
	}
	return out
}

// shownStart is an estimate as the API shows it.
func (h *Host) shownStart(estimate engine.Estimate) *api.Start {
	out := &api.Start{Unknown: estimate.Message, Past: h.pastStarts()}
	if estimate.Latest != engine.Never {
		out.Earliest, out.Latest = h.known(estimate.Earliest), h.known(estimate.Latest)
	}
	out.Expected, out.From, out.To = h.known(estimate.Expected), h.known(estimate.From), h.known(estimate.To)
	for _, id := range estimate.InWay {
		out.InWay = append(out.InWay, h.nameOf(id))
	}
	return out
}

// known is a time of the engine's on the clock; nil: never.
func (h *Host) known(at engine.Time) *time.Time {
	if at == engine.Never {
		return nil
	}
	return new(h.shown(at))
}

// nameOf is the name of a live workload.
func (h *Host) nameOf(uid string) string {
	if w := h.work[uid]; w != nil {
		return w.now.Spec.Name
	}
	return uid
}

// fared counts how far a start was from what was said of it, if anything was.
func (h *Host) fared(w *work, started time.Time) {
	if w.keep.Expected == nil {
		return
	}
	h.starts.errors = append(h.starts.errors, started.Sub(*w.keep.Expected).Microseconds())
	h.starts.errors = h.starts.errors[max(0, len(h.starts.errors)-startsKept):]
	w.keep.Expected = nil
	text, err := json.Marshal(h.starts.errors)
	if err != nil { // it is made of numbers
		panic(err)
	}
	h.set(map[string]string{startsSetting: string(text)})
}

// pastStarts sums up how estimates fared; nil: there were none.
func (h *Host) pastStarts() *api.PastStart {
	if len(h.starts.errors) == 0 {
		return nil
	}
	out := &api.PastStart{Starts: len(h.starts.errors)}
	distances := make([]int64, len(h.starts.errors))
	for i, one := range h.starts.errors {
		distances[i] = max(one, -one)
		if one > 0 {
			out.Late++
		}
	}
	slices.Sort(distances)
	out.Median, out.P90 = quantile(distances, 50), quantile(distances, 90)
	return out
}

// quantile is the least of sorted µs that so many percent are not above.
func quantile(sorted []int64, percent int) api.Duration {
	at := (len(sorted)*percent + 99) / 100
	return api.Duration(time.Duration(sorted[max(at, 1)-1]) * time.Microsecond)
}

// Starts says how the estimates fared that were given of the last starts; nil: none was given.
func (h *Host) Starts(ctx context.Context) (*api.PastStart, error) {
	var past *api.PastStart
	err := h.look(ctx, func() { past = h.pastStarts() })
	return past, err
}
