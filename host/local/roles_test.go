package local

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/internal/until"
	"github.com/aliquot-dev/aliquot/server"
)

// told is a program that says what it is told of itself.
const told = "echo $ALIQUOT_ROLE $ALIQUOT_ROLE_NUMBER of $ALIQUOT_ROLES, $ALIQUOT_REPLICA in $ALIQUOT_REPLICAS_MIN..$ALIQUOT_REPLICAS_MAX; exec sleep 1000"

// learner is a leader with a quarter of a device, workers with half of one each, so many, and a store with another command.
func learner(workers int) api.WorkloadSpec {
	asked := spec("0.25", told)
	asked.Name = "rl"
	asked.Roles = []api.Role{
		{Name: "worker", Replicas: api.Replicas{Min: workers, Max: workers}, Share: spec("0.5", "").Share},
		{Name: "store", Share: spec("0.1..0.2", "").Share, Command: []string{"sh", "-c", "echo store; exec sleep 1000"}},
	}
	return asked
}

// TestRolesStartTogether: a workload with roles starts as a whole, each process with the share and the command of its role and told which one it is; the
// next server knows all of it, and stopping the first ends all.
func TestRolesStartTogether(t *testing.T) {
	s := newSite(t, nil)
	first := s.submit(learner(2))
	all := []string{"rl", "rl-store-0", "rl-worker-0", "rl-worker-1"}
	s.awaitRunning(all...)
	for name, said := range map[string]string{
		"rl": "main 0 of main=1,worker=2,store=1, 0 in 4..4\n", "rl-worker-0": "worker 0 of main=1,worker=2,store=1, 1 in 4..4\n",
		"rl-worker-1": "worker 1 of main=1,worker=2,store=1, 2 in 4..4\n", "rl-store-0": "store\n",
	} {
		until.Polled(t, name+" printed", func() bool { return s.log(name) == said }) // of which nobody tells
	}
	holds := func() {
		t.Helper()
		for name, floor := range map[string]api.Milli{"rl": 250, "rl-worker-0": 500, "rl-worker-1": 500, "rl-store-0": 100} {
			work := s.running(name)
			if grants := work.Status.Grants; len(grants) != 1 || grants[0].ComputeFloor != floor || work.Spec.Share.Compute.Floor != floor || work.Status.Replicas != 4 {
				t.Errorf("%s holds %+v of %+v, one of %d", name, grants, work.Spec.Share, work.Status.Replicas)
			}
			if whole := work.Whole(); whole.Share.Compute.Floor != 250 || len(whole.Roles) != 2 || whole.Roles[0].Name != "worker" || whole.Roles[1].Command[2] != "echo store; exec sleep 1000" {
				t.Errorf("of %s the whole is %+v", name, whole)
			}
		}
	}
	holds()
	if one := s.running("rl-store-0").Status.Replica; *one != (api.Replica{Of: first.UID, Number: 3, Role: "store"}) {
		t.Errorf("the store is %+v", one)
	}
	why, err := s.Why(context.Background(), "rl")
	if err != nil || !strings.Contains(why.Message, "with 0.25 of compute") || !strings.HasSuffix(why.Message, "; 4 of its processes (1 main, 2 worker, 1 store)") {
		t.Errorf("why: %+v, %v", why, err)
	}
	s.restart()
	s.awaitRunning(all...)
	holds()
	var free api.Milli
	if devices, err := s.Devices(context.Background()); err != nil {
		t.Fatal(err)
	} else {
		for _, device := range devices {
			free += device.ComputeFree
		}
	}
	if free != 650 {
		t.Errorf("%s of two devices is free", free)
	}
	if _, err := s.Stop(context.Background(), me, "rl", 0); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning()
	for _, name := range all {
		if status := s.ended(name).Status; status.Outcome != api.Stopped {
			t.Errorf("%s ended with %+v", name, status)
		}
	}
	if left := s.agent.Prepared(); len(left) != 0 {
		t.Errorf("still granted: %+v", left)
	}
}

// TestRolesWaitAsOne: where there is room for some roles and not for all, nothing starts; why and plan say what each asks for, also after a restart, and
// all start once the rest is free.
func TestRolesWaitAsOne(t *testing.T) {
	s := newSite(t, nil)
	big := spec("1", "exec sleep 1000")
	big.Name = "big"
	s.submit(big)
	s.running("big")
	s.submit(learner(2))
	asks := "it is first in line for 0.25 of a device with 1Gi of memory, and with them for role worker 2 tasks at once, each of 0.50 of a device with 1Gi of memory, " +
		"and with them for role store 0.10 of a device with 1Gi of memory, and not enough is free"
	for range 2 {
		why, err := s.Why(context.Background(), "rl")
		if err != nil || why.Phase != api.Waiting || why.Message != asks {
			t.Errorf("why: %+v, %v", why, err)
		}
		if live := s.live(); !slices.Equal(live, []string{"big", "rl"}) {
			t.Errorf("there are %v", live)
		}
		s.restart()
	}
	small := learner(1)
	small.Name = "small"
	small.Priority = 1
	plan, err := s.Plan(context.Background(), me, small)
	if err != nil || plan.Phase != api.Starting || len(plan.Grants) != 3 || !strings.HasPrefix(plan.Message, "with main on device ") ||
		!strings.Contains(plan.Message, "; worker on device ") || !strings.HasSuffix(plan.Message, "; 3 of its processes (1 main, 1 worker, 1 store)") {
		t.Errorf("planned: %+v, %v", plan, err)
	}
	if _, err := s.Stop(context.Background(), me, "big", 0); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning("rl", "rl-store-0", "rl-worker-0", "rl-worker-1")
}

// TestRolesStartAllOrNone: where one of another role cannot be prepared, none starts, and all do later.
func TestRolesStartAllOrNone(t *testing.T) {
	s := newSite(t, nil)
	s.agent.mu.Lock()
	s.agent.refuse, s.agent.passes = errors.New("the arbiter is away"), 3
	s.agent.mu.Unlock()
	work := s.submit(learner(2))
	s.heard("the refusal is shown", func() bool {
		why, err := s.Why(context.Background(), work.UID)
		return err == nil && strings.Contains(why.Message, "the arbiter is away")
	})
	if left, live := s.agent.Prepared(), s.live(); len(left) != 0 || !slices.Equal(live, []string{"rl"}) {
		t.Errorf("of a start that failed are left %+v and %v", left, live)
	}
	s.agent.mu.Lock()
	s.agent.refuse = nil
	s.agent.mu.Unlock()
	s.awaitRunning("rl", "rl-store-0", "rl-worker-0", "rl-worker-1")
}

// TestRoleNeverBegan: where the server died while the roles were being started and a worker never began, the next one ends the others and says why.
func TestRoleNeverBegan(t *testing.T) {
	s := newSite(t, nil)
	s.submit(learner(1))
	s.awaitRunning("rl", "rl-store-0", "rl-worker-0")
	worker := s.running("rl-worker-0")
	s.reopenWithout(worker)
	for _, name := range []string{"rl", "rl-store-0"} {
		if status := s.ended(name).Status; status.Outcome != api.Evicted || !strings.Contains(status.Reason, "not all of them were") {
			t.Errorf("%s ended with %+v", name, status)
		}
	}
	if left := s.agent.Prepared(); len(left) != 0 {
		t.Errorf("still granted: %+v", left)
	}
}

// TestRoleEndsAlone: a worker that ends has done its part, and the next server knows who is left; so does the leader, by whose name the others are
// stopped then.
func TestRoleEndsAlone(t *testing.T) {
	s := newSite(t, nil)
	asked := learner(2)
	gone := asked.Roles[1]
	gone.Command = []string{"true"}
	asked.Roles[1] = gone
	s.submit(asked)
	s.awaitRunning("rl", "rl-worker-0", "rl-worker-1")
	if status := s.ended("rl-store-0").Status; status.Outcome != api.Succeeded {
		t.Errorf("the store ended with %+v", status)
	}
	s.restart()
	s.awaitRunning("rl", "rl-worker-0", "rl-worker-1")
	if now := s.running("rl-worker-1").Status.Replicas; now != 3 {
		t.Errorf("the next server counts %d", now)
	}
	if err := syscall.Kill(s.running("rl").Status.PID, syscall.SIGKILL); err != nil { // the leader
		t.Fatal(err)
	}
	s.awaitRunning("rl-worker-0", "rl-worker-1")
	if _, err := s.Stop(context.Background(), other, "rl", 0); err == nil {
		t.Error("another user stopped them")
	}
	left, err := s.Stop(context.Background(), me, "rl", 0)
	if err != nil || left.Spec.Name != "rl-worker-0" {
		t.Fatalf("stopped was %+v, %v", left, err)
	}
	s.awaitRunning()
	_, err = s.Stop(context.Background(), me, "rl", 0)
	refused(t, err, api.CodeConflict, "rl has ended")
}

// TestRolesRefused: what is wrong with one role is said with its name.
func TestRolesRefused(t *testing.T) {
	s := newSite(t, nil)
	for words, change := range map[string]func(*api.Role){
		"role worker: the program nosuch cannot be run: it is in none of":                       func(r *api.Role) { r.Command = []string{"nosuch"} },
		"role worker: workload rl wants 3 devices on one node":                                  func(r *api.Role) { r.Devices = 3 },
		"role worker: a memory ceiling of 1Ti was asked for":                                    func(r *api.Role) { r.Share.Memory.Ceiling.Bytes = 1 << 40 },
		"role worker: a limit of 100000.00 cores was asked for":                                 func(r *api.Role) { r.CPU = 100_000_000 },
		"role worker: workload rl wants a device of model V100":                                 func(r *api.Role) { r.Model = "V100" },
		"role worker: it has as many processes as it starts with, and 1..2 were asked for":      func(r *api.Role) { r.Replicas = api.Replicas{Min: 1, Max: 2} },
		"a role has the name main, which is that of the workload's own processes":               func(r *api.Role) { r.Name = "main" },
		"two roles have the name store":                                                         func(r *api.Role) { r.Name = "store" },
		"the role name \"a23456789-123456789-123456789-123\" has 33 characters; use at most 32": func(r *api.Role) { r.Name = "a23456789-123456789-123456789-123" },
	} {
		asked := learner(2)
		change(&asked.Roles[0])
		_, err := s.Submit(context.Background(), me, asked)
		refused(t, err, api.CodeInvalid, words)
	}
	asked := learner(4) // each would fit alone
	_, err := s.Submit(context.Background(), me, asked)
	refused(t, err, api.CodeInvalid, "no devices of this server could hold 0.25 of a device with 1Gi of memory, and with them for role worker 4 tasks at once")
	s.submit(learner(2))
	s.awaitRunning("rl", "rl-store-0", "rl-worker-0", "rl-worker-1")
	_, err = s.Resize(context.Background(), me, "rl-worker-0", server.ShareChange{Weight: new(int32(3))})
	refused(t, err, api.CodeConflict, "rl has roles, each with its own share")
}
