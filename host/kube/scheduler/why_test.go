package scheduler

import (
	"context"
	"io"
	"log/slog"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

// Who waits is told why, in its condition and by an event, by the engine's reason or by what the filters said; and it is counted.
func TestWhy(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	s, _ := c.run()
	c.pod("large", 800)
	c.runs("large")
	c.pod("more", 300)
	c.says("more", "0.30 of a device", "less compute free than the floor of 0.30", "running work ending")
	c.remove("more")
	c.pod("elsewhere", 100, func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
		pod.Spec.NodeSelector = map[string]string{"disk": "fast"}
	})
	c.says("elsewhere", "1 node: it does not have the labels that the pod's nodeSelector names")
	c.pod("mixed", 100, requests(part("gpu", 100, 1), part("monitor", 100, 1, administers)))
	c.says("mixed", "make a claim for each")
	c.eventually("an event says so, too", func() bool {
		events, err := c.client.Tracker().List(corev1.SchemeGroupVersion.WithResource("events"), corev1.SchemeGroupVersion.WithKind("Event"), "default")
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range events.(*corev1.EventList).Items {
			if event.InvolvedObject.Name == "mixed" && event.Reason == "FailedScheduling" && strings.Contains(event.Message, "make a claim for each") {
				return true
			}
		}
		return false
	})
	answer := httptest.NewRecorder()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Metrics())
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"aliquot_scheduler_decisions_total 1\n", "aliquot_scheduler_bound_total 1\n", "aliquot_scheduler_refused_total 0\n",
		"aliquot_scheduler_waiting 2\n", "aliquot_scheduler_classes 3\n", "aliquot_scheduler_decision_seconds_count",
	} {
		if !strings.Contains(string(said), want) {
			t.Errorf("the metrics lack %q:\n%s", want, said)
		}
	}
}

// says waits until a pod's condition has all these words.
func (c *cluster) says(name string, words ...string) {
	c.Helper()
	last := ""
	c.Cleanup(func() {
		if c.Failed() {
			c.Logf("%s was told: %s", name, last)
		}
	})
	c.eventually(name+" is told why it waits", func() bool {
		stored, err := c.client.Tracker().Get(podsResource, "default", name)
		if err != nil {
			c.Fatal(err)
		}
		for _, condition := range stored.(*corev1.Pod).Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable {
				last = condition.Message
			}
		}
		for _, word := range words {
			if !strings.Contains(last, word) {
				return false
			}
		}
		return true
	})
}

// assigned are the events of pods that were given a node, by pod.
func (c *cluster) assigned() map[string]string {
	c.Helper()
	events, err := c.client.Tracker().List(corev1.SchemeGroupVersion.WithResource("events"), corev1.SchemeGroupVersion.WithKind("Event"), "default")
	if err != nil {
		c.Fatal(err)
	}
	told := map[string]string{}
	for _, event := range events.(*corev1.EventList).Items {
		if event.Reason == "Scheduled" {
			told[event.InvolvedObject.Name] = event.Message
		}
	}
	return told
}

// An event says where a pod was placed and what it has.
func TestAssigned(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	c.run()
	c.pod("share", 250)
	c.ordinary("plain", "10m", 0)
	for name, want := range map[string]string{
		"share": "Successfully assigned default/share to a, with 0.25 of gpu-0 and 1Gi of its memory", "plain": "Successfully assigned default/plain to a",
	} {
		c.eventually("an event tells of "+name, func() bool { return c.assigned()[name] != "" })
		if got := c.assigned()[name]; got != want {
			t.Errorf("of %s is told %q, want %q", name, got, want)
		}
	}
}

// Of many that are placed at once events tell of some alone; a device that is had whole is named without parts.
func TestAssignedAtPace(t *testing.T) {
	pods := fake.NewClientset()
	pods.PrependReactor("create", "pods", func(core.Action) (bool, runtime.Object, error) { return true, &corev1.Binding{}, nil })
	told := 0
	w := writer{client: pods, tell: func(types.UID, string) {}, says: func(*corev1.Pod, string, string) { told++ }}
	whole := jobTask{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}}, node: "a", claims: []jobClaim{{object: &resourceapi.ResourceClaim{}, allocation: &resourceapi.AllocationResult{
		Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{Driver: driver.Name, Device: "gpu-0"}, {Driver: "another", Device: "card"}}},
	}}}}
	for _, pace := range []flowcontrol.PassiveRateLimiter{flowcontrol.NewFakeNeverRateLimiter(), flowcontrol.NewFakeAlwaysRateLimiter(), flowcontrol.NewFakeNeverRateLimiter()} {
		w.pace = pace
		if err := w.bind(t.Context(), whole, false); err != nil {
			t.Fatal(err)
		}
	}
	if told != 1 {
		t.Errorf("%d are told of, and there was time for one", told)
	}
	if got, want := whole.assigned(), "Successfully assigned default/one to a, with gpu-0"; got != want {
		t.Errorf("it is told %q, want %q", got, want)
	}
}

// One that does not run yet follows nodes and their devices, and nothing that a scheduler writes.
func TestFollow(t *testing.T) {
	c := newCluster(t)
	c.node("one", 1)
	c.pod("waits", 500)
	factory := Follow(t.Context(), c.client)
	defer factory.Shutdown()
	for kind, synced := range factory.WaitForCacheSync(t.Context().Done()) {
		if !synced || kind != reflect.TypeFor[*corev1.Node]() && kind != reflect.TypeFor[*resourceapi.ResourceSlice]() {
			t.Errorf("%v is followed, and seen: %v", kind, synced)
		}
	}
	nodes, err := factory.Core().V1().Nodes().Lister().List(labels.Everything())
	devices, wrong := factory.Resource().V1().ResourceSlices().Lister().List(labels.Everything())
	if len(nodes) != 1 || len(devices) != 1 {
		t.Errorf("it knows %d nodes (%v) and %d slices (%v) of one each", len(nodes), err, len(devices), wrong)
	}
	watched := c.watches()
	if watched["pods"]+watched["resourceclaims"] != 0 {
		t.Errorf("it watches %v", watched)
	}
}

// Of two schedulers one leads; the other does when that one has ended and writes nothing any more, and one that cannot renew the Lease ends.
func TestLead(t *testing.T) {
	synctest.Test(t, oneLeads) // by the machine's clock one that is not let run for as long as its Lease holds loses it, rightly
}

func oneLeads(t *testing.T) {
	c := newCluster(t)
	var cut atomic.Bool // the server cannot be reached any more
	c.client.PrependReactor("*", "leases", func(core.Action) (bool, runtime.Object, error) { return cut.Load(), nil, errUnreachable })
	lead := func(identity string) (began chan struct{}, release func(), end context.CancelFunc, ended chan error) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		began, hold := make(chan struct{}), make(chan struct{})
		ended = make(chan error, 1)
		one := Leadership{
			Client: c.client, Namespace: "aliquot", Name: Name, Identity: identity, Lasts: 2 * time.Second, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		}
		go func() {
			ended <- one.Lead(ctx, func(ctx context.Context) error {
				close(began)
				<-ctx.Done()
				<-hold // it still writes
				return nil
			})
		}()
		return began, func() { close(hold) }, cancel, ended
	}
	began, release, end, ended := lead("one")
	<-began
	second, releaseSecond, _, endedSecond := lead("two")
	end()
	looked := func() (times int) {
		for _, action := range c.client.Actions() {
			if action.Matches("get", "leases") {
				times++
			}
		}
		return times
	}
	before := looked()
	c.eventually("the second has tried again and again", func() bool { return looked() > before+8 })
	select {
	case <-second:
		t.Fatal("two lead at once")
	case <-ended:
		t.Fatal("it ended while it wrote")
	default:
	}
	release()
	if err := <-ended; err != nil {
		t.Errorf("it was told to end, and says %v", err)
	}
	<-second
	cut.Store(true)
	releaseSecond()
	if err := <-endedSecond; err == nil || !strings.Contains(err.Error(), "the lease was lost") {
		t.Errorf("it could not renew the Lease, and says %v", err)
	}
}

// A scheduler that stands by serves metrics, too: which of several schedules, where any does, they say.
func TestSaysThatItLeads(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	c.counts(New(Config{}), "aliquot_scheduler_leading 0")
	s, end := c.run()
	c.counts(s, "aliquot_scheduler_leading 1")
	end()
	c.counts(s, "aliquot_scheduler_leading 0")
}

// One that was killed goes on with the Lease that it held, and does not wait until that has run out; but until what it was writing then is over.
func TestLeadAfterKill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, leadsAfterKill)
}

func leadsAfterKill(t *testing.T) {
	c := newCluster(t)
	held, lasts := "one", int32(15)
	now := metav1.NowMicro()
	c.add(coordinationv1.SchemeGroupVersion.WithResource("leases"), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "aliquot", Name: Name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &held, LeaseDurationSeconds: &lasts, AcquireTime: &now, RenewTime: &now},
	})
	started := time.Now()
	lead := func(identity string) time.Duration {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		began := time.Duration(0)
		one := Leadership{Client: c.client, Namespace: "aliquot", Name: Name, Identity: identity, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
		if err := one.Lead(ctx, func(context.Context) error {
			began = time.Since(started)
			end()
			return nil
		}); err != nil {
			t.Error(err)
		}
		return began
	}
	if took := lead("one"); took < answerWithin || took >= 15*time.Second {
		t.Errorf("it leads after %v", took)
	}
	started = time.Now()
	if took := lead("one"); took >= answerWithin {
		t.Errorf("it had given the Lease back, and leads after %v", took)
	}
}
