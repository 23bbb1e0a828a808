package scheduler

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// newQueueCluster is a cluster that has queues, and whose namespace belongs to this one; empty: to none.
func newQueueCluster(t *testing.T, home string) *cluster {
	c := newCluster(t)
	c.objects = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{v1alpha1.Queues: "QueueList", v1alpha1.Policies: "PolicyList"})
	c.home(home)
	return c
}

// home has the namespace belong to a queue.
func (c *cluster) home(queue string) {
	c.Helper()
	namespaces := c.client.CoreV1().Namespaces()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{annotation.Queue: queue}}}
	if _, err := namespaces.Update(c.Context(), namespace, metav1.UpdateOptions{}); err == nil {
		return
	}
	if _, err := namespaces.Create(c.Context(), namespace, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

// set makes a queue or a policy, or changes it.
func (c *cluster) set(kind schema.GroupVersionResource, name, spec string) {
	c.Helper()
	client := c.objects.Resource(kind)
	generation := int64(1)
	before, err := client.Get(c.Context(), name, metav1.GetOptions{})
	if err == nil {
		generation = before.GetGeneration() + 1
	}
	object := &unstructured.Unstructured{}
	text := fmt.Appendf(nil, `{"apiVersion":"aliquot.dev/v1alpha1","kind":"X","metadata":{"name":%q,"generation":%d},"spec":%s}`, name, generation, spec)
	if wrong := json.Unmarshal(text, object); wrong != nil {
		c.Fatal(wrong)
	}
	if err == nil {
		if said, is := before.Object["status"]; is {
			object.Object["status"] = said
		}
		_, err = client.Update(c.Context(), object, metav1.UpdateOptions{})
	} else {
		_, err = client.Create(c.Context(), object, metav1.CreateOptions{})
	}
	if err != nil {
		c.Fatal(err)
	}
}

func naming(queue string) func(*corev1.Pod, *resourceapi.ResourceClaim) {
	return annotated(annotation.Queue, queue)
}

// firm has a pod fit in quotas alone.
func firm(pod *corev1.Pod, claim *resourceapi.ResourceClaim) {
	annotated(annotation.Preemptible, "false")(pod, claim)
}

func annotated(key, value string) func(*corev1.Pod, *resourceapi.ResourceClaim) {
	return func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[key] = value
	}
}

// What a queue is guaranteed holds for the work of its namespace, also after a restart, and what is changed of it holds at once.
func TestQueues(t *testing.T) {
	c := newQueueCluster(t, "team")
	c.node("a", 4)
	c.set(v1alpha1.Queues, "org", `{"quota":{"compute":"3"}}`)
	c.set(v1alpha1.Queues, "team", `{"parent":"org","quota":{"compute":"1"}}`)
	_, end := c.run()
	c.pod("first", 600, firm)
	c.runs("first")
	c.pod("second", 600, firm)
	c.says("second", "team", "quota")
	end()
	s, _ := c.run()
	c.sound(s)
	if on := c.on("second"); on != "" {
		t.Fatalf("it was placed on %s by a scheduler that began anew, over its queue's quota", on)
	}
	c.set(v1alpha1.Queues, "team", `{"parent":"org","quota":{"compute":"2"}}`)
	c.runs("second")
	c.sound(s)
}

// Work goes nowhere but to its namespace's queue and those under it, and moves with its namespace.
func TestQueueOfPods(t *testing.T) {
	c := newQueueCluster(t, "team")
	c.node("a", 4)
	for name, spec := range map[string]string{"team": `{"quota":{"compute":"1"}}`, "under": `{"parent":"team","quota":{"compute":"0.5"}}`, "other": `{"quota":{"compute":"2"}}`} {
		c.set(v1alpha1.Queues, name, spec)
	}
	s, _ := c.run()
	c.pod("under", 500, firm, naming("under"))
	c.runs("under")
	c.pod("more", 100, firm, naming("under"))
	c.says("more", "under", "quota")
	c.pod("stray", 100, firm, naming("other"))
	c.says("stray", "other is not under that; name team")
	c.pod("large", 900, firm)
	c.says("large", "team", "quota")
	c.home("other")
	c.runs("large", "stray")
	c.says("more", "under is not under that; name other")
	c.home("gone")
	c.says("more", "there is no such queue") // it is known, and what comes now is not placed before
	c.pod("lost", 100, firm)
	c.says("lost", "there is no such queue")
	c.set(v1alpha1.Queues, "gone", `{}`)
	c.runs("lost")
	c.sound(s)
}

// A policy holds beside the queues, and when it goes they are what they were. A queue that goes while its work runs stays until that has ended.
func TestPolicy(t *testing.T) {
	c := newQueueCluster(t, "team")
	c.node("a", 4)
	c.set(v1alpha1.Queues, "team", `{"quota":{"compute":"1"}}`)
	c.set(v1alpha1.Policies, "default", `{"text":"aliquot policy 1\nqueue team quota=2\n"}`)
	s, _ := c.run()
	c.pod("first", 1000, firm)
	c.pod("second", 1000, firm)
	c.runs("first", "second")
	if err := c.objects.Resource(v1alpha1.Policies).Delete(c.Context(), "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.told("that there is no policy", func(s *Scheduler) bool { return s.tenants.policy == nil && !s.tenants.changed })
	c.remove("second")
	c.pod("third", 1000, firm)
	c.says("third", "team", "quota")
	if err := c.objects.Resource(v1alpha1.Queues).Delete(c.Context(), "team", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.says("third", "there is no such queue")
	c.home("")
	c.runs("third")
	c.sound(s)
}

// limited has a pod end after so many seconds.
func limited(seconds int64) func(*corev1.Pod, *resourceapi.ResourceClaim) {
	return func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) { pod.Spec.ActiveDeadlineSeconds = &seconds }
}

// limit gives a pod that is there a time limit.
func (c *cluster) limit(name string, seconds int64) {
	c.Helper()
	c.rewrite(name, func(pod *corev1.Pod) {
		pod.Generation++
		pod.Spec.ActiveDeadlineSeconds = &seconds
	})
}

// Nothing is started that its queue does not let run so long or so urgently, however it came to be; what runs already goes on. What is changed holds for
// what waits.
func TestBounds(t *testing.T) {
	c := newQueueCluster(t, "team")
	c.node("a", 2)
	c.set(v1alpha1.Queues, "team", `{"limit":{"compute":"1"}}`)
	s, _ := c.run()
	c.pod("runs", 600)
	c.runs("runs")
	c.pod("waits", 600) // until the other has ended
	c.says("waits", "team", "limit")
	c.set(v1alpha1.Queues, "team", `{"limit":{"compute":"1"},"longestRun":"2h","maxPriority":50}`)
	c.says("waits", "work in queue team may run for 2h at most, and the pod has no time limit: give it spec.activeDeadlineSeconds of 7200 or less")
	c.pod("long", 100, limited(7201))
	c.says("long", "a time limit of 2h0m1s was asked for")
	c.pod("urgent", 100, limited(60), func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) { pod.Spec.Priority = new(int32(51)) })
	c.says("urgent", "in queue team pods may have at most 50")
	c.pod("fits", 100, limited(7200))
	c.runs("fits")
	if on := c.on("runs"); on == "" {
		t.Error("what ran was ended")
	}
	c.set(v1alpha1.Queues, "team", `{"limit":{"compute":"1"},"longestRun":"2h1s"}`)
	c.runs("long", "urgent")
	c.limit("waits", 3600)
	c.says("waits", "team", "limit")
	c.remove("runs")
	c.runs("waits")
	c.sound(s)
}

// Who may not count against the queue that it names is given none of our devices, also where others would have done in their stead, or whosoever's.
func TestNoneOfOurs(t *testing.T) {
	c := newQueueCluster(t, "team")
	c.node("a", 4)
	c.set(v1alpha1.Queues, "team", `{"quota":{"compute":"4"}}`)
	for name, expression := range map[string]string{"network": `device.driver == "net.example"`, "any": "true"} {
		c.add(classResource, &resourceapi.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}},
		})
	}
	of := func(class string) resourceapi.DeviceRequest {
		return part(class, 100, 1, func(r *resourceapi.ExactDeviceRequest) { r.DeviceClassName = class })
	}
	s, _ := c.run()
	c.pod("alternatives", 1, requests(choice("gpu", part("ours", 100, 1), of("network"))), naming("other"))
	c.says("alternatives", "it is given none of ours", "other", "no node that takes it has such devices free")
	c.pod("any", 1, requests(of("any")), naming("other"))
	c.says("any", "devices of several drivers would do for it, and it is given none of ours", "no node that takes it has such devices free")
	c.sound(s)
	c.pod("ours", 1, requests(choice("gpu", part("ours", 100, 1), of("network"))), naming("team"))
	c.runs("ours")
	c.pod("whichever", 1, requests(of("any")), naming("team"))
	c.runs("whichever")
	c.sound(s)
}

// Namespaces are heard of beside pods: one of a namespace that is not known yet waits for that, and is in no queue that it does not belong to.
func TestNamespaceComesLater(t *testing.T) {
	c := newQueueCluster(t, "team")
	if err := c.client.CoreV1().Namespaces().Delete(c.Context(), "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.node("a", 1)
	c.set(v1alpha1.Queues, "team", `{"quota":{"compute":"1"}}`)
	s, _ := c.run()
	c.pod("p", 500)
	c.says("p", "its namespace default is not known yet")
	c.home("team")
	c.runs("p")
	c.sound(s)
	for _, q := range s.engine.Queues() {
		if q.Name == "team" && q.Held != 500 {
			t.Errorf("its queue holds %s", q.Held)
		}
	}
}
