package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// built is what make gpu builds; make test builds it first.
const built = "../../build/gpu"

// notSimulated are the steps that simulated devices cannot be asked.
var notSimulated = map[string]bool{
	"probe switch": true, "probe libcudart": true, "probe pytorch": true, "share nvidia-smi": true,
	"torch frameworks": true, "torch training alone, eager": true, "torch training alone, graphs": true, "torch inference alone, eager": true,
	"torch inference alone, graphs": true, "torch beside each other, eager": true, "torch beside each other, graphs": true,
}

// The whole of gpu.sh runs on simulated devices: everything that can be is done there, the rest says why not, and nothing is left.
func TestSimulated(t *testing.T) {
	if _, err := os.Stat(filepath.Join(built, "gpu.sh")); err != nil {
		t.Fatalf("%v: make gpu builds it", err)
	}
	temporary, out := t.TempDir(), t.TempDir()
	if len(temporary) > 60 { // a socket's path is short; see unix(7)
		var err error
		if temporary, err = os.MkdirTemp("", "gpu-"); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(temporary) }()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", filepath.Join(built, "gpu.sh"), "--simulate", "--short")
	cmd.Env = append(os.Environ(), "OUT="+out, "TMPDIR="+temporary)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it cleans up then
	cmd.WaitDelay = 30 * time.Second
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("gpu.sh: %v\n%s", err, said.String())
	}

	text, err := os.ReadFile(filepath.Join(out, "gpu.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got report
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if !got.Simulated || !got.Short || len(got.Command) == 0 || got.Machine["kernel"] == "" {
		t.Errorf("the report does not say how it was made: %+v", got)
	}
	seen := checkSteps(t, got)
	if total := seen["share probe alloc"].Figures["total_bytes"]; total != float64(2<<30) {
		t.Errorf("a program with a share of 2 GiB was shown %v", total)
	}
	for _, file := range []string{"summary.txt", "log.txt"} {
		if text, err := os.ReadFile(filepath.Join(out, file)); err != nil || !bytes.Contains(text, []byte("simulated")) {
			t.Errorf("%s: %v\n%s", file, err, text)
		}
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("it left behind %v, %v", left, err)
	}
}

// checkSteps checks what became of each step, and returns them by name.
func checkSteps(t *testing.T, got report) map[string]result {
	t.Helper()
	seen := map[string]result{}
	for _, step := range got.Steps {
		name := step.Part + " " + step.Name
		seen[name] = step
		if notSimulated[name] {
			if step.Status != notRunStatus || !strings.HasPrefix(step.Why, "simulated: ") {
				t.Errorf("%s: %s %q; want not run, and why", name, step.Status, step.Why)
			}
			continue
		}
		if step.Status != doneStatus || len(step.Figures) == 0 {
			t.Errorf("%s: %s %s", name, step.Status, step.Why)
		}
	}
	if want := len((&suite{}).steps()); len(got.Steps) != want {
		t.Errorf("%d steps were taken, and there are %d", len(got.Steps), want)
	}
	for _, g := range got.Goals { // every goal that needs no code to run on the device was judged, by all that is about it
		runs := strings.Contains(g.Name, "PyTorch") || strings.HasPrefix(g.Name, "its ") || strings.HasSuffix(g.Name, "switches apart")
		if judged := g.Value != nil && g.Of > 0; judged == runs {
			t.Errorf("%s: judged: %v", g.Name, judged)
		}
		if want := len(sets()); g.Name == "ceiling_overshoot" && g.Of != want {
			t.Errorf("%s was judged by %d sets, and there are %d", g.Name, g.Of, want)
		}
	}
	race := seen["share memory race"].Figures
	pieces, _ := race["pieces_over_ceiling_bytes"].(float64)
	held, _ := race["nvml_processes_most_bytes"].(float64)
	over, _ := race["nvml_processes_over_ceiling_bytes"].(float64)
	if race["tries"] != 2000. || pieces > 0 || held <= 0 || over > 0 {
		t.Errorf("the race for memory: %v", race)
	}
	// Here every byte is some process's, but for a piece that came and another that went within a look.
	if nobody, _ := race["nvml_held_by_nobody_bytes"].(float64); math.Abs(nobody) > 64<<20 {
		t.Errorf("the race for memory: %v", race)
	}
	checkSymbols(t, seen["probe symbols"].Figures, seen["share probe symbols"].Figures)
	if found := seen["probe exports"].Figures; found["without_an_entry"] != 0. || found["exported"] == 0. {
		t.Errorf("the simulated driver's exports: %v", found)
	}
	if found := seen["probe processor"].Figures; len(found) != 3 {
		t.Errorf("what the shim adds on this processor: %v", found)
	}
	return seen
}

// checkSymbols checks that the shim changes nothing of which functions are found how, but that it has those by name that the driver lacks.
func checkSymbols(t *testing.T, bare, shared figures) {
	t.Helper()
	if equal, _ := bare["equal"].(float64); equal < 150 || bare["equal"] != shared["equal"] {
		t.Errorf("%v functions are found alike by name and by cuGetProcAddress, and %v under a share", bare["equal"], shared["equal"])
	}
	if show(bare["by_name_only"]) != "[]" || show(shared["by_name_only"]) != show(bare["lacked"]) || show(bare["differ"]) != show(shared["differ"]) {
		t.Errorf("bare: %v\nunder a share: %v", bare, shared)
	}
}
