package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// undo gives back what may have been written of these, the last first, and what the filters had allocated for them, which would keep their pods to the node.
func (w *writer) undo(ctx context.Context, j job, out *outcome) error {
	for _, t := range slices.Backward(j) {
		for _, c := range slices.Backward(t.claims) {
			now, err := w.giveBack(ctx, c, reference(t.pod))
			if err != nil {
				return err
			}
			if now != nil {
				out.left = append(out.left, now)
			}
		}
		w.undoOthers(ctx, t)
	}
	return ctx.Err()
}

// undoOthers gives back what the filters wrote for a pod, as far as the API server lets it: its claims that are not the job's, and the claim that they made for its
// limits. The filters do so, too, once no node takes the pod.
func (w *writer) undoOthers(ctx context.Context, t jobTask) {
	undone := func(key string, undo func() error) {
		for try := 0; ; try++ {
			err := undo()
			if err == nil || apierrors.IsNotFound(err) {
				return
			}
			if try == tries || !again(ctx, try) {
				w.log.Warn("a claim of another driver is not given back, and may keep its pod to a node", "claim", key, "pod", t.pod.Namespace+"/"+t.pod.Name, "error", err)
				return
			}
		}
	}
	for key := range w.others(t) {
		undone(key, func() error {
			now, err := w.named(ctx, key)
			if err == nil && now.Status.Allocation != nil {
				_, err = w.giveBackOnce(ctx, now, nil, reference(t.pod))
			}
			return err
		})
	}
	for _, made := range w.madeFor(t) {
		key := made.Namespace + "/" + made.Name
		undone(key, func() error {
			now, err := w.named(ctx, key)
			if err != nil || now.UID != made.UID {
				return err
			}
			return w.remove(ctx, now)
		})
	}
}

// madeFor are the claims that were made for the limits of a pod, of other drivers' devices, on its node: one, if it is heard of.
func (w *writer) madeFor(t jobTask) []*resourceapi.ResourceClaim {
	all, err := w.claims.ResourceClaims(t.pod.Namespace).List(labels.Everything())
	if err != nil {
		w.log.Warn("claims that were made for a pod's limits are not known", "pod", t.pod.Namespace+"/"+t.pod.Name, "error", err)
	}
	return slices.DeleteFunc(all, func(c *resourceapi.ResourceClaim) bool {
		elsewhere := c.Status.Allocation != nil && nodeOf(c.Status.Allocation) != "" && nodeOf(c.Status.Allocation) != t.node
		return c.Annotations[resourceapi.ExtendedResourceClaimAnnotation] != "true" || !metav1.IsControlledBy(c, t.pod) || elsewhere
	})
}

// remove deletes a claim with what it holds.
func (w *writer) remove(ctx context.Context, current *resourceapi.ResourceClaim) error {
	claims := w.client.ResourceV1().ResourceClaims(current.Namespace)
	if at := slices.Index(current.Finalizers, resourceapi.Finalizer); at >= 0 {
		current = current.DeepCopy()
		current.Finalizers = slices.Delete(current.Finalizers, at, at+1)
		if _, err := within(ctx, func(ctx context.Context) (*resourceapi.ResourceClaim, error) {
			return claims.Update(ctx, current, metav1.UpdateOptions{})
		}); err != nil {
			return err
		}
	}
	_, err := within(ctx, func(ctx context.Context) (*resourceapi.ResourceClaim, error) {
		return nil, claims.Delete(ctx, current.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(current.UID))})
	})
	return err
}

// giveBack takes a pod out of a claim, and with the last pod the allocation and the finalizer; another's allocation stays. It returns the
// claim as it is then, nil: it is gone. It tries until that is so: an error is that the context has ended. A write of the allocation that is
// still under way fails after it, for the claim has another version then.
func (w *writer) giveBack(ctx context.Context, c jobClaim, pod resourceapi.ResourceClaimConsumerReference) (*resourceapi.ResourceClaim, error) {
	for try := 0; ; try++ {
		current, err := w.claim(ctx, c.object)
		if errors.Is(err, errLost) {
			w.insisted(try, pod.UID)
			return nil, nil
		}
		if err == nil {
			if current, err = w.giveBackOnce(ctx, current, c.allocation, pod); err == nil {
				w.insisted(try, pod.UID)
				return current, nil
			}
		}
		if !w.insist(ctx, try, pod.UID, fmt.Sprintf("claim %s/%s cannot be taken back", c.object.Namespace, c.object.Name), err) {
			return nil, ctx.Err()
		}
	}
}

func (w *writer) giveBackOnce(ctx context.Context, current *resourceapi.ResourceClaim, allocation *resourceapi.AllocationResult, pod resourceapi.ResourceClaimConsumerReference) (*resourceapi.ResourceClaim, error) {
	claims := w.client.ResourceV1().ResourceClaims(current.Namespace)
	current = current.DeepCopy()
	if had := current.Status.Allocation; had != nil {
		if allocation != nil && !sameAllocation(had, allocation) {
			return current, nil
		}
		current.Status.ReservedFor = slices.DeleteFunc(current.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID == pod.UID })
		if len(current.Status.ReservedFor) == 0 {
			current.Status.Allocation, current.Status.Devices = nil, nil
		}
		now, err := within(ctx, func(ctx context.Context) (*resourceapi.ResourceClaim, error) {
			return claims.UpdateStatus(ctx, current, metav1.UpdateOptions{})
		})
		if err != nil {
			return nil, err
		}
		current = now.DeepCopy()
	}
	at := slices.Index(current.Finalizers, resourceapi.Finalizer)
	if at < 0 || current.Status.Allocation != nil {
		return current, nil
	}
	current.Finalizers = slices.Delete(current.Finalizers, at, at+1)
	now, err := within(ctx, func(ctx context.Context) (*resourceapi.ResourceClaim, error) {
		return claims.Update(ctx, current, metav1.UpdateOptions{})
	})
	if apierrors.IsNotFound(err) { // it waited to be deleted
		return nil, nil
	}
	return now, err
}
