package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aliquot-dev/aliquot/node"
)

// recover makes everything as the checkpoints say: what is prepared is made again where a reboot took it, what was half done is taken back, as
// is what node or the CDI folder has and no checkpoint knows. A claim that cannot be made again stays prepared, since its pod may
// run, and kubelet asks for it again before any other container gets it.
func (d *Driver) recover(ctx context.Context) error {
	known, err := d.checkpoints.list()
	if err != nil {
		return err
	}
	if there := len(d.config.Agent.Prepared()); len(known) == 0 && there > 0 {
		return fmt.Errorf("the state folder %s knows of no claim, and %d are prepared in the run folder %s: taken back, their containers would run without their shares; start with the --state that they were prepared with, or, if that is lost, drain the node and reboot it",
			d.config.State, there, d.config.Run)
	}
	for _, uid := range known {
		one, _, err := d.checkpoints.read(uid)
		switch {
		case errors.Is(err, errDamaged):
			if err := d.mend(uid, err); err != nil {
				return err
			}
		case err != nil:
			return err
		case one.Phase == prepared:
			if one.Name != "" {
				d.troubles.claims.Add(uid) // its device may be down, or back, since it was told of
			}
			if err := d.realise(ctx, one); err != nil {
				d.log.Error("a prepared claim could not be made again", "claim", one.Namespace+"/"+one.Name, "uid", uid, "error", err)
				if errors.Is(err, node.ErrBroken) {
					d.breaks(uid, strings.TrimPrefix(err.Error(), "prepare task "+uid+": "))
				}
			}
		default:
			if err := d.unprepare(ctx, uid); err != nil {
				return fmt.Errorf("take back claim %s/%s: %w", one.Namespace, one.Name, err)
			}
		}
	}
	return d.removeUnknown(ctx)
}

// mend writes a damaged checkpoint anew from node's own record of the task and the claim's name in its CDI file. Without that record nothing runs of the
// claim, and kubelet asks for it again if it is needed. Without the name nobody but kubelet can have it taken back.
func (d *Driver) mend(uid string, damage error) error {
	d.log.Error("a checkpoint cannot be read; what node knows of the claim counts", "error", damage)
	for _, task := range d.config.Agent.Prepared() {
		if task.UID == uid {
			namespace, name, err := d.specs.claim(uid)
			if err != nil {
				d.log.Error("of a claim whose checkpoint was damaged the name is not known; it stays until kubelet asks for it or the node is rebooted", "uid", uid, "error", err)
			}
			return d.checkpoints.write(checkpoint{Phase: prepared, Namespace: namespace, Name: name, Task: task})
		}
	}
	return errors.Join(d.specs.remove(uid), d.checkpoints.remove(uid))
}

// removeUnknown takes back what is there of claims without a checkpoint.
func (d *Driver) removeUnknown(ctx context.Context) error {
	known, err := d.checkpoints.list()
	if err != nil {
		return err
	}
	files, err := d.specs.list()
	if err != nil {
		return err
	}
	for _, uid := range files {
		if !slices.Contains(known, uid) {
			if err := d.specs.remove(uid); err != nil {
				return err
			}
		}
	}
	for _, task := range d.config.Agent.Prepared() {
		if !slices.Contains(known, task.UID) {
			d.log.Warn("a task that no claim is known for is taken back", "uid", task.UID)
			if err := d.config.Agent.Unprepare(ctx, task.UID); err != nil {
				return err
			}
		}
	}
	return nil
}
