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
func refuses(pod *corev1.Pod, claim *resourceapi.ResourceClaim) {
	annotated(annotation.Preemptible, "false")(pod, claim)
}

// What was borrowed comes back, whatever its holder writes into its pod later, and whoever is put beside it, also once another scheduler has begun.
func TestNobodyKeepsWhatIsBorrowed(t *testing.T) {
	yes := true
	labels := func(least string) func(c *cluster) {
		return func(c *cluster) {
			for _, name := range []string{"borrows", "small"} {
				c.rewrite(name, func(pod *corev1.Pod) {
					pod.Labels = map[string]string{annotation.Gang: "kept", annotation.GangMin: least}
				})
			}
		}
	}
	owned := func(version string) func(c *cluster) {
		return func(c *cluster) {
			c.rewrite("borrows", func(pod *corev1.Pod) {
				pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: "DaemonSet", Name: "keeps", UID: "keeps", Controller: &yes}}
			})
		}
	}
	for name, later := range map[string]func(c *cluster){
		"nothing":                      func(*cluster) {},
		"a gang with one who does":     labels("2"),
		"a gang of many":               labels("99"),
		"a gang of nonsense":           labels("many"),
		"an owner of another's making": owned("example.com/v1"),
		"a DaemonSet that adopts it":   owned("apps/v1"),
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
	both := using(shared.Name)
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

// A pod that is for one node by its name, as a DaemonSet's are, is not evicted, and so borrows nothing: it has what its queue is guaranteed.
func TestPinnedBorrowsNothing(t *testing.T) {
	c := newLentCluster(t)
	pinned := func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}},
		}}}
	}
	s, _ := c.run()
	c.pod("lends", 100, guest, pinned)
	c.says("lends", "quota")
	c.pod("serves", 100, owner, pinned)
	c.runs("serves")
	c.sound(s)
	if on := c.on("lends"); on != "" {
		t.Errorf("it runs on %s, with what its queue is not guaranteed", on)
	}
}
