package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/internal/point"
)

// byTemplate is the index of pods by the template that their annotations name.
const byTemplate = "template"

// TemplatesConfig says what Templates works with.
type TemplatesConfig struct {
	Client kubernetes.Interface
	Events record.EventRecorder
	Clock  clock.WithTicker
	Keep   time.Duration // a template that no pod names stays for so long: pods of a kind follow each other
	Log    *slog.Logger

	Metrics *Metrics // nil: nothing is counted
}

// How long until what went wrong with a template is tried again, at first and at most.
const (
	againAfter  = 5 * time.Millisecond
	againAtMost = time.Minute
)

// Templates makes the ResourceClaimTemplates that pods with annotations name, and removes those that none names any more.
type Templates struct {
	TemplatesConfig
	pods, templates cache.SharedIndexInformer
	queue           workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu      sync.Mutex
	unnamed map[types.NamespacedName]time.Time // since when nobody names them
	changed map[types.NamespacedName]types.UID // templates that the API server made otherwise than they were to be
}

// NewTemplates makes one, which does nothing before it runs.
func NewTemplates(config TemplatesConfig) (*Templates, error) {
	t := &Templates{
		TemplatesConfig: config,
		pods:            informers.NewSharedInformerFactoryWithOptions(config.Client, 0, informers.WithTransform(outlined)).Core().V1().Pods().Informer(),
		templates: informers.NewSharedInformerFactoryWithOptions(config.Client, 0, informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.LabelSelector = annotation.Made + "=" + annotation.MadeValue
		})).Resource().V1().ResourceClaimTemplates().Informer(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](againAfter, againAtMost),
			workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: "templates", Clock: config.Clock}),
		unnamed: map[types.NamespacedName]time.Time{}, changed: map[types.NamespacedName]types.UID{},
	}
	err := t.pods.AddIndexers(cache.Indexers{byTemplate: func(object any) ([]string, error) {
		pod, ok := object.(*corev1.Pod)
		if !ok || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			return nil, nil
		}
		if key := templateOf(pod); key.Name != "" {
			return []string{key.String()}, nil
		}
		return nil, nil
	}})
	_, podsErr := t.pods.AddEventHandler(handler(func(object any) {
		if pod, ok := object.(*corev1.Pod); ok {
			if key := templateOf(pod); key.Name != "" {
				t.queue.Add(key)
			}
		}
	}))
	_, templatesErr := t.templates.AddEventHandler(handler(func(object any) {
		if template, ok := object.(*resourceapi.ResourceClaimTemplate); ok {
			t.queue.Add(types.NamespacedName{Namespace: template.Namespace, Name: template.Name})
		}
	}))
	return t, errors.Join(err, podsErr, templatesErr)
}

// handler does the same with an object whatever becomes of it.
func handler(do func(any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: do, UpdateFunc: func(_, now any) { do(now) },
		DeleteFunc: func(object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			do(object)
		},
	}
}

// outlined is what of a pod is kept: a cluster has many, and little of them is needed.
func outlined(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	kept := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, DeletionTimestamp: pod.DeletionTimestamp},
		Status:     corev1.PodStatus{Phase: pod.Status.Phase},
	}
	if templateOf(pod).Name != "" {
		kept.Annotations, kept.Spec.ResourceClaims = pod.Annotations, pod.Spec.ResourceClaims
	}
	return kept, nil
}

// templateOf is the template that a pod names for its annotations; without a name, where it names none.
func templateOf(pod *corev1.Pod) types.NamespacedName {
	if pod.Annotations[annotation.GPU] != "" {
		for _, claim := range pod.Spec.ResourceClaims {
			if claim.Name == annotation.ClaimName && claim.ResourceClaimTemplateName != nil {
				return types.NamespacedName{Namespace: pod.Namespace, Name: *claim.ResourceClaimTemplateName}
			}
		}
	}
	return types.NamespacedName{}
}

// Run works until ctx ends.
func (t *Templates) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	defer t.queue.ShutDown()
	for _, informer := range []cache.SharedIndexInformer{t.pods, t.templates} {
		all.Go(func() { informer.RunWithContext(ctx) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), t.pods.HasSynced, t.templates.HasSynced) {
		return nil
	}
	for range 4 {
		all.Go(func() {
			for t.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	return nil
}

// next sees to one template; false once there is to be no more.
func (t *Templates) next(ctx context.Context) bool {
	key, ended := t.queue.Get()
	if ended {
		return false
	}
	defer t.queue.Done(key)
	again, err := t.see(ctx, key)
	switch {
	case err != nil && ctx.Err() == nil:
		t.Metrics.failed(ofTemplates)
		t.Log.Warn("a template of claims is not as it should be; trying again", "template", key, "error", err)
		t.queue.AddRateLimited(key)
		return true
	case again > 0:
		t.queue.AddAfter(key, again)
	}
	t.queue.Forget(key)
	return true
}

// see makes a template what it is to be, and says after what time it is to be seen to again; 0: when something changes.
func (t *Templates) see(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	found, err := t.pods.GetIndexer().ByIndex(byTemplate, key.String())
	if err != nil {
		return 0, err
	}
	known, exists, err := t.templates.GetStore().GetByKey(key.String())
	if err != nil {
		return 0, err
	}
	have, _ := known.(*resourceapi.ResourceClaimTemplate)
	if len(found) == 0 {
		if !exists {
			t.named(key)
			return 0, nil
		}
		if left := t.Keep - t.Clock.Since(t.unnamedSince(key)); left > 0 {
			return left, nil
		}
		t.Log.Info("removing a template that no pod names", "template", key)
		if err := t.remove(ctx, have); err != nil {
			return 0, err
		}
		t.mu.Lock()
		delete(t.changed, key)
		t.mu.Unlock()
		t.Metrics.did("removed")
		return 0, nil
	}
	t.named(key)
	for _, object := range found {
		pod := object.(*corev1.Pod)
		ask, err := annotation.Parse(pod.Annotations)
		if err != nil || ask == nil || ask.Name() != key.Name {
			continue // its annotations are not those that the webhook saw; another's may be
		}
		wanted, err := ask.Template(key.Namespace)
		if err != nil || exists && t.good(have, wanted) {
			return 0, err
		}
		err = t.put(ctx, wanted)
		if errors.Is(err, errChanged) { // so it would be if it was made again
			t.Events.Eventf(pod, corev1.EventTypeWarning, "TemplateChanged", "The template of its claim, %s, is kept otherwise than it was made, so that the pod has something else than it asks for: "+
				"an API server does so that knows of no shares (before 1.36, or without the feature gate DRAConsumableCapacity), or a policy that changes templates; turn the gate on or change the policy, and make the pod anew", key.Name)
			return 0, nil
		}
		if err != nil {
			t.Events.Eventf(pod, corev1.EventTypeWarning, "NoTemplate", "The template of its claim, %s, cannot be made, and is tried again: %v", key.Name, err)
			return 0, err
		}
		return 0, nil
	}
	return 0, nil
}

// errChanged is that the API server has made another template of what it was to make.
var errChanged = errors.New("the API server keeps the template otherwise")

// good says whether a template says what it is to, or as much of it as the API server keeps.
func (t *Templates) good(have, wanted *resourceapi.ResourceClaimTemplate) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept, is := t.changed[types.NamespacedName{Namespace: have.Namespace, Name: have.Name}]
	return is && kept == have.UID || annotation.Same(have.Spec.Spec, wanted.Spec.Spec)
}

// create makes a template, and is errChanged where another came of it.
func (t *Templates) create(ctx context.Context, wanted *resourceapi.ResourceClaimTemplate) error {
	made, err := t.Client.ResourceV1().ResourceClaimTemplates(wanted.Namespace).Create(ctx, wanted, metav1.CreateOptions{})
	point.Here("kube.template.made")
	if err != nil || annotation.Same(made.Spec.Spec, wanted.Spec.Spec) {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed[types.NamespacedName{Namespace: made.Namespace, Name: made.Name}] = made.UID
	return errChanged
}

// put makes a template. One of its name that says something else is replaced: it was written by somebody who wanted other pods to have that.
func (t *Templates) put(ctx context.Context, wanted *resourceapi.ResourceClaimTemplate) error {
	client := t.Client.ResourceV1().ResourceClaimTemplates(wanted.Namespace)
	err := t.create(ctx, wanted)
	if !apierrors.IsAlreadyExists(err) {
		if err == nil || errors.Is(err, errChanged) {
			t.Metrics.did("made")
			t.Log.Info("made a template", "template", wanted.Namespace+"/"+wanted.Name)
		}
		return err
	}
	have, err := client.Get(ctx, wanted.Name, metav1.GetOptions{})
	if err != nil || t.good(have, wanted) {
		return err
	}
	t.Log.Warn("a template says another thing than its name, and is replaced", "template", wanted.Namespace+"/"+wanted.Name)
	if err := t.remove(ctx, have); err != nil {
		return fmt.Errorf("remove what is there of its name: %w", err)
	}
	if err = t.create(ctx, wanted); err == nil || errors.Is(err, errChanged) {
		t.Metrics.did("replaced")
	}
	return err
}

// remove removes a template, and no other of its name.
func (t *Templates) remove(ctx context.Context, have *resourceapi.ResourceClaimTemplate) error {
	options := metav1.DeleteOptions{}
	if have.UID != "" {
		options.Preconditions = metav1.NewUIDPreconditions(string(have.UID))
	}
	err := t.Client.ResourceV1().ResourceClaimTemplates(have.Namespace).Delete(ctx, have.Name, options)
	point.Here("kube.template.removed")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (t *Templates) named(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.unnamed, key)
}

func (t *Templates) unnamedSince(key types.NamespacedName) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	since, ok := t.unnamed[key]
	if !ok {
		since = t.Clock.Now()
		t.unnamed[key] = since
	}
	return since
}
