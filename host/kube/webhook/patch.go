package webhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// outline is what of a pod's text a patch must know: which lists are there. The rest may have fields of a newer API server, and stays as it is.
type outline struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		ResourceClaims []json.RawMessage `json:"resourceClaims"`
		Containers     []struct {
			Resources *struct {
				Claims   []json.RawMessage          `json:"claims"`
				Limits   map[string]json.RawMessage `json:"limits"`
				Requests map[string]json.RawMessage `json:"requests"`
			} `json:"resources"`
		} `json:"containers"`
	} `json:"spec"`
}

// patch makes a change of a pod's text.
func (c change) patch(text []byte) ([]operation, error) {
	var pod outline
	if err := json.Unmarshal(text, &pod); err != nil {
		return nil, fmt.Errorf("read the pod: %w", err)
	}
	var all []operation
	add := func(path string, value any) { all = append(all, operation{"add", path, value}) }
	if len(pod.Metadata.Annotations) == 0 && len(c.annotations) > 0 {
		add("/metadata/annotations", c.annotations)
	} else {
		for _, key := range slices.Sorted(maps.Keys(c.annotations)) {
			add("/metadata/annotations/"+escaped(key), c.annotations[key])
		}
	}
	if c.limited > 0 {
		has, path := pod.Spec.Containers[c.limited-1].Resources, fmt.Sprintf("/spec/containers/%d/resources", c.limited-1)
		if _, is := has.Limits[string(c.resource)]; is {
			all = append(all, operation{Op: "remove", Path: path + "/limits/" + escaped(string(c.resource))})
		}
		if _, is := has.Requests[string(c.resource)]; is {
			all = append(all, operation{Op: "remove", Path: path + "/requests/" + escaped(string(c.resource))})
		}
	}
	if c.template != "" && !c.hasClaim {
		claim := corev1.PodResourceClaim{Name: annotation.ClaimName, ResourceClaimTemplateName: &c.template}
		if len(pod.Spec.ResourceClaims) == 0 {
			add("/spec/resourceClaims", []corev1.PodResourceClaim{claim})
		} else {
			add("/spec/resourceClaims/-", claim)
		}
	}
	for _, i := range c.containers {
		path, one := fmt.Sprintf("/spec/containers/%d/resources", i), corev1.ResourceClaim{Name: annotation.ClaimName}
		switch has := pod.Spec.Containers[i].Resources; {
		case has == nil:
			add(path, corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{one}})
		case len(has.Claims) == 0:
			add(path+"/claims", []corev1.ResourceClaim{one})
		default:
			add(path+"/claims/-", one)
		}
	}
	if c.scheduler != "" {
		add("/spec/schedulerName", c.scheduler)
	}
	if c.deadline > 0 {
		add("/spec/activeDeadlineSeconds", c.deadline)
	}
	return all, nil
}

// escaped is a key as it stands in a path (RFC 6901).
func escaped(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }
