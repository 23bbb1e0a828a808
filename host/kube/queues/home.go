package queues

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// Find looks a Queue up: which it is under, empty for none, and whether it is there. What cannot be found out is an error.
type Find func(name string) (parent string, there bool, err error)

// Bypass is why a pod may not have its work counted against the queue that it names.
type Bypass string

func (b Bypass) Error() string { return string(b) }

// Home is the queue of a namespace: the one that its label aliquot.dev/queue names, else one of its own name, else the default queue. A label that names
// none is a Bypass: its work belongs nowhere.
func Home(namespace *corev1.Namespace, find Find) (string, error) {
	if named := namespace.Labels[annotation.Queue]; named != "" {
		_, there, err := find(named)
		if err == nil && !there && named != api.DefaultQueue {
			err = Bypass(fmt.Sprintf("the namespace %s belongs to the queue %s by its label %s, and there is no such queue; an administrator makes the queue, or changes the label", namespace.Name, named, annotation.Queue))
		}
		return named, err
	}
	_, there, err := find(namespace.Name)
	if err != nil || there {
		return namespace.Name, err
	}
	return api.DefaultQueue, nil
}

// Of is the queue of a pod in a namespace: the one that its annotation aliquot.dev/queue names, which must be the namespace's or under that, else
// the namespace's. Anything else is a Bypass.
func Of(namespace *corev1.Namespace, pod *corev1.Pod, find Find) (string, error) {
	home, err := Home(namespace, find)
	if err != nil {
		return "", err
	}
	named, given := pod.Annotations[annotation.Queue]
	if !given {
		return home, nil
	}
	seen := map[string]bool{}
	for at := named; at != home; {
		parent, there, err := find(at)
		switch {
		case err != nil:
			return "", err
		case !there && at == named:
			return "", Bypass(fmt.Sprintf("the annotation %s: there is no queue %q; name %s, which is the queue of the namespace %s, or one under it, or leave the annotation out", annotation.Queue, named, home, namespace.Name))
		case !there || parent == "" || seen[at]:
			return "", Bypass(fmt.Sprintf("the annotation %s: work of the namespace %s belongs to the queue %s, and %s is not under that; name %s or one under it, or leave the annotation out", annotation.Queue, namespace.Name, home, named, home))
		}
		seen[at] = true
		at = parent
	}
	return named, nil
}
