package cli

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
)

// What --role says is what is handed in: the share and the program of each role, or the workload's program; and what is wrong with one is said with its name.
func TestSubmitRoles(t *testing.T) {
	f := newFakeServer(t)
	got := f.command("submit", "--name", "rl", "--gpu", "0.25", "--mem", "2Gi", "--role", "worker --replicas 4 --gpu 0.5.. --mem 4Gi --devices 2 --model H200 --cpu 2 --host-memory 8Gi --weight 7 -- ./worker --name 'a b'",
		"--role", "store --gpu 0.1", "--", "./leader")
	if got.exit != (Exit{}) || got.err != "" {
		t.Fatalf("exit %v, error %q", got.exit, got.err)
	}
	_, body, _ := strings.Cut(f.calls[0], "{")
	var asked api.WorkloadSpec
	if err := json.Unmarshal([]byte("{"+body), &asked); err != nil {
		t.Fatal(err)
	}
	share := func(compute, memory string) (out api.Share) {
		if out.Compute.UnmarshalText([]byte(compute)) != nil || memory != "" && out.Memory.UnmarshalText([]byte(memory)) != nil {
			t.Fatalf("%s, %s", compute, memory)
		}
		return out
	}
	worker := api.Role{
		Name: "worker", Replicas: api.Replicas{Min: 4, Max: 4}, Share: share("0.5..", "4Gi"), Devices: 2, Model: "H200", CPU: 2000, Memory: 8 * gib,
		Command: []string{"./worker", "--name", "a b"},
	}
	worker.Share.Weight = 7
	want := []api.Role{worker, {Name: "store", Share: share("0.1", ""), Devices: 1}}
	if !reflect.DeepEqual(asked.Roles, want) || asked.Share != share("0.25", "2Gi") {
		t.Errorf("handed in was %+v with roles\n%+v, and should be\n%+v", asked.Share, asked.Roles, want)
	}
	for role, says := range map[string]string{
		"":                           "it has no name",
		"--gpu 0.5":                  "it has no name",
		"worker 'a":                  "a quote ' is not closed",
		`worker \`:                   "nothing follows",
		"worker --gpux 1":            "--role worker: unknown flag: --gpux",
		"worker --help":              "--role worker: ",
		"worker --name x":            "--role worker: unknown flag: --name",
		"worker --gpu 0.8..0.2":      "--role worker: --gpu: compute",
		"worker --gpu ''":            "--role worker: --gpu: nothing was given",
		"worker --devices 0":         "--role worker: --devices 0: a share of no device",
		"worker --mem 4":             "--role worker: --mem 4: 4 bytes are less",
		"worker --replicas 2..4":     "role worker: it has as many processes as it starts with",
		"worker ./train --gpu 0.1":   "--gpu stands after the program ./train",
		"Worker":                     "the role name",
		"main":                       "a role has the name main",
		"a -- x' --role b --role a ": "a quote",
	} {
		got := f.command("submit", "--role", role, "--", "true")
		if got.exit.Status != ExitUsage || !strings.Contains(got.err, says) || strings.Contains(got.out, "Usage:") {
			t.Errorf("of %q is said %q, %v; it should be %q", role, got.err, got.exit, says)
		}
	}
}

// A plan needs no program, neither of the workload nor of a role.
func TestPlanRolesWithoutProgram(t *testing.T) {
	f := newFakeServer(t)
	f.plan = api.Plan{Phase: api.Starting, Message: "on device 0"}
	got := f.command("plan", "--gpu", "0.5", "--role", "worker --replicas 2 --gpu 0.5")
	if got.exit != (Exit{}) || !strings.HasPrefix(got.out, "It would start at once on device 0") {
		t.Fatalf("%v %q %q", got.exit, got.out, got.err)
	}
	if last := f.calls[len(f.calls)-1]; !strings.Contains(last, `"name":"worker"`) || strings.Contains(last, "none") {
		t.Errorf("asked for was %s", last)
	}
	if got := f.command("submit", "--gpu", "0.5", "--role", "worker --gpu 0.5"); got.exit.Status != ExitUsage {
		t.Errorf("a submission without a program: %v %q", got.exit, got.out)
	}
}

// A command that is printed for a shell is read back word for word.
func TestShellWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOf(rapid.StringOf(rapid.SampledFrom([]rune(`ab -'"\$ é=*`)))).Draw(t, "words")
		back, err := shellWords(commandText(words))
		if err != nil || len(back) != len(words) || len(words) > 0 && !reflect.DeepEqual(back, words) {
			t.Fatalf("%q is printed as %s and read as %q, %v", words, commandText(words), back, err)
		}
	})
	for text, want := range map[string][]string{
		`a "b \"c\" \d $e" 'f\g' h\ i`: {"a", `b "c" \d $e`, `f\g`, "h i"},
		" \t\n":                        nil,
		`'' ""x`:                       {"", "x"},
		"a\xff b":                      {"a\xff", "b"},
	} {
		if got, err := shellWords(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is read as %q, %v", text, got, err)
		}
	}
}

// Lists and show name the roles of what waits, and of each process the one that it has.
func TestRolesAreShown(t *testing.T) {
	f := newFakeServer(t)
	furnish(f)
	whole := api.WorkloadSpec{
		Name: "rl", Queue: "default", Class: api.Training, Devices: 1, Share: api.Share{Compute: api.Compute{Floor: 250, Ceiling: 250}}, Command: []string{"./leader"},
		Roles: []api.Role{{Name: "worker", Devices: 2, Replicas: api.Replicas{Min: 4, Max: 4}, Share: api.Share{Compute: api.Compute{Floor: 500, Ceiling: 1000}}, Command: []string{"./worker"}}},
	}
	waits := &api.Workload{UID: "w1", User: "ann", Spec: whole, Status: api.WorkloadStatus{Phase: api.Waiting, Place: 1, Submitted: now}}
	runs := &api.Workload{UID: "w2", User: "ann", Spec: whole.InRole("worker"), Status: api.WorkloadStatus{
		Phase: api.Running, Submitted: now, Replicas: 5, Replica: &api.Replica{Of: "w0", Number: 3, Role: "worker", InRole: 2},
	}}
	runs.Spec.Name = "rl-worker-2"
	f.works = []*api.Workload{waits, runs}
	for line, says := range map[string][]string{
		"ps":               {"waiting (1st), 1 main, 4 worker   0.25 + 4 of 0.50..1.00 ×2", "rl-worker-2   running                           0.50..1.00 ×2 "},
		"show rl":          {"Replicas:     5: 1 main, 4 worker\n", "With worker:  4 of 0.50..1.00 ×2 of compute, - of memory: ./worker\n"},
		"show rl-worker-2": {"Command:    ./worker\n", "Replicas:   5 of 5: 1 main, 4 worker; this is number 3, worker 2\n", "With main:  1 of 0.25 of compute, - of memory: ./leader\n"},
	} {
		got := f.command(strings.Fields(line)...)
		for _, one := range says {
			if !strings.Contains(got.out, one) {
				t.Errorf("%s says\n%s%swithout %q", line, got.out, got.err, one)
			}
		}
	}
}
