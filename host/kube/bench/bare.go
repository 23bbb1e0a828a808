package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

// tried are how many tasks the bare loop writes at once: the best two of them on a part of the tasks write half of the rest each, and the better one is the loop at
// its best. The last is more than is any good; where it is the best all the same, the loop's best is not known.
var tried = []int{4, 8, 16, 32, 64, 128, 256, 512}

// triedPart is the part of the tasks on which each is tried, twice: upwards and downwards, so that none gains by its place. It is twice as many as are written at
// once at least; what would be more than triedMost of the tasks is not tried, in a small run. One part before that warms everything up.
const (
	triedPart = 40
	triedMost = 9
)

// written is what the bare loop did at its best.
type written struct {
	rate float64       // pods per second
	at   int           // writers
	cpu  time.Duration // CPU time of everything, for each pod
}

// bare makes the writes that placing pods needs, the same as the scheduler's, and decides nothing: task i gets device i.
func (f *fleet) bare(ctx context.Context, tasks []task) (best written, err error) {
	bound := f.bound(ctx)
	defer bound.stop()
	write := func(first, last, at int) (float64, error) {
		begun := time.Now()
		err := each(ctx, last-first, at, func(ctx context.Context, i int) error { return f.writeOne(ctx, tasks[first+i], first+i) })
		if err == nil {
			err = bound.await(ctx, last, nil)
		}
		_, ended := bound.count()
		return float64(last-first) / ended.Sub(begun).Seconds(), err
	}
	first := 0
	took := map[int]float64{} // seconds for a pod, twice
	upwards := slices.DeleteFunc(slices.Clone(tried), func(at int) bool { return at > tried[1] && 2*at > len(tasks)/triedMost })
	downwards := slices.Clone(upwards)
	slices.Reverse(downwards)
	for turn, at := range slices.Concat(upwards[:1], upwards, downwards) {
		part := min(max(1, len(tasks)/triedPart, 2*at), len(tasks)/triedMost)
		got, err := write(first, first+part, at)
		if err != nil {
			return best, fmt.Errorf("write without a decision: %w", err)
		}
		first += part
		if turn > 0 {
			fmt.Fprintf(os.Stderr, "bare loop, %d at once: %.0f pods/s\n", at, got)
			took[at] += 1 / got
		}
	}
	fastest := slices.SortedFunc(slices.Values(upwards), func(a, b int) int { return cmp.Compare(took[a], took[b]) })
	last := first + (len(tasks)-first)/2
	for _, at := range fastest[:2] {
		before, err := f.spent()
		if err != nil {
			return best, err
		}
		rate, err := write(first, last, at)
		if err != nil {
			return best, fmt.Errorf("write without a decision: %w", err)
		}
		after, err := f.spent()
		if err != nil {
			return best, err
		}
		fmt.Fprintf(os.Stderr, "bare loop, %d at once, %d pods: %.0f pods/s\n", at, last-first, rate)
		if rate > best.rate {
			best = written{rate, at, (after - before) / time.Duration(last-first)}
		}
		first, last = last, len(tasks)
	}
	if most := tried[len(tried)-1]; best.at == most {
		return best, fmt.Errorf("the bare loop was fastest with %d at once, the most that it tried, so that its best is not known: have it try more", most)
	}
	return best, nil
}

// writeOne writes one task: the claim's finalizer, its allocation, the pod's binding.
func (f *fleet) writeOne(ctx context.Context, t task, i int) error {
	claims := f.writes.ResourceV1().ResourceClaims(namespace)
	on, device := i/devices%f.nodes, i%devices
	claim := t.claim.DeepCopy()
	claim.Finalizers = append(claim.Finalizers, resourceapi.Finalizer)
	claim, err := claims.Update(ctx, claim, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	claim.Status.Allocation = allocation(claim, nodeName(on), strings.ToLower(deviceUUID(on, device)))
	claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: t.pod.Name, UID: t.pod.UID})
	if _, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return err
	}
	return f.writes.CoreV1().Pods(namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: t.pod.Name, UID: t.pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: nodeName(on)},
	}, metav1.CreateOptions{})
}

// allocation is as large as the scheduler's.
func allocation(claim *resourceapi.ResourceClaim, node, device string) *resourceapi.AllocationResult {
	request := claim.Spec.Devices.Requests[0]
	share := uuid.NewUUID()
	var configs []resourceapi.DeviceAllocationConfiguration
	for _, config := range claim.Spec.Devices.Config {
		configs = append(configs, resourceapi.DeviceAllocationConfiguration{
			Source: resourceapi.AllocationConfigSourceClaim, Requests: slices.Clone(config.Requests), DeviceConfiguration: config.DeviceConfiguration,
		})
	}
	consumed := map[resourceapi.QualifiedName]resource.Quantity{}
	for name, quantity := range request.Exactly.Capacity.Requests {
		consumed[name] = quantity.DeepCopy()
	}
	return &resourceapi.AllocationResult{
		Devices: resourceapi.DeviceAllocationResult{Config: configs, Results: []resourceapi.DeviceRequestAllocationResult{{
			Request: request.Name, Driver: driver.Name, Pool: node, Device: device, ShareID: &share, ConsumedCapacity: consumed,
		}}},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
		}}}},
	}
}
