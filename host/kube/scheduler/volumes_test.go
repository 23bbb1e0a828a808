package scheduler

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// mounts gives a pod a volume by claim.
func mounts(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
}

// Pods that wait for a volume are placed when something changes that says where volumes can be used, and not only when they are looked at again.
func TestVolumesWakePods(t *testing.T) {
	in, named := metav1.ObjectMeta{Namespace: "default", Name: "data"}, metav1.ObjectMeta{Name: "data"}
	for resource, object := range map[schema.GroupVersionResource]runtime.Object{
		corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"):  &corev1.PersistentVolumeClaim{ObjectMeta: in},
		corev1.SchemeGroupVersion.WithResource("persistentvolumes"):       &corev1.PersistentVolume{ObjectMeta: named},
		storagev1.SchemeGroupVersion.WithResource("storageclasses"):       &storagev1.StorageClass{ObjectMeta: named},
		storagev1.SchemeGroupVersion.WithResource("csinodes"):             &storagev1.CSINode{ObjectMeta: named},
		storagev1.SchemeGroupVersion.WithResource("csidrivers"):           &storagev1.CSIDriver{ObjectMeta: named},
		storagev1.SchemeGroupVersion.WithResource("csistoragecapacities"): &storagev1.CSIStorageCapacity{ObjectMeta: in},
		storagev1.SchemeGroupVersion.WithResource("volumeattachments"):    &storagev1.VolumeAttachment{ObjectMeta: named},
	} {
		t.Run(resource.Resource, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.askEvery = time.Hour
			c.node("a", 1)
			s, _ := c.run()
			filters := s.config.Filters.(*plain)
			filters.unmountable.Store(true)
			c.pod("shares", 500, func(p *corev1.Pod, _ *resourceapi.ResourceClaim) { mounts(p) })
			c.ordinary("plain", "1", 0, mounts)
			c.sound(s)
			asked := map[string]time.Time{}
			c.idle(s, func() {
				for _, class := range s.classes {
					asked[class.key] = class.asked
				}
			})
			c.eventually("they were asked for once more after all else", func() bool {
				late := make(chan bool, 1)
				s.inbox.put(func() {
					all := len(s.classes) == 2
					for _, class := range s.classes {
						all = all && !class.asked.Before(s.outdated.Add(askOnce))
					}
					late <- all
				})
				return <-late
			})
			filters.unmountable.Store(false)
			c.add(resource, object)
			c.runs("shares", "plain")
			c.sound(s)
		})
	}
}

// A change of volumes is for the classes with volumes, and a claim's for those of its namespace.
func TestVolumesWakeNobodyElse(t *testing.T) {
	c := newCluster(t)
	c.node("a", 0, func(n *corev1.Node) { n.Spec.Unschedulable = true })
	s, _ := c.run()
	c.ordinary("bare", "1", 0)
	c.ordinary("mounts", "1", 0, mounts)
	c.eventually("both wait", func() bool {
		both := make(chan bool, 1)
		s.inbox.put(func() { both <- len(s.classes) == 2 })
		return <-both
	})
	wakes := func(f func()) (woken []string) {
		for _, class := range s.classes {
			class.stale = false
		}
		f()
		for _, class := range s.classes {
			if class.stale {
				woken = append(woken, class.pod.Name)
			}
		}
		return woken
	}
	seen := make(chan [3][]string, 1)
	s.inbox.put(func() {
		in := func(namespace string) func() {
			return func() {
				s.volumeClaimChanged(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}})
			}
		}
		seen <- [3][]string{wakes(in("other")), wakes(in("default")), wakes(func() { s.outdateVolumes("") })}
	})
	if got, want := <-seen, [3][]string{nil, {"mounts"}, {"mounts"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("it wakes %v, not %v", got, want)
	}
}
