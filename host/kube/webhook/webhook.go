// Package webhook is what a pod passes when it is created, before anything of it is stored: an admission webhook. What comes in is the pod;
// what goes out is a patch, or in one sentence why the pod is refused. Labels that ask for a share become annotations, and annotations a claim in the pod,
// by the name of a template that the controller makes; a pod that has devices of ours goes to our scheduler; one that would have them past any scheduler,
// or past its namespace's queue, is refused; one in a queue that lets work run only so long gets that as its time limit.
//
// It writes nothing but its answer, and keeps nothing but its certificate: what it must know it asks of the API server when it must know it.
// So any number of it may run, a dry run is one, and asked again about a pod that it has changed it changes nothing.
package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/host/kube/queues"
)

// Config says what a Webhook works with.
type Config struct {
	Client kubernetes.Interface // reads claims, their templates, device classes and namespaces

	// Queues are those that there are, and the policy, nil for none.
	Queues func(ctx context.Context) ([]*v1alpha1.Queue, *v1alpha1.Policy, error)

	// Scheduler is the name of the scheduler that pods with devices of ours go to. Empty: they stay with the one that they name.
	Scheduler string

	Now func() time.Time // nil: time.Now
	Log *slog.Logger
}

// Webhook answers for pods that are to be created. Its methods may be called at once.
type Webhook struct {
	config  Config
	metrics *metrics
}

// New makes one.
func New(config Config) *Webhook {
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Webhook{config: config, metrics: newMetrics()}
}

// change is what is to become of a pod.
type change struct {
	annotations map[string]string   // that it gets
	template    string              // that its claim is to be made from; empty: it gets none
	containers  []int               // that are to have the claim
	hasClaim    bool                // the pod names the template already
	limited     int                 // the container that loses its limit of whole devices, counted from 1; 0: none
	resource    corev1.ResourceName // that limit
	scheduler   string              // that it is to go to; empty: where it goes already
	deadline    int64               // the time limit that it gets, in seconds; 0: what it asks for
	warnings    []string            // for the user
}

// refusal is why a pod is not to be, in a sentence for its user. Any other error is a failure to find out.
type refusal struct{ reason, text string }

func (r refusal) Error() string { return r.text }

func refuse(reason, format string, args ...any) error {
	return refusal{reason, fmt.Sprintf(format, args...)}
}

// decide says what is to become of a pod, or refuses it.
func (w *Webhook) decide(ctx context.Context, namespace string, pod *corev1.Pod) (change, error) {
	pod, said, err := withLabels(pod)
	if err != nil {
		return change{}, err
	}
	made, err := w.become(ctx, namespace, pod)
	if len(said) == 0 {
		return made, err
	}
	var why refusal
	if errors.As(err, &why) {
		return made, refuse(why.reason, "labels of %s are read as annotations: %s", annotation.Prefix, why.text)
	}
	if made.annotations == nil {
		made.annotations = map[string]string{}
	}
	maps.Copy(made.annotations, said)
	return made, err
}

// become says what is to become of a pod by its annotations, claims and limits.
func (w *Webhook) become(ctx context.Context, namespace string, pod *corev1.Pod) (change, error) {
	made, ask, err := asked(pod)
	if err != nil {
		return change{}, err
	}
	have, err := w.devicesOf(ctx, namespace, pod, made.template)
	if err != nil {
		return change{}, err
	}
	if have.limit != "" && !ask && w.config.Scheduler != "" {
		if made, err = whole(pod, have.limit, have.resource); err != nil {
			return change{}, err
		}
	}
	w.doubt(pod, have, &made)
	if err := have.oneWay(ask); err != nil {
		return change{}, err
	}
	if !ask && have.none() {
		if have.untold && pod.Spec.NodeName == "" {
			w.send(pod, &made, "may be given")
		}
		return made, nil
	}
	if node := pod.Spec.NodeName; node != "" {
		return change{}, refuse(badNode, "the pod asks for devices of Aliquot and names its node itself (spec.nodeName: %s), where no scheduler would give it any; leave nodeName out and choose nodes by nodeSelector or affinity", node)
	}
	if err := have.fit(pod, made.containers); err != nil {
		return change{}, err
	}
	if ask || have.limit != "" || have.holds { // else it has access as an administrator alone, which counts nowhere
		if err := w.bounded(ctx, namespace, pod, &made); err != nil {
			return change{}, err
		}
	}
	w.send(pod, &made, "asks for")
	return made, nil
}

// send has a pod go to our scheduler, where there is one.
func (w *Webhook) send(pod *corev1.Pod, made *change, does string) {
	to, from := w.config.Scheduler, pod.Spec.SchedulerName
	if to == "" || to == from {
		return
	}
	made.scheduler = to
	if from != "" && from != corev1.DefaultSchedulerName {
		made.warnings = append(made.warnings, fmt.Sprintf("the pod goes to the scheduler %s and not to %s: it %s devices of Aliquot, which that one alone hands out", to, from, does))
	}
}

// doubt has a pod of which it cannot be said yet whether it asks for devices of ours go to our scheduler, which places pods without any just as well;
// but for one that is at another scheduler or at a node by its own wish.
func (w *Webhook) doubt(pod *corev1.Pod, have devices, made *change) {
	for _, what := range have.doubts {
		says := "if it asks for devices of Aliquot, make it before the pod, so that the pod goes to the right scheduler"
		switch name := pod.Spec.SchedulerName; {
		case w.config.Scheduler == "" || name == w.config.Scheduler:
			says = "the pod waits for it"
		case (name == "" || name == corev1.DefaultSchedulerName) && pod.Spec.NodeName == "":
			made.scheduler = w.config.Scheduler
			says = fmt.Sprintf("the pod goes to the scheduler %s, in case that it asks for devices of Aliquot", w.config.Scheduler)
		}
		made.warnings = append(made.warnings, what+"; "+says)
	}
}

// bounded refuses a pod whose work may not count against the queue that it names, or asks for more than that lets it, and gives one that asks for no time
// limit the one that its queue has.
func (w *Webhook) bounded(ctx context.Context, namespace string, pod *corev1.Pod, made *change) error {
	found, err := w.config.Client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read namespace %s: %w", namespace, err)
	}
	all, policy, err := w.config.Queues(ctx)
	if err != nil {
		return err
	}
	now := w.config.Now()
	rules, _, _ := queues.Read(all, policy, now)
	told, _ := rules.At(now)
	bounds := queues.BoundsOf(told.Queues)
	queue, err := queues.Of(found, pod, there(all, queues.Among(told.Queues)))
	if err == nil {
		err = bounds.Refuse(queue, pod)
	}
	var bypass queues.Bypass
	if errors.As(err, &bypass) {
		return refuse(badQueue, "%v", bypass)
	}
	if seconds, of := bounds.Seconds(queue); err == nil && seconds > 0 && pod.Spec.ActiveDeadlineSeconds == nil {
		made.deadline = seconds
		made.warnings = append(made.warnings, fmt.Sprintf("queue %s lets work run for %s at most: the pod ends then (spec.activeDeadlineSeconds: %d)", of, bounds[of].LongestRun, seconds))
	}
	return err
}

// there finds queues among those that hold, else among all: work of one that does not hold yet waits for that.
func there(all []*v1alpha1.Queue, holds queues.Find) queues.Find {
	return func(name string) (string, bool, error) {
		if parent, is, err := holds(name); is || err != nil {
			return parent, is, err
		}
		for _, q := range all {
			if q.Name == name {
				return q.Spec.Parent, true, nil
			}
		}
		return "", false, nil
	}
}
