package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/internal/point"
	"github.com/aliquot-dev/aliquot/node"
)

// sharesResource is where the API server has Shares.
var sharesResource = schema.GroupVersionResource{Group: "aliquot.dev", Version: "v1alpha1", Resource: "shares"}

// hold holds a prepared claim's containers to the ceiling of a Share's spec and returns what they are held to after: what they were where
// that is refused, nothing where the claim is not prepared any more.
func (d *Driver) hold(ctx context.Context, uid string, spec v1alpha1.ShareSpec) (now node.Task, refused, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one, found, err := d.checkpoints.read(uid)
	if err != nil || !found || one.Phase != prepared {
		return node.Task{}, nil, err
	}
	now = d.held(one.Task)
	wanted := now
	wanted.Grants = slices.Clone(now.Grants)
	for i := range wanted.Grants {
		g := &wanted.Grants[i]
		if g.Floor != spec.Floor.Compute || g.MemFloor != spec.Floor.Memory {
			return now, fmt.Errorf("%w: the claim consumes %s of compute and %s of memory, and its Share says %s and %s; delete the Share, and it is made anew",
				errNotTheirs, g.Floor, g.MemFloor, spec.Floor.Compute, spec.Floor.Memory), nil
		}
		g.Ceiling, g.MemCeiling = spec.Ceiling.Compute, spec.Ceiling.Memory
	}
	if !reflect.DeepEqual(now.Grants, wanted.Grants) {
		if err := d.config.Agent.Update(ctx, uid, wanted.Grants, wanted.Flags); err != nil {
			return now, err, nil
		}
		d.log.Info("held to another ceiling", "claim", one.Namespace+"/"+one.Name, "uid", uid, "grants", wanted.Grants)
	}
	point.Here("kube.ceiling.held")
	if !reflect.DeepEqual(one.Task, wanted) {
		one.Task = wanted
		err = d.checkpoints.write(one) // from this it is made again after a reboot
	}
	return wanted, nil, err
}

// errNotTheirs is that a Share's floor is not what its claim consumes.
var errNotTheirs = errors.New("another floor")

// held is a task as node has it now, where it has it: a ceiling may have been changed just before a driver was killed.
func (d *Driver) held(task node.Task) node.Task {
	for _, have := range d.config.Agent.Prepared() {
		if have.UID == task.UID && have.UserID == task.UserID && have.UserUnknown == task.UserUnknown && have.Flags == task.Flags && sameFloors(have.Grants, task.Grants) {
			return have
		}
	}
	return task
}

// sameFloors says whether grants differ in nothing but ceilings, which change while a claim is prepared.
func sameFloors(a, b []node.Grant) bool {
	return slices.EqualFunc(a, b, func(a, b node.Grant) bool {
		a.Ceiling, a.MemCeiling = b.Ceiling, b.MemCeiling
		return a == b
	})
}

// shareOf is the Share of a claim that is prepared here. One that is not there is made; that of a claim which was on another node before is
// taken over, with the ceiling that it has. It is nil where the claim has none: it is gone, or its shares are not all the same.
func (l *live) shareOf(ctx context.Context, one checkpoint) (*v1alpha1.Share, error) {
	known, exists, err := l.shares.GetStore().GetByKey(one.Namespace + "/" + one.Name)
	if err != nil {
		return nil, err
	}
	if exists {
		share, err := parseShare(known.(*unstructured.Unstructured))
		if err != nil || belongs(share, one.Task.UID) && share.Spec.NodeName == l.config.Node {
			return share, err
		}
	}
	claim, err := l.config.Client.ResourceV1().ResourceClaims(one.Namespace).Get(ctx, one.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	wanted, err := l.firstShare(claim, one)
	if wanted == nil || err != nil {
		return nil, err
	}
	return l.create(ctx, wanted, one.Task.UID)
}

// firstShare is the Share of a claim that has none, with the claim's own ceiling.
func (l *live) firstShare(claim *resourceapi.ResourceClaim, one checkpoint) (*v1alpha1.Share, error) {
	results := ours(claim)
	if string(claim.UID) != one.Task.UID || len(results) == 0 || results[0].Pool != l.config.Node {
		return nil, nil
	}
	task, err := taskOf(claim, l.config.Node, l.config.Agent.Devices())
	if err != nil {
		return nil, err
	}
	first := task.Grants[0]
	for _, g := range task.Grants {
		if g.Floor != first.Floor || g.Ceiling != first.Ceiling || g.MemFloor != first.MemFloor || g.MemCeiling != first.MemCeiling {
			return nil, nil
		}
	}
	return &v1alpha1.Share{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.ShareKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim", Name: claim.Name, UID: claim.UID},
		}},
		Spec: v1alpha1.ShareSpec{
			NodeName: l.config.Node,
			Floor:    v1alpha1.Limits{Compute: first.Floor, Memory: first.MemFloor},
			Ceiling:  v1alpha1.Limits{Compute: first.Ceiling, Memory: first.MemCeiling},
		},
	}, nil
}

// create makes a Share, or takes over the claim's that is there.
func (l *live) create(ctx context.Context, wanted *v1alpha1.Share, uid string) (*v1alpha1.Share, error) {
	object, err := unstructuredOf(wanted)
	if err != nil {
		return nil, err
	}
	client := l.client.Namespace(wanted.Namespace)
	made, err := client.Create(ctx, object, metav1.CreateOptions{})
	if err == nil {
		return parseShare(made)
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("make Share %s/%s: %w", wanted.Namespace, wanted.Name, err)
	}
	if made, err = client.Get(ctx, wanted.Name, metav1.GetOptions{}); err != nil {
		return nil, err
	}
	share, err := parseShare(made)
	if err != nil {
		return nil, err
	}
	switch {
	case !belongs(share, uid):
		return nil, fmt.Errorf("share %s/%s is not owned by the claim of that name that is prepared here; delete it, and it is made anew", share.Namespace, share.Name)
	case share.Spec.NodeName == l.config.Node:
		return share, nil
	}
	here, err := json.Marshal(map[string]any{"spec": map[string]any{"nodeName": l.config.Node}})
	if err != nil {
		return nil, err
	}
	if made, err = client.Patch(ctx, share.Name, types.MergePatchType, here, metav1.PatchOptions{}); err != nil {
		return nil, fmt.Errorf("take over Share %s/%s from node %s: %w", share.Namespace, share.Name, share.Spec.NodeName, err)
	}
	return parseShare(made)
}

// belongs says whether a Share is of the claim with that UID, and of no earlier one of its name.
func belongs(share *v1alpha1.Share, uid string) bool {
	return slices.ContainsFunc(share.OwnerReferences, func(r metav1.OwnerReference) bool { return string(r.UID) == uid })
}

// stateOf is what is to be said of a Share when its claim is held to a task's grants.
func stateOf(share *v1alpha1.Share, task node.Task, refused error) v1alpha1.ShareState {
	g := task.Grants[0]
	said := v1alpha1.ShareState{
		ObservedGeneration: share.Generation,
		Compute:            api.Compute{Floor: g.Floor, Ceiling: g.Ceiling},
		Memory:             api.Memory{Floor: api.Amount{Bytes: g.MemFloor}, Ceiling: api.Amount{Bytes: g.MemCeiling}},
		Conditions:         slices.Clone(share.Status.Conditions),
	}
	applied := metav1.Condition{Type: v1alpha1.ShareApplied, ObservedGeneration: share.Generation}
	switch {
	case refused == nil:
		applied.Status, applied.Reason = metav1.ConditionTrue, v1alpha1.ReasonApplied
		applied.Message = fmt.Sprintf("Containers are held to %s of compute and %s of memory.", said.Compute, said.Memory)
	case errors.Is(refused, errNotTheirs):
		applied.Status, applied.Reason, applied.Message = metav1.ConditionFalse, v1alpha1.ReasonNotTheirs, refused.Error()
	default:
		applied.Status, applied.Reason, applied.Message = metav1.ConditionFalse, v1alpha1.ReasonRefused, refused.Error()
	}
	meta.SetStatusCondition(&said.Conditions, applied)
	return said
}

func sameState(a, b v1alpha1.ShareState) bool { return equality.Semantic.DeepEqual(a, b) }

func parseShare(object *unstructured.Unstructured) (*v1alpha1.Share, error) {
	raw, err := object.MarshalJSON()
	var share v1alpha1.Share
	if err = errors.Join(err, json.Unmarshal(raw, &share)); err != nil {
		return nil, fmt.Errorf("read Share %s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	return &share, nil
}

func unstructuredOf(share *v1alpha1.Share) (*unstructured.Unstructured, error) {
	raw, err := json.Marshal(share)
	object := &unstructured.Unstructured{}
	return object, errors.Join(err, json.Unmarshal(raw, object))
}
