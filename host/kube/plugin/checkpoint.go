package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// Checkpoint notes on a pod that it has just saved what it has done: evicted from now on, it would lose only what it does after this.
func (p Plugin) Checkpoint(ctx context.Context, namespace, name string) error {
	pod, err := p.pod(ctx, namespace, name)
	if err != nil {
		return err
	}
	if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
		return fmt.Errorf("%s does not run (%s): say so when it has saved something while it runs", name, phaseOf(pod))
	}
	there, _, err := p.claimsOf(ctx, pod)
	if err != nil {
		return err
	}
	shares := 0
	for _, claim := range there {
		shares += len(holdings(claim))
	}
	if shares == 0 {
		return fmt.Errorf("%s has no share of a device; `kubectl aliquot why %s` says what it asks for", name, name)
	}
	at := p.Now().UTC().Format(time.RFC3339Nano)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": map[string]string{annotation.CheckpointedAt: at}}})
	if err != nil {
		return err
	}
	if _, err := p.Client.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-aliquot"}); err != nil {
		return fmt.Errorf("write the annotation %s of pod %s/%s: %w", annotation.CheckpointedAt, namespace, name, err)
	}
	_, err = fmt.Fprintf(p.Out, "%s has saved what it has done by %s\n", name, at)
	return err
}

// phaseOf is where a pod is in its life, in a word.
func phaseOf(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "Terminating"
	}
	return string(pod.Status.Phase)
}
