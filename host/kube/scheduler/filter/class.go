package filter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/util"
)

// Class is the feasibility class of a pod: pods of one class get the same answer on every node and prefer the same ones, in the same state
// of the cluster. It is 32 hexadecimal digits, the same over restarts. Empty: the pod has no class but its own, as upstream cannot sign it
// (affinity to pods, spread, claims of other drivers), or since what it may do is bound to its name (its own volumes, a nominated node,
// scheduling gates).
//
// It is upstream's pod signature, which upstream compares within one node's scheduling only, with what it leaves out and upstream's filters
// look at: the namespace, the priority (of nominated pods), and the protocol and address of host ports. Of its labels, which are numbers and names of
// owners for most pods, it has those that matter to others alone: see chosen.
func (f *Filters) Class(pod *v1.Pod) string {
	if len(pod.Spec.SchedulingGates) > 0 || pod.Status.NominatedNodeName != "" || slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool { return v.Ephemeral != nil }) {
		return ""
	}
	bare := *f.claims.strip(pod)
	bare.Labels = f.chosen.of(bare.Labels)
	signature := f.survey.framework.SignPod(klog.NewContext(context.Background(), f.logger), &bare)
	if signature == nil {
		return ""
	}
	key, err := json.Marshal([]any{bare.Namespace, corev1.PodPriority(&bare), hostPorts(&bare), string(signature)})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:16])
}

// hostPorts are the host ports that upstream's NodePorts compares, in their order in the pod.
func hostPorts(pod *v1.Pod) []v1.ContainerPort {
	ports := util.GetHostPorts(pod)
	for i, port := range ports {
		ports[i] = v1.ContainerPort{HostPort: port.HostPort, Protocol: port.Protocol, HostIP: port.HostIP}
	}
	return ports
}
