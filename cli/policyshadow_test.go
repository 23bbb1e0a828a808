package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/sim"
)

// recordedDay is the event log of a small made day.
func recordedDay(t *testing.T) []byte {
	t.Helper()
	var text bytes.Buffer
	log, err := engine.NewLogWriter(&text, engine.New(engine.Config{}).Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sim.RunJobs(t.Context(), sim.GenerateJobs(1, 1, 1), sim.JobOptions{Order: sim.Fair, Log: log}); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

// A candidate runs beside a record or beside the server; one that says nothing else changes nothing.
func TestPolicyShadow(t *testing.T) {
	folder := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	day := recordedDay(t)
	same, other := file("same.policy", "aliquot policy 1\ntop fair\n"), file("other.policy", "aliquot policy 1\nqueue default limit=8\ntop one-line\nplacement default\n")
	log := file("00000001.events", string(day))
	empty, damaged := t.TempDir(), file("damaged", strings.Replace(string(day), "started", "stopped", 1))
	f := newFakeServer(t)
	f.record = string(day)
	for _, c := range []struct {
		line   []string
		status int
		says   string
	}{
		{[]string{same, "--record", log}, 0, "No workload would have fared otherwise in the "},
		{[]string{same, "--record", folder}, 0, "No workload would have fared otherwise in the "},
		{[]string{other, "--record", log}, 0, "-o wide names all"},
		{[]string{other, "--record", log, "-o", "json"}, 0, `"change": "earlier"`},
		{[]string{other, "--record", folder + "/none"}, ExitFailed, "read the event log: stat"},
		{[]string{other, "--record", empty}, ExitFailed, "there is no event log in " + empty},
		{[]string{other, "--record", damaged}, ExitFailed, "the event log is damaged at byte"},
		{[]string{other, "--record", log, "--for", "1h"}, ExitUsage, "leave --for out, or --record"},
		{[]string{other, "--for", "1ms"}, ExitUsage, "give a second at least"},
		{[]string{other + "x"}, ExitFailed, "read the policy"},
		{[]string{same, "--for", "1s"}, 0, "No workload would have fared otherwise in the "},
		{[]string{other, "--for", "1s"}, 0, "starts earlier"},
	} {
		got := invoke(t, Program{}, append(append([]string{"policy", "shadow"}, c.line...), "--run", f.run)...)
		if got.exit.Status != c.status || !strings.Contains(got.out+got.err, c.says) {
			t.Errorf("%v: status %d, %s%s\nwant %d, %s", c.line, got.exit.Status, got.out, got.err, c.status, c.says)
		}
	}
	got := invoke(t, Program{}, "policy", "shadow", other, "--record", log, "-o", "json")
	var out sim.ShadowResult
	if err := json.Unmarshal([]byte(got.out), &out); err != nil || out.Policy != other || out.Live.Started != 100 || out.Candidate.Started != 100 || len(out.Queues) == 0 {
		t.Errorf("%v: %s%s", err, got.out, got.err)
	}
	f.record = ""
	if got := invoke(t, Program{}, "policy", "shadow", same, "--for", "1s", "--run", f.run); got.exit.Status != ExitFailed || !strings.Contains(got.err, "the server told nothing in 1s") {
		t.Errorf("%+v", got)
	}
}

// How much elastic work grows and shrinks is there where some does.
func TestShadowOfReplicasIsShown(t *testing.T) {
	out := &sim.ShadowResult{}
	if n := len(shadowFigures(out).head); n != 13 {
		t.Errorf("without elastic work there are %d columns", n)
	}
	out.Live.Grown, out.Live.Shrunk, out.Candidate.Grown = 5, 2, 3
	table := shadowFigures(out)
	var got []string
	for _, c := range table.rows[0][13:] {
		got = append(got, c.text)
	}
	if strings.Join(got, " ") != "5 3 2 0" || len(table.head) != 17 || shadowWords[sim.ShadowReplicas] == "" {
		t.Errorf("its columns are %q under %q", got, table.head)
	}
}
