// Package plugin is what `kubectl aliquot` does: it shows what pods and queues have of devices and why pods wait, changes ceilings, and notes what pods
// have saved. What comes in are the objects of a cluster, read as the user that calls it; what goes out is text, and a patch of a Share or of a pod's
// annotation. It decides nothing and keeps nothing.
package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/host/kube/demand"
)

// driverName is that of the devices' driver, in claims, slices and device classes.
const driverName = "gpu.aliquot.dev"

var sharesResource = schema.GroupVersionResource{Group: "aliquot.dev", Version: "v1alpha1", Resource: "shares"}

// Plugin calls one cluster.
type Plugin struct {
	Client  kubernetes.Interface
	Objects dynamic.Interface // Shares, Queues and the Policy, and what pods are made of
	Out     io.Writer
	Now     func() time.Time

	Format string        // Table, JSON or YAML; empty: Table
	Agents string        // the namespace that they are in
	Over   time.Duration // what is used is a mean over
}

// holding is one share that a claim has.
type holding struct {
	claim *resourceapi.ResourceClaim
	at    resourceapi.DeviceRequestAllocationResult
	said  *v1alpha1.ShareStatus // by the node; nil: nothing yet
	ready *metav1.Condition     // by the node; nil: nothing yet
}

// holdings are the shares that a claim was allocated of our devices.
func holdings(claim *resourceapi.ResourceClaim) (all []holding) {
	if claim.Status.Allocation == nil {
		return nil
	}
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != driverName {
			continue
		}
		one := holding{claim: claim, at: result}
		for _, status := range claim.Status.Devices {
			if status.Driver != driverName || status.Pool != result.Pool || status.Device != result.Device || !sameShare(status.ShareID, result.ShareID) {
				continue
			}
			if at := slices.IndexFunc(status.Conditions, func(c metav1.Condition) bool { return c.Type == "Ready" }); at >= 0 {
				one.ready = &status.Conditions[at]
			}
			var said v1alpha1.ShareStatus
			if status.Data != nil && json.Unmarshal(status.Data.Raw, &said) == nil {
				one.said = &said
			}
		}
		all = append(all, one)
	}
	return all
}

func sameShare[ID ~string](status *string, result *ID) bool {
	if status == nil || result == nil {
		return status == nil && result == nil
	}
	return *status == string(*result)
}

// administers says whether it is access as an administrator, which holds nothing.
func (h holding) administers() bool { return h.at.AdminAccess != nil && *h.at.AdminAccess }

// limits are what containers are held to, in words.
func (h holding) limits() (compute, memory string) {
	if h.administers() {
		return "administrator", "-"
	}
	if h.said == nil { // its node has yet to say the ceiling
		floor, memory := h.floor()
		return floor.String() + "..?", memory + "..?"
	}
	return h.said.Compute.String(), h.said.Memory.String()
}

// floor is what it consumes of its device, as it is allocated: all of it where nothing is said.
func (h holding) floor() (compute api.Milli, memory string) {
	compute, memory = api.WholeDevice, "100%"
	if part, is := h.at.ConsumedCapacity["compute"]; is {
		compute = api.Milli(part.Value())
	}
	if part, is := h.at.ConsumedCapacity["memory"]; is {
		memory = api.Bytes(part.Value()).String()
	}
	return compute, memory
}

// state is one word for how it is: the reason of its condition.
func (h holding) state() string {
	switch {
	case h.ready == nil:
		return "Preparing"
	case h.ready.Status == metav1.ConditionTrue:
		return "Ready"
	}
	return h.ready.Reason
}

// pods are those that a claim is reserved for.
func (h holding) pods() (names []string) {
	for _, consumer := range h.claim.Status.ReservedFor {
		if consumer.Resource == "pods" {
			names = append(names, consumer.Name)
		}
	}
	return names
}

// absent is a claim that a pod waits for.
type absent struct {
	name     string // of the claim, or of the pod's entry where it is to be made of a template
	template string
}

func (a absent) String() string {
	if a.template != "" {
		return fmt.Sprintf("%s, of template %s", a.name, a.template)
	}
	return a.name
}

// claimsOf are the claims of a pod that are there, and those that it waits for.
func (p Plugin) claimsOf(ctx context.Context, pod *corev1.Pod) (there []*resourceapi.ResourceClaim, missing []absent, err error) {
	var names []string
	for _, asked := range pod.Spec.ResourceClaims {
		if asked.ResourceClaimName != nil {
			names = append(names, *asked.ResourceClaimName)
			continue
		}
		at := slices.IndexFunc(pod.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool { return s.Name == asked.Name })
		if at < 0 || pod.Status.ResourceClaimStatuses[at].ResourceClaimName == nil {
			if asked.ResourceClaimTemplateName != nil {
				missing = append(missing, absent{asked.Name, *asked.ResourceClaimTemplateName})
			}
			continue
		}
		names = append(names, *pod.Status.ResourceClaimStatuses[at].ResourceClaimName)
	}
	if made := pod.Status.ExtendedResourceClaimStatus; made != nil { // for limits of whole devices
		names = append(names, made.ResourceClaimName)
	}
	for _, name := range names {
		claim, err := p.Client.ResourceV1().ResourceClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			missing = append(missing, absent{name: name})
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read claim %s/%s: %w", pod.Namespace, name, err)
		}
		there = append(there, claim)
	}
	return there, missing, nil
}

// asks says whether a claim has or may be given devices of ours, by what it was given or by the classes of its requests.
func asks(claim *resourceapi.ResourceClaim, classes func(string) *resourceapi.DeviceClass) bool {
	return len(holdings(claim)) > 0 || demand.Of(&claim.Spec, classes).Ours && !demand.Elsewhere(claim)
}

// classes finds device classes by name. To a user who may not see them the chart's own is known alone.
func (p Plugin) classes(ctx context.Context) func(name string) *resourceapi.DeviceClass {
	known := map[string]*resourceapi.DeviceClass{driverName: {Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{
		{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", driverName)}},
	}}}}
	if all, err := p.Client.ResourceV1().DeviceClasses().List(ctx, metav1.ListOptions{}); err == nil {
		for i := range all.Items {
			known[all.Items[i].Name] = &all.Items[i]
		}
	}
	return func(name string) *resourceapi.DeviceClass { return known[name] }
}

// pod reads a pod.
func (p Plugin) pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod, err := p.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no pod %s in namespace %s; `kubectl get pods -A` lists all, -n names another namespace", name, namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("read pod %s/%s: %w", namespace, name, err)
	}
	return pod, nil
}
