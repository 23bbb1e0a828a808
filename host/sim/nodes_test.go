package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// described are nodes in short: of each its name, how many devices of what, and their memory.
func described(t *testing.T, text string) []string {
	t.Helper()
	nodes, err := ReadNodes(text)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, n := range nodes {
		what := n.Node + ":"
		if d := n.Devices; len(d) > 0 {
			what += fmt.Sprintf(" %d of %s with %v, peak %d", len(d), d[0].Model, d[0].Memory, d[0].Traits.Peak)
		}
		all = append(all, fmt.Sprint(what, n.Resources))
	}
	return all
}

func TestReadNodes(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for text, want := range map[string][]string{
		"2x8:h100,1x4:nvidia-l4": {"node-00000: 8 of H100 with 80Gi, peak 700[]", "node-00001: 8 of H100 with 80Gi, peak 700[]", "node-00002: 4 of L4 with 24Gi, peak 72[]"},
		"1x2":                    {"node-00000: 2 of GPU with 80Gi, peak 0[]"},
		write("openb.csv", "sn,cpu_milli,memory_mib,gpu,model\na,8000,1024,2,T4\nb,8000,1024,0,none\n"): {
			"a: 2 of T4 with 16Gi, peak 70[{cpu 8000} {memory 1073741824}]", "b:[{cpu 8000} {memory 1073741824}]",
		},
		write("own", formatLine+"\n# two kinds\nnodes 1 devices=1 model=H200 cpu=4\nnodes 1 devices=2 mem=10Gi\njob a run=1m\n"): {
			"node-00000: 1 of H200 with 141Gi, peak 700[{cpu 4000}]", "node-00001: 2 of GPU with 10Gi, peak 0[]",
		},
	} {
		if got := described(t, text); !slices.Equal(got, want) {
			t.Errorf("%s is read as %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"":                                "no nodes are named: write 64x8:h100",
		"0x8":                             `"0x8" of "0x8": as its count of nodes write a whole number from 1 to 100000`,
		"2x8,1x65:h100":                   `"1x65:h100" of "2x8,1x65:h100": as its count of devices write a whole number from 1 to 64`,
		"2x8,":                            `"" of "2x8,": as its count of nodes`,
		"99999x1,2x1":                     "from 1 to 1",
		"2x8:h1000":                       `there is no model "h1000"; use one of A10, A100, `,
		"2x8:":                            `there is no model ""`,
		"8xh100":                          "read nodes: open 8xh100: no such file",
		write("other", "n1 8\n"):          `other:1: the first line is "n1 8": it must be "aliquot trace 1", or the headings`,
		write("empty", ""):                `empty:1: the first line is ""`,
		write("bad.csv", "sn,gpu\na,1\n"): "bad.csv:2: the table has no column cpu_milli",
		write("bad", formatLine+"\nnodes 1 devices=none\n"):                         "bad:2: devices=none: write a whole number",
		write("many.csv", "sn,cpu_milli,memory_mib,gpu,model\na,8000,1024,65,T4\n"): "many.csv:2: node \"a\" has 65 GPUs and 1024 MiB of memory: at most 64",
		write("none", formatLine+"\nqueue a\n"):                                     "none has no node with a device",
		write("cpu.csv", "sn,cpu_milli,memory_mib,gpu,model\na,8000,1024,0,none\n"): "cpu.csv has no node with a device",
	} {
		if _, err := ReadNodes(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, want %q", text, err, want)
		}
	}
}

// Traces run on other nodes than their own: whole devices on as few as the largest node allows, failures on the nodes that are there.
func TestTracesOnOtherNodes(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	nodes, err := ReadNodes("2x4:h100,1x2")
	if err != nil {
		t.Fatal(err)
	}
	own := write("own", formatLine+"\nnodes 9 devices=1 cpu=2\njob a at=0 run=10s devices=4 cpu=64\nrole r gpu=0.1 cpu=8\nfail node-00001 at=1s for=10s\n")
	for name, want := range map[string]string{
		"muri:" + write("m", "job_id,num_gpu,submit_time,iterations,iteration_time\n0,8,0,10,500\n1,2,0,1,7\n"):                  "2x4 1x2",
		"philly:" + write("p", "timestamp,duration,num_gpus,cluster\n2017-10-09 00:01:40,80.0,6,b\n2017-10-09 00:00:00,1,4,a\n"): "1x4 2x4",
		"jobs:" + own: "1x4",
	} {
		trace, err := OpenJobs(name, 0.9, 1, nil, nodes)
		if err != nil {
			t.Fatal(err)
		}
		var shapes []string
		for _, j := range trace.Jobs {
			shapes = append(shapes, fmt.Sprintf("%dx%d", j.Tasks, j.Devices))
		}
		if got := strings.Join(shapes, " "); got != want || trace.Capacity() != 10_000 {
			t.Errorf("%s has jobs of %s on %d thousandths of devices, want %s on 10", name, got, trace.Capacity(), want)
		}
		r := runJobs(t, trace, Backfill)
		if never(t, r); r.Jobs != len(trace.Jobs) { // CPU is not counted where no node has any
			t.Errorf("%s: %d of %d jobs ended", name, r.Jobs, len(trace.Jobs))
		}
	}
	for _, name := range []string{"generated-jobs:1", "generated-mix:1"} {
		trace, err := OpenJobs(name, 0.9, 1, MadeSharing(1), nodes)
		if err != nil || len(trace.Nodes) != 3 || slices.ContainsFunc(trace.Jobs, func(j Job) bool { return j.Devices > 4 }) {
			t.Errorf("%s has %d nodes, or jobs that are too large for them (%v)", name, len(trace.Nodes), err)
		}
	}
	for _, name := range []string{"generated:2", "openb:" + filepath.Join(folder, "some")} {
		if strings.HasPrefix(name, "openb") {
			write(openbNodes, "sn,cpu_milli,memory_mib,gpu,model\na,8000,1024,2,T4\n")
			write("openb_pod_list_some.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np,4000,10,1,1000,H100\nq,4000,10,1,1000,T4\n")
		}
		pods, err := Open(name, nodes)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(pods.Inflated(1, 130), Options{GiveUp: true})
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case r.Capacity != 10_000 || r.Placed == 0:
			t.Errorf("%s: %d pods are placed on %d thousandths of devices", name, r.Placed, r.Capacity)
		case strings.HasPrefix(name, "openb") && r.At(130) > 80: // of the devices, 80 % are the one model that there is a pod for
			t.Errorf("%s: %g %% are allocated, some to pods that may not use what there is", name, r.At(130))
		case strings.HasPrefix(name, "generated") && r.At(130) < 80:
			t.Errorf("%s: only %g %% are allocated", name, r.At(130))
		}
	}
	few, err := ReadNodes("1x4")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenJobs("jobs:"+own, 0.9, 1, nil, few); err == nil || !strings.Contains(err.Error(), "own:5: there is no node node-00001 among the 1 that the trace is to run on") {
		t.Errorf("a failure of a node that is not there gives %v", err)
	}
}

// What is read of nodes, short or from a file, can be run on.
func FuzzNodes(f *testing.F) {
	for _, text := range []string{"64x8:h100,16x4", "1x1:nvidia l4", "x", "1x1:,", formatLine + "\nnodes 2 devices=3 model=T4\n", "sn,cpu_milli,memory_mib,gpu,model\na,1,1,1,T4\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "\n") {
			path := filepath.Join(t.TempDir(), "nodes")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			text = path
		}
		nodes, err := ReadNodes(text)
		if err != nil || len(nodes) > 20 {
			return
		}
		trace := few(t, "nodes 1", "job a run=1m gpu=0.1")
		trace.Nodes = nodes
		if r := runJobs(t, trace, Backfill); r.Jobs+len(r.NeverRun) != 1 {
			t.Fatalf("%d jobs ended", r.Jobs)
		}
	})
}
