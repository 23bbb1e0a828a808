package testcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// Watched is a typed client of one kind of object.
type Watched[List runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (List, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// patience is how long anything is waited for: nothing of a cluster takes as long, also beside much other work.
const patience = 5 * time.Minute

// AwaitObject waits until the object of that name is as it should be, by watching it, for five minutes at most. What says in an error what was waited for; there
// the object stands as it was last seen. A deleted object is not waited for any more.
func AwaitObject[Object, List runtime.Object](ctx context.Context, client Watched[List], name, what string, is func(Object) (bool, error)) (Object, error) {
	var last, none Object
	seen := false
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	watched := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = only
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = only
			return client.Watch(ctx, options)
		},
	}
	_, err := watchtools.UntilWithSync(ctx, watched, none, nil, func(event watch.Event) (bool, error) {
		object, ok := event.Object.(Object)
		if !ok {
			return false, fmt.Errorf("got %T", event.Object)
		}
		last, seen = object, true
		if event.Type == watch.Deleted {
			return false, fmt.Errorf("it was deleted")
		}
		return is(object)
	})
	if err == nil {
		return last, nil
	}
	shown := "it was never there"
	if raw, wrong := json.Marshal(last); seen && wrong == nil {
		shown = string(raw)
	}
	return last, fmt.Errorf("wait for %s, %s: %w; %s", what, name, err, shown)
}

// AwaitGone waits until no object of that name is there, for five minutes at most.
func AwaitGone[List runtime.Object](ctx context.Context, client Watched[List], name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	for {
		list, err := client.List(ctx, options)
		if err != nil {
			return fmt.Errorf("wait until %s is gone: %w", name, err)
		}
		if meta.LenList(list) == 0 {
			return nil
		}
		found, err := meta.ListAccessor(list)
		if err != nil {
			return err
		}
		from := options
		from.ResourceVersion = found.GetResourceVersion()
		changes, err := client.Watch(ctx, from)
		if err != nil {
			return fmt.Errorf("wait until %s is gone: %w", name, err)
		}
		for change := range changes.ResultChan() {
			if change.Type == watch.Deleted {
				break
			}
		}
		changes.Stop()
	}
}

// AwaitPod waits until a pod is as it should be. One that has failed is waited for no more, unless failed is what it should be.
func (c *Cluster) AwaitPod(ctx context.Context, namespace, name string, phase corev1.PodPhase) (*corev1.Pod, error) {
	pod, err := AwaitObject(ctx, c.client.CoreV1().Pods(namespace), name, "a pod that is "+string(phase), func(pod *corev1.Pod) (bool, error) {
		if now := pod.Status.Phase; now != phase && (now == corev1.PodFailed || now == corev1.PodSucceeded) {
			return false, fmt.Errorf("it is %s", now)
		}
		return pod.Status.Phase == phase, nil
	})
	if err != nil {
		logs, _ := c.PodLog(ctx, namespace, name)
		events := c.eventsOf(context.WithoutCancel(ctx), namespace, name)
		err = fmt.Errorf("%w\nit said: %s\nevents: %s", err, logs, events)
	}
	return pod, err
}

// eventsOf is what was told of an object, a line each.
func (c *Cluster) eventsOf(ctx context.Context, namespace, name string) (lines string) {
	events, err := c.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		return err.Error()
	}
	for _, event := range events.Items {
		lines += "\n" + event.Reason + ": " + event.Message
	}
	return lines
}

// PodLog is what the only container of a pod has said, as kubelet gives it to the API server.
func (c *Cluster) PodLog(ctx context.Context, namespace, name string) (string, error) {
	stream, err := c.client.CoreV1().Pods(namespace).GetLogs(name, &corev1.PodLogOptions{}).Stream(ctx)
	if err != nil {
		return "", fmt.Errorf("read the log of pod %s: %w", name, err)
	}
	defer stream.Close()
	said, err := io.ReadAll(stream)
	return string(said), err
}
