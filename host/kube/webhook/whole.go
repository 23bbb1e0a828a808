package webhook

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// whole makes of a container's limit of whole devices the annotations that ask for the same, for our scheduler hands out what claims ask for.
// It has our class's own name, or that which the class gives itself (extendedResourceName). A limit of another class than ours says nothing that
// annotations could, and one container of a pod has it: all of a claim goes to containers together.
func whole(pod *corev1.Pod, class string, wholes corev1.ResourceName) (change, error) {
	has := func(c *corev1.Container) bool {
		_, limit := c.Resources.Limits[wholes]
		_, request := c.Resources.Requests[wholes]
		return limit || request
	}
	if class != annotation.Driver {
		return change{}, refuse(badLimits, "the pod has a limit of %s, which is of the device class %s; a limit is of class %s alone: ask for another by a claim", wholes, class, annotation.Driver)
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
	made.annotations, made.limited, made.resource = added, at, wholes
	return made, err
}
