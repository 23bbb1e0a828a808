package local

import (
	"context"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/server"
)

// Checkpoint notes that a workload has just saved what it has done: evicted from now on, it would lose only what it does after this. Of one of several
// replicas it is said of all.
func (h *Host) Checkpoint(ctx context.Context, who server.Caller, name string) (api.Workload, error) {
	var uid string
	err := h.request(ctx, func() error {
		w, err := h.owned(ctx, who, name, "save")
		switch {
		case err != nil:
			return err
		case w.now.Status.Phase != api.Running:
			return refuse(api.CodeConflict, "%s does not run (%s): say so when it has saved something while it runs", w.now.Spec.Name, w.now.Status.Phase)
		}
		uid = w.now.UID
		if rejected := h.step(engine.Checkpoint{At: h.time(), ID: w.gang()}); rejected != nil {
			return refuse(codeOf(rejected.Code), "%s", rejected.Reason)
		}
		w.now.Status.Checkpoint = new(h.Now().UTC())
		h.touch(w)
		return nil
	})
	if err != nil {
		return api.Workload{}, err
	}
	return h.Workload(ctx, uid)
}

// retellCheckpoint tells an engine that begins anew when a workload saved its work last.
func (h *Host) retellCheckpoint(w *work) {
	if at := w.now.Status.Checkpoint; at != nil {
		h.step(engine.Checkpoint{At: h.time(), ID: w.gang(), Ago: micros(h.Now().Sub(*at))})
	}
}
