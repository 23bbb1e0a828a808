package local

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// What a policy has moved is ended, told what for, and runs again on the other device: the one that it left is free as a whole.
func TestWorkIsMoved(t *testing.T) {
	s := newSite(t, nil)
	start := func(name, gpu string) api.WorkloadSpec {
		asked := spec(gpu, "exec sleep 1000")
		asked.Name, asked.Preemptible = name, true
		return asked
	}
	s.submit(start("a", "0.6"))
	s.submit(start("b", "0.6"))
	asked := start("c", "0.4")
	asked.Requeue = true
	c := s.submit(asked)
	for _, name := range []string{"a", "b", "c"} {
		s.running(name)
	}
	left := s.running("c").Status.Grants[0].DeviceIndex
	with := map[int]string{s.running("a").Status.Grants[0].DeviceIndex: "a", s.running("b").Status.Grants[0].DeviceIndex: "b"}
	if _, err := s.Stop(context.Background(), me, with[left], 0); err != nil {
		t.Fatal(err)
	}
	s.ended(with[left])
	if _, err := s.SetPolicy(context.Background(), me, api.Policy{Name: "moves", Text: "aliquot policy 1\ndefragment moves-per-hour=1\n"}); err != nil {
		t.Fatal(err)
	}
	moved := s.ended(c.UID).Status
	if want := fmt.Sprintf("it is moved so that device %d (H200, GPU-%d) is free as a whole (plan ", left, left); moved.Outcome != api.Evicted || !strings.HasPrefix(moved.Reason, want) {
		t.Errorf("it ended with %+v, want %q", moved, want)
	}
	set, err := s.Policy(context.Background())
	if want := fmt.Sprintf("device %d (H200, GPU-%d) is free as a whole", left, left); err != nil || len(set.Moved) != 1 || set.Moved[0].Workload != c.UID || set.Moved[0].Frees != want || set.Moved[0].Plan == 0 || set.Moved[0].At.IsZero() {
		t.Errorf("%v: the policy says that %+v was moved, want %q", err, set.Moved, want)
	}
	again := s.running("c")
	if again.UID == c.UID || again.Status.Requeued != 1 || again.Status.Grants[0].DeviceIndex == left {
		t.Errorf("it was on device %d, and is %+v", left, again.Status)
	}
}
