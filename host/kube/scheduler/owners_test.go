package scheduler

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// Two Jobs of two pods each, that a JobSet makes of one replicated Job, start together; those of its next attempt are another gang.
func TestJobSetGang(t *testing.T) {
	c := newCluster(t)
	c.node("a", 2)
	s, _ := c.run()
	c.pod("before", 500)
	c.runs("before")
	controller, two := true, int32(2)
	job := func(attempt, index int) {
		name := fmt.Sprintf("workers-%d%d", attempt, index)
		object := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: name, UID: types.UID("job-" + name),
				Labels:          map[string]string{replicatedJobLabel: "workers", replicasLabel: "2", attemptLabel: strconv.Itoa(attempt)},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet", Name: "set", UID: "set", Controller: &controller}},
			},
			Spec: batchv1.JobSpec{Completions: &two, Parallelism: &two, CompletionMode: ptr.To(batchv1.IndexedCompletion)},
		}
		c.add(batchv1.SchemeGroupVersion.WithResource("jobs"), object)
		for i := range two {
			c.pod(fmt.Sprint(name, "-", i), 500, func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
				pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: name, UID: object.UID, Controller: &controller}}
			})
		}
	}
	job(0, 0)
	c.says("workers-00-0", "of its gang 2 pods are there, and 4 start together")
	job(0, 1)
	c.says("workers-00-0", "4 tasks at once")
	c.sound(s)
	c.remove("before")
	c.runs("workers-00-0", "workers-00-1", "workers-01-0", "workers-01-1")
	c.sound(s)
	job(1, 0)
	c.says("workers-10-0", "of its gang 2 pods are there, and 4 start together")
}

// jobSetCluster has a JobSet of a launcher, of workers in two Jobs of two pods each, and of a driver.
func jobSetCluster(t *testing.T, change func(spec map[string]any)) *cluster {
	t.Helper()
	c := newCluster(t)
	replicated := func(name string, replicas, pods int64) any {
		spec := map[string]any{"completions": pods, "parallelism": pods, "completionMode": "Indexed"}
		return map[string]any{"name": name, "replicas": replicas, "template": map[string]any{"spec": spec}}
	}
	spec := map[string]any{"replicatedJobs": []any{replicated("driver", 1, 1), replicated("launcher", 1, 1), replicated("workers", 2, 2)}}
	change(spec)
	c.owners(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": jobSets.GroupVersion().String(), "kind": "JobSet", "metadata": map[string]any{"namespace": "default", "name": "set"}, "spec": spec,
	}})
	c.node("a", 2)
	return c
}

// ofSet adds a Job of the JobSet, and its pods, each asking for so much of a device.
func (c *cluster) ofSet(replicated string, jobs, index int, pods int32, compute int64, changes ...func(*corev1.Pod, *resourceapi.ResourceClaim)) {
	c.Helper()
	job, of := jobOfSet(replicated, jobs, index, pods)
	c.add(batchv1.SchemeGroupVersion.WithResource("jobs"), job)
	for i := range pods {
		c.pod(fmt.Sprint(job.Name, "-", i), compute, append(changes, of)...)
	}
}

// jobOfSet is a Job of the JobSet, and what makes a pod one of it.
func jobOfSet(replicated string, jobs, index int, pods int32) (job *batchv1.Job, of func(*corev1.Pod, *resourceapi.ResourceClaim)) {
	controller, name := true, fmt.Sprint("set-", replicated, "-", index)
	job = &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("job-" + name),
			Labels:          map[string]string{replicatedJobLabel: replicated, replicasLabel: strconv.Itoa(jobs), attemptLabel: "0"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: jobSets.GroupVersion().String(), Kind: "JobSet", Name: "set", UID: "set", Controller: &controller}},
		},
		Spec: batchv1.JobSpec{Completions: &pods, Parallelism: &pods, CompletionMode: ptr.To(batchv1.IndexedCompletion)},
	}
	return job, func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: name, UID: job.UID, Controller: &controller}}
	}
}

func bare(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
	pod.Spec.ResourceClaims, pod.Status.ResourceClaimStatuses = nil, nil
}

// All pods of a JobSet that ask for devices start together, whichever comes first; those that do not, or that another scheduler places, are not waited for.
func TestJobSetIsOneGang(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod, *resourceapi.ResourceClaim){
		"a driver without devices": bare,
		"a driver of another scheduler": func(pod *corev1.Pod, claim *resourceapi.ResourceClaim) {
			bare(pod, claim)
			pod.Spec.SchedulerName = "default-scheduler"
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := jobSetCluster(t, func(map[string]any) {})
			s, end := c.run()
			c.pod("before", 500)
			c.runs("before")
			c.ofSet("workers", 2, 0, 2, 400)
			c.says("set-workers-0-0", "of its gang 2 pods are there, and 6 start together")
			c.ofSet("driver", 1, 0, 1, 100, change)
			c.says("set-workers-0-0", "of its gang 2 pods are there, and 5 start together")
			c.ofSet("launcher", 1, 0, 1, 200)
			c.ofSet("workers", 2, 1, 2, 400)
			c.says("set-launcher-0-0", "4 tasks at once, each of 0.40 of a device", "and with them for role set-launcher-0-0 0.20 of a device")
			c.sound(s)
			end()
			s, _ = c.run()
			c.says("set-workers-1-1", "4 tasks at once, each of 0.40 of a device")
			c.sound(s)
			c.remove("before")
			c.runs("set-launcher-0-0", "set-workers-0-0", "set-workers-0-1", "set-workers-1-0", "set-workers-1-1")
			c.sound(s)
			c.idle(s, func() {
				if len(s.sets) != 1 || len(s.gangs) != 1 {
					t.Errorf("%d JobSets and %d gangs are known, want one of each", len(s.sets), len(s.gangs))
				}
			})
		})
	}
}

// A pod without devices may be seen, and run, before the Job that made it is known: it is not waited for.
func TestJobSetPodBeforeItsJob(t *testing.T) {
	c := jobSetCluster(t, func(map[string]any) {})
	s, _ := c.run()
	c.ofSet("launcher", 1, 0, 1, 200)
	c.ofSet("workers", 2, 0, 2, 400)
	c.ofSet("workers", 2, 1, 2, 400)
	job, of := jobOfSet("driver", 1, 0, 1)
	c.pod("set-driver-0-0", 100, bare, of)
	c.runs("set-driver-0-0")
	c.says("set-launcher-0-0", "of its gang 5 pods are there, and 6 start together")
	c.add(batchv1.SchemeGroupVersion.WithResource("jobs"), job)
	c.runs("set-launcher-0-0", "set-workers-0-0", "set-workers-0-1", "set-workers-1-0", "set-workers-1-1")
	c.sound(s)
}

// A pod in place of one of a JobSet that runs starts alone, also where the scheduler is another since.
func TestJobSetPodReplaced(t *testing.T) {
	c := jobSetCluster(t, func(map[string]any) {})
	s, end := c.run()
	c.ofSet("driver", 1, 0, 1, 100)
	c.ofSet("workers", 2, 0, 2, 300)
	c.ofSet("workers", 2, 1, 2, 300)
	c.ofSet("launcher", 1, 0, 1, 200)
	c.runs("set-driver-0-0", "set-launcher-0-0", "set-workers-0-0", "set-workers-0-1", "set-workers-1-0", "set-workers-1-1")
	c.sound(s)
	end()
	s, _ = c.run()
	c.remove("set-workers-1-1")
	c.recipes["set-workers-1-1"]()
	c.runs("set-workers-1-1")
	c.sound(s)
}

// Where a JobSet starts its Jobs one after the other, the Jobs of each replicated Job start together and wait for no other.
func TestJobSetInOrder(t *testing.T) {
	for name, change := range map[string]func(spec map[string]any){
		"startupPolicy": func(spec map[string]any) { spec["startupPolicy"] = map[string]any{"startupPolicyOrder": "InOrder"} },
		"dependsOn": func(spec map[string]any) {
			spec["replicatedJobs"].([]any)[2].(map[string]any)["dependsOn"] = []any{map[string]any{"name": "launcher", "status": "Ready"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := jobSetCluster(t, change)
			s, _ := c.run()
			c.ofSet("launcher", 1, 0, 1, 200)
			c.runs("set-launcher-0-0")
			c.ofSet("workers", 2, 0, 2, 400)
			c.says("set-workers-0-0", "of its gang 2 pods are there, and 4 start together")
			c.ofSet("workers", 2, 1, 2, 400)
			c.runs("set-workers-0-0", "set-workers-0-1", "set-workers-1-0", "set-workers-1-1")
			c.sound(s)
		})
	}
}

// owners gives a cluster objects of kinds that make pods.
func (c *cluster) owners(objects ...runtime.Object) {
	c.objects = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1alpha1.Queues: "QueueList", v1alpha1.Policies: "PolicyList", leaderSets: "LeaderWorkerSetList", jobSets: "JobSetList",
	}, objects...)
	c.home("")
}

// ofJobs makes a scheduler that knows of pods, ten of each Job, beside the loop.
func ofJobs(pods int) *Scheduler {
	s := New(Config{})
	controller := true
	for i := range pods {
		job := types.UID(fmt.Sprint("job-", i/10))
		p := &pod{object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprint(i)), OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "batch/v1", Kind: "Job", Name: string(job), UID: job, Controller: &controller},
		}}}}
		s.pods[p.object.UID] = p
		s.own(p)
	}
	return s
}

// Which pods a Job made is known until they are gone or it lets go of them.
func TestOwned(t *testing.T) {
	s := ofJobs(10)
	if n := len(s.owned["job-0"]); n != 10 {
		t.Fatalf("%d pods are known, want 10", n)
	}
	orphan := s.pods["3"]
	orphan.object = orphan.object.DeepCopy()
	orphan.object.OwnerReferences = nil
	s.own(orphan)
	if n := len(s.owned["job-0"]); n != 9 || s.owned["job-0"][orphan] {
		t.Errorf("%d pods are known when it has let go of one", n)
	}
	for uid, p := range s.pods {
		delete(s.pods, uid)
		s.own(p)
	}
	if len(s.owned) != 0 {
		t.Errorf("%v are known when all are gone", s.owned)
	}
}

// What a Job costs whose status changes, as it does with each of its pods: among 20,000 pods.
func BenchmarkJobStatus(b *testing.B) {
	s := ofJobs(20_000)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job-7", UID: "job-7"}}
	for b.Loop() {
		job = job.DeepCopy()
		job.Status.Active++
		s.jobSet(job)
	}
}

// leaderCluster has a LeaderWorkerSet whose leaders start as its policy says.
func leaderCluster(t *testing.T, policy string) *cluster {
	t.Helper()
	c := newCluster(t)
	set := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": leaderSets.GroupVersion().String(), "kind": "LeaderWorkerSet",
		"metadata": map[string]any{"namespace": "default", "name": "serve"}, "spec": map[string]any{"startupPolicy": policy},
	}}
	c.owners(set)
	c.node("a", 2)
	return c
}

// ofGroup adds a pod of the first group, of three; the leader is number 0.
func (c *cluster) ofGroup(number int, compute int64, template string, changes ...func(*corev1.Pod)) {
	c.Helper()
	c.pod(fmt.Sprint("serve-", number), compute, func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
		c.grouped(pod, number)
		pod.Spec.ResourceClaims[0].ResourceClaimTemplateName = &template
		for _, change := range changes {
			change(pod)
		}
	})
}

// grouped makes a pod one of the first group, of three.
func (c *cluster) grouped(pod *corev1.Pod, number int) {
	pod.Labels = map[string]string{leaderSetLabel: "serve", groupLabel: "0", workerLabel: strconv.Itoa(number)}
	pod.Annotations = map[string]string{sizeAnnotation: "3"}
}

// A group of a LeaderWorkerSet starts whole, and is another gang when its leader is.
func TestLeaderGang(t *testing.T) {
	c := leaderCluster(t, "LeaderCreated")
	s, _ := c.run()
	c.pod("before", 1000)
	c.runs("before")
	c.ofGroup(0, 500, "all")
	c.says("serve-0", "of its gang 1 pods are there, and 3 start together")
	c.ofGroup(1, 500, "all")
	c.ofGroup(2, 500, "all")
	c.says("serve-0", "3 tasks at once")
	c.sound(s)
	c.remove("before")
	c.runs("serve-0", "serve-1", "serve-2")
	c.remove("serve-1") // its controller makes it anew, for the group that runs
	c.ofGroup(1, 500, "all")
	c.runs("serve-1")
	for i := range 3 {
		c.remove(fmt.Sprint("serve-", i))
	}
	c.ofGroup(0, 500, "all")
	c.says("serve-0", "of its gang 1 pods are there, and 3 start together")
	c.sound(s)
}

// A leader that starts before the others are made does not wait for them; they start together.
func TestLeaderFirst(t *testing.T) {
	exclusive := func(pod *corev1.Pod) { pod.Annotations[exclusiveAnnotation] = "rack" }
	for name, one := range map[string]struct {
		policy string
		change func(*corev1.Pod)
	}{
		"policy":             {"LeaderReady", func(*corev1.Pod) {}},
		"exclusive topology": {"LeaderCreated", exclusive},
	} {
		t.Run(name, func(t *testing.T) {
			c := leaderCluster(t, one.policy)
			s, _ := c.run()
			c.ofGroup(0, 500, "all", one.change)
			c.runs("serve-0")
			c.ofGroup(1, 500, "all", one.change)
			c.says("serve-1", "of its gang 1 pods are there, and 2 start together")
			c.ofGroup(2, 500, "all", one.change)
			c.runs("serve-1", "serve-2")
			c.sound(s)
		})
	}
}

// A leader that asks for no device of ours is not of its workers' gang, also where a worker is seen first.
func TestLeaderApart(t *testing.T) {
	for name, without := range map[string]func(*corev1.Pod, *resourceapi.ResourceClaim){
		"no claim": func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
			pod.Spec.ResourceClaims, pod.Status.ResourceClaimStatuses = nil, nil
		},
		"another driver's": func(pod *corev1.Pod, claim *resourceapi.ResourceClaim) {
			claim.Spec.Devices.Requests[0].Exactly.DeviceClassName = "network"
			claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
				{Request: "gpu", Driver: "network.example", Pool: "a", Device: "port"},
			}}}
			claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{reference(pod)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := leaderCluster(t, "LeaderCreated")
			s, _ := c.run()
			c.ofGroup(1, 500, "workers")
			c.says("serve-1", "the leader of its group of the LeaderWorkerSet serve is not known yet")
			c.pod("serve-0", 250, func(pod *corev1.Pod, claim *resourceapi.ResourceClaim) {
				c.grouped(pod, 0)
				without(pod, claim)
			})
			c.runs("serve-0")
			c.says("serve-1", "of its gang 1 pods are there, and 2 start together")
			c.ofGroup(2, 500, "workers")
			c.runs("serve-1", "serve-2")
			c.sound(s)
		})
	}
}

// A leader that asks for another share than its workers starts with them, also where a worker is seen first.
func TestLeaderRole(t *testing.T) {
	c := leaderCluster(t, "LeaderCreated")
	s, _ := c.run()
	c.ofGroup(1, 900, "workers")
	c.says("serve-1", "the leader of its group of the LeaderWorkerSet serve is not known yet")
	c.ofGroup(0, 200, "leader")
	c.says("serve-0", "of its gang 2 pods are there, and 3 start together")
	c.ofGroup(2, 900, "workers")
	c.says("serve-0", "2 tasks at once, each of 0.90 of a device", "and with them for role serve-0 0.20 of a device", "even empty")
	c.sound(s)
	c.node("b", 1)
	c.runs("serve-0", "serve-1", "serve-2")
	c.sound(s)
	if len(s.leaders) != 1 {
		t.Errorf("%d groups are known, want one", len(s.leaders))
	}
	for i := range 3 {
		c.remove(fmt.Sprint("serve-", i))
	}
	c.pod("after", 1000) // by when it runs the others are known to be gone
	c.runs("after")
	c.sound(s)
}

// How a group starts is asked again where the API server does not answer.
func TestLeaderAskedAgain(t *testing.T) {
	c := leaderCluster(t, "LeaderReady")
	asked := 0
	c.objects.(*dynamicfake.FakeDynamicClient).PrependReactor("get", leaderSets.Resource, func(core.Action) (bool, runtime.Object, error) {
		asked++
		return asked <= 2, nil, errUnreachable
	})
	s, _ := c.run()
	c.ofGroup(0, 500, "all")
	c.runs("serve-0")
	if asked != 3 {
		t.Errorf("it was asked %d times, want 3", asked)
	}
	c.sound(s)
}

// A scheduler that ends after it wrote a group's claims, and before it bound a pod: the next one binds them, and gives nothing back before it knows
// that they are a gang.
func TestGroupWritten(t *testing.T) {
	c := leaderCluster(t, "LeaderCreated")
	broken := c.breakAt(func(write string) bool { return write == "bind pods" })
	first, end := c.run()
	for i := range 3 {
		c.ofGroup(i, 500, "all")
	}
	broken(first, end)
	var writes atomic.Int32
	c.mu.Lock()
	c.fails = func(write string) fault {
		if write == "status resourceclaims" {
			writes.Add(1)
		}
		return none
	}
	c.mu.Unlock()
	s, _ := c.run()
	c.runs("serve-0", "serve-1", "serve-2")
	c.sound(s)
	if n := writes.Load(); n != 0 {
		t.Errorf("claims that were allocated were written %d times", n)
	}
}

// A size that is no number is said to be wrong, and its pod waits.
func TestGroupOfNoSize(t *testing.T) {
	c := leaderCluster(t, "LeaderCreated")
	s, _ := c.run()
	c.ofGroup(0, 500, "all", func(pod *corev1.Pod) { pod.Annotations[sizeAnnotation] = "three" })
	c.says("serve-0", `its annotation leaderworkerset.sigs.k8s.io/size is "three"; that should be the number of pods of a group`)
	c.sound(s)
}
