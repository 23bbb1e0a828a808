package driver

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// Where the disk of the state is full, claims are taken back all the same: the pods that end are what makes room. An agent that starts meanwhile takes back
// what was half prepared.
func TestDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := newSite(t, t.TempDir())
	s.config.State = disk
	p := s.open()
	s.prepare(p, claimOf("a", 250, 1<<30, ""), claimOf("b", 250, 1<<30, ""))
	half, _, err := p.checkpoints.read("b")
	half.Phase = preparing // as where the second write of a prepare met a full disk
	if err := errors.Join(err, p.checkpoints.write(half)); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(disk, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 512); err == nil; {
		_, err = file.Write(block)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	results, err := p.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{{UID: types.UID("a")}})
	if err := errors.Join(err, results["a"]); err != nil {
		t.Errorf("a claim is not taken back: %v", err)
	}
	s.has("b")
	s.open()
	s.has()
}

// A claim that is prepared stays its pod's, whoever else it is reserved for: also where the pod's container is made again.
func TestAnotherPodOfTheClaim(t *testing.T) {
	s := newSite(t, t.TempDir())
	p := s.open()
	claim := claimOf("a", 250, 1<<30, "")
	reserve := func(name string, user int64) {
		t.Helper()
		pod := podWith(claim, name, user)
		if _, err := s.config.Client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
	}
	reserve("mine", 1000)
	s.prepare(p, claim)
	reserve("other", 2000)
	if err := s.agent.Unprepare(t.Context(), "a"); err != nil { // the machine starts anew
		t.Fatal(err)
	}
	p = s.open()
	if err := s.prepare(p, claim)["a"].Err; err != nil {
		t.Errorf("the pod that ran before does not start again: %v", err)
	}
	if got := s.agent.Prepared()[0].UserID; got != 1000 {
		t.Errorf("its pages are user %d's, want 1000's", got)
	}
}

// After a reboot without the device of a claim the claim says so.
func TestDeviceLostInReboot(t *testing.T) {
	s := newSite(t, t.TempDir())
	noticing(t, s, "a")
	if err := s.agent.Unprepare(t.Context(), "a"); err != nil { // the machine starts anew
		t.Fatal(err)
	}
	s.agent.refuses = errors.New("a grant on device GPU-aa; this node has no such device")
	s.agent.gone = true
	p := s.open()
	p.events = &recorder{}
	p.tellAll(t)
	if got := s.ready("claim-a"); got.Status != metav1.ConditionFalse || got.Reason != deviceDown {
		t.Errorf("nothing of it is held, and it says %+v", got)
	}
}

// A claim that was made anew under its name before the one before was taken back has its Share.
func TestTwoOfOneName(t *testing.T) {
	s := newShared(t)
	s.start()
	s.add(claimOf("a", 250, 4*gi, ""))
	s.becomes("claim-a", 0, "Applied", "0.25", "4Gi")
	claims := s.config.Client.ResourceV1().ResourceClaims("default")
	if err := errors.Join(claims.Delete(t.Context(), "claim-a", metav1.DeleteOptions{}), s.shares.Delete(t.Context(), "claim-a", metav1.DeleteOptions{})); err != nil {
		t.Fatal(err)
	}
	fresh := claimOf("b", 250, 4*gi, "")
	fresh.Name = "claim-a"
	s.add(fresh)
	s.becomes("claim-a", 0, "Applied", "0.25", "4Gi")
}
