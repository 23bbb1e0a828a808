package sim

import (
	"reflect"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

func mixed(t *testing.T, m Mix) *Trace {
	t.Helper()
	trace, err := GenerateMix(m, nil)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

func TestMix(t *testing.T) {
	m := DefaultMix(10, 3)
	m.TrainerFloor, m.ServiceFloor, m.ServiceQuantile = 800, 50, 0.9
	duty := MadeSharing(m.Seed).Duty
	trace := mixed(t, m)
	if !reflect.DeepEqual(trace, mixed(t, m)) || reflect.DeepEqual(trace.Jobs, mixed(t, DefaultMix(10, 3)).Jobs) {
		t.Error("the mix is not made by what it is asked for alone")
	}
	trainers, held, atOnce := 0, 0.0, 0
	for i := range trace.Jobs {
		j := &trace.Jobs[i]
		held += float64(j.Duration)
		if j.Submit == 0 {
			atOnce++
		}
		if j.Class == api.Training {
			trainers++
		}
		if (j.Class == api.Training) != (j.Program != "" && j.Service == "" && j.Share.Compute.Floor == max(1, j.Busy*800/1000)) ||
			(j.Class == api.Inference) != (j.Service != "" && j.Share.Compute.Floor == floorByPast(duty, j, 50, 0.9) && j.Share.Weight == 1000) || j.Share.Memory.Floor.Bytes < 1<<30 || j.Submit >= m.Horizon || j.Duration > m.Horizon {
			t.Fatalf("job %+v", j)
		}
	}
	n := float64(len(trace.Jobs))
	if part := float64(trainers) / n; part < 0.48 || part > 0.56 {
		t.Errorf("%g of %g jobs are trainers", part, n)
	}
	if load := held / float64(m.Horizon) / 80; load < 3 || load > 3.1 {
		t.Errorf("the load is %g", load)
	}
	if part := float64(atOnce) / n; part < 0.33 || part > 0.34 {
		t.Errorf("%g of the jobs come at the beginning", part)
	}
	if _, err := GenerateMix(m, &Sharing{Duty: MadeDuty(1)}); err == nil || !strings.Contains(err.Error(), "give both") {
		t.Errorf("without programs: %v", err)
	}
	m.Memory = 1 << 30
	if _, err := GenerateMix(m, nil); err == nil || !strings.Contains(err.Error(), "give them more memory") {
		t.Errorf("on devices with little memory: %v", err)
	}
}

// floorByPast is the floor of a service as it is defined: such a part of the samples before the one that it has when it comes are no larger.
func floorByPast(d *Duty, j *Job, least api.Milli, part float64) api.Milli {
	busy := d.Services[d.index(j.Service)].Busy
	now := (j.FirstSample + int(j.Submit/d.Step)) % len(busy)
	for floor := least; ; floor++ {
		below := 0
		for _, b := range busy[:now] {
			if b <= floor {
				below++
			}
		}
		if float64(below) > part*float64(now) || floor == api.WholeDevice {
			return floor
		}
	}
}

// The same jobs on devices of their own and sharing them.
func TestSharedDevicesDoMore(t *testing.T) {
	m := DefaultMix(2, 1)
	trace, of := mixed(t, m), MadeSharing(m.Seed)
	run := func(t2 *Trace) *SharingResult {
		even, err := Policy("even", 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := RunJobs(t.Context(), t2, JobOptions{Order: Backfill, Placement: even, Sharing: of, Until: m.Horizon})
		if err != nil {
			t.Fatal(err)
		}
		return r.Sharing
	}
	own, shared, limited := run(trace.OnOwn()), run(trace), run(trace.LimitUse(0.5, of))
	if own.AtOnce > 16 || own.Slowed != 0 || own.FloorsMissed != 0 || !near(own.Speed, 100) || !near(own.Served, 100) {
		t.Errorf("on devices of their own: %+v", own.figures())
	}
	if shared.Useful < 2*own.Useful {
		t.Errorf("%g %% are useful where devices are shared, %g where not", shared.Useful, own.Useful)
	}
	if limited.Useful > 52 || limited.Useful < 36 || limited.Speed < shared.Speed {
		t.Errorf("with half of the devices used at most: %+v", limited.figures())
	}
}

// What a limit of use counts is the resource of a node, also of one that comes back, and of a job what it or its like keep busy.
func TestLimitUse(t *testing.T) {
	of := &Sharing{Interference: MadeInterference(), Duty: steady(map[string][]api.Milli{"s": {100, 300}})}
	trace := few(t, "nodes 1 devices=2 cpu=8", "job a run=1s busy=0.6 cpu=1", "job b run=1s service=s", "job c run=1s program=made-11 devices=2", "job d run=1s", "fail node-00000 at=1s for=1s")
	limited := trace.LimitUse(0.9, of)
	want := []int64{600, 200, 140, 1000}
	for i := range limited.Jobs {
		resources := limited.Jobs[i].Resources
		if last := resources[len(resources)-1]; last.Name != "use" || last.Amount != want[i] {
			t.Errorf("job %s uses %+v, want %d", limited.Jobs[i].ID, resources, want[i])
		}
	}
	if len(trace.Jobs[0].Resources) != 1 || len(trace.Nodes[0].Resources) != 1 {
		t.Error("the trace itself is changed")
	}
	back := limited.Events[1].(engine.NodeSet)
	for _, n := range []engine.NodeSet{limited.Nodes[0], back} {
		if len(n.Resources) != 2 || n.Resources[1] != (engine.Resource{Name: "use", Amount: 1800}) {
			t.Errorf("the node has %+v", n.Resources)
		}
	}
}
