package scheduler

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Whose devices a pod asks for is not known before its device class: it is of the gang of its JobSet, or of its group, once that is there.
func TestGangBeforeADeviceClass(t *testing.T) {
	late := func(_ *corev1.Pod, claim *resourceapi.ResourceClaim) {
		claim.Spec.Devices.Requests[0].Exactly.DeviceClassName = "late"
	}
	class := &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: "late"},
		Spec:       resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: onlyOurs}}}},
	}
	t.Run("JobSet", func(t *testing.T) {
		c := jobSetCluster(t, func(map[string]any) {})
		s, _ := c.run()
		c.ofSet("driver", 1, 0, 1, 100, late)
		c.says("set-driver-0-0", "there is no device class late")
		c.ofSet("launcher", 1, 0, 1, 200)
		c.ofSet("workers", 2, 0, 2, 400)
		c.ofSet("workers", 2, 1, 2, 400)
		c.says("set-launcher-0-0", "of its gang 5 pods are there, and 6 start together")
		c.add(classResource, class.DeepCopy())
		c.runs("set-driver-0-0", "set-launcher-0-0", "set-workers-0-0", "set-workers-0-1", "set-workers-1-0", "set-workers-1-1")
		c.sound(s)
		if tasks := c.together(s); len(tasks) != 1 || tasks[0] != 6 {
			t.Errorf("the engine knows of workloads with %v tasks, want one with 6", tasks)
		}
	})
	t.Run("LeaderWorkerSet", func(t *testing.T) {
		c := leaderCluster(t, "LeaderCreated")
		s, _ := c.run()
		c.pod("serve-0", 200, func(pod *corev1.Pod, claim *resourceapi.ResourceClaim) {
			c.grouped(pod, 0)
			late(pod, claim)
		})
		c.says("serve-0", "there is no device class late")
		c.ofGroup(1, 500, "workers")
		c.ofGroup(2, 500, "workers")
		c.says("serve-1", "of its gang 2 pods are there, and 3 start together")
		c.add(classResource, class.DeepCopy())
		c.runs("serve-0", "serve-1", "serve-2")
		c.sound(s)
	})
}

// A replicated Job without indexes is of no gang: its pod starts at once, and the others of the JobSet do not wait for it.
func TestJobSetWithoutIndexes(t *testing.T) {
	c := jobSetCluster(t, func(spec map[string]any) {
		template := spec["replicatedJobs"].([]any)[0].(map[string]any)["template"].(map[string]any)
		delete(template["spec"].(map[string]any), "completionMode")
	})
	s, _ := c.run()
	job, of := jobOfSet("driver", 1, 0, 1)
	job.Spec.CompletionMode = nil
	c.add(batchv1.SchemeGroupVersion.WithResource("jobs"), job)
	c.pod("set-driver-0-0", 100, of)
	c.runs("set-driver-0-0")
	c.ofSet("workers", 2, 0, 2, 400)
	c.says("set-workers-0-0", "of its gang 2 pods are there, and 5 start together")
	c.sound(s)
}
