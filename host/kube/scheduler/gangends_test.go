package scheduler

import (
	"fmt"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// job adds an indexed Job that runs all its pods at once, and returns what makes a pod one of it.
func (c *cluster) job(name string, pods int32, changes ...func(*batchv1.Job)) func(*corev1.Pod, *resourceapi.ResourceClaim) {
	c.Helper()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("job-" + name)},
		Spec:       batchv1.JobSpec{Completions: &pods, Parallelism: &pods, CompletionMode: ptr.To(batchv1.IndexedCompletion)},
	}
	for _, change := range changes {
		change(job)
	}
	c.add(batchv1.SchemeGroupVersion.WithResource("jobs"), job)
	return func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
		controller := true
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: name, UID: job.UID, Controller: &controller}}
	}
}

// settle has a Job say so of its pods.
func (c *cluster) settle(name string, status batchv1.JobStatus) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	jobs := batchv1.SchemeGroupVersion.WithResource("jobs")
	stored, err := c.client.Tracker().Get(jobs, "default", name)
	if err != nil {
		c.Fatal(err)
	}
	job := stored.(*batchv1.Job).DeepCopy()
	job.Status = status
	if err := c.store(jobs, job); err != nil {
		c.Fatal(err)
	}
}

// fail has pods fail.
func (c *cluster) fail(names ...string) {
	c.Helper()
	c.end(map[corev1.PodPhase][]string{corev1.PodFailed: names})
}

// succeed has pods succeed.
func (c *cluster) succeed(names ...string) {
	c.Helper()
	c.end(map[corev1.PodPhase][]string{corev1.PodSucceeded: names})
}

// end has pods end: first they say so, and then their claims are what the cluster's controller makes of them. They are not made again when they are evicted.
func (c *cluster) end(how map[corev1.PodPhase][]string) {
	c.Helper()
	var ended []*corev1.Pod
	for phase, names := range how {
		for _, name := range names {
			c.recipes[name] = func() {}
			c.rewrite(name, func(pod *corev1.Pod) {
				pod.Status.Phase = phase
				ended = append(ended, pod)
			})
		}
	}
	c.told(fmt.Sprint("that pods have ended: ", how), func(s *Scheduler) bool {
		return !slices.ContainsFunc(ended, func(pod *corev1.Pod) bool {
			known := s.pods[pod.UID]
			return known != nil && !over(known.object)
		})
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pod := range ended {
		c.release(pod)
	}
}

// release does with the claims of a pod that is gone, or has ended, what the cluster's controller does.
func (c *cluster) release(pod *corev1.Pod) {
	c.Helper()
	for _, key := range claimKeys(pod) {
		claim := c.find(key)
		if claim == nil {
			continue
		}
		var err error
		if metav1.IsControlledBy(claim, pod) {
			err = c.client.Tracker().Delete(claimsResource, claim.Namespace, claim.Name)
		} else if reserved(claim, reference(pod)) {
			claim = claim.DeepCopy()
			claim.Status.ReservedFor = slices.DeleteFunc(claim.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID == pod.UID })
			if len(claim.Status.ReservedFor) == 0 {
				claim.Status.Allocation, claim.Finalizers = nil, nil
			}
			err = c.store(claimsResource, claim)
		}
		if err != nil {
			c.Fatal(err)
		}
	}
}

// A Job keeps the pods of it that failed: those that are made when all have failed start together again, also if another scheduler has begun meanwhile.
func TestCrashedGangStartsWhole(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		t.Run(map[bool]string{false: "one scheduler", true: "another scheduler"}[restarts], func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.node("a", 2)
			s, end := c.run()
			of := c.job("four", 4)
			for i := range 4 {
				c.pod(fmt.Sprint("four-", i), 500, of)
			}
			c.runs("four-0", "four-1", "four-2", "four-3")
			c.sound(s)
			if restarts {
				end()
			}
			c.fail("four-0", "four-1", "four-2", "four-3")
			c.pod("other", 500, ranking(1))
			if !restarts {
				c.runs("other")
			}
			for i := range 3 {
				c.pod(fmt.Sprint("four-again-", i), 500, of)
			}
			if restarts {
				s, _ = c.run()
				c.runs("other")
			}
			c.says("four-again-0", "of its gang 3 pods are there, and 4 start together")
			c.sound(s)
			c.pod("four-again-3", 500, of)
			c.says("four-again-0", "4 tasks at once") // three would fit
			c.sound(s)
			c.remove("other")
			c.runs("four-again-0", "four-again-1", "four-again-2", "four-again-3")
			c.sound(s)
			if tasks := c.together(s); len(tasks) != 1 || tasks[0] != 4 {
				t.Errorf("the engine knows of workloads with %v tasks, want one with 4", tasks)
			}
		})
	}
}

// A pod that comes in place of one that failed starts beside those that run on, though one has succeeded; once all have ended those that are made again start
// together, without those that are not: the indexes that succeeded or failed too often.
func TestGangWithoutThoseThatAreDone(t *testing.T) {
	for name, one := range map[string]struct {
		ended  map[corev1.PodPhase][]string
		status batchv1.JobStatus
	}{
		"succeeded": {map[corev1.PodPhase][]string{corev1.PodSucceeded: {"four-0", "four-1"}}, batchv1.JobStatus{Succeeded: 2}},
		"failed too often": {
			map[corev1.PodPhase][]string{corev1.PodFailed: {"four-0", "four-1"}}, batchv1.JobStatus{FailedIndexes: ptr.To("0-1")},
		},
		"both": {
			map[corev1.PodPhase][]string{corev1.PodSucceeded: {"four-0"}, corev1.PodFailed: {"four-1"}},
			batchv1.JobStatus{Succeeded: 1, FailedIndexes: ptr.To("1")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.node("a", 2)
			s, _ := c.run()
			of := c.job("four", 4)
			for i := range 4 {
				c.pod(fmt.Sprint("four-", i), 500, of)
			}
			c.runs("four-0", "four-1", "four-2", "four-3")
			c.end(one.ended)
			c.fail("four-2")
			c.pod("four-2-again", 500, of)
			c.runs("four-2-again")
			c.sound(s)
			c.fail("four-2-again", "four-3")
			c.pod("four-2-last", 500, of)
			c.says("four-2-last", "of its gang 1 pods are there, and 4 start together")
			c.settle("four", one.status)
			c.says("four-2-last", "of its gang 1 pods are there, and 2 start together")
			c.sound(s)
			c.pod("four-3-last", 500, of)
			c.runs("four-2-last", "four-3-last")
			c.sound(s)
		})
	}
}

// The status of its Job may be the last that is heard of those that are done.
func TestGangHearsThatFewerCome(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	s, _ := c.run()
	of := c.job("three", 3)
	for i := range 3 {
		c.pod(fmt.Sprint("three-", i), 300, of)
	}
	c.runs("three-0", "three-1", "three-2")
	c.succeed("three-0")
	c.fail("three-1", "three-2")
	c.remove("three-0") // whose node has gone
	c.pod("three-3", 300, of)
	c.pod("three-4", 300, of)
	c.says("three-3", "of its gang 2 pods are there, and 3 start together")
	c.settle("three", batchv1.JobStatus{Succeeded: 1})
	c.runs("three-3", "three-4")
	c.sound(s)
}

// Of a gang that its pods' labels make, those that succeeded count as there, until they were a whole gang: the next one of the name starts whole, too.
func TestLabelledGangEnds(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	s, _ := c.run()
	c.gang("two", 2, 400)
	c.runs("two-0", "two-1")
	c.succeed("two-0")
	c.fail("two-1")
	c.member("two", 2, 2, 400)
	c.runs("two-2")
	c.sound(s)
	c.succeed("two-2")
	c.member("two", 3, 2, 400)
	c.says("two-3", "of its gang 1 pods are there, and 2 start together")
	c.sound(s)
	c.member("two", 4, 2, 400)
	c.runs("two-3", "two-4")
	c.sound(s)
}

// A gang that is to be in one rack is not kept to that of pods that have ended.
func TestGangLeavesTheRackWhereItEnded(t *testing.T) {
	c := newCluster(t)
	racks := map[string]string{"a": "r1", "b": "r1", "c": "r2", "d": "r2"}
	for name, rack := range racks {
		c.node(name, 1, func(n *corev1.Node) { n.Labels = map[string]string{"part": name, "example.com/rack": rack} })
	}
	together := annotated("aliquot.dev/same-topology", "example.com/rack")
	s, _ := c.run()
	of := c.job("two", 2)
	c.pod("two-0", 1000, of, together)
	c.pod("two-1", 1000, of, together)
	c.runs("two-0", "two-1")
	ended := c.on("two-0")
	c.fail("two-0", "two-1")
	c.pod("drains", 1000, onPart(ended))
	c.runs("drains")
	c.pod("two-2", 1000, of, together)
	c.pod("two-3", 1000, of, together)
	c.runs("two-2", "two-3")
	if one, other := racks[c.on("two-2")], racks[c.on("two-3")]; one != other || one == racks[ended] {
		t.Errorf("they run in %s and %s, and ended in %s, which has room for one", one, other, racks[ended])
	}
	c.sound(s)
}

// A pod in line to come to its gang waits for the others again when the last of them that ran has failed.
func TestReplacementOfACrashedGang(t *testing.T) {
	c := newCluster(t)
	c.node("a", 2)
	s, _ := c.run()
	of := c.job("two", 2)
	c.pod("two-0", 1000, of)
	c.pod("two-1", 1000, of)
	c.runs("two-0", "two-1")
	c.fail("two-0")
	c.pod("other", 1000)
	c.runs("other")
	c.pod("two-2", 1000, of)
	c.says("two-2", "not enough is free")
	c.fail("two-1")
	c.says("two-2", "of its gang 1 pods are there, and 2 start together")
	c.sound(s)
	if on := c.on("two-2"); on != "" {
		t.Errorf("it runs on %s, and the other of its gang does not", on)
	}
	c.pod("two-3", 1000, of)
	c.says("two-3", "2 tasks at once")
	c.remove("other")
	c.runs("two-2", "two-3")
	c.sound(s)
}
