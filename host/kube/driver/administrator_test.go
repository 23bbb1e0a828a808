package driver

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node"
)

// administrators is a claim whose results of ours give access as an administrator.
func administrators(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	for i := range claim.Status.Allocation.Devices.Results {
		if r := &claim.Status.Allocation.Devices.Results[i]; r.Driver == Name {
			r.AdminAccess = new(true)
		}
	}
	return claim
}

// saved checks that of a claim with access as an administrator there is a checkpoint and a CDI file with a version of the driver, and no task.
func (s *site) saved(p plugin, uid, version string) {
	s.Helper()
	one, _, err := p.checkpoints.read(uid)
	if err != nil || one.Phase != prepared || !slices.Equal(one.Access, []string{h200.UUID}) || len(one.Task.Grants) > 0 {
		s.Errorf("its checkpoint is %+v (%v)", one, err)
	}
	file, err := os.ReadFile(p.specs.path(uid))
	if err != nil || !strings.Contains(string(file), `"hostPath": "/run/driver/`+version+`"`) || strings.Contains(string(file), "ALIQUOT_TASK") {
		s.Errorf("its CDI file is %s (%v)", file, err)
	}
	if tasks := s.agent.tasks(); len(tasks) > 0 {
		s.Errorf("node has the tasks %v", tasks)
	}
}

// A claim with access as an administrator is no task of node's: it has its devices with the driver that there is, by whichever agent, and says so in its
// status; it is taken back as others are. Whom its pod runs as does not matter, and it has no Share.
func TestAdministrator(t *testing.T) {
	s := newShared(t)
	s.agent.version = "575.1"
	s.start()
	claim := administrators(claimOf("a", 1000, 1<<30, ""))
	pod := podWith(claim, "monitor", 0, 1000)
	pod.Spec.HostUsers = new(false)
	if _, err := s.config.Client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
	s.add(claim)
	s.telling.Wait()
	s.saved(s.plugin, "a", "575.1")
	written := func() resourceapi.AllocatedDeviceStatus {
		t.Helper()
		now, err := s.config.Client.ResourceV1().ResourceClaims("default").Get(t.Context(), claim.Name, metav1.GetOptions{})
		if err != nil || len(now.Status.Devices) != 1 || len(now.Status.Devices[0].Conditions) != 1 {
			t.Fatalf("its status is %+v (%v)", now.Status, err)
		}
		return now.Status.Devices[0]
	}
	if said := written(); said.Data != nil || said.Conditions[0].Status != metav1.ConditionTrue || !strings.Contains(said.Conditions[0].Message, "access as an administrator") {
		t.Errorf("its status says %+v", said)
	}
	if err := s.live.look(t.Context(), cache.ObjectName{Namespace: claim.Namespace, Name: claim.Name}); err != nil {
		t.Error(err)
	}
	if shares, err := s.shares.List(t.Context(), metav1.ListOptions{}); err != nil || len(shares.Items) > 0 {
		t.Errorf("there are the Shares %+v (%v)", shares, err)
	}
	s.agent.version = "580.1" // and the machine was started anew
	if err := os.Remove(s.specs.path("a")); err != nil {
		t.Fatal(err)
	}
	s.start()
	s.saved(s.plugin, "a", "580.1")
	if got := s.prepare(s.plugin, claim)["a"]; got.Err != nil || !slices.Equal(got.Devices[0].CDIDeviceIDs, []string{"gpu.aliquot.dev/claim=a"}) {
		t.Errorf("asked again it says %+v", got)
	}
	s.telling.Wait()
	s.agent.sets(api.Down, "it burns")
	if err := s.report(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if said := written().Conditions[0]; said.Reason != "DeviceDown" {
		t.Errorf("with the device down it says %+v", said)
	}
	s.unprepare(s.plugin, "a")
	s.has()
}

// Access and shares do not go together in a claim, nor in a container; in a pod they do. What was a share and is access now has no task any more.
func TestAdministratorBeside(t *testing.T) {
	s := newSite(t, t.TempDir())
	p := s.open()
	mixed := twice(claimOf("mixed", 250, 1<<30, ""))
	mixed.Status.Allocation.Devices.Results[1].AdminAccess = new(true)
	elsewhere := moved(administrators(claimOf("elsewhere", 0, 0, "")), "node2", "gpu-aa")
	got := s.prepare(p, mixed, elsewhere)
	for uid, want := range map[types.UID]string{"mixed": "make a claim for each", "elsewhere": "has no such device"} {
		if err := got[uid].Err; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", uid, err, want)
		}
	}
	s.has()
	access, held := administrators(claimOf("access", 0, 0, "")), claimOf("held", 250, 1<<30, "")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "both", UID: "uid-both"}, Spec: corev1.PodSpec{
		NodeName: here, ResourceClaims: []corev1.PodResourceClaim{{Name: "one", ResourceClaimName: &access.Name}, {Name: "two", ResourceClaimName: &held.Name}},
		Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "one"}, {Name: "two"}}}}},
	}}
	pods := s.config.Client.CoreV1().Pods("default")
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, claim := range []*resourceapi.ResourceClaim{access, held} {
		claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
	}
	for uid, one := range s.prepare(p, access, held) {
		if one.Err == nil || !strings.Contains(one.Err.Error(), "where one is access as an administrator, let another container have it") {
			t.Errorf("%s: %v", uid, one.Err)
		}
	}
	s.has()
	apart := pod.DeepCopy()
	apart.Spec.Containers = append(apart.Spec.Containers, corev1.Container{Name: "monitor", Resources: corev1.ResourceRequirements{Claims: apart.Spec.Containers[0].Resources.Claims[:1]}})
	apart.Spec.Containers[0].Resources.Claims = apart.Spec.Containers[0].Resources.Claims[1:]
	if _, err := pods.Update(t.Context(), apart, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for uid, one := range s.prepare(p, access, held) {
		if one.Err != nil {
			t.Errorf("%s: %v", uid, one.Err)
		}
	}
	if tasks := s.agent.tasks(); len(tasks) != 1 || len(tasks["held"].Grants) != 1 {
		t.Errorf("node has the tasks %v", tasks)
	}
	anew := administrators(claimOf("held", 250, 1<<30, "")) // which nobody has
	if got := s.prepare(p, anew)["held"]; got.Err != nil || len(s.agent.tasks()) > 0 {
		t.Errorf("allocated anew it says %v, and node has %v", got.Err, s.agent.tasks())
	}
}

// What an administrator's process computes is told of the node, as nothing that is wrong.
func TestAdministersNotice(t *testing.T) {
	p, given := noticing(t, newSite(t, t.TempDir()))
	p.Notice(t.Context(), node.Notice{Kind: node.Administers, Device: h200.UUID, Message: "Process 7 computes by its container's access."})
	if want := []string{"Node /node1: Normal Administers: Process 7 computes by its container's access."}; !slices.Equal(given.said, want) {
		t.Errorf("the events are %q, want %q", given.said, want)
	}
}
