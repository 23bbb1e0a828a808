package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// makers are what makes pods, or makes what does. Of others it is known what they made, not that they are there.
var makers = []schema.GroupVersionResource{
	{Group: "apps", Version: "v1", Resource: "deployments"},
	{Group: "apps", Version: "v1", Resource: "replicasets"},
	{Group: "apps", Version: "v1", Resource: "statefulsets"},
	{Group: "apps", Version: "v1", Resource: "daemonsets"},
	{Group: "batch", Version: "v1", Resource: "jobs"},
	{Group: "batch", Version: "v1", Resource: "cronjobs"},
}

// short are kubectl's short names of their kinds.
var short = map[string]string{"deploy": "deployment", "rs": "replicaset", "sts": "statefulset", "ds": "daemonset", "cj": "cronjob"}

// made is an object of a namespace, and what it was made by.
type made struct {
	kind, name string
	by         *metav1.OwnerReference // nil: by hand
}

// WhyAll says how all pods are that were made by something, directly or not, as a Deployment or a Job, and why: those first that do not run, and last why no more
// could be made. The kind is written as kubectl knows it: deployment, deploy, deployments.apps.
func (p Plugin) WhyAll(ctx context.Context, namespace, kind, name string) error {
	kind, _, _ = strings.Cut(strings.ToLower(kind), ".")
	if long := short[kind]; long != "" {
		kind = long
	}
	kind = strings.TrimSuffix(kind, "s")
	there, err := p.made(ctx, namespace)
	if err != nil {
		return err
	}
	list, err := p.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods of namespace %s: %w", namespace, err)
	}
	events, err := p.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list events of namespace %s: %w", namespace, err)
	}
	all := whyAllShown{Namespace: namespace, Kind: kind, Name: name, Pods: []onePodShown{}, NotMade: []toldShown{}}
	asked := map[types.UID]bool{} // what was asked of, and what it made that makes pods
	for uid, one := range there {
		if one.is(kind, name) || under(one.by, kind, name, there) {
			asked[uid] = true
		}
	}
	var newest metav1.Time
	for i := range list.Items {
		if pod := &list.Items[i]; under(metav1.GetControllerOf(pod), kind, name, there) {
			if newest.Before(&pod.CreationTimestamp) {
				newest = pod.CreationTimestamp
			}
			all.Pods = append(all.Pods, onePod(pod, told(events.Items, map[types.UID]bool{pod.UID: true})))
		}
	}
	if len(all.Pods)+len(asked) == 0 {
		return fmt.Errorf("there is no %s %s in namespace %s, nor a pod of one; `kubectl get %s -A` lists them, -n names another namespace", kind, name, namespace, kind)
	}
	slices.SortStableFunc(all.Pods, func(a, b onePodShown) int {
		return cmp.Or(slices.Index(states, a.State)-slices.Index(states, b.State), strings.Compare(a.Pod, b.Pod))
	})
	for _, one := range told(events.Items, asked) {
		if one.Reason == "FailedCreate" && newest.Before(&one.At) {
			all.NotMade = append(all.NotMade, one)
		}
	}
	if p.encodes() {
		return p.encode(all)
	}
	_, err = fmt.Fprintln(p.Out, strings.Join(all.lines(), "\n"))
	return err
}

// made are those objects of a namespace that pods may be made by.
func (p Plugin) made(ctx context.Context, namespace string) (map[types.UID]made, error) {
	all := map[types.UID]made{}
	for _, resource := range makers {
		list, err := p.Objects.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list %s of namespace %s: %w", resource.Resource, namespace, err)
		}
		for i := range list.Items {
			one := &list.Items[i]
			all[one.GetUID()] = made{kind: strings.TrimSuffix(resource.Resource, "s"), name: one.GetName(), by: metav1.GetControllerOf(one)}
		}
	}
	return all, nil
}

func (m made) is(kind, name string) bool { return strings.EqualFold(m.kind, kind) && m.name == name }

// under says whether what was made by this was made by that of this kind and name, directly or not.
func under(by *metav1.OwnerReference, kind, name string, there map[types.UID]made) bool {
	for range len(there) + 1 { // no chain is longer
		if by == nil {
			return false
		}
		if strings.EqualFold(by.Kind, kind) && by.Name == name {
			return true
		}
		by = there[by.UID].by
	}
	return false
}

// whyAllShown is how the pods are that were made by something.
type whyAllShown struct {
	Namespace string        `json:"namespace"`
	Kind      string        `json:"kind"`
	Name      string        `json:"name"`
	Pods      []onePodShown `json:"pods"`
	NotMade   []toldShown   `json:"notMade"` // why there are no more of them: what was told since the newest of them
}

// onePodShown is one of several pods.
type onePodShown struct {
	Pod     string `json:"pod"`
	State   string `json:"state"`
	Node    string `json:"node,omitempty"`
	Message string `json:"message"` // how it is, in one sentence
}

// states are those of pods, in the order in which they are shown.
var states = []string{"waiting", "starting", "failed", "ending", "running", "done"}

func onePod(pod *corev1.Pod, history []toldShown) onePodShown {
	one := onePodShown{Pod: pod.Name, State: "running", Node: pod.Spec.NodeName, Message: sentence(pod, history)}
	switch {
	case pod.Spec.NodeName == "":
		one.State = "waiting"
	case pod.DeletionTimestamp != nil:
		one.State = "ending"
	case pod.Status.Phase == corev1.PodPending:
		one.State = "starting"
	case pod.Status.Phase == corev1.PodSucceeded:
		one.State = "done"
	case pod.Status.Phase == corev1.PodFailed:
		one.State = "failed"
	}
	return one
}

// lines are what is said of all: of those alike but for their names of one.
func (w whyAllShown) lines() []string {
	var counts []string
	for _, state := range states {
		many := 0
		for _, one := range w.Pods {
			if one.State == state {
				many++
			}
		}
		if many > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", many, state))
		}
	}
	head := fmt.Sprintf("%s/%s has no pods", w.Kind, w.Name)
	switch len(w.Pods) {
	case 0:
	case 1:
		head = fmt.Sprintf("%s/%s has 1 pod: %s", w.Kind, w.Name, w.Pods[0].State)
	default:
		head = fmt.Sprintf("%s/%s has %d pods: %s", w.Kind, w.Name, len(w.Pods), strings.Join(counts, ", "))
	}
	all := []string{head}
	for left := w.Pods; len(left) > 0; {
		first, rest := left[0], []onePodShown(nil)
		for _, one := range left[1:] {
			if one.State != first.State || one.rest() != first.rest() {
				rest = append(rest, one)
			}
		}
		line := "  " + first.Pod
		if more := len(left) - len(rest) - 1; more > 0 {
			line += fmt.Sprintf(" and %d more:", more)
		}
		all, left = append(all, line+first.rest()), rest
	}
	for _, one := range w.NotMade {
		all = append(all, fmt.Sprintf("  Not made   %s  %s", one.At.Local().Format(time.TimeOnly), one.Message))
	}
	return all
}

// rest is what is said of a pod but for its name.
func (o onePodShown) rest() string { return strings.TrimPrefix(o.Message, o.Pod) }
