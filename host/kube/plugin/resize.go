package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// Change is what is asked of a pod's share. What is empty stays as it is.
type Change struct {
	Claim   string      // which of the pod's claims; empty: its only one
	Compute api.Compute // its floor must be the one that is
	Memory  api.Memory  // likewise
}

// Resize changes the ceilings of a pod's share and waits until the node holds containers to them, or has refused.
func (p Plugin) Resize(ctx context.Context, namespace, name string, change Change) error {
	if change.Compute.IsZero() && change.Memory.IsZero() {
		return errors.New("nothing to change: give --gpu, --mem or both, as --gpu 0.25..0.60")
	}
	claim, err := p.ours(ctx, namespace, name, change.Claim)
	if err != nil {
		return err
	}
	share, err := p.share(ctx, namespace, claim)
	if err != nil {
		return err
	}
	floor, before := share.Spec.Floor, share.Holds()
	ceiling, err := change.ceiling(floor, before)
	if err != nil {
		return fmt.Errorf("resize %s: %w", name, err)
	}
	changed, err := p.patch(ctx, namespace, claim, ceiling)
	if err != nil {
		return fmt.Errorf("change the Share %s/%s of %s: %w", namespace, claim, name, err)
	}
	now, err := p.applied(ctx, changed)
	if errors.As(err, new(refused)) { // and would be tried again, also together with what is asked for next
		if _, wrong := p.patch(ctx, namespace, claim, before); wrong != nil {
			return fmt.Errorf("resize %s: %w; that cannot be taken back (%w), and is tried again: change the ceiling of its Share %s", name, err, wrong, claim)
		}
		return fmt.Errorf("resize %s: %w; it keeps %s of compute and %s of memory", name, err, api.Compute{Floor: floor.Compute, Ceiling: before.Compute},
			api.Memory{Floor: api.Amount{Bytes: floor.Memory}, Ceiling: api.Amount{Bytes: before.Memory}})
	}
	if err != nil {
		return fmt.Errorf("resize %s: %w", name, err)
	}
	_, err = fmt.Fprintf(p.Out, "%s has %s of compute and %s of memory\n", name, now.Status.Compute, now.Status.Memory)
	return err
}

// patch changes the ceiling of a Share.
func (p Plugin) patch(ctx context.Context, namespace, name string, ceiling v1alpha1.Limits) (*unstructured.Unstructured, error) {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"ceiling": ceiling}})
	if err != nil {
		return nil, err
	}
	return p.Objects.Resource(sharesResource).Namespace(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-aliquot"})
}

// refused is why a node does not hold containers to a ceiling.
type refused struct{ reason, message string }

func (r refused) Error() string { return fmt.Sprintf("its node refused (%s): %s", r.reason, r.message) }

// ours is the name of the pod's claim that is meant.
func (p Plugin) ours(ctx context.Context, namespace, name, wanted string) (string, error) {
	pod, err := p.pod(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	claims, _, err := p.claimsOf(ctx, pod)
	if err != nil {
		return "", err
	}
	classes := p.classes(ctx)
	claims = slices.DeleteFunc(claims, func(claim *resourceapi.ResourceClaim) bool { return !asks(claim, classes) })
	var names []string
	for _, claim := range claims {
		names = append(names, claim.Name)
	}
	switch {
	case wanted != "" && !slices.Contains(names, wanted):
		return "", fmt.Errorf("%s has no claim %s of a device of Aliquot; it has: %s", name, wanted, strings.Join(names, ", "))
	case wanted != "":
		return wanted, nil
	case len(names) == 0:
		return "", fmt.Errorf("%s has no share of a device; `kubectl aliquot why %s` says what it asks for", name, name)
	case len(names) > 1:
		return "", fmt.Errorf("%s has several claims (%s); say which with --claim", name, strings.Join(names, ", "))
	}
	return names[0], nil
}

// share reads the Share of a claim.
func (p Plugin) share(ctx context.Context, namespace, claim string) (v1alpha1.Share, error) {
	found, err := p.Objects.Resource(sharesResource).Namespace(namespace).Get(ctx, claim, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return v1alpha1.Share{}, fmt.Errorf("claim %s/%s has no Share yet: its node makes one when the pod starts there, and none where its requests ask for shares that differ", namespace, claim)
	}
	if err != nil {
		return v1alpha1.Share{}, fmt.Errorf("read Share %s/%s: %w", namespace, claim, err)
	}
	return shareOf(found)
}

func shareOf(object *unstructured.Unstructured) (share v1alpha1.Share, err error) {
	raw, err := object.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(raw, &share)
	}
	if err != nil {
		err = fmt.Errorf("read Share %s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	return share, err
}

// ceiling is the one that a share is to have, that has this one.
func (c Change) ceiling(floor, ceiling v1alpha1.Limits) (v1alpha1.Limits, error) {
	if !c.Compute.IsZero() {
		if c.Compute.Floor != floor.Compute {
			return ceiling, fmt.Errorf("its compute floor is %s and fixed for the claim's life; write --gpu %s..%s", floor.Compute, floor.Compute, max(c.Compute.Ceiling, floor.Compute))
		}
		ceiling.Compute = c.Compute.Ceiling
	}
	if !c.Memory.IsZero() {
		if c.Memory.Floor.Part != 0 || c.Memory.Ceiling.Part != 0 {
			return ceiling, errors.New("write both ends of --mem in bytes, as 4Gi..8Gi")
		}
		if c.Memory.Floor.Bytes != floor.Memory {
			return ceiling, fmt.Errorf("its memory floor is %s and fixed for the claim's life; write --mem %s..%s", floor.Memory, floor.Memory, max(c.Memory.Ceiling.Bytes, floor.Memory))
		}
		ceiling.Memory = c.Memory.Ceiling.Bytes
	}
	return ceiling, nil
}

// applied waits until the node has said of this generation of a Share whether containers are held to its ceiling.
func (p Plugin) applied(ctx context.Context, changed *unstructured.Unstructured) (v1alpha1.Share, error) {
	shares := p.Objects.Resource(sharesResource).Namespace(changed.GetNamespace())
	watch, err := shares.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, changed.GetName()).String()})
	if err != nil {
		return v1alpha1.Share{}, fmt.Errorf("the ceiling is changed, and whether it holds cannot be watched: %w", err)
	}
	defer watch.Stop()
	current, err := shares.Get(ctx, changed.GetName(), metav1.GetOptions{}) // it may have happened before the watch began
	for err == nil {
		share, wrong := shareOf(current)
		if wrong != nil {
			return share, wrong
		}
		at := slices.IndexFunc(share.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == v1alpha1.ShareApplied && c.ObservedGeneration >= changed.GetGeneration()
		})
		if at >= 0 {
			if said := share.Status.Conditions[at]; said.Status != metav1.ConditionTrue {
				return share, refused{said.Reason, said.Message}
			}
			return share, nil
		}
		select {
		case <-ctx.Done():
			return share, fmt.Errorf("the ceiling is changed, and node %s has not said in time that it holds; `kubectl get share %s -o wide` shows when it does", share.Spec.NodeName, share.Name)
		case event, open := <-watch.ResultChan():
			object, is := event.Object.(*unstructured.Unstructured)
			if !open || !is || object.GetName() != changed.GetName() {
				current, err = shares.Get(ctx, changed.GetName(), metav1.GetOptions{})
			} else {
				current = object
			}
		}
	}
	return v1alpha1.Share{}, fmt.Errorf("the ceiling is changed, and whether it holds cannot be read: %w", err)
}
