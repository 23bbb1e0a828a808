package scheduler

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// refuses has a pod say that it is not to be evicted.
func refuses(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[annotation.Preemptible] = "false"
}

// rewrite changes a pod as its user may.
func (c *cluster) rewrite(name string, change func(*corev1.Pod)) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	stored, err := c.client.Tracker().Get(podsResource, "default", name)
	if err != nil {
		c.Fatal(err)
	}
	pod := stored.(*corev1.Pod).DeepCopy()
	change(pod)
	if err := c.store(podsResource, pod); err != nil {
		c.Fatal(err)
	}
}

// What was borrowed comes back, whatever its holder writes into its pod later, and whoever is put beside it, also once another scheduler has begun.
func TestNobodyKeepsWhatIsBorrowed(t *testing.T) {
	yes := true
	labels := func(least string) func(c *cluster) {
		return func(c *cluster) {
			for _, name := range []string{"borrows", "small"} {
				c.rewrite(name, func(pod *corev1.Pod) {
					pod.Labels = map[string]string{GangLabel: "kept", GangMinLabel: least}
				})
			}
		}
	}
	for name, later := range map[string]func(c *cluster){
		"nothing":                  func(*cluster) {},
		"a gang with one who does": labels("2"),
		"a gang of many":           labels("99"),
		"a gang of nonsense":       labels("many"),
		"an owner of another's making": func(c *cluster) {
			c.rewrite("borrows", func(pod *corev1.Pod) {
				pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "DaemonSet", Name: "keeps", UID: "keeps", Controller: &yes}}
			})
		},
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", and another scheduler"}[restarts], func(t *testing.T) {
				t.Parallel()
				c := newLentCluster(t)
				s, end := c.run()
				c.pod("small", 50, owner, refuses)
				c.runs("small")
				c.pod("borrows", 900, guest)
				c.runs("borrows")
				later(c)
				c.idle(s, func() {})
				if restarts {
					end()
					s, _ = c.run()
				}
				c.pod("own", 400, owner)
				if names := c.ending(1); !slices.Equal(names, []string{"borrows"}) {
					t.Fatalf("%v were evicted", names)
				}
				c.remove("borrows")
				c.runs("own")
				if c.on("small") == "" {
					t.Error("one who is not to be evicted has gone")
				}
				c.sound(s)
			})
		}
	}
}

// Who says that it is not to be evicted does not start with a claim of work that is; and if it runs with one all the same, it keeps it from nobody.
func TestSharerKeepsNothing(t *testing.T) {
	c := newLentCluster(t)
	s, end := c.run()
	shared := claimFor("shared", 800)
	c.add(claimsResource, shared)
	both := func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "shared", ResourceClaimName: &shared.Name}}
		pod.Status.ResourceClaimStatuses = nil
	}
	c.pod("one", 100, guest, both)
	c.runs("one")
	c.pod("two", 100, owner, both, refuses)
	c.says("two", "claim shared was allocated for work that is evicted", "give it a claim of its own")
	c.idle(s, func() {})
	end()

	c.rewrite("two", func(pod *corev1.Pod) { pod.Spec.NodeName = "a" }) // as an older scheduler would have it
	c.reserve("shared", "two")
	s, _ = c.run()
	c.pod("own", 400, owner)
	if names := c.ending(2); !slices.Equal(names, []string{"one", "two"}) {
		t.Fatalf("%v were evicted", names)
	}
	c.remove("one")
	c.remove("two")
	c.runs("own")
	c.sound(s)
}
