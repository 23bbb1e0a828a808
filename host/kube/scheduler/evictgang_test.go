package scheduler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Where the API server does not evict one of those who would have to go together, it evicts none of them: neither of those that run without devices where a gang is to run,
// nor of a gang.
func TestAllAreEvictedOrNone(t *testing.T) {
	not := func(name string) func(string, metav1.Object) bool {
		return func(write string, of metav1.Object) bool { return write == "evict pods" && of.GetName() == name }
	}
	t.Run("for a gang", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		c.refuses = not("low-b")
		c.node("a", 1, called("a"))
		c.node("b", 1, called("b"))
		s, _ := c.run()
		c.fill(1, "a", "b")
		c.gang("big", 2, 1000, needing("5", 9), func(pod *corev1.Pod, claim *resourceapi.ResourceClaim) {
			named(map[string]string{"big-0": "a", "big-1": "b"}[pod.Name])(pod, claim)
		})
		c.hears("big-0", "NotEvicted", "the API server did not evict pod default/low-b")
		c.eventually("it is not nominated any more", func() bool { return c.nominated("big-0") == "" })
		c.stays(s, "big-0")
	})
	t.Run("of a gang", func(t *testing.T) {
		t.Parallel()
		c := newLentCluster(t)
		c.refuses = not("two-1")
		s, _ := c.run()
		c.gang("two", 2, 450, guest)
		c.runs("two-0", "two-1")
		c.idle(s, func() {})
		c.pod("own", 900, owner)
		c.hears("own", "NotEvicted", "the API server did not evict pod default/two-1")
		c.stays(s, "own")
	})
}
