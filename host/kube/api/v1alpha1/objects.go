package v1alpha1

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// Where the API server has queues and policies.
var (
	Queues   = schema.GroupVersionResource{Group: "aliquot.dev", Version: "v1alpha1", Resource: "queues"}
	Policies = schema.GroupVersionResource{Group: "aliquot.dev", Version: "v1alpha1", Resource: "policies"}
)

// Read reads an object of this package as a client without types has it. It fails where the object was written by another version's rules.
func Read[T any](object *unstructured.Unstructured) (*T, error) {
	raw, err := object.MarshalJSON()
	one := new(T)
	if err == nil {
		err = json.Unmarshal(raw, one)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return one, nil
}

// Tenants are the queues of a cluster and its policy, nil: there is none. What was written by another version's rules is left out, for it does not hold.
func Tenants(ctx context.Context, client dynamic.Interface) (queues []*Queue, policy *Policy, err error) {
	list, err := client.Resource(Queues).List(ctx, metav1.ListOptions{ResourceVersion: "0"}) // as the API server knows them, which may be a moment old
	if apierrors.IsNotFound(err) {                                                           // the kind is not installed
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list queues: %w", err)
	}
	for i := range list.Items {
		if q, err := Read[Queue](&list.Items[i]); err == nil {
			queues = append(queues, q)
		}
	}
	object, err := client.Resource(Policies).Get(ctx, PolicyName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return queues, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the policy: %w", err)
	}
	if p, err := Read[Policy](object); err == nil {
		policy = p
	}
	return queues, policy, nil
}
