package annotation

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Labels of nodes that say where they are: racks, zones, link domains. Pods that start together, with gang labels or by who made them, start on
// nodes that have one value of the label: all of them, or not at all; or, with Prefer, where that can be.
const (
	SameTopology   = Prefix + "same-topology"
	PreferTopology = Prefix + "prefer-topology"
)

// Topology reads the labels that a pod names so; empty: none.
func Topology(annotations map[string]string) (same, prefer string, err error) {
	for _, key := range []string{SameTopology, PreferTopology} {
		label, given := annotations[key]
		if !given {
			continue
		}
		if wrong := validation.IsQualifiedName(label); len(wrong) > 0 {
			return "", "", fmt.Errorf("the annotation %s: %q is no label of nodes (%s); write for example topology.kubernetes.io/zone", key, label, strings.Join(wrong, "; "))
		}
	}
	return annotations[SameTopology], annotations[PreferTopology], nil
}
