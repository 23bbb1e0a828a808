package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// shapes are the shares that pods ask for, in turn: 0.36 of a device on average.
var shapes = []map[string]string{
	{annotation.GPU: "0.25..0.80", annotation.Memory: "16Gi..32Gi"},
	{annotation.GPU: "0.50..1.00", annotation.Memory: "40Gi..80Gi"},
	{annotation.GPU: "0.10..0.50", annotation.Memory: "8Gi..16Gi"},
	{annotation.GPU: "0.60", annotation.Memory: "64Gi"},
}

// task is a pod and its claim, as they were made.
type task struct {
	claim *resourceapi.ResourceClaim
	pod   *corev1.Pod
	made  time.Time // just before the pod was
}

// specs are the claims of the shapes, as the controller would make them of the annotations.
func specs() ([]resourceapi.ResourceClaimSpec, error) {
	var all []resourceapi.ResourceClaimSpec
	for _, shape := range shapes {
		ask, err := annotation.Parse(shape)
		if err != nil {
			return nil, err
		}
		spec, err := ask.Spec()
		if err != nil {
			return nil, err
		}
		all = append(all, spec)
	}
	return all, nil
}

// submit makes pods that wait for a scheduler, each with a claim of its own.
func (f *fleet) submit(ctx context.Context, prefix string, n int, scheduler string) ([]task, error) {
	specs, err := specs()
	if err != nil {
		return nil, err
	}
	all := make([]task, n)
	err = each(ctx, n, creators, func(ctx context.Context, i int) (err error) {
		all[i], err = f.makeOne(ctx, fmt.Sprintf("%s-%06d", prefix, i), specs[i%len(specs)], scheduler)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make %d pods with a claim each: %w", n, err)
	}
	return all, nil
}

func (f *fleet) makeOne(ctx context.Context, name string, spec resourceapi.ResourceClaimSpec, scheduler string) (t task, err error) {
	t.claim, err = f.client.ResourceV1().ResourceClaims(namespace).Create(ctx, &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return t, err
	}
	t.made = time.Now()
	t.pod, err = f.client.CoreV1().Pods(namespace).Create(ctx, newPod(name, scheduler), metav1.CreateOptions{})
	return t, err
}

func newPod(name, scheduler string) *corev1.Pod {
	no := false
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "bench"}}, Spec: corev1.PodSpec{
		SchedulerName: scheduler, AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
		ResourceClaims: []corev1.PodResourceClaim{{Name: annotation.ClaimName, ResourceClaimName: &name}},
		Containers: []corev1.Container{{
			Name: "main", Image: "example.com/trainer:1", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("4Gi")},
				Claims:   []corev1.ResourceClaim{{Name: annotation.ClaimName}},
			},
		}},
	}}
}

// bound follows the pods that have a node.
func (f *fleet) bound(ctx context.Context) *followed {
	return follow(ctx, f.client.CoreV1().Pods(namespace), &corev1.Pod{}, "spec.nodeName!=", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
}
