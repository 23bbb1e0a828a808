package local

import (
	"context"
	"fmt"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/server"
)

// Resize gives a workload another share: in place while it runs.
func (h *Host) Resize(ctx context.Context, who server.Caller, name string, change server.ShareChange) (api.Workload, error) {
	answer := make(chan error, 1)
	var uid string
	err := h.request(ctx, func() error {
		w, err := h.owned(ctx, who, name, "resize")
		if err != nil {
			return err
		}
		if len(w.now.Spec.Roles) > 0 {
			return refuse(api.CodeConflict, "%s has roles, each with its own share, and these cannot be changed: stop it and submit it with others", h.nameOf(w.gang()))
		}
		if w.number() > 0 {
			return refuse(api.CodeConflict, "%s is one of several replicas, which all have the same share: resize the first, %s", w.now.Spec.Name, h.nameOf(w.gang()))
		}
		uid = w.now.UID
		share, err := changed(w.now.Spec.Share, change)
		if err != nil {
			return err
		}
		asked := engineWorkload(w)
		asked.ID, asked.Share = w.now.Spec.Name, share
		if err := h.engine.Check(asked); err != nil {
			return api.Invalid("%s", err)
		}
		if change.Memory != nil {
			if err := h.checkCeiling(share.Memory, asked.Model); err != nil {
				return err
			}
		}
		if share.Compute.Floor > w.now.Spec.Share.Compute.Floor {
			if err := h.checkQuota(asked); err != nil {
				return api.Invalid("%s", err)
			}
		}
		return h.resize(w, share, answer)
	})
	if err != nil {
		return api.Workload{}, err
	}
	select {
	case err := <-answer:
		if err != nil {
			return api.Workload{}, err
		}
	case <-ctx.Done():
		return api.Workload{}, ctx.Err()
	case <-h.quit:
		return api.Workload{}, refuse(api.CodeUnavailable, "the server is stopping: look at the share when it is back")
	}
	return h.Workload(ctx, uid)
}

// resize asks the engine; answer gets the outcome once it is known.
func (h *Host) resize(w *work, share api.Share, answer chan<- error) error {
	switch {
	case w.now.Status.Phase == api.Starting:
		return refuse(api.CodeConflict, "%s is being started: change its share when it runs", w.now.Spec.Name)
	case w.now.Status.Phase == api.Stopping:
		return refuse(api.CodeConflict, "%s is being stopped: its share ends with it", w.now.Spec.Name)
	case share == w.now.Spec.Share:
		answer <- nil
		return nil
	}
	if err := h.checkHeld(w, share); err != nil {
		return err
	}
	// doResize takes these over when the engine proposes the change, which it does within the step.
	w.resizing = append(w.resizing, func(err error) { answer <- err })
	if rejected := h.step(engine.Change{At: h.time(), ID: w.now.UID, Share: &share}); rejected != nil {
		w.resizing = nil
		return refuse(codeOf(rejected.Code), "%s", rejected.Reason)
	}
	if len(w.resizing) > 0 { // it waits: nothing to be done on a device
		w.resizing = nil
		w.now.Spec.Share = share
		h.touch(w)
		h.note(w, "now asks for "+describe(share)+describeWeight(share))
		h.after(func() { answer <- nil })
	}
	return nil
}

func changed(share api.Share, change server.ShareChange) (api.Share, error) {
	if change.Compute != nil {
		share.Compute = *change.Compute
	}
	if change.Memory != nil {
		share.Memory = *change.Memory
	}
	if change.Weight != nil {
		share.Weight = *change.Weight
	}
	if err := share.Validate(); err != nil {
		return share, refusal(err)
	}
	return share, nil
}

// checkHeld refuses a memory ceiling below what a running workload holds.
func (h *Host) checkHeld(w *work, share api.Share) error {
	for _, held := range h.Agent.MemoryHeld() {
		device := h.devices[held.Grant.Device]
		if held.Task != w.now.UID || device == nil {
			continue
		}
		if _, ceiling := share.Memory.On(device.Memory); ceiling < held.Grant.MemCeiling && ceiling < held.Used {
			return refuse(api.CodeConflict, "%s holds %s of the memory of device %d and cannot have a ceiling of %s: ask for at least %s",
				w.now.Spec.Name, held.Used, device.Index, ceiling, held.Used)
		}
	}
	return nil
}

// describeWeight is the weight at the end of what is said of a share, if one was asked for.
func describeWeight(share api.Share) string {
	if share.Weight == 0 {
		return ""
	}
	return fmt.Sprintf(", with a weight of %d", share.Weight)
}

// describeGrants says what a workload has, which is what it asked for in whole steps of memory.
func describeGrants(share api.Share, grants []engine.Grant) string {
	text := fmt.Sprintf("%s of a device", share.Compute)
	if len(grants) == 0 || share.Memory.IsZero() {
		return text
	}
	has := api.Memory{Floor: api.Amount{Bytes: grants[0].Floor}, Ceiling: api.Amount{Bytes: grants[0].Ceiling}}
	text += " with " + has.String() + " of memory"
	switch {
	case has.String() == share.Memory.String():
		return text
	case share.Memory.Floor.Part > 0 || share.Memory.Ceiling.Part > 0:
		return text + ", which is " + share.Memory.String()
	}
	return text + ", rounded up from " + share.Memory.String()
}
