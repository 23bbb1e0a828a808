package scheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// How long a pod waits until it is told why, how often it is looked whether that is still so, and how many are told at a time, for an
// answer costs a walk along the line.
const (
	sayAfter = time.Second
	sayAgain = 30 * time.Second
	sayPause = 200 * time.Millisecond
	sayBatch = 10
)

// sayings are the pods that are to be told why they wait, in the order in which they are due.
type sayings struct {
	first, again []saying
	last         time.Time // some were told
}

type saying struct {
	pod *pod
	due time.Time
}

// recorder records events of pods in the cluster, until it is shut down.
func recorder(config Config) (record.EventRecorder, func()) {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: config.Client.CoreV1().Events("")})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: config.Name}), broadcaster.Shutdown
}

// tellSoon has a pod told why it waits, if it still does in a moment.
func (s *Scheduler) tellSoon(p *pod) {
	if !p.soon {
		p.soon = true
		s.sayings.first = append(s.sayings.first, saying{p, s.config.Now().Add(sayAfter)})
	}
}

// tell tells those whose time has come, and returns when to look again.
func (s *Scheduler) tell() time.Duration {
	now := s.config.Now()
	if wait := s.sayings.last.Add(sayPause).Sub(now); wait > 0 {
		return wait
	}
	told := 0
	for _, line := range []*[]saying{&s.sayings.first, &s.sayings.again} {
		for len(*line) > 0 && told < sayBatch && !(*line)[0].due.After(now) {
			p := (*line)[0].pod
			*line = (*line)[1:]
			if line == &s.sayings.first {
				p.soon = false
			} else {
				p.again = false
			}
			if !s.mine(p) {
				continue
			}
			if !p.again {
				p.again = true
				s.sayings.again = append(s.sayings.again, saying{p, now.Add(sayAgain)})
			}
			if s.stuck[p.object.UID] == "" && (p.busy || p.task != nil && p.task.work.state != inLine) {
				continue
			}
			told++
			s.secondChance(p)
			s.seekInLine(p)
			s.tellNow(p)
		}
	}
	if told > 0 {
		s.sayings.last = now
	}
	next := time.Hour
	for _, line := range [][]saying{s.sayings.first, s.sayings.again} {
		if len(line) > 0 {
			next = min(next, max(sayPause, line[0].due.Sub(now)))
		}
	}
	return next
}

// tellNow writes why a pod waits into its condition and gives an event of it, where that is new.
func (s *Scheduler) tellNow(p *pod) {
	why := s.why(p)
	if why == p.told {
		return
	}
	p.told = why
	s.recorder.Event(p.object, corev1.EventTypeWarning, "FailedScheduling", why)
	object := p.object
	s.spawn(func(ctx context.Context) {
		err := condition(ctx, s.config, object, why)
		if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
			s.config.Log.Debug("why a pod waits could not be told, and is told again", "pod", object.Namespace+"/"+object.Name, "error", err)
			s.inbox.put(func() {
				p.told = ""
			})
		}
	})
}

// condition writes why a pod waits into its status, if the pod is still as it was seen: it may have been bound.
func condition(ctx context.Context, config Config, pod *corev1.Pod, why string) error {
	since := metav1.NewTime(config.Now())
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			if c.Message == why {
				return nil
			}
			since = c.LastTransitionTime
		}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status": map[string]any{"conditions": []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: why, LastTransitionTime: since,
			ObservedGeneration: pod.Generation,
		}}},
	})
	if err != nil {
		return err
	}
	_, err = within(ctx, func(ctx context.Context) (*corev1.Pod, error) {
		return config.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	})
	return err
}

// why is why a pod waits, for its user: the engine's dominant reason, the devices that it counted for it, what the filters said of nodes, and
// what would help.
func (s *Scheduler) why(p *pod) string {
	if why := s.stuck[p.object.UID]; why != "" {
		return why
	}
	if p.task == nil {
		return p.reason
	}
	w := p.task.work
	said := s.engine.Why(w.id)
	if said.Code == engine.WhyHours {
		if message, unblock := s.tenants.hours.Explain(s.above(p.task.ask.queue)); message != "" {
			said.Message, said.Unblock = message, unblock
		}
	}
	text := said.Message
	var counts []string
	texts := api.CountTexts(said.Counts)
	for i, count := range said.Counts {
		devices := "devices"
		if count.Devices == 1 {
			devices = "device"
		}
		counts = append(counts, fmt.Sprintf("%d %s: %s", count.Devices, devices, texts[i]))
		if count.Code == engine.CountBarred {
			counts[len(counts)-1] += " (" + w.roles[said.Role].class.barred() + ")"
		}
	}
	if len(counts) > 0 {
		text += "; " + strings.Join(counts, ", ")
	}
	if said.Guarded != engine.Never {
		said.Unblock += ", the first of it until " + time.UnixMicro(int64(said.Guarded)).UTC().Format("2006-01-02 15:04 MST")
	}
	if said.Unblock != "" {
		text += ". It waits for: " + said.Unblock
	}
	return text + "."
}

// barred is what the filters said of the nodes that a class may not use: the three reasons of most nodes.
func (c *class) barred() string {
	if c.answer == nil {
		return "the nodes that it may run on are looked for"
	}
	counted := map[string]int{}
	for _, why := range c.answer {
		if why != "" {
			counted[why]++
		}
	}
	reasons := slices.SortedFunc(maps.Keys(counted), func(a, b string) int {
		return cmp.Or(counted[b]-counted[a], strings.Compare(a, b))
	})
	text := make([]string, 0, 3)
	for _, why := range reasons[:min(3, len(reasons))] {
		nodes := "nodes"
		if counted[why] == 1 {
			nodes = "node"
		}
		text = append(text, fmt.Sprintf("%d %s: %s", counted[why], nodes, why))
	}
	return strings.Join(text, ", ")
}
