package webhook

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/demand"
)

// withLabels is a pod with what its labels ask for as annotations, and those annotations.
func withLabels(pod *corev1.Pod) (*corev1.Pod, map[string]string, error) {
	said, err := annotation.Labelled(pod.Labels, pod.Annotations)
	if err != nil {
		return nil, nil, refuse(badAnnotations, "%v", err)
	}
	if len(said) == 0 {
		return pod, nil, nil
	}
	pod = pod.DeepCopy()
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	maps.Copy(pod.Annotations, said)
	return pod, said, nil
}

// asked is what a pod's annotations make of it, and whether they ask for anything.
func asked(pod *corev1.Pod) (change, bool, error) {
	ask, err := annotation.Parse(pod.Annotations)
	if err != nil {
		return change{}, false, refuse(badAnnotations, "%v", err)
	}
	if ask == nil {
		return change{}, false, nil
	}
	made := change{template: ask.Name()}
	for _, claim := range pod.Spec.ResourceClaims {
		if claim.Name != annotation.ClaimName {
			continue
		}
		if claim.ResourceClaimTemplateName == nil || *claim.ResourceClaimTemplateName != made.template {
			return change{}, false, refuse(badAnnotations, "the pod asks for a share by annotations and has a claim named %s already, which is the name of theirs; leave the annotations out, or name the claim otherwise", claim.Name)
		}
		made.hasClaim = true
	}
	if made.hasClaim && slices.ContainsFunc(pod.Spec.Containers, hasClaim) {
		return made, true, nil // it was here before; who has been added since is no concern of the annotations
	}
	for _, name := range ask.Containers {
		if !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name }) {
			return change{}, false, refuse(badAnnotations, "the annotation %s names %q, and the pod has no such container among spec.containers; it has %s", annotation.Containers, name, names(pod.Spec.Containers))
		}
	}
	for i := range pod.Spec.Containers {
		if len(ask.Containers) == 0 || slices.Contains(ask.Containers, pod.Spec.Containers[i].Name) {
			made.containers = append(made.containers, i)
		}
	}
	return made, true, nil
}

func hasClaim(c corev1.Container) bool {
	return slices.ContainsFunc(c.Resources.Claims, func(r corev1.ResourceClaim) bool { return r.Name == annotation.ClaimName })
}

func names(containers []corev1.Container) string {
	all := make([]string, len(containers))
	for i := range containers {
		all[i] = containers[i].Name
	}
	return strings.Join(all, ", ")
}

// devices is how a pod asks for devices of ours, beside annotations.
type devices struct {
	claim    string              // the name of a claim of it by which it does; empty: there is none
	untold   bool                // it may be given devices of ours that it does not name: others' would do as well
	holds    bool                // such a claim holds what it is given: not all have access as an administrator
	limit    string              // the device class of which a container has a limit; empty: none has
	resource corev1.ResourceName // that limit
	shares   []held              // its claims of ours
	maybe    []string            // its claims that may be given some, though they are not asked for by name
	doubts   []string            // what could not be found out
}

func (d devices) none() bool { return d.claim == "" && d.limit == "" }

// oneWay refuses a pod that asks in several ways.
func (d devices) oneWay(annotations bool) error {
	claim, limit := "its claim "+d.claim, "a limit of "+string(d.resource)
	first, second := "annotations", claim
	switch {
	case annotations && d.claim != "":
	case annotations && d.limit != "":
		second = limit
	case d.claim != "" && d.limit != "":
		first, second = claim, limit
	default:
		return nil
	}
	return refuse(badWays, "the pod asks for devices by %s and by %s; ask in one of the two ways and leave the other out", first, second)
}

// devicesOf says how a pod asks for devices of ours, but by the claim from the template that its annotations name.
func (w *Webhook) devicesOf(ctx context.Context, namespace string, pod *corev1.Pod, own string) (devices, error) {
	var found devices
	for _, claim := range pod.Spec.ResourceClaims {
		if claim.ResourceClaimTemplateName != nil && *claim.ResourceClaimTemplateName == own {
			continue
		}
		what, spec, given, err := w.specOf(ctx, namespace, claim)
		if apierrors.IsNotFound(err) {
			found.doubts = append(found.doubts, what+" is not there yet")
			continue
		}
		if err != nil {
			return found, fmt.Errorf("read %s: %w", what, err)
		}
		var failed error
		find := func(name string) *resourceapi.DeviceClass {
			class, err := w.class(ctx, name)
			failed = cmp.Or(failed, err)
			return class
		}
		whose := demand.Of(&spec, find)
		one := heldOf(claim, &spec, find)
		if failed != nil {
			return found, failed
		}
		named := given == here || slices.ContainsFunc(spec.Devices.Requests, func(r resourceapi.DeviceRequest) bool { return len(demand.Surely(&r, find)) > 0 })
		switch {
		case !whose.Ours:
		case given == elsewhere:
			found.untold = true
		case !named:
			found.untold, found.maybe = true, append(found.maybe, claim.Name)
		default:
			found.claim = claim.Name
			found.shares = append(found.shares, one)
			found.holds = found.holds || !demand.AdministersAll(&spec)
		}
	}
	return found, w.limitOf(ctx, pod, &found)
}

// limitOf finds the limit of whole devices of ours that a container has.
func (w *Webhook) limitOf(ctx context.Context, pod *corev1.Pod, found *devices) error {
	names := extended(pod)
	if len(names) == 0 {
		return nil
	}
	list, err := w.config.Client.ResourceV1().DeviceClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("read device classes: %w", err)
	}
	classes := []*resourceapi.DeviceClass{unseen()} // the last word on its name has one that is there
	for i := range list.Items {
		classes = append(classes, &list.Items[i])
	}
	slices.Reverse(classes)
	for _, name := range names {
		class, sure := demand.Extended(string(name), classes)
		if class != nil && !sure {
			found.untold = true
		}
		if !sure {
			continue
		}
		if found.resource != "" {
			return refuse(badLimits, "the pod has a limit of %s and one of %s, which both are devices of Aliquot; ask by one of them", found.resource, name)
		}
		found.limit, found.resource = class.Name, name
	}
	return nil
}

// extended are the resources of a pod's containers that devices may stand behind, sorted, each once.
func extended(pod *corev1.Pod) []corev1.ResourceName {
	var all []corev1.ResourceName
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range containers {
			for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
				for name := range list {
					if strings.Contains(string(name), "/") {
						all = append(all, name)
					}
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// unseen is our own class, as it is where it was not made yet.
func unseen() *resourceapi.DeviceClass {
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: annotation.Driver}}
	class.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "` + annotation.Driver + `"`}}}
	return class
}

// class is a device class by its name; nil: there is none.
func (w *Webhook) class(ctx context.Context, name string) (*resourceapi.DeviceClass, error) {
	class, err := w.config.Client.ResourceV1().DeviceClasses().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && name == annotation.Driver:
		return unseen(), nil
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read DeviceClass %s: %w", name, err)
	}
	return class, nil
}

// where a claim was given devices.
type where int

const (
	nowhere   where = iota // it was given none yet
	here                   // of ours, among others maybe
	elsewhere              // of others alone
)

// specOf is what a pod's claim says, or its template, in words which it is, and where it was given devices.
func (w *Webhook) specOf(ctx context.Context, namespace string, claim corev1.PodResourceClaim) (what string, spec resourceapi.ResourceClaimSpec, given where, err error) {
	client := w.config.Client.ResourceV1()
	switch {
	case claim.ResourceClaimTemplateName != nil:
		name := *claim.ResourceClaimTemplateName
		template, err := client.ResourceClaimTemplates(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "ResourceClaimTemplate " + name, spec, nowhere, err
		}
		return "ResourceClaimTemplate " + name, template.Spec.Spec, nowhere, nil
	case claim.ResourceClaimName != nil:
		name := *claim.ResourceClaimName
		found, err := client.ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "ResourceClaim " + name, spec, nowhere, err
		}
		switch {
		case demand.Elsewhere(found):
			given = elsewhere
		case found.Status.Allocation != nil:
			given = here
		}
		return "ResourceClaim " + name, found.Spec, given, nil
	}
	return claim.Name, spec, nowhere, nil // the API server refuses it, or it names what came after this version
}
