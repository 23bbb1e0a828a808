package webhook

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// wholes is how containers ask for whole devices of our class, by number, as they would of a device plugin.
const wholes = corev1.ResourceName(resourceapi.ResourceDeviceClassPrefix + annotation.Driver)

// whole makes of a container's limit of whole devices the annotations that ask for the same, for our scheduler hands out what claims ask for.
// A limit of another class than ours says nothing that annotations could, and one container of a pod has it: all of a claim goes to containers
// together.
func whole(pod *corev1.Pod, class string) (change, error) {
	if class != annotation.Driver {
		return change{}, refuse(badLimits, "the pod has a limit of %s%s; a limit is of %s alone: ask for another class by a claim", resourceapi.ResourceDeviceClassPrefix, class, wholes)
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; has(c) {
			return change{}, refuse(badLimits, "the init container %s has a limit of %s, which only one of spec.containers may have; ask by a claim instead", c.Name, wholes)
		}
	}
	changed, at := pod.DeepCopy(), 0
	for i := range changed.Spec.Containers {
		c := &changed.Spec.Containers[i]
		if !has(c) {
			continue
		}
		if at > 0 {
			return change{}, refuse(badLimits, "the containers %s and %s have a limit of %s each, and one of a pod may have it; ask by a claim for each, or by annotations for both together", changed.Spec.Containers[at-1].Name, c.Name, wholes)
		}
		at = i + 1
	}
	c := &changed.Spec.Containers[at-1]
	count := c.Resources.Limits[wholes]
	if count.IsZero() {
		count = c.Resources.Requests[wholes]
	}
	added := map[string]string{annotation.GPU: "1", annotation.Devices: strconv.FormatInt(count.Value(), 10), annotation.Containers: c.Name}
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	for key, value := range added {
		changed.Annotations[key] = value
	}
	made, _, err := asked(changed)
	made.annotations, made.limited = added, at
	return made, err
}

// has says whether a container asks for whole devices.
func has(c *corev1.Container) bool {
	_, limit := c.Resources.Limits[wholes]
	_, request := c.Resources.Requests[wholes]
	return limit || request
}
