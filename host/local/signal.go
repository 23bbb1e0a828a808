package local

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"syscall"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/server"
)

// lastSignal is the kernel's last one, a real-time signal.
const lastSignal = 64

// Signal sends a signal to the workload's processes; to those of all its replicas, where they are attached to a client.
func (h *Host) Signal(ctx context.Context, who server.Caller, name string, sig syscall.Signal) error {
	if sig < 1 || sig > lastSignal {
		return api.Invalid("signal %d is not known: name one, for example SIGUSR1", int(sig))
	}
	var failed error
	err := h.look(ctx, func() {
		var all []*work
		if all, failed = h.signalled(ctx, who, name); failed != nil {
			return
		}
		reached := false
		for _, w := range all {
			err := sendSignal(w, sig)
			reached, failed = reached || err == nil, cmp.Or(failed, err)
		}
		if reached {
			failed = nil
		}
	})
	if err == nil && failed != nil {
		err = refusal(failed)
	}
	return err
}

// signalled are those whom a signal is for: a workload, and where it is attached to a client all of its replicas that are left.
func (h *Host) signalled(ctx context.Context, who server.Caller, name string) ([]*work, error) {
	w, err := h.owned(ctx, who, name, "signal")
	switch {
	case err == nil && w.now.Spec.Attach && w.number() == 0:
		return append([]*work{w}, h.others(w)...), nil
	case err == nil:
		return []*work{w}, nil
	}
	left := slices.DeleteFunc(h.leftOf(who, name), func(o *work) bool { return !o.now.Spec.Attach })
	if len(left) > 0 {
		return left, nil
	}
	return nil, err
}

// sendSignal sends one to a workload's processes, or keeps it for those that are being started.
func sendSignal(w *work, sig syscall.Signal) error {
	switch {
	case w.child == nil && w.now.Status.Phase == api.Starting:
		w.signals = append(w.signals, sig) // its program may run before we hear of it
		return nil
	case w.child == nil:
		return refuse(api.CodeConflict, "%s does not run yet (%s): there is nothing to signal", w.now.Spec.Name, w.now.Status.Phase)
	}
	err := w.child.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		err = refuse(api.CodeConflict, "%s has just ended: there is nothing left to signal", w.now.Spec.Name)
	}
	return err
}
