package scheduler

import (
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// refusing has the server refuse some writes until it is told again.
func (c *cluster) refusing(is func(write string, of metav1.Object) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuses = is
}

// counts waits until a metric of the scheduler's is as it should be.
func (c *cluster) counts(s *Scheduler, line string) {
	c.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Metrics())
	c.eventually("the metrics say "+line, func() bool {
		answer := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		return strings.Contains(answer.Body.String(), line+"\n")
	})
}

// Pods whose volumes take long keep nobody else from being written, with and without devices, however many they are.
func TestSlowVolumes(t *testing.T) {
	c := newCluster(t)
	c.mounted = make(chan struct{})
	c.node("a", 2)
	s, _ := c.run()
	for i := range 2 * s.config.Writers {
		c.pod(fmt.Sprint("slow-", i), 100, func(p *corev1.Pod, _ *resourceapi.ResourceClaim) { mounts(p) })
		c.ordinary(fmt.Sprint("slower-", i), "100m", 0, mounts)
	}
	c.eventually("they wait for their volumes", func() bool {
		waiting := make(chan int, 1)
		s.inbox.put(func() {
			n := 0
			for _, p := range s.pods {
				if p.binding || p.task != nil && p.task.work.state == placing {
					n++
				}
			}
			waiting <- n
		})
		return <-waiting == 4*s.config.Writers
	})
	c.pod("quick", 100)
	c.ordinary("plain", "100m", 0)
	c.runs("quick", "plain")
	close(c.mounted)
	for i := range 2 * s.config.Writers {
		c.runs(fmt.Sprint("slow-", i), fmt.Sprint("slower-", i))
	}
	c.sound(s)
}

// Allocations that cannot be taken back keep nobody else from being written; who has them is told, and the metrics are.
func TestStuckGivingBack(t *testing.T) {
	c := newCluster(t)
	c.node("a", 2)
	bad := func(name string) bool { return strings.HasPrefix(name, "bad") }
	c.refusing(func(write string, of metav1.Object) bool {
		claim, is := of.(*resourceapi.ResourceClaim)
		return bad(of.GetName()) && (write == "bind pods" || is && write == "status resourceclaims" && claim.Status.Allocation == nil)
	})
	s, _ := c.run()
	for i := range s.config.Writers {
		c.pod(fmt.Sprint("bad-", i), 100)
	}
	c.counts(s, fmt.Sprint("aliquot_scheduler_stuck ", s.config.Writers))
	c.pod("good", 100)
	c.runs("good")
	c.says("bad-0", "claim default/bad-0-share cannot be taken back", "the test wants it", "tried on")
	c.refusing(nil)
	for i := range s.config.Writers {
		c.runs(fmt.Sprint("bad-", i))
	}
	c.counts(s, "aliquot_scheduler_stuck 0")
	c.sound(s)
}

// A gang of which one pod is bound and another cannot be keeps nobody else from being written; who waits for it is told, and the metrics are.
func TestHalfBound(t *testing.T) {
	c := newCluster(t)
	c.node("a", 2)
	c.refusing(func(write string, of metav1.Object) bool {
		return write == "bind pods" && strings.HasSuffix(of.GetName(), "-1")
	})
	s, _ := c.run()
	for i := range s.config.Writers {
		c.gang(fmt.Sprint("half", i), 2, 100)
		c.runs(fmt.Sprintf("half%d-0", i))
	}
	c.counts(s, fmt.Sprint("aliquot_scheduler_stuck ", s.config.Writers))
	c.pod("good", 100)
	c.runs("good")
	c.says("half0-1", "it cannot be bound to node a", "the test wants it", "others of its gang run already", "tried on")
	c.hears("half0-1", "FailedScheduling", "it cannot be bound to node a")
	c.refusing(nil)
	for i := range s.config.Writers {
		c.runs(fmt.Sprintf("half%d-1", i))
	}
	c.counts(s, "aliquot_scheduler_stuck 0")
	c.sound(s)
}

// Who comes to a gang that is about to run, and waits for its volumes yet, does not run before it: if those fail it waits with the others.
func TestFollowerWaitsForItsGang(t *testing.T) {
	c := newCluster(t)
	c.mounted = make(chan struct{})
	c.node("a", 1)
	s, _ := c.run()
	mounting := func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) { mounts(pod) }
	for i := range 2 {
		c.member("two", i, 2, 200, mounting)
	}
	c.eventually("the gang waits for its volumes", func() bool {
		starting := make(chan bool, 1)
		s.inbox.put(func() {
			starting <- slices.ContainsFunc(slices.Collect(maps.Values(s.gangs)), func(g *gang) bool { return g.begun() })
		})
		return <-starting
	})
	c.member("two", 2, 2, 200)
	c.says("two-2", "its gang is being started, and it follows when that runs")
	close(c.mounted)
	c.runs("two-0", "two-1", "two-2")
	c.sound(s)
}
