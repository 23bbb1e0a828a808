package driver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/aliquot-dev/aliquot/node"
)

// unsaid is the user of a container that says none.
const unsaid = -1

// podWith is a pod with the claim in a container of each user, and one more container without it.
func podWith(claim *resourceapi.ResourceClaim, name string, users ...int64) *corev1.Pod {
	one := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
	one.Spec.NodeName = here
	one.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "share", ResourceClaimName: &claim.Name}}
	for _, user := range users {
		container := corev1.Container{Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "share"}}}}
		if user != unsaid {
			container.SecurityContext = &corev1.SecurityContext{RunAsUser: &user}
		}
		one.Spec.Containers = append(one.Spec.Containers, container)
	}
	one.Spec.Containers = append(one.Spec.Containers, corev1.Container{Name: "beside", SecurityContext: &corev1.SecurityContext{RunAsUser: new(int64)}})
	return one
}

// podWithLimits is a pod with two containers, c0 and c1, whose limits of whole devices became requests of the claim: pairs of container and request.
func podWithLimits(claim *resourceapi.ResourceClaim, name string, requests ...[2]string) *corev1.Pod {
	one := podWith(claim, name, 1000, 1000)
	one.Spec.ResourceClaims, one.Status.ExtendedResourceClaimStatus = nil, &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: claim.Name}
	for i := range 2 {
		one.Spec.Containers[i].Name, one.Spec.Containers[i].Resources.Claims = fmt.Sprint("c", i), nil
	}
	for _, r := range requests {
		one.Status.ExtendedResourceClaimStatus.RequestMappings = append(one.Status.ExtendedResourceClaimStatus.RequestMappings, corev1.ContainerExtendedResourceRequest{ContainerName: r[0], RequestName: r[1]})
	}
	return one
}

func TestUserOf(t *testing.T) {
	s := newSite(t, t.TempDir())
	claim := twice(claimOf("a", 250, 1<<30, ""))
	claim.Status.Allocation.Devices.Results[2].Request = "more"
	pod := func(name string, users ...int64) *corev1.Pod { return podWith(claim, name, users...) }
	other := claimOf("b", 250, 1<<30, "")
	two := pod("two", 1000)
	two.Spec.ResourceClaims = append(two.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "more", ResourceClaimTemplateName: new(string)})
	two.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "more", ResourceClaimName: &other.Name}}
	apart := two.DeepCopy()
	apart.Name, apart.UID = "apart", "uid-apart"
	two.Spec.Containers[0].Resources.Claims = append(two.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: "more"})
	apart.Spec.Containers[1].Resources.Claims = []corev1.ResourceClaim{{Name: "more"}}
	hidden := pod("hidden", 1000)
	hidden.Spec.HostUsers = new(bool)
	part, all := pod("part", 0, 0), pod("all", 0, 0)
	for i, name := range []string{"gpu", "more"} {
		part.Spec.Containers[i].Resources.Claims[0].Request = name
	}
	for i := range 2 {
		all.Spec.Containers[i].Resources.Claims[0].Request = "gpu"
		all.Spec.Containers[i].Resources.Claims = append(all.Spec.Containers[i].Resources.Claims, corev1.ResourceClaim{Name: "share", Request: "more"})
	}
	for name, test := range map[string]struct {
		pods    []*corev1.Pod
		want    uint32
		unknown bool
		error   string
	}{
		"none":        {unknown: true},
		"root":        {pods: []*corev1.Pod{pod("root", 0)}},
		"unsaid":      {pods: []*corev1.Pod{pod("silent", unsaid, unsaid), pod("mute", unsaid)}, unknown: true},
		"some say":    {pods: []*corev1.Pod{pod("half", unsaid, 1000, unsaid), pod("other", unsaid)}, want: 1000},
		"by the pod":  {pods: []*corev1.Pod{sayingFor(pod("sayer", unsaid, unsaid), 1000)}, want: 1000},
		"some differ": {pods: []*corev1.Pod{pod("odd", unsaid, 1000, unsaid, 0)}, error: "users 1000 and 0"},
		"one":         {pods: []*corev1.Pod{pod("one", 1000)}, want: 1000},
		"the same":    {pods: []*corev1.Pod{pod("both", 1000, 1000), pod("too", 1000)}, want: 1000},
		"others":      {pods: []*corev1.Pod{pod("mixed", 1000, 1001)}, error: "users 1000 and 1001"},
		"over pods":   {pods: []*corev1.Pod{pod("left", 5), pod("right", 6)}, error: "users 5 and 6"},
		"two claims":  {pods: []*corev1.Pod{two}, error: "has the claim claim-b too"},
		"apart":       {pods: []*corev1.Pod{apart}, want: 1000},
		"own users":   {pods: []*corev1.Pod{hidden}, error: "hostUsers: false"},
		"parts":       {pods: []*corev1.Pod{part}, error: "has the request gpu of the claim and not more"},
		"all parts":   {pods: []*corev1.Pod{all}},
		"whole":       {pods: []*corev1.Pod{podWithLimits(claim, "whole", [2]string{"c0", "gpu"}, [2]string{"c0", "more"})}, want: 1000},
		"whole each":  {pods: []*corev1.Pod{podWithLimits(claim, "each", [2]string{"c0", "gpu"}, [2]string{"c1", "more"})}, error: "make a claim for each container"},
		"not theirs":  {pods: []*corev1.Pod{pod("aside")}, unknown: true},
	} {
		client := fake.NewClientset()
		claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "gone", UID: "uid-gone"}}
		for _, one := range test.pods {
			if _, err := client.CoreV1().Pods("default").Create(t.Context(), one, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: one.Name, UID: one.UID})
		}
		s.config.Client = client
		d := &Driver{config: s.config}
		got, known, err := userOf(claim, d.podsOf(t.Context(), claim), []string{other.Name})
		if got != test.want || known != (!test.unknown && test.error == "") || (err == nil) != (test.error == "") || err != nil && !strings.Contains(err.Error(), test.error) {
			t.Errorf("%s: got %d, known %v, %v; want %d, unknown %v, %q", name, got, known, err, test.want, test.unknown, test.error)
		}
	}
}

// sayingFor has a pod say whom its containers run as that do not say it.
func sayingFor(pod *corev1.Pod, user int64) *corev1.Pod {
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &user}
	return pod
}

// What is asked of node is a task of the user that the pod says, or one whose user is not known yet; the next driver asks the same.
func TestTaskOfUser(t *testing.T) {
	s := newSite(t, t.TempDir())
	p := s.open()
	for uid, want := range map[string]node.Task{"said": {UserID: 1000}, "root": {}, "unsaid": {UserUnknown: true}} {
		claim := claimOf(uid, 100, 1<<30, "")
		pod := podWith(claim, uid, map[string]int64{"said": 1000, "unsaid": unsaid}[uid])
		if _, err := s.config.Client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
		if got := s.prepare(p, claim)[types.UID(uid)]; got.Err != nil {
			t.Fatal(got.Err)
		}
		for range 2 {
			if got := s.agent.tasks()[uid]; got.UserID != want.UserID || got.UserUnknown != want.UserUnknown {
				t.Errorf("%s: node has %+v, want %+v", uid, got, want)
			}
			if one, _, err := p.checkpoints.read(uid); err != nil || one.Task.UserID != want.UserID || one.Task.UserUnknown != want.UserUnknown {
				t.Errorf("%s: the checkpoint has %+v (%v), want %+v", uid, one.Task, err, want)
			}
			if err := os.RemoveAll(filepath.Join(s.agent.folder, uid)); err != nil { // as after a reboot
				t.Fatal(err)
			}
			p = s.open()
		}
	}
}

// A claim that is prepared already is not asked for again, and is beside another in a container all the same.
func TestBesidePrepared(t *testing.T) {
	s := newSite(t, t.TempDir())
	p := s.open()
	s.prepare(p, claimOf("a", 250, 1<<30, ""))
	b := claimOf("b", 250, 1<<30, "")
	first := claimOf("a", 250, 1<<30, "").Name
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "both", UID: "uid-both"}, Spec: corev1.PodSpec{
		NodeName: here, ResourceClaims: []corev1.PodResourceClaim{{Name: "one", ResourceClaimName: &first}, {Name: "two", ResourceClaimName: &b.Name}},
		Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "one"}, {Name: "two"}}}}},
	}}
	if _, err := s.config.Client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
	if got := s.prepare(p, b)["b"]; got.Err == nil || !strings.Contains(got.Err.Error(), "has the claim claim-a too") {
		t.Errorf("got %v", got.Err)
	}
	s.has("a")
}
