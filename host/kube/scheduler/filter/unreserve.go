package filter

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedresource "k8s.io/client-go/kubernetes/typed/resource/v1"
)

// Upstream's Unreserve frees in memory what was reserved for a pod, and writes then: it takes the pod out of the claims that it was reserved in, and
// deletes the one that PreBind made for its limits. Here it is called where decisions are made and where informers tell of changes, and neither may wait for
// the API server; nor may a write of an earlier try come after the reservation of a later one, or after another scheduler leads. So it writes nothing: what
// PreBind wrote takes back who called it, before he forgets the pod.

// noWrites marks the context of calls of plugins that write nothing.
type noWrites struct{}

// withoutWrites is a context in which plugins write nothing to claims.
func withoutWrites(ctx context.Context) context.Context {
	return context.WithValue(ctx, noWrites{}, true)
}

func mayWrite(ctx context.Context) bool { return ctx.Value(noWrites{}) == nil }

// pluginClient is the client of plugins: it writes to no claim where it is not to.
type pluginClient struct{ kubernetes.Interface }

func (c pluginClient) ResourceV1() typedresource.ResourceV1Interface {
	return pluginResources{c.Interface.ResourceV1()}
}

type pluginResources struct {
	typedresource.ResourceV1Interface
}

func (r pluginResources) ResourceClaims(namespace string) typedresource.ResourceClaimInterface {
	return pluginClaims{r.ResourceV1Interface.ResourceClaims(namespace)}
}

type pluginClaims struct {
	typedresource.ResourceClaimInterface
}

func (c pluginClaims) Update(ctx context.Context, claim *resourceapi.ResourceClaim, options metav1.UpdateOptions) (*resourceapi.ResourceClaim, error) {
	if !mayWrite(ctx) {
		return claim, nil
	}
	return c.ResourceClaimInterface.Update(ctx, claim, options)
}

func (c pluginClaims) UpdateStatus(ctx context.Context, claim *resourceapi.ResourceClaim, options metav1.UpdateOptions) (*resourceapi.ResourceClaim, error) {
	if !mayWrite(ctx) {
		return claim, nil
	}
	return c.ResourceClaimInterface.UpdateStatus(ctx, claim, options)
}

func (c pluginClaims) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*resourceapi.ResourceClaim, error) {
	if !mayWrite(ctx) {
		return &resourceapi.ResourceClaim{}, nil
	}
	return c.ResourceClaimInterface.Patch(ctx, name, kind, data, options, subresources...)
}

func (c pluginClaims) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	if !mayWrite(ctx) {
		return nil
	}
	return c.ResourceClaimInterface.Delete(ctx, name, options)
}
