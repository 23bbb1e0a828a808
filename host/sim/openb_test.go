package sim

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/place"
)

const (
	someNodes = "sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,2,P100\nn2,96000,393216,8,G2\n"
	somePods  = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n" +
		"p2,6000,12288,1,460,P100|T4,LS,Running,10,70,10\np1,12000,16384,2,1000,,LS,Running,0,5,0\np3,1000,1024,0,0,,LS,Running,2,9,2\n"
)

func writeOpenb(t *testing.T, nodes, pods string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{openbNodes: nodes, "openb_pod_list_some.csv": pods} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestReadOpenb(t *testing.T) {
	folder := writeOpenb(t, someNodes, somePods)
	o, err := Open("openb:"+folder+"/some", nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Nodes) != 2 || len(o.Nodes[1].Devices) != 8 || o.Nodes[0].Devices[1].Model != "P100" || o.Nodes[0].Resources[1].Amount != 262144<<20 {
		t.Errorf("nodes are read as %+v", o.Nodes)
	}
	if len(o.Pods) != 3 || o.Pods[0].ID != "p1" || o.Pods[0].Devices != 2 || o.Pods[1].Share.Compute.Floor != 460 ||
		o.Pods[1].Submit != 10_000_000 || o.Pods[1].Duration != 60_000_000 || o.Pods[2].Share.Compute.Floor != 0 {
		t.Errorf("pods are read as %+v", o.Pods)
	}
	want := []engine.Feasibility{{Class: "P100|T4", Allowed: []string{"n1"}}}
	if got := o.classes(); !reflect.DeepEqual(got, want) {
		t.Errorf("classes are %+v, want %+v", got, want)
	}
	if lists, err := OpenbLists(folder); err != nil || len(lists) != 1 || lists[0] != "some" {
		t.Errorf("lists are %v (%v)", lists, err)
	}
}

func TestBrokenTracesAreToldWithTheirLine(t *testing.T) {
	for _, c := range []struct{ nodes, pods, want string }{
		{someNodes + "n3,x,1,1,T4\n", somePods, "openb_node_list_gpu_node.csv:4: cpu_milli is \"x\""},
		{someNodes + "n1,1,1,1,T4\n", somePods, ":4: node \"n1\" has no name, no model or is listed twice"},
		{"sn,cpu_milli,memory_mib,model\nn1,1,1,T4\n", somePods, "has no column gpu"},
		{someNodes, somePods + "p4,1,1,2,500,,,,1,2,3\n", ":5: pod p4 wants 2 GPUs of 500 thousandths"},
		{someNodes, somePods + "p4,1,1,1,-5,,,,1,2,3\n", ":5: gpu_milli is \"-5\""},
		{someNodes, somePods + "p4,1\n", "openb_pod_list_some.csv:5: the count of its fields is 2, and that of the headings 11: write one for each"},
		{someNodes, somePods + "p\"4\n", "openb_pod_list_some.csv:5: the line cannot be read at its column 2: "},
		{someNodes, "", "the file is empty"},
	} {
		_, err := ReadOpenb(writeOpenb(t, c.nodes, c.pods), "some")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("the error is %v, want %q", err, c.want)
		}
	}
	for _, name := range []string{"openb:/nowhere/", "openb:/nowhere/x", "generated:0", "philly:x"} {
		if _, err := Open(name, nil); err == nil {
			t.Errorf("trace %s is opened", name)
		}
	}
}

func FuzzOpenb(f *testing.F) {
	f.Add(someNodes, somePods)
	f.Add("sn,gpu\n,", "name\n\"")
	f.Fuzz(func(_ *testing.T, nodes, pods string) {
		o := &Openb{model: map[string]string{}}
		if scanTable("nodes", strings.NewReader(nodes), o.node) == nil && scanTable("pods", strings.NewReader(pods), o.pod) == nil {
			o.classes()
		}
	})
}

func TestSeeds(t *testing.T) {
	if got, err := ParseSeeds("42..44,7"); err != nil || !reflect.DeepEqual(got, []uint64{42, 43, 44, 7}) {
		t.Errorf("seeds are %v (%v)", got, err)
	}
	for _, bad := range []string{"", "x", "5..4", "1..2000", "-1"} {
		if got, err := ParseSeeds(bad); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}

// Inflated wants what it says, and only the seed decides what comes.
func TestInflated(t *testing.T) {
	o := Generate(30, 1)
	for _, percent := range []int{60, 130} {
		a, b, c := o.Inflated(1, percent), o.Inflated(1, percent), o.Inflated(2, percent)
		if !reflect.DeepEqual(a.Jobs, b.Jobs) || reflect.DeepEqual(a.Jobs, c.Jobs) {
			t.Errorf("at %d %% the seed does not decide alone", percent)
		}
		var sum int64
		for i := range a.Jobs {
			sum += a.Jobs[i].Compute()
		}
		if want := a.Capacity() * int64(percent) / 100; sum < want-8000 || sum > want+8000 {
			t.Errorf("at %d %% jobs want %d, want %d", percent, sum, want)
		}
	}
}

// The same run gives the same figures, all that came is accounted for, and placing at random is the worst.
func TestSeries(t *testing.T) {
	o := Generate(60, 1)
	at := map[string]float64{}
	for _, name := range Policies() {
		policyFor := func(seed uint64) (*place.Policy, error) { return Policy(name, seed, o.Pods) }
		var runs [2]*Series
		for i := range runs {
			var err error
			if runs[i], err = RunSeries(context.Background(), o, name, []uint64{1, 2, 3}, nil, nil, policyFor); err != nil {
				t.Fatal(err)
			}
		}
		if !reflect.DeepEqual(runs[0], runs[1]) {
			t.Errorf("%s: two runs differ: %+v and %+v", name, runs[0], runs[1])
		}
		for _, r := range runs[0].Runs {
			if r.Placed+r.GivenUp != r.Jobs || r.Placed == 0 || r.GivenUp == 0 {
				t.Errorf("%s: %+v does not add up", name, r)
			}
		}
		at[name] = runs[0].MeanAt(130)
		if at[name] <= runs[0].MeanAt(80) || at[name] > 100 {
			t.Errorf("%s: allocated %.2f at 130 and %.2f at 80", name, at[name], runs[0].MeanAt(80))
		}
	}
	if at["random"] >= at["best_fit"] || at["random"] >= at["fgd"] || at["random"] >= at["default"] {
		t.Errorf("allocated at 130: %v", at)
	}
	if _, err := Policy("luck", 1, nil); err == nil {
		t.Error("there is a policy luck")
	}
}

// Jobs that run their time leave, those behind start when there is room, and at the end nothing is left.
func TestChurn(t *testing.T) {
	o := Generate(12, 1)
	policy := place.Default()
	trace := &Trace{Nodes: o.Nodes, Classes: o.classes(), Jobs: o.Pods}
	r, err := Run(trace, Options{Config: engine.Config{Placement: &policy}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Placed != len(o.Pods) || r.Waiting != 0 || r.GivenUp != 0 {
		t.Errorf("%+v: not all of %d ran", r, len(o.Pods))
	}
}

// A search finds weights that are no worse than those it began with, the same on each run.
func TestTuning(t *testing.T) {
	one, err := NewCase(Generate(12, 1), "generated", 5)
	if err != nil {
		t.Fatal(err)
	}
	var found [2]place.Policy
	var score [2]float64
	for i := range found {
		search := Tuning{Cases: []*Case{one}, Start: place.Policy{Name: "nothing"}, Seed: 3, Evaluations: 12}
		if found[i], score[i], err = search.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	start, err := (&Tuning{Cases: []*Case{one}}).Score(&place.Policy{Name: "nothing"})
	if err != nil || score[0] <= start {
		t.Errorf("the search began with %f and ended with %f (%v)", start, score[0], err)
	}
	if !reflect.DeepEqual(found[0], found[1]) || score[0] != score[1] {
		t.Errorf("two searches found %+v (%f) and %+v (%f)", found[0], score[0], found[1], score[1])
	}
	if err := found[0].Validate(); err != nil {
		t.Error(err)
	}
}
