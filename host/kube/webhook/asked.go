package webhook

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

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
	claim  string   // the name of a claim of it by which it does; empty: there is none
	limit  string   // the device class of which a container has a limit; empty: none has
	doubts []string // what could not be found out
}

func (d devices) none() bool { return d.claim == "" && d.limit == "" }

// oneWay refuses a pod that asks in several ways.
func (d devices) oneWay(annotations bool) error {
	claim, limit := "its claim "+d.claim, "a limit of "+resourceapi.ResourceDeviceClassPrefix+d.limit
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
		what, spec, err := w.specOf(ctx, namespace, claim)
		if apierrors.IsNotFound(err) {
			found.doubts = append(found.doubts, fmt.Sprintf("%s is not there yet; if it asks for devices of Aliquot, make it before the pod, so that the pod goes to the right scheduler", what))
			continue
		}
		if err != nil {
			return found, fmt.Errorf("read %s: %w", what, err)
		}
		for _, class := range classesOf(spec) {
			ours, err := w.ourClass(ctx, class)
			if err != nil {
				return found, err
			}
			if ours {
				found.claim = claim.Name
			}
		}
	}
	for _, class := range limitsOf(pod) {
		ours, err := w.ourClass(ctx, class)
		if err != nil {
			return found, err
		}
		if ours {
			found.limit = class
		}
	}
	return found, nil
}

// specOf is what a pod's claim says, or its template, and in words which it is.
func (w *Webhook) specOf(ctx context.Context, namespace string, claim corev1.PodResourceClaim) (string, resourceapi.ResourceClaimSpec, error) {
	client := w.config.Client.ResourceV1()
	switch {
	case claim.ResourceClaimTemplateName != nil:
		name := *claim.ResourceClaimTemplateName
		template, err := client.ResourceClaimTemplates(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "ResourceClaimTemplate " + name, resourceapi.ResourceClaimSpec{}, err
		}
		return "ResourceClaimTemplate " + name, template.Spec.Spec, nil
	case claim.ResourceClaimName != nil:
		name := *claim.ResourceClaimName
		found, err := client.ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "ResourceClaim " + name, resourceapi.ResourceClaimSpec{}, err
		}
		return "ResourceClaim " + name, found.Spec, nil
	}
	return claim.Name, resourceapi.ResourceClaimSpec{}, nil // the API server refuses it, or it names what came after this version
}

// classesOf are the device classes that a claim names, each once.
func classesOf(spec resourceapi.ResourceClaimSpec) []string {
	var all []string
	for _, r := range spec.Devices.Requests {
		if r.Exactly != nil {
			all = append(all, r.Exactly.DeviceClassName)
		}
		for _, one := range r.FirstAvailable {
			all = append(all, one.DeviceClassName)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// limitsOf are the device classes that a pod asks for as resources of its containers, each once.
func limitsOf(pod *corev1.Pod) []string {
	var all []string
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range containers {
			for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
				for name := range list {
					if class, ok := strings.CutPrefix(string(name), resourceapi.ResourceDeviceClassPrefix); ok {
						all = append(all, class)
					}
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// ourClass says whether devices of a class are ours: it has our driver's name, or names that in what it selects by.
func (w *Webhook) ourClass(ctx context.Context, name string) (bool, error) {
	if name == annotation.Driver {
		return true, nil
	}
	class, err := w.config.Client.ResourceV1().DeviceClasses().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read DeviceClass %s: %w", name, err)
	}
	return slices.ContainsFunc(class.Spec.Selectors, func(s resourceapi.DeviceSelector) bool {
		return s.CEL != nil && strings.Contains(s.CEL.Expression, annotation.Driver)
	}), nil
}
