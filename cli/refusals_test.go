package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// Every refusal is one sentence on standard error, with its status, and nothing on standard output.
func TestRefusals(t *testing.T) {
	f := newFakeServer(t)
	for _, test := range []struct {
		line   string
		refuse *api.Error
		status int
		says   string
	}{
		{"nonsense", nil, ExitUsage, `there is no command "nonsense"`},
		{"bogus", nil, ExitUsage, "there is no command \"bogus\": see `aliquot --help`"},
		{"submitt", nil, ExitUsage, "did you mean `aliquot submit`?"},
		{"queue lisst", nil, ExitUsage, "did you mean `aliquot queue list`?"},
		{"sumbit --gpu 0.05 -- true", nil, ExitUsage, "there is no command \"sumbit\": did you mean `aliquot submit`?"},
		{"statsu", nil, ExitUsage, "did you mean `aliquot ps` or `aliquot show`?"},
		{"status -o json", nil, ExitUsage, "did you mean `aliquot ps` or `aliquot show`?"},
		{"kill night", nil, ExitUsage, "did you mean `aliquot stop`?"},
		{"cancel night", nil, ExitUsage, "did you mean `aliquot stop`?"},
		{"queue delete q --force", nil, ExitUsage, "did you mean `aliquot queue remove`?"},
		{"--nonsense", nil, ExitUsage, "unknown flag: --nonsense"},
		{"help nope", nil, ExitUsage, "there is no command \"nope\": see `aliquot --help`"},
		{"help queue lisst", nil, ExitUsage, "did you mean `aliquot queue list`?"},
		{
			"submit --name n ./trainer --gpu 0.1 -x", nil, ExitUsage, "--gpu stands after the program ./trainer, where it would be the program's, and is a flag of aliquot submit: " +
				"write `aliquot submit --name n --run RUN --gpu 0.1 -- ./trainer -x` if it is for aliquot submit, `aliquot submit --name n --run RUN -- ./trainer --gpu 0.1 -x` if it is for the program",
		},
		{"run ./trainer --preemptible --mem=4Gi", nil, ExitUsage, "write `aliquot run --run RUN --preemptible --mem=4Gi -- ./trainer` if"},
		{"ps extra", nil, ExitUsage, "takes no arguments"},
		{"ps -o xml", nil, ExitUsage, "there is no such format"},
		{"ps --nonsense", nil, ExitUsage, "unknown flag: --nonsense"},
		{"show", nil, ExitUsage, "needs the name of a workload"},
		{"show a b", nil, ExitUsage, "one too many"},
		{"run", nil, ExitUsage, "needs a program"},
		{"stop", nil, ExitUsage, "needs the name of a workload"},
		{"stop a --grace -5s", nil, ExitUsage, "not less than nothing"},
		{"resize a", nil, ExitUsage, "needs what to change"},
		{"completion tcsh", nil, ExitUsage, `no completion for "tcsh"`},
		{"submit --gpu 0 -- x", nil, ExitUsage, "--gpu"},
		{"submit --gpu 0.8..0.2 -- x", nil, ExitUsage, "--gpu"},
		{"submit --gpu NaN -- x", nil, ExitUsage, "--gpu"},
		{"submit --gpu 1e309 -- x", nil, ExitUsage, "--gpu"},
		{"submit --mem 4Qi -- x", nil, ExitUsage, "--mem"},
		{"submit --mem 99999999999999999999 -- x", nil, ExitUsage, "--mem"},
		{"submit --time-limit soon -- x", nil, ExitUsage, "--time-limit"},
		{"submit --cpu NaN -- x", nil, ExitUsage, "--cpu NaN"},
		{"submit --cpu 0 -- x", nil, ExitUsage, "at least 0.001"},
		{"submit --cpu 0.0001 -- x", nil, ExitUsage, "at least 0.001"},
		{"submit --devices 0 -- x", nil, ExitUsage, "a share of nothing"},
		{"submit --time-limit 0s -- x", nil, ExitUsage, "--time-limit 0s"},
		{"submit --weight 0 -- x", nil, ExitUsage, "a share of nothing"},
		{"resize x --weight 0", nil, ExitUsage, "a share of nothing"},
		{"submit --host-memory 0 -- x", nil, ExitUsage, "--host-memory 0"},
		{"submit --weight -1 -- x", nil, ExitUsage, "--weight -1: of what is over the floors this is a share of nothing"},
		{"submit --devices -1 -- x", nil, ExitUsage, "--devices -1: a share of no device"},
		{"submit --max-latency-class 10 -- x", nil, ExitUsage, "latency class 10 cannot be asked for; give 1, the fastest, to 9"},
		{"submit --max-latency-class -1 -- x", nil, ExitUsage, "latency class -1 cannot be asked for"},
		{"submit --max-latency-class 0 -- x", nil, ExitUsage, "--max-latency-class 0: the fastest class is 1"},
		{"submit --max-latency-class fast -- x", nil, ExitUsage, "--max-latency-class"},
		{"submit --class foo -- x", nil, ExitUsage, `unknown class "foo"`},
		{"submit --name Bad -- x", nil, ExitUsage, "the workload name"},
		{"submit --gpu= --mem 1Gi -- x", nil, ExitUsage, "--gpu: nothing was given: write for example 0.25, or leave it out for a whole device"},
		{"run --gpu= -- x", nil, ExitUsage, "--gpu: nothing was given"},
		{"submit --mem= -- x", nil, ExitUsage, "--mem: nothing was given: write for example 4Gi"},
		{"submit --time-limit= -- x", nil, ExitUsage, "--time-limit: nothing was given"},
		{"submit --cpu= -- x", nil, ExitUsage, "--cpu: nothing was given"},
		{"submit --host-memory= -- x", nil, ExitUsage, "--host-memory: nothing was given"},
		{"submit --model= -- x", nil, ExitUsage, "--model: nothing was given"},
		{"submit --queue= -- x", nil, ExitUsage, "--queue: nothing was given"},
		{"submit --name= -- x", nil, ExitUsage, "--name: nothing was given"},
		{"submit --class= -- x", nil, ExitUsage, "--class: nothing was given"},
		{"resize x --gpu=", nil, ExitUsage, "--gpu: nothing was given"},
		{"resize x --mem= --gpu 0.5", nil, ExitUsage, "--mem: nothing was given"},
		{"queue set q --quota=", nil, ExitUsage, "--quota: nothing was given"},
		{"queue set q --limit=", nil, ExitUsage, "--limit: nothing was given"},
		{"submit --mem 4 -- x", nil, ExitUsage, "--mem 4: 4 bytes are less than any context takes (100Mi); did you mean 4Gi?"},
		{"submit --mem 0..4 -- x", nil, ExitUsage, "did you mean 0..4Gi?"},
		{"submit --mem 4..8 -- x", nil, ExitUsage, "did you mean 4Gi..8Gi?"},
		{"resize x --mem 4", nil, ExitUsage, "did you mean 4Gi?"},
		{"submit --mem 64Mi -- x", nil, ExitUsage, "64Mi of memory is less than any context takes (100Mi)"},
		{"submit --host-memory 1 -- x", nil, ExitUsage, "--host-memory 1: 1 byte is less than any program takes (1Mi); did you mean 1Gi?"},
		{"submit --host-memory 900Ki -- x", nil, ExitUsage, "900Ki"},
		{"submit --time-limit 1ns -- x", nil, ExitUsage, "a time limit of 1ns is less than any program takes to start (1ms)"},
		{"submit --mem 4gi -- x", nil, ExitUsage, "did you mean 4Gi?"},
		{"submit --mem 4GB -- x", nil, ExitUsage, "did you mean 4G?"},
		{"submit --priority 99999999999 -- x", nil, ExitUsage, "--priority 99999999999: the number is too large (see `aliquot submit --help`)"},
		{"submit --priority high -- x", nil, ExitUsage, "--priority high: this is no whole number"},
		{"submit --gpu -- x", nil, ExitUsage, "--gpu needs a value"},
		{"run --name -- x", nil, ExitUsage, "--name needs a value"},
		{"submit --devices -- x", nil, ExitUsage, "--devices needs a value"},
		{"stop x --grace soon", nil, ExitUsage, "--grace soon: this is no time"},
		{"ps --all=maybe", nil, ExitUsage, "--all=maybe: write --all=true or --all=false"},
		{"submit --cpu 9e9 -- x", nil, ExitUsage, "no machine has so many"},
		{"queue set q --shortest-first=", nil, ExitUsage, "--shortest-first: nothing was given"},
		{"queue set q --shortest-first soon", nil, ExitUsage, "--shortest-first"},
		{"queue set q --weight 0", nil, ExitUsage, "--weight 0: write a whole number from 1 to 1000000"},
		{"queue set q --weight=", nil, ExitUsage, "--weight: nothing was given"},
		{"queue set q --weight 3@", nil, ExitUsage, "--weight 3@: write a weight, 3, or one on a model, 3@H200"},
		{"queue set q --weight 0@H200", nil, ExitUsage, "--weight 0@H200: write a whole number from 1 to 1000000, or none for that which it has without"},
		{"logs train --tail -1", nil, ExitUsage, "--tail -1: give how many"},
		{"queue set q --quota lots", nil, ExitUsage, "--quota"},
		{"queue set q --limit lots", nil, ExitUsage, "--limit"},
		{"queue set q --quota-mem= ", nil, ExitUsage, "--quota-mem: nothing was given"},
		{"queue set q --quota-mem 80", nil, ExitUsage, "did you mean 80Gi?"},
		{"queue set q --quota-mem 80Gi@", nil, ExitUsage, "--quota-mem 80Gi@: write an amount"},
		{"queue set q --limit @H200", nil, ExitUsage, "--limit @H200: write an amount"},
		{"queue set q --limit-shares 1.5", nil, ExitUsage, "--limit-shares 1.5: write a whole number"},
		{"queue set q --quota 1@H200 --quota lots@H200", nil, ExitUsage, "--quota lots@H200: "},
		{"queue set q --weight-mem -1", nil, ExitUsage, "--weight-mem -1: write a whole number from 1 to 1000000, or none for that which it has without"},
		{"queue show nowhere", nil, ExitFailed, "there is no queue nowhere"},
		{"ps --queue nowhere", nil, ExitFailed, "there is no queue nowhere: see `aliquot queue list`"},
		{"ps --queue=", nil, ExitUsage, "--queue: nothing was given"},
		{"ps --user no-such-person", nil, ExitFailed, "there is no user no-such-person on this machine, nor workloads of one"},
		{"ps --user=", nil, ExitUsage, "--user: nothing was given"},
		{"advise --user no-such-person", nil, ExitFailed, "there is no user no-such-person on this machine, nor workloads of one"},
		{"advise --queue=", nil, ExitUsage, "--queue: nothing was given"},
		{"show none", nil, ExitFailed, "there is no workload none"},
		{"stop none", nil, ExitFailed, "see `aliquot ps`"},
		{"submit --queue q -- x", &api.Error{Code: "not_found", Message: "there is no queue q: see `aliquot queue list`"}, ExitFailed, "there is no queue q: see `aliquot queue list`"},
		{"stop x", &api.Error{Code: "forbidden", Message: "x belongs to bob"}, ExitFailed, "x belongs to bob"},
		{"run -- x", &api.Error{Code: "unavailable", Message: "the disk is full"}, ExitFailed, "the disk is full"},
		{"up --http 0.0.0.0:80", nil, ExitUsage, "loopback only"},
		{"up --http nowhere", nil, ExitUsage, "loopback only"},
		{"up --latency-class 10", nil, ExitUsage, "--latency-class: latency classes \"10\": a class from 1, which answers fastest, to 9 is expected (character 1); write for example 2, or 1@H200,2@A10"},
		{"up --latency-class 1@", nil, ExitUsage, "a model or the UUID of a device is expected"},
	} {
		f.mu.Lock()
		f.refuse = test.refuse
		f.mu.Unlock()
		got := f.command(strings.Fields(test.line)...)
		first, _, _ := strings.Cut(got.err, "\n")
		if got.exit.Status != test.status || got.out != "" || !strings.HasPrefix(first, "aliquot: ") || !strings.Contains(first, strings.ReplaceAll(test.says, "RUN", f.run)) {
			t.Errorf("%s: status %d, out %q, error %q; want status %d and %q", test.line, got.exit.Status, got.out, got.err, test.status, test.says)
		}
	}
	for _, work := range f.works {
		t.Errorf("a refused command left %s behind", work.Spec.Name)
	}
}

// A mistake in a share is shown with a caret under its character.
func TestCaret(t *testing.T) {
	f := newFakeServer(t)
	got := f.command("submit", "--gpu", "0.8..0.2", "--", "x")
	lines := strings.Split(strings.TrimSpace(got.err), "\n")
	if len(lines) != 3 || !strings.Contains(lines[1], "0.8..0.2") || !strings.HasPrefix(strings.TrimSpace(lines[2]), "^") ||
		strings.Index(lines[2], "^") != strings.Index(lines[1], "0.8..0.2")+len("0.8..") {
		t.Errorf("got:\n%s", got.err)
	}
}

func TestNoServer(t *testing.T) {
	run := filepath.Join(t.TempDir(), "nobody")
	for _, line := range []string{"ps", "devices", "run -- true", "submit -- true", "top --once", "logs x", "queue list"} {
		got := invoke(t, Program{}, append([]string{"--run", run}, strings.Fields(line)...)...)
		want := "aliquot: no server answers at " + filepath.Join(run, "aliquot.sock") + ": start one with `aliquot up`\n"
		if got.exit.Status != ExitFailed || got.err != want {
			t.Errorf("%s: %v %q", line, got.exit, got.err)
		}
	}
}

// Where no server runs, there is nothing to stop and nothing to be advised to start.
func TestDownWithoutServer(t *testing.T) {
	got := invoke(t, Program{}, "--run", filepath.Join(t.TempDir(), "nobody"), "down")
	if got.exit.Status != ExitFailed || strings.Contains(got.err, "aliquot up") || !strings.Contains(got.err, "there is nothing to stop") {
		t.Errorf("%v %q", got.exit, got.err)
	}
}

// Too little memory is shown where it was typed.
func TestTooLittleIsPointedAt(t *testing.T) {
	for flags, want := range map[string]string{
		"--mem 64Mi":        "\n  64Mi\n  ^ less than any context takes (100Mi)\n",
		"--mem 0..64Mi":     "\n  0..64Mi\n     ^ less than any context takes (100Mi)\n",
		"--mem 0..4":        "\n  0..4\n     ^ less than any context takes (100Mi)\n",
		"--mem 4..8":        "\n  4..8\n  ^ less than any context takes (100Mi)\n",
		"--host-memory 1Ki": "\n  1Ki\n  ^ less than any program takes (1Mi)\n",
	} {
		line := append(append([]string{"submit"}, strings.Fields(flags)...), "--", "x")
		if got := invoke(t, Program{}, line...); got.exit.Status != ExitUsage || !strings.HasSuffix(got.err, want) {
			t.Errorf("%s: %v %q", flags, got.exit, got.err)
		}
	}
}

// A name that is empty, as of a variable of a shell that is not set, is no name.
func TestEmptyNames(t *testing.T) {
	f := newFakeServer(t)
	for _, line := range [][]string{
		{"show", ""},
		{"why", ""},
		{"logs", ""},
		{"stop", ""},
		{"stop", "night", ""},
		{"wait", ""},
		{"resize", "", "--gpu", "0.1"},
		{"queue", "show", ""},
		{"queue", "set", "", "--quota", "1"},
		{"queue", "remove", ""},
	} {
		if got := f.command(line...); got.exit.Status != ExitUsage || !strings.Contains(got.err, "is empty: `aliquot ") || got.out != "" {
			t.Errorf("%q: %+v", line, got)
		}
	}
}
