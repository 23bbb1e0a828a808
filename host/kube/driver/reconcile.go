package driver

import (
	"context"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reconcileEvery is how often it is looked for claims that nobody will ask to be taken back.
const reconcileEvery = 5 * time.Minute

// answerWithin is how long the API server has to say how one claim is: others wait meanwhile.
const answerWithin = 5 * time.Second

// reconcileUntil looks at once and then every few minutes, until the context ends.
func (d *Driver) reconcileUntil(ctx context.Context) {
	look := time.NewTicker(reconcileEvery)
	defer look.Stop()
	for before := map[string]bool{}; ; {
		var err error
		if before, err = d.reconcile(ctx, before); err != nil && ctx.Err() == nil {
			d.log.Error("claims that nobody has any more are looked for again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// reconcile takes back claims that are prepared here and by the cluster's word are nobody's on this node: kubelet asks for that, unless it
// has lost its own record, and then it never would. Only such are taken back as were so at the look before too and as no process is in: kubelet
// ends the pods of a claim that was deleted by force, and until then their share is in use. What the API server does not tell of stays.
// It returns those that are nobody's now.
func (d *Driver) reconcile(ctx context.Context, before map[string]bool) (map[string]bool, error) {
	now := map[string]bool{}
	candidates, err := d.preparedClaims()
	if err != nil {
		return now, err
	}
	for _, one := range candidates {
		abandoned, err := d.abandoned(ctx, one)
		if err != nil {
			d.log.Warn("it is not known whether a claim is in use; it stays", "claim", one.Namespace+"/"+one.Name, "error", err)
		}
		if !abandoned || err != nil {
			continue
		}
		now[one.Task.UID] = true
		if before[one.Task.UID] {
			if err := d.takeBack(ctx, one); err != nil {
				return now, fmt.Errorf("take back claim %s/%s, which nobody has any more: %w", one.Namespace, one.Name, err)
			}
		}
	}
	return now, nil
}

// preparedClaims are the checkpoints of all claims that are prepared and whose names are known.
func (d *Driver) preparedClaims() ([]checkpoint, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known, err := d.checkpoints.list()
	if err != nil {
		return nil, err
	}
	var all []checkpoint
	for _, uid := range known {
		one, found, err := d.checkpoints.read(uid)
		if err == nil && found && one.Phase == prepared && one.Name != "" {
			all = append(all, one)
		}
	}
	return all, nil
}

// abandoned says whether a claim is gone, or another's by now, or has nothing of this node.
func (d *Driver) abandoned(ctx context.Context, one checkpoint) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	claim, err := d.config.Client.ResourceV1().ResourceClaims(one.Namespace).Get(ctx, one.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	for _, result := range ours(claim) {
		if string(claim.UID) == one.Task.UID && result.Pool == d.config.Node {
			return false, nil
		}
	}
	return true, nil
}

// takeBack takes a claim back that was found abandoned, unless it is in use or has come to somebody meanwhile.
func (d *Driver) takeBack(ctx context.Context, one checkpoint) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	current, found, err := d.checkpoints.read(one.Task.UID)
	if err != nil || !found || !reflect.DeepEqual(current, one) {
		return err
	}
	sample, err := d.config.Agent.Sample(ctx)
	if err != nil {
		return err
	}
	for _, usage := range sample.Tasks {
		if usage.Task == one.Task.UID && len(usage.Processes) > 0 {
			d.log.Warn("a claim that the cluster knows nothing of is in use, and stays until its processes end", "claim", one.Namespace+"/"+one.Name, "processes", usage.Processes)
			return nil
		}
	}
	// Asked again while no pod can begin: it may have been allocated anew since.
	if abandoned, err := d.abandoned(ctx, one); err != nil || !abandoned {
		return err
	}
	d.log.Warn("a claim is taken back that the cluster knows nothing of any more and kubelet did not ask to take back", "claim", one.Namespace+"/"+one.Name, "uid", one.Task.UID)
	return d.unprepare(ctx, one.Task.UID)
}
