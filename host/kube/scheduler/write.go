package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
	"github.com/aliquot-dev/aliquot/internal/point"
)

// writer writes decisions into the cluster. What it says of a write is so: where an answer was lost it asks until it knows, and what
// cannot be done whole it takes back before it says so. It is safe for use by several goroutines at once.
type writer struct {
	client  kubernetes.Interface
	filters Filters
	log     *slog.Logger
	turns   turns
	writes  bool                                       // it is its turn: of a copy that one goroutine has
	tell    func(pod types.UID, why string)            // is told why a write that must be done for a pod is not done; empty: it is
	says    func(pod *corev1.Pod, reason, text string) // has an event told of a pod
	pace    flowcontrol.PassiveRateLimiter             // of events that tell where a pod was placed
	claims  resourcelisters.ResourceClaimLister        // as they were last heard of; so pods
	pods    corelisters.PodLister
}

// job is what is to be written for a workload: all of it or none.
type job []jobTask

// jobTask is a pod and what is to be written of its claims before it is bound.
type jobTask struct {
	pod    *corev1.Pod
	node   string
	claims []jobClaim
}

// jobClaim is a claim as last known, and the allocation that it is to have; nil: it has one, and is only to be reserved for the pod.
type jobClaim struct {
	object     *resourceapi.ResourceClaim
	allocation *resourceapi.AllocationResult
}

// outcome is what became of a job.
type outcome struct {
	refused error                          // why nothing of it is written any more; nil: it is done
	claims  [][]*resourceapi.ResourceClaim // by task: as they were written
	gone    []bool                         // by task: its pod went while others of the job were bound, and its claims were given back
	left    []*resourceapi.ResourceClaim   // as they are that were given back
}

// errLost is that something is not there any more as it was when it was decided upon. There is no use in trying again.
var errLost = errors.New("it has changed meanwhile")

func lost(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errLost, fmt.Sprintf(format, args...))
}

// How often a write is tried that is refused, and how long until it is tried again: doubled each time, up to the most.
const (
	tries      = 5
	againAfter = 10 * time.Millisecond
	againMost  = time.Second
)

// answerWithin is shorter than it takes another scheduler to become leader, so that nothing of this one comes after that.
const answerWithin = 4 * time.Second

// again waits until something may be tried once more; false: the context has ended.
func again(ctx context.Context, try int) bool {
	return pause(ctx, min(againAfter<<min(try, 10), againMost))
}

func pause(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// within gives one call of the API server a time in which it must answer. After it, it is not known whether it was done.
func within[Object any](ctx context.Context, call func(ctx context.Context) (Object, error)) (Object, error) {
	if err := ctx.Err(); err != nil {
		var none Object
		return none, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return call(ctx)
}

// carryOut writes a job when it is its turn: all claims, then all bindings. It is called of a copy of a writer. An error is that the context has ended, and what is written of it is not known.
func (w *writer) carryOut(ctx context.Context, j job) (outcome, error) {
	out := outcome{claims: make([][]*resourceapi.ResourceClaim, len(j)), gone: make([]bool, len(j))}
	if !w.take(ctx) {
		return out, ctx.Err()
	}
	defer w.give()
	for i, t := range j {
		for k, c := range t.claims {
			now, err := w.put(ctx, c, reference(t.pod))
			if err != nil {
				out.refused = fmt.Errorf("claim %s/%s could not be allocated: %w", c.object.Namespace, c.object.Name, err)
				done := append(slices.Clone(j[:i]), jobTask{pod: t.pod, claims: t.claims[:k+1]})
				err := w.undo(ctx, done, &out)
				return out, err
			}
			out.claims[i] = append(out.claims[i], now)
		}
	}
	for i, t := range j {
		err := w.prepare(ctx, j, t, out.claims[i])
		if err == nil {
			err = w.allocated(ctx, t)
		}
		if err != nil {
			out.refused = fmt.Errorf("pod %s/%s could not be prepared for node %s: %w", t.pod.Namespace, t.pod.Name, t.node, err)
			err := w.undo(ctx, j, &out)
			return out, err
		}
	}
	bound := 0
	for i, t := range j {
		err := w.bind(ctx, t, bound > 0)
		switch {
		case err == nil:
			bound++
		case ctx.Err() != nil:
			return out, ctx.Err()
		case bound == 0:
			out.refused = fmt.Errorf("pod %s/%s could not be bound to node %s: %w", t.pod.Namespace, t.pod.Name, t.node, err)
			err := w.undo(ctx, j, &out)
			return out, err
		default: // the others run: that this one's pod has gone is an end like another
			out.gone[i] = true
			if err := w.undo(ctx, j[i:i+1], &out); err != nil {
				return out, err
			}
		}
	}
	point.Here("kube.schedule.bound")
	return out, ctx.Err()
}

// allocated says which claim of a pod nobody has allocated or reserved for it, of those that are not the job's: the filters were to see to them, and may not have
// heard yet that it was given back. A pod that is bound without one never starts.
func (w *writer) allocated(ctx context.Context, t jobTask) error {
	for key := range w.others(t) {
		now, err := w.named(ctx, key)
		if err != nil {
			return err
		}
		if now.Status.Allocation == nil {
			return fmt.Errorf("its claim %s is not allocated; it is looked at anew", now.Name)
		}
		if !resourceclaim.IsReservedForPod(t.pod, now, true) {
			return fmt.Errorf("its claim %s is not reserved for it; it is looked at anew", now.Name)
		}
	}
	return nil
}

// others are the keys of a pod's claims that are not the job's: the filters see to them.
func (w *writer) others(t jobTask) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, key := range claimKeys(t.pod) {
			if !slices.ContainsFunc(t.claims, func(c jobClaim) bool { return c.object.Namespace+"/"+c.object.Name == key }) && !yield(key) {
				return
			}
		}
	}
}

// named is a claim as it is now, by its key.
func (w *writer) named(ctx context.Context, key string) (*resourceapi.ResourceClaim, error) {
	namespace, name, _ := strings.Cut(key, "/")
	return within(ctx, func(ctx context.Context) (*resourceapi.ResourceClaim, error) {
		return w.client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	})
}

// reference is how a claim names a pod that it is reserved for.
func reference(pod *corev1.Pod) resourceapi.ResourceClaimConsumerReference {
	return resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID}
}

func reserved(object *resourceapi.ResourceClaim, pod resourceapi.ResourceClaimConsumerReference) bool {
	return slices.ContainsFunc(object.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID == pod.UID })
}

// put writes an allocation, and for whom it is, into a claim.
func (w *writer) put(ctx context.Context, c jobClaim, pod resourceapi.ResourceClaimConsumerReference) (*resourceapi.ResourceClaim, error) {
	current := c.object
	for try := 0; ; try++ {
		now, err := w.putOnce(ctx, current, c, pod)
		if err == nil || errors.Is(err, errLost) || try >= tries || !again(ctx, try) {
			return now, err
		}
		if current, err = w.claim(ctx, c.object); err != nil {
			return nil, err
		}
	}
}

// putOnce is one try. An error other than errLost may be of a write that was done all the same.
func (w *writer) putOnce(ctx context.Context, current *resourceapi.ResourceClaim, c jobClaim, pod resourceapi.ResourceClaimConsumerReference) (*resourceapi.ResourceClaim, error) {
	had, allocation := current.Status.Allocation, c.allocation
	switch {
	case current.DeletionTimestamp != nil:
		return nil, lost("it is being deleted")
	case allocation == nil && had == nil:
		return nil, lost("it is not allocated any more")
	case had != nil && !sameAllocation(had, cmp.Or(allocation, c.object.Status.Allocation)):
		return nil, lost("another has allocated it")
	case had != nil && reserved(current, pod):
		return current, nil
	}
	claims := w.client.ResourceV1().ResourceClaims(current.Namespace)
	current = current.DeepCopy()
	if !slices.Contains(current.Finalizers, resourceapi.Finalizer) {
		current.Finalizers = append(current.Finalizers, resourceapi.Finalizer)
		now, err := within(ctx, func(ctx context.Context) (*resourceapi.ResourceClaim, error) {
			return claims.Update(ctx, current, metav1.UpdateOptions{})
		})
		if err != nil {
			return nil, fmt.Errorf("add its finalizer: %w", err)
		}
		current = now.DeepCopy()
		point.Here("kube.schedule.finalizer")
	}
	if had == nil {
		current.Status.Allocation = allocation
		if conditioned(allocation) {
			at := metav1.Now()
			current.Status.Allocation = allocation.DeepCopy()
			current.Status.Allocation.AllocationTimestamp = &at
		}
	}
	current.Status.ReservedFor = append(current.Status.ReservedFor, pod)
	now, err := within(ctx, func(ctx context.Context) (*resourceapi.ResourceClaim, error) {
		return claims.UpdateStatus(ctx, current, metav1.UpdateOptions{})
	})
	if err != nil {
		return nil, fmt.Errorf("write its status: %w", err)
	}
	point.Here("kube.schedule.allocated")
	return now, nil
}

// claim is how a claim is now: errLost where it is gone, or another has its name.
func (w *writer) claim(ctx context.Context, known *resourceapi.ResourceClaim) (*resourceapi.ResourceClaim, error) {
	for try := 0; ; try++ {
		now, err := within(ctx, func(ctx context.Context) (*resourceapi.ResourceClaim, error) {
			return w.client.ResourceV1().ResourceClaims(known.Namespace).Get(ctx, known.Name, metav1.GetOptions{})
		})
		switch {
		case err == nil && now.UID == known.UID:
			return now, nil
		case err == nil || apierrors.IsNotFound(err):
			return nil, lost("it is gone")
		case !again(ctx, try):
			return nil, err
		}
	}
}

// bind has a pod run on its node. An error is that it is not bound there and will not be; once it may be without that being known, or where
// it must be, only that its pod is gone or has another node.
func (w *writer) bind(ctx context.Context, t jobTask, must bool) error {
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.pod.Namespace, Name: t.pod.Name, UID: t.pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: t.node},
	}
	pods := w.client.CoreV1().Pods(t.pod.Namespace)
	why := "it cannot be bound to node " + t.node
	if must {
		why += ", and others of its gang run already"
	}
	try := 0
	defer func() { w.insisted(try, t.pod.UID) }()
	for ; ; try++ {
		_, err := within(ctx, func(ctx context.Context) (*corev1.Binding, error) {
			return binding, pods.Bind(ctx, binding, metav1.CreateOptions{})
		})
		if err == nil {
			w.announce(t)
			return nil
		}
		must = must || !refusal(err)
		now, unknown := within(ctx, func(ctx context.Context) (*corev1.Pod, error) {
			return pods.Get(ctx, t.pod.Name, metav1.GetOptions{})
		})
		switch {
		case apierrors.IsNotFound(unknown) || unknown == nil && now.UID != t.pod.UID:
			return lost("the pod is gone")
		case unknown == nil && now.Spec.NodeName == t.node:
			w.announce(t)
			return nil
		case unknown == nil && now.Spec.NodeName != "":
			return lost("it has node %s", now.Spec.NodeName)
		case unknown == nil && now.DeletionTimestamp != nil:
			return lost("it is being deleted")
		case unknown == nil && try >= tries && !must:
			return err
		case !w.insist(ctx, try, t.pod.UID, why, err):
			return err
		}
	}
}

// An event of each pod that is placed would be a write more for each: where many are placed at once it is told of some.
const (
	assignedPace  = 5 // events a second
	assignedBurst = 50
)

// announce has an event told of a pod that was placed, if there is time for it.
func (w *writer) announce(t jobTask) {
	if w.pace.TryAccept() {
		w.says(t.pod, "Scheduled", t.assigned())
	}
}

// assigned says where a pod was placed, in the words of the stock scheduler, and which parts of which devices of ours are its.
func (t jobTask) assigned() string {
	text, with := fmt.Sprintf("Successfully assigned %s/%s to %s", t.pod.Namespace, t.pod.Name, t.node), []string(nil)
	for _, c := range t.claims {
		allocation := cmp.Or(c.allocation, c.object.Status.Allocation)
		if allocation == nil {
			continue
		}
		for _, r := range allocation.Devices.Results {
			compute, memory := r.ConsumedCapacity[driver.Compute], r.ConsumedCapacity[driver.Memory]
			switch {
			case r.Driver != driver.Name:
			case compute.IsZero(): // it consumes no part: it is had whole
				with = append(with, r.Device)
			default:
				with = append(with, fmt.Sprintf("%s of %s and %s of its memory", api.Milli(compute.Value()), r.Device, api.Bytes(memory.Value())))
			}
		}
	}
	if len(with) == 0 {
		return text
	}
	return text + ", with " + strings.Join(with, ", ")
}

// refusal says whether an error is the API server's word that something was not done. After any other it may have been.
func refusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != 408 && code != 499
}
