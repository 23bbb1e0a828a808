package engine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// commands are the commands of a text with their input, as datadriven reads them of a file; answers are left out.
func commands(text string) (all []*datadriven.TestData, err error) {
	var d *datadriven.TestData
	answer := false
	for n, line := range strings.Split(text, "\n") {
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == "":
			d, answer = nil, false
		case answer || d == nil && strings.HasPrefix(trimmed, "#"):
		case trimmed == "----":
			answer = true
		case d != nil:
			d.Input += line + "\n"
		default:
			d = &datadriven.TestData{Pos: fmt.Sprintf("few:%d", n+1)}
			if d.Cmd, d.CmdArgs, err = datadriven.ParseLine(trimmed); err != nil {
				return nil, fmt.Errorf("%s: %w", d.Pos, err)
			}
			all = append(all, d)
		}
	}
	return all, nil
}

// tell runs a scenario up to its end or to the first command that cannot be read.
func (w *world) tell(text string) error {
	all, err := commands(text)
	for _, d := range all {
		if _, err := w.command(d); err != nil {
			return err
		}
	}
	return err
}

// What cannot be read of a scenario is told in one sentence with its place, and nothing has happened.
func TestBrokenScenariosAreTold(t *testing.T) {
	for text, want := range map[string]string{
		"fly a":                             "few:3: fly: there is no such command: see docs/scenarios.md",
		"submit":                            "few:3: submit: word 1 is missing: see docs/scenarios.md",
		"submit a gpu=1 pro=3":              "few:3: submit: it has no pro= here: see docs/scenarios.md",
		"submit a b gpu=1":                  "few:3: submit: \"b\" is one word too many",
		"submit a gpu=1 gpu=1":              "few:3: submit: gpu= comes twice: write it once",
		"submit a gpu=most":                 "few:3: submit: ",
		"submit a gpu=1 tasks=2x":           "few:3: submit: tasks=2x: write a whole number of at most 2147483647",
		"submit a gpu=1 limit=9":            "few:3: submit: \"9\" is no time: write for example 90s or 2h",
		"submit a gpu=1\nroll r":            "few:3: submit: \"roll r\" is no role: role NAME and the arguments of its tasks",
		"submit a gpu=1\nrole r colour=red": "few:3: submit: it has no colour= here: see docs/scenarios.md",
		"submit a gpu=(1":                   "few:3: cannot parse directive at column",
		"done last":                         "few:3: done: last: write a whole number of at most 2147483647",
		"settle all":                        "few:3: settle: \"all\" is one word too many",
		"advance 9999999h":                  "few:3: advance: \"9999999h\" is no time",
		"advance 999999h":                   "few:3: advance: write a time from 0s to ten years",
		"node n2 devices=5000":              "few:3: node: devices=5000: write at most 4096",
		"node n2\nd1 h100":                  "few:3: node: \"d1 h100\" is no device: write UUID MODEL SIZE [HEALTH]",
		"queue q order=backwards":           "few:3: queue: ",
		"queue q\nh100 quota=2 size=1":      "few:3: queue: it has no size= here: see docs/scenarios.md",
		"policy placement=worst":            "few:3: policy: there is no placement worst",
		"policy placement=(cost=1, luck=2)": "few:3: policy: placement: luck=2 is no feature with a whole number as its weight",
		"node n2\nd1 h100 80Gi price=3":     "few:3: node: it has no price= here: see docs/scenarios.md",
		"policy\npool":                      "few:3: policy: word 1 is missing: see docs/scenarios.md",
		"policy\nq limits=2":                "few:3: policy: it has no limits= here: see docs/scenarios.md",
		"why":                               "few:3: why: word 1 is missing: see docs/scenarios.md",
		"usage a.0.0=lots":                  "few:3: usage: ",
	} {
		w := newWorld(t, Config{})
		if err := w.tell("node n1 devices=2"); err != nil {
			t.Fatal(err)
		}
		before := w.engine.Snapshot()
		err := w.tell("\n\n" + text)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q gives %v, want %s", text, err, want)
		}
		if after := w.engine.Snapshot(); !bytes.Equal(after, before) {
			t.Errorf("%q has happened in part: the engine was\n%s\nand is\n%s", text, before, after)
		}
	}
}

// A scenario of any text is read or told why not, and what is read keeps the engine's invariants.
func FuzzScenario(f *testing.F) {
	files, err := filepath.Glob("testdata/sched/*")
	if err != nil || len(files) == 0 {
		f.Fatal("there are no scenarios: ", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if len(text) < 800 { // small ones: what is fuzzed is how they are read, and TestScenarios runs all
			f.Add(string(text))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		w := newWorld(t, Config{})
		if err := w.tell(text); err != nil && (!strings.HasPrefix(err.Error(), "few:") || strings.Contains(strings.TrimRight(err.Error(), "\n"), "\n")) {
			t.Errorf("it is told %q", err)
		}
	})
}
