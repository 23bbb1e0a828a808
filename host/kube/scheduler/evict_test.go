package scheduler

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// newLentCluster has one device, of which the queue owner is guaranteed the whole and the queue guest nothing.
func newLentCluster(t *testing.T) *cluster {
	c := newQueueCluster(t, "org")
	c.set(v1alpha1.Queues, "org", `{}`)
	c.set(v1alpha1.Queues, "owner", `{"parent":"org","quota":{"compute":"1"}}`)
	c.set(v1alpha1.Queues, "guest", `{"parent":"org","quota":{"compute":"0"}}`)
	c.node("a", 1)
	return c
}

func owner(pod *corev1.Pod, claim *resourceapi.ResourceClaim) { naming("owner")(pod, claim) }
func guest(pod *corev1.Pod, claim *resourceapi.ResourceClaim) { naming("guest")(pod, claim) }

// stays checks that a pod is not placed, and that nobody is evicted, once a scheduler has done all it has to.
func (c *cluster) stays(s *Scheduler, waits string) {
	c.Helper()
	c.sound(s)
	select {
	case name := <-c.evicted:
		c.Errorf("%s was evicted", name)
	default:
	}
	if on := c.on(waits); on != "" {
		c.Errorf("%s was placed on %s", waits, on)
	}
}

// What a queue holds over its quota comes back to the owner: by the eviction API, with why and for whom, as little as is needed, and only when the
// evicted pod's claim is free it is given to the one that waited.
func TestGivesBack(t *testing.T) {
	c := newLentCluster(t)
	s, _ := c.run()
	grace := int64(3600)
	c.pod("first", 500, guest)
	c.runs("first")
	c.idle(s, func() {}) // it knows that the one runs before the other does
	c.pod("second", 500, guest, func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) { pod.Spec.TerminationGracePeriodSeconds = &grace })
	c.runs("second")
	c.idle(s, func() {})
	c.pod("own", 400, owner)
	if names := c.ending(1); names[0] != "second" {
		t.Fatalf("%s was evicted, and the other has run for less", names)
	}
	c.says("own", "what its queue owner is guaranteed is being taken back", "still to end: 1")
	c.hears("second", "Evicted", "queue owner wants back what it is guaranteed", "queue guest had borrowed it", "(plan ", "for pod default/own")
	c.hears("own", "Evicting", "pod default/second is evicted for it", "(plan ")
	stored, err := c.client.Tracker().Get(podsResource, "default", "second")
	if err != nil {
		t.Fatal(err)
	}
	if given := stored.(*corev1.Pod).DeletionGracePeriodSeconds; given == nil || *given != int64(Grace.Seconds()) {
		t.Errorf("it has %v seconds to end, and was to have no more than %s", given, Grace)
	}
	c.stays(s, "own") // while it ends
	c.remove("second")
	c.runs("own")
	c.pod("second", 500, guest) // as its owner makes it
	c.stays(s, "second")
	said := metricsOf(s)
	for _, want := range []string{`aliquot_scheduler_evicted_total{reason="reclaim"} 1`, `aliquot_scheduler_evicted_total{reason="preempt"} 0`, `aliquot_scheduler_evictions_refused_total{cause="budget"} 0`} {
		if !strings.Contains(said, want+"\n") {
			t.Errorf("the metrics lack %q:\n%s", want, said)
		}
	}
}

// metricsOf is what a scheduler counts, as text.
func metricsOf(s *Scheduler) string {
	answer, registry := httptest.NewRecorder(), prometheus.NewRegistry()
	registry.MustRegister(s.Metrics())
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	return answer.Body.String()
}

// A disruption budget holds, whoever says so: what is known of it, or the API server. Another is taken instead, and the one that was spared is asked for
// again later.
func TestBudget(t *testing.T) {
	for name, healthy := range map[string]bool{"as is known": true, "by the API server": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newLentCluster(t)
			c.spare = 500 * time.Millisecond
			s, _ := c.run()
			c.budget("web", 0)
			c.pod("first", 500, guest)
			c.runs("first")
			c.idle(s, func() {})
			c.pod("second", 500, guest, labelled("web", healthy))
			c.runs("second")
			c.idle(s, func() {})
			c.pod("own", 400, owner)
			if names := c.ending(1); names[0] != "first" {
				t.Fatalf("%s was evicted, and its budget allows none", names)
			}
			c.hears("own", "NotEvicted", "pod default/second was to be evicted", "disruption budget", "asked for again in")
			c.remove("first")
			c.runs("own")
			c.pod("more", 400, owner)
			c.hears("more", "NotEvicted", "pod default/second")
			c.stays(s, "more")
			c.budget("web", 1)
			if names := c.ending(1); names[0] != "second" {
				t.Fatalf("%s was evicted", names)
			}
			c.remove("second")
			c.runs("more")
			c.sound(s)
		})
	}
}

// labelled has a pod belong to a budget, ready or not.
func labelled(app string, healthy bool) func(*corev1.Pod, *resourceapi.ResourceClaim) {
	return func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
		pod.Labels = map[string]string{"app": app}
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[healthy]})
	}
}

// Nobody is evicted by a plan of which a part cannot be carried out: here two have to go, and their budget allows one.
func TestWholePlanOrNone(t *testing.T) {
	c := newLentCluster(t)
	s, _ := c.run()
	c.budget("web", 1)
	c.pod("first", 500, guest, labelled("web", true))
	c.pod("second", 500, guest, labelled("web", true))
	c.runs("first", "second")
	c.pod("own", 600, owner)
	c.hears("own", "NotEvicted", "disruption budget default/web allows 1 disruptions now, and 2 are needed")
	c.stays(s, "own")
}

// Who is evicted for whom: by priority in one queue, but nobody who is not preemptible, and nobody for who asked for that.
func TestPreempts(t *testing.T) {
	never := corev1.PreemptNever
	for name, test := range map[string]struct {
		low, high func(*corev1.Pod, *resourceapi.ResourceClaim)
		evicted   bool
		says      string
	}{
		"lower priority":  {ranking(1), ranking(2), true, "work of a lower priority in its queue default is being ended"},
		"same priority":   {ranking(2), ranking(2), false, "not enough is free"},
		"not preemptible": {firm, ranking(2), false, "not enough is free"},
		"of the cluster":  {ranking(systemCritical), ranking(systemCritical + 1), false, "not enough is free"},
		"never preempts": {ranking(1), func(pod *corev1.Pod, claim *resourceapi.ResourceClaim) {
			ranking(2)(pod, claim)
			pod.Spec.PreemptionPolicy = &never
		}, false, "it asked that nobody is evicted for it"},
		"misspelt": {ranking(1), func(pod *corev1.Pod, claim *resourceapi.ResourceClaim) {
			ranking(2)(pod, claim)
			annotated("aliquot.dev/preemptible", "nein")(pod, claim)
		}, false, `aliquot.dev/preemptible: "nein"; write false`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.node("a", 1)
			_, end := c.run()
			c.pod("low", 600, test.low)
			c.runs("low")
			end()
			s, _ := c.run() // which knows the same of it
			c.pod("high", 500, test.high)
			c.says("high", test.says)
			if !test.evicted {
				c.stays(s, "high")
				return
			}
			c.ending(1)
			c.hears("low", "Evicted", "pod default/high of priority 2 in its queue default goes before it, of priority 1")
			c.remove("low")
			c.runs("high")
			c.sound(s)
		})
	}
}

// What only requests CPU of a node gives way, too, also when it was adopted.
func TestGivesWayOnItsNode(t *testing.T) {
	asks := func(cpu string) func(*corev1.Pod, *resourceapi.ResourceClaim) {
		return func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		}
	}
	c := newLentCluster(t)
	_, end := c.run()
	c.pod("first", 100, guest, asks("6"))
	c.runs("first")
	end()
	s, _ := c.run()
	c.pod("own", 100, owner, asks("4"))
	c.ending(1)
	c.remove("first")
	c.runs("own")
	c.sound(s)
}

// A gang is evicted whole, and those that come in its place start together again.
func TestGangIsEvictedWhole(t *testing.T) {
	c := newLentCluster(t)
	s, _ := c.run()
	c.gang("three", 3, 300, guest)
	c.runs("three-0", "three-1", "three-2")
	c.member("three", 3, 3, 100, guest) // beyond those that it needs: alone
	c.runs("three-3")
	c.idle(s, func() {})
	c.pod("own", 900, owner)
	if names := c.ending(4); !slices.Equal(names, []string{"three-0", "three-1", "three-2", "three-3"}) {
		t.Fatalf("%v were evicted", names)
	}
	c.stays(s, "own")
	for i := range 3 {
		c.remove(fmt.Sprint("three-", i))
		c.member("three", i, 3, 200, guest)
	}
	c.runs("own")
	c.stays(s, "three-0")
	c.remove("three-3")
	c.says("three-1", "3 tasks at once")
	c.remove("own")
	c.runs("three-0", "three-1", "three-2")
	c.sound(s)
}

// Who is beyond what a gang needs goes alone.
func TestFollowerGoesAlone(t *testing.T) {
	c := newLentCluster(t)
	s, _ := c.run()
	c.gang("two", 2, 300, guest)
	c.runs("two-0", "two-1")
	c.member("two", 2, 2, 400, guest)
	c.runs("two-2")
	c.idle(s, func() {})
	c.pod("own", 400, owner)
	if names := c.ending(1); names[0] != "two-2" {
		t.Fatalf("%v was evicted", names)
	}
	c.remove("two-2")
	c.runs("own")
	c.stays(s, "none")
}
