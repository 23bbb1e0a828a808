package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// How often it is said of queues what they use: where it has changed, unless the configuration says otherwise, and where it has not, so that whoever
// reads it sees that somebody counts.
const (
	usesPace  = 10 * time.Second
	usesAgain = 5 * time.Minute
	hoursPace = 6 // times that, where only device-hours are used
)

// uses are what was said of queues in their status.
type uses struct {
	due     time.Time                     // when it is to be looked again
	said    map[string]v1alpha1.QueueUses // last, by queue
	writing bool
}

// queueUses is what is to be said of one queue.
type queueUses struct {
	queue *v1alpha1.Queue
	uses  *v1alpha1.QueueUses // nil: nothing any more, for it does not hold
}

// sayUses has written into the status of queues what they use, where that is due, and returns when to look again. Queues that only the policy makes
// have no status.
func (s *Scheduler) sayUses() time.Duration {
	u, now := &s.uses, s.config.Now()
	switch {
	case s.config.Objects == nil:
		return time.Hour
	case now.Before(u.due):
		return u.due.Sub(now)
	case u.writing:
		return s.config.UsesPace
	}
	u.due = now.Add(s.config.UsesPace)
	if all := s.newUses(now); len(all) > 0 {
		u.writing = true
		objects := s.config.Objects
		s.besideLoop(func(writer) func() {
			failed := map[string]error{}
			for _, one := range all {
				if err := sayUse(s.ctx, objects, one); err != nil {
					failed[one.queue.Name] = err
				}
			}
			return func() {
				u.writing = false
				for name, err := range failed {
					delete(u.said, name) // it is said again
					s.config.Log.Debug("what a queue uses could not be said", "queue", name, "error", err)
				}
			}
		})
	}
	return s.config.UsesPace
}

// newUses are the uses that are not said yet, or not for long.
func (s *Scheduler) newUses(now time.Time) (all []queueUses) {
	said := map[string]v1alpha1.QueueUses{}
	s.countHours()
	used := s.queuesUsed()
	for _, q := range s.engine.Queues() {
		object := s.tenants.queues[q.Name]
		if object == nil {
			continue
		}
		q.HoursUsed = s.tenants.hours.Used(q.Name)
		uses := v1alpha1.UsesOf(&q, now)
		uses.Used = used[q.Name]
		last, known := s.uses.said[q.Name]
		if since := now.Sub(last.At.Time); known && since < usesAgain && sameUses(last, uses, since < hoursPace*s.config.UsesPace) {
			said[q.Name] = last
			continue
		}
		said[q.Name] = uses
		all = append(all, queueUses{object, &uses})
	}
	s.uses.said = said
	for name, object := range s.tenants.queues {
		if _, is := said[name]; !is && object.Status.Uses != nil {
			all = append(all, queueUses{object, nil})
		}
	}
	return all
}

// sameUses says whether two uses are the same, at whatever time and whatever was used, of which what is held tells; recently: whatever was used of device-hours
// in the same period.
func sameUses(a, b v1alpha1.QueueUses, recently bool) bool {
	was, is := a.Hours, b.Hours
	a.At, a.Hours, b.Hours = b.At, nil, nil
	a.Used = b.Used
	if was != nil && is != nil && recently {
		now := *is
		now.Used = was.Used
		is = &now
	}
	return reflect.DeepEqual(a, b) && was.Equal(is)
}

// sayUse writes what a queue uses into its status. What else that says stays.
func sayUse(ctx context.Context, objects dynamic.Interface, one queueUses) error {
	patch := map[string]any{"status": map[string]any{"uses": one.uses}}
	if one.queue.UID != "" {
		patch["metadata"] = map[string]any{"uid": one.queue.UID} // and no other queue of that name
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = within(ctx, func(ctx context.Context) (any, error) {
		return objects.Resource(v1alpha1.Queues).Patch(ctx, one.queue.Name, types.MergePatchType, text, metav1.PatchOptions{}, "status")
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write what queue %s uses: %w", one.queue.Name, err)
	}
	return nil
}
