package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

func TestOwnFormat(t *testing.T) {
	trace, err := OpenJobs("jobs:testdata/small.trace", 0.9, 1, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	last := trace.Jobs[len(trace.Jobs)-1]
	if len(trace.Events) != 2 || trace.Events[1].When() != 5*3_600_000_000 {
		t.Errorf("failures are read as %+v", trace.Events)
	}
	if len(trace.Nodes) != 3 || len(trace.Nodes[2].Devices) != 4 || trace.Nodes[2].Devices[0].Model != "L4" || len(trace.Queues) != 2 ||
		trace.Queues[0].Quota != 8000 || trace.Queues[1].Weight.All != 2 {
		t.Errorf("nodes and queues are read as %+v, %+v", trace.Nodes, trace.Queues)
	}
	if last.ID != "chat" || last.Submit != 3_600_000_000 || last.Duration != 7_200_000_000 || last.Share.Compute != (api.Compute{Floor: 250, Ceiling: 800}) ||
		last.Share.Memory.Floor.Bytes != 10<<30 || last.Model != "L4" || last.Preemptible || last.Priority != 5 || last.Resources[0].Amount != 2500 {
		t.Errorf("the last job is read as %+v", last)
	}
	for _, o := range orders {
		if r := runJobs(t, trace, o); r.Jobs != len(trace.Jobs) {
			t.Errorf("%s: %d of %d jobs ended", o, r.Jobs, len(trace.Jobs))
		}
	}
}

// Of a model that is known it is known what its devices can do and draw; links and memory nodes are as the line has them.
func TestDevicesOfNodes(t *testing.T) {
	trace := few(t, "nodes 1 devices=4 model=H100 linked=2 numa=3", "nodes 1 devices=1 model=new", "job a run=1h")
	var got []string
	for _, d := range trace.Nodes[0].Devices {
		got = append(got, fmt.Sprint(d.Traits.Peak, " ", d.Link, " ", d.NUMA))
	}
	if want := []string{"700 0 0", "700 0 0", "700 1 0", "700 1 1"}; !slices.Equal(got, want) {
		t.Errorf("the devices are %q, want %q", got, want)
	}
	if d := trace.Nodes[1].Devices[0]; d.Link != "" || d.NUMA != "" || d.Traits != (fleet.Traits{}) {
		t.Errorf("of a device of which nothing is said, this is known: %+v", d)
	}
}

// Jobs may ask for what devices must be able to do at the least: they run where that is known, and where it is nowhere they never run.
func TestJobsAskForDevices(t *testing.T) {
	trace := few(t, "nodes 1 devices=1 model=T4 latency-class=3", "nodes 1 devices=1 model=H100", "nodes 1 devices=1 latency-class=1",
		"job fast run=1h max-latency-class=2", "job faster run=1h max-latency-class=1", "job any run=1h max-latency-class=3", "job new run=1h min-capability=9.0",
		"job wide run=1h min-bandwidth=3000", "job none run=1h min-capability=9.0 max-latency-class=9")
	if of := trace.Jobs[slices.IndexFunc(trace.Jobs, func(j Job) bool { return j.ID == "none" })].Least; of != (fleet.Least{Capability: 90, Latency: 9}) {
		t.Errorf("what the last job asks for is read as %+v", of)
	}
	for _, o := range orders {
		r := runJobs(t, trace, o)
		if len(r.NeverRun) != 1 || r.NeverRun[0].Job != "none" || !strings.Contains(r.NeverRun[0].Reason, "compute capability 9.0 and latency class 9 or a faster one, and none is known to have it") {
			t.Errorf("%s: never run are %+v", o, r.NeverRun)
		}
		if o == Backfill && (r.Jobs != 5 || r.MeanWait != 1440) { // two wait for an hour: one of the class, one of the capability
			t.Errorf("%d jobs ended after %v s of waiting on average, want 5 after 1440", r.Jobs, r.MeanWait)
		}
	}
}

// A job's roles start with it, hold what they ask for as long as it runs, and give it back.
func TestRolesOfAJob(t *testing.T) {
	trace := few(t, "nodes 1 devices=4 cpu=8", "job gang run=1h tasks=3", "role launcher gpu=0.25 cpu=2", "role logger tasks=2 gpu=0.05 mem=1Gi",
		"job next at=1m run=1h tasks=4")
	gang := &trace.Jobs[0]
	if gang.Compute() != 3350 || gang.AllTasks() != 6 || gang.Roles[0].Resources[0].Amount != 2000 || gang.Roles[1].Share.Memory.Floor.Bytes != 1<<30 {
		t.Errorf("the job is read as %+v", gang)
	}
	for _, o := range orders {
		r := runJobs(t, trace, o)
		if r.Jobs != 2 {
			t.Errorf("%s: %d of 2 jobs ended", o, r.Jobs)
		}
		if want := 59.0 * 60 / 2; o == Backfill && r.MeanWait != want {
			t.Errorf("the next job waits until all roles have ended: %v s on average, want %v", r.MeanWait, want)
		}
	}
}

func TestBrokenLinesAreTold(t *testing.T) {
	for line, want := range map[string]string{
		"job":                                  "few:3: \"job\" stands alone",
		"task x run=1s":                        "\"task\" is no kind of line",
		"job x run=1s run=2s":                  "\"run=2s\" is not key=value with a key that comes once",
		"job x run=":                           "\"run=\" is not key=value",
		"job x at=5s":                          "job x does not say how long it runs",
		"job x run=5":                          "run=5: ",
		"job x run=99999d":                     "the time is too long",
		"job x run=1s colour=red":              "job has no colour",
		"job x run=1s devices=0":               "devices=0: write a whole number from 1 to 64",
		"job x run=1s gpu=0.9..0.2":            "gpu=0.9..0.2: ",
		"job x run=1s preemptible=maybe":       "write yes or no",
		"job x run=1s cpu=-1":                  "cpu=-1: write a number of cores",
		"job x run=1s busy=2":                  "busy=2: write a part of a device",
		"job x run=1s stages=0.5/0.5":          "stages=0.5/0.5: write three parts of its time",
		"job x run=1s stages=0.5/0.5/1.5":      "stages=0.5/0.5/1.5: \"1.5\" is no part of its time",
		"job x run=1s busy=0.5 service=s":      "leave out busy and program",
		"job x run=1s checkpoint=0s":           "checkpoint=0s: write how often it saves",
		"job x run=1s checkpoint=often":        "checkpoint=often: ",
		"job x run=1s restart=soon":            "restart=soon: ",
		"job x run=1s service=s checkpoint=1m": "serves and saves nothing",
		"job x run=1s max-latency-class=10":    "max-latency-class=10: write a whole number from 1 to 9",
		"job x run=1s min-bandwidth=0":         "min-bandwidth=0: write a whole number from 1",
		"job x run=1s min-capability=9":        "min-capability=9: compute capability",
		"nodes 1 latency-class=0":              "latency-class=0: write a whole number from 1 to 9",
		"fail node-00001 at=1s for=1s":         "there is no node node-00001 before this line",
		"fail node-00000 at=1s":                "the failure of node-00000 has no end",
		"nodes 0":                              "nodes 0: write a whole number",
		"role l gpu=0.1":                       "role l comes before any job",
		"job x run=1s\nrole l\nrole l":         "few:5: workload x has a role \"l\" without a name of its own",
		"job x run=1s tasks=1..2\nrole l":      "as many tasks as it says",
		"queue q parent=p":                     "queue q is under p, which does not come before it",
		"job x run=1s\njob x run=1s":           "few:4: job x comes twice",
		"queue q\nqueue q":                     "few:4: queue q comes twice",
		"queue q weight=0":                     "weight=0: ",
		"queue q quota=2\nqueue a parent=q quota=1\nqueue b parent=q quota=2\nqueue c\njob x run=1s": "few:5: the quotas of the queues under q add up to 3 devices, and its own is 2 devices",
		"queue o quota=2\nqueue q parent=o\nqueue a parent=q quota=3\njob x run=1s":                  "few:5: the quotas of the queues under o add up to 3 devices",
		"# nothing but a remark, and no job\n":                                                       "few has no jobs: it needs at least one",
	} {
		_, err := scanLines("few", strings.NewReader(formatLine+"\nnodes 1\n"+line), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, want %q", line, err, want)
		}
	}
	if _, err := scanLines("few", strings.NewReader("job x run=1s"), nil); err == nil || !strings.Contains(err.Error(), "few:1: the first line is") {
		t.Errorf("without its first line: %v", err)
	}
}

// What is read can be run: to the end, or with an error that says why not.
func FuzzOwnFormat(f *testing.F) {
	small, err := os.ReadFile(filepath.Join("testdata", "small.trace"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(small))
	f.Add(formatLine + "\nnodes 1\njob a run=1h checkpoint=1us restart=1m\njob b at=1m run=1h tasks=1..4 checkpoint=never\nfail node-00000 at=90s for=1m\n")
	f.Add(formatLine + "\nnodes 1\njob a run=1ms gpu=0..1\njob b at=1us run=30y\njob c run=9999d devices=64 tasks=65536\n")
	f.Fuzz(func(t *testing.T, text string) {
		trace, err := scanLines("fuzz", strings.NewReader(text), nil)
		if err != nil || len(trace.Nodes) > 20 || len(trace.Jobs) > 20 {
			return
		}
		for i := range trace.Jobs {
			if trace.Jobs[i].Tasks > 20 {
				return
			}
		}
		for _, o := range []Order{FirstCome, Fair, ShortestService, LeastService} {
			r, err := RunJobs(t.Context(), trace, JobOptions{Order: o})
			if err == nil && r.Jobs+len(r.NeverRun) != len(trace.Jobs) {
				t.Fatalf("%s: %d of %d jobs ended", o, r.Jobs, len(trace.Jobs))
			}
		}
	})
}

// What is read of either has jobs that come in order, from the beginning on, and nodes for each.
func FuzzMuriAndPhilly(f *testing.F) {
	f.Add("muri:", "job_id,num_gpu,submit_time,iterations,iteration_time\n0,4,1000,10,500\n1,16,500,1,7\n")
	f.Add("philly:", "timestamp,duration,num_gpus,cluster\n2017-10-09 00:01:40,80.0,8,b\n2017-10-09 00:00:00,50.5,12,a\n")
	f.Add("philly:", "timestamp,duration,num_gpus,cluster\n2017-10-09 00:00:00,1e8,1,a\n")
	f.Fuzz(func(t *testing.T, kind, text string) {
		path := filepath.Join(t.TempDir(), "trace.csv")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if kind != "muri:" {
			kind = "philly:"
		}
		trace, err := OpenJobs(kind+path, 0.9, 1, nil, nil)
		if err != nil {
			return
		}
		for i, j := range trace.Jobs {
			if j.Submit < 0 || i == 0 && j.Submit != 0 || i > 0 && j.Submit < trace.Jobs[i-1].Submit || j.Duration < 1 || kind == "philly:" && j.Tasks > len(trace.Nodes) {
				t.Fatalf("job %d of %d is read as %+v", i, len(trace.Jobs), j)
			}
		}
	})
}

func TestReadMuriAndPhilly(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	muri := "job_id,num_gpu,submit_time,iterations,iteration_time\n0,4,1000,10,500\n1,16,500,1,7\n"
	trace, err := OpenJobs("muri:"+write("m.csv", muri), 0.9, 1, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := trace.Jobs[0], trace.Jobs[1]; len(trace.Nodes) != 8 || a.ID != "1" || a.Tasks != 2 || a.Devices != 8 || a.Duration != 7000 ||
		b.Submit != 500_000 || b.Duration != 5_000_000 || b.Devices != 4 {
		t.Errorf("Muri's jobs are read as %+v", trace.Jobs)
	}
	staged := "job_id,num_gpu,submit_time,iterations,iteration_time,resource_time_0,resource_time_1,resource_time_2\n0,1,0,10,490,446,8,0.5\n1,1,0,10,107,117,68,0\n"
	if trace, err = OpenJobs("muri:"+write("s.csv", staged), 0.9, 1, nil, nil); err != nil {
		t.Fatal(err)
	}
	if a, b := trace.Jobs[0].Stages, trace.Jobs[1].Stages; a != (Stages{911, 17, 2}) || b != (Stages{1000, 636, 0}) {
		t.Errorf("the stages of Muri's jobs are read as %v and %v", a, b)
	}
	philly := "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 00:01:40,80.0,8,1,b\n2017-10-09 00:00:00,50.5,12,1,a\n"
	trace, err = OpenJobs("philly:"+write("p.csv", philly), 0.5, 1, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	// 50.5 s × 16 and 80 s × 8 devices over 100 s are 14.48 devices; at half of all, 28.96 of them: four nodes.
	if a := trace.Jobs[0]; len(trace.Nodes) != 4 || a.Queue != "a" || a.Tasks != 2 || a.Duration != 50_500_000 || trace.Jobs[1].Submit != 100_000_000 {
		t.Errorf("Philly's jobs are read as %+v on %d nodes", trace.Jobs, len(trace.Nodes))
	}
	for name, text := range map[string]string{
		"muri:" + write("m1", muri+"2,0,1,1,1\n"):                                                    "m1:4: job \"2\" wants 0 GPUs",
		"muri:" + write("m2", muri+"2,1,1,0,1\n"):                                                    "m2:4: job 2 comes at 1 ms and has 0 iterations",
		"muri:" + write("m3", staged+"2,1,1,1,1,1,x,1\n"):                                            "m3:4: resource_time_1 is \"x\"",
		"philly:" + write("p1", philly+"9.10.2017,1,1,1,a\n"):                                        "p1:4: timestamp is \"9.10.2017\"",
		"philly:" + write("p2", philly+"2017-10-09 00:00:00,NaN,1,1,a\n"):                            "p2:4: duration is \"NaN\"",
		"philly:" + write("p3", philly+"2017-10-09 00:00:00,1,1,1,\n"):                               "p3:4: the job has no cluster",
		"philly:" + write("p4", strings.Replace(philly, "num_gpus", "n", 1)):                         "has no column num_gpus",
		"philly:" + write("p5", "timestamp,duration,num_gpus,cluster\n2017-10-09 00:00:00,80,8,a\n"): "p5: all jobs come within 1µs, and a load of 0.9 of them takes 88888889 nodes, more than 100000",
		"generated-jobs:none":                  "write generated-jobs:NODES",
		"jobs:" + filepath.Join(folder, "not"): "read trace: ",
	} {
		if _, err := OpenJobs(name, 0.9, 1, nil, nil); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s gives %v, want %q", name, err, text)
		}
	}
}
