package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// How long until what went wrong with a Share, or with what is told of a claim, is tried again, at first and at most.
const (
	liveAgainAfter  = 50 * time.Millisecond
	liveAgainAtMost = 30 * time.Second
)

// live changes ceilings while containers run: it sees to it that each claim prepared here has a Share, and holds its containers to the
// ceiling that stands there. It goes by how things are and not by what happened, so whatever it missed is made good when it looks again.
type live struct {
	*Driver
	client dynamic.NamespaceableResourceInterface
	shares cache.SharedIndexInformer // of this node
	due    workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

func newLive(d *Driver, client dynamic.Interface) (*live, error) {
	l := &live{
		Driver: d, client: client.Resource(sharesResource),
		due: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](liveAgainAfter, liveAgainAtMost)),
	}
	here := fields.OneTermEqualSelector("spec.nodeName", d.config.Node).String()
	listed := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = here
			return l.client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = here
			return l.client.Watch(ctx, options)
		},
	}
	l.shares = cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(listed, client), &unstructured.Unstructured{}, 0, cache.Indexers{})
	_, err := l.shares.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: l.changed, UpdateFunc: func(_, now any) { l.changed(now) }, DeleteFunc: l.changed,
	})
	return l, errors.Join(err, l.shares.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if !errors.Is(err, io.EOF) && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) { // a watch that is over is begun anew
			d.log.Warn("Shares cannot be watched, and ceilings stay as they are until they can; are shares.aliquot.dev and the agent's rights to them installed?", "error", err)
		}
	}))
}

// changed has the Share of an event looked at.
func (l *live) changed(object any) {
	if name, err := cache.DeletionHandlingObjectToName(object); err == nil {
		l.due.Add(name)
	}
}

// prepared has a claim's Share looked at once the claim is prepared. Without live ceilings there is none.
func (l *live) prepared(namespace, name string) {
	if l != nil {
		l.due.Add(cache.ObjectName{Namespace: namespace, Name: name})
	}
}

// run works until the context ends.
func (l *live) run(ctx context.Context) {
	defer context.AfterFunc(ctx, l.due.ShutDown)()
	l.working.Go(func() { l.shares.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), l.shares.HasSynced) {
		return
	}
	before, err := l.preparedClaims()
	if err != nil {
		l.log.Error("the claims prepared before could not be listed; their Shares are looked at when they change", "error", err)
	}
	for _, one := range before {
		l.prepared(one.Namespace, one.Name)
	}
	for {
		name, ended := l.due.Get()
		if ended {
			return
		}
		if err := l.look(ctx, name); err == nil {
			l.due.Forget(name)
		} else if ctx.Err() == nil {
			l.log.Warn("the ceiling of a Share does not hold yet; tried again", "share", name.String(), "error", err)
			l.due.AddRateLimited(name)
		}
		l.due.Done(name)
	}
}

// look makes a claim's share as its Share says, and the Share say how it is.
func (l *live) look(ctx context.Context, name cache.ObjectName) error {
	all, err := l.preparedClaims()
	if err != nil {
		return err
	}
	for _, one := range all {
		if one.Namespace != name.Namespace || one.Name != name.Name || len(one.Access) > 0 {
			continue
		}
		share, err := l.shareOf(ctx, one)
		if err != nil {
			return err
		}
		if share != nil { // else there may be another claim of this name, made anew before this one was taken back
			return l.apply(ctx, share, one.Task.UID)
		}
	}
	return nil // none, or of another node, or without a share
}

// apply holds a claim to the ceiling of its Share, and says in both what it is held to.
func (l *live) apply(ctx context.Context, share *v1alpha1.Share, uid string) error {
	task, refused, err := l.hold(ctx, uid, share.Spec)
	if err != nil || len(task.Grants) == 0 {
		return err
	}
	said := stateOf(share, task, refused)
	if sameState(said, share.Status) {
		return refused
	}
	claim, err := l.config.Client.ResourceV1().ResourceClaims(share.Namespace).Get(ctx, share.Name, metav1.GetOptions{})
	if err == nil && string(claim.UID) == uid {
		l.tellNow(ctx, claim, checkpoint{Task: task})
	} else if !apierrors.IsNotFound(err) && err != nil {
		return err
	}
	share.Status = said
	object, err := unstructuredOf(share)
	if err != nil {
		return err
	}
	if _, err := l.client.Namespace(share.Namespace).UpdateStatus(ctx, object, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status of Share %s/%s: %w", share.Namespace, share.Name, err)
	}
	return refused
}
