package e2e

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/host/kube/images"
)

// ofUserName is the image of the example programs that runs as user 1000 by itself.
const ofUserName = "aliquot.dev/aliquot-user:0.1.0"

// imageUsers has pods that do not say whom they run as: of an image that runs as root by itself, and of one that does not. Both are held to their shares, whose pages are
// theirs, also after what may happen to the agent. Of two such containers that share a claim and run as different users the second does not start, and says why.
func (w *world) imageUsers(share func(work) *corev1.Pod, happens func()) {
	w.Helper()
	image, err := images.Examples(filepath.Join(root, "build", "examples"), filepath.Join(root, "native", "dist"))
	w.no(err)
	image.Name, image.User, image.Files["/bin/pod"] = ofUserName, "1000", filepath.Join(cache, "pod")
	w.load(image)
	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	unsaid := func(name, image string) *corev1.Pod {
		pod := share(work{name: name, compute: 100, memory: "1Gi", ceiling: `{"compute":"0.15"}`, command: trainer})
		pod.Spec.Containers[0].Image, pod.Spec.Containers[0].SecurityContext = image, nil
		return pod
	}
	users := map[string]uint32{"of-root": 0, "of-user": 1000}
	w.admitted(unsaid("of-root", examples))
	w.admitted(unsaid("of-user", ofUserName))
	for name, user := range users {
		w.trains(name)
		w.pagesOf(name, user)
	}
	happens()
	w.shares("of images that say their users themselves", map[string]part{"of-root": {100, 150}, "of-user": {100, 150}})
	for name, user := range users {
		w.pagesOf(name, user)
		w.eventually("the claim of "+name+" says that it is held to", func() (bool, string) {
			devices := w.claim(name).Status.Devices
			return len(devices) == 1 && len(devices[0].Conditions) == 1 && devices[0].Conditions[0].Status == metav1.ConditionTrue, fmt.Sprintf("%+v", devices)
		})
	}
	w.remove("of-root", "of-user")

	both := unsaid("of-both", ofUserName)
	second := *both.Spec.Containers[0].DeepCopy()
	second.Name, second.Image = "second", examples
	both.Spec.Containers = append(both.Spec.Containers, second)
	w.admitted(both)
	w.tellsOf("of-both", "Failed", "aliquot: the container could not be given its share: it runs as user 0, and the pages of its claim are user 1000's", "the same runAsUser")
	w.remove("of-both")
}

// pagesOf checks whose the pages of a pod's claim are.
func (w *world) pagesOf(pod string, user uint32) {
	w.Helper()
	folder := filepath.Join(w.run, "tasks", string(w.claim(pod).UID))
	for name, owner := range map[string]uint32{"tel": user, "arbiter.sock": user, "ctl": 0, "book": 0, "task.json": 0} {
		var is unix.Stat_t
		if err := unix.Lstat(filepath.Join(folder, name), &is); err != nil || is.Uid != owner {
			w.Errorf("of %s, %s is user %d's (%v), want %d's", pod, name, is.Uid, err, owner)
		}
	}
	if _, err := os.Readlink(filepath.Join(folder, "user")); err != nil {
		w.Errorf("of %s it is not written down whose it is: %v", pod, err)
	}
}
