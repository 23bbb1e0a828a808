package scheduler

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ordinary adds a pod without devices that requests CPU.
func (c *cluster) ordinary(name, cpu string, priority int32, changes ...func(*corev1.Pod)) {
	c.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("pod-" + name), CreationTimestamp: metav1.Now()},
		Spec: corev1.PodSpec{SchedulerName: Name, Priority: &priority, Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
		}}},
	}
	for _, change := range changes {
		change(pod)
	}
	c.add(podsResource, pod)
}

// nominated is the node that a pod is to run on when others have gone from there.
func (c *cluster) nominated(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	stored, err := c.client.Tracker().Get(podsResource, "default", name)
	if err != nil {
		c.Fatal(err)
	}
	return stored.(*corev1.Pod).Status.NominatedNodeName
}

// A pod without devices that no node takes is nominated for one, those of lower priority there are evicted, and it runs there once they are gone;
// what they leave is nobody's before. Pods with devices stay.
func TestMakesRoom(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	c.node("b", 0)
	s, _ := c.run()
	c.pod("shared", 500)
	c.runs("shared")
	c.ordinary("low", "6", 1)
	c.runs("low")
	if on := c.on("low"); on != "b" {
		t.Fatalf("it runs on %s, and b has no devices", on)
	}
	c.ordinary("lower", "6", 0)
	c.runs("lower")
	c.ordinary("high", "5", 9)
	if names := c.ending(1); names[0] != "lower" {
		t.Fatalf("%s was evicted", names)
	}
	c.hears("lower", "Evicted", "pod default/high of higher priority is to run on node a")
	c.hears("high", "Evicting", "1 pods of lower priority are evicted from node a")
	if on := c.nominated("high"); on != "a" {
		t.Errorf("it is nominated for node %q", on)
	}
	c.stays(s, "high") // while it ends
	c.remove("lower")
	c.runs("high")
	if on := c.on("high"); on != "a" {
		t.Errorf("it runs on %s, and others went for it from a", on)
	}
	c.sound(s)
}

// Nobody is evicted whose disruption budget does not allow it, or for who is not to evict others or is of no higher priority.
func TestMakesNoRoom(t *testing.T) {
	never := corev1.PreemptNever
	for name, test := range map[string]struct {
		low, high int32
		change    func(*corev1.Pod)
		budget    bool
	}{
		"same priority": {5, 5, func(*corev1.Pod) {}, false},
		"never":         {1, 5, func(pod *corev1.Pod) { pod.Spec.PreemptionPolicy = &never }, false},
		"budget":        {1, 5, func(*corev1.Pod) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.node("a", 0)
			s, _ := c.run()
			if test.budget {
				c.budget("web", 0)
			}
			c.ordinary("low", "6", test.low, func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": "web"} })
			c.runs("low")
			c.ordinary("high", "5", test.high, test.change)
			c.says("high", "no node takes it", "cpu")
			if test.budget {
				c.hears("high", "NotEvicted", "from node a and are not", "disruption budget")
				c.eventually("it is not nominated any more", func() bool { return c.nominated("high") == "" })
			}
			c.stays(s, "high")
			c.remove("low")
			c.runs("high")
			c.sound(s)
		})
	}
}

// Pods that name another scheduler are placed where it is named, too, and left alone where it is not.
func TestAlso(t *testing.T) {
	c := newCluster(t)
	c.also = []string{corev1.DefaultSchedulerName}
	c.node("a", 1)
	of := func(name string) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Spec.SchedulerName = name } }
	s, _ := c.run()
	c.ordinary("stock", "1", 0, of(corev1.DefaultSchedulerName))
	c.ordinary("foreign", "1", 0, of("another"))
	c.ordinary("ours", "1", 0)
	c.runs("stock", "ours")
	c.stays(s, "foreign")
}

// What is written of a nomination is tried again, and what came of it is known.
func TestNominationFails(t *testing.T) {
	c := newCluster(t)
	c.node("a", 0)
	s, _ := c.run()
	c.ordinary("low", "6", 1)
	c.runs("low")
	failed := 0
	c.mu.Lock()
	c.fails = func(write string) fault {
		if !slices.Contains([]string{"patch pods", "evict pods"}, write) {
			return none
		}
		if failed++; failed > 6 {
			return none
		}
		return []fault{before, after, lostly}[failed%3]
	}
	c.mu.Unlock()
	c.ordinary("high", "5", 9)
	c.ending(1)
	c.remove("low")
	c.runs("high")
	c.sound(s)
}

// A budget that covers several of those who would have to go is counted for all of them before the first goes.
func TestBudgetOfSeveralVictims(t *testing.T) {
	c := newCluster(t)
	c.node("a", 0)
	s, _ := c.run()
	c.budget("web", 1)
	for _, name := range []string{"low", "lower"} {
		c.ordinary(name, "3", 1, func(pod *corev1.Pod) { labelled("web", true)(pod, nil) })
	}
	c.runs("low", "lower")
	c.idle(s, func() {})
	c.ordinary("high", "7", 9)
	c.hears("high", "NotEvicted", "disruption budget default/web allows 1 disruptions now, and 2 are needed")
	c.stays(s, "high")
	c.budget("web", 2)
	c.ending(2)
	c.remove("low")
	c.remove("lower")
	c.runs("high")
	c.sound(s)
}

// Where others use a budget up just before a pod would be evicted, nobody without a budget has gone for nothing.
func TestBudgetUsedUpMeanwhile(t *testing.T) {
	c := newCluster(t)
	c.node("a", 0)
	s, _ := c.run()
	c.budget("web", 1)
	c.ordinary("covered", "3", 1, func(pod *corev1.Pod) { labelled("web", true)(pod, nil) })
	for _, name := range []string{"bare", "free"} { // they come before and after it by name
		c.ordinary(name, "2", 1)
	}
	c.runs("bare", "covered", "free")
	c.idle(s, func() {})
	used := false
	c.mu.Lock()
	c.fails = func(write string) fault {
		if write == "evict pods" && !used {
			used = true
			stored, err := c.client.Tracker().Get(budgetsResource, "default", "web")
			if err != nil {
				c.broken = append(c.broken, err.Error())
				return none
			}
			budget := stored.(*policyv1.PodDisruptionBudget).DeepCopy()
			budget.Status.DisruptionsAllowed = 0
			if err := c.store(budgetsResource, budget); err != nil {
				c.broken = append(c.broken, err.Error())
			}
		}
		return none
	}
	c.mu.Unlock()
	c.ordinary("high", "7", 9)
	c.hears("high", "NotEvicted", "The disruption budget web needs them all")
	c.stays(s, "high")
	c.eventually("it is not nominated any more", func() bool { return c.nominated("high") == "" })
	c.budget("web", 1)
	c.ending(3)
	c.sound(s)
}
