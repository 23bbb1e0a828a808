package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/host/kube/queues"
)

// daily is how often policies are looked at where nothing changes: their windows are looked at for the 400 days to come.
const daily = 24 * time.Hour

// ConditionsConfig says what Conditions works with.
type ConditionsConfig struct {
	Client dynamic.Interface
	Clock  clock.WithTicker
	Log    *slog.Logger

	Metrics *Metrics // nil: nothing is counted
}

// Conditions says in the status of each Queue and Policy whether it holds, with what others there are, and why not.
type Conditions struct {
	ConditionsConfig
	queues, policies cache.SharedIndexInformer
	work             workqueue.TypedRateLimitingInterface[string] // of one: whether queues add up is of all of them
}

// NewConditions makes one, which does nothing before it runs.
func NewConditions(config ConditionsConfig) (*Conditions, error) {
	factory := dynamicinformer.NewDynamicSharedInformerFactory(config.Client, 0)
	c := &Conditions{
		ConditionsConfig: config, queues: factory.ForResource(v1alpha1.Queues).Informer(), policies: factory.ForResource(v1alpha1.Policies).Informer(),
		work: workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "conditions", Clock: config.Clock}),
	}
	changed := handler(func(any) { c.work.Add("all") })
	_, err := c.queues.AddEventHandler(changed)
	_, policiesErr := c.policies.AddEventHandler(changed)
	return c, errors.Join(err, policiesErr)
}

// Run works until ctx ends.
func (c *Conditions) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	defer c.work.ShutDown()
	for _, informer := range []cache.SharedIndexInformer{c.queues, c.policies} {
		all.Go(func() { informer.RunWithContext(ctx) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), c.queues.HasSynced, c.policies.HasSynced) {
		return nil
	}
	all.Go(func() {
		for {
			key, ended := c.work.Get()
			if ended {
				return
			}
			if err := c.see(ctx); err == nil {
				c.work.Forget(key)
				c.work.AddAfter(key, daily)
			} else if ctx.Err() == nil {
				c.Metrics.failed(ofConditions)
				c.Log.Warn("the conditions of queues and policies are not as they should be; trying again", "error", err)
				c.work.AddRateLimited(key)
			}
			c.work.Done(key)
		}
	})
	<-ctx.Done()
	return nil
}

// see says of all what is so.
func (c *Conditions) see(ctx context.Context) error {
	var failed []error
	var parsed []*v1alpha1.Queue
	objects := map[string]*unstructured.Unstructured{}
	for _, known := range c.queues.GetStore().List() {
		object := known.(*unstructured.Unstructured)
		q, err := v1alpha1.Read[v1alpha1.Queue](object)
		if err != nil { // its schema was another once
			failed = append(failed, c.say(ctx, v1alpha1.Queues, object, refused(v1alpha1.ReasonInvalid, err.Error())))
			continue
		}
		objects[q.Name], parsed = object, append(parsed, q)
	}
	now := c.Clock.Now()
	_, not, _ := queues.Read(parsed, nil, now)
	for name, object := range objects {
		said := accepted("The queue holds.")
		if why, is := not[name]; is {
			said = refused(why.Reason, why.Message)
		}
		failed = append(failed, c.say(ctx, v1alpha1.Queues, object, said))
	}
	for _, known := range c.policies.GetStore().List() { // of one name, so there is one at most
		object, said := known.(*unstructured.Unstructured), accepted("The policy holds.")
		if p, err := v1alpha1.Read[v1alpha1.Policy](object); err != nil {
			said = refused(v1alpha1.ReasonInvalid, err.Error())
		} else if _, _, why := queues.Read(parsed, p, now); why != nil {
			said = refused(why.Reason, why.Message)
		}
		failed = append(failed, c.say(ctx, v1alpha1.Policies, object, said))
	}
	return errors.Join(failed...)
}

func accepted(message string) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.Accepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, Message: message}
}

func refused(reason, message string) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.Accepted, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// say writes a condition of an object, where it is not written already. What else its status says stays.
func (c *Conditions) say(ctx context.Context, kind schema.GroupVersionResource, object *unstructured.Unstructured, condition metav1.Condition) error {
	var before v1alpha1.Status
	if status, is := object.Object["status"]; is {
		raw, err := json.Marshal(status)
		if err == nil {
			err = json.Unmarshal(raw, &before)
		}
		if err != nil {
			before = v1alpha1.Status{}
		}
	}
	now := v1alpha1.Status{ObservedGeneration: object.GetGeneration(), Conditions: append([]metav1.Condition(nil), before.Conditions...)}
	condition.ObservedGeneration = object.GetGeneration()
	condition.LastTransitionTime = metav1.NewTime(c.Clock.Now().Truncate(time.Second))
	meta.SetStatusCondition(&now.Conditions, condition)
	if equality.Semantic.DeepEqual(before, now) {
		return nil
	}
	raw, err := json.Marshal(now)
	if err != nil {
		return err
	}
	var said map[string]any
	if err := json.Unmarshal(raw, &said); err != nil {
		return err
	}
	written := object.DeepCopy()
	status, _ := written.Object["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
	}
	for key, value := range said {
		status[key] = value
	}
	written.Object["status"] = status
	_, err = c.Client.Resource(kind).UpdateStatus(ctx, written, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write what is so of %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	c.Log.Info("said", "kind", object.GetKind(), "name", object.GetName(), "accepted", condition.Status, "message", condition.Message)
	return nil
}
